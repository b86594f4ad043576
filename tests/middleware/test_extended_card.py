"""The extended card: for known callers, under every name, in the shape of the generation that asks."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Mapping
from functools import partial
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from a2a_trust.auth.principal import Anonymous, Identity, Principal
from a2a_trust.card import read_card
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.origins import Origins
from a2a_trust.keys.signer import LocalSigner, generate_signer
from a2a_trust.keys.trust import TrustedKey, TrustStore
from a2a_trust.middleware import calls
from a2a_trust.middleware.authentication import AuthenticationMiddleware
from a2a_trust.middleware.calls import Calls, TenantRule
from a2a_trust.middleware.card import CardSigner
from a2a_trust.middleware.document import Receive, Scope, Send
from a2a_trust.middleware.extended_card import ExtendedCard
from a2a_trust.signing.verify import verify_card
from tests.middleware.agent import CARD as GUARDED
from tests.middleware.agent import KEY, verifiers

URL = "https://invoice.example.com"
INTERFACES = [
    {"url": f"{URL}/a2a/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
    {"url": f"{URL}/a2a/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
]
PUBLIC: dict[str, Any] = {
    "name": "Invoice Agent",
    "supportedInterfaces": INTERFACES,
    "capabilities": {"extendedAgentCard": True},
}
EXTENDED: dict[str, Any] = {
    **PUBLIC,
    "description": "With prices.",
    "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
    "securityRequirements": [{"schemes": {"key": {"list": ["read"]}}}],
}
HTTP_NAMES = (
    "/a2a/rest/extendedAgentCard",
    "/extendedAgentCard",
    "/a2a/rest/v1/card",
    "/v1/card",
    "/agent/authenticatedExtendedCard",
    "/a2a/agent/authenticatedExtendedCard",
)
RPC_NAMES = ("GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard")


class Behind:
    """The application: it tells that it was reached, with the body as it came."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": 299, "headers": []})
        await send({"type": "http.response.body", "body": b"the application"})


def caller(name: str = "ann") -> Principal:
    return Principal(identities=(("key", Identity(issuer="keys", subject=name)),))


def route_path(scope: Scope) -> str:
    return str(scope["path"])


class Agent:
    """The extended card in front of an application, and who asks for it."""

    def __init__(
        self,
        source: Any = EXTENDED,
        card: Mapping[str, Any] = PUBLIC,
        tenants: TenantRule | None = lambda caller, tenant: True,
        **options: Any,
    ) -> None:
        self.behind = Behind()
        self.caller: Principal | Anonymous = caller()
        view = read_card(card)
        self.extended = ExtendedCard(view, source, **options)
        self.app = Calls(
            self.behind,
            card=view,
            extended=self.extended,
            principal=lambda scope: self.caller,
            route_path=route_path,
            may_use_tenant=tenants,
        )

    def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url=URL) as client:
                return await client.request(method, path, **request)

        return asyncio.run(send())

    def get(self, path: str) -> httpx.Response:
        return self.ask("GET", path)

    def call(self, method: str, **members: Any) -> httpx.Response:
        return self.post(json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, **members}).encode())

    def post(self, body: bytes) -> httpx.Response:
        return self.ask("POST", "/a2a/rpc", content=body)


def proven(body: bytes, signer: LocalSigner) -> dict[str, Any]:
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("invoice.example.com"))])
    return verify_card(body, trust, origin=URL, now=2e9).card


@pytest.mark.parametrize("path", HTTP_NAMES)
@pytest.mark.parametrize("end", ["", "/"])
def test_every_path_gives_the_card_of_its_generation(path: str, end: str) -> None:
    agent = Agent()
    response = agent.get(path + end)
    assert response.status_code == 200
    assert response.headers["cache-control"] == "private, no-store"
    assert response.headers["vary"] == "*"
    assert "etag" not in response.headers
    card = response.json()
    assert card["description"] == "With prices."
    assert ("url" in card) is (not path.endswith("extendedAgentCard"))
    assert agent.behind.bodies == []


@pytest.mark.parametrize("method", RPC_NAMES)
@pytest.mark.parametrize("call_id", [7, "seven", 7.5, None])
def test_both_methods_give_the_card_of_their_generation(method: str, call_id: Any) -> None:
    agent = Agent()
    response = agent.call(method, id=call_id, params={})
    assert response.status_code == 200
    answer = response.json()
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", call_id)
    assert answer["result"]["description"] == "With prices."
    assert ("url" in answer["result"]) is (method == "agent/getAuthenticatedExtendedCard")
    assert response.headers["cache-control"] == "private, no-store"
    assert agent.behind.bodies == []


def test_head_is_get_without_the_body() -> None:
    agent = Agent()
    get, head = agent.get("/v1/card"), agent.ask("HEAD", "/v1/card")
    assert (head.status_code, head.content, dict(head.headers)) == (200, b"", dict(get.headers))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/a2a/rest/tasks"),
        ("GET", "/a2a/rpc"),
        ("GET", "/extendedagentcard"),
        ("GET", "/extendedAgentCard/x"),
        ("GET", "/v1/cards"),
        ("POST", "/a2a/rest/extendedAgentCard"),
        ("DELETE", "/v1/card"),
    ],
)
def test_everything_else_is_the_applications(method: str, path: str) -> None:
    agent = Agent()
    response = agent.ask(method, path, content=b'{"method":"SendMessage"}')
    assert (response.status_code, response.text) == (299, "the application")


@pytest.mark.parametrize("path", ["/elsewhere", "/", "/a2a/rpc/more", "/a2a"])
def test_a_route_that_the_card_does_not_name_gives_no_other_card(path: str) -> None:
    agent = Agent()
    assert agent.ask("POST", path, content=CALL.encode()).json()["result"]["name"] == EXTENDED["name"]
    assert agent.behind.bodies == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"no JSON, but xtended",
        b'{"method":"SendMessage","params":{"message":{"text":"GetExtendedAgentCard"}}}',
        b'{"method":"SendMessage","params":{"method":"GetExtendedAgentCard"}}',
        b'{"method":["GetExtendedAgentCard"]}',
        b'{"method":null,"x":"xtended"}',
        b'["GetExtendedAgentCard"]',
        '{"method":"SendMessage","é":"\\u0047xtended"}'.encode(),
        b'{"method":"getextendedagentcard"}',
    ],
    ids=repr,
)
def test_every_other_body_is_handed_on_byte_for_byte(body: bytes) -> None:
    agent = Agent()
    assert agent.post(body).status_code == 299
    assert agent.behind.bodies == [body]


def test_a_body_in_pieces_is_handed_on_whole_and_the_rest_comes_from_the_server() -> None:
    pieces = [b'{"method":', b'"SendMessage",', b'"x":"xtended"}']
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.extend([await receive() for _ in range(2)])

    messages: list[dict[str, Any]] = [
        *({"type": "http.request", "body": piece, "more_body": piece is not pieces[-1]} for piece in pieces),
        {"type": "http.disconnect"},
    ]
    waiting = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(waiting)

    async def send(message: Any) -> None:
        raise AssertionError(message)

    view = read_card(PUBLIC)
    wrapped = Calls(
        app,
        card=view,
        extended=ExtendedCard(view, EXTENDED),
        principal=lambda scope: caller(),
        route_path=route_path,
    )
    scope = {"type": "http", "method": "POST", "path": "/a2a/rpc", "headers": []}
    asyncio.run(wrapped(scope, receive, send))
    assert seen == [{"type": "http.request", "body": b"".join(pieces), "more_body": False}, messages[-1]]


def test_a_body_that_breaks_off_is_handed_on_as_far_as_it_came() -> None:
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.extend([await receive() for _ in range(2)])

    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": b'{"method":', "more_body": True},
        {"type": "http.disconnect"},
    ]
    waiting = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(waiting)

    async def send(message: Any) -> None:
        raise AssertionError(message)

    view = read_card(PUBLIC)
    wrapped = Calls(
        app, card=view, extended=ExtendedCard(view, EXTENDED), principal=lambda scope: caller(), route_path=route_path
    )
    asyncio.run(wrapped({"type": "http", "method": "POST", "path": "/a2a/rpc", "headers": []}, receive, send))
    assert seen == messages


def test_a_path_of_slashes_costs_no_more_than_its_length() -> None:
    """Seen here: 60 KB of slashes took 1.8 GB and seconds."""
    agent = Agent()
    tracemalloc.start()
    try:
        assert agent.get(f"/a{'/' * 60_000}").status_code == 299
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000


@pytest.mark.parametrize("size", [calls._SHORT // 2, calls._SHORT * 4])
def test_a_call_is_found_in_bodies_of_every_size(size: int) -> None:
    agent = Agent()
    padded = CALL.encode() + b" " * size
    assert agent.ask("POST", "/a2a/rpc", content=padded).json()["result"]["name"] == EXTENDED["name"]
    assert agent.behind.bodies == []


def test_a_browser_may_ask_before_it_names_a_tenant() -> None:
    agent = Agent(tenants=lambda caller, tenant: False)
    assert agent.ask("OPTIONS", "/a2a/rest/acme/message:send").status_code == 299
    assert agent.ask("POST", "/a2a/rest/acme/message:send", content=b"{}").status_code == 403


def test_a_body_that_is_too_large_to_be_searched_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_BODY", 100)
    agent = Agent()
    assert agent.post(b" " * 100).status_code == 299
    response = agent.post(b" " * 101)
    assert (response.status_code, response.json()["error"]["code"]) == (413, -32600)
    assert len(agent.behind.bodies) == 1


def test_other_scopes_are_passed_on() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    async def nothing(*_: Any) -> Any:
        raise AssertionError

    view = read_card(PUBLIC)
    wrapped = Calls(
        app,
        card=view,
        extended=ExtendedCard(view, None),
        principal=lambda scope: caller(),
        route_path=route_path,
    )
    for kind in ("lifespan", "websocket"):
        asyncio.run(wrapped({"type": kind, "path": "/v1/card"}, nothing, nothing))
    assert seen == ["lifespan", "websocket"]


# Whether there is one, and for whom


def errors_of(agent: Agent) -> list[tuple[int, int, str]]:
    """What both bindings say: status, code of JSON-RPC, reason."""
    rpc, http = agent.call("GetExtendedAgentCard"), agent.get("/extendedAgentCard")
    error, status = rpc.json()["error"], http.json()["error"]
    assert error["message"] == status["message"]
    assert error["data"] == status["details"]
    assert status["code"] == http.status_code
    assert rpc.json()["id"] == 7
    for response in (rpc, http):
        assert response.headers["cache-control"] == "private, no-store"
        assert "prices" not in response.text
    return [(rpc.status_code, error["code"], status["status"]), (http.status_code, 0, error["data"][0]["reason"])]


def test_a_card_that_promises_none_has_none_whatever_the_application_thinks() -> None:
    agent = Agent(None, {**PUBLIC, "capabilities": {}})
    assert errors_of(agent) == [(200, -32004, "FAILED_PRECONDITION"), (400, 0, "UNSUPPORTED_OPERATION")]
    agent.caller = Anonymous()
    assert errors_of(agent) == [(200, -32004, "FAILED_PRECONDITION"), (400, 0, "UNSUPPORTED_OPERATION")]
    assert agent.behind.bodies == []


def test_a_promise_without_a_card_is_told() -> None:
    wanted = [(200, -32007, "FAILED_PRECONDITION"), (400, 0, "EXTENDED_AGENT_CARD_NOT_CONFIGURED")]
    assert errors_of(Agent(None)) == wanted

    async def nobody(principal: Principal, tenant: str) -> None:
        return None

    assert errors_of(Agent(nobody)) == wanted


def test_who_may_not_read_it_is_refused() -> None:
    agent = Agent(may_read=lambda principal: principal.identities[0][1].subject == "bob")
    assert errors_of(agent) == [(403, -31403, "PERMISSION_DENIED"), (403, 0, "UNAUTHORIZED")]
    agent.caller = caller("bob")
    assert agent.get("/extendedAgentCard").json() == EXTENDED


async def nobody(*_: Any) -> bool:
    return False


class Nobody:
    async def __call__(self, *_: Any) -> bool:
        return False


@pytest.mark.parametrize("rule", [nobody, Nobody(), partial(nobody, 1)], ids=["function", "object", "partial"])
def test_a_rule_that_cannot_say_no_does_not_start(rule: Any) -> None:
    view = read_card(PUBLIC)
    with pytest.raises(ConfigurationError, match="not async def"):
        ExtendedCard(view, EXTENDED, may_read=rule)
    with pytest.raises(ConfigurationError, match="not async def"):
        Agent(tenants=rule)


@pytest.mark.parametrize("answer", ["no", 1, {"allowed": False}, object(), None, 0])
def test_a_rule_allows_by_true_alone(answer: Any) -> None:
    assert Agent(may_read=lambda caller: answer).get("/extendedAgentCard").status_code == 403
    assert Agent(tenants=lambda caller, tenant: answer).get("/acme/extendedAgentCard").status_code == 403


def test_a_rule_that_waits_in_disguise_allows_nothing() -> None:
    with pytest.warns(RuntimeWarning, match="never awaited"):
        response = Agent(may_read=lambda caller: nobody()).get("/extendedAgentCard")
    assert response.status_code == 403


def test_strangers_never_get_it() -> None:
    agent = Agent()
    agent.caller = Anonymous()
    assert errors_of(agent) == [(401, -31401, "UNAUTHENTICATED"), (401, 0, "UNAUTHENTICATED")]


def test_a_card_that_nobody_would_ask_for_is_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match="extendedAgentCard"):
        Agent(EXTENDED, {**PUBLIC, "capabilities": {}})
    with pytest.raises(ConfigurationError, match="object"):
        Agent(b"[]")


# Tenants and callers


async def for_each(principal: Principal, tenant: str) -> dict[str, Any]:
    return {**EXTENDED, "description": f"{principal.identities[0][1].subject} of {tenant or 'nobody'}"}


@pytest.mark.parametrize(
    ("path", "tenant"),
    [
        ("/a2a/rest/extendedAgentCard", "nobody"),
        ("/extendedAgentCard", "nobody"),
        ("/a2a/rest/acme/extendedAgentCard", "acme"),
        ("/acme/extendedAgentCard", "acme"),
        ("/a2a/rest/v1/card", "nobody"),
    ],
)
def test_the_tenant_of_a_path(path: str, tenant: str) -> None:
    agent = Agent(for_each)
    assert agent.get(path).json()["description"] == f"ann of {tenant}"


def test_every_caller_gets_the_own_card() -> None:
    agent = Agent(for_each, signer=CardSigner(generate_signer()))
    for name in ("ann", "bob", "ann"):
        agent.caller = caller(name)
        assert agent.get("/extendedAgentCard").json()["description"] == f"{name} of nobody"
        call = agent.call("GetExtendedAgentCard", params={"tenant": "acme"})
        assert call.json()["result"]["description"] == f"{name} of acme"


def test_one_card_for_everybody_is_for_no_tenant() -> None:
    agent = Agent()
    assert agent.get("/acme/extendedAgentCard").status_code == 400
    assert agent.call("GetExtendedAgentCard", params={"tenant": "acme"}).json()["error"]["code"] == -32007


@pytest.mark.parametrize(
    "members", [{"params": {"tenant": 1}}, {"params": {"tenant": ["acme"]}}, {"id": []}, {"id": True}]
)
def test_a_call_that_cannot_be_understood_is_refused(members: dict[str, Any]) -> None:
    agent = Agent(for_each)
    response = agent.call("GetExtendedAgentCard", **members)
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32600)
    assert agent.behind.bodies == []


# Signatures


def test_both_shapes_are_signed_whole() -> None:
    signer = generate_signer()
    agent = Agent(signer=CardSigner(signer))
    new, old = agent.get("/extendedAgentCard"), agent.get("/v1/card")
    assert proven(new.content, signer) == EXTENDED
    legacy = proven(old.content, signer)
    assert legacy["security"] == [{"key": ["read"]}]
    assert legacy["url"] == INTERFACES[0]["url"]
    call = agent.call("GetExtendedAgentCard")
    assert new.content in call.content  # the very bytes that were signed


def test_a_card_is_signed_once_for_its_content_and_again_before_its_end() -> None:
    clock = [1_900_000_000.0]
    signer = generate_signer()
    agent = Agent(signer=CardSigner(signer, lifetime=3600), clock=lambda: clock[0])
    first = agent.get("/extendedAgentCard").content
    clock[0] += 1799
    assert agent.get("/extendedAgentCard").content == first
    clock[0] += 2
    assert agent.get("/extendedAgentCard").content != first


def test_another_key_signs_anew() -> None:
    keys = [generate_signer(), generate_signer()]

    class Rotating:
        def signer(self, now: float) -> LocalSigner:
            return keys[0]

    agent = Agent(signer=CardSigner(Rotating()))
    assert proven(agent.get("/extendedAgentCard").content, keys[0]) == EXTENDED
    keys.pop(0)
    assert proven(agent.get("/extendedAgentCard").content, keys[0]) == EXTENDED


def test_what_is_remembered_is_bounded() -> None:
    numbers = iter(range(1000))

    async def always_another(principal: Principal, tenant: str) -> dict[str, Any]:
        return {**EXTENDED, "description": str(next(numbers))}

    agent = Agent(always_another)
    for _ in range(300):
        agent.get("/extendedAgentCard")
    assert len(agent.extended._signed) == 256


# Calls that are hidden from some readers


CALL = '{"jsonrpc":"2.0","id":1,"method":"GetExtendedAgentCard"}'


@pytest.mark.parametrize(
    "body",
    [
        CALL.encode("utf-16"),
        CALL.encode("utf-16-le"),
        CALL.encode("utf-16-be"),
        CALL.encode("utf-32"),
        CALL.encode("utf-8-sig"),
        CALL.replace("GetE", "\\u0047\\u0065tE").encode(),
        CALL.replace('"method"', '"\\u006dethod"').encode(),
        CALL.replace("xtended", "\\u0078\\u0074ended").encode(),
        b" \n\t" + CALL.encode() + b"\n",
    ],
    ids=repr,
)
def test_a_call_in_another_dress_is_the_same_call(body: bytes) -> None:
    agent = Agent()
    assert agent.post(body).json()["result"] == EXTENDED
    assert agent.behind.bodies == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"id":1,"method":"SendMessage","method":"GetExtendedAgentCard"}',
        b'{"id":1,"method":"GetExtendedAgentCard","method":"SendMessage"}',
        b'{"id":1,"method":"GetExtendedAgentCard","method":"GetExtendedAgentCard"}',
        b'{"id":1,"id":2,"method":"GetExtendedAgentCard"}',
        b'{"id":1,"method":"GetExtendedAgentCard","params":{},"params":{"tenant":"x"}}',
        b'{"id":1,"method":"GetExtendedAgentCard","params":{"tenant":"x","tenant":"y"}}',
        b'[{"id":1,"method":"GetExtendedAgentCard"}]',
        b'[{"id":1,"method":"SendMessage"},{"id":2,"method":"agent/getAuthenticatedExtendedCard"}]',
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"method":"GetExtendedAgentCard"}',
    ],
    ids=lambda body: repr(body[:70]),
)
def test_a_call_that_readers_read_differently_is_refused(body: bytes) -> None:
    agent = Agent()
    response = agent.post(body)
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32600)
    assert agent.behind.bodies == []


# Tenants: named in the path, the query and the body, by a caller who may


def only_acme(caller: Principal | Anonymous, tenant: str) -> bool:
    return tenant == "acme"


def rpc(**params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": params}).encode()


REQUESTS: list[tuple[str, str, bytes]] = [
    ("POST", "/a2a/rpc", rpc(tenant="acme")),
    ("POST", "/a2a/rpc?tenant=acme", rpc()),
    ("POST", "/a2a/rpc", rpc(tenant="acme").decode().encode("utf-16")),
    ("POST", "/a2a/rpc", rpc(tenant="acme").replace(b"acme", b"\\u0061cme")),
    ("POST", "/a2a/rpc", rpc(tenant="acme").replace(b"tenant", b"ten\\u0061nt")),
    ("POST", "/a2a/rest/acme/message:send", b"{}"),
    ("POST", "/acme/a2a/rest/message:send", b"{}"),
    ("POST", "/acme/a2a/rest/message:stream", b"{}"),
    ("POST", "/a2a/rest/message:send", b'{"tenant":"acme"}'),
    ("POST", "/a2a/rest/acme/message:send", b'{"tenant":"acme"}'),
    ("GET", "/a2a/rest/acme/tasks", b""),
    ("GET", "/acme/a2a/rest/tasks/5", b""),
    ("GET", "/acme/a2a/rest/tasks/5/pushNotificationConfigs/6", b""),
    ("POST", "/acme/a2a/rest/tasks/5:cancel", b""),
    ("POST", "/acme/a2a/rest/tasks/5/pushNotificationConfigs", b"{}"),
    ("DELETE", "/acme/a2a/rest/tasks/5/pushNotificationConfigs/6", b""),
    ("GET", "/a2a/rest/tasks?tenant=acme", b""),
    ("GET", "/a2a/rest/tasks?t%65nant=acme", b""),
    ("GET", "/acme/extendedAgentCard", b""),
    ("POST", "/a2a/rpc", CALL.replace("}", ',"params":{"tenant":"acme"}}').encode()),
    # routes that the card does not name
    ("POST", "/elsewhere", rpc(tenant="acme")),
    ("POST", "/acme/message:send", b"{}"),
    ("POST", "/acme/message:stream/", b"{}"),
]


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
def test_a_tenant_is_for_those_who_may_use_it(method: str, path: str, body: bytes) -> None:
    refused = [Agent(for_each, tenants=None), Agent(for_each, tenants=lambda caller, tenant: False)]
    for agent in refused:
        response = agent.ask(method, path, content=body)
        assert response.status_code == 403, path
        assert agent.behind.bodies == []
    agent = Agent(for_each, tenants=only_acme)
    response = agent.ask(method, path, content=body)
    if agent.behind.bodies:
        assert (response.status_code, agent.behind.bodies) == (299, [body])
    else:
        card = response.json()
        assert card.get("result", card)["description"] == "ann of acme"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/a2a/rest/acme/message:send", b'{"tenant":"other"}'),
        ("POST", "/a2a/rest/message:send?tenant=acme", b'{"tenant":"other"}'),
        ("POST", "/a2a/rest/message:send", b'{"tenant":"acme","tenant":"other"}'),
        ("GET", "/a2a/rest/acme/tasks?tenant=other", b""),
        ("GET", "/a2a/rest/tasks?tenant=acme&tenant=other", b""),
        ("POST", "/a2a/rpc?tenant=other", rpc(tenant="acme")),
        ("POST", "/a2a/rpc", rpc(tenant=["acme"])),
        ("POST", "/a2a/rpc", b'{"id":1,"method":"SendMessage","params":{"tenant":"acme"},"params":{}}'),
        ("POST", "/a2a/rpc", b'{"id":1,"method":"SendMessage","params":{},"params":{"tenant":"acme"}}'),
        ("POST", "/a2a/rpc", b'[{"id":1,"method":"SendMessage","params":{"tenant":"acme"}}]'),
        ("GET", "/acme/extendedAgentCard?tenant=other", b""),
    ],
)
def test_tenants_that_disagree_are_refused(method: str, path: str, body: bytes) -> None:
    agent = Agent(for_each, tenants=lambda caller, tenant: True)
    response = agent.ask(method, path, content=body)
    assert response.status_code == 400
    assert agent.behind.bodies == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/a2a/rpc", rpc()),
        ("POST", "/a2a/rpc", rpc(tenant="")),
        ("POST", "/a2a/rpc", rpc(tenant=None)),
        ("POST", "/a2a/rpc", rpc(message={"tenant": "acme", "text": "tenant"})),
        ("POST", "/a2a/rest/message:send", b'{"message":{"tenant":"acme"}}'),
        ("POST", "/a2a/rest/message:send", b"no JSON, tenant"),
        ("POST", "/a2a/rest/message:send", b'["tenant"]'),
        ("GET", "/a2a/rest/tasks/acme", b""),
        ("GET", "/a2a/rest/tasks/5/pushNotificationConfigs", b""),
        ("GET", "/acme/tasks", b""),
        ("POST", "/elsewhere/tenant", b'{"tenant":"acme"}'),
    ],
)
def test_who_names_no_tenant_needs_no_leave(method: str, path: str, body: bytes) -> None:
    agent = Agent(for_each, tenants=None)
    assert agent.ask(method, path, content=body).status_code == 299
    assert agent.behind.bodies == [body]


AT_THE_ROOT = [{**INTERFACES[1], "url": "https://agent.example/"}]


@pytest.mark.parametrize(
    ("method", "path", "tenant"),
    [
        ("POST", "/tasks/message:send", "tasks"),
        ("POST", "/tasks/message:stream", "tasks"),
        ("GET", "/tasks/tasks", "tasks"),
        ("GET", "/tasks/tasks/5", "tasks"),
        ("GET", "/v1/tasks", "v1"),
        ("GET", "/v1/tasks/", "v1"),
        ("DELETE", "/v1/tasks/5/pushNotificationConfigs/6", "v1"),
        ("GET", "/acme/tasks", "acme"),
    ],
)
@pytest.mark.parametrize("is_merged", [False, True])
def test_tenants_that_are_named_like_a_part_of_a_path(method: str, path: str, tenant: str, is_merged: bool) -> None:
    legacy = [{**AT_THE_ROOT[0], "protocolVersion": "0.3"}] if is_merged else []
    card = {**PUBLIC, "supportedInterfaces": [*AT_THE_ROOT, *legacy]}
    asked: list[str] = []

    def never(caller: Principal | Anonymous, name: str) -> bool:
        asked.append(name)
        return False

    agent = Agent(card=card, tenants=never)
    assert agent.ask(method, path, content=b"{}").status_code == 403
    assert asked == [tenant]
    assert agent.behind.bodies == []
    for own in ("/tasks", "/tasks/5", "/message:send", *(["/v1/tasks/5", "/v1/message:send"] if is_merged else [])):
        assert agent.ask("POST" if "message" in own else "GET", own, content=b"{}").status_code == 299


def test_an_interface_for_a_tenant_needs_somebody_who_says_who_may_use_it() -> None:
    card = {**PUBLIC, "supportedInterfaces": [{**INTERFACES[0], "tenant": "acme"}]}
    with pytest.raises(ConfigurationError, match="may_use_tenant=lambda caller, tenant"):
        Agent(card=card, tenants=None)
    assert Agent(card=card, tenants=only_acme).get("/extendedAgentCard").status_code == 200


def test_operations_of_0_3_below_v1_are_of_no_tenant() -> None:
    legacy = {**INTERFACES[1], "protocolVersion": "0.3"}
    agent = Agent(for_each, {**PUBLIC, "supportedInterfaces": [*INTERFACES, legacy]}, tenants=None)
    assert agent.ask("POST", "/a2a/rest/v1/message:send", content=b"{}").status_code == 299
    assert agent.get("/a2a/rest/v1/tasks/5").status_code == 299
    assert agent.get("/a2a/rest/v2/tasks").status_code == 403
    alone = Agent(for_each, {**PUBLIC, "supportedInterfaces": [legacy]}, tenants=None)
    assert alone.get("/a2a/rest/v1/tasks").status_code == 299
    assert Agent(for_each, tenants=None).get("/a2a/rest/v1/tasks").status_code == 403


@pytest.mark.parametrize("call_id", [b"1e999", b"-1e999", b"NaN", b"Infinity"])
def test_an_id_that_is_no_json_is_refused(call_id: bytes) -> None:
    response = Agent().post(b'{"method":"GetExtendedAgentCard","id":' + call_id + b"}")
    assert (response.status_code, response.json()["id"]) == (400, None)


def test_half_a_character_in_an_id_comes_back_as_it_was() -> None:
    response = Agent().post(b'{"method":"GetExtendedAgentCard","id":"\\ud800"}')
    assert (response.status_code, response.json()["id"]) == (200, "\ud800")


def test_it_is_an_application_of_its_own() -> None:
    """For applications that have their own routes, behind the guard alone."""
    promising = {**GUARDED, "capabilities": {"extendedAgentCard": True}}
    signer = generate_signer()
    own = ExtendedCard(promising, for_each, signer=CardSigner(signer))
    application = Starlette(routes=[Route(path, own) for path in ("/extendedAgentCard", "/v1/card")])
    app = AuthenticationMiddleware(application, card=promising, verifiers=verifiers())

    def ask(method: str, path: str, **headers: str) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as http:
                return await http.request(method, path, headers=headers)

        return asyncio.run(send())

    known = {"X-API-Key": KEY}
    new, old = ask("GET", "/extendedAgentCard", **known), ask("GET", "/v1/card", **known)
    assert proven(new.content, signer)["description"].endswith("of nobody")
    assert "supportsAuthenticatedExtendedCard" in proven(old.content, signer)
    assert new.headers["cache-control"] == "private, no-store"
    assert ask("HEAD", "/extendedAgentCard", **known).content == b""
    assert ask("POST", "/extendedAgentCard", **known).status_code == 405
    assert ask("GET", "/extendedAgentCard").status_code == 401


def test_without_a_guard_in_front_it_answers_nobody() -> None:
    async def receive() -> Any:
        raise AssertionError

    async def send(message: Any) -> None:
        raise AssertionError(message)

    scope: Any = {"type": "http", "method": "GET", "path": "/extendedAgentCard", "headers": []}
    with pytest.raises(ConfigurationError, match="did not come through protect"):
        asyncio.run(ExtendedCard(PUBLIC, EXTENDED)(scope, receive, send))
