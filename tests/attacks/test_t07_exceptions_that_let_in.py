"""T7: one scheme's verifier fails in an unforeseen way, and the request goes on as that of an anonymous caller.

Seen in LiteLLM (CVE-2026-59822 and another).
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from a2a_trust.auth.basic.verifier import BasicVerifier
from a2a_trust.auth.principal import Identity
from a2a_trust.errors import (
    AuthenticationError,
    ConfigurationError,
    FetchError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MalformedError,
    MissingCredentialsError,
)
from tests.auth.test_jwt import token
from tests.middleware.agent import CARD, KEY, Agent, guarded, raw_exchange, uvicorn_serving, verifiers
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


OPEN = {**CARD, "securityRequirements": [*CARD["securityRequirements"], {}]}
FORESEEN = [InvalidCredentialsError("x"), MissingCredentialsError("x"), AuthenticationError("x")]
UNFORESEEN = [KeyError("x"), TypeError("x"), RuntimeError("x"), MalformedError("x"), FetchError("x"), OSError("x")]
UNFORESEEN += [ConfigurationError("x"), StopAsyncIteration(), TimeoutError("x"), LookupError("x"), RecursionError("x")]


class Failing:
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def verify(self, credential: str, now: float) -> Identity:
        raise self.error


def failing_agent(error: Exception, agent: Agent) -> Any:
    given = {**verifiers(), "oauth": Failing(error)}
    return guarded(agent, OPEN, verifiers=given, allow_anonymous=True)


def client(app: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://agent.example")


TOKEN = {"Authorization": "Bearer x"}


@walk("beside", [{}, {"X-API-Key": KEY}])
@walk(
    ("error", "status"),
    [
        *((error, 401) for error in FORESEEN),
        (KeySourceUnavailableError("x"), 503),
        *((error, 500) for error in UNFORESEEN),
    ],
)
async def test_whatever_a_verifier_raises_nobody_is_let_in_by_it(
    error: Exception, status: int, beside: dict[str, str]
) -> None:
    agent = Agent()
    async with client(failing_agent(error, agent)) as http:
        # Who is out of reach has rejected nothing: the good key lets the caller in, and nothing else does.
        is_let_in = status == 503 and bool(beside)
        assert (await http.post("/rpc", headers=TOKEN | beside)).status_code == (200 if is_let_in else status)
        assert len(agent.scopes) == is_let_in
        # The scheme that fails is not asked when no credential of its kind came.
        assert (await http.post("/rpc", headers=beside)).status_code == 200


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_under_a_real_server_an_unforeseen_error_is_500_and_the_agent_is_not_reached(http: str) -> None:
    agent = Agent()
    async with uvicorn_serving(failing_agent(RuntimeError("secret"), agent), http) as origin:
        request = f"POST /rpc HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer {token()}\r\n\r\n"
        status, answer = await raw_exchange(origin, request.encode())
    assert (status, agent.scopes) == (500, [])
    assert b"secret" not in answer


OF_BASIC: dict[str, Any] = {
    **OPEN,
    "securitySchemes": {**CARD["securitySchemes"], "login": {"httpAuthSecurityScheme": {"scheme": "basic"}}},
    "securityRequirements": [{"schemes": {"login": {"list": []}}}, *OPEN["securityRequirements"]],
}


@walk("beside", [{}, {"X-API-Key": KEY}])
@walk(
    ("outcome", "status"),
    [
        *((error, 401 if type(error) is InvalidCredentialsError else 503) for error in (*FORESEEN, *UNFORESEEN)),
        (None, 401),
        *((value, 500) for value in (True, "ann", {"subject": "ann"}, 1)),
    ],
)
async def test_whatever_a_function_of_passwords_does_nobody_is_let_in_by_it(
    outcome: Any, status: int, beside: dict[str, str]
) -> None:
    async def answer(user: str, password: str) -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    agent = Agent()
    given = {**verifiers(), "login": BasicVerifier(answer)}
    async with client(guarded(agent, OF_BASIC, verifiers=given, allow_anonymous=True)) as http:
        is_let_in = status == 503 and bool(beside)
        answered = await http.post("/rpc", headers={"Authorization": "Basic YW5uOng="} | beside)
        assert answered.status_code == (200 if is_let_in else status)
        assert len(agent.scopes) == is_let_in
