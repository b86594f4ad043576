"""Reads the call from a request once, into a value that every rule uses.

Bodies are strict JSON in UTF-8. Only objects that can name a tenant, a task or a configuration are read: the request,
``params``, and the objects within. They must not have a member twice, because readers differ in which one they use.
They must not have a name that resembles one that is read: protobuf's reader in Python ends a name at its first NUL.
Everything else, such as metadata and parts, is skipped without making a value of it, so reading takes linear time.
Source: JSON-RPC 2.0 4, 5.1; A2A 1.0.1 9, 11; RFC 8259.
"""

from __future__ import annotations

import re
import threading
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias, TypedDict
from urllib.parse import parse_qsl

from msgspec import DecodeError, Raw, ValidationError
from msgspec.json import Decoder, Encoder

from a2a_trust.card.operations import (
    MESSAGE,
    METHODS,
    NAMING,
    PUSH_CONFIG,
    Binding,
    Named,
    NamingFields,
    Operation,
    fold_name,
)
from a2a_trust.card.schema import Generation
from a2a_trust.middleware.documents import Receive
from a2a_trust.middleware.rejection import Error
from a2a_trust.middleware.routing import Target

MAX_MEMBERS: Final = 1_000
"""The most members of an object that is read; A2A has about ten in one."""

AT_ONCE: Final = 1_310_720
"""Bodies up to this size, in bytes, are read at once, in about a millisecond; larger ones in a thread. A thread costs
0.3 ms, ten times the cost of reading 68 kB, and msgspec holds the interpreter's lock while it reads."""

MAX_NAME: Final = 256
"""The longest name of a method, a member or a parameter of the query, in characters."""

_MEDIA_TYPE: Final = re.compile(
    rb'application/(?:a2a\+)?json[ \t]*(?:;[ \t]*charset=(?:utf-8|"utf-8")[ \t]*)?', re.IGNORECASE
)
_JSON: Final = [b"application/json"]
_NULL: Final = Raw(b"null")
_VERSION: Final = Raw(b'"2.0"')
_MAX_ID: Final = 1_024
"""The longest id of a JSON-RPC request, in bytes of its JSON."""

PARSE_ERROR: Final = Error(400, -32700, "INVALID_ARGUMENT", "PARSE_ERROR", "The body is not JSON in UTF-8.")
INVALID: Final = Error(400, -32600, "INVALID_ARGUMENT", "INVALID_REQUEST", "The request is malformed or ambiguous.")
UNKNOWN_METHOD: Final = Error(404, -32601, "NOT_FOUND", "METHOD_NOT_FOUND", "The method does not exist.")
INVALID_PARAMS: Final = Error(400, -32602, "INVALID_ARGUMENT", "INVALID_PARAMS", "The parameters cannot be read.")
MEDIA_TYPE: Final = Error(
    415, -32005, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED", "Send application/json in UTF-8."
)

_AllNamed: TypeAlias = tuple[frozenset[str], frozenset[str], frozenset[str]]
_NOTHING: Final[_AllNamed] = frozenset(), frozenset(), frozenset()

CALL: Final = "a2a_trust.call"
"""The key of the scope under which handlers find the call."""


class CallRejectedError(Exception):
    """A request that is not valid: the error for its caller, the reason for operators, and the request's id as JSON."""

    def __init__(self, error: Error, why: str, call_id: bytes = b"null") -> None:
        super().__init__(why)
        self.error: Error = error
        self.why: str = why
        self.call_id: bytes = call_id


class Call(NamedTuple):
    """The call that a request of an interface makes.

    ``generation`` and ``operation`` are None for a method of JSON-RPC that A2A does not have. ``method`` is the name of
    the method of JSON-RPC, "" over HTTP+JSON. ``tenants`` are all tenants that path, query and body name; a call with
    two of them never reaches the application. ``task_id`` is the task of the operation, or "", not of a message.
    """

    binding: Binding
    generation: Generation | None
    operation: Operation | None
    method: str = ""
    tenants: frozenset[str] = frozenset()
    task_id: str = ""
    call_id: bytes | None = None
    """The id of a JSON-RPC request, as JSON; None over HTTP+JSON."""
    webhooks: frozenset[str] = frozenset()
    """The URLs of all webhooks that the body names."""
    webhook_tasks: frozenset[str] = frozenset()
    """The tasks of the body's message, for which it may register webhooks."""

    def __repr__(self) -> str:  # URLs of webhooks may have secrets
        return f"Call({self.binding}, {self.generation}, {self.operation}, {self.method[:64]!a})"

    @property
    def tenant(self) -> str:
        """The tenant, or ""."""
        return next(iter(self.tenants), "")


def call_of(scope: Mapping[str, Any]) -> Call | None:
    """The A2A call of the request, for handlers behind ``protect``; None for a request of no interface."""
    call = scope.get(CALL)
    return call if isinstance(call, Call) else None


def read_call(target: Target, body: bytes, query: bytes) -> Call:
    """The call that a request for ``target`` makes, or CallRejectedError."""
    if target.binding is Binding.JSONRPC:
        call = _read_json_rpc(body)
    else:
        tenants, webhooks, tasks = _named_in_http_json(body) if body else _NOTHING
        call = Call(
            binding=target.binding,
            generation=target.generation,
            operation=target.operation,
            tenants=target.tenants | tenants,
            task_id=target.task_id,
            webhooks=webhooks,
            webhook_tasks=tasks,
        )
    named = tenants_in_query(query) if query else None
    return call._replace(tenants=call.tenants | named) if named else call


def replay(body: bytes, receive: Receive) -> Receive:
    """The body in one message, then the real messages: an early http.disconnect would end a streamed answer."""
    waiting: MutableMapping[str, Any] | None = {"type": "http.request", "body": body, "more_body": False}

    async def again() -> MutableMapping[str, Any]:
        nonlocal waiting
        if waiting is None:
            return await receive()
        message, waiting = waiting, None
        return message

    return again


def without_body(receive: Receive) -> Receive:
    """``receive`` of a request that announces no body. If one comes all the same, the application gets a disconnect."""

    async def checked() -> MutableMapping[str, Any]:
        message = await receive()
        return {"type": "http.disconnect"} if message.get("body") else message

    return checked


def check_media_type(said: Sequence[bytes | None]) -> None:
    """Return when the media type is JSON in UTF-8. ``said``: the lines of Content-Type."""
    if said == _JSON:
        return
    if len(said) != 1 or said[0] is None or not _MEDIA_TYPE.fullmatch(said[0].strip(b" \t")):
        shown = b", ".join([b"content_type" if value is None else value for value in said])[:128].decode("latin-1")
        raise CallRejectedError(MEDIA_TYPE, f"the Content-Type is {shown!a}, not application/json")


def tenants_in_query(query: bytes) -> frozenset[str]:
    """The tenant that the query names, decoded once. CallRejectedError for two values, and for other spellings."""
    folded = query.upper()
    if b"%" not in query and b"TENANT" not in folded and b"URL" not in folded:
        return frozenset()
    named = []
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if not name.isprintable():
            raise CallRejectedError(INVALID, f"the query has the name {name[:64]!a}, which is not printable")
        last = name.rpartition(".")[2]  # transcoders of protobuf name nested members with dots
        if last == "tenant":
            named.append(value)
        elif last == "url":
            raise CallRejectedError(INVALID, "the query names a URL; a webhook is in the body")
        else:
            _check_name(last, "query")
    if len(named) > 1:
        raise CallRejectedError(INVALID, "the query names a tenant more than once")
    return frozenset(filter(None, named))


def _read_json_rpc(body: bytes) -> Call:
    request = _read_body(body, _common_request)
    call_id = _id(request.get("id"))
    try:
        if request.get("jsonrpc") != _VERSION:
            raise CallRejectedError(INVALID, 'jsonrpc is not the string "2.0"')
        named = request.get("method")
        method = "" if named is None else _METHOD_OF.get(_begin(named, MAX_NAME), "")
        if not method:
            method = _read_text(named, "method", INVALID)
            _check_method(method)
        generation, operation = METHODS.get(method, (None, None))
        params = request.get("params", _NULL)
        if type(params) is not dict:
            params = {} if params == _NULL else _read_object(params, "params")
        tenants, webhooks, tasks = _named_in(params)
        of_task = _TASK_MEMBERS.get((generation, operation))
        task_id = _task_in(params, of_task) if of_task else ""
    except CallRejectedError as rejected:
        rejected.call_id = call_id
        raise
    return Call(Binding.JSONRPC, generation, operation, method, tenants, task_id, call_id, webhooks, tasks)


#: The methods of A2A as JSON, in the spelling that clients use.
_METHOD_OF: Final[dict[bytes, str]] = {f'"{name}"'.encode(): name for name in METHODS}
_KNOWN: Final = {fold_name(name): name for name in METHODS}


def _check_method(method: str) -> None:
    """CallRejectedError for a name that a lenient server could read as another method."""
    if method in METHODS:
        return
    if not method or len(method) > MAX_NAME:
        raise CallRejectedError(INVALID, f"method is empty, or longer than {MAX_NAME} characters")
    if not method.isprintable():
        raise CallRejectedError(UNKNOWN_METHOD, f"the method {method!a} has a character that is not printable")
    known = _KNOWN.get(fold_name(method))
    if known is not None:
        raise CallRejectedError(UNKNOWN_METHOD, f"the method {method!a} is {known} in another spelling")


def _id(given: Raw | None) -> bytes:
    """The id as JSON; CallRejectedError for an id that is not valid (JSON-RPC 2.0 4)."""
    text = _begin(_NULL if given is None else given, _MAX_ID + 1)
    if text[:1] in (b"{", b"[", b"t", b"f") or len(text) > _MAX_ID:
        raise CallRejectedError(INVALID, f"the id is not a string or a number, or is longer than {_MAX_ID} bytes")
    return text


def _begin(given: Raw, most: int) -> bytes:
    return bytes(given) if len(given) <= most else bytes(memoryview(given)[:most])  # a long value is not copied


_ID: Final = ("id",)
_TASK: Final = ("taskId", "task_id")
_PUSH_OPERATIONS: Final = (
    Operation.GET_PUSH_CONFIG,
    Operation.LIST_PUSH_CONFIGS,
    Operation.DELETE_PUSH_CONFIG,
    Operation.CREATE_PUSH_CONFIG,
)
#: Which member of the parameters is the task; in 1.0, ``id`` of a push configuration is its own.
_TASK_MEMBERS: Final[dict[tuple[Generation | None, Operation | None], tuple[str, ...]]] = {
    **{
        (generation, operation): _TASK if generation is Generation.V1_0 and operation in _PUSH_OPERATIONS else _ID
        for generation in Generation
        for operation in (Operation.GET_TASK, Operation.CANCEL_TASK, Operation.SUBSCRIBE_TO_TASK, *_PUSH_OPERATIONS)
    },
    (Generation.V0_3, Operation.CREATE_PUSH_CONFIG): _TASK,
    (Generation.V0_1, Operation.SEND_MESSAGE): _ID,
    (Generation.V0_1, Operation.SEND_STREAMING_MESSAGE): _ID,
}


def _task_in(params: Mapping[str, Any], names: tuple[str, ...]) -> str:
    given = [params[name] for name in names if name in params]
    # A null counts, too: protobuf's reader empties the task for it, if it comes last.
    tasks = {"" if each == _NULL else _read_text(each, names[0], INVALID_PARAMS) for each in given}
    if len(tasks) > 1:
        raise CallRejectedError(INVALID_PARAMS, "the parameters name two tasks")
    return "".join(tasks)


def _named_in_http_json(body: bytes) -> _AllNamed:
    request = _read_body(body, _common_params)
    if not request.keys().isdisjoint(("jsonrpc", "method")):
        # An application that accepts JSON-RPC at every path would run a call that was not checked.
        raise CallRejectedError(INVALID, "a JSON-RPC request came to a path of HTTP+JSON")
    return _named_in(request)


def _named_in(params: Mapping[str, Any]) -> _AllNamed:
    """The tenants, webhooks and tasks of messages that an object names, and the objects within it."""
    found: list[tuple[Named, str]] = []
    _find_named(params, NAMING, found)
    if not found:
        return _NOTHING
    tenants, webhooks, tasks = (frozenset([text for kind, text in found if kind is each]) for each in Named)
    return tenants - {""}, webhooks, tasks - {""}


def _find_named(members: Mapping[str, Any], fields: NamingFields, found: list[tuple[Named, str]]) -> None:
    """Also the objects that name nothing are read."""
    for name, given in members.items():
        if name not in fields or given == _NULL:
            continue
        within = fields[name]
        if type(within) is not dict:
            found.append((within, _read_text(given, name, INVALID_PARAMS)))  # type: ignore[arg-type]
        elif type(given) is dict:  # read already
            _find_named(given, within, found)
        elif within is PUSH_CONFIG or _begin(given, 1) in ((b"{",) if within is MESSAGE else (b"{", b"[")):
            # An extension may have other values in the place of the other objects.
            _find_named(_read_object(given, name), within, found)


def _names_in(fields: NamingFields) -> Iterator[str]:
    for name, within in fields.items():
        yield name
        yield from _names_in(within if isinstance(within, dict) else {})


_NAMES: Final = frozenset({"jsonrpc", "method", "params", *_ID, *_TASK, *_names_in(NAMING)})
"""The names that decide about a call."""
_FOLDED_NAMES: Final = {fold_name(name): name for name in _NAMES}


@lru_cache(maxsize=1_024)  # names of up to 256 characters; a call has the same ones every time
def _check_name(name: str, where: str) -> None:
    """CallRejectedError for a name that a lenient reader could take for one that decides about the call."""
    if name in _NAMES:
        return
    if len(name) > MAX_NAME or not name.isprintable():
        why = f"longer than {MAX_NAME} characters, or has a character that is not printable"
        raise CallRejectedError(INVALID, f"the {where} has the name {name[:64]!a}, which is {why}")
    known = _FOLDED_NAMES.get(fold_name(name))
    if known is not None:
        raise CallRejectedError(INVALID, f"the {where} has the name {name!a}, which is {known} in another spelling")


_SHORT: Final = 65_536
"""Texts up to this size, in bytes, are read at once, with their names: these have no more than it."""


class _Name(str):
    """A member's name. A separate type, so that the decoder calls back for every name, in order."""

    __slots__ = ()


class _MemberReader(threading.local):
    """Reads an object's members, one level deep; each thread has its own, since the decoder calls back."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._decode = Decoder(dict[_Name, Raw], dec_hook=self._name).decode

    def members(self, text: bytes | memoryview) -> dict[_Name, Raw]:
        self._names.clear()
        return self._decode(text)

    def _name(self, _type: type, name: Any) -> _Name:
        # msgspec keeps the last of two members with one name, silently.
        _check_name(name, "body")
        if name in self._names:
            raise CallRejectedError(INVALID, f"the body has the member {name[:64]!a} twice in one object")
        if len(self._names) >= MAX_MEMBERS:
            raise CallRejectedError(INVALID, f"an object has more than {MAX_MEMBERS} members")
        self._names.add(name)
        return _Name(name)


_reader: Final = _MemberReader()
_string: Final = Decoder(str).decode
_Utf8: Final = getincrementaldecoder("utf-8")
_CHUNK: Final = 65_536


def _read_body(body: bytes, decode: _Decoder) -> Mapping[str, Any]:
    """The members of a body that is one object; CallRejectedError for any other body. ``decode`` reads common ones."""
    try:
        if not body.isascii():
            _check_utf8(body)
        return _simple_members(body, decode) or _members(body)
    except ValidationError:
        raise CallRejectedError(INVALID, "the body is not one JSON object") from None
    except (DecodeError, UnicodeDecodeError) as error:
        raise CallRejectedError(PARSE_ERROR, f"the body is not JSON in UTF-8: {error}") from None
    except RecursionError:
        raise CallRejectedError(INVALID, "the body is nested too deeply") from None


# The members of nearly all requests. The decoder takes no others, so that one look at the body finds them all.
_Typed: Final[Any] = TypedDict
_WITHIN: Final = (
    *("messageId", "contextId", "taskId", "role", "parts", "metadata", "extensions", "referenceTaskIds", "kind"),
    *("acceptedOutputModes", "historyLength", "returnImmediately", "blocking"),
    *("taskPushNotificationConfig", "pushNotificationConfig"),
)
_PARAMS: Final = {
    **dict.fromkeys(("tenant", "metadata", "id", "taskId", "contextId", "historyLength", "pageSize", "pageToken"), Raw),
    **dict.fromkeys(("message", "configuration"), _Typed("_Within", dict.fromkeys(_WITHIN, Raw), total=False)),
}
_REQUEST: Final = {**dict.fromkeys(("jsonrpc", "id", "method"), Raw), "params": _Typed("_P", _PARAMS, total=False)}
_Decoder: TypeAlias = Callable[[bytes], dict[str, Any]]
_encode: Final = Encoder().encode
_common_params: Final[_Decoder] = Decoder(_Typed("_Params", _PARAMS, total=False)).decode
_common_request: Final[_Decoder] = Decoder(_Typed("_Request", _REQUEST, total=False)).decode
_plain: Final[_Decoder] = Decoder(dict[str, Raw]).decode


class _Names(dict[str, bytes]):
    """How a writer with blanks begins a member of that name."""

    def __init__(self, before: str) -> None:
        self._before = before
        self.update({name: self[name] for name in (*_REQUEST, *_PARAMS, *_WITHIN)})

    def __missing__(self, name: str) -> bytes:
        return f'{self._before}"{name}": '.encode()


_FIRST, _OTHERS = _Names("{"), _Names(", ")


def _simple_members(body: bytes, decode: _Decoder) -> dict[str, Any] | None:
    """The members of an object that is written as most writers do, with each member once; None for any other object.

    The text is compared with what such a writer makes of the members that were found: then nothing else is in it.
    """
    if len(body) > AT_ONCE:  # it would be copied twice
        return None
    try:
        members = decode(body)
    except (DecodeError, RecursionError):
        return None
    if len(members) > MAX_MEMBERS:
        return None
    if body[:64].find(b'": ') < 0:
        return members if _encode(members) == body else None
    parts: list[bytes | Raw] = []
    _write(members, parts)
    return members if b"".join(parts) == body else None


def _write(members: dict[str, Any], parts: list[bytes | Raw]) -> None:
    """Append the text of an object to ``parts``, with blanks behind colons and commas."""
    names = _FIRST
    for name, given in members.items():
        parts.append(names[name])
        names = _OTHERS
        if type(given) is dict:
            _write(given, parts)
        else:
            parts.append(given)
    parts.append(b"}" if members else b"{}")


def _read_object(text: Raw, name: str) -> Mapping[str, Any]:
    view = memoryview(text)
    try:
        return _members(view if len(view) > _SHORT else bytes(view))
    except ValidationError:
        raise CallRejectedError(INVALID_PARAMS, f"{name} is not an object") from None


def _members(text: bytes | memoryview) -> Mapping[Any, Any]:
    """The members of an object; CallRejectedError for a name that comes twice, or that resembles another."""
    if type(text) is bytes and len(text) <= _SHORT:
        simple = _simple_members(text, _plain)
        if simple is not None:
            if not _NAMES.issuperset(simple):
                for name in simple:
                    _check_name(name, "body")
            return simple
    return _reader.members(text)


def _read_text(text: Raw | None, name: str, otherwise: Error) -> str:
    try:
        if text is not None:
            return _string(text)
    except DecodeError:
        pass
    raise CallRejectedError(otherwise, f"{name} is not a string")


def _check_utf8(body: bytes) -> None:
    """UnicodeDecodeError for a body that is not UTF-8; msgspec does not check the strings that it skips."""
    decoder, view = _Utf8(), memoryview(body)
    for start in range(0, len(body), _CHUNK):  # a whole text may take four times the body
        decoder.decode(view[start : start + _CHUNK], final=start + _CHUNK >= len(body))
