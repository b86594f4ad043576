"""M37: each new value of a label is a new series in the memory of the agent and of its monitoring, forever.

A caller chooses paths, methods of HTTP and of JSON-RPC, tenants, credentials and headers, and must choose no label.
Labels and attributes of spans also go to many more people than a log, so they must hold no secret (C5).
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from a2a_trust.middleware.audit import Decision, Reason
from a2a_trust.telemetry import _labels
from tests.middleware.agent import CALL, CARD, KEY, Agent
from tests.middleware.test_observer import Notes
from tests.test_telemetry import Collected, anew, guarded

pytestmark = pytest.mark.anyio

LABELS = {
    "a2a_trust.outcome": {"admitted", "rejected"},
    "error.type": set(map(str, Reason)),
    "a2a_trust.schemes": {*CARD["securitySchemes"]},
    "a2a_trust.binding": {"JSONRPC", "HTTP+JSON"},
    "a2a_trust.operation": {"other", "SendMessage", "GetTask"},
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def scanned(app: Any) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example") as client:
        for number in range(200):
            word = f"chosen-{number}"
            for headers in ({}, {"X-API-Key": f"{word}-key"}, {"Authorization": f"Bearer {word}"}, {"X-API-Key": KEY}):
                sent = {**headers, "traceparent": word, "tracestate": word, "baggage": f"a={word}"}
                await client.request(word.upper(), f"/{word}?{word}=1", headers=sent)
                await client.post("/rpc", headers=sent, json={**CALL, "method": word, "params": {"tenant": word}})
                await client.post("/rpc", headers=sent, json={**CALL, "method": word})
                await client.get(f"/rest/tasks/{word}", headers=sent)


def series(collected: Collected) -> list[dict[str, Any]]:
    names = ("a2a_trust.decisions", "a2a_trust.guard.duration", "a2a_trust.verifier.duration")
    return [dict(point.attributes) for name in names for point in collected.points(name)]


async def test_no_caller_makes_a_series() -> None:
    collected = anew()
    await scanned(guarded(Agent(), collected.observer()))
    found = series(collected)
    assert len(found) < 40
    for labels in found:
        for name, value in labels.items():
            assert value in LABELS[name], f"{name} is {value!r}"


async def test_the_labels_that_are_remembered_are_bounded() -> None:
    for number in range(10_000):
        _labels(Decision(schemes=(f"scheme-{number}",))[:4], "")
    assert _labels.cache_info().currsize <= 4096


async def test_no_secret_is_in_a_label_a_span_or_a_decision() -> None:
    collected, notes = anew(), Notes()
    for observer in (collected.observer(), notes):
        app = guarded(Agent(), observer)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example") as client:
            for headers in ({"X-API-Key": KEY}, {"X-API-Key": "s3cret" * 8}, {"Authorization": "Bearer s3cret"}):
                await client.get("/rest/tasks/1?api_key=s3cret", headers={**headers, "Cookie": "s3cret"})
    shown = repr(notes.decisions) + repr(series(collected))
    shown += repr([dict(span.attributes or {}) for span in collected.spans.get_finished_spans()])
    assert "s3cret" not in shown
    assert KEY not in shown
