"""How an answer is read: did the agent reject the caller, or did its application answer?

The rules are in docs/probe.md, "How it concludes".
Only the status and codes of the protocol are kept. Texts of an agent never get into a report: they may be anything,
also the credential. This module only computes values. Source: A2A 1.0.1 5.4, 9.5, 11.6; JSON-RPC 2.0 5.1.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import Enum
from typing import Any, Final

from a2a_trust.base import strict_json
from a2a_trust.base.net.fetcher import AnyAnswer
from a2a_trust.base.strict_json import JSONObject
from a2a_trust.card.operations import Binding, Operation
from a2a_trust.errors import MalformedError
from a2a_trust.probe.requests import SENDING, ProbeRequest


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
