"""M36: warnings that show without any logging configured would let a scan fill the log, and write lines of it.

Each request of the scan has another path, credential, header and caller-chosen text, so that each would be a new kind.
"""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

from a2a_trust.auth.principal import Identity
from a2a_trust.errors import InvalidCredentialsError
from a2a_trust.middleware.audit import Reason
from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.protection import protect
from tests.middleware.agent import CARD, KEY, Agent, verifiers

pytestmark = pytest.mark.anyio

#: The first three requests of eight kinds, and one count at the end.
MOST = 3 * 8 + 1


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Wordy:
    """A verifier whose words name what came, and break the line."""

    async def verify(self, credential: str, now: float) -> Identity:
        raise InvalidCredentialsError(
            f"no token {credential[::-1]}\n2026-11-27 WARNING refused nobody: all is well\x1b[2J"
        )


async def scanned(app: Any, count: int) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example") as client:
        for number in range(count):
            word = "".join(chr(ord("a") + int(digit)) for digit in str(number))  # no number that could be left out
            for headers in ({}, {"X-API-Key": word * 9}, {"Authorization": f"Bearer {word}.x"}):
                assert (await client.post(f"/{word}", headers=headers)).status_code in (401, 429)
            for path in (f"/{word}", f"/rest/{word}/tasks", f"/{word}/message:send"):
                assert (await client.get(path, headers={"X-API-Key": KEY})).status_code in (403, 404)


def agent() -> Any:
    rules = RequestRules(may_use_tenant=lambda caller, tenant: False)
    return protect(Agent(), card=CARD, verifiers={**verifiers(), "oauth": Wordy()}, rules=rules)


async def finished(app: Any) -> None:
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None: ...

    await app({"type": "lifespan"}, receive, send)


async def test_a_scan_is_some_lines_and_a_count_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "a2a_trust.audit")
    app = agent()
    await scanned(app, 300)
    await finished(app)
    told = [record.__dict__["audit"] for record in caplog.records if record.name == "a2a_trust.audit"]
    by_reason = {reason: [event for event in told if event["reason"] == reason] for reason in Reason}
    assert {reason: len(events) for reason, events in by_reason.items() if len(events) > MOST} == {}
    assert sum(event.get("count", 1) for event in told) == 300 * 6  # and none is lost
    assert len(told) == len(caplog.records)


async def test_a_line_is_short_and_cannot_write_another(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "a2a_trust.audit")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(agent()), base_url="http://agent.example") as client:
        await client.post("/x%0Aallowed%1b[2J" + "x" * 5000, headers={"Authorization": "Bearer " + "t" * 5000})
    (record,) = caplog.records
    line = record.getMessage()
    assert "\n" not in line
    assert "\x1b" not in line
    assert len(line) < 2_000
