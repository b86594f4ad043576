"""A verifier for cards of many agents, with a bounded memory of those that it has verified."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.origins import UnsafeAnyOrigin
from a2a_trust.keys.policy import AnyKey, Policy
from a2a_trust.keys.trust import TrustSource
from a2a_trust.signing.verify import Coverage, VerifiedCard, WholeCard, verify_card

__all__ = ["CardVerifier"]

_REMEMBERED_BYTES: Final = 65_536
"""The largest document that is remembered: larger ones would fill the memory."""


class CardVerifier:
    """Verifies cards of many agents and remembers what it has verified.

    Why this is a class: it holds a clock and a bounded memory. The memory maps the exact bytes of a document and its
    origin to the proof; a hit counts only within the times of the keys and the signatures, and while the trusted keys
    are the same.
    """

    def __init__(
        self,
        trust: TrustSource,
        *,
        clock: Callable[[], float],
        policy: Policy = AnyKey(),  # noqa: B008
        coverage: Coverage = WholeCard(),  # noqa: B008
        remember: int = 1024,
    ) -> None:
        """``clock`` gives seconds since the epoch (``time.time``); ``remember`` bounds the memory, in cards."""
        if remember < 0:
            raise ConfigurationError("CardVerifier: remember is a number of cards, 0 or more")
        self._trust, self._clock, self._policy, self._coverage = trust, clock, policy, coverage
        self._remember = remember
        if not callable(getattr(trust, "trust_store", None)):
            raise ConfigurationError("trust: write TrustFile('trust.toml'), or a TrustStore of keys")
        self._store = trust.trust_store()
        self._verified: OrderedDict[tuple[bytes, str | UnsafeAnyOrigin], VerifiedCard] = OrderedDict()

    def verify(self, document: bytes, *, origin: str | UnsafeAnyOrigin) -> VerifiedCard:
        """As ``verify_card``, now."""
        now = self._clock()
        store = self._trust.trust_store()
        if store is not self._store:
            self._store, self._verified = store, OrderedDict()
        memory = self._verified  # of this store: another thread may see the next one meanwhile
        asked = (document, origin)
        verified = memory.get(asked)
        if verified is not None and verified.valid_from <= now < verified.valid_until:
            return verified
        verified = verify_card(document, store, origin=origin, now=now, policy=self._policy, coverage=self._coverage)
        if len(document) <= _REMEMBERED_BYTES:
            memory[asked] = verified
        while len(memory) > self._remember:
            memory.popitem(last=False)
        return verified
