"""A verifier for cards of many agents, with a bounded cache of verified cards."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeAlias

from a2a_trust.base.cache import BoundedCache
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.trust.origins import OriginFromCard, UnsafeAnyOrigin
from a2a_trust.keys.trust.policy import AnyKey, Policy
from a2a_trust.keys.trust.store import TrustSource, TrustStore, check_trust_source
from a2a_trust.signing.verify import Coverage, Document, Origin, VerifiedCard, text_of, verify_card

_MAX_CACHED_BYTES: Final = 65_536
"""The largest document that is cached: larger ones would fill the memory."""

_Cache: TypeAlias = BoundedCache[tuple[bytes, str | OriginFromCard] | tuple[bytes], VerifiedCard]
"""The key is the document and its origin, or only the document if it may come from any host."""


class CardVerifier:
    """Verify cards of many agents, with a cache of verified cards.

    The cache maps the exact bytes of a document, and its origin, to the verified card. An entry is used only while the
    keys and signatures are valid, and only while the trusted keys have not changed.
    """

    def __init__(
        self,
        trust: TrustSource,
        *,
        clock: Callable[[], float] = time.time,
        policy: Policy = AnyKey(),  # noqa: B008
        coverage: Coverage = Coverage.WHOLE_CARD,
        remember: int = 1024,
    ) -> None:
        """``trust``, ``policy`` and ``coverage`` are as for ``verify_card``.

        ``clock`` returns seconds since the epoch. ``remember`` is the largest number of cards in the cache.
        """
        if type(remember) is not int or remember < 0:
            raise ConfigurationError(f"CardVerifier: remember={remember!r} must be a number of cards, 0 or more")
        self._trust, self._clock, self._policy, self._coverage = trust, clock, policy, coverage
        self._remember = remember
        check_trust_source(trust, "CardVerifier: trust must be TrustFile('trust.toml'), or a TrustStore of keys")
        #: The trusted keys and the cards that they verified: one value, so that all threads see both together.
        self._verified: tuple[TrustStore, _Cache] = trust.trust_store(), _Cache(max_entries=remember)

    def verify(self, document: Document, *, origin: Origin) -> VerifiedCard:
        """Verify a card at the current time. Arguments and errors are as for ``verify_card``.

        Bytes that are in the cache are not read again; a dict is written as text each time, and a file is read.
        """
        if not isinstance(document, bytes):
            document = text_of(document)
        now = self._clock()
        store = self._trust.trust_store()
        last, cache = self._verified
        if store is not last:
            cache = _Cache(max_entries=self._remember)
            self._verified = store, cache
        # The comparison of types comes first: isinstance only would make a hit 12 % slower.
        asked = (document, origin) if type(origin) is str or not isinstance(origin, UnsafeAnyOrigin) else (document,)
        entry = cache.entry(asked)
        if entry is not None and entry[1] <= now < entry[2]:
            return entry[0]
        verified = verify_card(document, store, origin=origin, now=now, policy=self._policy, coverage=self._coverage)
        if len(document) <= _MAX_CACHED_BYTES:
            cache.put(asked, verified, since=verified.valid_from, until=verified.valid_until)
        return verified
