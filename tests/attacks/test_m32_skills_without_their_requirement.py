"""M32: a skill demands more than the card, and works without it; or an error of a handler tells a stranger why.

Found in a walk through the sample card of the specification: the credential of a skill was not verified, and errors of
handlers were answers with the status 500.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.card.operations import METHODS, Binding, Operation
from a2a_trust.card.schema import Generation
from a2a_trust.errors import AuthorizationError, ConfigurationError, KeySourceUnavailableError
from a2a_trust.middleware import CallerRejectedError, RequestRules, protect, require_skill
from a2a_trust.middleware.calls import Call
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys, claims, token
from tests.middleware.agent import uvicorn_serving
from tests.tables import walk

pytestmark = pytest.mark.anyio

STORE = MemoryApiKeys()
KEY = STORE.create(owner="ann", scopes=["pay"]).text
COOKIE = STORE.create(owner="ann", scopes=["pay"]).text
CARD: dict[str, Any] = {
    "name": "agent",
    "supportedInterfaces": [
        {"url": "http://agent.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "securitySchemes": {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
        "session": {"apiKeySecurityScheme": {"location": "cookie", "name": "sid"}},
        "oauth": {"oauth2SecurityScheme": {"flows": {}}},
    },
    "securityRequirements": [{"schemes": {"key": {}}}],
    "skills": [
        {"id": "pay", "securityRequirements": [{"schemes": {"oauth": {"list": ["pay"]}}}]},
        {"id": "browse", "securityRequirements": [{"schemes": {"session": {}}}]},
    ],
}
CALL: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {}}
KEYED = {"X-API-Key": KEY}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def bearer(**changes: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(claims(**changes))}"}


class Agent:
    """It does the skill of the request's header, and counts how often."""

    def __init__(self, *, by_guard: bool = False, keys: Any = None) -> None:
        self.done = 0
        self.skill = "pay"
        app = Starlette(routes=[Route("/rpc", self._work, methods=["POST"])])
        verifiers: dict[str, Any] = {
            "key": ApiKeyVerifier(STORE),
            "session": ApiKeyVerifier(STORE),
            "oauth": JwtVerifier(keys or Keys(EC), issuer=ISSUER, audience=AUDIENCE),
        }
        self._by_guard = by_guard
        rules = (
            RequestRules(skill_of=lambda call, body: self.skill)
            if by_guard
            else RequestRules(handlers_check_skills=True)
        )
        self.app = protect(app, card=CARD, verifiers=verifiers, rules=rules, clock=lambda: NOW)

    async def _work(self, request: Request) -> JSONResponse:
        if not self._by_guard:
            require_skill(request, self.skill)
        self.done += 1
        return JSONResponse({})

    async def statuses(self, carried: list[dict[str, str]]) -> list[int]:
        async with uvicorn_serving(self.app, "h11") as origin, httpx.AsyncClient(base_url=origin) as http:
            return [(await http.post("/rpc", json=CALL, headers=each)).status_code for each in carried]


@walk("by_guard", [False, True])
async def test_nothing_but_its_own_credential_opens_a_skill(by_guard: bool) -> None:
    agent = Agent(by_guard=by_guard)
    answers = {
        401: [
            {},
            KEYED,  # its own scope "pay" is one of another scheme
            bearer(scope="pay"),  # the card's own credential is missing
            {**KEYED, "Authorization": "Bearer garbage"},
            {**KEYED, **bearer(scope="pay", exp=NOW - 1_000)},
            {**KEYED, **bearer(scope="pay", aud="another agent")},
            {**KEYED, **bearer(scope="pay", cnf={"jkt": "a" * 43})},  # bound to a key that nobody proves
            {**KEYED, "Authorization": f"Bearer {KEY}"},
        ],
        403: [{**KEYED, **bearer(scope="read")}],
    }
    for status, carried in answers.items():
        assert await agent.statuses(carried) == [status] * len(carried)
    assert agent.done == 0
    assert await agent.statuses([{**KEYED, **bearer(scope="pay")}]) == [200]
    agent.skill = "another"
    assert await agent.statuses([{**KEYED, **bearer(scope="pay")}]) == [403]
    assert agent.done == 1


async def test_an_invalid_credential_of_any_skill_stops_every_call() -> None:
    agent = Agent()
    good = {**KEYED, **bearer(scope="pay")}
    assert await agent.statuses([{**good, "Cookie": "sid=garbage"}, {**good, "Cookie": "sid="}]) == [401, 401]
    assert agent.done == 0


async def test_a_page_of_another_site_cannot_use_the_cookie_of_a_skill() -> None:
    agent = Agent()
    agent.skill = "browse"
    mine = {**KEYED, "Cookie": f"sid={COOKIE}"}
    cross = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert await agent.statuses([{**mine, **cross}]) == [403]
    assert agent.done == 0
    assert await agent.statuses([{**mine, "Sec-Fetch-Site": "same-origin"}]) == [200]


async def test_an_outage_of_a_skills_issuer_opens_nothing() -> None:
    keys = Keys(EC)
    keys.down = True
    agent = Agent(keys=keys)
    assert await agent.statuses([{**KEYED, **bearer(scope="pay")}]) == [503]
    agent.skill = "browse"
    assert await agent.statuses([{**KEYED, **bearer(scope="pay")}]) == [401]
    assert agent.done == 0


@walk("error", [AuthorizationError(f"{KEY} is not enough"), KeySourceUnavailableError(f"{KEY} is lost")])
async def test_no_caller_reads_why_a_handler_fails(error: Exception) -> None:
    async def fail(request: Request) -> JSONResponse:
        raise error

    app = protect(
        Starlette(routes=[Route("/rpc", fail, methods=["POST"])]),
        card={**CARD, "skills": []},
        verifiers={"key": ApiKeyVerifier(STORE)},
    )
    async with uvicorn_serving(app, "h11") as origin, httpx.AsyncClient(base_url=origin) as http:
        answer = await http.post("/rpc", json=CALL, headers=KEYED)
    assert answer.status_code in (403, 500)
    assert KEY not in answer.text + str(answer.headers)


async def test_the_rejection_of_one_caller_answers_no_other_one() -> None:
    """The first failure of a task that callers share is raised in the requests of all of them, as by a2a-sdk 1.0.0."""
    raised: list[CallerRejectedError] = []

    async def work(request: Request) -> JSONResponse:
        try:
            require_skill(request, "pay")
        except CallerRejectedError as error:
            raised.append(error)
        raise raised[0]

    app = protect(
        Starlette(routes=[Route("/rpc", work, methods=["POST"])], exception_handlers={CallerRejectedError: again}),
        card=CARD,
        verifiers={name: ApiKeyVerifier(STORE) for name in ("key", "session")}
        | {"oauth": JwtVerifier(Keys(EC), issuer=ISSUER, audience=AUDIENCE)},
        rules=RequestRules(handlers_check_skills=True),
        clock=lambda: NOW,
    )
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as http:
        first = await http.post("/rpc", json=CALL, headers=KEYED)
        other = await http.post("/rpc", json=CALL, headers={**KEYED, **bearer(scope="pay")})
    assert (first.status_code, other.status_code) == (401, 500)
    assert "www-authenticate" not in other.headers


async def again(request: Request, error: Exception) -> JSONResponse:
    raise error


def test_the_rule_of_the_error_finds_every_way_to_begin_work() -> None:
    with pytest.raises(ConfigurationError, match="skill_of: write a function") as caught:
        RequestRules(skill_of="search")  # type: ignore[arg-type]
    rule = eval(str(caught.value).partition("skill_of=")[2])
    begins = (Operation.SEND_MESSAGE, Operation.SEND_STREAMING_MESSAGE)
    calls = [Call(Binding.JSONRPC, *named, method) for method, named in METHODS.items()]
    calls += [Call(Binding.HTTP_JSON, Generation.V1_0, operation) for operation in Operation]
    assert [rule(call, b"") for call in calls] == ["search" if call.operation in begins else None for call in calls]
