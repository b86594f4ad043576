"""Requests: who is asking, and may they."""
