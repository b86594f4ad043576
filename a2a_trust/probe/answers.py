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
from typing import Any, Final

from a2a_trust.base import strict_json
from a2a_trust.base.net.fetcher import AnyAnswer
from a2a_trust.base.strict_json import JSONObject
from a2a_trust.card.operations import Binding, Operation
from a2a_trust.errors import MalformedError
from a2a_trust.probe.requests import SENDING, ProbeRequest


class Kind(Enum):
    """The meaning of an answer for its caller."""

    REJECTED = "rejected"
    DENIED = "rejected in another form than by 401 or 403"
    ANSWERED = "answered"
    ABSENT = "not there"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Reading:
    """The kind of an answer; ``text`` is for reports, and has no text of the agent."""

    kind: Kind
    text: str


_CODES: Final = {
    -32601: (Kind.ABSENT, "no such method"),
    -32003: (Kind.ABSENT, "push notifications not supported"),
    -32004: (Kind.ABSENT, "operation not supported"),
    -32007: (Kind.ABSENT, "no extended card"),
    -32009: (Kind.ABSENT, "version not supported"),
    -32001: (Kind.ANSWERED, "task not found"),
    -32002: (Kind.ANSWERED, "task not cancelable"),
    -32602: (Kind.ANSWERED, "a mistake in the parameters"),
    -31401: (Kind.DENIED, "unauthenticated"),
    -31403: (Kind.DENIED, "not permitted"),
}
_INVALID_REQUEST: Final = -32600
_NO_TASK: Final = re.compile(
    r"(?is)TASK_NOT_(?:FOUND|CANCELABLE)|task\W?not\W?found|\btask\b.{0,80}\bnot\b.{0,9}\bfound"
)
_NO_MESSAGE: Final = re.compile(
    r"(?i)params\W{1,4}message|field\W{1,8}message\b|\bmessage\W{0,12}(?:is\W)?(?:field\W)?(?:required|missing)|"
    r"(?:missing|required)\W{0,20}message\b"
)
_UNSUPPORTED: Final = re.compile(r"(?i)not.{0,5}(?:supported|configured|implemented|enabled)|unsupported")
#: Words with which an application rejects a caller, where it does not use the status.
_CREDENTIALS: Final = re.compile(
    r"(?i)un-?auth|not.auth|auth(?:entication|orization|\b)|forbidden|credential|api.?key|access.denied|permission|bearer|"
    r"log.?in\b|sign.?in\b|jwt|access.?token|(?:invalid|missing|wrong|bad|expired).{0,9}(?:key|token|password|secret)"
)
_READ: Final = 4096
"""Bytes of an answer that are searched for words."""
_SHORT: Final = 512
"""Bytes of an answer that may be an error, although its status says otherwise."""
_PATH: Final = re.compile(r"(?:https?:/)?/[\w./:%~-]+")


def read(request: ProbeRequest, answer: AnyAnswer | None, places: Collection[str], public: JSONObject) -> Reading:
    """The meaning of the answer for the caller.

    ``places`` are the names of headers, parameters and cookies that carry credentials: a complaint about a missing one
    is a rejection in another form. ``public`` is the public card, which is not an extended card under another name.
    """
    if answer is None:
        return Reading(Kind.UNCLEAR, "no answer")
    status, body = str(answer.status), content_of(answer)
    if answer.status in (401, 403, 407):
        return Reading(Kind.REJECTED, status)
    if answer.status == 429 or answer.status >= 500 or 300 <= answer.status < 400:
        return Reading(Kind.ABSENT if answer.status == 501 else Kind.UNCLEAR, status)
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict) and type(error.get("code")) is int and -100_000 < error["code"] < 0:
        return _of_code(request, f"{status}, error {error['code']}", error, places)
    text = _PATH.sub(" ", answer.body[:_READ].decode("utf-8", "replace"))
    if answer.status < 300 and isinstance(body, dict | list) and error is None:
        return _of_result(request, answer, body, _speaks_of_credentials(text, places), public)
    if body is None:
        return Reading(Kind.ABSENT if answer.status in (404, 405, 410) else Kind.UNCLEAR, status)
    return _of_error(request, answer.status, text, places)


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


def _of_result(request: ProbeRequest, answer: AnyAnswer, body: Any, denies: bool, public: JSONObject) -> Reading:
    if request.binding is Binding.JSONRPC:
        if not isinstance(body, dict) or "result" not in body:
            return Reading(Kind.UNCLEAR, str(answer.status))
        body = body["result"]
    if request.operation == Operation.GET_EXTENDED_CARD:
        is_card = isinstance(body, dict) and {"name", "skills"} <= body.keys()
        shown = is_card and any(
            (body.get(name) or "") != (public.get(name) or "") for name in ("name", "description", "skills")
        )
        if request.is_other and not shown:
            return Reading(Kind.ABSENT, f"{answer.status}, nothing but the public card")
    elif denies and len(answer.body) < _SHORT:
        return Reading(Kind.DENIED, str(answer.status))
    return Reading(Kind.ANSWERED, f"{answer.status}, a result")


def _of_code(request: ProbeRequest, text: str, error: JSONObject, places: Collection[str]) -> Reading:
    code, said = error["code"], f"{error.get('message', '')} {error.get('data', '')}"[:_READ]
    if code in _CODES and _CODES[code][0] is Kind.ABSENT:
        return Reading(Kind.ABSENT, f"{text}, {_CODES[code][1]}")
    if _speaks_of_credentials(said, places):
        return Reading(Kind.DENIED, text)
    if code == _INVALID_REQUEST and request.operation in SENDING:
        code = -32602
    if code not in _CODES and _NO_TASK.search(said):
        code = -32001
    elif code == -32001 and "task" not in said.lower():  # some applications have the code for other errors
        code = 0
    kind, meaning = _CODES.get(code, (Kind.UNCLEAR, "another error"))
    return Reading(kind, f"{text}, {meaning}")


def _of_error(request: ProbeRequest, status: int, text: str, places: Collection[str]) -> Reading:
    """An error of HTTP+JSON, or one of HTTP at an interface of JSON-RPC."""
    if _NO_TASK.search(text):
        return Reading(Kind.ANSWERED, f"{status}, task not found")
    if status in (400, 422) and request.operation in SENDING and _NO_MESSAGE.search(text):
        return Reading(Kind.ANSWERED, f"{status}, a mistake in the parameters")
    if _speaks_of_credentials(text, places):
        return Reading(Kind.DENIED, str(status))
    is_absent = status in (404, 405, 410) or _UNSUPPORTED.search(text)
    return Reading(Kind.ABSENT if is_absent else Kind.UNCLEAR, str(status))


def _speaks_of_credentials(text: str, places: Collection[str]) -> bool:
    folded = text.lower().replace("_", "-")
    return _CREDENTIALS.search(text) is not None or any(place.lower().replace("_", "-") in folded for place in places)
