"""Decides about the requests of an existing HTTP client: which answers are cards, and where requests may go.

The rules:

1. A request is for a card if its path says so (both well-known names, the card URLs in ``cards``), and for an extended
   card if its path or the method of a JSON-RPC call says so, also in a batch.
2. Such a request is sent without conditional headers, ranges and encodings, so that the answer is the whole card.
3. A successful answer is the card. Redirects and 304 are rejected, because the card would not come through here. Errors
   pass without their body, because a program that ignores the status would read a card in it.
4. The card is verified for the host of the URL, and all of it must be signed, because the program reads all of it. An
   extended card must not lead further than a public card that came through here before and names its origin.
5. A request goes only to URLs that a verified card names, or that the program wrote in ``also``. To other URLs, only a
   GET of a public card goes, without credentials; its answer passes without cookies and challenges. A card counts until
   its verification expires. It is verified again when the trusted keys change, and every 5 minutes. The client's
   certificate goes to URLs that a verified card names, and with the GET of a card in ``cards``.
6. The first request to another URL starts a search for its card. It ends with the first card that the memory rejects. A
   failed search is not repeated for 10 seconds.
7. The memory keeps a card by its location. The query of its URL counts only if the program named the URL with it.
   Without a memory, cards do not go back within the life of the client.

This module only computes values; ``transport`` sends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from a2a_trust import strict_json
from a2a_trust.cache import BoundedCache
from a2a_trust.card.operations import EXTENDED_CARD_0_2, METHODS, ROUTES, Operation
from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.client.destinations import (
    Destination,
    Destinations,
    Reach,
    UnsafePassAnything,
    check_extension,
    origin_in,
)
from a2a_trust.client.flow import Flow
from a2a_trust.client.location import Location, location_of, plain_url
from a2a_trust.client.verification import VERIFY_AGAIN_SECONDS, Verification, check_whole
from a2a_trust.errors import (
    CardVerificationError,
    ConfigurationError,
    FetchError,
    MalformedError,
    TrustError,
)
from a2a_trust.keys.trust import TrustStore
from a2a_trust.net.urls import HttpWithin
from a2a_trust.signing.verify import VerifiedCard

DROPPED_HEADERS: Final = ("if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range", "range")

BARE_HEADERS: Final = ("accept", "accept-language", "a2a-version", "user-agent")
"""The headers that go with the GET of a card to a URL that no verified card names; every other one may be a secret."""

_GET_EXTENDED: Final = Operation.GET_EXTENDED_CARD
_EXTENDED: Final = tuple(
    path.casefold()
    for path in (
        EXTENDED_CARD_0_2,
        *[each.template for routes in ROUTES.values() for each in routes if each.operation is _GET_EXTENDED],
    )
)
_EXTENDED_METHODS: Final = frozenset(method for method, (_, of) in METHODS.items() if of is _GET_EXTENDED)

_REMEMBERED: Final = 256
_REMEMBERED_BYTES: Final = 65_536  # a longer card is fetched again instead of verified again
_FAILED_SECONDS: Final = 10.0
_SHOWN: Final = 400  # characters of one of several reasons


class Asked(Enum):
    """The purpose of a request: the card, or the extended card by GET or by JSON-RPC."""

    CARD = "card"
    EXTENDED = "extended card"
    CALL = "extended card by JSON-RPC"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Public:
    """A public card that was verified, and the URLs that it names."""

    location: Location
    document: bytes
    reach: Reach
    destinations: Destinations
    store: TrustStore


class Search:
    """The search for the card that names one URL: where to look, and the outcomes."""

    def __init__(self, called: Destination, card_urls: Iterable[str]) -> None:
        self.card_urls: tuple[str, ...] = tuple(card_urls)
        self._called = called
        self._outcomes: list[str] = []
        self._cause: TrustError | None = None

    def note(self, card_url: str, outcome: str | TrustError) -> None:
        """Note why that URL did not give a verified card that names the called URL."""
        self._outcomes.append(f"{card_url.partition('?')[0]}: {str(outcome)[:_SHOWN]}")
        if isinstance(outcome, TrustError) and self._cause is None:
            self._cause = outcome.with_traceback(None)  # kept without its frames and their locals

    def refusal(self) -> TrustError:
        """Why the request is not sent, and which option would admit it."""
        url = str(self._called.without_operation())
        text = (
            f"no verified card names {self._called} ({'; '.join(self._outcomes)}); if its card has another URL, or "
            "demands the client's certificate, write "
            f"cards={{{url!r}: 'https://…/agent-card.json'}}"
        )
        if self._cause is None or isinstance(self._cause, FetchError):
            also = f"if it is not an agent, and you trust it with your requests, write also=[{self._called.origin!r}]"
            refusal: TrustError = FetchError(f"{text}; {also}")
        else:  # there is an agent, but its card is not verified
            refusal = CardVerificationError(text)
        refusal.__cause__ = self._cause
        return refusal


class PassingCards:
    """Finds requests for cards, verifies the cards in answers, and decides where other requests may go.

    ``cards`` maps URLs of interfaces to URLs of their cards; ``also`` are origins and URLs that need no card. It
    remembers the URLs in public cards, and failed searches. ``mutual_tls`` are the origins that may get the client's
    certificate. Threads may share one.
    """

    def __init__(
        self,
        verification: Verification,
        cards: Mapping[str, str],
        also: Iterable[str] | UnsafePassAnything,
        mesh: HttpWithin,
        mutual_tls: Iterable[str] = (),
    ) -> None:
        self._verification = verification
        self._mesh = mesh
        self._mutual_tls = frozenset(mutual_tls)
        self._cards = {_written("cards", interface, mesh): card for interface, card in cards.items()}
        self._card_destinations = frozenset(_card_destination(card, mesh) for card in cards.values())
        self._card_urls = frozenset(map(_place, cards.values()))
        self._also = None if isinstance(also, UnsafePassAnything) else _all_written(also, mesh)
        #: URL of a card whose query counts -> where the memory keeps it
        self._locations = {_with_query(url): location_of(url, with_query=True) for url in cards.values() if "?" in url}
        #: URL of a public card, with its query -> what it says, while that counts without verifying it again
        self._public = BoundedCache[str, _Public](max_entries=_REMEMBERED)
        #: base of an interface -> why the search for its card failed
        self._failed = BoundedCache[str, TrustError](max_entries=_REMEMBERED)

    def asked(self, method: str, url: str, body: bytes) -> Asked | None:
        """The kind of card that the request is for, or None. ``url`` has no user information; ``body`` is empty if it
        is not JSON."""
        if method in ("HEAD", "OPTIONS"):
            return None
        if _names(CARD_PATHS, url) or _place(url) in self._card_urls:
            return Asked.CARD
        # By other methods these are paths of other services, whose requests have been executed when they answer.
        if method == "GET" and _names(_EXTENDED, url):
            return Asked.EXTENDED
        return Asked.CALL if b"xtended" in body and _calls(body) else None

    def destination(self, url: str) -> Destination:
        """MalformedError: requests may not go to that URL, whatever a card says."""
        return Destination.of(url, self._mesh)

    def permits(self, url: str) -> bool:
        """Whether a request may go to that URL unchanged, by cards that are still verified.

        MalformedError: the URL is ambiguous.
        """
        return self._is_added(url) or self._is_named(url)

    def permits_at_once(self, url: str) -> bool:
        """As ``permits``; where the client's certificate may go, a URL in ``also`` waits for the cards that name it."""
        return (origin_in(url) not in self._mutual_tls and self._is_added(url)) or self._is_named(url)

    def shows_certificate(self, method: str, url: str) -> bool:
        """Whether the client's certificate goes along: a verified card names the URL, or it is a card in ``cards``."""
        if origin_in(url) not in self._mutual_tls:
            return False
        return self._is_named(url) or (method == "GET" and self.destination(url) in self._card_destinations)

    def _is_added(self, url: str) -> bool:
        if self._also is None:
            return True
        if any(not each.path and each.origin == origin_in(url) for each in self._also):
            return True  # below an origin any path is, in any spelling
        return any(self.destination(url).below(each) is not None for each in self._also)

    def _is_named(self, url: str) -> bool:
        called = self.destination(url)
        now, store = self._verification.clock(), self._verification.trust.trust_store()
        return any(each.store is store and each.destinations.cover(called) for _, each in self._public.items(now))

    def permits_again(self, url: str) -> Flow[bool]:
        """As ``permits``, after cards that name the URL were verified again: time or trust may have changed."""
        if self.permits_at_once(url):
            return True
        called = self.destination(url)
        for key, public in self._public.items():
            if public.destinations.cover(called) and self._public.get(key) is public:
                self._public.remove(key)
                if not public.document:
                    continue
                try:
                    yield from self._verified(public.document, public.location, key, is_public=True)
                except ConfigurationError:
                    raise
                except TrustError:
                    continue  # it names nothing any more
        return self.permits(url)

    def goes_bare(self, asked: Asked | None, method: str, url: str) -> bool:
        """Whether a request that is not permitted goes without its credentials: it gets a public card.

        CardVerificationError: it would, but its query may be a credential.
        """
        if asked is not Asked.CARD or method != "GET":
            return False
        called = self.destination(url)
        if called.query and called not in self._card_destinations:
            raise CardVerificationError(
                f"no verified card names {called}, and the query of this request may be a credential; if that URL may "
                f"have it, write also=[{str(called)!r}]"
            )
        return True

    def search(self, url: str) -> Search:
        """Where to look for the card that names the URL; the refusal of the last search when that has just failed."""
        called = self.destination(url)
        refusal = self._failed.get(str(called.without_operation()), self._verification.clock())
        if refusal is not None:
            raise refusal
        below = [base for base in self._cards if called.below(base) is not None]
        if below:
            return Search(called, [self._cards[max(below, key=lambda base: len(base.path))]])
        return Search(called, called.card_urls())

    def failed(self, url: str, search: Search) -> TrustError:
        """The refusal, kept for those who ask again."""
        refusal, now = search.refusal(), self._verification.clock()
        base = self.destination(url).without_operation()
        self._failed.put(str(base), refusal, since=now, until=now + _FAILED_SECONDS)
        return refusal

    def judged(self, asked: Asked, url: str, body: bytes, charset: str | None) -> Flow[None]:
        """Return when all cards in the answer are verified.

        MalformedError, CardVerificationError and its subclasses, CardMemoryUnavailableError: one is not.
        """
        address = url.partition("?")[0]
        location = self._locations.get(_with_query(url)) or location_of(address)
        if charset is not None and charset.casefold() not in ("utf-8", "utf8"):
            raise MalformedError("card: its Content-Type names another charset than UTF-8, so it is ambiguous")
        if asked is not Asked.CALL:
            yield from self._verified(body, location, url, is_public=asked is Asked.CARD)
            return
        answer = strict_json.parse(body, what="answer")
        if answer == []:
            raise MalformedError("answer: it is empty")
        for each in answer if type(answer) is list else [answer]:
            if type(each) is not dict or ("result" in each) == ("error" in each):
                raise MalformedError("answer: it is not JSON-RPC: expected either a result or an error")
            if "result" in each:
                if type(each["result"]) is not dict:
                    raise MalformedError("answer: its result is not a card: expected a JSON object")
                yield from self._verified(each["result"], location, url, is_public=False)

    def _verified(
        self, document: bytes | dict[str, Any], location: Location, url: str, *, is_public: bool
    ) -> Flow[None]:
        verification = self._verification if is_public else self._verification.without_memory()
        kept = document if isinstance(document, bytes) and len(document) <= _REMEMBERED_BYTES else b""
        publics: list[tuple[_Public, float, float]] = []

        def check(verified: VerifiedCard, trusted: TrustStore) -> None:
            check_whole(verified)
            now, reach = verification.clock(), Reach.of(verified)
            if not is_public:
                self._check_extension(reach, location.origin)
                return
            public = _Public(
                location=location,
                document=kept,
                reach=reach,
                destinations=Destinations.of(verified, url, self._mesh),
                store=trusted,  # and not what is trusted by now: another thread may have read a revocation
            )
            publics.append((public, now, min(verified.valid_until, now + VERIFY_AGAIN_SECONDS)))

        yield from verification.verify(document, location, check)
        for public, since, until in publics:
            self._public.put(url, public, since=since, until=until)

    def _check_extension(self, extended: Reach, origin: str) -> None:
        """Refuse it when it leads further than every public card that names the origin it is from."""
        refusal = None
        for public in [each for _, each in self._public.items() if origin in each.reach.origins]:
            try:
                check_extension(public.reach, extended)
            except CardVerificationError as error:
                refusal = error
            else:
                return
        if refusal is not None:
            raise refusal


def _names(paths: tuple[str, ...], url: str) -> bool:
    """Whether the URL's path ends in one of these, or its query or fragment has one.

    Clients append them to what they were given, which may have "?" or "#", and may add parameters to that.
    """
    parts = urlsplit(url)
    behind = unquote(f"{parts.query}#{parts.fragment}").casefold()
    return unquote(parts.path).rstrip("/").casefold().endswith(paths) or any(path in behind for path in paths)


def _all_written(also: Iterable[str], mesh: HttpWithin) -> tuple[Destination, ...]:
    if isinstance(also, str):
        raise ConfigurationError(f"also: write a list: also=[{also[:80]!a}]")
    return tuple(_written("also", url, mesh) for url in also)


def _written(option: str, url: str, mesh: HttpWithin) -> Destination:
    """A URL that the program wrote, without user information, query and fragment."""
    try:
        if "?" in url or "#" in url:
            raise MalformedError("URL: it has a query or a fragment; leave them out")
        return Destination.of(url, mesh)
    except (MalformedError, ValueError, TypeError) as error:
        raise ConfigurationError(f"{option}: {ascii(url)[:80]}: {error}") from None


def _card_destination(url: str, mesh: HttpWithin) -> Destination:
    """That of a card, which may have a query."""
    _written("cards", url.partition("?")[0], mesh)
    return Destination.of(url, mesh)


def _place(url: str) -> str:
    """A URL without its query, in one spelling; as it is where it has none."""
    try:
        return plain_url(url.partition("?")[0])
    except MalformedError:
        return url


def _with_query(url: str) -> str:
    return f"{_place(url)}?{url.partition('#')[0].partition('?')[2]}"


def _calls(body: bytes) -> bool:
    """Whether a JSON-RPC request, or one in a batch, calls for the extended card."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return False
    calls = request if type(request) is list else [request]
    methods = [call.get("method") for call in calls if type(call) is dict]
    return any(type(method) is str and method in _EXTENDED_METHODS for method in methods)
