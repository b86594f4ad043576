"""The extended card: for known callers, under every name, in the shape of the generation that asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from a2a_trust.auth.principal import Anonymous, Identity, Principal
from a2a_trust.card.view import read_card
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError
from a2a_trust.keys.signer import LocalSigner, generate_signer
from a2a_trust.keys.trust.origins import Origins
from a2a_trust.keys.trust.store import TrustedKey, TrustStore
from a2a_trust.middleware import options
from a2a_trust.middleware.card import CardSigner
from a2a_trust.middleware.decision import Access, CallRules
from a2a_trust.middleware.documents import Receive, Scope, Send
from a2a_trust.middleware.door import CardEnforcementMiddleware, Door
from a2a_trust.middleware.extended_card import ExtendedCard, ExtendedCardEndpoint
from a2a_trust.middleware.options import GuardRules, RequestRules, TenantRule
from a2a_trust.middleware.routing import Interfaces
from a2a_trust.signing.verify import verify_card
from tests.middleware.agent import CARD as GUARDED
from tests.middleware.agent import KEY, verifiers
from tests.tables import walk

URL = "https://invoice.example.com"
INTERFACES = [
    {"url": f"{URL}/a2a/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
    {"url": f"{URL}/a2a/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
    {"url": f"{URL}/a2a/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "0.3"},
]
REST = "/a2a/rest"
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
    "/a2a/rest/v1/card",
    "/a2a/rest/agent/authenticatedExtendedCard",
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


class Admitting(Access):
    """It admits the caller of the agent, without a credential."""

    def __init__(self, agent: Agent, card: Mapping[str, Any]) -> None:
        super().__init__(read_card(GUARDED), verifiers(), rules=GuardRules())
        self.agent, self.card = agent, read_card(card)  # type: ignore[misc]
        self.interfaces = Interfaces(self.card)  # type: ignore[misc]

    def known_caller(self, seen: Any, now: float) -> Any:
        return self.agent.caller


class Agent:
    """The extended card in front of an application, and who asks for it."""

    def __init__(
        self,
        source: Any = EXTENDED,
        card: Mapping[str, Any] = PUBLIC,
        tenants: TenantRule | None = lambda caller, tenant: True,
        may_read: Any = None,
        **options: Any,
    ) -> None:
        self.behind = Behind()
        self.caller: Principal | Anonymous = caller()
        view = read_card(card)
        extended = None if source is None else ExtendedCard(source, may_read)
        self.extended = ExtendedCardEndpoint(view, extended, **options)
        access = Admitting(self, card)
        calls = CallRules(access, RequestRules(may_use_tenant=tenants), self.extended)
        self.app = Door(self.behind, access, calls=calls)

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
        return self.ask("POST", "/a2a/rpc", content=body, headers={"Content-Type": "application/json"})


def verified(body: bytes, signer: LocalSigner) -> dict[str, Any]:
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("invoice.example.com"))])
    return verify_card(body, trust, origin=URL, now=2e9).card


@walk("path", HTTP_NAMES)
def test_every_path_gives_the_card_of_its_generation(path: str) -> None:
    agent = Agent()
    response = agent.get(path)
    assert response.status_code == 200
    assert response.headers["cache-control"] == "private, no-store"
    assert response.headers["vary"] == "*"
    assert "etag" not in response.headers
    card = response.json()
    assert card["description"] == "With prices."
    assert ("url" in card) is (not path.endswith("extendedAgentCard"))
    assert agent.behind.bodies == []


@walk("method", RPC_NAMES)
@walk("call_id", [7, "seven", 7.5, None])
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
    get, head = agent.get(f"{REST}/v1/card"), agent.ask("HEAD", f"{REST}/v1/card")
    assert (head.status_code, head.content, dict(head.headers)) == (200, b"", dict(get.headers))


# Whether there is one, and for whom


def errors_of(agent: Agent) -> list[tuple[int, int, str]]:
    """What both bindings say: status, code of JSON-RPC, reason."""
    rpc, http = agent.call("GetExtendedAgentCard"), agent.get(f"{REST}/extendedAgentCard")
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


def test_a_promise_that_nothing_can_keep_does_not_start() -> None:
    for card in (PUBLIC, {"name": "n", "url": "https://agent.example/", "supportsAuthenticatedExtendedCard": True}):
        with pytest.raises(
            ConfigurationError, match="promises an extended card, and there is none; pass extended_card"
        ):
            Agent(None, card)


@pytest.mark.parametrize("source", ["card.json", 5, [EXTENDED]])
def test_what_is_no_source_does_not_start(source: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"extended card: .* is not a card; write .* a2a-sdk"):
        Agent(source)


def test_a_caller_without_a_card_is_told() -> None:
    wanted = [(200, -32007, "FAILED_PRECONDITION"), (400, 0, "EXTENDED_AGENT_CARD_NOT_CONFIGURED")]

    async def nobody(principal: Principal, tenant: str) -> None:
        return None

    assert errors_of(Agent(nobody)) == wanted


def test_who_may_not_read_it_is_refused() -> None:
    agent = Agent(may_read=lambda principal: principal.identities[0][1].subject == "bob")
    assert errors_of(agent) == [(403, -31403, "PERMISSION_DENIED"), (403, 0, "UNAUTHORIZED")]
    agent.caller = caller("bob")
    assert agent.get(f"{REST}/extendedAgentCard").json() == EXTENDED


async def nobody(*_: Any) -> bool:
    return False


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "RULE_SECONDS", 60)


def statuses(rule: Any) -> list[int]:
    """The answers by the rule as ``may_read`` and as ``may_use_tenant``."""
    read, use = Agent(may_read=rule), Agent(tenants=rule)
    return [read.get(f"{REST}/extendedAgentCard").status_code, use.get(f"{REST}/acme/extendedAgentCard").status_code]


class Nobody:
    async def __call__(self, *_: Any) -> bool:
        return False


def test_the_card_for_known_callers_is_in_no_log() -> None:
    for source in (EXTENDED, json.dumps(EXTENDED).encode()):
        assert EXTENDED["name"] not in repr(ExtendedCard(source))


ALLOWED: list[Any] = ["no", 1, {"allowed": False}, object(), None, 0]


@walk("answer", ALLOWED)
def test_a_rule_allows_by_true_alone(answer: Any) -> None:
    assert statuses(lambda *_: answer) == [403, 403]


@walk("rule", [nobody, Nobody(), partial(nobody, 1), lambda *_: nobody()])
def test_an_async_rule_may_say_no_in_any_form_of_a_function(rule: Any) -> None:
    assert statuses(rule) == [403, 403]


@pytest.mark.usefixtures("patient")
@walk("answer", [True, *ALLOWED])
def test_an_async_rule_allows_by_true_alone(answer: Any) -> None:
    async def rule(*_: Any) -> Any:
        await asyncio.sleep(0)
        return answer

    async def at_once(*_: Any) -> Any:
        return answer

    # 400: the rule allows the tenant, and there is no card for it.
    assert statuses(rule) == statuses(at_once) == ([200, 400] if answer is True else [403, 403])


@pytest.mark.usefixtures("patient")
@walk("error", [RuntimeError("broken"), TimeoutError("of its database"), KeySourceUnavailableError("down"), OSError()])
def test_an_exception_of_an_async_rule_is_raised(error: Exception) -> None:
    async def rule(*_: Any) -> bool:
        await asyncio.sleep(0)
        raise error

    for agent, path in ((Agent(may_read=rule), "/extendedAgentCard"), (Agent(tenants=rule), "/acme/extendedAgentCard")):
        with pytest.raises(type(error)):
            agent.get(f"{REST}{path}")


def test_an_async_rule_reads_nothing_of_the_request(patient: None) -> None:
    """The body still is the application's: the rule was asked between the two."""
    asked: list[str] = []

    async def rule(caller: Any, tenant: str) -> bool:
        asked.append(tenant)
        await asyncio.sleep(0)
        return True

    agent = Agent(tenants=rule)
    agent.call("SendMessage", params={"tenant": "acme"})
    assert (asked, [json.loads(body)["params"] for body in agent.behind.bodies]) == (["acme"], [{"tenant": "acme"}])


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
        ("/a2a/rest/acme/extendedAgentCard", "acme"),
        ("/acme/a2a/rest/extendedAgentCard", "acme"),
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
        assert agent.get(f"{REST}/extendedAgentCard").json()["description"] == f"{name} of nobody"
        call = agent.call("GetExtendedAgentCard", params={"tenant": "acme"})
        assert call.json()["result"]["description"] == f"{name} of acme"


def test_one_card_for_everybody_is_for_no_tenant() -> None:
    agent = Agent()
    assert agent.get(f"{REST}/acme/extendedAgentCard").status_code == 400
    assert agent.call("GetExtendedAgentCard", params={"tenant": "acme"}).json()["error"]["code"] == -32007


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"params": {"tenant": 1}}, -32602),
        ({"params": {"tenant": ["acme"]}}, -32602),
        ({"id": []}, -32600),
        ({"id": True}, -32600),
    ],
)
def test_a_call_that_cannot_be_understood_is_refused(members: dict[str, Any], code: int) -> None:
    agent = Agent(for_each)
    response = agent.call("GetExtendedAgentCard", **members)
    assert (response.status_code, response.json()["error"]["code"]) == (200, code)
    assert agent.behind.bodies == []


# Signatures


def test_both_shapes_are_signed_whole() -> None:
    signer = generate_signer()
    agent = Agent(signer=CardSigner(signer))
    new, old = agent.get(f"{REST}/extendedAgentCard"), agent.get(f"{REST}/v1/card")
    assert verified(new.content, signer) == EXTENDED
    legacy = verified(old.content, signer)
    assert legacy["security"] == [{"key": ["read"]}]
    assert legacy["url"] == INTERFACES[2]["url"]
    call = agent.call("GetExtendedAgentCard")
    assert new.content in call.content  # the very bytes that were signed


def test_a_card_is_signed_once_for_its_content_and_again_before_its_end() -> None:
    clock = [1_900_000_000.0]
    signer = generate_signer()
    agent = Agent(signer=CardSigner(signer, lifetime=3600), clock=lambda: clock[0])
    first = agent.get(f"{REST}/extendedAgentCard").content
    clock[0] += 1799
    assert agent.get(f"{REST}/extendedAgentCard").content == first
    clock[0] += 2
    assert agent.get(f"{REST}/extendedAgentCard").content != first


def test_another_key_signs_anew() -> None:
    keys = [generate_signer(), generate_signer()]

    class Rotating:
        def signer(self, now: float) -> LocalSigner:
            return keys[0]

    agent = Agent(signer=CardSigner(Rotating()))
    assert verified(agent.get(f"{REST}/extendedAgentCard").content, keys[0]) == EXTENDED
    keys.pop(0)
    assert verified(agent.get(f"{REST}/extendedAgentCard").content, keys[0]) == EXTENDED


def test_what_is_remembered_is_bounded() -> None:
    numbers = iter(range(1000))

    async def always_another(principal: Principal, tenant: str) -> dict[str, Any]:
        return {**EXTENDED, "description": str(next(numbers))}

    agent = Agent(always_another)
    for _ in range(300):
        agent.get(f"{REST}/extendedAgentCard")
    assert len(agent.extended._signed) == 256


def test_it_is_an_application_of_its_own() -> None:
    """For applications that have their own routes, behind the guard alone."""
    promising = {**GUARDED, "capabilities": {"extendedAgentCard": True}}
    signer = generate_signer()
    own = ExtendedCardEndpoint(promising, ExtendedCard(for_each), signer=CardSigner(signer))
    application = Starlette(routes=[Route(path, own) for path in ("/extendedAgentCard", "/v1/card")])
    app = CardEnforcementMiddleware(application, card=promising, verifiers=verifiers())

    def ask(method: str, path: str, **headers: str) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as http:
                return await http.request(method, path, headers=headers)

        return asyncio.run(send())

    known = {"X-API-Key": KEY}
    new, old = ask("GET", "/extendedAgentCard", **known), ask("GET", "/v1/card", **known)
    assert verified(new.content, signer)["description"].endswith("of nobody")
    assert "supportsAuthenticatedExtendedCard" in verified(old.content, signer)
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
        asyncio.run(ExtendedCardEndpoint(PUBLIC, ExtendedCard(EXTENDED))(scope, receive, send))


def test_the_card_is_signed_again_when_the_clock_goes_back() -> None:
    signer, clock = generate_signer(), [1_900_000_000.0]
    agent = Agent(signer=CardSigner(signer), clock=lambda: clock[0])
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("invoice.example.com"))])
    ahead = agent.ask("GET", HTTP_NAMES[0]).content
    clock[0] -= 86_400
    back = agent.ask("GET", HTTP_NAMES[0]).content
    assert back != ahead
    assert verify_card(back, trust, origin=URL, now=clock[0]).card == EXTENDED
    assert agent.ask("GET", HTTP_NAMES[0]).content == back


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_client_that_goes_away_ends_the_wait_for_its_card(is_alone: bool) -> None:
    ended: list[str] = []

    async def source(caller: Principal, tenant: str) -> bytes:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(tenant)
        raise AssertionError

    agent = Agent(source)
    app = agent.extended if is_alone else agent.app
    scope = {"type": "http", "method": "GET", "path": HTTP_NAMES[0], "headers": [], "a2a_trust.principal": caller()}
    messages, sent = [{"type": "http.request"}, {"type": "http.disconnect"}], list[Any]()

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    async def request() -> None:
        await asyncio.wait_for(app(scope, receive, send), 60)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(request())
    assert (ended, sent) == ([""], [])
