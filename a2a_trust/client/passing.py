"""Cards on their way through a client of others: which requests ask for one, and what of an answer is one.

The rules:

1. A request asks for a card by its path (both well-known names, the URLs that the program named), or for an extended
   one by its path or by the method of a JSON-RPC call, alone or in a batch.
2. It is sent without what would give an answer that is not the card itself: conditions, ranges and encodings.
3. An answer of success is the card, whatever its status; redirects and 304 are refused, because what the program would
   use then did not come through here. Errors pass without their body, in which a program that does not look at the
   status would read a card.
4. The card is proven as one of the host that was asked, and with nothing left open: the program reads all of it. An
   extended card leads no further than a public card that came through here before and names its origin.
5. The memory keeps a card by its location. The query of its URL counts only if the program named the URL with it.
6. Over http and ws nothing is sent to an interface of a card that came through here, except to this machine.

Values alone: ``transport`` has the network.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import Enum
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from a2a_trust import strict_json
from a2a_trust.addresses import is_this_machine
from a2a_trust.card import CARD_PATHS, EXTENDED_CARD_METHODS
from a2a_trust.client.flow import Flow
from a2a_trust.client.location import Location, location_of, plain_url
from a2a_trust.client.proving import Proving
from a2a_trust.client.reach import Reach, check_extension, origin_in
from a2a_trust.errors import CardVerificationError, ConfigurationError, MalformedError, UncoveredFieldsError
from a2a_trust.keys.origins import host_of, is_unencrypted
from a2a_trust.signing.forms import shown
from a2a_trust.signing.verify import VerifiedCard

__all__ = ["DROPPED_HEADERS", "Asked", "PassingCards"]

DROPPED_HEADERS: Final = ("if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range", "range")

_EXTENDED: Final = ("/extendedagentcard", "/v1/card", "/agent/authenticatedextendedcard")
_REMEMBERED: Final = 256


class Asked(Enum):
    """What a request asks for."""

    CARD = "card"
    EXTENDED = "extended card"
    CALL = "extended card by JSON-RPC"


class PassingCards:
    """Tells requests for cards from others, and proves what they bring.

    Why this is a class: it remembers how far the public cards lead that came through. It may be shared by threads.
    """

    def __init__(self, proving: Proving, card_urls: Iterable[str]) -> None:
        self._proving = proving
        card_urls = tuple(card_urls)
        self._card_urls = frozenset(map(_named, card_urls))
        #: URL of a card whose query counts -> where the memory keeps it
        self._locations = {_with_query(url): location_of(url, with_query=True) for url in card_urls if "?" in url}
        #: location of a public card -> how far it leads
        self._public: dict[Location, Reach] = {}

    def asked(self, method: str, url: str, body: bytes) -> Asked | None:
        """What the request is for; None: not for a card. ``url`` is whole, but for user information; ``body`` is empty
        where it is no JSON."""
        if method in ("HEAD", "OPTIONS"):
            return None
        if _names(CARD_PATHS, url) or _place(url) in self._card_urls:
            return Asked.CARD
        # By other methods these are paths of other services, whose requests have been executed when they answer.
        if method == "GET" and _names(_EXTENDED, url):
            return Asked.EXTENDED
        return Asked.CALL if b"xtended" in body and _calls(body) else None

    def is_exposed(self, url: str) -> bool:
        """Whether it is an interface of a card that came through here, and anybody on the way reads what is sent."""
        return (
            is_unencrypted(url)
            and any(origin_in(url) in public.origins for public in list(self._public.values()))
            and not is_this_machine(host_of(url))
        )

    def judged(self, asked: Asked, url: str, body: bytes, charset: str | None) -> Flow[None]:
        """Nothing, when all that the answer brings is proven.

        MalformedError, CardVerificationError and those below it, CardMemoryUnavailableError: it is not.
        """
        address = url.partition("?")[0]
        location = self._locations.get(_with_query(url)) or location_of(address)
        if charset is not None and charset.casefold() not in ("utf-8", "utf8"):
            raise MalformedError("card: its type names another charset than UTF-8, so some would read it otherwise")
        if asked is not Asked.CALL:
            yield from self._proven(body, location, is_public=asked is Asked.CARD)
            return
        answer = strict_json.parse(body, what="answer")
        if answer == []:
            raise MalformedError("answer: it is empty")
        for each in answer if type(answer) is list else [answer]:
            if type(each) is not dict or ("result" in each) == ("error" in each):
                raise MalformedError("answer: it is none of JSON-RPC, which has either a result or an error")
            if "result" in each:
                if type(each["result"]) is not dict:
                    raise MalformedError("answer: its result is no card")
                yield from self._proven(each["result"], location, is_public=False)

    def _proven(self, document: bytes | dict[str, Any], location: Location, *, is_public: bool) -> Flow[None]:
        reaches: list[Reach] = []

        def check(proven: VerifiedCard) -> None:
            _check_whole(proven)
            reaches.append(Reach.of(proven))
            if not is_public:
                self._check_extension(reaches[0], location.origin)

        yield from (self._proving if is_public else self._proving.without_memory()).prove(document, location, check)
        if is_public:
            self._public.pop(location, None)
            self._public[location] = reaches[0]
            if len(self._public) > _REMEMBERED:
                self._public.pop(next(iter(self._public)), None)

    def _check_extension(self, extended: Reach, origin: str) -> None:
        """Refuse it when it leads further than every public card that names the origin it is from."""
        refusal = None
        for public in list(self._public.values()):
            if origin in public.origins:
                try:
                    check_extension(public, extended)
                except CardVerificationError as error:
                    refusal = error
                else:
                    return
        if refusal is not None:
            raise refusal


def _check_whole(proven: VerifiedCard) -> None:
    """Refuse a proof with open ends: who reads the card as it came takes an absent requirement for none."""
    if proven.unproven:
        raise UncoveredFieldsError(
            f"the card is signed in the form {proven.form}, which cannot prove {shown(proven.unproven)}; have it "
            "signed by a2a-sign, or read what is proven of it with fetch_card",
            proven.unproven,
        )


def _names(paths: tuple[str, ...], url: str) -> bool:
    """Whether the URL's path ends in one of these, or its query or fragment has one.

    Clients append them to what they were given, which may have "?" or "#", and may add parameters to that.
    """
    parts = urlsplit(url)
    behind = unquote(f"{parts.query}#{parts.fragment}").casefold()
    return unquote(parts.path).rstrip("/").casefold().endswith(paths) or any(path in behind for path in paths)


def _named(url: str) -> str:
    try:
        if "://" not in url:
            raise MalformedError("")
        return plain_url(url)
    except MalformedError:
        raise ConfigurationError(
            f"card_urls: {ascii(url)[:80]}: write the whole URL of a card, https://… without dot segments"
        ) from None


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
    return any(type(method) is str and method in EXTENDED_CARD_METHODS for method in methods)
