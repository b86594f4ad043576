"""The layer between guard and application: what reaches the application, and what the rest is told."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterable
from typing import Any

import anyio
import httpx
import pytest

from a2a_trust import ExtendedCard
from a2a_trust.auth.principal import Anonymous, Principal
from a2a_trust.card.merge import merged_card
from a2a_trust.card.operations import Binding, Operation
from a2a_trust.card.schema import Generation
from a2a_trust.card.view import read_card
from a2a_trust.errors import ConfigurationError
from a2a_trust.middleware import calls, decision, door
from a2a_trust.middleware.calls import Call, call_of, read_call
from a2a_trust.middleware.decision import Access, CallRules, Seen
from a2a_trust.middleware.door import CardEnforcementMiddleware
from a2a_trust.middleware.extended_card import ExtendedCardEndpoint
from a2a_trust.middleware.options import GuardRules, RequestRules
from a2a_trust.middleware.protection import protect
from tests.middleware.agent import CALL, CARD, KEY, Agent, verifiers
from tests.tables import walk

GOOD = {"X-API-Key": KEY}
JSON = {**GOOD, "Content-Type": "application/json"}
PROMISING: dict[str, Any] = {**CARD, "capabilities": {"extendedAgentCard": True}}


def only_acme(caller: Principal | Anonymous, tenant: str) -> bool:
    return tenant == "acme"


class Behind:
    """An application without opinions: it keeps the calls and the bodies that reach it, by their paths."""

    def __init__(self) -> None:
        self.calls: list[Call | None] = []
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.calls.append(call_of(scope))
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": 299, "headers": []})
        await send({"type": "http.response.body", "body": b"the application"})


def guarded(app: Any, card: Any = CARD, *, extended_card: Any = None, public_paths: Any = (), **rules: Any) -> Any:
    return protect(
        app,
        card=card,
        verifiers=verifiers(),
        extended_card=None if extended_card is None else ExtendedCard(extended_card),
        rules=RequestRules(**rules, public_paths=public_paths),
    )


def ask(app: Any, method: str, path: str, **request: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as http:
            return await http.request(method, path, **{"headers": JSON, **request})

    return asyncio.run(send())


# What is handed on


def test_a_call_is_a_value_for_handlers_and_its_body_comes_as_it_was() -> None:
    behind = Behind()
    app = guarded(behind, may_use_tenant=only_acme)
    body = json.dumps({**CALL, "params": {"tenant": "acme"}}, indent=3).encode()
    assert ask(app, "POST", "/rpc", content=body).status_code == 299
    assert ask(app, "GET", "/acme/rest/tasks/5", headers=GOOD).status_code == 299
    assert behind.bodies == [body, b""]
    rpc, rest = behind.calls
    assert rpc == Call(
        binding=Binding.JSONRPC,
        generation=Generation.V1_0,
        operation=Operation.SEND_MESSAGE,
        method="SendMessage",
        tenants=frozenset({"acme"}),
        call_id=b"1",
    )
    assert rest == Call(
        binding=Binding.HTTP_JSON,
        generation=Generation.V1_0,
        operation=Operation.GET_TASK,
        tenants=frozenset({"acme"}),
        task_id="5",
    )


def test_other_paths_have_no_call_and_nobody_can_claim_one() -> None:
    behind = Behind()
    app = guarded(behind)

    async def claiming(scope: Any, receive: Any, send: Any) -> None:
        await app(
            {**scope, "a2a_trust.call": Call(binding=Binding.JSONRPC, generation=None, operation=None)}, receive, send
        )

    assert ask(claiming, "GET", "/docs").status_code == 299
    assert behind.calls == [None]
    assert call_of({"a2a_trust.call": "x"}) is None


class Server:
    """The server's side of one request: what it sends to the application, one message at a time."""

    def __init__(self, messages: Iterable[dict[str, Any]], **scope: Any) -> None:
        self.waiting, self.sent, self.asked = list(messages), list[Any](), 0
        headers = [(name.lower().encode(), value.encode()) for name, value in JSON.items()]
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": "/rpc",
            "headers": headers,
            "query_string": b"",
            **scope,
        }

    async def receive(self) -> Any:
        self.asked += 1
        if not self.waiting:
            await asyncio.Event().wait()
        return self.waiting.pop(0)

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    def run(self, app: Any) -> None:
        asyncio.run(asyncio.wait_for(app(self.scope, self.receive, self.send), 60))


def in_pieces(body: bytes, size: int = 10) -> list[dict[str, Any]]:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return [
        {"type": "http.request", "body": piece, "more_body": at < len(pieces) - 1} for at, piece in enumerate(pieces)
    ]


@pytest.mark.parametrize("padding", [0, 2 * calls.AT_ONCE])
def test_a_body_in_pieces_is_handed_on_whole_and_the_rest_comes_from_the_server(padding: int) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend([await receive(), await receive()])

    body = json.dumps(CALL).encode() + b" " * padding
    later = {"type": "http.disconnect", "mark": "the server's own"}
    server = Server(in_pieces(body, 10 + padding // 7))

    async def receive() -> Any:
        if not server.waiting:
            await asyncio.sleep(0.3)  # while a longer body is read
            return later
        return server.waiting.pop(0)

    server.receive = receive  # type: ignore[method-assign]
    server.run(guarded(app))
    assert seen == [{"type": "http.request", "body": body, "more_body": False}, later]


def test_other_paths_stream_and_nothing_of_them_is_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_trust.middleware.disconnect._PATIENCE", 60)
    asked: list[int] = []
    server = Server(in_pieces(b"x" * 100), path="/upload")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.append(server.asked)
        assert (await receive())["body"] == b"x" * 10

    server.run(guarded(app))
    assert asked == [0]


# A client that goes away


def test_an_upload_that_breaks_off_reaches_nobody() -> None:
    behind, server = Behind(), Server([*in_pieces(b"x" * 100)[:3], {"type": "http.disconnect"}])
    server.run(guarded(behind))
    assert (behind.bodies, server.sent) == ([], [])


@pytest.mark.parametrize("messages", [[{"type": "http.disconnect"}], []], ids=["disconnect", "cancellation"])
def test_a_client_that_goes_away_ends_the_wait_for_a_reader(
    messages: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one whose middleware outside of the guard cancels the request, as that of Starlette does."""
    began, go_on, behind, waited = threading.Event(), threading.Event(), Behind(), list[bool]()

    def slow(*_: Any) -> Any:
        began.set()
        waited.append(go_on.wait(20))
        raise AssertionError("nobody waits for it")

    monkeypatch.setattr(decision, "read_call", slow)
    body = json.dumps(CALL).encode() + b" " * calls.AT_ONCE
    server = Server([{"type": "http.request", "body": body}, *messages])

    async def run() -> None:
        try:
            with anyio.fail_after(60):
                async with anyio.create_task_group() as requests:
                    requests.start_soon(guarded(behind), server.scope, server.receive, server.send)
                    while not began.is_set():
                        await asyncio.sleep(0.005)
                    if not messages:
                        requests.cancel_scope.cancel()
        finally:
            go_on.set()

    asyncio.run(run())
    assert (behind.bodies, server.sent) == ([], [])
    assert False not in waited  # the request ended before


def test_only_so_many_large_bodies_are_read_at_once_and_small_ones_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, most, lock = 0, 0, threading.Lock()
    go_on, behind = threading.Event(), Behind()
    read = read_call

    def counted(target: Any, body: bytes, query: bytes) -> Any:
        nonlocal at_once, most
        if len(body) < 1_000:
            return read(target, body, query)
        with lock:
            at_once += 1
            most = max(most, at_once)
        go_on.wait(20)
        with lock:
            at_once -= 1
        return read(target, body, query)

    monkeypatch.setattr(decision, "read_call", counted)
    app = guarded(behind)

    async def run() -> None:
        large = json.dumps(CALL).encode() + b" " * calls.AT_ONCE
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://agent.example") as http:
            waiting = [asyncio.create_task(http.post("/rpc", content=large, headers=JSON)) for _ in range(12)]
            while most < door._READERS:
                await asyncio.sleep(0.01)
            assert (await http.post("/rpc", json=CALL, headers=GOOD)).status_code == 299
            assert len(behind.bodies) == 1
            go_on.set()
            assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {299}

    asyncio.run(run())
    assert most == door._READERS


# In which words


@walk(
    ("content", "headers", "code"),
    [
        (b"{", JSON, -32700),
        (b"", GOOD, -32700),
        (b"[]", JSON, -32600),
        (b'{"jsonrpc":"2.0","id":5,"method":"getTask"}', JSON, -32601),
        (b'{"jsonrpc":"2.0","id":5,"method":"GetTask","params":[]}', JSON, -32602),
        (b'{"jsonrpc":"2.0","id":5,"method":"GetTask"}', GOOD, -32005),
        (b'{"jsonrpc":"2.0","id":5,"method":"GetTask"}', {**GOOD, "Content-Type": "text/plain"}, -32005),
    ],
)
def test_errors_of_json_rpc_are_its_own(content: bytes, headers: dict[str, str], code: int) -> None:
    behind = Behind()
    answer = ask(guarded(behind), "POST", "/rpc", content=content, headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], behind.bodies) == (200, code, [])
    assert answer.json()["id"] == (5 if code in (-32601, -32602) else None)
    assert answer.headers["cache-control"] == "private, no-store"


@walk("alias", [("Content_Type", "application/json"), ("content_type", "text/plain"), ("content-type", "text/plain")])
def test_a_second_line_of_the_media_type_also_under_an_alias_is_refused_at_the_door(alias: tuple[str, str]) -> None:
    behind = Behind()
    headers = [*JSON.items(), alias]
    answer = ask(guarded(behind), "POST", "/rpc", content=json.dumps(CALL), headers=headers)
    assert answer.json()["error"]["code"] == -32005
    assert behind.calls == []


@walk("alias", ["X_Api_Key", "x_api-key", "X-API-KEY"])
def test_a_second_key_also_under_an_alias_is_neither_accepted_nor_shown(alias: str) -> None:
    behind = Behind()
    for first, second in ((KEY, KEY), (KEY, "x"), ("x", KEY)):
        headers = [("X-API-Key", first), (alias, second), ("Content-Type", "application/json")]
        assert ask(guarded(behind), "POST", "/rpc", content=json.dumps(CALL), headers=headers).status_code == 401
    assert behind.calls == []


@walk(
    ("method", "path", "content", "headers", "status"),
    [
        ("POST", "/rest/message:send", b"{", JSON, 400),
        ("POST", "/rest/message:send", b"{}", GOOD, 415),
        ("POST", "/rest/message:send", b'{"method":"x"}', JSON, 400),
        ("POST", "/rest/message:send", b'{"tenant":"acme"}', JSON, 403),
        ("GET", "/rest/tasks", b"{}", JSON, 400),
        ("DELETE", "/rest/tasks/5/pushNotificationConfigs/6", b"{}", JSON, 400),
        ("PUT", "/rest/message:send", b"{}", JSON, 404),
        ("POST", "/rest/messages:send/tasks", b"{}", JSON, 404),
        ("PUT", "/rpc", json.dumps(CALL).encode(), JSON, 404),
        ("GET", "/rpc", json.dumps(CALL).encode(), JSON, 400),
        ("GET", "/a%0Ab", b"", GOOD, 400),
    ],
)
def test_errors_of_http_json_are_its_own(
    method: str, path: str, content: bytes, headers: dict[str, str], status: int
) -> None:
    behind = Behind()
    answer = ask(guarded(behind), method, path, content=content, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"], behind.bodies) == (status, status, [])
    assert ask(guarded(behind), method, path, content=content, headers={}).status_code == 401


@pytest.mark.parametrize("path", ["/rpc", "/rest/message:send"])
def test_a_body_beyond_max_body_is_413_and_the_log_names_the_option(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    behind = Behind()
    app = guarded(behind, max_body=1_000)
    body = json.dumps(CALL if path == "/rpc" else {"message": {}}).encode()
    fitting = body + b" " * (1_000 - len(body))
    with caplog.at_level(logging.INFO, "a2a_trust.audit"):
        assert ask(app, "POST", path, content=fitting).status_code == 299
        assert ask(app, "POST", path, content=fitting + b" ").status_code == 413
    assert "RequestRules(max_body=...)" in caplog.text
    assert behind.bodies == [fitting]


def test_a_body_that_is_announced_as_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_trust.middleware.disconnect._PATIENCE", 60)
    for announced in (b"1001", b"1" * 5_000, b"-1", b"x"):
        server = Server([])
        server.scope["headers"].append((b"content-length", announced))
        server.run(guarded(Behind(), max_body=1_000))
        assert (server.sent[0]["status"], server.asked) == (413, 0)


# Other paths


NAMED = ["/docs", "/", "/threads/", "/todo/tasks/{id}", "/rpc"]


@pytest.mark.parametrize("rules", [{"may_use_tenant": only_acme}, {"extended_card": PROMISING, "card": PROMISING}])
def test_with_rules_an_other_path_has_to_be_named(rules: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    behind = Behind()
    with caplog.at_level(logging.INFO, "a2a_trust.audit"):
        assert ask(guarded(behind, **rules), "GET", "/docs").status_code == 404
        assert 'other_paths=["/docs"]' in caplog.text
    app = guarded(behind, other_paths=NAMED, public_paths=["/healthz"], **rules)
    for path in ("/docs", "/", "/threads/", "/threads/1/messages", "/todo/tasks/5", "/healthz"):
        assert ask(app, "GET", path, headers=GOOD).status_code == 299, path
    assert ask(app, "GET", "/healthz", headers={}).status_code == 299
    assert ask(app, "POST", "/docs", content=b"not JSON").status_code == 299
    for path in ("/docs/", "/docs/x", "/Docs", "/threads", "/todo/tasks/5/6", "/todo/tasks/", "/x", "/threads/../x"):
        assert ask(app, "GET", path, headers=GOOD).status_code == 404, path


def test_without_rules_only_what_looks_like_a_call_has_to_be_named() -> None:
    behind = Behind()
    app = guarded(behind, other_paths=["/todo/tasks/{id}", "/old/tasks", "/"])
    for method, path in (
        ("GET", "/x"),
        ("POST", "/upload"),
        ("DELETE", "/todo/tasks/5"),
        ("POST", "/"),
        ("GET", "/rpc"),
    ):
        assert ask(app, method, path, headers=GOOD).status_code == 299, path
    for path in ("/tasks", "/x/tasks/5", "/extendedAgentCard", "/v1/card", "/todo/tasks", "/old/tasks/"):
        assert ask(app, "GET", path, headers=GOOD).status_code == 404, path


def test_a_subtree_admits_nothing_that_looks_like_a_call() -> None:
    app = guarded(Behind(), other_paths=["/team/"], may_use_tenant=only_acme)
    for path in ("/team/message:send", "/team/tasks/5", "/team/%2e%2e/rpc", "/team/../RPC"):
        assert ask(app, "POST", path, json={}).status_code == 404, path


def test_a_named_json_rpc_path_admits_reading_alone() -> None:
    behind = Behind()
    app = guarded(behind, other_paths=["/rpc"], may_use_tenant=only_acme)
    assert [ask(app, method, "/rpc", headers=GOOD).status_code for method in ("GET", "HEAD")] == [299, 299]
    assert {ask(app, method, "/rpc", json=CALL).status_code for method in ("PUT", "PATCH", "DELETE", "QUERY")} == {404}
    assert ask(app, "GET", "/rpc", json=CALL).status_code == 400
    assert behind.bodies == [b"", b""]


@walk(
    ("path", "rules", "is_accepted"),
    [
        ("/chat", {}, True),
        ("/chat", {"may_use_tenant": only_acme}, False),
        ("/chat", {"may_use_tenant": only_acme, "other_paths": ["/chat"]}, True),
        ("/threads/1", {"may_use_tenant": only_acme, "other_paths": ["/threads/"]}, True),
        ("/rpc", {}, False),
        ("/rpc", {"other_paths": ["/rpc"]}, False),
        ("/rest/message:stream", {}, False),
        ("/tasks/5", {}, False),
    ],
)
def test_websockets_are_other_paths_and_refused_before_they_are_accepted(
    path: str, rules: dict[str, Any], is_accepted: bool
) -> None:
    answering: Any = {"websocket.http.response": {}}  # this server could also send an answer
    for extensions in (None, answering):
        agent = Agent()
        server = Server([{"type": "websocket.connect"}], type="websocket", path=path, extensions=extensions)
        server.run(guarded(agent, **rules))
        wanted = "websocket.accept" if is_accepted else "websocket.close"
        assert server.sent[0]["type"] == wanted
        assert bool(agent.scopes) is is_accepted


@pytest.mark.parametrize(
    ("path", "names"),
    [("/", 'team/rpc": "/"'), ("/rpc", 'team/rpc": "/rpc"'), ("/rest/tasks/5", 'team/rest": "/rest"')],
)
def test_behind_a_proxy_that_strips_a_prefix_the_log_says_what_to_write(
    path: str, names: str, caplog: pytest.LogCaptureFixture
) -> None:
    interfaces = [
        {**each, "url": each["url"].replace("example/", "example/team/")} for each in CARD["supportedInterfaces"]
    ]
    behind, card = Behind(), {**CARD, "supportedInterfaces": interfaces}
    with caplog.at_level(logging.INFO, "a2a_trust.audit"):
        assert ask(guarded(behind, card), "POST", path, json=CALL).status_code == 404
    assert names in caplog.text
    assert 'is served at "/team/r' in caplog.text
    assert f'other_paths=["{path}"]' in caplog.text
    served = {interfaces[0]["url"]: "/rpc", interfaces[1]["url"]: "/rest"}
    assert ask(guarded(behind, card, served_at=served), "POST", "/rpc", json=CALL).status_code == 299


def test_a_preflight_that_is_let_through_is_nobodys_call() -> None:
    behind = Behind()
    app = protect(behind, card=CARD, verifiers=verifiers(), rules=RequestRules(allow_cors_preflight=True))
    preflight = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
    assert ask(app, "OPTIONS", "/rpc", headers=preflight).status_code == 299
    assert ask(app, "OPTIONS", "/rpc", headers=GOOD).status_code == 404
    assert behind.calls == [None]


def test_a_public_path_at_json_rpc_takes_no_body() -> None:
    """Applications that look at no method would make a call of it, by nobody."""
    root = {**CARD, "supportedInterfaces": [{**CARD["supportedInterfaces"][0], "url": "http://agent.example/"}]}
    behind = Behind()
    app = guarded(behind, root, public_paths=["/"])
    assert ask(app, "GET", "/", headers={}).status_code == 299
    assert ask(app, "GET", "/", headers={}, json=CALL).status_code == 400
    assert behind.bodies == [b""]


def test_older_paths_are_understood_where_the_card_has_their_interface() -> None:
    behind = Behind()
    assert ask(guarded(behind), "POST", "/rest/v1/message:send", json={}).status_code == 403  # the tenant v1
    assert ask(guarded(behind, merged_card(CARD)), "POST", "/rest/v1/message:send", json={}).status_code == 299
    assert behind.calls[0] is not None
    assert behind.calls[0].generation is Generation.V0_3


# What does not start


@walk(
    ("rules", "needed"),
    [
        ({"other_paths": "/docs"}, r"other_paths=\['/docs'\]"),
        ({"other_paths": ["docs"]}, "write an exact path"),
        ({"other_paths": ["/docs*"]}, "write an exact path"),
        ({"other_paths": ["/docs?x"]}, "write an exact path"),
        ({"other_paths": ["/a/../b"]}, "write an exact path"),
        ({"other_paths": ["/{a/b}"]}, "write an exact path"),
        ({"other_paths": [7]}, "write an exact path"),
        ({"other_paths": ["/x/{id}/"]}, "cannot stand for all paths below it"),
        ({"other_paths": ["/rest/"]}, "name the other paths one by one"),
        ({"max_body": 0}, "number of bytes"),
        ({"max_body": True}, "number of bytes"),
        ({"max_body": "1M"}, "number of bytes"),
        ({"served_at": "/rpc"}, "write a dict"),
        ({"served_at": {"http://agent.example/other": "/"}}, "has no interface"),
    ],
)
def test_what_rules_cannot_mean_does_not_start(rules: dict[str, Any], needed: str) -> None:
    with pytest.raises(ConfigurationError, match=needed):
        guarded(Behind(), **rules)


def test_an_interface_for_a_tenant_needs_somebody_who_says_who_may_use_it() -> None:
    card = {**CARD, "supportedInterfaces": [{**CARD["supportedInterfaces"][0], "tenant": "acme"}]}
    with pytest.raises(ConfigurationError, match=r"RequestRules\(may_use_tenant=lambda caller, tenant"):
        guarded(Behind(), card)
    guarded(Behind(), card, may_use_tenant=only_acme)
    with pytest.raises(ConfigurationError, match="write RequestRules"):
        protect(Behind(), card=CARD, verifiers=verifiers(), rules={"other_paths": []})  # type: ignore[arg-type]


def test_an_application_behind_two_guards_gets_the_call_of_the_outer_one() -> None:
    behind = Behind()
    inner = CardEnforcementMiddleware(
        behind, card=CARD, verifiers=verifiers(), rules=GuardRules(hide_credentials=False)
    )
    app = guarded(inner, hide_credentials=False)
    assert ask(app, "POST", "/rpc", json=CALL, headers=GOOD).status_code == 299
    assert [call.operation for call in behind.calls if call] == [Operation.SEND_MESSAGE]


def test_strangers_do_not_replace_what_is_kept_of_the_paths_of_callers() -> None:
    access = Access(read_card(CARD), verifiers(), rules=RequestRules())
    calls = CallRules(access, RequestRules(), ExtendedCardEndpoint(access.card, None))
    for number in range(2_000):
        assert calls.body_rule(Seen({}, f"/{number}", "", "OPTIONS", is_public=True)) is None
        assert calls.body_rule(Seen({}, "/x", "", f"{number}" * 256, is_public=False)) is None
    assert calls._cached_rule.cache_info().currsize == 0
