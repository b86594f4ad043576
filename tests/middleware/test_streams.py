"""Answers that still run when the credential of their caller ends."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from a2a_trust import RequestRules, protect
from a2a_trust.auth import Identity
from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, KeySourceUnavailableError
from a2a_trust.middleware.streams import WatchedAnswer
from tests.auth.test_jwt import NOW
from tests.middleware.agent import CARD, Message, Receive, Scope, Send
from tests.waiting import settled, until

EVENT = b"data: {}\n\n"
SSE = [(b"content-type", b"text/event-stream; charset=utf-8")]
CALL = {"jsonrpc": "2.0", "id": "7", "method": "SendStreamingMessage", "params": {}}


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_trust.middleware.streams._LOOK_SECONDS", 0.0)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Verifier:
    """Admits one key, until a test says otherwise."""

    def __init__(self) -> None:
        self.expires_at = NOW + 60
        self.scopes = frozenset({"read"})
        self.error: Exception | None = None
        self.hangs = False
        self.times = 0

    async def verify(self, credential: str, now: float) -> Identity:
        self.times += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return Identity(issuer="keys", subject="ann", scopes=self.scopes, expires_at=self.expires_at)


class Streaming:
    """An application that answers as a test says, and remembers how its request ended."""

    def __init__(self, *parts: bytes, headers: list[tuple[bytes, bytes]] = SSE, listens: bool = True) -> None:
        self.parts, self.headers, self.listens = parts, headers, listens
        self.go_on = asyncio.Event()
        self.seen: list[Message] = []
        self.later = b"data: late\n\n"
        self.was_cancelled = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body", False):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        for part in self.parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        try:
            if self.listens:
                self.seen.append(await receive())
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        await send({"type": "http.response.body", "body": self.later, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Talking:
    """An application that accepts a websocket, and waits."""

    def __init__(self) -> None:
        self.seen: list[Message] = []
        self.error: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while not self.seen or not self.seen[-1]["type"].endswith("disconnect"):
            self.seen.append(await receive())
        try:
            await send({"type": "websocket.send", "text": "late"})
        except OSError as error:
            self.error = error


class Client:
    """The server's side of one request."""

    def __init__(
        self,
        app: Any,
        path: str = "/rpc",
        *,
        kind: str = "http",
        spec: str = "2.3",
        headers: Iterable[tuple[bytes, bytes]] = [(b"x-api-key", b"secret")],
    ) -> None:
        self.sent: list[Message] = []
        self.queue = asyncio.Queue[Message]()
        if kind == "http":
            body = json.dumps(CALL).encode() if path == "/rpc" else b""
            self.queue.put_nowait({"type": "http.request", "body": body})
        else:
            self.queue.put_nowait({"type": "websocket.connect"})
        self.scope: Scope = {
            "type": kind,
            "method": "POST" if path == "/rpc" else "GET",
            "path": path,
            "headers": [*headers, (b"content-type", b"application/json")],
            "asgi": {"version": "3.0", "spec_version": spec},
        }
        self.app = app
        self.request = asyncio.create_task(app(self.scope, self.queue.get, self.send))

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if message.get("more_body") is False:  # as servers do
            self.queue.put_nowait({"type": "http.disconnect"})
        elif message["type"] == "websocket.close":
            self.queue.put_nowait({"type": "websocket.disconnect", "code": message["code"]})

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def is_whole(self) -> bool:
        return any(message.get("more_body") is False for message in self.sent)


def agent(app: Any, verifier: Any, clock: Callable[[], float], *, scheme: str = "key", **rules: Any) -> Any:
    schemes = {**CARD["securitySchemes"], "basic": {"httpAuthSecurityScheme": {"scheme": "Basic"}}}
    scopes = [] if scheme == "basic" else ["read"]
    card = {**CARD, "securitySchemes": schemes, "securityRequirements": [{"schemes": {scheme: {"list": scopes}}}]}
    given = RequestRules(**{"end_streams_with_credential": True, **rules})
    return protect(app, card=card, verifiers={scheme: verifier}, rules=given, clock=clock)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def alone() -> None:
        async with asyncio.timeout(60):
            await test()
        await settled()
        assert len(asyncio.all_tasks()) == 1  # nothing is left behind

    asyncio.run(alone())


def test_events_end_with_the_error_of_the_binding_when_the_credential_expires() -> None:
    async def test() -> None:
        clock, app = Clock(), Streaming(EVENT)
        app.go_on.set()
        client = Client(agent(app, Verifier(), clock))
        await until(lambda: client.body == EVENT)
        clock.now += 60
        await client.request
        kind, data = client.body.removeprefix(EVENT).removesuffix(b"\n\n").split(b"\n")
        answer = json.loads(data.removeprefix(b"data: "))
        assert (kind, answer["id"], answer["error"]["code"]) == (b"event: error", "7", -31401)
        assert client.is_whole
        assert app.seen == [{"type": "http.disconnect"}]

    run(test)


def test_events_of_other_paths_end_with_the_error_of_http() -> None:
    async def test() -> None:
        clock, app = Clock(), Streaming()
        app.go_on.set()
        client = Client(agent(app, Verifier(), clock), "/events")
        await until(lambda: len(client.sent) == 1)
        clock.now += 60
        await client.request
        answer = json.loads(client.body.removeprefix(b"event: error\ndata: "))
        assert answer["error"]["status"] == "UNAUTHENTICATED"

    run(test)


@pytest.mark.parametrize(
    ("parts", "headers"),
    [
        ((b"data: {",), SSE),
        ((b"data: {}\n",), SSE),
        ((b"data: {}\r\n",), SSE),
        ((EVENT,), [*SSE, (b"content-encoding", b"gzip")]),
        ((b"some",), [(b"content-type", b"text/plain")]),
    ],
)
def test_other_answers_end_unfinished(parts: tuple[bytes, ...], headers: list[tuple[bytes, bytes]]) -> None:
    async def test() -> None:
        clock, app = Clock(), Streaming(*parts, headers=headers)
        client = Client(agent(app, Verifier(), clock))
        await until(lambda: client.body == b"".join(parts))
        clock.now += 60
        await client.request
        assert app.was_cancelled
        assert not client.is_whole
        assert client.body == b"".join(parts)
        assert client.request.cancelling() == 0

    run(test)


def test_an_answer_of_announced_length_is_not_watched() -> None:
    async def test() -> None:
        clock, verifier = Clock(), Verifier()
        app = Streaming(b"some", headers=[(b"content-length", b"100")], listens=False)
        client = Client(agent(app, verifier, clock))
        await until(lambda: client.body == b"some")
        clock.now += 60
        app.go_on.set()
        await client.request
        assert client.is_whole
        assert verifier.times == 1

    run(test)


@pytest.mark.parametrize("end", [b"\r\r", b"\r\n\r\n", b"\n\r\n"])
def test_each_empty_line_is_the_end_of_an_event(end: bytes) -> None:
    async def test() -> None:
        clock, app = Clock(), Streaming(b"data: {}" + end[:1], end[1:])
        app.go_on.set()
        client = Client(agent(app, Verifier(), clock))
        await until(lambda: client.body.endswith(end))
        clock.now += 60
        await client.request
        assert b"event: error" in client.body

    run(test)


def test_later_parts_are_dropped_or_an_error_of_the_system_by_the_version_of_asgi() -> None:
    async def test() -> None:
        for spec in ("2.3", "2.4"):
            clock, app = Clock(), Streaming(EVENT, listens=False)
            client = Client(agent(app, Verifier(), clock), spec=spec)
            await until(lambda client=client: client.body == EVENT)  # type: ignore[misc]
            clock.now += 60
            await until(lambda client=client: client.is_whole)  # type: ignore[misc]
            app.go_on.set()
            await client.request
            assert b"late" not in client.body

    run(test)


def test_a_part_is_not_sent_after_the_expiry_however_busy_the_loop_is() -> None:
    async def test() -> None:
        clock = Clock()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": SSE})
            await send({"type": "http.response.body", "body": EVENT, "more_body": True})
            clock.now += 60
            await send({"type": "http.response.body", "body": b"late", "more_body": True})

        client = Client(agent(app, Verifier(), clock), "/events")
        await client.request
        assert client.body.startswith(EVENT + b"event: error")
        assert b"late" not in client.body

    run(test)


def test_a_whole_answer_after_the_expiry_is_sent() -> None:
    async def test() -> None:
        clock = Clock()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            clock.now += 60
            headers = [(b"content-length", b"2")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": b"{}"})

        client = Client(agent(app, Verifier(), clock))
        await client.request
        assert client.body == b"{}"

    run(test)


@pytest.mark.parametrize(
    ("error", "name", "code"),
    [
        (InvalidCredentialsError("revoked"), "UNAUTHENTICATED", 1008),
        (KeySourceUnavailableError("lost"), "UNAVAILABLE", 1013),
        (RuntimeError("secret"), "UNAVAILABLE", 1013),
    ],
)
def test_an_answer_ends_when_a_new_request_would_not_be_admitted(error: Exception, name: str, code: int) -> None:
    async def test() -> None:
        verifier, app = Verifier(), Streaming(EVENT)
        app.go_on.set()
        guarded = agent(app, verifier, Clock())
        client = Client(guarded, "/events")
        await until(lambda: verifier.times > 2)  # it is looked at again and again
        verifier.error = error
        await client.request
        assert json.loads(client.body.partition(b"event: error\ndata: ")[2])["error"]["status"] == name
        assert b"secret" not in client.body

        verifier.error = None
        socket = Client(agent(Talking(), verifier, Clock()), "/events", kind="websocket")
        await until(lambda: bool(socket.sent))
        verifier.error = error
        await socket.request
        assert socket.sent[1:] == [{"type": "websocket.close", "code": code, "reason": ""}]

    run(test)


def test_an_answer_ends_when_the_credential_loses_its_scopes() -> None:
    async def test() -> None:
        verifier, app = Verifier(), Streaming(EVENT)
        app.go_on.set()
        client = Client(agent(app, verifier, Clock()), "/events")
        await until(lambda: verifier.times > 1)
        verifier.scopes = frozenset()
        await client.request
        assert b"PERMISSION_DENIED" in client.body

    run(test)


@pytest.mark.parametrize("error", [InvalidCredentialsError("revoked"), KeySourceUnavailableError("lost")])
def test_a_credential_that_only_skills_demand_ends_the_answer_too(error: Exception) -> None:
    async def test() -> None:
        skill = {"id": "pay", "securityRequirements": [{"schemes": {"oauth": {"list": []}}}]}
        card = {**CARD, "securityRequirements": [{"schemes": {"key": {"list": []}}}], "skills": [skill]}
        of_skill, app = Verifier(), Streaming(EVENT)
        app.go_on.set()
        rules = RequestRules(end_streams_with_credential=True, handlers_check_skills=True)
        given = {"key": Verifier(), "oauth": of_skill}
        guarded = protect(app, card=card, verifiers=given, rules=rules, clock=Clock())
        headers = [(b"x-api-key", b"secret"), (b"authorization", b"Bearer token")]
        client = Client(guarded, "/events", headers=headers)
        await until(lambda: of_skill.times > 2)
        of_skill.error = error
        await client.request
        assert b"event: error" in client.body

    run(test)


def test_a_check_that_hangs_ends_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_trust.middleware.streams._PATIENCE", 0.01)

    async def test() -> None:
        verifier, app = Verifier(), Streaming(EVENT)
        app.go_on.set()
        client = Client(agent(app, verifier, Clock()), "/events")
        await until(lambda: client.body == EVENT)
        verifier.hangs = True
        await client.request
        assert b"UNAVAILABLE" in client.body

    run(test)


def test_a_revoked_key_ends_its_answer_and_no_other() -> None:
    async def test() -> None:
        store, age = MemoryApiKeys(), Clock()
        keys = [store.create(owner=owner, scopes=["read"]) for owner in ("ann", "bob")]
        verifier = ApiKeyVerifier(store, clock=age)
        apps = [Streaming(EVENT), Streaming(EVENT)]
        clients = []
        for app, key in zip(apps, keys, strict=True):
            app.go_on.set()
            guarded = agent(app, verifier, lambda: keys[0].record.created + 1)
            clients.append(Client(guarded, "/x", headers=[(b"x-api-key", key.text.encode())]))
        await until(lambda: all(client.body == EVENT for client in clients))
        store.revoke(keys[0].record.key_id)
        await settled()
        assert not clients[0].request.done()  # within the stated delay
        age.now += 2
        await clients[0].request
        await settled()
        assert b"event: error" in clients[0].body
        assert not clients[1].request.done()
        clients[1].queue.put_nowait({"type": "http.disconnect"})
        await clients[1].request

    asyncio.run(test())


def test_a_websocket_ends_with_its_code_and_its_application_sees_a_disconnect() -> None:
    async def test() -> None:
        clock, app = Clock(), Talking()
        client = Client(agent(app, Verifier(), clock), "/events", kind="websocket", spec="2.4")
        client.queue.put_nowait({"type": "websocket.receive", "text": "hello"})
        await until(lambda: len(app.seen) == 1)
        clock.now += 60
        await client.request
        assert client.sent[-1] == {"type": "websocket.close", "code": 1008, "reason": ""}
        assert app.seen[-1] == {"type": "websocket.disconnect", "code": 1008}
        assert isinstance(app.error, OSError)

    run(test)


def test_a_cancellation_by_the_server_is_not_swallowed() -> None:
    async def test() -> None:
        client = Client(agent(Streaming(EVENT), Verifier(), Clock()))
        await until(lambda: client.body == EVENT)
        client.request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await client.request

    run(test)


def test_without_the_option_an_answer_goes_on() -> None:
    async def test() -> None:
        clock, app, verifier = Clock(), Streaming(EVENT, listens=False), Verifier()
        client = Client(agent(app, verifier, clock, end_streams_with_credential=False))
        await until(lambda: client.body == EVENT)
        clock.now += 60
        app.go_on.set()
        await client.request
        assert client.body == EVENT + app.later
        assert verifier.times == 1

    run(test)


def watched() -> int:
    gc.collect()
    return sum(type(each) is WatchedAnswer for each in gc.get_objects())


def test_a_thousand_answers_leave_nothing_behind() -> None:
    async def test() -> None:
        clock, verifier = Clock(), Verifier()
        before = watched()
        for _ in range(4):
            app = Streaming(EVENT)
            app.go_on.set()
            guarded = agent(app, verifier, clock)
            clients = [Client(guarded) for _ in range(250)]
            await until(lambda clients=clients: all(each.body == EVENT for each in clients))  # type: ignore[misc]
            verifier.error = InvalidCredentialsError("revoked")
            await asyncio.gather(*(each.request for each in clients))
            verifier.error = None
        del clients, guarded, app
        await settled()
        assert watched() <= before

    run(test)


def test_the_option_is_true_or_false() -> None:
    with pytest.raises(ConfigurationError, match="end_streams_with_credential: write True or False"):
        RequestRules(end_streams_with_credential=1)  # type: ignore[arg-type]
