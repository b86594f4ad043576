"""Fetch a card, and get it only when it is verified.

The rules:

1. The fetcher asks: https, checked addresses, no redirects, limits of bytes and time (``a2a_trust.net.fetcher``).
2. At both well-known names, the older one only when the newer is not there (404); at one when the URL names a file.
3. What the server allows is kept, and asked for again by its validators.
4. The card is verified as one of the host that was asked, before anything is made of it.
5. Who remembers earlier cards is asked last, so that nothing is remembered that was not verified.

Files and bytes need no network: ``verify_card`` proves them. Source: A2A 1.0.1 8.2 and 8.4.3, RFC 8615, RFC 9111.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from a2a_trust import strict_json
from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.client.card_cache import CardCache
from a2a_trust.client.first_use import TrustOnFirstUse
from a2a_trust.client.flow import Flow, Get, HiddenHeaders, run, run_async
from a2a_trust.client.memory import CardMemory
from a2a_trust.client.verification import ANY_KEY, WHOLE_CARD, Verification, check_first_use
from a2a_trust.errors import CardVerificationError, ConfigurationError, FetchError, MalformedError
from a2a_trust.keys.policy import Policy
from a2a_trust.keys.trust import TrustSource
from a2a_trust.net.fetcher import Fetched, Fetcher
from a2a_trust.signing.verify import Coverage, VerifiedCard
from a2a_trust.strict_json import JSON

__all__ = ["FetchOptions", "UnsafeReportOnly", "async_fetch_card", "card_urls", "fetch_card", "verification_by"]

T = TypeVar("T")

NO_CREDENTIALS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """How cards are fetched, and what is demanded of them beside a good signature.

    ``fetcher`` has the limits, and what may be fetched from private networks: give one without ``private_origins`` and
    ``http_within`` for URLs that others have chosen. ``memory`` rejects what is older than a card that it has seen;
    with ``on_first_use`` it stands in for keys that nobody trusts yet. ``cache`` spares the server requests. These
    three are for public cards only. ``policy`` and ``coverage`` are those of ``verify_card``; ``clock`` gives seconds
    since the epoch.
    """

    fetcher: Fetcher | None = None
    memory: CardMemory | None = None
    on_first_use: TrustOnFirstUse | None = None
    cache: CardCache | None = None
    policy: Policy = ANY_KEY
    coverage: Coverage = WHOLE_CARD
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        check_first_use(self.on_first_use, self.memory)


def verification_by(options: Any, trust: TrustSource) -> Verification:
    """What a public card has to pass."""
    if not isinstance(options, FetchOptions):
        raise ConfigurationError("options: write FetchOptions(…), as in FetchOptions(fetcher=Fetcher(), memory=memory)")
    return Verification(
        trust=trust,
        memory=options.memory,
        on_first_use=options.on_first_use,
        policy=options.policy,
        coverage=options.coverage,
        clock=options.clock,
    )


def fetch_card(
    url: str,
    trust: TrustSource,
    options: FetchOptions = FetchOptions(),
    *,
    credentials: Mapping[str, str] = NO_CREDENTIALS,
) -> VerifiedCard:
    """The card of the agent at that URL, verified with the keys of ``trust``, or an error.

    ``url`` is where the agent is (``https://agent.example.com``), or that of the card itself, which ends in ``.json``.
    ``credentials`` are headers for a card behind authentication, such as ``{"Authorization": "Bearer …"}``. They go to
    that URL and nowhere else; what comes is not cached.

    FetchError: it cannot be had. MalformedError, CardVerificationError and those below it: it is not verified.
    CardMemoryUnavailableError: nobody knows whether it is the latest one.
    """
    credentials = HiddenHeaders(credentials)
    return run(fetching(url, verification_by(options, trust), options.cache, credentials), options.fetcher)


async def async_fetch_card(
    url: str,
    trust: TrustSource,
    options: FetchOptions = FetchOptions(),
    *,
    credentials: Mapping[str, str] = NO_CREDENTIALS,
) -> VerifiedCard:
    """As ``fetch_card``, on the running event loop."""
    credentials = HiddenHeaders(credentials)
    return await run_async(fetching(url, verification_by(options, trust), options.cache, credentials), options.fetcher)


def card_urls(url: str) -> tuple[str, ...]:
    """Where the card of the agent at that URL is looked for, in this order."""
    if not isinstance(url, str):
        raise ConfigurationError(
            f"url: write the URL of the agent, as in fetch_card('https://agent.example.com', trust), not "
            f"{type(url).__name__}"
        )
    try:
        parts = urlsplit(url)
    except ValueError:
        return (url,)  # for the fetcher to refuse, which says why
    if parts.path.lower().endswith(".json"):
        return (url,)
    if parts.query or parts.fragment:
        raise ConfigurationError(
            "url: write where the agent is, without query, or the URL of its card, which ends in .json"
        )
    return tuple(url.rstrip("/") + name for name in CARD_PATHS)


def fetching(
    url: str, verification: Verification, cache: CardCache | None, credentials: Mapping[str, str] = NO_CREDENTIALS
) -> Flow[VerifiedCard]:
    """The flow of ``fetch_card``."""
    if credentials:
        return (yield from _at_first(url, lambda place: _fetching_with(place, verification, credentials)))
    return (yield from _at_first(url, lambda place: _fetching_from(place, verification, cache)))


def finding(url: str) -> Flow[tuple[str, Fetched]]:
    """Where the card of the agent at that URL is, and what came from there: anybody may have written it."""
    return (yield from _at_first(url, _found))


def _found(place: str) -> Flow[tuple[str, Fetched]]:
    return place, (yield Get(url=place))


def _at_first(url: str, attempt: Callable[[str], Flow[T]]) -> Flow[T]:
    """What the attempt gives at the first place where there is anything."""
    *newer, oldest = card_urls(url)
    for place in newer:
        try:
            return (yield from attempt(place))
        except FetchError as error:
            if error.status != 404:
                raise
    return (yield from attempt(oldest))


def _fetching_with(place: str, verification: Verification, credentials: Mapping[str, str]) -> Flow[VerifiedCard]:
    fetched = yield Get(url=place, headers=credentials)
    return (yield from verification.verify(fetched.body, place))


def _fetching_from(place: str, verification: Verification, cache: CardCache | None) -> Flow[VerifiedCard]:
    fresh = None if cache is None else cache.fresh(place, verification.clock())
    if fresh is not None:
        try:
            return (yield from verification.verify(fresh.body, place))
        except CardVerificationError:
            pass  # a key was revoked, or a signature has expired: the server may have another by now
    now = verification.clock()  # before asking: an answer is no younger than its request
    fetched = yield Get(url=place, known=None if cache is None else cache.known(place))
    verified = yield from verification.verify(fetched.body, place)
    if cache is not None:
        cache.keep(place, fetched, now)
    return verified


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsafeReportOnly:
    """What an agent serves, verified or not, for those who watch before they enforce. It is not a ``VerifiedCard``.

    ``unverified`` is the JSON that came from ``url``, None when it is none that every reader reads alike. Anybody may
    have written it: never send a credential where it says. ``refusal`` is why it is not verified; None when it is.
    """

    url: str
    unverified: JSON
    refusal: MalformedError | CardVerificationError | None

    @property
    def is_verified(self) -> bool:
        return self.refusal is None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not verified, in words for machines: that of the refusal, then those of the signatures."""
        if self.refusal is None:
            return ()
        failures = self.refusal.failures if isinstance(self.refusal, CardVerificationError) else ()
        return (self.refusal.code, *[failure.reason.value for failure in failures])

    @classmethod
    def fetch(
        cls,
        url: str,
        trust: TrustSource,
        options: FetchOptions = FetchOptions(),
    ) -> UnsafeReportOnly:
        """What ``fetch_card`` would say; FetchError when there is nothing to report on."""
        return run(cls._reporting(url, verification_by(options, trust).without_memory()), options.fetcher)

    @classmethod
    async def async_fetch(
        cls,
        url: str,
        trust: TrustSource,
        options: FetchOptions = FetchOptions(),
    ) -> UnsafeReportOnly:
        """As ``fetch``, on the running event loop."""
        return await run_async(cls._reporting(url, verification_by(options, trust).without_memory()), options.fetcher)

    @classmethod
    def _reporting(cls, url: str, verification: Verification) -> Flow[UnsafeReportOnly]:
        place, fetched = yield from finding(url)
        unverified, refusal = None, None
        try:
            unverified = strict_json.parse(fetched.body, what="card")
            yield from verification.verify(fetched.body, place)
        except (MalformedError, CardVerificationError) as error:
            refusal = error
        return cls(url=place, unverified=unverified, refusal=refusal)
