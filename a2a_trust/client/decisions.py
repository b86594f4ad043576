"""The decisions of a client about its requests, without any of its state: values in, values out.

The rules about cards:

1. A request is for a card if its path says so (both well-known names, the card URLs in ``cards``), and for an extended
   card if its path or the method of a JSON-RPC call says so, also in a batch.
2. Such a request is sent without conditional headers, ranges and encodings, so that the answer is the whole card.
3. A successful answer is the card. Redirects and 304 are rejected, because the card would not come through here. Errors
   pass without their body, because a program that ignores the status would read a card in it.

The rules about an answer of 401 or 403, which is not trusted: its scopes are used only if the verified card and the
program allow them, and its URLs are only shown.

4. A request is sent once more in these cases: after a 401, if there is another token, key or file to try; after
   ``insufficient_scope``, with the scopes that the agent asks for, if the verified card names them and
   ``allowed_scopes`` has them; with a DPoP nonce, if the agent asks for one.
5. A request whose body is a stream is never sent twice. A 401 that remains is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from email.message import Message
from enum import Enum
from heapq import nsmallest
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from a2a_trust.base import strict_json
from a2a_trust.base.net.metadata import Challenge, challenges_of
from a2a_trust.base.strict_json import MAX_BYTES
from a2a_trust.card.operations import EXTENDED_CARD_0_2, METHODS, ROUTES, Operation
from a2a_trust.card.places import CookiePlace, HeaderPlace, QueryPlace
from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.card.view import Alternative, CardView
from a2a_trust.client.answer import Answer, Part, demand_in_words, scopes_named
from a2a_trust.client.credentials import CredentialValue, ath_of, nonce_of, unverified
from a2a_trust.client.destinations import Destination
from a2a_trust.client.location import plain_url
from a2a_trust.client.messages import Attachment, RejectedCredentials, Reply, Request
from a2a_trust.errors import CardVerificationError, FetchError, MalformedError, TrustError
from a2a_trust.signing.forms import shorten

_GET_EXTENDED: Final = Operation.GET_EXTENDED_CARD
_TEMPLATES: Final = [each.template for routes in ROUTES.values() for each in routes if each.operation is _GET_EXTENDED]
_EXTENDED: Final = tuple(map(str.casefold, [EXTENDED_CARD_0_2, *_TEMPLATES]))
_EXTENDED_METHODS: Final = frozenset(method for method, (_, of) in METHODS.items() if of is _GET_EXTENDED)

_SHOWN: Final = 400  # characters of one of several reasons
_MAX_SHOWN: Final = 300
NO_SCOPES: Final[frozenset[str]] = frozenset()
_COOKIE_VALUE: Final = re.compile(r"[!#-+\--:<-\[\]-~]+")  # RFC 6265 4.1.1
_ERRORS: Final = ("invalid_request", "invalid_token", "insufficient_scope", "invalid_dpop_proof", "use_dpop_nonce")

_OF_PARTS: Final = ("if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range", "range")

BARE_HEADERS: Final = ("accept", "accept-language", "a2a-version", "user-agent")
"""The headers that go with the GET of a card to a URL that no verified card names; every other one may be a secret."""

OF_BODIES: Final = (b"content-length", b"content-encoding", b"transfer-encoding")
"""The headers of a body, which an error loses with it."""

OF_UNVERIFIED: Final = (b"set-cookie", b"set-cookie2", b"www-authenticate")
"""The headers that make a program send more: cookies, which go to every host below their ``Domain``, and challenges, to
which a client may compute an answer from a password."""

MoreScopes: TypeAlias = Mapping[str, frozenset[str]]
"""Scopes beyond those that a card demands, by the names of schemes."""


class Purpose(Enum):
    """The purpose of a request: the card, or the extended card by GET or by JSON-RPC."""

    CARD = "card"
    EXTENDED = "extended card"
    CALL = "extended card by JSON-RPC"


def may_be_call(request: Request) -> bool:
    """Whether the body has to be looked into; others are sent as they come, however long."""
    return request.method == "POST" and "json" in request.headers.get("content-type", "json").lower()


def check_stream(body: bytearray) -> None:
    """MalformedError: the streamed body of what may be a call is too long to be looked into."""
    if len(body) > MAX_BYTES:
        raise MalformedError(
            f"body: a stream of more than {MAX_BYTES} bytes of JSON cannot be checked for calls of a card; pass it as "
            "bytes, or with a Content-Type that is not JSON"
        )


def purpose_of(request: Request, card_urls: Collection[str]) -> Purpose | None:
    """The kind of card that the request is for, or None: rule 1. ``card_urls`` are in the spelling of ``place_of``."""
    if request.method in ("HEAD", "OPTIONS"):
        return None
    if _names(CARD_PATHS, request.url) or (card_urls and place_of(request.url) in card_urls):
        return Purpose.CARD
    # By other methods these are paths of other services, whose requests have been executed when they answer.
    if request.method == "GET":
        return Purpose.EXTENDED if _names(_EXTENDED, request.url) else None
    body = request.body or b""
    return Purpose.CALL if b"xtended" in body and may_be_call(request) and _calls(body) else None


def ask_for_whole_card(request: Request) -> None:
    for name in _OF_PARTS:
        request.headers.pop(name, None)
    request.headers["Accept-Encoding"] = "identity"


def _names(paths: tuple[str, ...], url: str) -> bool:
    """Whether the URL's path ends in one of these, or its query or fragment has one.

    Clients append them to what they were given, which may have "?" or "#", and may add parameters to that.
    """
    parts = urlsplit(url)
    behind = unquote(f"{parts.query}#{parts.fragment}").casefold()
    if unquote(parts.path).rstrip("/").casefold().endswith(paths):
        return True
    return behind != "#" and any(path in behind for path in paths)


def place_of(url: str) -> str:
    """A URL without its query, in one spelling; as it is where it has none."""
    try:
        return plain_url(url.partition("?")[0])
    except MalformedError:
        return url


def _calls(body: bytes) -> bool:
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return False
    calls = request if type(request) is list else [request]
    methods = [call.get("method") for call in calls if type(call) is dict]
    return any(type(method) is str and method in _EXTENDED_METHODS for method in methods)


def no_card_names(called: Destination, outcomes: Iterable[tuple[str, str | TrustError]]) -> TrustError:
    """Why a request is not sent, and which option would admit it. ``outcomes``: what came of each card, by its URL."""
    url = str(called.without_operation())
    tried = "; ".join(f"{card_url.partition('?')[0]}: {str(outcome)[:_SHOWN]}" for card_url, outcome in outcomes)
    cause = next((outcome for _, outcome in outcomes if isinstance(outcome, TrustError)), None)
    text = (
        f"no verified card names {called} ({tried}); if its card has another URL, or demands the client's certificate, "
        f"write cards={{{url!r}: 'https://…/agent-card.json'}}"
    )
    if cause is None or isinstance(cause, FetchError):
        also = f"if it is not an agent, and you trust it with your requests, write also=[{called.origin!r}]"
        error: TrustError = FetchError(f"{text}; {also}")
    else:  # there is an agent, but its card is not verified
        error = CardVerificationError(text)
    error.__cause__ = cause
    return error


def check_head(reply: Reply) -> None:
    """MalformedError: a successful answer is not a whole card, or in another encoding: rule 3."""
    if not 200 <= reply.status < 300:
        raise MalformedError(
            f"card: status {reply.status} leads to a card that does not come through here, so it cannot be verified"
        )
    if reply.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise MalformedError("card: it is compressed although only identity was accepted")
    media_type = Message()
    media_type["content-type"] = reply.headers.get("content-type", "")
    if media_type.get_content_charset("utf-8") not in ("utf-8", "utf8"):
        raise MalformedError("card: its Content-Type names another charset than UTF-8, so it is ambiguous")


def cards_in(body: bytes) -> list[dict[str, Any]]:
    """The cards in an answer of JSON-RPC, or in a batch. MalformedError: it is not such an answer."""
    answer = strict_json.parse(body, what="answer")
    if answer == []:
        raise MalformedError("answer: it is empty")
    cards: list[dict[str, Any]] = []
    for each in answer if type(answer) is list else [answer]:
        if type(each) is not dict or ("result" in each) == ("error" in each):
            raise MalformedError("answer: it is not JSON-RPC: expected either a result or an error")
        if "result" in each:
            if type(each["result"]) is not dict:
                raise MalformedError("answer: its result is not a card: expected a JSON object")
            cards.append(each["result"])
    return cards


def attachment_of(request: Request, answer: Answer, values: list[CredentialValue], origin: str) -> Attachment:
    """The credentials of a request to that origin. MalformedError: a key cannot stand in a cookie."""
    pairs = [*zip(answer.parts, values, strict=True)]
    headers: list[tuple[bytes, bytes]] = []
    for part, value in pairs:
        if part.place is None:  # first these, before another secret is a local: a signer in a cloud may fail
            headers += _authorization(request, part, value, origin)
    cookies: list[tuple[str, str]] = []
    parameters: list[tuple[str, str]] = []
    for part, value in pairs:
        match part.place:
            case HeaderPlace():
                headers.append((part.place.name.lower().encode(), value.text.encode()))
            case QueryPlace():
                parameters.append((part.place.name, value.text))
            case CookiePlace():
                if not _COOKIE_VALUE.fullmatch(value.text):
                    raise MalformedError(
                        f"credentials[{part.name[:80]!a}]: the key has characters that a cookie must not have"
                    )
                cookies.append((part.place.name, value.text))
    return Attachment(tuple(headers), tuple(cookies), tuple(parameters))


def _authorization(request: Request, part: Part, value: CredentialValue, origin: str) -> list[tuple[bytes, bytes]]:
    if value.proofs is None:
        return [(b"authorization", f"{part.word} {value.text}".encode())]
    path = "/" + request.address.split("/", 3)[3]
    proof = value.proofs.proof(request.method, origin, path, ath_of(value.text))
    return [(b"authorization", f"DPoP {value.text}".encode()), (b"dpop", proof.encode())]


class Again(Enum):
    WITH_NONCE = "with nonce"
    WITH_OTHER_VALUES = "with other values"
    WITH_MORE_SCOPES = "with more scopes"


def once_more(
    rejection: RejectingReply, more_scopes: MoreScopes, tried: Collection[Again]
) -> tuple[Again | None, MoreScopes]:
    """Why to send the request once more, or None, and with which scopes: rule 4. The caller looks for other values."""
    if rejection.reply.status == 401:
        if Again.WITH_NONCE not in tried and rejection.wants_nonce:
            return Again.WITH_NONCE, more_scopes
        if Again.WITH_OTHER_VALUES not in tried:
            return Again.WITH_OTHER_VALUES, more_scopes
    elif Again.WITH_MORE_SCOPES not in tried and rejection.is_for_scopes:
        more = rejection.more_scopes(more_scopes)
        if more:
            return Again.WITH_MORE_SCOPES, unite(more_scopes, more)
    return None, more_scopes


def unite(some: MoreScopes, others: MoreScopes) -> MoreScopes:
    return {name: some.get(name, NO_SCOPES) | others.get(name, NO_SCOPES) for name in {**some, **others}}


@dataclass(frozen=True, slots=True, repr=False)
class RejectingReply:
    """An answer of 401 or 403, and what went along with its request; ``demands`` are the card's."""

    view: CardView
    demands: tuple[Alternative, ...]
    answer: Answer
    values: list[CredentialValue]
    request: Request
    reply: Reply
    now: float = 0.0

    @property
    def challenges(self) -> tuple[Challenge, ...]:
        return challenges_of(self.reply.headers.get_list("WWW-Authenticate"))

    @property
    def wants_nonce(self) -> bool:
        """Whether a proof with the nonce that came along may do (RFC 9449 9)."""
        asked = ("dpop", "use_dpop_nonce") in [(each.scheme, each.parameters.get("error")) for each in self.challenges]
        nonce = nonce_of(self.reply.headers.get_list("DPoP-Nonce"))
        return asked and nonce is not None and any(value.proofs is not None for value in self.values)

    @property
    def is_for_scopes(self) -> bool:
        """Whether the token lacks scopes (RFC 6750 3.1)."""
        return any(each.parameters.get("error") == "insufficient_scope" for each in self.challenges)

    @property
    def scopes(self) -> frozenset[str]:
        return NO_SCOPES.union(*[each.scopes for each in self.challenges])

    def more_scopes(self, known: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
        """The scopes to ask for, without the card's and ``known``; none if the agent asks for a forbidden one."""
        more: dict[str, frozenset[str]] = {}
        for part in self.answer.parts:
            missing = self.scopes - part.scopes - known.get(part.name, NO_SCOPES)
            if missing and missing == part.credential.may_step_up(missing & scopes_named(self.view, part.name)):
                more[part.name] = missing
        return more

    def _forbid(self, scopes: frozenset[str]) -> str:
        for part in self.answer.parts if self.is_for_scopes else ():
            allowed = part.credential.may_step_up(scopes)
            if allowed is None:
                continue
            unnamed, denied = scopes - scopes_named(self.view, part.name), scopes - allowed
            if unnamed:
                return f"; no token is asked for with {shorten(sorted(unnamed), ' ')}: the card does not name it"
            if denied:
                return f"; allowed_scopes does not have {shorten(sorted(denied), ' ')}"
        return ""

    def _cause(self, metadata: str) -> str:
        """The likely cause of a 401: from the claims of the token, and the URL of the metadata (RFC 9728 3.1), if that
        is of its own origin. Both are unverified, and only shown."""
        origin = "/".join(self.request.address.split("/", 3)[:3])
        resource = metadata.replace("/.well-known/oauth-protected-resource", "", 1)
        resource = resource if metadata.startswith(f"{origin}/.well-known/") else ""
        fix = f"pass resource={resource or 'the resource of the agent'!r} to the credential"
        for part, value in zip(self.answer.parts, self.values, strict=True):
            claims = unverified(value)[1] if part.place is None and part.word == "Bearer" else {}
            until, audience, scopes = claims.get("exp"), claims.get("aud"), claims.get("scope")
            audiences = audience if isinstance(audience, list) else [audience] if audience else []
            if isinstance(until, int | float) and until <= self.now:
                return "; the token has expired: get a new one, or correct the clocks"
            if resource and audiences and resource not in audiences:
                shown = shorten(ascii(each)[:80] for each in audiences)
                return f"; the token is for {shown}, and the agent is the resource {resource!r}: {fix}"
            if isinstance(scopes, str) and (missing := part.scopes.difference(scopes.split())):
                return f"; the token lacks the scopes {shorten(nsmallest(9, missing), ' ')[:200]}: grant them"
            if not audiences and getattr(part.credential, "lacks_resource", False):
                return f"; the token was asked for without resource=, so it may be for another agent: {fix}"
        return ""

    def error(self, hint: str = "") -> RejectedCredentials:
        names, scopes = self.answer.schemes, self.scopes
        demanded = NO_SCOPES.union(*[part.scopes for part in self.answer.parts])
        metadata = next((each.resource_metadata for each in self.challenges if each.resource_metadata), "")
        kinds = sorted({_show(each) for each in self.challenges})
        kinds += [f"scopes {' '.join(sorted(scopes))}"] if scopes else []
        asked = ", ".join([*kinds, f"metadata at {metadata}"] if metadata else kinds)
        if any(value.is_in(asked) for value in self.values):
            asked, scopes, metadata = "something that repeats a credential", NO_SCOPES, ""
        hint += self._cause(metadata) if self.reply.status == 401 else ""
        sent = "with " + shorten(f"'{name}'" for name in names) if names else "without a credential"
        return RejectedCredentials(
            f"{'/'.join(self.request.address.split('/', 3)[:3])} answers {self.reply.status} to a request {sent}. "
            f"In the card, {demand_in_words(self.view, self.demands) or 'no credential is demanded'}. "
            f"The agent asks for {asked[:_MAX_SHOWN] or 'a credential of unknown kind'}{self._forbid(scopes)}{hint}",
            self.reply,
            schemes=names,
            scopes=tuple(sorted(scopes | demanded)),
            resource_metadata=metadata,
        )


def _show(challenge: Challenge) -> str:
    error = challenge.parameters.get("error", "")
    return f"{challenge.scheme} ({error})" if error in _ERRORS else challenge.scheme
