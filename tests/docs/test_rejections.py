"""docs/rejections.md is true: each reason has its statuses, its hint and a line that the log really has."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2a_trust.auth.peers import Networks
from a2a_trust.auth.principal import Actor, Identity
from a2a_trust.auth.throttle import FailureLimits
from a2a_trust.base.state_changes import StateKind
from a2a_trust.errors import KeySourceUnavailableError
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust.origins import Origins
from a2a_trust.keys.trust.store import TrustedKey, TrustStore
from a2a_trust.middleware.audit import Reason
from a2a_trust.middleware.card import CardFile
from a2a_trust.middleware.extended_card import ExtendedCard
from a2a_trust.middleware.options import ActorRules, RequestRules
from a2a_trust.middleware.protection import CardServing, protect
from a2a_trust.signing.sign import sign_card
from tests.conftest import ROOT
from tests.docs.pages import PAGES
from tests.middleware.agent import CALL, CARD, KEY, POOR_KEY, Agent, verifiers
from tests.middleware.test_observer import Notes

#: The page, with each line of the log in one line.
PAGE = re.sub(r"\n {4}(?=\S)", " ", PAGES["docs/rejections.md"])
#: Reason -> its part of the page.
PARTS = dict(re.findall(r"(?ms)^### `([a-z-]+)`\n\n(.*?)(?=^##|\Z)", PAGE))
GOOD = {"X-API-Key": KEY}
PROMISING = {**CARD, "capabilities": {"extendedAgentCard": True}}
COOKIE = {
    **CARD,
    "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "cookie", "name": "session"}}},
    "securityRequirements": [{"schemes": {"key": {"list": ["read"]}}}],
}
ANOTHER_SITE = {"Cookie": f"session={KEY}", "Sec-Fetch-Site": "cross-site", "Origin": "https://other.example"}


class Down:
    async def verify(self, credential: str, now: float) -> Identity:
        raise KeySourceUnavailableError("https://login.example.com: unreachable, and no usable keys are known")


class Acting:
    async def verify(self, credential: str, now: float) -> Identity:
        planner = Actor(issuer="https://login.example.com", subject="planner")
        return Identity(issuer=planner.issuer, subject="ann", scopes=frozenset({"read"}), actors=(planner,))


def acting() -> dict[str, Any]:
    return {
        "verifiers": {**verifiers(), "oauth": Acting()},
        "rules": RequestRules(actors=ActorRules(may_act=lambda actor: False)),
    }


def extended(**options: Any) -> dict[str, Any]:
    return {"card": PROMISING, "extended_card": ExtendedCard(PROMISING, may_read=lambda caller: False), **options}


def limited() -> dict[str, Any]:
    return {"rules": RequestRules(failures=FailureLimits(by_credential="1/minute", by_peer="1/minute"))}


WRONG: dict[str, Any] = {"headers": {"X-API-Key": "wrong"}}
LARGE: dict[str, Any] = {"content": b"{}" * 10, "headers": {**GOOD, "Content-Type": "application/json"}}
TEXT: dict[str, Any] = {"content": b"{}", "headers": {**GOOD, "Content-Type": "text/plain"}}
#: Options of protect, and requests, the last of which is rejected.
CAUSES: list[tuple[dict[str, Any], list[tuple[str, str, dict[str, Any]]]]] = [
    ({}, [("POST", "/rpc", {})]),
    ({}, [("POST", "/rpc", WRONG)]),
    (acting(), [("POST", "/rpc", {"headers": {"Authorization": "Bearer x"}})]),
    ({}, [("POST", "/rpc", {"headers": {"X-API-Key": POOR_KEY}})]),
    ({"card": COOKIE, "verifiers": {"key": verifiers()["key"]}}, [("POST", "/rpc", {"headers": ANOTHER_SITE})]),
    (limited(), [("POST", "/rpc", WRONG), ("POST", "/rpc", WRONG)]),
    ({"verifiers": {**verifiers(), "oauth": Down()}}, [("POST", "/rpc", {"headers": {"Authorization": "Bearer x"}})]),
    ({}, [("POST", "/rpc", {"json": {**CALL, "jsonrpc": "1.0"}, "headers": GOOD})]),
    ({}, [("POST", "/rest/message:send", {**TEXT})]),
    ({}, [("POST", "/rest/message:send", {**TEXT, "headers": {**LARGE["headers"]}, "content": b'{"a":1,"a":'})]),
    ({"rules": RequestRules(max_body=10)}, [("POST", "/rpc", LARGE)]),
    (extended(), [("GET", "/docs", {"headers": GOOD})]),
    ({}, [("GET", "/rest/tasks/1?tenant=billing", {"headers": GOOD})]),
    ({}, [("POST", "/rest/tasks/1/pushNotificationConfigs", {"json": {"url": "https://a"}, "headers": GOOD})]),
    (extended(), [("GET", "/rest/extendedAgentCard", {"headers": GOOD})]),
    ({"serving": CardServing(readers=Networks("10.0.0.0/8"))}, [("GET", "/.well-known/agent-card.json", {})]),
]


def seen(caplog: pytest.LogCaptureFixture) -> tuple[dict[str, set[int]], list[str]]:
    """The statuses of each reason, and the last line of the log for each cause."""
    statuses: defaultdict[str, set[int]] = defaultdict(set)
    lines = []

    async def ask(app: Any, requests: list[tuple[str, str, dict[str, Any]]]) -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example") as http:
            for method, path, request in requests:
                answer = await http.request(method, path, **request)
        decision = notes.decisions[-1]
        assert answer.status_code == decision.status
        statuses[str(decision.reason)].add(answer.status_code)

    for options, requests in CAUSES:
        caplog.clear()
        notes = Notes()
        app: Any = protect(Agent(), **{"card": CARD, "verifiers": verifiers(), "observer": notes, **options})
        asyncio.run(ask(app, requests))
        lines.append(caplog.messages[-1])
    return statuses, lines


def test_every_reason_is_there_below_its_status(caplog: pytest.LogCaptureFixture) -> None:
    statuses, _ = seen(caplog)
    assert set(PARTS) == {*statuses, "card"} == set(map(str, Reason))
    for heading, body in re.findall(r"(?ms)^## (.*?)\n(.*?)(?=^## |\Z)", PAGE):
        below = {reason for reason in PARTS if f"### `{reason}`\n" in body}
        named = set(map(int, re.findall(r"\b[2-5]\d\d\b", heading)))
        found = set().union(*(statuses[reason] - {200} or {503} for reason in below))
        assert not below or named == found, heading
    assert re.match(r"# Why 401, 403, 404, 429, 503\?\n", PAGE)


def test_every_line_of_the_log_is_there(caplog: pytest.LogCaptureFixture) -> None:
    _, lines = seen(caplog)
    shown = [line for part in PARTS.values() for line in re.findall(r"(?m)^refused .*$", part)]
    assert set(lines) == set(shown)


def test_every_part_says_the_cause_and_the_fix() -> None:
    assert [
        (reason, each) for reason, part in PARTS.items() for each in ("- Cause: ", "- Fix: ") if part.count(each) != 1
    ] == []


def test_the_line_of_a_card_that_is_not_served_is_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    signer, path = generate_signer(kid="2027"), tmp_path / "card.json"
    clock = [1_900_000_000.0]
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("agent.example"))])
    path.write_text(json.dumps(sign_card(CARD, signer, iat=int(clock[0]), lifetime=60).card))
    card = CardFile(path, trust=trust, clock=lambda: clock[0])
    app = protect(Agent(), card=card, verifiers=verifiers(), clock=lambda: clock[0])
    clock[0] += 61

    async def ask() -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example") as http:
            return (await http.get("/.well-known/agent-card.json")).status_code

    assert asyncio.run(ask()) == 503
    (record,) = caplog.records
    assert (record.levelno, record.__dict__["audit"]["event"]) == (logging.ERROR, StateKind.CARD_NOT_SERVED)
    line = record.getMessage().replace(str(tmp_path), "/srv/agent")
    assert line in PARTS["card"]


def test_people_find_the_page_where_they_look() -> None:
    where = ("README.md", "docs/README.md", "docs/protect.md", "docs/errors.md", "docs/agents.md", "docs/mtls.md")
    frameworks = [f"docs/frameworks/{page.name}" for page in (ROOT / "docs" / "frameworks").glob("*.md")]
    assert [name for name in (*where, *frameworks) if "rejections.md" not in PAGES[name]] == []
