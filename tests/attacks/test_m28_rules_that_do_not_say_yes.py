"""M28: an async rule of the operator does not say yes, and its caller gets what the rule is about.

The rule never answers, fails, or returns something that is true and not True. The defense: only True allows, and a rule
that does not answer in time is an outage. A client that goes away takes its rule with it, so rules do not pile up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest

from a2a_trust.middleware import disconnect, options
from a2a_trust.middleware.extended_card import ExtendedCard
from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.protection import protect
from tests.middleware.agent import CARD, KEY, Agent, uvicorn_serving, verifiers
from tests.tables import walk

pytestmark = pytest.mark.anyio

PROMISING: dict[str, Any] = {**CARD, "capabilities": {"extendedAgentCard": True}}
TRUTHY: list[Any] = [1, "yes", object(), [False], {"allowed": True}, asyncio.Event(), (True,), 1.0]
RPC = {"jsonrpc": "2.0", "id": 7}
OF_TENANTS: list[tuple[str, str, Any]] = [
    ("POST", "/rpc", {**RPC, "method": "SendMessage", "params": {"tenant": "acme"}}),
    ("GET", "/rest/acme/tasks/1", None),
    ("GET", "/acme/rest/extendedAgentCard", None),
]
OF_CARDS: list[tuple[str, str, Any]] = [
    ("POST", "/rpc", {**RPC, "method": "GetExtendedAgentCard"}),
    ("GET", "/rest/extendedAgentCard", None),
    ("HEAD", "/rest/extendedAgentCard", None),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def calling(rule: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Agent]]:
    """A client of an agent on a real uvicorn whose rules are all that rule, and the agent."""
    agent = Agent()
    app = protect(
        agent,
        card=PROMISING,
        verifiers=verifiers(),
        extended_card=ExtendedCard({**PROMISING, "name": "SECRET"}, may_read=rule),
        rules=RequestRules(may_use_tenant=rule),
    )
    async with (
        uvicorn_serving(app, "h11") as origin,
        httpx.AsyncClient(base_url=origin, headers={"X-API-Key": KEY}, timeout=60) as http,
    ):
        yield http, agent


@walk("answer", TRUTHY)
async def test_only_true_of_an_async_rule_allows(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "RULE_SECONDS", 60)

    async def rule(*_: Any) -> Any:
        await asyncio.sleep(0)
        return answer

    async with calling(rule) as (http, agent):
        for method, path, body in OF_TENANTS + OF_CARDS:
            refused = await http.request(method, path, json=body)
            assert (refused.status_code, "SECRET" in refused.text) == (403, False), path
        assert agent.scopes == []


async def test_a_rule_that_never_answers_is_an_outage(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(options, "RULE_SECONDS", 0.01)
    caplog.set_level(logging.DEBUG, "a2a_trust.audit")
    ended: list[str] = []

    async def rule(*_: Any) -> bool:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return True

    async with calling(rule) as (http, agent):
        for method, path, body in (OF_TENANTS + OF_CARDS) * 2:
            late = await http.request(method, path, json=body)
            assert (late.status_code, late.headers["retry-after"]) == (503, "5"), path
            assert (late.headers["cache-control"], "SECRET" in late.text) == ("private, no-store", False)
            if body is not None:
                assert (late.json()["id"], late.json()["error"]["code"]) == (7, -32603)
        assert agent.scopes == []
    assert len(ended) == 12
    events = [record.audit for record in caplog.records if record.audit["event"] == "refused"]  # type: ignore[attr-defined]
    assert [(each["reason"], each["detail"]) for each in events] == [
        ("key-source-unavailable", f"{rule} does not answer in time") for rule in ("may_use_tenant", "may_read")
    ], "the others are counted"


@walk("request", OF_TENANTS[:1] + OF_CARDS[:2])
async def test_a_client_that_goes_away_ends_its_rule(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "RULE_SECONDS", 600)
    monkeypatch.setattr(disconnect, "_PATIENCE", 0)
    begun, cancelled, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def rule(*_: Any) -> bool:
        begun.set()
        try:
            await may_end.wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return False

    method, path, body = request
    async with calling(rule) as (http, agent):
        call = asyncio.create_task(http.request(method, path, json=body))
        await begun.wait()
        call.cancel()
        try:
            async with asyncio.timeout(60):
                await cancelled.wait()
        finally:
            may_end.set()
        assert agent.scopes == []


async def test_a_rule_that_swallows_its_end_allows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "RULE_SECONDS", 0.01)

    async def rule(*_: Any) -> bool:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return True

    async with calling(rule) as (http, agent):
        for method, path, body in OF_TENANTS + OF_CARDS:
            late = await http.request(method, path, json=body)
            assert (late.status_code, "SECRET" in late.text) == (503, False), path
        assert agent.scopes == []
