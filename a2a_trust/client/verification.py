"""Verifies a card: the keys for its origin, its signatures, the memory. A fetched card is returned only after that.

The checks are the same for cards that are fetched here and for cards that pass through an existing client. The rules:

1. The fetcher sends requests: https, checked addresses, no redirects, limits of bytes and time (``base.net.fetcher``).
2. The newer well-known path is fetched first, the older one only after a 404; a URL that ends in ``.json`` as it is.
3. Answers are cached as the server allows, and revalidated.
4. The card is verified for the host of the URL before any member is used. With ``origin``, the URL is only a place,
   such as an entry of a registry, and fetched as it is. The card is verified for the host of ``origin``, names an
   interface at or below it, and the memory keeps it by ``origin``.
5. The memory of cards comes last, so only verified cards are in it.
6. With headers, only one URL is fetched: they are for no other name of the card, no key set, and no redirect.

The extended card is fetched with credentials, and it must not lead further than the public card. The credentials go to
one URL: an interface of the verified card, over https, on the host of the card. Over http they go only to this machine,
if the card has no https interface there, and if the fetcher permits it.

Files and bytes need no network: use ``verify_card``. Source: A2A 1.0.1 3.1.11, 8.2, 8.4.3, 13.3, RFC 8615, RFC 9111.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Self, TypeAlias, TypeVar
from urllib.parse import quote, urlsplit

from a2a_trust.base import strict_json
from a2a_trust.base.cache import BoundedCache
from a2a_trust.base.net.addresses import is_this_machine
from a2a_trust.base.net.fetcher import Fetched, Fetcher, check_fetcher
from a2a_trust.base.net.urls import has_dot_segment
from a2a_trust.base.strict_json import JSON
from a2a_trust.card.operations import EXTENDED_CARD_0_2, EXTENDED_CARD_METHODS, EXTENDED_CARD_PATHS, Binding
from a2a_trust.card.schema import CARD_PATHS, Generation
from a2a_trust.card.view import Interface, read_card
from a2a_trust.client.destinations import check_extension, check_names
from a2a_trust.client.flow import Awaited, Flow, HiddenHeaders, InThread, run, run_async
from a2a_trust.client.location import Location, named_location
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
from a2a_trust.keys.jwk import PublicKey, read_jwks
from a2a_trust.keys.trust.origins import JWKS_PATH, Origins, host_of, interface_host, is_unencrypted, origin_of, url_of
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
            fetched = yield _get(self.fetcher, f"{origin_of(url)}{JWKS_PATH}")
            # A hostile set of 256 keys takes 200 ms.
            published = (yield InThread(partial(read_jwks, fetched.body))).keys
        except (FetchError, MalformedError) as error:
            raise KeySourceUnavailableError(f"the key set of the card's own origin: {error}") from error
        return on_first_use.trust_store(published, url, store)

    def without_memory(self) -> Verification:
        """The same for extended cards: the times of their signatures are independent of the public card's."""
        return replace(self, memory=None, on_first_use=None)


T = TypeVar("T")

Headers: TypeAlias = Mapping[str, str]

EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})
_VERSION: Final = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}")
_CALL_ID: Final = "extended-card"


def fetch_card(
    url: str,
    trust: TrustSource,
    options: FetchOptions = DEFAULTS,
    *,
    headers: Headers = EMPTY,
    origin: str | None = None,
) -> VerifiedCard:
    """Fetch the card of the agent at that URL, and verify it with the keys of ``trust``.

    ``url`` is the URL of the agent (``https://agent.example.com``), or of the card, which ends in ``.json``.
    ``headers`` are for a card behind authentication, such as ``{"Authorization": "Bearer …"}``. They are sent only to
    the URL of the card: for an agent, to the newer well-known path. The answer is not cached.
    ``origin`` is the URL of the agent if ``url`` is a place elsewhere, such as an entry of a registry, whatever its
    name. The keys must be trusted for the agent's host; the place is not trusted.

    FetchError: the card cannot be fetched. MalformedError, CardVerificationError and its subclasses: it is not
    verified. CardMemoryUnavailableError: the memory cannot be read or written, so an older card cannot be detected.
    """
    headers = HiddenHeaders(headers)
    return run(fetching(url, Verification.by(options, trust), options.cache, headers, origin))


async def async_fetch_card(
    url: str,
    trust: TrustSource,
    options: FetchOptions = DEFAULTS,
    *,
    headers: Headers = EMPTY,
    origin: str | None = None,
) -> VerifiedCard:
    """As ``fetch_card``, on the running event loop."""
    headers = HiddenHeaders(headers)
    return await run_async(fetching(url, Verification.by(options, trust), options.cache, headers, origin))


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
        return (url,)  # the fetcher rejects it, and says why
    if parts.path.lower().endswith(".json"):
        return (url,)
    if parts.query or parts.fragment:
        raise ConfigurationError(
            "url: it has a query or a fragment; write the agent's URL without them, or the URL of its card, which ends "
            "in .json"
        )
    return tuple(url.rstrip("/") + name for name in CARD_PATHS)


def fetching(
    url: str, verification: Verification, cache: CardCache | None, headers: Headers = EMPTY, origin: str | None = None
) -> Flow[VerifiedCard]:
    kept_in = CardCache(1) if cache is None or headers else cache  # one that ends with this flow
    agent = None if origin is None else named_location(origin)
    places = card_urls(url)[: 1 if headers else 2] if agent is None else (url,)
    return (yield from _at_first(places, lambda each: _fetching_from(each, verification, kept_in, headers, agent)))


def finding(
    url: str, fetcher: Fetcher | None, headers: Headers = EMPTY, *, is_place: bool = False
) -> Flow[tuple[str, Fetched]]:
    """The URL of the agent's card, and the answer from there, unverified. ``is_place``: the URL itself, as it is."""

    def get(place: str) -> Flow[tuple[str, Fetched]]:
        return place, (yield _get(fetcher, place, headers=headers))

    return (yield from _at_first((url,) if is_place else card_urls(url)[: 1 if headers else 2], get))


def _get(fetcher: Fetcher | None, url: str, **more: Any) -> Awaited:
    """Fetch a URL that the program configured; ``more`` is as for ``Fetcher.fetch``."""
    return Awaited(partial((Fetcher() if fetcher is None else fetcher).fetch, url, configured=True, **more))


def _at_first(places: tuple[str, ...], attempt: Callable[[str], Flow[T]]) -> Flow[T]:
    """The result of the attempt at the first URL that does not answer 404."""
    *newer, oldest = places
    for place in newer:
        try:
            return (yield from attempt(place))
        except FetchError as error:
            if error.status != 404:
                raise
    return (yield from attempt(oldest))


def _fetching_from(
    place: str, verification: Verification, cache: CardCache, headers: Headers, agent: Location | None
) -> Flow[VerifiedCard]:
    verify = partial(verification.verify, url=agent or place, is_elsewhere=agent is not None)
    fresh = cache.fresh(place, verification.clock())
    if fresh is not None:
        try:
            return (yield from verify(fresh.body))
        except CardVerificationError:
            pass  # a key was revoked, or a signature has expired: the server may have a newer card
    now = verification.clock()  # before the request: its answer may be as old as that
    fetched = yield _get(verification.fetcher, place, known=cache.known(place), headers=headers)
    verified = yield from verify(fetched.body)
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
        return run(cls._reporting(url, Verification.by(options, trust).without_memory()))

    @classmethod
    async def async_fetch(cls, url: str, trust: TrustSource, options: FetchOptions = DEFAULTS) -> Self:
        """As ``fetch``, on the running event loop."""
        return await run_async(cls._reporting(url, Verification.by(options, trust).without_memory()))

    @classmethod
    def _reporting(cls, url: str, verification: Verification) -> Flow[Self]:
        place, fetched = yield from finding(url, verification.fetcher)
        unverified, refusal = None, None
        try:
            unverified = strict_json.parse(fetched.body, what="card")
            yield from verification.verify(fetched.body, place)
        except (MalformedError, CardVerificationError) as error:
            refusal = error
        return cls(url=place, unverified=unverified, refusal=refusal)


def fetch_extended_card(
    card: VerifiedCard, trust: TrustSource, *, headers: Headers, tenant: str = "", options: FetchOptions = DEFAULTS
) -> VerifiedCard:
    """The extended card of the agent whose public card is ``card``, to use in its place.

    ``headers`` are credentials, such as ``{"Authorization": "Bearer …"}``; they are sent only to one interface of the
    card. ``tenant`` is the tenant, unless the card names one. ``trust`` and ``options`` are as in ``fetch_card``.

    FetchError: the card promises no extended card, or it cannot be fetched (``status`` 401 or 403: not with these
    credentials). MalformedError, CardVerificationError: one of the two cards is not verified now, or the extended one
    names origins of interfaces, or URLs for credentials, that the public card does not name.
    """
    headers = HiddenHeaders(headers)
    return run(_extending(card, Verification.by(options, trust), headers, tenant))


async def async_fetch_extended_card(
    card: VerifiedCard, trust: TrustSource, *, headers: Headers, tenant: str = "", options: FetchOptions = DEFAULTS
) -> VerifiedCard:
    """As ``fetch_extended_card``, on the running event loop."""
    headers = HiddenHeaders(headers)
    return await run_async(_extending(card, Verification.by(options, trust), headers, tenant))


def _extending(card: VerifiedCard, verification: Verification, headers: Headers, tenant: str) -> Flow[VerifiedCard]:
    verification = verification.without_memory()
    card, _ = yield from verification.verify_again(card)  # the request has credentials for what it names
    url, headers, content = _request(card, headers, tenant)
    fetched = yield _get(verification.fetcher, url, headers=headers, content=content)
    document = fetched.body if content is None else _result(fetched.body)
    extended, _ = yield from verification.verify_signatures(document, url)
    check_extension([read_card(card.card)], read_card(extended.card))
    return extended


def _request(card: VerifiedCard, headers: Headers, tenant: str) -> tuple[str, Headers, bytes | None]:
    """URL, headers and body of the request for the extended card."""
    if card.origin is None:
        raise ConfigurationError(
            "card: it was verified without a host, so credentials cannot be bound to it; verify it with its URL as "
            "origin=, and with keys that have origins"
        )
    view = read_card(card.card)
    if not view.has_extended_card:
        raise FetchError("the card promises no extended card (capabilities.extendedAgentCard)")
    for interface in sorted(view.interfaces, key=lambda interface: is_unencrypted(interface.url)):
        scheme, host = url_of(interface.url).scheme, interface_host(interface.url)
        is_safe = scheme == "https" or (scheme == "http" and is_this_machine(host))
        if host == card.origin and is_safe and interface.binding in (Binding.JSONRPC, Binding.HTTP_JSON):
            url, named, content = _request_at(interface, tenant)
            return url, HiddenHeaders({**named, **headers}), content
    raise FetchError(
        f"the card has no interface of HTTP+JSON or JSON-RPC over https on its own host {card.origin}, and credentials "
        "are sent to no other host"
    )


def _request_at(interface: Interface, tenant: str) -> tuple[str, dict[str, str], bytes | None]:
    """The same at this interface, without the credentials."""
    named = interface.tenant or tenant
    generation = Generation.V0_3 if interface.is_legacy else Generation.V1_0  # one of 0.1 is asked as one of 0.3
    headers: dict[str, str] = {}
    call: dict[str, Any] = {"jsonrpc": "2.0", "id": _CALL_ID, "method": EXTENDED_CARD_METHODS[generation]}
    path = EXTENDED_CARD_0_2 if interface.version.startswith("0.2") else EXTENDED_CARD_PATHS[generation]
    if not interface.is_legacy:
        # The header by which servers know a client of 1.0 (A2A 1.0.1 3.6.1).
        headers["A2A-Version"] = interface.version if _VERSION.fullmatch(interface.version) else "1.0"
        call["params"] = {"tenant": named} if named else {}
        path = f"/{quote(named, safe='')}{path}" if named else path
    if interface.binding == Binding.JSONRPC:
        return interface.url, headers, json.dumps(call).encode()
    if has_dot_segment(path):
        raise (MalformedError if interface.tenant else ConfigurationError)(
            f"tenant: {ascii(named)[:80]} makes the URL ambiguous, because it has a dot segment; write another name"
        )
    return f"{interface.url.rstrip('/')}{path}", headers, None


def _result(body: bytes) -> dict[str, Any]:
    """The card in an answer of JSON-RPC; FetchError for an error in its place."""
    answer = strict_json.parse(body, what="answer")
    if type(answer) is not dict or (answer.get("result") is None) == (answer.get("error") is None):
        raise MalformedError("answer: it is not JSON-RPC: expected either a result or an error")
    error = answer.get("error")
    if error is not None:
        code = error.get("code") if type(error) is dict else None
        raise FetchError(
            f"the agent has no extended card for these credentials (error {code if type(code) is int else '?'})"
        )
    result = answer["result"]
    if answer.get("id") != _CALL_ID or type(result) is not dict:
        raise MalformedError("answer: its id is the id of another request, or its result is not a card")
    return result
