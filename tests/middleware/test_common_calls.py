"""The quick reader of common bodies accepts only what the reader of all bodies accepts, with the same result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.card.operations import Binding, Operation
from a2a_trust.card.schema import Generation
from a2a_trust.middleware import calls
from a2a_trust.middleware.calls import CallRejectedError, read_call
from a2a_trust.middleware.routing import Target
from tests.tables import walk

JSON_RPC = Target(binding=Binding.JSONRPC)
SEND = Target(binding=Binding.HTTP_JSON, generation=Generation.V1_0, operation=Operation.SEND_MESSAGE)
PARTS = [{"text": "Wo ist der Bahnhof? 🚂", "metadata": {"parts": [], "id": 1}}]
MESSAGE = {"messageId": "m", "role": "ROLE_USER", "parts": PARTS}
CONFIGURATION = {"acceptedOutputModes": ["text/plain"], "returnImmediately": True}
CALL = {"jsonrpc": "2.0", "id": "1", "method": "SendMessage", "params": {"message": MESSAGE}}


def outcome(target: Target, body: bytes) -> Any:
    try:
        return read_call(target, body, b"")
    except CallRejectedError as rejected:
        return rejected.error, rejected.why, rejected.call_id


def difference(body: bytes, short: int | None = None) -> str:
    """What the two readers say about a body, if they do not say the same. ``short`` is the limit of short texts."""
    with pytest.MonkeyPatch.context() as patch:
        if short is not None:
            patch.setattr(calls, "_SHORT", short)
        quick = [outcome(target, body) for target in (JSON_RPC, SEND)]
        patch.setattr(calls, "_simple_members", lambda body, decode: None)
        slow = [outcome(target, body) for target in (JSON_RPC, SEND)]
    return "" if quick == slow else f"{body!r}: {quick} is not {slow}"


def is_common(body: bytes) -> bool:
    return calls._simple_members(body, calls._common_request) is not None


# What is common


def common() -> Iterator[dict[str, Any]]:
    yield CALL
    yield {**CALL, "params": {"message": MESSAGE, "configuration": CONFIGURATION, "metadata": {"parts": 1}}}
    yield {**CALL, "params": {"message": {"kind": "message", **MESSAGE, "extensions": [], "taskId": "t"}}}
    yield {**CALL, "params": {"message": {**MESSAGE, "parts": [{"raw": "QUJD" * 40_000}], "contextId": "c"}}}
    yield {**CALL, "params": {"tenant": "acme", "message": {}, "configuration": {}}}
    yield {**CALL, "method": "GetTask", "id": 7, "params": {"id": "t", "historyLength": 3}}
    yield {**CALL, "method": "ListTasks", "params": {}}
    yield {"method": "acme/extension", "jsonrpc": "2.0"}


@walk("call", list(common()), ids=lambda call: repr(call)[:100])
def test_calls_as_clients_write_them_are_read_with_one_look(call: dict[str, Any]) -> None:
    for separators in ((",", ":"), (", ", ": ")):
        for is_ascii in (True, False):
            body = json.dumps(call, separators=separators, ensure_ascii=is_ascii).encode()
            assert is_common(body)
            assert difference(body) == ""


# What is not


def uncommon() -> Iterator[bytes]:
    for written in (json.dumps(CALL).encode(), json.dumps(CALL, separators=(",", ":")).encode()):
        yield written + b" "
        yield b" " + written
        yield written.replace(b'"role"', b'"rol\\u0065"')
        yield written.replace(b'"role"', b'"Role"')
        yield written.replace(b'"role"', b'"role\\u0000"')
        yield written.replace(b'"method"', b'"metho\\u0064"')
        yield written.replace(b'"params"', '"paramſ"'.encode())
        yield written.replace(b'"params"', b'"tenant":"x","params"')
        yield written.replace(b'"message"', b'"tenant":"x","tenant":"y","message"')
        yield written.replace(b'"message"', b'"Tenant":"x","message"')
        yield written.replace(b'"messageId"', b'"parts":[],"messageId"')
        yield written.replace(b'"id"', b'"id":2,"id"')
        yield written.replace(b'"id"', b'"id" ')
        yield written.replace(b"}]}", b'}],"parts":[]}')
        yield written.replace(b"}}}", b'},"message":null}}')
        yield written.replace(b"}}}", b'}},"params":{"tenant":"x"}}')
        yield written.replace(b"}}}", b'}},"params":{}}')
        yield written[:-1] + b',"id":[]}'
        yield written[:-1] + b',"id":"' + b"x" * 2_000 + b'"}'
        yield written.decode().encode("utf-16")
        yield b"\xef\xbb\xbf" + written
        yield written.replace(b"Bahnhof", b"\xff")
        yield written.replace(b"Bahnhof", b"\xed\xa0\x80")
        yield written.replace(b'"text"', b'"x":' + b"[" * 5_000 + b"]" * 5_000 + b',"text"')
        yield written[:-1] + b"," + b",".join(b'"%d":0' % number for number in range(1_001)) + b"}"
        yield written[:-1]
        yield b"{}"
        yield b"[]"


@walk("body", list(uncommon()), ids=lambda body: repr(body)[:100])
def test_what_is_written_oddly_is_decided_by_the_reader_of_all_bodies(body: bytes) -> None:
    assert difference(body) == ""
    assert difference(body, 8) == ""


@walk(
    ("body", "short"),
    [
        # Members between the parts that begin the text and the ones that end it.
        (b'{"params": {"message": {"parts": [1], "parts": [1,2,3,4,5,6]}}}', 60),
        (b'{"params": {"message": {"parts": [], "x": [", \\"role\\": 1}}}", 1], "role": 1}}}', 30),
        (b'{"params": {"message": {"parts":[], "parts":[1,2,3,4], "role": 1}}}', 30),
        (b'{"params": {"message": {"parts": 1}}, "params": {"message": {"parts": [1,2,3,4]}}}', 40),
        # As long as the common text, which has more blanks, before the parts or behind them.
        (b'{"id": 0,"method":1,"params":{"message":{"x":0,"parts":[1,2,3,4,5,6], "role": 1}}}', 75),
        (b'{"params": {"message": {"parts": [1,2,3,4,5,6],"role":1,"messageId":2,"x":0}},"id":3}', 75),
    ],
)
def test_long_parts_hide_no_member(body: bytes, short: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "_SHORT", short)
        assert not is_common(body)
    assert difference(body, short) == ""


_names = st.sampled_from(
    ["parts", "role", "message", "params", "id", "tenant", "taskId", "metadata", "configuration", "Tenant", "x", "p\0"]
)
_texts = st.sampled_from(['"', "}", "{", ",", ":", ", ", '": ', '"role": 1', "parts", "}}}", "]", "\\", "é", "a"])
_strings = st.lists(_texts, max_size=4).map("".join)


class _Members(list[tuple[str, Any]]):
    """The members of an object, perhaps some of them twice."""


_values = st.recursive(
    st.none() | st.integers(0, 10**6) | _strings,
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(_names, inner), max_size=4).map(_Members),
    max_leaves=6,
)


@st.composite
def _objects(draw: st.DrawFn, members: dict[str, st.SearchStrategy[Any]]) -> _Members:
    """An object with most of these members, in any order, and perhaps with others or one twice."""
    names = draw(st.permutations(list(members)))
    found = [(name, draw(members[name])) for name in names]
    oddity = draw(st.integers(0, 20))
    if oddity == 1:
        found.insert(draw(st.integers(0, len(found))), (draw(_names), draw(_values)))
    if oddity == 2:
        found.append((draw(st.sampled_from(found))[0], draw(_values)))
    if oddity == 3:
        found.pop()
    return _Members(found)


_parts = st.lists(_values, max_size=6)
_message = _objects({"parts": _parts, "role": _strings, "messageId": _strings, "metadata": _values})
_configuration = _objects({"acceptedOutputModes": _values, "blocking": _values})
_parameters = _objects({"message": _message, "configuration": _configuration, "metadata": _values, "id": _strings})
_methods = st.sampled_from(["SendMessage", "GetTask", "acme/x", "sendmessage"])
_requests = _objects({"jsonrpc": st.just("2.0"), "id": _strings, "method": _methods, "params": _parameters})


def _written(value: Any, comma: str, colon: str) -> str:
    if isinstance(value, _Members):
        members = [f"{json.dumps(name)}{colon}{_written(each, comma, colon)}" for name, each in value]
        return "{" + comma.join(members) + "}"
    if isinstance(value, list):
        return "[" + comma.join(_written(each, comma, colon) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False)


@given(
    value=_requests,
    style=st.sampled_from([(",", ":"), (", ", ": ")]),
    edits=st.just([])
    | st.lists(
        st.tuples(st.integers(0, 500), st.integers(0, 3), st.sampled_from([b"", b" ", b",", b'"', b"}", b'"id":1,'])),
        max_size=1,
    ),
    left_out=st.integers(-1, 40),
)
def test_both_readers_say_the_same(value: Any, style: tuple[str, str], edits: Any, left_out: int) -> None:
    """Of half of the bodies, the parts are longer than ``left_out``: then only their length is compared."""
    body = _written(value, *style).encode()
    for at, length, put in edits:
        body = body[: at % (len(body) + 1)] + put + body[at % (len(body) + 1) + length :]
    assert difference(body, max(0, len(body) - left_out)) == ""
