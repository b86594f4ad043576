"""``assert_enforced``: agents in memory, with and without a guard."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from a2a_trust import ApiKeyVerifier, ConfigurationError, protect
from a2a_trust.auth import MemoryApiKeys
from a2a_trust.client import ApiKey
from a2a_trust.testing import agents, assert_enforced
from tests.probe.agents import card_of

URL = "https://agent.test"
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def card() -> dict[str, Any]:
    whole = card_of(URL, capabilities={"streaming": True})
    return {**whole, "supportedInterfaces": whole["supportedInterfaces"][:1]}


async def rpc(request: Request) -> JSONResponse:
    call = json.loads(await request.body())
    code = -32602 if call["method"].startswith("Send") else -32001
    return JSONResponse({"jsonrpc": "2.0", "id": call["id"], "error": {"code": code, "message": "no"}})


def application() -> Starlette:
    return Starlette(routes=[Route("/rpc", rpc, methods=["POST"])])


async def test_a_protected_application_passes() -> None:
    keys = MemoryApiKeys()
    app = protect(application(), card=card(), verifiers={"key": ApiKeyVerifier(keys)})
    key = ApiKey(keys.create(owner="ann").text, origins=[URL])
    await assert_enforced(app, card=card())
    await assert_enforced(app, card=json.dumps(card()), credentials={"key": key})


async def test_an_open_application_fails_and_the_error_shows_why() -> None:
    with pytest.raises(AssertionError, match="the card is not enforced") as caught:
        await assert_enforced(application(), card=card())
    assert "key at https://agent.test/rpc: not enforced: SendMessage" in str(caught.value)
    assert "SendMessage with no credential: 200, error -32602, a mistake in the parameters" in str(caught.value)


async def test_a_wrong_credential_proves_nothing() -> None:
    app = protect(application(), card=card(), verifiers={"key": ApiKeyVerifier(MemoryApiKeys())})
    with pytest.raises(AssertionError, match="the given credential is rejected, too") as caught:
        await assert_enforced(app, card=card(), credentials={"key": ApiKey("secret-of-ann", origins=[URL])})
    assert "secret-of-ann" not in str(caught.value)


async def test_a_card_that_demands_nothing_fails() -> None:
    with pytest.raises(AssertionError, match="nothing demanded"):
        await assert_enforced(application(), card={**card(), "securityRequirements": []})


async def test_an_application_that_breaks_or_never_ends_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "_SECONDS", 0.01)

    async def breaks(_: Request) -> JSONResponse:
        raise RuntimeError("broken")

    async def endless(_: Request) -> StreamingResponse:
        async def events() -> Any:
            while True:
                yield b": wait\n"
                await asyncio.sleep(0.001)

        return StreamingResponse(events(), media_type="text/event-stream")

    for handler in (breaks, endless):
        app = Starlette(routes=[Route("/rpc", handler, methods=["POST"])])
        with pytest.raises(AssertionError, match="cannot tell"):
            await assert_enforced(app, card=card())


async def test_arguments_that_are_no_credentials_are_named() -> None:
    with pytest.raises(ConfigurationError, match="credentials"):
        await assert_enforced(application(), card=card(), credentials={"key": "text"})  # type: ignore[dict-item]
