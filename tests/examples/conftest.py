"""Fixtures of the guides: real databases."""

from tests.databases import redis_server, redis_url

__all__ = ["redis_server", "redis_url"]
