"""How an answer is read: did the agent reject the caller, or did its application answer?

The rules:

1. 401, 403 and 407 are a rejection. An error that speaks of credentials in another form is one only if a request with
   the right credential is answered.
2. The application has answered if it gives a result, says that the task is unknown, or names a mistake in the
   parameters.
3. "No such method", "not supported" and paths that do not exist say nothing about callers.
4. Everything else is unclear: 429, 5xx, redirects, pages for people, internal errors, no answer.

Only the status and codes of the protocol are kept. Texts of an agent never get into a report: they may be anything,
also the credential. This module only computes values. Source: A2A 1.0.1 5.4, 9.5, 11.6; JSON-RPC 2.0 5.1.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from a2a_trust import strict_json
from a2a_trust.card.operations import Binding, Operation
from a2a_trust.errors import MalformedError
from a2a_trust.net.fetcher import AnyAnswer
from a2a_trust.probe.requests import SENDING, ProbeRequest


class Kind(Enum):
    """What an answer says about the caller."""

    REJECTED = "rejected"
    DENIED = "rejected in another form than by 401 or 403"
    ANSWERED = "answered"
    ABSENT = "not there"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Reading:
    """What an answer says; ``text`` is for reports, and has no text of the agent."""

    kind: Kind
    text: str


class Sender(Protocol):
    """Sends a request with these further headers to that URL, which is that of the request with its credentials."""

    async def __call__(self, request: ProbeRequest, url: str, headers: dict[str, str]) -> AnyAnswer:
        """FetchError: there is no answer, or the rules of the fetcher do not permit the request."""
        ...


_ABSENT: Final = {
    -32601: "no such method",
    -32003: "push notifications not supported",
    -32004: "operation not supported",
    -32007: "no extended card",
    -32009: "version not supported",
}
_TASKS: Final = {-32001: "task not found", -32002: "task not cancelable"}
_PARAMETERS: Final = "a mistake in the parameters"
_INVALID_PARAMS, _INVALID_REQUEST = -32602, -32600
_REJECTIONS: Final = (401, 403, 407)
_TASK_UNKNOWN: Final = re.compile(
    r"TASK_NOT_(?:FOUND|CANCELABLE)|task\W?not\W?found|\btask\b.{0,80}\bnot\b.{0,9}\bfound", re.IGNORECASE | re.DOTALL
)
_UNSUPPORTED: Final = re.compile(r"not.{0,5}(?:supported|configured|implemented|enabled)|unsupported", re.IGNORECASE)
#: Words with which an application rejects a caller, where it does not use the status.
_CREDENTIALS: Final = re.compile(
    r"un-?auth|not.auth|auth(?:entication|orization|\b)|forbidden|credential|api.?key|access.denied|permission|bearer|"
    r"log.?in\b|sign.?in\b|jwt|access.?token",
    re.IGNORECASE,
)
_SHORT: Final = 512
"""Bytes of an answer that may be an error, although its status says otherwise."""
_PATH: Final = re.compile(r"(?:https?:/)?/[\w./:%~-]+")


def read(request: ProbeRequest, answer: AnyAnswer | None, places: Collection[str] = ()) -> Reading:
    """What the answer says about the caller. ``places`` are the names of headers, parameters and cookies that carry
    credentials: a complaint about a missing one is a rejection in another form."""
    if answer is None:
        return Reading(Kind.UNCLEAR, "no answer")
    status = str(answer.status)
    if answer.status in _REJECTIONS:
        return Reading(Kind.REJECTED, status)
    if answer.status == 429 or answer.status >= 500 or 300 <= answer.status < 400:
        kind = Kind.ABSENT if answer.status == 501 else Kind.UNCLEAR
        return Reading(kind, status)
    body = content_of(answer)
    error = body.get("error") if isinstance(body, dict) else None
    text = _PATH.sub(" ", answer.body.decode("utf-8", "replace"))
    if isinstance(error, dict) and type(error.get("code")) is int and error["code"] < 0:
        return _of_code(request, f"{status}, error {error['code']}", error, places)
    if answer.status < 300 and isinstance(body, dict | list) and error is None:
        is_short = len(answer.body) < _SHORT and request.operation != Operation.GET_EXTENDED_CARD
        if is_short and _speaks_of_credentials(text, places):
            return Reading(Kind.DENIED, status)
        is_result = request.binding is Binding.HTTP_JSON or (isinstance(body, dict) and "result" in body)
        return Reading(Kind.ANSWERED if is_result else Kind.UNCLEAR, f"{status}, a result" if is_result else status)
    if body is None:
        return Reading(Kind.ABSENT if answer.status in (404, 405, 410) else Kind.UNCLEAR, status)
    return _of_text(request, answer.status, text, places)


def content_of(answer: AnyAnswer) -> Any:
    """The JSON of an answer, or of the first event of its stream; None if there is none."""
    body = answer.body
    if answer.headers.get("content-type", "").lower().startswith("text/event-stream"):
        event = re.split(rb"\r?\n\r?\n", body)[0]
        body = b"".join(line[5:] for line in event.splitlines() if line.startswith(b"data:"))
    try:
        return strict_json.parse(body, what="answer")
    except MalformedError:
        return None


def _of_code(request: ProbeRequest, text: str, error: dict[str, Any], places: Collection[str]) -> Reading:
    code, message = error["code"], str(error.get("message", ""))[:1024]
    if code in (-31401, -31403) or _speaks_of_credentials(message, places):
        return Reading(Kind.DENIED, text)
    if code in _ABSENT:
        return Reading(Kind.ABSENT, f"{text}, {_ABSENT[code]}")
    if code in _TASKS:
        return Reading(Kind.ANSWERED, f"{text}, {_TASKS[code]}")
    if code == _INVALID_PARAMS or (code == _INVALID_REQUEST and request.operation in SENDING):
        if _speaks_of_credentials(str(error.get("data", ""))[:4096], places):
            return Reading(Kind.DENIED, text)
        return Reading(Kind.ANSWERED, f"{text}, {_PARAMETERS}")
    return Reading(Kind.UNCLEAR, text)


def _of_text(request: ProbeRequest, status: int, text: str, places: Collection[str]) -> Reading:
    """An error of HTTP+JSON, or one of HTTP at an interface of JSON-RPC."""
    if _TASK_UNKNOWN.search(text) and request.binding is Binding.HTTP_JSON:
        return Reading(Kind.ANSWERED, f"{status}, task not found")
    if _speaks_of_credentials(text, places):
        return Reading(Kind.DENIED, str(status))
    if status in (404, 405, 410) or _UNSUPPORTED.search(text):
        return Reading(Kind.ABSENT, str(status))
    is_sending = request.operation in SENDING and request.binding is Binding.HTTP_JSON
    if status in (400, 422) and is_sending:
        return Reading(Kind.ANSWERED, f"{status}, {_PARAMETERS}")
    return Reading(Kind.UNCLEAR, str(status))


def _speaks_of_credentials(text: str, places: Collection[str]) -> bool:
    folded = text.lower().replace("_", "-")
    return _CREDENTIALS.search(text) is not None or any(place.lower().replace("_", "-") in folded for place in places)


def is_extended_card(request: ProbeRequest, answer: AnyAnswer | None) -> bool:
    """Whether the answer has a card, as a request for the extended card gets it."""
    body = None if answer is None or request.operation != Operation.GET_EXTENDED_CARD else content_of(answer)
    if isinstance(body, dict) and request.binding is Binding.JSONRPC:
        body = body.get("result")
    return isinstance(body, dict) and "name" in body and ("skills" in body or "capabilities" in body)
