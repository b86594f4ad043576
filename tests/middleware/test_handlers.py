"""Handlers that reject their caller: the answer, through Starlette, FastAPI and plain ASGI, on real servers too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.auth.throttle import FailureLimits
from a2a_trust.client import ApiKey, BearerToken, verifying_client
from a2a_trust.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigurationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    TooManyRequestsError,
)
from a2a_trust.middleware import CallerRejectedError, CardServing, RequestRules, protect, reject_caller, require_skill
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys, claims, token
from tests.client.agents import OWNER, OWNER_TRUSTED
from tests.middleware.agent import Agent, guarded, raw_exchange, uvicorn_serving

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def georoute() -> dict[str, Any]:
    """The sample card of the specification, with a key for every call and a scope of Google for one skill."""
    card: dict[str, Any] = json.loads(Path("examples/georoute-agent-card.json").read_text())
    card["supportedInterfaces"] = card["supportedInterfaces"][:1]
    card["supportedInterfaces"][0]["url"] = "http://agent.example/rpc"
    card["capabilities"] = {}
    key = {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}
    card["securitySchemes"] = {"key": key, "google": {"oauth2SecurityScheme": {"flows": {}}}}
    card["securityRequirements"] = [{"schemes": {"key": {"list": []}}}]
    wanted = {"schemes": {"google": {"list": ["maps.write"]}}}
    card["skills"][1]["securityRequirements"] = [wanted]
    return card


STORE = MemoryApiKeys()
KEY = STORE.create(owner="ann").text
SKILL = "custom-map-generator"
KEYED = {"X-API-Key": KEY}
POST = {"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": {}}


def google(**changes: Any) -> dict[str, str]:
    return {**KEYED, "Authorization": f"Bearer {token(claims(**changes))}"}


def shield(
    app: Any,
    card: dict[str, Any] | None = None,
    *,
    keys: Any = None,
    serving: CardServing = CardServing(),  # noqa: B008
    **rules: Any,
) -> Any:
    verifiers: dict[str, Any] = {
        "key": ApiKeyVerifier(STORE),
        "google": JwtVerifier(keys or Keys(EC), issuer=ISSUER, audience=AUDIENCE),
    }
    given: dict[str, Any] = {} if "skill_of" in rules else {"handlers_check_skills": True}
    options: dict[str, Any] = {"rules": RequestRules(**given, **rules), "serving": serving, "clock": lambda: NOW}
    return protect(app, card=card or georoute(), verifiers=verifiers, **options)


def client(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example")


async def draw(request: Request) -> JSONResponse:
    caller = require_skill(request, SKILL)
    found = caller.by_scheme("google")
    return JSONResponse([caller.id, found and found.subject])


def drawing() -> Starlette:
    return Starlette(routes=[Route("/rpc", draw, methods=["POST"])])


async def test_a_skill_has_requirements_of_its_own() -> None:
    async with client(shield(drawing())) as http:
        answer = await http.post("/rpc", json=POST, headers=google(scope="maps.write"))
        assert (answer.status_code, answer.json()) == (200, ["ann@api-keys", "alice"])

        missing = await http.post("/rpc", json=POST, headers=KEYED)
        assert missing.status_code == 401
        assert missing.headers["www-authenticate"] == 'Bearer scope="maps.write"'
        assert missing.json() == {"jsonrpc": "2.0", "id": 7, "error": missing.json()["error"]}

        lacking = await http.post("/rpc", json=POST, headers=google(scope="maps.read"))
        assert lacking.status_code == 403
        assert lacking.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="maps.write"'


async def test_a_wrong_credential_of_a_skill_is_always_401() -> None:
    agent = Agent()
    async with client(shield(agent)) as http:
        for bad in ("garbage", token(claims(exp=NOW - 1_000)), token(claims(aud="other"))):
            carried = {**KEYED, "Authorization": f"Bearer {bad}"}
            answer = await http.post("/rpc", json=POST, headers=carried)
            assert answer.status_code == 401
            challenges = answer.headers.get_list("www-authenticate")
            assert 'Bearer error="invalid_token"' in challenges
        assert agent.scopes == []


async def test_the_credential_of_a_skill_is_none_for_the_card() -> None:
    agent = Agent()
    async with client(shield(agent)) as http:
        bearer = {"Authorization": google()["Authorization"]}
        answer = await http.post("/rpc", json=POST, headers=bearer)
        assert answer.status_code == 401
        assert answer.headers.get_list("www-authenticate") == ['ApiKey in="header", name="X-API-Key"']
        assert agent.scopes == []


async def test_handlers_see_the_callers_skill_credential_and_not_its_text() -> None:
    agent = Agent()
    async with client(shield(agent)) as http:
        await http.post("/rpc", json=POST, headers=google(scope="maps.write"))
    (scope,) = agent.scopes
    caller = scope["user"]
    assert (caller.id, caller.scopes) == ("ann@api-keys", frozenset())
    assert caller.by_scheme("google").scopes == {"maps.write"}
    assert not [name for name, _ in scope["headers"] if name in (b"authorization", b"x-api-key")]


async def test_an_outage_of_a_skills_issuer_is_503_for_the_skill_only() -> None:
    routes = [Route("/rpc", draw, methods=["POST"]), Route("/own", lambda _: PlainTextResponse("own"))]
    keys = Keys(EC)
    keys.down = True
    async with client(shield(Starlette(routes=routes), keys=keys)) as http:
        assert (await http.get("/own", headers=google())).text == "own"
        answer = await http.post("/rpc", json=POST, headers=google())
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert (await http.post("/rpc", json=POST, headers=KEYED)).status_code == 401


async def test_an_unknown_skill_is_403() -> None:
    async def work(request: Request) -> None:
        require_skill(request, "no-such-skill")

    async with client(shield(Starlette(routes=[Route("/own", work)]))) as http:
        assert (await http.get("/own", headers=google(scope="maps.write"))).status_code == 403


async def test_a_skill_without_requirements_admits_every_caller_of_the_card() -> None:
    async def work(request: Request) -> PlainTextResponse:
        return PlainTextResponse(require_skill(request, "route-optimizer-traffic").label)

    async with client(shield(Starlette(routes=[Route("/own", work)]))) as http:
        assert (await http.get("/own", headers=KEYED)).text == "ann"


async def test_the_guard_itself_checks_the_skill_that_a_rule_finds() -> None:
    agent = Agent()

    def skill_of(call: Any, body: bytes) -> str | None:
        return SKILL if json.loads(body)["id"] == 7 and call.method == "SendMessage" else None

    async with client(shield(agent, skill_of=skill_of)) as http:
        answer = await http.post("/rpc", json=POST, headers=KEYED)
        assert (answer.status_code, answer.json()["id"]) == (401, 7)
        assert answer.headers["www-authenticate"] == 'Bearer scope="maps.write"'
        assert (await http.post("/rpc", json=POST, headers=google(scope="other"))).status_code == 403
        assert agent.scopes == []
        assert (await http.post("/rpc", json=POST, headers=google(scope="maps.write"))).status_code == 200
        assert (await http.post("/rpc", json={**POST, "id": 8}, headers=KEYED)).status_code == 200


async def test_a_rule_that_fails_admits_nobody() -> None:
    agent = Agent()

    def fails(call: Any, body: bytes) -> str | None:
        raise LookupError(body)

    for rule, error in ((fails, LookupError), (lambda call, body: ["x"], TypeError)):
        async with client(shield(agent, skill_of=rule)) as http:
            with pytest.raises(error):
                await http.post("/rpc", json=POST, headers=google(scope="maps.write"))
    assert agent.scopes == []


async def test_a_caller_without_credential_where_a_card_admits_everybody() -> None:
    card = {**georoute(), "securityRequirements": [{}]}
    async with client(shield(drawing(), card, allow_anonymous=True)) as http:
        assert (await http.post("/rpc", json=POST)).status_code == 401
        answer = await http.post(
            "/rpc", json=POST, headers={"Authorization": google(scope="maps.write")["Authorization"]}
        )
        assert (answer.status_code, answer.json()[1]) == (200, "alice")
        assert answer.json()[0].startswith("anonymous:")


def test_cards_whose_skills_cannot_be_told_apart_do_not_start() -> None:
    card = georoute()
    card["skills"][0]["id"] = SKILL
    with pytest.raises(ConfigurationError, match="two skills of the card have the id"):
        shield(Agent(), card)


def failing(error: Exception) -> Callable[[Request], None]:
    def fail(request: Request) -> None:
        raise error

    return fail


ERRORS: list[tuple[Exception, int]] = [
    (AuthorizationError("not the owner"), 403),
    (AuthenticationError("log in again"), 401),
    (TooManyRequestsError("slowly", retry_after=9), 429),
]


def starlette(fail: Callable[[Request], Any]) -> Any:
    async def work(request: Request) -> None:
        fail(request)

    return Starlette(routes=[Route("/own", work)])


def fastapi(fail: Callable[[Request], Any]) -> Any:
    app = FastAPI()
    app.get("/own", dependencies=[Depends(fail)])(list)
    return app


def mounted(fail: Callable[[Request], Any]) -> Any:
    return Starlette(routes=[Mount("/", app=fastapi(fail))])


def debugging(fail: Callable[[Request], Any]) -> Any:
    async def work(request: Request) -> None:
        fail(request)

    return Starlette(debug=True, routes=[Route("/own", work)])


def passing(fail: Callable[[Request], Any]) -> Any:
    async def pass_on(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    app = starlette(fail)
    app.user_middleware.append(Middleware(BaseHTTPMiddleware, dispatch=pass_on))
    return app


def grouped(fail: Callable[[Request], Any]) -> Any:
    async def work(request: Request) -> None:
        async def inner() -> None:
            fail(request)

        async with asyncio.TaskGroup() as group:
            group.create_task(inner())

    return Starlette(routes=[Route("/own", work)])


def plain(fail: Callable[[Request], Any]) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        fail(Request(scope))

    return app


APPS = [starlette, fastapi, mounted, debugging, passing, grouped, plain]


@pytest.mark.parametrize("make", APPS)
@pytest.mark.parametrize(("error", "status"), ERRORS)
async def test_errors_that_reject_the_caller_are_answers(make: Any, error: Exception, status: int) -> None:
    def fail(request: Request) -> None:  # also called in a thread, by FastAPI
        raise type(error)(*error.args, **({"retry_after": 9} if status == 429 else {}))

    async with client(shield(make(fail))) as http:
        answer = await http.get("/own", headers=KEYED)
    assert answer.status_code == status
    assert answer.headers["cache-control"] == "no-store"
    assert str(error) not in answer.text
    assert answer.headers.get("retry-after") == ("9" if status == 429 else None)
    assert ("www-authenticate" in answer.headers) == (status != 429)


@pytest.mark.parametrize("make", APPS)
async def test_other_errors_stay_errors_of_the_server(make: Any) -> None:
    for error in (InvalidCredentialsError("of another server"), KeySourceUnavailableError("x"), ValueError("x")):
        fail = failing(error)
        app = shield(make(fail))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as http:
            assert (await http.get("/own", headers=KEYED)).status_code == 500
        with pytest.raises((type(error), ExceptionGroup)) as raised:
            async with client(shield(make(fail))) as http:
                await http.get("/own", headers=KEYED)
        assert raised.value is error or getattr(raised.value, "exceptions", ()) == (error,)


async def test_what_a_handler_catches_or_answers_itself_stays() -> None:
    async def catch(request: Request) -> PlainTextResponse:
        with pytest.raises(CallerRejectedError):
            require_skill(request, SKILL)
        return PlainTextResponse("less", status_code=int(request.query_params["status"]))

    app = Starlette(routes=[Route("/own", catch)])

    async def own_answer(request: Request, error: Exception) -> PlainTextResponse:
        return PlainTextResponse("mine", status_code=418)

    app.add_exception_handler(AuthorizationError, own_answer)
    app.router.routes.append(
        Route("/mine", starlette(lambda _: (_ for _ in ()).throw(ERRORS[0][0])).routes[0].endpoint)
    )
    async with client(shield(app)) as http:
        for status in (200, 404):
            answer = await http.get("/own", params={"status": status}, headers=KEYED)
            assert (answer.status_code, answer.text) == (status, "less")
        # An error of the server, after it has noted that it rejects the caller, is that rejection.
        assert (await http.get("/own", params={"status": 500}, headers=KEYED)).status_code == 401
        assert (await http.get("/mine", headers=KEYED)).status_code == 418


async def test_an_answer_that_has_begun_is_not_changed() -> None:
    async def some() -> Any:
        yield b"some"
        raise AuthorizationError("too late")

    routes = [Route("/own", lambda _: StreamingResponse(some()))]
    async with client(shield(Starlette(routes=routes))) as http:
        with pytest.raises(AuthorizationError, match="too late"):
            await http.get("/own", headers=KEYED)


async def test_errors_of_the_server_pass_unchanged() -> None:
    done: list[int] = []

    async def pieces() -> Any:
        yield b"a"
        yield b"b"

    routes = [
        Route("/short", lambda _: PlainTextResponse("down", 500, background=BackgroundTask(done.append, 1))),
        Route("/long", lambda _: StreamingResponse(pieces(), 500)),
        Route("/other", lambda _: PlainTextResponse("away", 503)),
    ]
    async with client(shield(Starlette(routes=routes))) as http:
        for path, status, text in (("/short", 500, "down"), ("/long", 500, "ab"), ("/other", 503, "away")):
            answer = await http.get(path, headers=KEYED)
            assert (answer.status_code, answer.text) == (status, text)
    assert done == [1]


@pytest.mark.parametrize("make", APPS)
async def test_a_skill_that_is_missing_is_401_in_every_application(make: Any) -> None:
    def fail(request: Request) -> None:
        require_skill(request, SKILL)

    async with client(shield(make(fail))) as http:
        answer = await http.get("/own", headers=KEYED)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer scope="maps.write"')


async def test_no_part_of_an_answer_that_is_replaced_is_sent() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        with pytest.raises(CallerRejectedError):
            require_skill(Request(scope), SKILL)
        await send({"type": "http.response.start", "status": 500, "headers": [(b"x-own", b"1")]})
        for _ in range(3):
            await send({"type": "http.response.body", "body": b"own", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async with client(shield(app)) as http:
        answer = await http.get("/own", headers=KEYED)
    assert (answer.status_code, "x-own" in answer.headers, "own" in answer.text) == (401, False, False)


@pytest.mark.parametrize("last", [{"type": "http.response.pathsend", "path": "/x"}, {"type": "http.response.trailers"}])
async def test_only_whole_bodies_are_held_back(last: dict[str, Any]) -> None:
    """A file of an answer may be gone when the application returns."""
    sent: list[dict[str, Any]] = []
    start = {"type": "http.response.start", "status": 500, "headers": []}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start)
        await send(last)
        assert sent[-1] is last

    async def keep(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"x-api-key", KEY.encode())]
    await shield(app)({"type": "http", "method": "GET", "path": "/own", "headers": headers}, None, keep)
    assert sent[1] is last


async def test_an_application_that_waits_for_its_client_after_an_error_ends() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "http.request"
        await PlainTextResponse("down", 500)(scope, receive, send)
        assert await receive() == {"type": "http.disconnect"}

    async with uvicorn_serving(shield(app), "h11") as origin, httpx.AsyncClient(base_url=origin) as http:
        answer = await http.get("/own", headers=KEYED)
    assert (answer.status_code, answer.text) == (500, "down")


async def test_reject_caller_takes_only_errors_about_the_caller() -> None:
    def fail(request: Request) -> None:
        for error in (InvalidCredentialsError("x"), ValueError("x"), ConfigurationError("x")):
            with pytest.raises(ConfigurationError, match="reject_caller: write"):
                reject_caller(request, error)  # type: ignore[arg-type]
        reject_caller(request, AuthorizationError("x"))

    async with client(shield(starlette(fail))) as http:
        assert (await http.get("/own", headers=KEYED)).status_code == 403


async def test_a_rejection_by_a_handler_counts_for_no_limit() -> None:
    limits = FailureLimits(by_credential="1/minute", by_peer="1/minute")
    async with client(shield(drawing(), failures=limits)) as http:
        for _ in range(5):
            assert (await http.post("/rpc", json=POST, headers=KEYED)).status_code == 401
        assert (await http.post("/rpc", json=POST, headers=google(scope="maps.write"))).status_code == 200


async def test_the_audit_trail_has_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "a2a_trust.audit")
    async with client(shield(drawing())) as http:
        await http.post("/rpc", json=POST, headers=KEYED)
    (event,) = [record.__dict__["audit"] for record in caplog.records]
    assert (event["reason"], event["caller"]) == ("missing-credentials", "ann@api-keys")
    assert "the skill 'custom-map-generator'" in event["detail"]


async def test_an_errors_scopes_cannot_write_into_the_challenge() -> None:
    def fail(request: Request) -> None:
        raise AuthorizationError("x", by_scheme={"google": ('a", x="', "b\r\nSet-Cookie: c"), "none": ("d",)})

    async with client(shield(starlette(fail))) as http:
        answer = await http.get("/own", headers=KEYED)
    assert (answer.status_code, set(answer.headers)) == (
        403,
        {"cache-control", "content-type", "content-length", "www-authenticate"},
    )
    assert 'x="' not in answer.headers["www-authenticate"].replace("name=", "").replace('in="', "")


def test_without_a_guard_nothing_is_required_in_silence() -> None:
    with pytest.raises(ConfigurationError, match="require_skill: this request did not come through"):
        require_skill(Request({"type": "http", "headers": []}), SKILL)


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_on_real_servers(http: str) -> None:
    async def socket(websocket: WebSocket) -> None:
        require_skill(websocket, SKILL)

    app = Starlette(routes=[Route("/rpc", draw, methods=["POST"]), WebSocketRoute("/socket", socket)])
    async with uvicorn_serving(shield(app), http, ws="wsproto") as origin:
        async with httpx.AsyncClient(base_url=origin) as caller:
            answer = await caller.post("/rpc", json=POST, headers=KEYED)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer scope="maps.write"')
        handshake = (
            b"GET /socket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nX-API-Key: "
        )
        status, _ = await raw_exchange(origin, handshake + KEY.encode() + b"\r\n\r\n", b"\r\n\r\n")
        assert status in (401, 403)


@pytest.mark.parametrize("skills", [[], [SKILL]])
async def test_a_verifying_client_sends_what_the_skill_demands(skills: list[str]) -> None:
    guarded: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await guarded[0](scope, receive, send)

    async with uvicorn_serving(app, "h11") as origin:
        card = georoute()
        card["supportedInterfaces"][0]["url"] = f"{origin}/rpc"
        guarded.append(shield(drawing(), card, serving=CardServing(signer=OWNER)))
        credentials: dict[str, Any] = {
            "key": ApiKey(KEY, origins=[origin]),
            "google": BearerToken(token(claims(scope="maps.write")), origins=[origin]),
        }
        options: dict[str, Any] = {"trust": OWNER_TRUSTED, "credentials": credentials, "clock": lambda: NOW}
        async with verifying_client(origin, skills=skills, **options) as http:
            if skills:
                assert (await http.post(f"{origin}/rpc", json=POST)).json() == ["ann@api-keys", "alice"]
            else:
                with pytest.raises(httpx.HTTPStatusError) as raised:
                    await http.post(f"{origin}/rpc", json=POST)
                assert raised.value.response.status_code == 401


async def test_the_middleware_alone_does_the_same() -> None:
    async with client(guarded(starlette(lambda _: (_ for _ in ()).throw(AuthorizationError("x"))))) as http:
        from tests.middleware.agent import KEY as READER

        assert (await http.get("/own", headers={"X-API-Key": READER})).status_code == 403
