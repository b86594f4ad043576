"""C5: the access token of a caller, which a handler may use, is found in a log, a repr, a traceback or a pickle.

Seen in A2A Java (GHSA-x32g-jvvm-4725); and every call context of the a2a-sdk copies the headers of its request.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import pickle
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from a2a_trust import principal_of
from a2a_trust.auth.dpop import DPoP
from a2a_trust.errors import TrustError
from a2a_trust.middleware.caller import subject_token_of
from a2a_trust.middleware.protection import protect
from tests.auth.proofs import BASE, bound_token, by_dpop, proof, scope_of
from tests.auth.test_jwt import NOW, claims, token
from tests.middleware.agent import CARD, KEY, Agent, grouped, guarded, uvicorn_serving, verifiers

pytestmark = pytest.mark.anyio

LOG = logging.getLogger("agent")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def told_by(action: Callable[[], Any]) -> str:
    """What an action gives, or the traceback of its error with the values of all variables."""
    try:
        return repr(action())
    except (
        LookupError,
        AttributeError,
        TypeError,
        ValueError,
        RuntimeError,
        TrustError,
        pickle.PicklingError,
    ) as error:
        return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


async def talkative(request: Request) -> JSONResponse:
    """Writes down all that it can get at, but never asks for the text."""
    kept, caller = subject_token_of(request), principal_of(request)
    LOG.debug("%s %r %s", kept, kept, {"token": kept})
    known: list[Any] = [kept, request.scope, request.headers, request.user, request.auth, request.state, caller]
    actions: list[Callable[[], Any]] = [
        *(lambda each=each: each for each in known),
        *(lambda each=each: str(each) for each in known),
        *(lambda each=each: vars(each) for each in known),
        *(lambda each=each: pickle.dumps(each) for each in known),
        *(lambda each=each: copy.deepcopy(each) for each in known),
        *(lambda each=each: asdict(each) for each in known),
        *(lambda each=each: json.dumps(each, default=vars) for each in known),
        *(lambda each=each: json.dumps(each, default=str, skipkeys=True) for each in known),
        lambda: {**request.scope}["state"],
        lambda: subject_token_of({"auth": kept}),
        lambda: kept + "",  # type: ignore[operator]
    ]
    return JSONResponse([told_by(each) for each in actions])


@asynccontextmanager
async def serving(endpoint: Any, **rules: bool) -> AsyncIterator[str]:
    app = Starlette(routes=[Route("/all", endpoint)])

    async def with_state(scope: Any, receive: Any, send: Any) -> None:
        await protected({**scope, "state": {"of": "the server"}}, receive, send)

    protected = protect(app, card=CARD, verifiers=verifiers(), clock=lambda: NOW, **grouped(rules))
    async with uvicorn_serving(with_state, "h11") as origin:
        yield f"{origin}/all"


def parts(text: str) -> list[str]:
    """A token, and what nobody else would write of it."""
    return [text, *text.split(".")[1:]]


async def test_a_handler_that_writes_down_everything_writes_no_token(caplog: pytest.LogCaptureFixture) -> None:
    mine = token(claims(jti="mine"))
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "a2a_trust.audit")
    async with serving(talkative, keep_subject_token=True) as url, httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(url, headers={"Authorization": f"Bearer {mine}"})
    told: list[str] = answer.json()
    assert "SubjectToken(issuer=" in told[0]
    assert "SubjectToken(issuer=" in caplog.text
    logged = [str(vars(record)) for record in caplog.records if not record.name.startswith("http")]  # not the client's
    assert not [each for each in (*told, *logged) for part in parts(mine) if part in each]


async def test_control_where_credentials_are_not_hidden_they_are_told(caplog: pytest.LogCaptureFixture) -> None:
    mine = token(claims(jti="mine"))
    rules = {"keep_subject_token": True, "hide_credentials": False}
    async with serving(talkative, **rules) as url, httpx.AsyncClient(trust_env=False) as http:
        told: list[str] = (await http.get(url, headers={"Authorization": f"Bearer {mine}"})).json()
    assert [each for each in told if mine in each]


async def revealed(request: Request) -> JSONResponse:
    await asyncio.sleep(0.01)  # until others are here
    try:
        return JSONResponse(subject_token_of(request).reveal())
    except TrustError as error:
        return JSONResponse({"code": error.code})


async def test_of_many_callers_at_once_each_one_is_known_by_its_own_token() -> None:
    """All have the same scopes and the same name, and half of them have no token at all."""
    tokens = [token(claims(jti=f"{number}")) for number in range(40)]
    http = httpx.AsyncClient(trust_env=False, timeout=60)
    async with serving(revealed, keep_subject_token=True) as url, http:

        async def ask(headers: dict[str, str]) -> Any:
            return (await http.get(url, headers=headers)).json()

        asked = [each for text in tokens for each in ({"Authorization": f"Bearer {text}"}, {"X-API-Key": KEY})]
        answers = await asyncio.gather(*map(ask, asked))
    assert answers[::2] == tokens
    assert answers[1::2] == [{"code": "missing-credentials"}] * len(tokens)


async def test_a_token_is_not_found_again_in_a_later_request() -> None:
    """The credentials of a later request may lie in memory where those of an earlier one lay."""
    found: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            found.append(subject_token_of(scope).reveal())
        except TrustError as error:
            found.append(error.code)

    keeping, not_keeping = guarded(app, keep_subject_token=True), guarded(app)
    mine = bearing(token())
    for _ in range(500):
        await keeping(mine, empty, nowhere)
        await not_keeping(mine, empty, nowhere)
    assert found == [token_in(mine), "configuration"] * 500


def bearing(text: str) -> dict[str, Any]:
    return scope_of([(b"authorization", b"Bearer " + text.encode())])


def token_in(scope: dict[str, Any]) -> str:
    value: bytes = dict(scope["headers"])[b"authorization"]
    return value.decode().removeprefix("Bearer ")


async def test_a_bound_token_is_kept_and_its_proof_is_gone() -> None:
    mine = bound_token()
    agent = Agent()
    app = guarded(agent, dpop=DPoP(url=BASE), keep_subject_token=True)
    await app(scope_of(by_dpop(mine, proof(mine))), empty, nowhere)
    (scope,) = agent.scopes
    assert subject_token_of(scope).reveal() == mine
    assert mine not in repr(scope)
    assert b"dpop" not in dict(scope["headers"])


async def empty() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}


async def nowhere(message: Any) -> None: ...
