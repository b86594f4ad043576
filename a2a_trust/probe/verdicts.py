"""The verdict on each requirement at each interface, and the findings, from the exchanges of a probe.

The rules:

1. An operation is open if the application answers a caller without a credential, or with a wrong one. It is enforced if
   such callers are rejected. If the application answers only callers with the right credential, "not there" and an
   unusual rejection are a rejection, too.
2. An operation that is not there for anyone has no verdict. Everything else is "cannot tell", also an error that a
   caller without a credential gets for an operation that does not exist: a firewall may send it for every request.
3. A requirement is enforced at an interface if no operation is open or unclear, ``SendMessage`` and (where the card has
   streams) ``SendStreamingMessage`` are enforced, a random credential is rejected, and the given credential, if any,
   is admitted somewhere.
4. One open interface opens the agent. An interface that was not asked leaves "cannot tell".

``docs/probe.md`` explains how an answer is read, and cause, proof and fix of each finding. Only the status and codes of
the protocol are kept. Texts of an agent never get into a report: they may be anything, also the credential. This module
only computes values. Source: A2A 1.0.1 5.4, 9.5, 11.6; JSON-RPC 2.0 5.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from functools import partial
from typing import Any, Final, NamedTuple

from a2a_trust.base import strict_json
from a2a_trust.base.net.fetcher import AnyAnswer
from a2a_trust.base.net.metadata import challenges_of
from a2a_trust.base.strict_json import JSONObject
from a2a_trust.base.strict_json.pointer import escape_step
from a2a_trust.card.operations import Binding, Operation
from a2a_trust.card.view import Alternative, CardView, Interface, SecurityScheme
from a2a_trust.client.credentials import http_scheme
from a2a_trust.errors import MalformedError
from a2a_trust.keys import base64url
from a2a_trust.lint.findings import Severity
from a2a_trust.probe import requests
from a2a_trust.probe.requests import SENDING, UNKNOWN, Attempt, ProbeRequest

_SHOWN: Final = 4


class Verdict(StrEnum):
    """The verdict on a requirement or an agent, the worst first."""

    NOT_ENFORCED = "not enforced"
    CANNOT_TELL = "cannot tell"
    NOTHING_DEMANDED = "nothing demanded"
    """The card admits callers without a credential."""
    ENFORCED = "enforced"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exchange:
    """A request, what it carried, for which alternative (None: for all), and its answer; None if there is none.

    ``text`` is the answer for reports. It has no text of the agent.
    """

    request: ProbeRequest
    attempt: Attempt
    alternative: Alternative | None
    answer: AnyAnswer | None = field(repr=False)
    kind: AnswerKind
    text: str

    @property
    def is_open(self) -> bool:
        """Whether the application answers a caller that it must reject."""
        is_bad = self.attempt is not Attempt.GOOD and self.request.operation not in (UNKNOWN, requests.PREFLIGHT)
        return is_bad and self.kind is AnswerKind.ANSWERED

    @property
    def code(self) -> str:
        """Status and code of the answer, without the meaning of the code."""
        return ", ".join(self.text.split(", ")[:2])

    def is_rejection(self, admitted: Mapping[ProbeRequest, AnswerKind]) -> bool:
        """Whether the agent rejects the caller; ``admitted`` has what it answers with the right credential. Rule 1."""
        kind, right, usable = self.kind, admitted.get(self.request), (AnswerKind.ANSWERED, AnswerKind.ABSENT)
        is_unusual = kind in (AnswerKind.DENIED, AnswerKind.ABSENT) and right in usable and kind is not right
        return kind is AnswerKind.REJECTED or is_unusual

    def __str__(self) -> str:
        return f"{self.request.operation} with {self.attempt.value}: {self.text}"


def discount(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """The exchanges; errors that the agent sends for every request are unclear. Rule 2."""
    unknown = [each for each in exchanges if each.request.operation == UNKNOWN and each.attempt is Attempt.NOTHING]
    same = {each.code for each in unknown if not each.text.endswith(RESULT)}
    alike = {each for each in exchanges if each.kind is AnswerKind.ANSWERED and each.code in same}
    return [replace(each, kind=AnswerKind.UNCLEAR) if each in alike else each for each in exchanges]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The verdict on one requirement at one interface, why, and the exchanges that prove it, as texts."""

    interface: Interface
    requirement: str
    verdict: Verdict
    reason: str
    proof: tuple[str, ...] = ()


def row_of(
    interface: Interface, alternative: Alternative, exchanges: Sequence[Exchange], needed: Collection[Operation]
) -> Row:
    """The verdict on a requirement; ``needed`` are the operations that must be enforced. Rule 3."""
    own = [each for each in exchanges if each.alternative in (None, alternative)]
    good = [each for each in own if each.attempt is Attempt.GOOD]
    admitted = {each.request: each.kind for each in exchanges if each.attempt is Attempt.GOOD}
    opened = [each for each in own if each.is_open]
    bad = [each for each in own if each.attempt is not Attempt.GOOD and not each.request.is_other]
    rejected = [each for each in bad if each.is_rejection(admitted)]
    others = [each for each in bad if each not in rejected and each.request.operation != UNKNOWN]
    unclear = [each for each in others if each.kind is not AnswerKind.ABSENT]
    proved = {each.request.operation for each in rejected if each.attempt is Attempt.NOTHING}
    missing = [operation.value for operation in needed if operation not in proved]
    verdict, proof = Verdict.CANNOT_TELL, [*rejected[:1], *good[:1]]
    if opened:
        control = [each for each in exchanges if each.request is opened[0].request and each is not opened[0]]
        verdict, proof = Verdict.NOT_ENFORCED, [opened[0], *control[:1]]
        alike = [each for each in opened if each.attempt is opened[0].attempt]
        reason = f"{_join(each.request.operation for each in alike)}: {opened[0].attempt.value}"
    elif missing:
        reason, proof = f"{_join(missing)}: cannot tell", [each for each in bad if each.request.operation in missing]
    elif unclear:
        reason, proof = f"{_join(each.request.operation for each in unclear)}: unclear", unclear
    elif all(each.attempt is Attempt.NOTHING for each in rejected):
        reason = "no wrong credential was rejected"
    elif good and all(each.kind not in (AnswerKind.ANSWERED, AnswerKind.ABSENT) for each in good):
        reason = "the given credential is rejected, too"
    else:
        answered = [each for each in good if each.kind is AnswerKind.ANSWERED]
        proof = [rejected[0], *(answered or [each for each in rejected if each.attempt is not Attempt.NOTHING])]
        verdict, reason = Verdict.ENFORCED, "callers without the credential are rejected"
    schemes = [f"{name} ({' '.join(sorted(scopes))})" if scopes else name for name, scopes in alternative.schemes]
    requirement, texts = " and ".join(schemes), tuple(map(str, proof[:2]))
    return Row(interface=interface, requirement=requirement, verdict=verdict, reason=reason, proof=texts)


def _join(names: Iterable[str]) -> str:
    """The names once each, and how many more there are."""
    once = [*dict.fromkeys(map(str, names))]
    return ", ".join(once[:_SHOWN]) + (f" and {len(once) - _SHOWN} more" if len(once) > _SHOWN else "")


class ProbeRule(NamedTuple):
    """A rule. ``section`` is the clause that an agent breaks, or "-"."""

    id: str
    severity: Severity
    description: str
    section: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFinding:
    """A fault of an agent.

    - ``rule`` and ``severity``: the stable id of the rule, as in docs/probe.md, and its severity.
    - ``where``: the JSON pointer of the interface or member in the card; "" for the whole agent.
    - ``message``: what was seen. It has no text that the agent sent in an answer.
    - ``proof``: the exchanges that show it, each a request, what it carried, and the answer.
    """

    rule: str
    severity: Severity
    where: str
    message: str
    proof: tuple[str, ...] = ()


_TABLE: Final = """
error | open-operation | Callers without a credential are answered. | A2A 1.0.1 7.3
error | open-extended-card | The extended card is given to callers without a credential. | A2A 1.0.1 13.3
error | wrong-credential-accepted | A random or malformed credential is accepted, also in another place. | A2A 1.0.1 7.3
error | forged-token-accepted | An unsigned token is accepted, or one of a throw-away key. | RFC 8725 3.1
error | scope-not-checked | A credential that lacks a required scope is accepted. | RFC 6750 3.1
error | half-accepted | One of the credentials that a requirement combines is enough. | A2A 1.0.1 4.5.1
error | push-to-loopback | Push notifications to a loopback address are accepted. | A2A 1.0.1 13.2
error | cors-with-credentials | Pages of every site may send the user's own credentials and read answers. | Fetch 3.2.5
warning | credential-rejected | The credential that the operator gave is rejected everywhere. | -
warning | other-rejection | Callers are rejected, but not by the status 401 or 403. | A2A 1.0.1 7.3
warning | no-challenge | An answer with status 401 does not say how to authenticate. | RFC 9110 11.6.1
warning | malformed-challenge | The header WWW-Authenticate cannot be read. | RFC 9110 11.6.1
warning | other-challenge | The challenges do not name the scheme that the card demands. | RFC 9110 11.6.1
warning | error-without-token | A challenge names an error although no token came. | RFC 6750 3.1
note | no-error-code | A challenge does not name the error invalid_token for a wrong token. | RFC 6750 3.1
note | rejection-body | The body of a rejection is not an error in the form of the binding. | A2A 1.0.1 9.5
warning | cached-extended-card | Shared caches may keep the extended card. | RFC 9111 3.5
warning | old-tls | TLS 1.0 or 1.1 is accepted. | RFC 8996
warning | certificate-ends | The certificate of the server is valid for less than 14 days. | -
warning | metadata | A key set or metadata that the card or a challenge names does not fit it. | RFC 8414, RFC 9728
warning | card-not-verified | The signatures of the card do not verify with the given keys. | A2A 1.0.1 8.4
warning | card-problems | The card has errors that lint finds. | A2A 1.0.1 5.7
note | not-asked | An interface was not asked. | --
"""

_ROWS: Final = [line.split(" | ") for line in _TABLE.strip().splitlines()]
RULES: Final = {name: ProbeRule(name, Severity(severity), *texts) for severity, name, *texts in _ROWS}
"""Every rule by its id, errors first."""


def finding(rule: str, where: str, *proof: str, message: str = "") -> ProbeFinding:
    """A finding with the severity of its rule, and its description if there is no message."""
    message = message or RULES[rule].description.rstrip(".")
    return ProbeFinding(rule=rule, severity=RULES[rule].severity, where=where, message=message, proof=proof)


_WRONG_TOKENS: Final = (Attempt.WRONG, Attempt.FORGED, Attempt.UNSIGNED, Attempt.EXPIRED)
_OPEN: Final = {
    **dict.fromkeys((Attempt.WRONG, Attempt.MALFORMED, Attempt.ELSEWHERE), "wrong-credential-accepted"),
    **dict.fromkeys((Attempt.FORGED, Attempt.UNSIGNED, Attempt.EXPIRED), "forged-token-accepted"),
    Attempt.NOTHING: "open-operation",
    Attempt.LESS: "scope-not-checked",
    Attempt.HALF: "half-accepted",
}


def open_findings(interface: Interface, exchanges: Sequence[Exchange]) -> Iterator[ProbeFinding]:
    """One finding for each rule by which an interface is open."""
    opened: dict[str, list[Exchange]] = {}
    for each in exchanges:
        if each.is_open:
            is_card = each.request.operation == Operation.GET_EXTENDED_CARD and each.attempt is Attempt.NOTHING
            opened.setdefault("open-extended-card" if is_card else _OPEN[each.attempt], []).append(each)
    good = [each for each in exchanges if each.attempt is Attempt.GOOD]
    for rule, those in opened.items():
        attempts = ", ".join(dict.fromkeys(each.attempt.value for each in those))
        control = [each for each in good if each.request is those[0].request]
        proof = map(str, [*those[:_SHOWN], *control])
        named = _join(each.request.operation for each in those)
        yield finding(rule, interface.pointer, *proof, message=f"{named}: answered with {attempts}")
    if good and all(each.kind is AnswerKind.REJECTED for each in good):
        yield finding("credential-rejected", interface.pointer, str(good[0]))


def checks_of(
    interface: Interface, view: CardView, exchanges: Sequence[Exchange], now: float
) -> Iterator[ProbeFinding]:
    """The faults of the answers from one interface, each once; ``now`` is in seconds since the epoch."""
    demanded = {name for each in view.requirements or () for name, _ in each.schemes}
    schemes = [scheme for name, scheme in view.schemes.items() if name in demanded]
    words = {"bearer" if requests.is_bearer(scheme) else http_scheme(scheme) for scheme in schemes}
    first: dict[str, Exchange] = {}
    for each in exchanges:
        for rule in _faults(each, words & {"bearer", "basic", "digest"}, interface, now):
            first.setdefault(rule, each)
    yield from (finding(rule, interface.pointer, str(each)) for rule, each in first.items())


def _faults(exchange: Exchange, words: set[str], interface: Interface, now: float) -> Iterator[str]:
    answer, request, kind = exchange.answer, exchange.request, exchange.kind
    if answer is None:
        return
    headers = {name: value.strip().lower() for name, value in answer.headers.items()}
    if answer.valid_until is not None and answer.valid_until < now + 14 * 86_400:
        yield "certificate-ends"
    if request.operation == requests.PREFLIGHT:
        origin, credentials = (headers.get(f"access-control-allow-{name}") for name in ("origin", "credentials"))
        if (origin, credentials) == (requests.OTHER_SITE, "true"):
            yield "cors-with-credentials"
    elif exchange.attempt is Attempt.GOOD:
        directives = {each.partition("=")[0].strip() for each in headers.get("cache-control", "").split(",")}
        is_card = request.operation == Operation.GET_EXTENDED_CARD and kind is AnswerKind.ANSWERED
        if is_card and directives.isdisjoint({"private", "no-store"}):
            yield "cached-extended-card"
    elif kind is AnswerKind.DENIED and answer.status != 403:
        yield "other-rejection"
    elif kind is AnswerKind.REJECTED:
        is_here = request.url == interface.url or interface.binding == Binding.HTTP_JSON
        if is_here and not request.is_other and not _is_error(request.binding, content_of(answer)):
            yield "rejection-body"
        if answer.status == 401:
            yield from _challenge(exchange.attempt, answer.headers.get("www-authenticate", ""), words)


def _is_error(binding: Binding, body: Any) -> bool:
    is_object = isinstance(body, dict) and isinstance(body.get("error"), dict)
    return is_object and (binding is Binding.HTTP_JSON or body.get("jsonrpc") == "2.0")


def _challenge(attempt: Attempt, line: str, words: set[str]) -> Iterator[str]:
    challenges = challenges_of([line])
    if not challenges:
        yield "malformed-challenge" if line else "no-challenge"
        return
    offered = {"bearer" if each.scheme == "dpop" else each.scheme for each in challenges}
    if words - offered:
        yield "other-challenge"
    errors = [each.parameters.get("error") for each in challenges if each.scheme in ("bearer", "dpop")]
    if attempt is Attempt.NOTHING and any(errors):
        yield "error-without-token"
    if attempt in _WRONG_TOKENS and words == {"bearer"} and errors and "invalid_token" not in errors:
        yield "no-error-code"


Fits = Callable[[dict[str, Any]], str]
"""Returns the fault of a document that the card or a challenge names; "" if it fits."""


def documents_of(card: JSONObject, view: CardView) -> Iterator[tuple[str, str, Fits]]:
    """The pointer, the URL and the check of the metadata and key sets that the card names (RFC 8414, A2A 8.4)."""
    for name, scheme in view.schemes.items():
        url = getattr(scheme, "discovery_url", None) or getattr(scheme, "metadata_url", None)
        if url:
            yield f"/securitySchemes/{escape_step(name[:64])}", url, partial(_of_issuer, scheme)
    signatures = card.get("signatures")
    for at, signature in enumerate(signatures if isinstance(signatures, list) else ()):
        try:
            header = strict_json.parse(base64url.decode(signature["protected"], "protected"), what="header")
            yield f"/signatures/{at}", str(header["jku"]), partial(_of_key, header["kid"])
        except (MalformedError, AttributeError, KeyError, TypeError):
            continue


def _of_issuer(scheme: SecurityScheme, found: dict[str, Any]) -> str:
    tokens = {url for flow in getattr(scheme, "flows", ()) for name, url in flow.urls if name == "tokenUrl"}
    if str(found.get("issuer")).rstrip("/") != requests.issuer_of(scheme).rstrip("/"):
        return "the metadata names another issuer than its URL"
    if tokens and str(found.get("token_endpoint")) not in tokens:
        return "the metadata names another token endpoint than the card"
    return ""


def _of_key(kid: object, found: dict[str, Any]) -> str:
    keys = found.get("keys")
    has_key = isinstance(keys, list) and any(isinstance(key, dict) and key.get("kid") == kid for key in keys)
    return "" if has_key else "the key set does not have the key of the signature"


def resource_of(interface: Interface, exchanges: Sequence[Exchange]) -> Iterator[tuple[str, str, Fits]]:
    """The same for the metadata that a challenge names (RFC 9728 5.1); nothing without one.

    Only challenges to requests without a credential count: a log shows the URL, and the agent could put one into it.
    """
    plain = [each.answer for each in exchanges if each.attempt is Attempt.NOTHING and each.answer is not None]
    lines = [answer.headers.get("www-authenticate", "") for answer in plain]
    urls = (challenge.resource_metadata for line in dict.fromkeys(lines) for challenge in challenges_of([line]))
    for url in [url for url in urls if url][:1]:
        yield interface.pointer, url, partial(_of_resource, interface)


def _of_resource(interface: Interface, found: dict[str, Any]) -> str:
    is_about = f"{interface.url.rstrip('/')}/".startswith(f"{str(found.get('resource')).rstrip('/')}/")
    return "" if is_about else "the metadata in a challenge is not about this interface"


class AnswerKind(Enum):
    """The meaning of an answer for its caller."""

    REJECTED = "rejected"
    DENIED = "rejected in another form than by 401 or 403"
    ANSWERED = "answered"
    ABSENT = "not there"
    UNCLEAR = "unclear"


RESULT: Final = "a result"
_CODES: Final = {
    -32601: (AnswerKind.ABSENT, "no such method"),
    -32003: (AnswerKind.ABSENT, "push notifications not supported"),
    -32004: (AnswerKind.ABSENT, "operation not supported"),
    -32007: (AnswerKind.ABSENT, "no extended card"),
    -32009: (AnswerKind.ABSENT, "version not supported"),
    -32001: (AnswerKind.ANSWERED, "task not found"),
    -32002: (AnswerKind.ANSWERED, "task not cancelable"),
    -32602: (AnswerKind.ANSWERED, "a mistake in the parameters"),
    -31401: (AnswerKind.DENIED, "unauthenticated"),
    -31403: (AnswerKind.DENIED, "not permitted"),
    401: (AnswerKind.DENIED, "unauthenticated"),
    403: (AnswerKind.DENIED, "not permitted"),
}
_INVALID_REQUEST: Final = -32600
_NO_TASK: Final = re.compile(
    r"(?is)TASK_NOT_(?:FOUND|CANCELABLE)|task\W?not\W?found|\btask\b.{0,80}\bnot\b.{0,9}\bfound"
)
_NO_MESSAGE: Final = re.compile(  # not the member "message" of an error
    r"(?i)params\W{1,4}message\b(?!\":)|field\W{1,8}message\b|\bmessage\b(?!\":)\W{0,12}(?:is\W)?(?:field\W)?"
    r"(?:required|missing)|(?:missing|required)\W{0,20}message\b(?!\":)"
)
_UNSUPPORTED: Final = re.compile(r"(?i)not.{0,5}(?:supported|configured|implemented|enabled)|unsupported")
#: Words with which an application rejects a caller, where it does not use the status.
_CREDENTIALS: Final = re.compile(
    r"(?i)un-?auth|not.auth|auth(?:entication|orization|\b)|forbidden|credential|api.?key|access.denied|permission|bearer|"
    r"log.?in\b|sign.?in\b|jwt|access.?token|(?:invalid|missing|wrong|bad|expired).{0,9}(?:key|token|password|secret)"
)
_READ: Final = 4096  # bytes of an answer that are searched for words
_SHORT: Final = 512  # bytes of an answer that may be an error, although its status says otherwise
_PATH: Final = re.compile(r"(?:https?:/)?/[\w./:%~-]+")
#: One of these objects is in each result of HTTP+JSON that is not a list.
_MEMBERS: Final = (
    "task", "message", "status", "statusUpdate", "artifactUpdate", "artifact", "parts", "tasks", "configs",
)  # fmt: skip
_LISTS: Final = (Operation.LIST_TASKS, Operation.LIST_PUSH_CONFIGS)


def read(
    request: ProbeRequest, answer: AnyAnswer | None, places: Collection[str], public: JSONObject
) -> tuple[AnswerKind, str]:
    """The meaning of the answer for the caller, and a text for reports without any text of the agent.

    ``places`` are the names of headers, parameters and cookies that carry credentials: a complaint about a missing one
    is a rejection in another form. ``public`` is the public card, which is not an extended card under another name.
    """
    if answer is None:
        return AnswerKind.UNCLEAR, "no answer"
    status, body = str(answer.status), content_of(answer)
    if answer.status in (401, 403, 407):
        is_page = answer.headers.get("content-type", "").lower().startswith("text/html")
        is_page = is_page and answer.status == 403 and "www-authenticate" not in answer.headers
        return (AnswerKind.DENIED, f"{status}, a page") if is_page else (AnswerKind.REJECTED, status)
    if answer.status == 429 or answer.status >= 500 or 300 <= answer.status < 400:
        return AnswerKind.ABSENT if answer.status == 501 else AnswerKind.UNCLEAR, status
    error = body.get("error") if isinstance(body, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(error, dict) and type(code) is int and (-100_000 < code < 0 or code in _CODES):
        return _read_code(request, f"{status}, error {code}", error, places)
    text = _PATH.sub(" ", answer.body[:_READ].decode("utf-8", "replace"))
    denies = _speaks_of_credentials(text, places)
    if answer.status < 300 and isinstance(body, dict | list) and error is None:
        kind = _read_result(request, body, denies and len(answer.body) < _SHORT, public)
        texts = {AnswerKind.ANSWERED: f", {RESULT}", AnswerKind.ABSENT: ", nothing but the public card"}
        return kind, status + texts.get(kind, "")
    is_absent = answer.status in (404, 405, 410)
    if body is None:
        return AnswerKind.ABSENT if is_absent else AnswerKind.UNCLEAR, status
    # An error of HTTP+JSON, or one of HTTP at an interface of JSON-RPC.
    if denies:
        return AnswerKind.DENIED, status
    if _NO_TASK.search(text):
        return AnswerKind.ANSWERED, f"{status}, task not found"
    if answer.status in (400, 422) and request.operation in SENDING and _NO_MESSAGE.search(text):
        return AnswerKind.ANSWERED, f"{status}, a mistake in the parameters"
    return AnswerKind.ABSENT if is_absent or _UNSUPPORTED.search(text) else AnswerKind.UNCLEAR, status


def content_of(answer: AnyAnswer) -> Any:
    """The JSON of an answer, or of the first event of its stream that has data; None if there is none."""
    body = answer.body
    if answer.headers.get("content-type", "").lower().startswith("text/event-stream"):
        events = (
            [line[5:] for line in each.splitlines() if line.startswith(b"data:")]
            for each in re.split(rb"\r?\n\r?\n", body)
        )
        body = b"".join(next(filter(None, events), []))
    try:
        return strict_json.parse(body, what="answer")
    except MalformedError:
        return None


def _read_result(request: ProbeRequest, body: Any, denies: bool, public: JSONObject) -> AnswerKind:
    is_rpc, operation = request.binding is Binding.JSONRPC, request.operation
    if is_rpc and (not isinstance(body, dict) or "result" not in body):
        return AnswerKind.UNCLEAR
    found = body["result"] if is_rpc else body
    known = found if isinstance(found, dict) else {}
    if operation == Operation.GET_EXTENDED_CARD:
        is_card = {"name", "skills"} <= known.keys()
        is_other = any(
            (known.get(name) or "") != (public.get(name) or "") for name in ("name", "description", "skills")
        )
        if request.is_other:
            return AnswerKind.ANSWERED if is_card and is_other else AnswerKind.ABSENT
        return AnswerKind.ANSWERED if is_card else AnswerKind.UNCLEAR
    if denies:
        return AnswerKind.DENIED
    has_member = any(isinstance(known.get(name), dict | list) for name in _MEMBERS)
    is_empty = found == {} and operation in _LISTS
    is_result = is_rpc or isinstance(found, list) or has_member or is_empty
    return AnswerKind.ANSWERED if is_result else AnswerKind.UNCLEAR


def _read_code(request: ProbeRequest, text: str, error: JSONObject, places: Collection[str]) -> tuple[AnswerKind, str]:
    code, said = error["code"], f"{error.get('message', '')} {error.get('data', '')}"[:_READ]
    kind, meaning = _CODES.get(code, (AnswerKind.UNCLEAR, ""))
    if kind is AnswerKind.ABSENT:
        return kind, f"{text}, {meaning}"
    if _speaks_of_credentials(said, places):
        return AnswerKind.DENIED, text
    if code == _INVALID_REQUEST and request.operation in SENDING:
        code = -32602
    if code not in _CODES and _NO_TASK.search(said):
        code = -32001
    elif code == -32001 and "task" not in said.lower():  # some applications have the code for other errors
        code = 0
    kind, meaning = _CODES.get(code, (AnswerKind.UNCLEAR, "another error"))
    return kind, f"{text}, {meaning}"


def _speaks_of_credentials(text: str, places: Collection[str]) -> bool:
    folded = text.lower().replace("_", "-")
    return _CREDENTIALS.search(text) is not None or any(place.lower().replace("_", "-") in folded for place in places)
