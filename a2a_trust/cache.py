"""Bounded memories, and one flight for several callers who want the same."""
