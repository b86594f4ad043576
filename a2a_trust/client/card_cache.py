"""A private HTTP cache for cards: keeps answers for as long as their servers allow (RFC 9111)."""

from __future__ import annotations

from typing import Final

from a2a_trust.cache import BoundedCache
from a2a_trust.errors import ConfigurationError
from a2a_trust.net.fetcher import Fetched

_MOST_SECONDS: Final = 86_400.0
"""The upper limit, so that a replaced card is noticed within a day."""


class CardCache:
    """Keeps the answers of the last ``size`` URLs, so that fewer requests and smaller answers are needed.

    Only verified cards are kept, and a kept card is verified again at each use, because its keys may have been revoked.
    Threads may share one.
    """

    def __init__(self, size: int = 256) -> None:
        if type(size) is not int or size < 1:
            raise ConfigurationError(
                f"CardCache: size is {size!r:.40}; write a number of cards, 1 or more, or leave the cache out"
            )
        self._kept = BoundedCache[str, Fetched](max_entries=size)

    def fresh(self, url: str, now: float) -> Fetched | None:
        """The answer of that URL, if it is still fresh."""
        return self._kept.get(url, now)

    def known(self, url: str) -> Fetched | None:
        """The answer of that URL, however old, for a conditional request."""
        return self._kept.get(url)

    def keep(self, url: str, fetched: Fetched, now: float) -> None:
        """Keep an answer to a request of the moment ``now``, unless its server permits no caching."""
        seconds = min(fetched.max_age or 0.0, _MOST_SECONDS)
        if seconds > 0 or fetched.etag is not None or fetched.last_modified is not None:
            self._kept.put(url, fetched, since=now, until=now + seconds)
        else:
            self._kept.remove(url)
