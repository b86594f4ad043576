"""The guard in front of an application: what passes, what it looks like then, and what never gets that far."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Mount, Route

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.dpop import DPoP, ServerNonces
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.auth.principal import Anonymous, CredentialKind, Identity, Principal
from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.errors import (
    AuthorizationError,
    ConfigurationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MissingCredentialsError,
    TooManyRequestsError,
)
from a2a_trust.middleware.caller import is_public, principal_of, subject_token_of
from a2a_trust.middleware.card import CardReaders
from a2a_trust.middleware.door import CardEnforcementMiddleware
from a2a_trust.middleware.options import GuardRules, RequestRules
from a2a_trust.middleware.protection import protect
from tests.auth.deciding import cached
from tests.auth.proofs import BASE, bound_token, by_dpop, proof, scope_of
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys, claims, token
from tests.middleware.agent import (
    CALL,
    CARD,
    KEY,
    POOR_KEY,
    SCHEMES,
    STORE,
    Agent,
    guarded,
    raw_exchange,
    uvicorn_serving,
    verifiers,
)
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


GOOD = {"X-API-Key": KEY}
BEARER = {"Authorization": f"Bearer {token()}"}
REST, RPC = "/rest/tasks", "/rpc"


def client(app: Any, **options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, **options), base_url="http://agent.example")


def http_scope(path: str = RPC, method: str = "POST", **members: Any) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in members.pop("carried", {}).items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
        **members,
    }


async def called(app: Any, scope: dict[str, Any], *received: dict[str, Any]) -> list[dict[str, Any]]:
    """What the application sends when it is called with that scope; it may receive no more than is given."""
    waiting, sent = list(received), []

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    assert not waiting, "not everything was read"
    return sent


# Who passes


@walk("carried", [GOOD, BEARER, GOOD | BEARER])
@walk("path", [RPC, REST, "/", "/anything/else"])
async def test_a_good_credential_passes_everywhere(carried: dict[str, str], path: str) -> None:
    agent = Agent()
    async with client(guarded(agent)) as http:
        answer = await http.post(path, headers=carried, content=b"12345")
    assert (answer.status_code, answer.json()["read"], agent.paths) == (200, 5, [path])


BEARER_CHALLENGE = 'Bearer scope="read"'

BAD: list[tuple[dict[str, str], int, str]] = [
    ({}, 401, BEARER_CHALLENGE),
    ({"X-API-Key": "wrong"}, 401, BEARER_CHALLENGE),
    ({"X-API-Key": KEY[:-1]}, 401, BEARER_CHALLENGE),
    ({"X-API-Key": ""}, 401, BEARER_CHALLENGE),
    ({"Authorization": "Bearer wrong"}, 401, 'Bearer error="invalid_token"'),
    ({"Authorization": "Basic YTpi"}, 401, BEARER_CHALLENGE),
    ({"Authorization": f"Bearer {token(claims(exp=NOW))}"}, 401, 'Bearer error="invalid_token"'),
    (GOOD | {"Authorization": "Bearer wrong"}, 401, 'Bearer error="invalid_token"'),
    (BEARER | {"X-API-Key": "wrong"}, 401, BEARER_CHALLENGE),
    ({"X-API-Key": POOR_KEY}, 403, BEARER_CHALLENGE),
    ({"Authorization": f"Bearer {token(claims(scope='x'))}"}, 403, 'Bearer error="insufficient_scope", scope="read"'),
    ({"X_API_Key": KEY}, 401, BEARER_CHALLENGE),
]


@walk(("carried", "status", "challenge"), BAD)
@walk("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get", "X"])
@walk("path", [RPC, REST])
async def test_nothing_else_passes_by_any_method(
    carried: dict[str, str], status: int, challenge: str, method: str, path: str
) -> None:
    agent = Agent()
    sent = await called(guarded(agent), http_scope(path, method, carried=carried))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == status
    assert agent.scopes == []
    headers = sent[0]["headers"]
    challenges = [value.decode() for name, value in headers if name == b"www-authenticate"]
    assert challenges == ['ApiKey in="header", name="X-API-Key"', challenge]
    length = int(dict(headers)[b"content-length"])
    assert length > 0
    assert len(sent[1]["body"]) == (0 if method == "HEAD" else length)


async def challenge_of(app: Any, *headers: tuple[str, str]) -> tuple[int, str]:
    """Status, and what bearers are told."""
    scope = http_scope() | {"headers": [(name.lower().encode(), value.encode()) for name, value in headers]}
    start = (await called(app, scope))[0]
    (bearer,) = (value.decode() for name, value in start["headers"] if value.startswith(b"Bearer"))
    return start["status"], bearer


class Returning:
    def __init__(self, identity: Identity) -> None:
        self.identity = identity

    async def verify(self, credential: str, now: float) -> Identity:
        return self.identity


async def test_bearers_are_told_of_their_token_and_of_nothing_else() -> None:
    app = guarded(Agent())
    key, bearer = ("X-API-Key", KEY), ("Authorization", BEARER["Authorization"])
    assert await challenge_of(app, bearer, bearer) == (401, 'Bearer error="invalid_request"')
    assert await challenge_of(app, key, key) == (401, 'Bearer scope="read"')
    assert await challenge_of(app, bearer, key, key) == (401, 'Bearer scope="read"')

    expired = Returning(Identity(issuer="i", subject="ann", expires_at=NOW))
    app = guarded(Agent(), verifiers={**verifiers(), "oauth": expired})
    assert await challenge_of(app, bearer) == (401, 'Bearer error="invalid_token"')
    app = guarded(Agent(), verifiers={**verifiers(), "key": expired})
    assert await challenge_of(app, key) == (401, 'Bearer scope="read"')


async def test_of_two_credentials_the_one_that_lacks_a_scope_is_named() -> None:
    both = {"schemes": {"key": {"list": ["read"]}, "oauth": {"list": ["deep", "write"]}}}
    app = guarded(Agent(), {**CARD, "securityRequirements": [both]})
    rich, poor = (("Authorization", f"Bearer {token(claims(scope=scope))}") for scope in ("deep write", "read write"))
    assert await challenge_of(app, ("X-API-Key", POOR_KEY), rich) == (403, 'Bearer scope="deep write"')
    insufficient = 'Bearer error="insufficient_scope", scope="deep write"'
    assert await challenge_of(app, ("X-API-Key", KEY), poor) == (403, insufficient)
    assert await challenge_of(app, ("X-API-Key", POOR_KEY), poor) == (403, insufficient)
    assert await challenge_of(app, ("X-API-Key", KEY)) == (401, 'Bearer scope="deep write"')


async def test_the_body_of_a_refused_request_is_not_read() -> None:
    async def receive() -> Any:
        raise AssertionError("the body was asked for")

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await guarded(Agent())(http_scope(), receive, send)
    assert json.loads(sent[1]["body"])["id"] is None


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        (RPC, "application/json"),
        (REST, "application/a2a+json"),
        ("/rpc/", "application/a2a+json"),
        ("/", "application/a2a+json"),
    ],
)
async def test_the_binding_is_known_from_the_path_of_the_interface(path: str, media_type: str) -> None:
    async with client(guarded(Agent())) as http:
        answer = await http.post(path)
    assert (answer.status_code, answer.headers["content-type"]) == (401, media_type)
    assert ("jsonrpc" in answer.json()) == (path == RPC)


REST_1, REST_0 = (
    {"url": "http://agent.example/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": version}
    for version in ("1.0", "0.3")
)
OLD_REST = {
    "supportedInterfaces": None,
    "url": "http://agent.example/rest",
    "preferredTransport": "HTTP+JSON",
    "protocolVersion": "0.3.0",
}


@walk(
    ("members", "path", "media_type"),
    [
        ({"supportedInterfaces": [REST_1]}, "/rest/v1/message:send", "application/a2a+json"),
        ({"supportedInterfaces": [REST_1, REST_0]}, "/rest/message:send", "application/a2a+json"),
        ({"supportedInterfaces": [REST_1, REST_0]}, "/rest/v1", "application/a2a+json"),
        ({"supportedInterfaces": [REST_1, REST_0]}, "/rest/v1/message:send", "application/json"),
        ({"supportedInterfaces": [REST_1, REST_0]}, "/else", "application/a2a+json"),
        ({"supportedInterfaces": [REST_0]}, "/rest/message:send", "application/json"),
        ({"supportedInterfaces": [REST_0]}, "/else", "application/json"),
        ({"supportedInterfaces": [{**REST_0, "protocolVersion": ""}]}, "/rest/x", "application/a2a+json"),
        (
            {"supportedInterfaces": [REST_1, {**REST_0, "url": "http://agent.example/rest/old"}]},
            "/rest/old/v1/card",
            "application/json",
        ),
        ({"supportedInterfaces": [{**REST_0, "url": "http://agent.example"}, REST_1]}, "/restx", "application/json"),
        (
            {"supportedInterfaces": [{**REST_0, "url": "http://agent.example/"}, REST_1]},
            "/rest",
            "application/a2a+json",
        ),
        (OLD_REST, "/rest/v1/message:send", "application/json"),
        ({**OLD_REST, "protocolVersion": None}, "/rest/v1/message:send", "application/json"),
        ({"supportedInterfaces": [], "url": "http://agent.example/"}, "/tasks/send", "application/json"),
    ],
)
async def test_the_media_type_of_1_0_is_for_interfaces_of_1_0(
    members: dict[str, Any], path: str, media_type: str
) -> None:
    card = {name: value for name, value in {**CARD, **members}.items() if value is not None}
    async with client(guarded(Agent(), card)) as http:
        answer = await http.post(path)
    assert (answer.status_code, answer.headers["content-type"]) == (401, media_type)
    assert answer.json()["error"]["code"] == 401


async def test_why_somebody_was_refused_goes_to_the_log_without_the_credential(
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = "a2a_thisisasecret_" + "x" * 40
    with caplog.at_level(logging.INFO, "a2a_trust"):
        async with client(guarded(Agent())) as http:
            await http.post(RPC, headers={"X-API-Key": secret})
            await http.post(RPC, headers={"Authorization": f"Bearer {secret}"})
    assert len([record for record in caplog.records if record.message.startswith("refused POST /rpc: ")]) == 2
    assert "x" * 40 not in caplog.text


# When nobody can tell, or somebody errs


class Raising:
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def verify(self, credential: str, now: float) -> Identity:
        raise self.error


async def test_a_key_source_that_is_down_is_503_with_retry_after_and_no_challenge() -> None:
    given = {**verifiers(), "oauth": Raising(KeySourceUnavailableError("down"))}
    agent = Agent()
    async with client(guarded(agent, verifiers=given)) as http:
        answer = await http.post(RPC, headers=BEARER)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert "www-authenticate" not in answer.headers
        assert agent.scopes == []
        for carried in (GOOD, BEARER | GOOD):  # another alternative lets the caller in
            assert (await http.post(RPC, headers=carried)).status_code == 200


# What the application sees


async def test_the_scope_is_copied_and_says_who_is_calling() -> None:
    agent = Agent()
    scope = http_scope(carried=GOOD, state={"shared": 1})
    before = copy.deepcopy(scope)
    await called(guarded(agent), scope, {"type": "http.request", "body": b"", "more_body": False})
    assert scope == before
    seen = agent.scopes[0]
    assert seen["user"].is_authenticated
    assert seen["user"].display_name == "ann@api-keys"
    assert seen["auth"].scopes == ["read"]
    assert principal_of(seen) is seen["user"]
    assert seen["state"] is scope["state"]
    hidden = {**before, "headers": []}
    assert {name: value for name, value in seen.items() if name in before} == hidden


async def test_a_scope_that_claims_a_user_is_not_believed() -> None:
    agent = Agent()
    forged = Principal(identities=(("key", Identity(issuer="api-keys", subject="root")),))
    claimed: dict[str, Any] = {"user": forged, "auth": forged, "a2a_trust.principal": forged}
    scope = http_scope(carried=GOOD, **claimed)
    await called(guarded(agent), scope, {"type": "http.request", "body": b"", "more_body": False})
    assert principal_of(agent.scopes[0]).display_name == "ann@api-keys"
    assert (await called(guarded(agent), http_scope(**claimed)))[0]["status"] == 401


async def test_principal_of_refuses_a_request_that_was_not_judged() -> None:
    for scope in ({}, {"user": object()}, {"a2a_trust.principal": None}, {"a2a_trust.principal": "ann"}):
        with pytest.raises(ConfigurationError, match=r"did not come through protect\(\)"):
            principal_of(scope)


async def test_the_messages_are_the_servers_own() -> None:
    seen: list[Any] = []
    messages = [{"type": "http.request", "more_body": True}, {"type": "http.extension"}, {"type": "http.disconnect"}]
    left = iter(messages)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend([await receive() for _ in messages])

    async def receive() -> Any:
        return next(left)

    async def send(message: Any) -> None: ...

    login = {**CARD, "securityRequirements": [{"schemes": {"oauth": {"list": ["read"]}}}]}
    given = {"oauth": verifiers()["oauth"]}
    await guarded(app, login, verifiers=given)(http_scope(carried=BEARER), receive, send)
    assert all(one is other for one, other in zip(seen, messages, strict=True))


async def test_starlettes_own_views_of_the_caller_work() -> None:
    async def who(request: Request) -> JSONResponse:
        caller = principal_of(request.scope)
        return JSONResponse([request.user.is_authenticated, request.auth.scopes, caller is request.user])

    routes = [Route("/rpc", who, methods=["POST"])]
    options: dict[str, Any] = {"card": CARD, "verifiers": verifiers(), "clock": lambda: NOW}
    inside = Starlette(routes=routes, middleware=[Middleware(CardEnforcementMiddleware, **options)])
    for app in (inside, protect(Starlette(routes=routes), **options)):
        async with client(app) as http:
            assert (await http.post(RPC)).status_code == 401
            assert (await http.post(RPC, json=CALL, headers=GOOD)).json() == [True, ["read"], True]


async def told(request: Request) -> JSONResponse:
    caller = principal_of(request.scope)
    return JSONResponse([caller.display_name, request.scope["root_path"]])


OPTIONS: dict[str, Any] = {"card": CARD, "verifiers": verifiers(), "clock": lambda: NOW}
ANN = "ann@api-keys"


def with_fastapi() -> FastAPI:
    app = FastAPI(middleware=[Middleware(CardEnforcementMiddleware, **OPTIONS)])
    app.post("/rpc")(told)
    return app


def with_fastapi_afterwards() -> FastAPI:
    app = FastAPI()
    app.post("/rpc")(told)
    app.add_middleware(CardEnforcementMiddleware, **OPTIONS)
    return app


def with_starlette_afterwards() -> Starlette:
    app = Starlette(routes=[Route("/rpc", told, methods=["POST"])])
    app.add_middleware(CardEnforcementMiddleware, **OPTIONS)
    return app


def with_a_mounted_application() -> Starlette:
    return Starlette(
        routes=[Mount("/rpc", Starlette(routes=[Route("/", told, methods=["POST"])]))],
        middleware=[Middleware(CardEnforcementMiddleware, **OPTIONS)],
    )


@pytest.mark.parametrize(
    ("make", "path", "root"),
    [
        (with_fastapi, "/rpc", ""),
        (with_fastapi_afterwards, "/rpc", ""),
        (with_starlette_afterwards, "/rpc", ""),
        (with_a_mounted_application, "/rpc/", "/rpc"),
    ],
)
async def test_it_works_as_middleware_of_an_application(make: Callable[[], Starlette], path: str, root: str) -> None:
    async with client(make()) as http:
        for carried, status in (({}, 401), ({"X-API-Key": "wrong"}, 401), ({"X-API-Key": POOR_KEY}, 403)):
            assert (await http.post(path, headers=carried)).status_code == status
        assert (await http.post(path, headers=GOOD)).json() == [ANN, root]
        for unlisted in ("/docs", "/openapi.json", "/redoc", "/nowhere"):
            assert (await http.get(unlisted)).status_code == 401


def at(prefix: str) -> dict[str, Any]:
    """The card of an agent under a prefix of the host's paths."""
    interfaces = [{**item, "url": item["url"].replace(".example/", f".example{prefix}/")} for item in CARD_INTERFACES]
    return {**CARD, "supportedInterfaces": interfaces}


CARD_INTERFACES: list[dict[str, str]] = CARD["supportedInterfaces"]


def inside() -> Starlette:
    """A mounted agent that has the middleware of its own; its host has none."""
    routes = [
        Route("/rpc", told, methods=["POST"]),
        Route("/.well-known/agent-card.json", lambda _: JSONResponse({}), methods=["GET"]),
    ]
    guard = Middleware(CardEnforcementMiddleware, **{**OPTIONS, "card": at("/team/a")})
    agent = Starlette(routes=routes, middleware=[guard])
    return Starlette(routes=[Mount("/team/a", agent), Route("/open", lambda _: JSONResponse("open"))])


def around() -> Starlette:
    """A mounted agent behind one line."""
    agent = FastAPI()
    agent.post("/rpc")(told)
    agent.add_route("/.well-known/agent-card.json", lambda _: JSONResponse({}))
    guarded_agent = protect(agent, **{**OPTIONS, "card": at("/team/a")})
    return Starlette(routes=[Mount("/team/a", guarded_agent), Route("/open", lambda _: JSONResponse("open"))])


@pytest.mark.parametrize("make", [inside, around])
async def test_a_mounted_agent_is_guarded_at_its_own_paths(make: Callable[[], Starlette]) -> None:
    async with client(make()) as http:
        refused = await http.post("/team/a/rpc")
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, -31401)
        assert (await http.post("/team/a/rest/x")).json()["error"]["code"] == 401
        assert (await http.post("/team/a/rpc", json=CALL, headers=GOOD)).json() == [ANN, "/team/a"]
        assert (await http.get("/team/a/.well-known/agent-card.json")).status_code == 200
        assert (await http.get("/team/a/team/a/.well-known/agent-card.json")).status_code == 401
        assert (await http.get("/open")).json() == "open"


async def test_two_mounted_agents_do_not_share_what_they_know() -> None:
    """Each has its own card and keys; what is good for one is nothing to the other."""
    other = MemoryApiKeys()
    key = other.create(owner="bob", scopes=["read"]).text
    given = {**verifiers(), "key": ApiKeyVerifier(other, issuer="other")}
    agents = [
        protect(Starlette(routes=[Route("/rpc", told, methods=["POST"])]), **{**OPTIONS, "card": at(prefix), **more})
        for prefix, more in (("/a", {}), ("/b", {"verifiers": given}))
    ]
    async with client(Starlette(routes=[Mount("/a", agents[0]), Mount("/b", agents[1])])) as http:
        for path, carried, status in (("/a", KEY, 200), ("/b", KEY, 401), ("/a", key, 401), ("/b", key, 200)):
            answer = await http.post(f"{path}/rpc", json=CALL, headers={"X-API-Key": carried})
            assert answer.status_code == status


async def test_an_agent_in_a_protected_application_asks_for_its_own_credential_too() -> None:
    """An outer guard's caller does not pass for the inner one's."""
    narrow = {**CARD, "securityRequirements": [{"schemes": {"key": {"list": ["write"]}}}]}
    for rules, status in ((RequestRules(hide_credentials=False), 403), (RequestRules(), 401)):
        inner = protect(
            Starlette(routes=[Route("/rpc", told, methods=["POST"])]),
            **{**OPTIONS, "card": narrow, "verifiers": {"key": verifiers()["key"]}},
        )
        outer = protect(Starlette(routes=[Mount("/", inner)]), **OPTIONS, rules=rules)
        async with client(outer) as http:
            assert (await http.post("/rpc", json=CALL, headers=GOOD)).status_code == status


async def test_anonymous_callers_are_somebody_else_every_time() -> None:
    card = {**CARD, "securityRequirements": [{"schemes": {"key": {}}}, {}]}
    agent = Agent()
    given = {"key": verifiers()["key"]}
    async with client(guarded(agent, card, verifiers=given, allow_anonymous=True)) as http:
        for _ in range(2):
            assert (await http.post(RPC)).status_code == 200
        for carried in ({"X-API-Key": "wrong"}, BEARER, {"Authorization": "x"}):
            assert (await http.post(RPC, headers=carried)).status_code == 401
    callers = [principal_of(scope) for scope in agent.scopes]
    assert all(isinstance(caller, Anonymous) and not caller.is_authenticated for caller in callers)
    assert len({caller.display_name for caller in callers}) == 2
    assert [scope["auth"].scopes for scope in agent.scopes] == [[], []]


async def test_a_proof_is_hidden_with_its_token() -> None:
    bound = bound_token()
    for hide in (False, True):
        agent = Agent()
        card = {**CARD, "securityRequirements": [{"schemes": {"oauth": {"list": []}}}]}
        verifiers = {"oauth": JwtVerifier(Keys(EC), issuer=ISSUER, audience=AUDIENCE)}
        app = guarded(agent, card, verifiers=verifiers, dpop=DPoP(url=BASE), hide_credentials=hide)
        scope = {**scope_of(by_dpop(bound, proof(bound)))}
        await called(app, scope, {"type": "http.request", "body": b"", "more_body": False})
        assert (b"dpop" in dict(agent.scopes[0]["headers"])) is not hide


async def test_only_a_credential_that_browsers_attach_asks_who_the_page_is() -> None:
    """Two ways in: a key that a program writes, and a cookie that a browser adds by itself."""
    schemes = {**SCHEMES, "sid": {"apiKeySecurityScheme": {"location": "cookie", "name": "sid"}}}
    card = {
        **CARD,
        "securitySchemes": schemes,
        "securityRequirements": [{"schemes": {"key": {"list": []}}}, {"schemes": {"sid": {"list": []}}}],
    }
    keys = {"key": ApiKeyVerifier(STORE), "sid": ApiKeyVerifier(STORE)}
    page = {"Sec-Fetch-Site": "cross-site", "Origin": "https://page.example"}
    async with client(guarded(Agent(), card, verifiers=keys)) as http:
        assert (await http.post(RPC, headers={"X-API-Key": KEY, **page})).status_code == 200
        assert (await http.post(RPC, headers={"Cookie": f"sid={KEY}", **page})).status_code == 403
        assert (await http.post(RPC, headers={"Cookie": f"sid={KEY}"})).status_code == 200


async def test_the_application_sees_credentials_only_if_it_says_so() -> None:
    carried = {**GOOD, **BEARER, "X-Other": "1", "Cookie": "a=b"}
    hidden = {"X-Other", "Cookie"}
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({}, hidden),
        ({"hide_credentials": True}, hidden),
        ({"hide_credentials": False}, set(carried)),
    ]
    for options, expected in cases:
        agent = Agent()
        scope = http_scope(carried=carried)
        before = list(scope["headers"])
        app = guarded(agent, **options)
        await called(app, scope, {"type": "http.request", "body": b"", "more_body": False})
        assert {name for name, _ in agent.scopes[0]["headers"]} == {name.lower().encode() for name in expected}
        assert scope["headers"] == before


@walk(
    ("sent", "seen"),
    [
        (["sid=KEY"], []),
        (["a=b; sid=KEY"], ["a=b"]),
        (["sid=KEY; a=b"], ["a=b"]),
        (["a=b;sid=KEY ;c=d; e"], ["a=b;c=d; e"]),
        (["sid2=x; Sid=y; a=sid", "sid=KEY", "c=d"], ["sid2=x; Sid=y; a=sid", "c=d"]),
        (['a="; sid=KEY; "'], ['a="; "']),
    ],
)
async def test_a_cookie_that_is_a_credential_is_hidden_and_other_cookies_are_not(
    sent: list[str], seen: list[str]
) -> None:
    schemes = {"key": {"type": "apiKey", "in": "cookie", "name": "sid"}}
    card = {**CARD, "securitySchemes": schemes, "securityRequirements": [{"schemes": {"key": {}}}]}
    agent = Agent()
    scope = {**http_scope(), "headers": [(b"Cookie", line.replace("KEY", KEY).encode()) for line in sent]}
    app = guarded(agent, card, verifiers={"key": verifiers()["key"]})
    await called(app, scope, {"type": "http.request", "body": b"", "more_body": False})
    assert agent.scopes[0]["headers"] == [(b"Cookie", line.encode()) for line in seen]


# The token that is kept


@walk(
    ("carried", "kept"),
    [
        (BEARER, True),
        ({"Authorization": BEARER["Authorization"].replace("Bearer", "bearer")}, True),
        (GOOD, False),
        (GOOD | BEARER, True),  # alice@… is the smaller id
        (GOOD | {"Authorization": f"Bearer {token(claims(sub='zoe'))}"}, False),  # ann@… is it, and the token is beside
    ],
)
@walk("hide", [False, True])
async def test_the_token_that_made_the_caller_is_kept_and_no_other(
    carried: dict[str, str], kept: bool, hide: bool
) -> None:
    agent = Agent()
    app = guarded(agent, keep_subject_token=True, hide_credentials=hide)
    await called(app, http_scope(carried=carried), {"type": "http.request", "body": b"", "more_body": False})
    if kept:
        found = subject_token_of(agent.scopes[0])
        assert found.reveal() == BEARER["Authorization"].removeprefix("Bearer ")
        assert (found.issuer, found.subject, found.expires_at) == (ISSUER, "alice", claims()["exp"])
    else:
        with pytest.raises(MissingCredentialsError):
            subject_token_of(agent.scopes[0])


async def test_anonymous_callers_and_public_paths_have_no_token() -> None:
    card = {**CARD, "securityRequirements": [{"schemes": {"oauth": {}}}, {}]}
    agent = Agent()
    given = {"oauth": verifiers()["oauth"]}
    app = guarded(agent, card, verifiers=given, allow_anonymous=True, keep_subject_token=True)
    await called(app, http_scope(), {"type": "http.request", "body": b"", "more_body": False})
    with pytest.raises(MissingCredentialsError):
        subject_token_of(agent.scopes[0])
    await called(app, http_scope(CARD_PATHS[0], "GET"), {"type": "http.request", "body": b"", "more_body": False})
    with pytest.raises(ConfigurationError, match="its path is public"):
        subject_token_of(agent.scopes[1])


async def test_the_first_scheme_of_access_tokens_says_who_a_token_is_from() -> None:
    """One token may be good for several schemes; an ID token is no access token."""
    schemes: dict[str, Any] = {name: {"oauth2SecurityScheme": {"flows": {}}} for name in ("a", "b", "c")}
    demand: dict[str, Any] = {"schemes": {name: {} for name in schemes}}
    card = {**CARD, "securitySchemes": schemes, "securityRequirements": [demand]}

    class Tokens:
        def __init__(self, issuer: str, kind: CredentialKind) -> None:
            self.issuer, self.kind = issuer, kind

        async def verify(self, credential: str, now: float) -> Identity:
            return Identity(issuer=self.issuer, subject=credential[::-1])

    kinds = {"a": CredentialKind.ID_TOKEN, "b": CredentialKind.ACCESS_TOKEN, "c": CredentialKind.ACCESS_TOKEN}
    given = {name: Tokens(name, kind) for name, kind in kinds.items()}
    agent = Agent()
    app = guarded(agent, card, verifiers=given, keep_subject_token=True)
    scope = http_scope(carried={"Authorization": "Bearer abc"})
    await called(app, scope, {"type": "http.request", "body": b"", "more_body": False})
    found = subject_token_of(agent.scopes[0])
    assert (found.reveal(), found.issuer, found.subject, found.expires_at) == ("abc", "b", "cba", float("inf"))


def test_to_keep_tokens_where_no_verifier_is_for_them_does_not_start() -> None:
    card = {**CARD, "securityRequirements": [{"schemes": {"key": {}}}]}
    with pytest.raises(ConfigurationError, match=r"keep_subject_token: .* kind = CredentialKind\.ACCESS_TOKEN"):
        guarded(Agent(), card, verifiers={"key": verifiers()["key"]}, keep_subject_token=True)


# Public paths


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/.well-known/agent-card.json", "/.well-known/agent.json"])
async def test_the_card_is_public(method: str, path: str) -> None:
    agent = Agent()
    async with client(guarded(agent)) as http:
        assert (await http.request(method, path, params={"x": "1"})).status_code == 200
    assert agent.scopes[0].get("user") is None


async def test_the_card_of_the_application_can_be_for_callers_only() -> None:
    agent = Agent()
    rules = GuardRules(public_paths=["/health"])
    app = CardEnforcementMiddleware(agent, card=CARD, verifiers=verifiers(), readers=CardReaders.CALLERS, rules=rules)
    async with client(app) as http:
        for path in CARD_PATHS:
            assert (await http.get(path)).status_code == 401
            assert (await http.get(path, headers={"X-API-Key": KEY})).status_code == 200
        assert (await http.get("/health")).status_code == 200
    assert agent.paths == [*CARD_PATHS, "/health"]
    with pytest.raises(ConfigurationError, match="readers: write CardReaders"):
        CardEnforcementMiddleware(agent, card=CARD, verifiers=verifiers(), readers=["10.0.0.1"])  # type: ignore[arg-type]
    both = GuardRules(public_paths=CARD_PATHS)
    with pytest.raises(ConfigurationError, match="public_paths: it names the path of the card, which is for callers"):
        CardEnforcementMiddleware(agent, card=CARD, verifiers=verifiers(), readers=CardReaders.CALLERS, rules=both)


async def test_further_paths_are_public_by_their_exact_name() -> None:
    app = guarded(Agent(), public_paths=[*CARD_PATHS, "/health", "/docs/"])
    async with client(app) as http:
        for path, status in (("/health", 200), ("/docs/", 200), ("/health/", 401), ("/docs", 401), ("/Health", 401)):
            assert (await http.get(path)).status_code == status
        assert (await http.post("/health")).status_code == 401


@walk(
    "path",
    [
        "health",
        "",
        "/docs/*",
        "/{id}",
        "/a?b=c",
        "/a#b",
        "/%61",
        "/ü",
        "https://a/b",
        "//a",
        "/a//",
        "/a/../b",
        "/a/.",
        "/a b",
        "/a\\b",
        "/a\n",
    ],
)
def test_a_public_path_that_is_not_exact_does_not_start(path: str) -> None:
    with pytest.raises(ConfigurationError, match="write it as in requests"):
        guarded(Agent(), public_paths=[path])


# CORS

PREFLIGHT = {"Origin": "https://web.example", "Access-Control-Request-Method": "POST"}


async def test_a_preflight_passes_only_when_that_was_chosen() -> None:
    agent = Agent()
    async with client(guarded(agent)) as http:
        assert (await http.options(RPC, headers=PREFLIGHT)).status_code == 401
    async with client(guarded(agent, allow_cors_preflight=True)) as http:
        assert (await http.options(RPC, headers=PREFLIGHT)).status_code == 200
        assert len(agent.scopes) == 1
        for headers in ({}, {"Origin": "https://web.example"}, {"Access-Control-Request-Method": "POST"}):
            assert (await http.options(RPC, headers=headers)).status_code == 401
        for method in ("POST", "GET", "PUT", "options"):
            sent = await called(guarded(agent, allow_cors_preflight=True), http_scope(RPC, method, carried=PREFLIGHT))
            assert sent[0]["status"] == 401
    assert len(agent.scopes) == 1


async def test_a_preflight_brings_no_body_no_certificate_and_no_caller() -> None:
    received: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        received.extend((scope, await receive(), await receive()))

    carried = PREFLIGHT | {"Content-Length": "5", "Transfer_Encoding": "chunked", "Content-Type": "a/b", "X-Cert": "x"}
    claimed: dict[str, Any] = {"a2a_trust.client_certificate": (b"root's",)}
    app = guarded(app, allow_cors_preflight=True, client_certificates=Shown({b"x-cert"}))
    body = {"type": "http.request", "body": b"12345", "more_body": False}
    await called(app, http_scope(RPC, "OPTIONS", carried=carried, **claimed), body, {"type": "http.disconnect"})
    scope, first, second = received
    assert {name.decode() for name, _ in scope["headers"]} == {name.lower() for name in PREFLIGHT}
    assert "a2a_trust.client_certificate" not in scope
    assert is_public(scope)
    assert first == {"type": "http.request", "body": b"", "more_body": False}
    assert second == {"type": "http.disconnect"}


class Shown:
    """A source of certificates that takes these headers, and finds none or cannot tell."""

    def __init__(self, headers: set[bytes], error: Exception | None = None) -> None:
        self.headers, self.error = frozenset(headers), error

    def chain(self, scope: Any) -> tuple[bytes, ...]:
        if self.error is not None:
            raise self.error
        return ()


async def test_the_certificates_of_a_request_are_those_of_the_source_and_its_headers_are_for_the_guard_only() -> None:
    agent = Agent()
    scope = http_scope(carried=GOOD | {"X-Cert": "x"}) | {"a2a_trust.client_certificate": (b"root's",)}
    nothing = {"type": "http.request", "body": b"", "more_body": False}
    for source, expected in ((None, None), (Shown({b"x-cert"}), ())):
        await called(guarded(agent, client_certificates=source), scope, nothing)
        seen = agent.scopes.pop()
        assert seen.get("a2a_trust.client_certificate") == expected
        assert (b"x-cert" in dict(seen["headers"])) is (source is None)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidCredentialsError("forged"), 401),
        (AuthorizationError("not from there"), 403),
        (TooManyRequestsError("wait"), 429),
        (KeySourceUnavailableError("down"), 503),
    ],
)
async def test_what_a_source_of_certificates_rejects_is_refused(error: Exception, status: int) -> None:
    agent = Agent()
    sent = await called(guarded(agent, client_certificates=Shown(set(), error)), http_scope(carried=GOOD))
    assert (sent[0]["status"], agent.scopes) == (status, [])


# Other scopes than those of requests


def websocket_scope(carried: dict[str, str], **members: Any) -> dict[str, Any]:
    scope = http_scope(CARD_PATHS[0], carried=carried, **members) | {"type": "websocket"}
    del scope["method"]
    return scope


@pytest.mark.parametrize("carried", [{}, {"X-API-Key": "wrong"}, PREFLIGHT])
async def test_a_websocket_needs_a_credential_at_every_path(carried: dict[str, str]) -> None:
    agent = Agent()
    app, connect = guarded(agent, allow_cors_preflight=True), {"type": "websocket.connect"}
    several: list[dict[str, Any]] = [{"extensions": {}}, {"extensions": None}, {}]
    for extensions in several:
        closed = await called(app, websocket_scope(carried, **extensions), connect)
        assert closed == [{"type": "websocket.close", "code": 1008, "reason": ""}]
    start, body = await called(app, websocket_scope(carried, extensions={"websocket.http.response": {}}))
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 401)
    assert (body["type"], bool(body["body"])) == ("websocket.http.response.body", True)
    assert agent.scopes == []
    assert (await called(app, websocket_scope(GOOD), connect))[0] == {"type": "websocket.accept"}


async def test_a_lifespan_is_passed_as_it_is_and_its_end_tells_of_outages(caplog: pytest.LogCaptureFixture) -> None:
    passed: list[Any] = []

    async def app(*given: Any) -> None:
        passed.extend(given)

    async def receive() -> Any: ...
    async def send(message: Any) -> None: ...

    down = {**verifiers(), "oauth": Raising(KeySourceUnavailableError("down"))}
    judge, scope = guarded(app, verifiers=down), {"type": "lifespan"}
    for _ in range(3):
        await called(judge, http_scope(carried=BEARER))
    caplog.clear()
    await judge(scope, receive, send)
    assert passed[0] is scope
    assert passed[1] == receive
    assert len(caplog.records) == 1


@walk("kind", ["", "HTTP", "lifespan2", "webtransport", None])
async def test_a_scope_of_an_unknown_type_is_rejected(kind: Any) -> None:
    agent = Agent()
    with pytest.raises(ConfigurationError, match="is not understood"):
        await called(guarded(agent), http_scope(carried=GOOD) | {"type": kind})
    assert agent.scopes == []


async def test_the_nonce_for_the_next_proof_is_in_the_headers_of_the_answer_and_nowhere_else() -> None:
    agent, nonces = Agent(), ServerNonces(b"s" * 32)
    dpop = DPoP(url="http://agent.example", nonces=nonces)
    made = bound_token()
    sent = []
    for nonce in (nonces.given(NOW), nonces.given(NOW - 300)):
        shown = proof(made, htu="http://agent.example/rpc", nonce=nonce)
        scope = http_scope(carried={"Authorization": f"DPoP {made}", "DPoP": shown})
        sent.append(await called(guarded(agent, dpop=dpop), scope, {"type": "http.request", "body": b""}))
    (start, body), (start_with_nonce, same_body) = sent
    assert (start["status"], same_body) == (200, body)
    given = (b"dpop-nonce", nonces.given(NOW).encode())
    assert start_with_nonce == {**start, "headers": [*start["headers"], given]}
    refusal, _ = await called(guarded(agent, dpop=dpop), http_scope())
    assert (refusal["status"], refusal["headers"].count(given)) == (401, 1)
    assert not any("nonce" in name for scope in agent.scopes for name in scope)


@walk("option", ["allow_cors_preflight", "hide_credentials", "keep_subject_token"])
@walk("value", [None, 0, 1, "no"])
def test_an_option_that_is_neither_true_nor_false_does_not_start(option: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"^{option}: write True or False"):
        guarded(Agent(), **{option: value})


async def test_one_credential_that_browsers_attach_is_enough_to_ask_which_page_calls() -> None:
    schemes = {**CARD["securitySchemes"], "key": {"type": "apiKey", "in": "cookie", "name": "sid"}}
    both: dict[str, Any] = {"schemes": {"key": {"list": []}, "oauth": {"list": []}}}
    app = guarded(
        Agent(), {**CARD, "securitySchemes": schemes, "securityRequirements": [both]}, url="http://agent.example"
    )
    carried = BEARER | {"Cookie": f"sid={KEY}", "Origin": "https://evil.example"}
    assert (await called(app, http_scope(carried=carried)))[0]["status"] == 403


async def test_a_public_path_of_a_server_that_does_not_tell_the_raw_path_is_public() -> None:
    agent, scope = Agent(), http_scope(CARD_PATHS[0], "GET")
    del scope["raw_path"]
    await called(guarded(agent), scope, {"type": "http.request", "body": b"", "more_body": False})
    assert agent.paths == [CARD_PATHS[0]]


# Interfaces


@walk(
    ("interface", "fix"),
    [
        ({"url": "grpc.example:443", "protocolBinding": "GRPC"}, "rules=RequestRules(unguarded=['grpc.example:443'])"),
        (
            {"url": "http://agent.example/g", "protocolBinding": "GRPC"},
            "rules=RequestRules(unguarded=['http://agent.example/g'])",
        ),
        (
            {"url": "http://other.example/rpc", "protocolBinding": "JSONRPC"},
            "rules=RequestRules(unguarded=['http://other.example/rpc'])",
        ),
        (
            {"url": "http://agent.example:81/", "protocolBinding": "JSONRPC"},
            "rules=RequestRules(unguarded=['http://agent.example:81/'])",
        ),
        (
            {"url": "ws://agent.example/ws", "protocolBinding": "WS"},
            "rules=RequestRules(unguarded=['ws://agent.example/ws'])",
        ),
        ({"url": "http://agent.example/x"}, "rules=RequestRules(unguarded=['http://agent.example/x'])"),
        (
            {"url": "ftp://agent.example/x", "protocolBinding": "JSONRPC"},
            "rules=RequestRules(unguarded=['ftp://agent.example/x'])",
        ),
    ],
)
def test_an_interface_that_cannot_be_guarded_here_has_to_be_named(interface: dict[str, Any], fix: str) -> None:
    card = {**CARD, "supportedInterfaces": [*CARD["supportedInterfaces"], interface]}
    with pytest.raises(ConfigurationError) as caught:
        guarded(Agent(), card)
    assert str(caught.value).startswith("/supportedInterfaces/2/url: this application cannot guard")
    assert fix in str(caught.value)
    assert isinstance(guarded(Agent(), card, unguarded=[interface["url"]]), CardEnforcementMiddleware)


def test_an_unguarded_interface_that_the_card_does_not_have_does_not_start() -> None:
    with pytest.raises(ConfigurationError, match=r"unguarded: the card has no interface http://x\.example/"):
        guarded(Agent(), unguarded=["http://x.example/"])


def test_interfaces_of_0_3_are_guarded_too() -> None:
    card = {**CARD, "url": "http://agent.example/old", "additionalInterfaces": [{"url": "a:1", "transport": "GRPC"}]}
    with pytest.raises(ConfigurationError, match="/additionalInterfaces/0/url: this application cannot guard a:1"):
        guarded(Agent(), card)
    assert isinstance(guarded(Agent(), card, unguarded=["a:1"]), CardEnforcementMiddleware)


# Streams, under real servers


async def chatter(request: Request) -> StreamingResponse:
    """Three events, the later ones only when the test has seen the earlier: nothing may be held back."""
    gates: list[asyncio.Event] = request.app.state.gates

    async def events() -> Any:
        for number, gate in enumerate(gates):
            yield f"data: {number}\n\n"
            await gate.wait()

    return StreamingResponse(events(), media_type="text/event-stream")


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_events_arrive_one_by_one_under_a_real_server(http: str) -> None:
    app = Starlette(routes=[Mount("/rpc", Starlette(routes=[Route("/", chatter, methods=["POST"])]))])
    gates = [asyncio.Event() for _ in range(3)]
    for mounted in app.routes:
        mounted.app.state.gates = gates  # type: ignore[attr-defined]
    async with uvicorn_serving(guarded(app), http) as origin, httpx.AsyncClient(base_url=origin) as caller:
        assert (await caller.post("/rpc/", content=b"x" * 100_000)).status_code == 401
        async with caller.stream("POST", "/rpc/", headers=GOOD, content=b"{}") as answer:
            assert answer.status_code == 200
            seen = []
            async for line in answer.aiter_lines():
                if line:
                    seen.append(line)
                    gates[len(seen) - 1].set()
    assert seen == ["data: 0", "data: 1", "data: 2"]


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_a_disconnected_listener_is_noticed_by_the_application(http: str) -> None:
    noticed = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        noticed.set()

    async with uvicorn_serving(guarded(app), http) as origin, httpx.AsyncClient(base_url=origin) as caller:
        async with caller.stream("POST", RPC, headers=GOOD) as answer:
            assert await anext(answer.aiter_bytes()) == b"first"
        await asyncio.wait_for(noticed.wait(), 60)


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_refusals_and_answers_on_one_connection_of_a_real_server(http: str) -> None:
    agent = Agent()
    async with (
        uvicorn_serving(guarded(agent), http) as origin,
        httpx.AsyncClient(base_url=origin, limits=httpx.Limits(max_connections=1)) as caller,
    ):
        for _ in range(2):
            refused = await caller.post(RPC, content=b'{"id": 1}')
            assert (refused.status_code, refused.json()["id"]) == (401, None)
            challenges = ['ApiKey in="header", name="X-API-Key"', 'Bearer scope="read"']
            assert refused.headers.get_list("www-authenticate") == challenges
            assert (await caller.post(RPC, headers=GOOD, content=b"123")).json()["read"] == 3
            head = await caller.head(REST)
            assert (head.status_code, head.content) == (401, b"")
            assert (await caller.get("/.well-known/agent-card.json")).status_code == 200
            assert (await caller.get("/.well-known/agent-card.json/")).status_code == 401
    assert agent.paths == [RPC, "/.well-known/agent-card.json"] * 2


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_the_lifespan_of_a_real_server_reaches_the_application(http: str) -> None:
    agent = Agent()
    async with uvicorn_serving(guarded(agent), http, lifespan="on") as origin:
        request = f"POST /rpc HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-API-Key: {KEY}\r\n\r\n"
        assert (await raw_exchange(origin, request.encode()))[0] == 200
    assert [scope["type"] for scope in agent.scopes] == ["lifespan", "http"]


class NoSource:
    """A source of certificates that rejects every second request."""

    headers: frozenset[bytes] = frozenset({b"x-client-cert"})

    def __init__(self) -> None:
        self.asked = 0

    def chain(self, scope: Any) -> tuple[bytes, ...]:
        self.asked += 1
        if self.asked % 2 == 0:
            raise InvalidCredentialsError("two certificates")
        return ()


async def test_the_source_of_certificates_is_asked_also_for_callers_who_were_here_before() -> None:
    agent, source = Agent(), NoSource()
    app = guarded(agent, client_certificates=source)
    async with client(app) as http:
        assert [(await http.post(RPC, headers=GOOD)).status_code for _ in range(4)] == [200, 401, 200, 401]
    assert source.asked == 4


async def test_a_caller_who_was_here_before_meets_the_same_application() -> None:
    """All that the application sees is the same as on the whole way, which the first request takes."""
    agent = Agent()
    app = guarded(agent)
    carried = {**GOOD, "Cookie": "a=b", "X-Other": "1"}
    scope = http_scope(carried=carried)
    for _ in range(2):
        await called(app, {**scope, "headers": [*scope["headers"]]}, {"type": "http.request", "body": b""})
    whole, at_once = agent.scopes
    assert cached(app.access.guard, http_scope(carried=carried), NOW) is principal_of(at_once)
    for name in whole.keys() | at_once.keys():
        if name != "auth":
            assert whole[name] == at_once[name]
    assert whole["auth"].scopes == at_once["auth"].scopes
    assert whole["auth"].caller == at_once["auth"].caller
    assert dict(at_once["headers"]).keys() == {b"cookie", b"x-other"}
