"""Fetches a card, and returns it only if it is verified.

The rules:

1. The fetcher sends requests: https, checked addresses, no redirects, limits of bytes and time (``net.fetcher``).
2. The newer well-known path is fetched first, the older one only after a 404; a URL that ends in ``.json`` as it is.
3. Answers are cached as the server allows, and revalidated.
4. The card is verified for the host of the URL before any member is used.
5. The memory of cards comes last, so only verified cards are remembered.

Files and bytes need no network: use ``verify_card``. Source: A2A 1.0.1 8.2 and 8.4.3, RFC 8615, RFC 9111.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Self, TypeVar
from urllib.parse import urlsplit

from a2a_trust import strict_json
from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.client.flow import Flow, Get, HiddenHeaders, run, run_async
from a2a_trust.client.verification import DEFAULTS, CardCache, FetchOptions, Verification
from a2a_trust.errors import CardVerificationError, ConfigurationError, FetchError, MalformedError
from a2a_trust.keys.trust import TrustSource
from a2a_trust.net.fetcher import Fetched
from a2a_trust.signing.verify import VerifiedCard
from a2a_trust.strict_json import JSON

T = TypeVar("T")

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


def fetch_card(
    url: str, trust: TrustSource, options: FetchOptions = DEFAULTS, *, credentials: Mapping[str, str] = NO_HEADERS
) -> VerifiedCard:
    """Fetch the card of the agent at that URL, and verify it with the keys of ``trust``.

    ``url`` is the URL of the agent (``https://agent.example.com``), or of the card, which ends in ``.json``.
    ``credentials`` are headers for a card behind authentication, such as ``{"Authorization": "Bearer …"}``. They are
    sent only to that URL, and the answer is not cached.

    FetchError: the card cannot be fetched. MalformedError, CardVerificationError and its subclasses: it is not
    verified. CardMemoryUnavailableError: the memory cannot be read or written, so an older card cannot be detected.
    """
    credentials, verification = HiddenHeaders(credentials), Verification.by(options, trust)
    return run(fetching(url, verification, options.cache, credentials), options.fetcher)


async def async_fetch_card(
    url: str, trust: TrustSource, options: FetchOptions = DEFAULTS, *, credentials: Mapping[str, str] = NO_HEADERS
) -> VerifiedCard:
    """As ``fetch_card``, on the running event loop."""
    credentials, verification = HiddenHeaders(credentials), Verification.by(options, trust)
    return await run_async(fetching(url, verification, options.cache, credentials), options.fetcher)


def card_urls(url: str) -> tuple[str, ...]:
    """The URLs at which the card of that agent is looked for, in this order."""
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
            "url: it has a query or a fragment; write the agent's URL without them, or the URL of its card, which ends "
            "in .json"
        )
    return tuple(url.rstrip("/") + name for name in CARD_PATHS)


def fetching(
    url: str, verification: Verification, cache: CardCache | None, credentials: Mapping[str, str] = NO_HEADERS
) -> Flow[VerifiedCard]:
    """The flow of ``fetch_card``."""
    kept_in = CardCache(1) if cache is None or credentials else cache  # one that ends with this flow
    return (yield from _at_first(url, lambda place: _fetching_from(place, verification, kept_in, credentials)))


def finding(url: str) -> Flow[tuple[str, Fetched]]:
    """The URL of the agent's card, and the answer from there, unverified."""
    return (yield from _at_first(url, _found))


def _found(place: str) -> Flow[tuple[str, Fetched]]:
    return place, (yield Get(url=place))


def _at_first(url: str, attempt: Callable[[str], Flow[T]]) -> Flow[T]:
    """The result of the attempt at the first URL that does not answer 404."""
    *newer, oldest = card_urls(url)
    for place in newer:
        try:
            return (yield from attempt(place))
        except FetchError as error:
            if error.status != 404:
                raise
    return (yield from attempt(oldest))


def _fetching_from(
    place: str, verification: Verification, cache: CardCache, credentials: Mapping[str, str]
) -> Flow[VerifiedCard]:
    fresh = cache.fresh(place, verification.clock())
    if fresh is not None:
        try:
            return (yield from verification.verify(fresh.body, place))
        except CardVerificationError:
            pass  # a key was revoked, or a signature has expired: the server may have a newer card
    now = verification.clock()  # before the request: its answer may be as old as that
    fetched = yield Get(url=place, known=cache.known(place), headers=credentials)
    verified = yield from verification.verify(fetched.body, place)
    cache.keep(place, fetched, now)
    return verified


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsafeReportOnly:
    """The card that an agent serves, verified or not, for monitoring before enforcement. It is not a ``VerifiedCard``.

    ``unverified`` is the JSON from ``url``, or None if it is malformed or ambiguous. It may be forged: never send a
    credential to a URL in it. ``refusal`` is the error of verification; None if the card is verified.
    """

    url: str
    unverified: JSON
    refusal: MalformedError | CardVerificationError | None

    @property
    def is_verified(self) -> bool:
        return self.refusal is None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not verified, as codes for machines: the code of the error, then the reasons of its signatures."""
        if self.refusal is None:
            return ()
        failures = self.refusal.failures if isinstance(self.refusal, CardVerificationError) else ()
        return (self.refusal.code, *[failure.reason.value for failure in failures])

    @classmethod
    def fetch(cls, url: str, trust: TrustSource, options: FetchOptions = DEFAULTS) -> Self:
        """The result that ``fetch_card`` would have; FetchError: the card cannot be fetched."""
        return run(cls._reporting(url, Verification.by(options, trust).without_memory()), options.fetcher)

    @classmethod
    async def async_fetch(cls, url: str, trust: TrustSource, options: FetchOptions = DEFAULTS) -> Self:
        """As ``fetch``, on the running event loop."""
        return await run_async(cls._reporting(url, Verification.by(options, trust).without_memory()), options.fetcher)

    @classmethod
    def _reporting(cls, url: str, verification: Verification) -> Flow[Self]:
        place, fetched = yield from finding(url)
        unverified, refusal = None, None
        try:
            unverified = strict_json.parse(fetched.body, what="card")
            yield from verification.verify(fetched.body, place)
        except (MalformedError, CardVerificationError) as error:
            refusal = error
        return cls(url=place, unverified=unverified, refusal=refusal)
