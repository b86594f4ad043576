"""M15: a body that is small to send and dear to read.

Seen here: at every object of 16 MB of ``{}`` a function in Python was called, which took seconds and gigabytes. What is
counted is memory at its peak, and how often Python code runs for one body: never a time.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from unicodedata import normalize

import pytest

from a2a_trust.card.operations import Binding
from a2a_trust.middleware.calls import CallRejectedError, read_call
from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.protection import protect
from a2a_trust.middleware.routing import Target
from tests.middleware.agent import CALL, CARD, KEY, verifiers
from tests.middleware.test_rules import Behind, Server, ask, guarded
from tests.tables import walk

SIZE = RequestRules().max_body
KINDS: dict[str, bytes] = {
    "objects": b"{},",
    "objects with a member": b'{"tenant":1},',
    "lists": b"[],",
    "numbers": b"1,",
    "fractions": b"1.5e-7,",
    "constants": b"null,",
    "strings": b'"",',
    "escapes": b'"\\u0041\\n",',
    "characters": '"é😀",'.encode(),
    "dense lists": b"[[[[0]]]],",
}
CALLED: dict[str, tuple[bytes, bytes]] = {
    "in a message": (b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":[', b"0]}}"),
    "in the place of a tenant": (b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"tenant":[', b"0]}}"),
    "in a configuration": (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"configuration":{"x":[', b"0]}}}"),
    "as an id": (b'{"jsonrpc":"2.0","method":"SendMessage","id":[', b"0]}"),
    "as a method": (b'{"jsonrpc":"2.0","method":[', b"0]}"),
    "as params": (b'{"jsonrpc":"2.0","method":"x","params":[', b"0]}"),
    "in a batch": (b"[", b"0]"),
}
JSON_RPC = Target(binding=Binding.JSONRPC)
#: Every kind where most of a body is, and one kind wherever else a body can be large.
PLACED = [
    *((kind, "in a message") for kind in KINDS),
    *(("objects", place) for place in CALLED if place != "in a message"),
]


def filled(kind: str, place: str, size: int) -> bytes:
    before, after = CALLED[place]
    return before + KINDS[kind] * ((size - len(before) - len(after)) // len(KINDS[kind])) + after


def read(body: bytes) -> None:
    with suppress(CallRejectedError):
        read_call(JSON_RPC, body, b"")


def peak(of: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        of()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def python_calls(of: Callable[[], Any]) -> int:
    """How many functions in Python are entered."""
    count = 0

    def entered(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(entered)
    try:
        of()
    finally:
        sys.setprofile(None)
    return count


@walk(("kind", "place"), PLACED)
def test_16_mb_take_hardly_any_memory_beside_themselves(kind: str, place: str) -> None:
    body = filled(kind, place, SIZE)
    assert len(body) > SIZE - 50
    assert peak(lambda: read(body)) < 1_000_000


@walk(("kind", "place"), PLACED)
def test_the_work_in_python_does_not_grow_with_the_body(kind: str, place: str) -> None:
    small, large = (python_calls(partial(read, filled(kind, place, size))) for size in (50_000, 1_000_000))
    # Non-ASCII text is decoded in pieces of 64 KiB, each by one call at most.
    assert large <= small + 40


@walk(
    "members",
    [
        b",".join(b'"%d":0' % number for number in range(1_400_000)),
        b'"' + b"a" * 15_000_000 + b'":0',
        b",".join([b'"":0'] * 3_000_000),
    ],
    ids=["many", "long", "the same"],
)
@walk("place", [b"{%b}", b'{"jsonrpc":"2.0","method":"x","params":{%b}}'], ids=["request", "params"])
def test_names_of_members_are_bounded_too(place: bytes, members: bytes) -> None:
    body = place % members
    assert len(body) < SIZE
    assert peak(lambda: read(body)) < 2.5 * SIZE  # a long name is a text, and once more as a name
    assert python_calls(lambda: read(body)) < 5_000


@pytest.mark.parametrize("piece", [1, 1_000, 65_536])
def test_pieces_of_an_upload_cost_no_more_than_the_body(piece: int) -> None:
    """Kept in a list, a million pieces of one byte take 40 MB."""
    body = json.dumps(CALL).encode() + b" " * (300_000 if piece == 1 else 8_000_000)
    behind = Behind()

    class Pieces(Server):
        at = 0

        async def receive(self) -> Any:
            start, self.at = self.at, self.at + piece
            if start >= len(body):
                await asyncio.Event().wait()
            return {"type": "http.request", "body": body[start : self.at], "more_body": self.at < len(body)}

    server = Pieces([])
    assert peak(lambda: server.run(guarded(behind))) < 3 * len(body) + 3_000_000
    assert behind.bodies == [body]


def test_what_is_beyond_max_body_is_not_collected() -> None:
    class Endless(Server):
        async def receive(self) -> Any:
            self.asked += 1
            assert self.asked < 100
            return {"type": "http.request", "body": bytes(100_000), "more_body": True}

    server = Endless([])
    assert peak(lambda: server.run(guarded(Behind(), max_body=1_000_000))) < 5_000_000
    assert (server.sent[0]["status"], server.asked) == (413, 11)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_what_is_nested_too_deep_is_refused(opening: bytes) -> None:
    for body in (opening * 1_000_000, b'{"jsonrpc":"2.0","method":"x","params":{"x":' + opening * 1_000_000):
        with pytest.raises(CallRejectedError):
            read_call(JSON_RPC, body, b"")
        assert peak(partial(read, body)) < 1_000_000


def test_a_cut_off_upload_leaves_nothing_behind() -> None:
    behind = Behind()
    app = guarded(behind)
    for end in ({"type": "http.disconnect"}, {"type": "http.request", "body": b"", "more_body": False}):
        server = Server([{"type": "http.request", "body": b'{"jsonrpc":', "more_body": True}, end])
        server.run(app)
        assert behind.bodies == []
        assert bool(server.sent) is (end["type"] == "http.request")


# Paths and queries


ODD = "%CC%81" * 5_000 + "%CC%A7" * 5_000  # to normalize them takes time with the square of their number


@walk(
    ("method", "target", "status"),
    [
        ("GET", f"/{ODD}", 404),
        ("POST", f"/{ODD}/rpc", 404),
        ("OPTIONS", f"/{ODD}", 299),  # public: what it asks for decides nothing
        ("GET", f"/rest/tasks?{ODD}=1", 400),
        ("GET", f"/rest/tasks?tenant.{ODD}=1", 400),
        ("GET", "/" + "Aa0%2D" * 5_000, 299),
        ("GET", "/rest/tasks?" + "x" * 5_000 + "=%20", 400),
    ],
)
def test_odd_paths_and_queries_are_not_normalized_at_any_length(
    method: str, target: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request line of 65 kB kept an event loop busy for 0.4 s, in one configuration without any credential."""
    lengths: list[int] = []

    def normalized(form: Any, text: str) -> str:
        lengths.append(0 if text.isascii() else len(text))
        return normalize(form, text)

    app = protect(
        Behind(), card=CARD, verifiers=verifiers(), rules=RequestRules(max_body=1000, allow_cors_preflight=True)
    )
    monkeypatch.setattr("a2a_trust.card.operations.normalize", normalized)
    preflight = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    headers = preflight if method == "OPTIONS" else {"X-API-Key": KEY}
    assert ask(app, method, target, headers=headers).status_code == status
    assert max(lengths, default=0) <= 2048
