"""The checks of a card, in order: the keys for its origin, its signatures, the memory.

They are the same for cards that are fetched here and for cards that pass through an existing client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Final, Self

from a2a_trust.base.cache import BoundedCache
from a2a_trust.base.net.fetcher import Fetched, Fetcher, check_fetcher
from a2a_trust.card.view import read_card
from a2a_trust.client.destinations import check_names
from a2a_trust.client.flow import Awaited, Flow, Get, InThread
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
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.keyset import read_jwks
from a2a_trust.keys.trust.origins import JWKS_PATH, Origins, host_of, origin_of
from a2a_trust.keys.trust.policy import AnyKey, Policy
from a2a_trust.keys.trust.store import KeyFetcher, TrustedKey, TrustSource, TrustStore, check_trust_source
from a2a_trust.signing.forms import shorten
from a2a_trust.signing.verify import Coverage, VerifiedCard, verify_card

ANY_KEY: Final = AnyKey()
_MOST_CACHED_SECONDS: Final = 86_400.0  # so that a replaced card is noticed within a day
VERIFY_AGAIN_SECONDS: Final = 300.0
"""A verified card is verified again after this time, because key sets on the network may have changed."""

_SHORT: Final = 8_192
"""Documents up to this size, in bytes, are verified at once; a hostile one of 60 KB can take half a second."""


@dataclass(frozen=True, slots=True)
class TrustOnFirstUse:
    """Trusts the keys that an unknown agent's own origin publishes at first use, and only these keys from then on.

    An attacker who answers the first request is trusted until a person compares the thumbprint. It applies only to
    unknown agents: if the trust store has a key or a rule for a host, only the trust store decides.
    """

    def applies_to(self, url: str, trust: TrustStore) -> bool:
        """Whether the trust store has no entry for the host of ``url``, the URL of an agent or of its card."""
        host = host_of(named_location(url))
        return not any(each.covers(host) for each in trust.spoken_for)

    def trust_store(self, published: Iterable[PublicKey], url: str, trust: TrustStore) -> TrustStore:
        """The keys that the origin of ``url`` has published, trusted for its host; empty if ``applies_to`` is False.

        Keys that the trust store of the operator names or revokes are left out, because that entry decides. A card that
        is verified with this store must go through ``CardMemory.admit``, which checks it as a first use.
        """
        # Only entries of the operator: a fetched key set must not block another party's first use.
        said = trust.revoked.union([entry.key.thumbprint for entry in trust.keys if entry.source is None])
        applies = self.applies_to(url, trust)
        believed = [key for key in published if applies and not said & {key.kid, key.thumbprint}]
        origins = Origins(host_of(named_location(url)))
        return TrustStore([TrustedKey(key=key, origins=origins, on_first_use=True) for key in believed])


def check_whole(verified: VerifiedCard) -> None:
    """Reject a card that is only partly signed: its reader would take a removed requirement for "no requirement"."""
    if verified.unverified:
        raise UncoveredFieldsError(
            f"the card is signed in the form {verified.form}, which does not cover {shorten(verified.unverified)}; ask "
            "its operator to sign it with a2a-sign, or use only its verified part, with fetch_card",
            verified.unverified,
        )


class CardCache:
    """A private HTTP cache (RFC 9111): keeps the answers of the last ``size`` URLs. Threads may share one.

    Only verified cards are kept, and a kept card is verified again at each use, because its keys may have been revoked.
    """

    def __init__(self, size: int = 256) -> None:
        if type(size) is not int or size < 1:
            raise ConfigurationError(
                f"CardCache: size is {size!r:.40}; write a number of cards, 1 or more, or leave the cache out"
            )
        self._kept = BoundedCache[str, Fetched](max_entries=size)

    def fresh(self, url: str, now: float) -> Fetched | None:
        return self._kept.get(url, now)

    def known(self, url: str) -> Fetched | None:
        """The answer of that URL, however old, for a conditional request."""
        return self._kept.get(url)

    def keep(self, url: str, fetched: Fetched, now: float) -> None:
        """Keep an answer to a request of the moment ``now``, unless its server permits no caching."""
        seconds = min(fetched.max_age or 0.0, _MOST_CACHED_SECONDS)
        if seconds > 0 or fetched.etag is not None or fetched.last_modified is not None:
            self._kept.put(url, fetched, since=now, until=now + seconds)
        else:
            self._kept.remove(url)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """How cards are fetched, and which checks they must pass.

    - ``fetcher``: the limits, and the private networks that may be fetched from. For URLs that others have chosen, pass
      one without ``private_origins`` and ``http_within``.
    - ``memory``: rejects a card that is older than one from before, and a changed key of first use.
    - ``on_first_use``: trusts the keys that an unknown agent itself publishes; needs ``memory``.
    - ``cache``: saves requests to the server.
    - ``policy``, ``coverage``: as for ``verify_card``.
    - ``clock``: gives seconds since the epoch.

    ``memory``, ``on_first_use`` and ``cache`` are for public cards only.
    """

    fetcher: Fetcher | None = None
    memory: CardMemory | None = None
    on_first_use: TrustOnFirstUse | None = None
    cache: CardCache | None = None
    policy: Policy = ANY_KEY
    coverage: Coverage = Coverage.WHOLE_CARD
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        check_fetcher(self.fetcher)
        if self.on_first_use is not None and self.memory is None:
            raise ConfigurationError(
                "on_first_use: without a memory every use would be the first use; pass memory=SqliteCardMemory(path)"
            )


DEFAULTS: Final = FetchOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification(FetchOptions):
    """The verification of cards with the trusted keys, as the options say."""

    trust: TrustSource

    def __post_init__(self) -> None:
        FetchOptions.__post_init__(self)
        check_trust_source(self.trust)

    @classmethod
    def by(cls, options: FetchOptions, trust: TrustSource) -> Self:
        if not isinstance(options, FetchOptions):
            raise ConfigurationError(
                "options: write FetchOptions(…), as in FetchOptions(fetcher=Fetcher(), memory=memory)"
            )
        return cls(trust=trust, **{each.name: getattr(options, each.name) for each in fields(FetchOptions)})

    def verify(
        self, document: bytes | Mapping[str, Any], url: str, *, is_elsewhere: bool = False
    ) -> Flow[VerifiedCard]:
        verified, _ = yield from self.verify_signatures(document, url)
        yield from self.admit(verified, url, is_elsewhere=is_elsewhere)
        return verified

    def admit(self, verified: VerifiedCard, url: str, *, is_elsewhere: bool = False) -> Flow[None]:
        """Check a verified card against the memory, which then remembers it. If it came from elsewhere than the agent
        at ``url``, it must name an interface there."""
        if is_elsewhere:
            check_names(read_card(verified.card), url)
        if self.memory is not None:
            yield InThread(partial(self.memory.admit, verified, named_location(url), now=self.clock()))

    def verify_signatures(self, document: bytes | Mapping[str, Any], url: str) -> Flow[tuple[VerifiedCard, TrustStore]]:
        """The card, which the memory has not seen yet, and the trusted keys, without keys of a first use."""
        if self.memory is not None:
            url = named_location(url)
        trusted, unreachable = self.trust.trust_store(), None
        store = trusted
        try:
            if isinstance(self.trust, KeyFetcher):
                trusted = store = yield Awaited(partial(self.trust.fetch, url))
            if self.on_first_use is not None and self.on_first_use.applies_to(url, store):
                store = yield from self._fetch_published(self.on_first_use, url, store)
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
        """Verify a card again by the keys that are trusted now, which are in the result, too, without keys of a first
        use."""
        store, trusted = yield from self.trusted_now(card)
        return (yield InThread(partial(card.verified_again, store, now=self.clock()))), trusted

    def trusted_now(self, card: VerifiedCard) -> Flow[tuple[TrustStore, TrustStore]]:
        """The keys that are trusted now, with and without the card's keys of a first use. These are still trusted,
        unless the trust store revokes them, or has an entry for the host by now."""
        if isinstance(self.trust, KeyFetcher):
            with suppress(KeySourceUnavailableError):  # the known keys may be enough
                yield Awaited(partial(self.trust.fetch, card.origin))
        trusted = self.trust.trust_store()
        first_use = TrustOnFirstUse()
        if card.on_first_use and card.origin is not None and first_use.applies_to(card.origin, trusted):
            return first_use.trust_store(card.keys, card.origin, trusted), trusted
        return trusted, trusted

    def _fetch_published(self, on_first_use: TrustOnFirstUse, url: str, store: TrustStore) -> Flow[TrustStore]:
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
