"""ASGI: the guard in front of an agent."""
