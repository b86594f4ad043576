"""Cards as they were answered, for as long as their servers allow (RFC 9111), for one program: a private cache."""

from __future__ import annotations

from typing import Final

from a2a_trust.cache import BoundedCache
from a2a_trust.errors import ConfigurationError
from a2a_trust.net.fetcher import Fetched

__all__ = ["CardCache"]

_MOST_SECONDS: Final = 86_400.0
"""However long a server says: a card that was replaced is noticed within a day."""


class CardCache:
    """Keeps the answers of the last ``size`` URLs, so that servers are asked less often and send less.

    Why this is a class: it remembers. A kept card is verified again whenever it is used: its keys may have been revoked
    since. Only what was verified is kept. It may be shared by threads.
    """

    def __init__(self, size: int = 256) -> None:
        if type(size) is not int or size < 1:
            raise ConfigurationError(
                "CardCache: size is a number of cards, 1 or more; leave the cache out to keep none"
            )
        self._kept = BoundedCache[str, Fetched](max_entries=size)

    def fresh(self, url: str, now: float) -> Fetched | None:
        """The answer of that URL, if its server need not be asked again yet."""
        return self._kept.get(url, now)

    def known(self, url: str) -> Fetched | None:
        """The answer of that URL, however old, by which its server can be asked for changes."""
        return self._kept.get(url)

    def keep(self, url: str, fetched: Fetched, now: float) -> None:
        """Keep an answer that came when it was ``now``, unless nothing could come of it."""
        seconds = min(fetched.max_age or 0.0, _MOST_SECONDS)
        if seconds > 0 or fetched.etag is not None or fetched.last_modified is not None:
            self._kept.put(url, fetched, since=now, until=now + seconds)
        else:
            self._kept.remove(url)
