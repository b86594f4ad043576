"""Fixtures of the tests of stores: real databases."""

from tests.databases import postgres, postgres_url, redis_server, redis_url

__all__ = ["postgres", "postgres_url", "redis_server", "redis_url"]
