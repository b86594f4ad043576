"""Fixtures of the guides: real databases."""

from tests.cheap_hashes import cheap_hashes
from tests.databases import redis_server, redis_url

__all__ = ["cheap_hashes", "redis_server", "redis_url"]
