"""What the guard decides about a call of gRPC, without gRPC itself, beside the same call over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from itertools import repeat
from time import perf_counter
from typing import Any, Final

from google.rpc import error_details_pb2

from a2a_trust.grpc import GrpcGuard, _Answer
from benchmarks.guards import CARD, KEY, protected
from benchmarks.rounds import Contender, Row, Timer
from benchmarks.setting import Setting
from benchmarks.tokens import LOOP

__all__ = ["rows"]

_CALLS: Final = 500
_METHOD: Final = "/lf.a2a.v1.A2AService/SendMessage"
_MESSAGE: Final = {"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}


class _Context:
    """What the guard uses of the context of a call."""

    def peer(self) -> str:
        return "ipv4:127.0.0.1:41241"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ("user-agent", "grpc-python-asyncio/1.85.3"), ("x-api-key", KEY)


class _Handler:
    """A method. Its messages stand for those that name no tenant: no rule reads more of them than that."""

    request_streaming = False
    request_deserializer = error_details_pb2.ErrorInfo.FromString


async def _take(_: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def rows(setting: Setting) -> Iterator[Row]:
    """The target is of issue and design: at most 1.3 × the decision over HTTP."""
    guard, url = GrpcGuard(), CARD["supportedInterfaces"][0]["url"]
    origin = url.removesuffix("/rpc")
    bindings = (("JSONRPC", "/rpc"), ("HTTP+JSON", "/rest"), ("GRPC", "/grpc"))
    card = {
        **CARD,
        "supportedInterfaces": [
            {"url": origin + path, "protocolBinding": binding, "protocolVersion": "1.0"} for binding, path in bindings
        ],
    }
    app = protected(_take, card=card, grpc=guard)
    guarding: Any = guard._guarding
    raw = error_details_pb2.ErrorInfo(metadata={"text": "hi"}).SerializeToString()

    async def work(message: Any, _: Any) -> Any:
        return message

    def over_grpc() -> Awaitable[Any]:
        return _Answer(guarding, _METHOD, _Handler, _Context(), raw).serve(work)

    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": _MESSAGE}
    yield Row(
        title="a call through the guard, in process, API key",
        baseline="over JSON-RPC",
        contenders=(
            Contender(name="over JSON-RPC", timer=_timer(_over_http(app, "/rpc", call))),
            Contender(name="over HTTP+JSON", timer=_timer(_over_http(app, "/rest/message:send", _MESSAGE))),
            Contender(name="over gRPC", timer=_timer(over_grpc), target=1.3),
        ),
        rounds=setting.rounds(60),
    )


def _over_http(app: Any, path: str, content: Any) -> Callable[[], Awaitable[Any]]:
    body = json.dumps(content).encode()
    headers = [(b"user-agent", b"x"), (b"x-api-key", KEY.encode()), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        pass

    return lambda: app({**scope, "headers": headers, "client": ("127.0.0.1", 41241), "asgi": {}}, receive, send)


def _timer(call: Callable[[], Awaitable[Any]]) -> Timer:
    async def calls() -> float:
        start = perf_counter()
        for _ in repeat(None, _CALLS):
            await call()
        return (perf_counter() - start) / _CALLS

    def timer() -> float:
        asyncio.set_event_loop(LOOP)
        return LOOP.run_until_complete(calls())

    return timer
