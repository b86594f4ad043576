"""The checks of a card, in order: the keys for its origin, its signatures, the memory.

They are the same for cards that are fetched here and for cards that pass through an existing client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from a2a_trust.client.first_use import TrustOnFirstUse
from a2a_trust.client.flow import Awaited, Flow, Get, InThread, KeyFetcher
from a2a_trust.client.location import named_location
from a2a_trust.client.memory import CardMemory
from a2a_trust.errors import (
    CardVerificationError,
    ConfigurationError,
    FetchError,
    KeySourceUnavailableError,
    MalformedError,
    UncoveredFieldsError,
    UnsignedCardError,
)
from a2a_trust.keys.keyset import JWKS_PATH, read_jwks
from a2a_trust.keys.trust.origins import origin_of
from a2a_trust.keys.trust.policy import AnyKey, Policy
from a2a_trust.keys.trust.store import TrustSource, TrustStore, check_trust_source
from a2a_trust.signing.forms import shorten
from a2a_trust.signing.verify import Coverage, VerifiedCard, verify_card

ANY_KEY: Final = AnyKey()
WHOLE_CARD: Final = Coverage.WHOLE_CARD
VERIFY_AGAIN_SECONDS: Final = 300.0
"""A verified card is verified again after this time, because key sets on the network may have changed."""

_SHORT: Final = 8_192
"""Documents up to this size, in bytes, are verified at once; a hostile one of 60 KB can take half a second."""


def check_first_use(on_first_use: TrustOnFirstUse | None, memory: CardMemory | None) -> None:
    """ConfigurationError: there is no memory for the first use."""
    if on_first_use is not None and memory is None:
        raise ConfigurationError(
            "on_first_use: without a memory every use would be the first use; pass memory=SqliteCardMemory(path)"
        )


def check_whole(verified: VerifiedCard) -> None:
    """Reject a card that is only partly signed: its reader would take a removed requirement for "no requirement"."""
    if verified.unverified:
        raise UncoveredFieldsError(
            f"the card is signed in the form {verified.form}, which does not cover {shorten(verified.unverified)}; ask "
            "its operator to sign it with a2a-sign, or use only its verified part, with fetch_card",
            verified.unverified,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The trusted keys, the memory and the policy for cards. ``clock`` gives seconds since the epoch."""

    trust: TrustSource
    memory: CardMemory | None = None
    on_first_use: TrustOnFirstUse | None = None
    policy: Policy = ANY_KEY
    coverage: Coverage = WHOLE_CARD
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        check_trust_source(self.trust)
        check_first_use(self.on_first_use, self.memory)

    def verify(self, document: bytes | Mapping[str, Any], url: str) -> Flow[VerifiedCard]:
        """Verify a card from that URL. The errors are those of ``verify_card`` and the memory.

        ConfigurationError: with a memory, the URL is not an agent location.
        """
        verified, _ = yield from self.verify_signatures(document, url)
        yield from self.admit(verified, url)
        return verified

    def admit(self, verified: VerifiedCard, url: str) -> Flow[None]:
        """Check a verified card against the memory, which then remembers it."""
        if self.memory is not None:
            yield InThread(partial(self.memory.admit, verified, named_location(url), now=self.clock()))

    def verify_signatures(self, document: bytes | Mapping[str, Any], url: str) -> Flow[tuple[VerifiedCard, TrustStore]]:
        """The card, which is not remembered yet, and the trusted keys, without those of a first use."""
        if self.memory is not None:
            url = named_location(url)
        trusted, unreachable = self.trust.trust_store(), None
        store = trusted
        try:
            if isinstance(self.trust, KeyFetcher):
                trusted = store = yield Awaited(partial(self.trust.fetch, url))
            if self.on_first_use is not None and self.on_first_use.applies_to(url, store):
                store = yield from self._published(self.on_first_use, url, store)
        except KeySourceUnavailableError as error:
            # Not fatal: the known keys may be enough. But no first use either, because the host's keys are configured
            # and unreachable.
            trusted = store = self.trust.trust_store()
            unreachable = error
        now = self.clock()
        verify = partial(verify_card, document, store, origin=url, now=now, policy=self.policy, coverage=self.coverage)
        try:
            is_short = isinstance(document, bytes) and len(document) <= _SHORT
            verified = verify() if is_short else (yield InThread(verify))
        except UnsignedCardError:
            if self.memory is not None and (yield InThread(partial(self.memory.expects_signature, url))):
                raise UnsignedCardError(
                    "the card is not signed, and earlier cards from there were, so its signatures may have been "
                    "removed; ask the agent's operator"
                ) from None
            raise
        except CardVerificationError as error:
            raise error from unreachable
        return verified, trusted

    def verify_again(self, card: VerifiedCard) -> Flow[tuple[VerifiedCard, TrustStore]]:
        """Verify a card again by the keys that are trusted now; the result has these keys, too.

        A key of first use is still trusted, unless the trust store revokes it, or has an entry for its host by now.
        Errors as of ``VerifiedCard.verified_again``.
        """
        if isinstance(self.trust, KeyFetcher):
            with suppress(KeySourceUnavailableError):  # the known keys may be enough
                yield Awaited(partial(self.trust.fetch, card.origin))
        trusted = store = self.trust.trust_store()
        first_use = TrustOnFirstUse()
        if card.on_first_use and card.origin is not None and first_use.applies_to(card.origin, trusted):
            store = first_use.trust_store(card.keys, card.origin, trusted)
        return (yield InThread(partial(card.verified_again, store, now=self.clock()))), trusted

    def _published(self, on_first_use: TrustOnFirstUse, url: str, store: TrustStore) -> Flow[TrustStore]:
        """The keys that the origin itself publishes, for a host without an entry in the trust store."""
        try:
            fetched = yield Get(url=f"{origin_of(url)}{JWKS_PATH}")
            # A hostile set of 256 keys takes 200 ms.
            published = (yield InThread(partial(read_jwks, fetched.body))).keys
        except (FetchError, MalformedError) as error:
            raise KeySourceUnavailableError(f"the key set of the card's own origin: {error}") from error
        return on_first_use.trust_store(published, url, store)

    def without_memory(self) -> Verification:
        """The same for extended cards: the times of their signatures are independent of the public card's."""
        return replace(self, memory=None, on_first_use=None)
