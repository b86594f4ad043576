"""The one door of a client: permits a request, chooses its credentials, sends it, and verifies the cards that come.

The rules:

1. A card is verified for the host of its URL, and all of it must be signed, because the program reads all of it. An
   extended card must not lead further than a public card that came through here before and names its origin.
2. A request goes only to URLs that a verified card names, or that the program wrote in ``also``. To other URLs, only a
   GET of a public card goes, without credentials; its answer passes without cookies and challenges. A card counts until
   its verification expires. It is verified again when the trusted keys change, and every 5 minutes. The client's
   certificate goes to URLs that a verified card names, and with the GET of a card in ``cards``.
3. The first request to another URL starts a search for its card. It ends with the first card that the memory rejects. A
   failed search is not repeated for 10 seconds.
4. The memory keeps a card by its location. The query of its URL counts only if the program named the URL with it.
   A card of ``cards`` from another origin than its interface is one from elsewhere, such as a registry: it is verified
   for the interface's host, names that interface, and the memory keeps it by the interface. So is a given card.
5. A client of one agent gets the agent's card before its first request: from the first of its URLs, and from the next
   one only after a 404. A card from another of these URLs never takes its place. The agent's card chooses the
   credentials of the requests that it permits. Other cards permit requests without credentials, as for redirects.
6. A permit is checked once more whenever a request is sent: meanwhile a token was fetched, or the agent has answered.
7. After a rejection, and after a 401 to a request without credentials, the agent's card is fetched again.
8. The credentials of ``card_headers`` go only with the GET of exactly the URL that they are bound to, in its spelling.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from a2a_trust.base.cache import BoundedCache
from a2a_trust.base.net.addresses import Address
from a2a_trust.base.net.fetcher import MeshNames, Resolver
from a2a_trust.base.net.urls import DEFAULT_PORTS, HttpWithin
from a2a_trust.base.strict_json import MAX_BYTES
from a2a_trust.card.view import Alternative, ApiKeyScheme, CardView, HttpScheme, SecurityScheme, read_card
from a2a_trust.client import decisions
from a2a_trust.client.answer import Credentials, answer_for, check_credentials
from a2a_trust.client.credentials import BasicCredentials, Credential
from a2a_trust.client.demands import Demands
from a2a_trust.client.destinations import Destination, Destinations, UnsafePassAnything, check_extension, origins_of
from a2a_trust.client.flow import Awaited, Flow, Slot, Slots, Within
from a2a_trust.client.location import Location, location_of
from a2a_trust.client.messages import (
    NOTHING,
    Attachment,
    Close,
    NoReply,
    NoReplyReason,
    Read,
    RejectedCredentials,
    Reply,
    Request,
    Send,
)
from a2a_trust.client.verification import VERIFY_AGAIN_SECONDS, Verification, card_urls, check_whole
from a2a_trust.errors import (
    CardMemoryError,
    CardMemoryUnavailableError,
    CardVerificationError,
    ConfigurationError,
    FetchError,
    MalformedError,
    MissingCredentialsError,
    TrustError,
)
from a2a_trust.keys.trust.store import TrustStore
from a2a_trust.signing.verify import VerifiedCard

_MAX_CACHED: Final = 256
_MAX_CACHED_BYTES: Final = 65_536  # a longer card is fetched again instead of verified again
_FAILED_SECONDS: Final = 10.0
_MOST_PERMITS: Final = 4
_GIVEN: Final = "given"  # which is no URL
_FETCH_SECONDS: Final = 5.0
"""For a whole card, as long as a ``Fetcher`` waits: other requests to that agent wait meanwhile."""


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class CalledAgent:
    """The agent of a client: the URLs of its card, in their order, or its ``given`` card, and the credentials for it.

    ``place`` and ``key`` are of its card: other cards from there do not take its place while it counts.
    """

    url: str
    card: str | Path | bytes | VerifiedCard | None
    credentials: Credentials
    skills: tuple[str, ...]
    places: tuple[str, ...] = field(init=False)
    given: bytes | None = field(init=False)
    place: str = field(init=False)
    key: str = ""

    def __post_init__(self) -> None:
        card = self.card
        self.places = (card,) if isinstance(card, str) else card_urls(self.url)
        if isinstance(card, Path | VerifiedCard):
            card = card.read_bytes() if isinstance(card, Path) else card._served.document
        if not isinstance(card, bytes | str | None):
            raise ConfigurationError("card: write the URL of the card, a Path, its bytes, or a VerifiedCard")
        self.given = card if isinstance(card, bytes) else None
        self.place = _with_query(self.places[0]) if self.given is None else _GIVEN

    @property
    def cards(self) -> dict[str, str]:
        """The card that the program named by its URL, as for ``cards`` of the transports."""
        if isinstance(self.card, str):
            return {self.url: self.card}
        return {self.url.partition("?")[0]: self.url} if len(self.places) == 1 else {}


class Network(Protocol):
    """The driver of an HTTP library."""

    failures: tuple[type[Exception], ...]  # nothing came
    not_connected: tuple[type[Exception], ...]  # nothing was sent
    mutual_tls: frozenset[str]  # the origins that may see the client's certificate


@dataclass(frozen=True, slots=True, repr=False)
class _Source:
    """Where a card is from; its URL may hold a secret, and tracebacks show locals.

    ``place`` is the URL in one spelling, or "" if the request had credentials of the program. ``key`` also has
    the headers by which a server may choose between several cards.
    """

    url: str
    place: str
    key: str
    location: Location
    is_elsewhere: bool = False


@dataclass(slots=True, kw_only=True, repr=False)
class _Public:
    """A public card that was verified, and the URLs that it names. ``demands``: of the agent's card, when needed."""

    source: _Source
    document: bytes
    digest: bytes
    view: CardView
    destinations: Destinations
    store: TrustStore
    demands: Demands | None = None


class _Permit(NamedTuple):
    """A request goes unchanged to that origin; ``card`` names its URL."""

    origin: str = ""
    card: _Public | None = None


class _Outdated(Exception):  # noqa: N818  a permit is asked for again
    """The card that permits a request does not count any more. Nothing was sent."""


class Connection:
    """Caches the public cards that came through here, and failed searches. Threads may share one."""

    def __init__(
        self,
        verification: Verification,
        network: Network,
        cards: Mapping[str, str],
        also: Iterable[str] | UnsafePassAnything,
        mesh: HttpWithin,
        resolver: Resolver | None,
        card_headers: Mapping[str, Mapping[str, Credential]],
    ) -> None:
        self.agent: CalledAgent | None = None
        self._verification, self._network, self._mesh = verification, network, mesh
        self._cards = {_read_option("cards", interface, mesh): card for interface, card in cards.items()}
        self._card_destinations = {_read_option("cards", card, mesh, may_have_query=True) for card in cards.values()}
        self._card_urls = frozenset(map(decisions.place_of, [*cards.values(), *card_headers]))
        if isinstance(also, str):
            raise ConfigurationError(f"also: write a list: also=[{also[:80]!a}]")
        self._also = None if isinstance(also, UnsafePassAnything) else [_read_option("also", url, mesh) for url in also]
        #: URL of a card whose query counts -> where the memory keeps it
        self._locations = {_with_query(url): location_of(url, with_query=True) for url in cards.values() if "?" in url}
        #: URL of a card that is elsewhere -> the agent
        self._elsewhere = {
            _with_query(url): location_of(interface)
            for interface, url in reversed([*cards.items()])
            if Destination.origin_of(url) != Destination.origin_of(interface)
        }
        #: URL of a card -> the credentials that it is fetched with
        self._access = {url: _access(url, each, mesh) for url, each in card_headers.items()}
        #: key of a source -> the public card, while that counts without verifying it
        self._public = BoundedCache[str, _Public](max_entries=_MAX_CACHED)
        #: base of an interface -> why the search for its card failed
        self._failed = BoundedCache[str, TrustError](max_entries=_MAX_CACHED)
        self._slots = Slots()
        self._names = MeshNames(resolver)

    def exchange(self, request: Request) -> Flow[Reply]:
        for _ in range(_MOST_PERMITS):
            with suppress(_Outdated):
                return (yield from self._exchange(request))
        text = f"the request to {request.address} is given up: the card that permits it changes all the time; try again"
        raise NoReply(NoReplyReason.NOT_SENT, text)

    def _exchange(self, request: Request) -> Flow[Reply]:
        """1. Find its purpose. 2. Permit it. 3. Send it, with its card's credentials. 4. Verify the cards that come."""
        try:
            if request.body is None and decisions.may_be_call(request):
                request.body = yield Read(request, decisions.check_stream)
            purpose = decisions.purpose_of(request, self._card_urls)
            gets_card = purpose is decisions.Purpose.CARD and request.method == "GET"
            permit = yield from self._permit(request, gets_card=gets_card)
        except TrustError as error:
            raise NoReply.of(NoReplyReason.NOT_SENT, request.address, error) from None
        if permit is None:
            return (yield from self._fetch_card(_bare(request.url, request))).without(decisions.OF_UNVERIFIED)
        answer = self._send_for_card(request, permit) if gets_card else self._send_with_credentials(request, permit)
        return (yield from answer if purpose is None else self._card(purpose, request, answer))

    def _permit(self, request: Request, *, gets_card: bool) -> Flow[_Permit | None]:
        """The permit for the request; None: only the GET of the card goes, without credentials."""
        card = None
        if self.agent is not None and not gets_card:
            card = self._counting(self.agent.key) or (yield from self._agents_card(self.agent, request))
        is_added = self._is_added(request.url)
        if is_added and self.agent is None and Destination.origin_of(request.url) not in self._network.mutual_tls:
            return _Permit()
        called = Destination.of(request.url, self._mesh)
        if card is None or not card.destinations.cover(called):
            card = self._naming(called)
        if card is None and (not is_added or called.origin in self._network.mutual_tls):
            if gets_card:
                yield from self._verify_again(lambda public: public.destinations.cover(called))
                card = self._naming(called)
                if card is None and not is_added:
                    if called.query and called not in self._card_destinations:
                        raise CardVerificationError(
                            f"no verified card names {called}, and the query of this request may be a credential; if "
                            f"that URL may have it, write also=[{str(called)!r}]"
                        )
                    return None
            else:
                card = yield from self._find_card(called, request, searches=not is_added)
        return _Permit(called.origin, card)

    def _find_card(self, called: Destination, request: Request, *, searches: bool) -> Flow[_Public | None]:
        """The card that names the URL: verified again, or else searched for, by one request to a base at a time."""
        base = str(called.without_operation())
        slot = Slot(self._slots, base)
        try:
            card = self._naming(called) if (yield from slot.wait()) else None
            if card is None:
                yield from self._verify_again(lambda public: public.destinations.cover(called))
                card = self._naming(called)
            return card or ((yield from self._search(called, base, request)) if searches else None)
        finally:
            slot.end()

    def _is_added(self, url: str) -> bool:
        if not self._also:
            return self._also is None
        if any(not each.path and each.origin == Destination.origin_of(url) for each in self._also):
            return True  # below an origin any path is, in any spelling
        return any(Destination.of(url, self._mesh).below(each) is not None for each in self._also)

    def _counting(self, key: str) -> _Public | None:
        """The cached card of a source, unless it has expired, or the trusted keys have changed."""
        public = self._public.get(key, self._verification.clock())
        return public if public is not None and public.store is self._verification.trust.trust_store() else None

    def _naming(self, called: Destination) -> _Public | None:
        now, store = self._verification.clock(), self._verification.trust.trust_store()
        counting = [each for _, each in reversed(self._public.items(now)) if each.store is store]
        return next((each for each in counting if each.destinations.cover(called)), None)

    def _verify_again(self, is_wanted: Callable[[_Public], bool]) -> Flow[None]:
        """Verify cards again, because time or trust may have changed; those that are not verified any more drop out."""
        for key, public in self._public.items():
            if is_wanted(public):
                try:
                    yield from self._verify_public(public.document, public.source, before=public)
                except ConfigurationError:
                    raise
                except TrustError:
                    if self._public.get(key) is public:
                        self._public.remove(key)  # it names nothing any more

    def _search(self, called: Destination, base: str, request: Request) -> Flow[_Public]:
        """The card that names the URL, from where it may be. TrustError: no verified card does."""
        reason = self._failed.get(base, self._verification.clock())
        if reason is not None:
            raise copy(reason) from reason.__cause__  # what raises an error adds to it what the program does
        below = [interface for interface in self._cards if called.below(interface) is not None]
        listed = [self._cards[max(below, key=lambda interface: len(interface.path))]] if below else None
        outcomes: list[tuple[str, str | TrustError]] = []
        for card_url in listed or called.card_urls():
            outcome: str | TrustError
            try:
                status = (yield from self._fetch_card(_bare(card_url, request))).status
                outcome = f"status {status}" if status >= 400 else "its card is verified, and does not name it"
            except NoReply as no_reply:
                outcome = no_reply.cause or FetchError(no_reply.text)
            except self._network.failures as error:
                outcome = FetchError(type(error).__name__)
            card = self._naming(called)
            if card is not None:
                return card
            outcomes.append((card_url, outcome))
            if isinstance(outcome, FetchError | CardMemoryError | CardMemoryUnavailableError):
                break  # no card of another folder may do what one that the memory rejects may not
        reason, now = decisions.no_card_names(called, outcomes), self._verification.clock()
        self._failed.put(base, reason, since=now, until=now + _FAILED_SECONDS)
        raise copy(reason) from reason.__cause__

    def _agents_card(self, agent: CalledAgent, request: Request) -> Flow[_Public]:
        """The agent's card. One request fetches it, and others wait. If that request is cancelled, the next one fetches
        the card. If the fetch fails, each request that waits fetches it by itself."""
        slot = Slot(self._slots, "")  # which is no base of an interface
        try:
            card = None
            if (yield from slot.wait()):
                card = self._counting(agent.key)
            if slot.failure_before is not None:
                slot.end()
            if card is None:
                yield from self._get_agents_card(agent, request)
                card = self._counting(agent.key)
        except Exception:
            slot.failure = True
            raise
        finally:
            slot.end()
        if card is None:  # the trusted keys have changed meanwhile
            raise NoReply(
                NoReplyReason.NO_CREDENTIALS,
                "the request is not sent: the card of the agent is not verified any more; try again",
            )
        return card

    def _get_agents_card(self, agent: CalledAgent, request: Request) -> Flow[None]:
        yield from self._verify_again(lambda public: public.source.key == agent.key)
        if self._counting(agent.key) is not None:
            return
        if agent.given is not None:
            try:
                source = _Source(agent.url, agent.place, _GIVEN, location_of(agent.url), is_elsewhere=True)
                yield from self._verify_public(agent.given, source)
            except TrustError as error:
                raise NoReply.of(NoReplyReason.NO_CREDENTIALS, agent.url, error) from None
            return
        status = 0
        for url in agent.places:
            Destination.of(url, self._mesh)
            bare = _bare(url, request, "application/json")
            status = (yield from self._fetch_card(bare)).status
            if status < 400:
                if self._counting(agent.key) is None:  # it is from another of these URLs than before
                    source = self._source(bare)
                    agent.place, agent.key = source.place, source.key
                return
            if status != 404:
                break
        raise NoReply(
            NoReplyReason.NO_CREDENTIALS,
            f"cannot fetch the card of the agent: {agent.places[0].partition('?')[0]} answers with status {status}; "
            "write the URL of the agent, not the URL of an interface; if the card itself needs a credential, write "
            f"card_headers={{{agent.places[0].partition('?')[0]!r}: {{'X-API-Key': ApiKey(…, origins=[…])}}}}",
        )

    def _send_with_credentials(self, request: Request, permit: _Permit) -> Flow[Reply]:
        """The answer to a permitted request, which has the credentials that the agent's card demands: rules 5 to 7."""
        agent, card = self.agent, permit.card
        if agent is None or not request.is_own:
            return (yield from self._send(request, permit))
        if card is None or card.source.key != agent.key:
            reply = yield from self._send(request, permit)
            if reply.status == 401:
                self._public.remove(agent.key)  # if the agent has moved, a newer card may name its URL
            return reply
        if card.demands is None:
            try:
                card.demands = Demands(card.view, agent.credentials, agent.skills, is_whole=True)
            except ConfigurationError as error:  # the card may have changed since the program was written
                raise NoReply(NoReplyReason.NO_CREDENTIALS, f"the request is not sent: {error}", error) from None
        try:
            send = partial(self._send_permitted, request, permit)
            return (yield from card.demands.send(request, permit.origin, self._verification.clock, send))
        except RejectedCredentials:
            self._public.remove(agent.key)  # it may have changed
            raise

    def _send_for_card(self, request: Request, permit: _Permit) -> Flow[Reply]:
        """The answer to the GET of a card, with the credentials that are bound to exactly its URL: rule 8."""
        if request.url not in self._access:
            return (yield from self._send(request, permit))
        demands, origin = self._access[request.url], Destination.of(request.url, self._mesh).origin
        send = partial(self._send_permitted, request, permit)
        return (yield from demands.send(request, origin, self._verification.clock, send))

    def _send_permitted(self, request: Request, permit: _Permit, attachment: Attachment) -> Flow[Reply]:
        self._check(permit)
        return self._send(request, permit, attachment)

    def _send(self, request: Request, permit: _Permit, attachment: Attachment = NOTHING) -> Flow[Reply]:
        """The answer of the network. The client's certificate goes along: rule 2."""
        if self._mesh.suffixes and request.url.startswith("http:"):
            host = urlsplit(request.url).hostname or ""
            if self._mesh.covers(host):
                return (yield from self._send_within_mesh(request, permit, host, attachment))
        certified = ""
        if self._network.mutual_tls and (origin := Destination.origin_of(request.url)) in self._network.mutual_tls:
            is_listed = request.method == "GET" and Destination.of(request.url, self._mesh) in self._card_destinations
            certified = origin if permit.card is not None or is_listed else ""
        reply: Reply = yield Send(request, attachment, certified)
        return reply

    def _check(self, permit: _Permit) -> None:
        if permit.card is not None and self._counting(permit.card.source.key) is not permit.card:
            raise _Outdated

    def _send_within_mesh(self, request: Request, permit: _Permit, host: str, attachment: Attachment) -> Flow[Reply]:
        """The answer of a checked address: the library would look the name up again, which may lead elsewhere by then.
        The addresses share the time to connect, so that one which swallows packets leaves some for the next."""
        connect = request.timeout.get("connect")
        port = urlsplit(request.url).port or DEFAULT_PORTS["http"]
        try:
            addresses: list[Address] = yield Awaited(partial(self._names.addresses, host, port, connect))
        except TimeoutError:
            raise NoReply(NoReplyReason.TOO_SLOW, f"{host}: its name servers do not answer in time") from None
        except FetchError as error:
            raise NoReply.of(NoReplyReason.NOT_SENT, request.address, error) from None
        timeout = {**request.timeout, "connect": connect and connect / max(len(addresses), 1)}
        no_reply: Exception | None = None
        for address in addresses:
            self._check(permit)
            try:
                reply: Reply = yield Send(request, attachment, host=str(address), timeout=timeout)
                return reply
            except self._network.not_connected as error:  # nothing was sent
                no_reply = error
        raise no_reply or NoReply(NoReplyReason.UNREACHABLE, f"{request.address}: the name has no address")

    def _fetch_card(self, bare: Request) -> Flow[Reply]:
        """The card at a URL that no verified card names, or an error in its place, within the deadline."""
        card = self._card(decisions.Purpose.CARD, bare, self._send_for_card(bare, _Permit()), _FETCH_SECONDS)
        try:
            reply: Reply = yield Within(_FETCH_SECONDS, card)
        except TimeoutError:
            raise NoReply.of(NoReplyReason.NOT_PASSED_ON, bare.address, _too_slow()) from None
        return reply

    def _card(
        self, purpose: decisions.Purpose, request: Request, answer: Flow[Reply], seconds: float = float("inf")
    ) -> Flow[Reply]:
        """The answer to a request for a card, when the card is verified; an error without its body."""
        until = time.monotonic() + seconds

        def check(card: bytearray) -> None:
            if len(card) > MAX_BYTES:
                raise MalformedError(f"card: larger than {MAX_BYTES} bytes")
            if time.monotonic() > until:
                raise _too_slow()

        decisions.ask_for_whole_card(request)
        reply = yield from answer
        try:
            if reply.status >= 400:
                return reply.without((*decisions.OF_BODIES, b"content-type"), b"")
            decisions.check_head(reply)
            body = yield Read(reply, check)
            yield from self._verify_cards(purpose, request, body)
        except TrustError as error:
            raise NoReply.of(NoReplyReason.NOT_PASSED_ON, request.address, error) from None
        finally:
            yield Close(reply)
        return reply.without((), body)

    def _verify_cards(self, purpose: decisions.Purpose, request: Request, body: bytes) -> Flow[None]:
        """Return when all cards in the answer are verified. TrustError: one is not."""
        source = self._source(request)
        if purpose is decisions.Purpose.CARD:
            yield from self._verify_public(body, source)
            return
        for document in decisions.cards_in(body) if purpose is decisions.Purpose.CALL else [body]:
            verification = self._verification.without_memory()
            verified, _ = yield from verification.verify_signatures(document, source.location)
            check_whole(verified)
            origin = source.location.origin
            naming = [each.view for _, each in self._public.items() if origin in origins_of(each.view)]
            check_extension(naming, read_card(verified.card))

    def _source(self, request: Request) -> _Source:
        place, headers = _with_query(request.url), request.headers
        agent = self._elsewhere.get(place)
        is_private = "authorization" in headers or "cookie" in headers
        return _Source(
            url=request.url,
            place="" if is_private else place,
            key=f"{place} {headers.get('a2a-version')} {headers.get('accept-language')} {is_private}",
            location=agent or self._locations.get(place) or location_of(request.url.partition("?")[0]),
            is_elsewhere=agent is not None,
        )

    def _verify_public(self, document: bytes, source: _Source, before: _Public | None = None) -> Flow[None]:
        """Verify a public card, and keep it; the same card as before stays what it is."""
        verified, store = yield from self._verification.verify_signatures(document, source.location)
        check_whole(verified)
        now, view = self._verification.clock(), read_card(verified.card)
        yield from self._verification.admit(verified, source.location, is_elsewhere=source.is_elsewhere)
        known = self._public.get(source.key)
        if before is not None and known is not before:
            return  # a newer card has come meanwhile
        public = _Public(
            source=source,
            document=document if len(document) <= _MAX_CACHED_BYTES else b"",
            digest=sha256(document).digest(),
            view=view,
            destinations=Destinations.of(view, source.url, self._mesh),
            store=store,  # and not what is trusted by now: another thread may have read a revocation
        )
        if known is not None and known.digest == public.digest:
            public.demands = known.demands
            public = known if known.store is store else public  # so permits by it go on
        self._public.put(source.key, public, since=now, until=min(verified.valid_until, now + VERIFY_AGAIN_SECONDS))
        agent = self.agent
        if agent and source.place == agent.place and not self._counting(agent.key):
            agent.key = source.key


def _bare(url: str, given: Request, accept: str = "") -> Request:
    """The GET of a card for that request, with nothing that could be a credential."""
    headers = {name: given.headers[name] for name in decisions.BARE_HEADERS if name in given.headers}
    seconds = {step: given.timeout.get(step) for step in ("connect", "read", "write", "pool")}
    timeout = {step: _FETCH_SECONDS if each is None else min(each, _FETCH_SECONDS) for step, each in seconds.items()}
    return Request(method="GET", url=url, headers={"accept": accept} if accept else headers, timeout=timeout)


def _too_slow() -> FetchError:
    return FetchError(f"card: it did not arrive within {_FETCH_SECONDS:g} seconds")


def _read_option(option: str, url: str, mesh: HttpWithin, *, may_have_query: bool = False) -> Destination:
    try:
        if ("?" in url and not may_have_query) or "#" in url.partition("?")[0]:
            raise MalformedError("URL: it has a query or a fragment; leave them out")
        return Destination.of(url, mesh)
    except (MalformedError, ValueError, TypeError) as error:
        raise ConfigurationError(f"{option}: {ascii(str(url).partition('?')[0])[:80]}: {error}") from None


def _access(url: str, headers: Mapping[str, Credential], mesh: HttpWithin) -> Demands:
    """The credentials in these headers, which no card demands: the operator has bound them to the URL of a card."""
    origin = _read_option("card_headers", url, mesh, may_have_query=True).origin
    try:
        check_credentials(headers, mesh)
        scopes = {name: getattr(each, "allowed_scopes", decisions.NO_SCOPES) for name, each in headers.items()}
        demanded = (Alternative(tuple(sorted(scopes.items()))),)
        schemes = {each: _scheme(each, headers) for each in headers}
        view = read_card({})._replace(requirements=demanded, schemes=schemes)
        answer_for(view, demanded, headers, origin, is_whole=True)
    except (ConfigurationError, MissingCredentialsError) as error:
        raise ConfigurationError(f"card_headers: {url.partition('?')[0][:80]!a}: {error}") from None
    return Demands(view, headers, (), is_whole=True)


def _scheme(header: str, headers: Mapping[str, Credential]) -> SecurityScheme:
    if header.lower() != "authorization":
        return ApiKeyScheme(name=header, location="header", parameter=header)
    return HttpScheme(name=header, scheme="basic" if isinstance(headers[header], BasicCredentials) else "bearer")


def _with_query(url: str) -> str:
    return f"{decisions.place_of(url)}?{url.partition('#')[0].partition('?')[2]}"
