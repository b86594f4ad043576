"""The audit trail: every decision can be heard, with its reason, and without what was secret in the request."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from a2a_trust.auth.principal import Identity
from a2a_trust.errors import AuthenticationError, KeySourceUnavailableError
from a2a_trust.keys.ring_file import KeyRingFile, save_key_ring, update_key_ring
from a2a_trust.keys.rotation import KeyRing
from a2a_trust.keys.signer import generate_signer
from a2a_trust.middleware.audit import Decision, Reason, RepeatedRejections, Trail
from a2a_trust.middleware.card import CardFile
from a2a_trust.middleware.extended_card import ExtendedCard
from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.protection import protect
from a2a_trust.signing.sign import sign_card
from tests.middleware.agent import CALL, CARD, KEY, POOR_KEY, grouped, verifiers
from tests.middleware.test_protection import NOW, PROMISING, application, ask
from tests.tables import walk

RPC = "/rpc"
NOBODY = RequestRules(may_use_tenant=lambda *_: False)


@pytest.fixture(autouse=True)
def _heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "a2a_trust.audit")


def events(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    found = [record.__dict__["audit"] for record in caplog.records if record.name == "a2a_trust.audit"]
    assert json.loads(json.dumps(found)) == found  # as they are shipped
    return found


def guarded(card: Any = CARD, **options: Any) -> Any:
    return protect(application(), card=card, **{"verifiers": verifiers(), **grouped(options)})


def test_who_was_let_in_is_told(caplog: pytest.LogCaptureFixture) -> None:
    ask(guarded(), "POST", RPC, json=CALL, headers={"X-API-Key": KEY}, params={"secret": "in the query"})
    assert events(caplog) == [
        {
            "event": "allowed",
            "type": "http",
            "method": "POST",
            "path": "/rpc",
            "client": "127.0.0.1",
            "caller": "ann@api-keys",
            "schemes": ["key"],
        }
    ]
    assert KEY not in caplog.text
    assert "in the query" not in caplog.text


def test_who_came_without_proof_is_told_when_the_card_lets_them_in(caplog: pytest.LogCaptureFixture) -> None:
    ask(guarded({**CARD, "securityRequirements": []}, allow_anonymous=True), "GET", "/rest")
    (event,) = events(caplog)
    assert (event["event"], event["schemes"]) == ("allowed", [])
    assert event["caller"].startswith("anonymous:")


class Raising:
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def verify(self, credential: str, now: float) -> Identity:
        raise self.error


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "missing-credentials"),
        ({"X-API-Key": "x" * 40}, "invalid-credentials"),
        ({"X-API-Key": POOR_KEY}, "insufficient-scope"),
    ],
)
def test_a_refusal_has_its_reason(headers: dict[str, str], reason: str, caplog: pytest.LogCaptureFixture) -> None:
    ask(guarded(), "POST", RPC, headers=headers)
    (event,) = events(caplog)
    assert (event["event"], event["reason"], event["path"]) == ("refused", reason, RPC)
    assert event["detail"]
    assert not any(secret in caplog.text for secret in headers.values())


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeySourceUnavailableError("the issuer is down"), "key-source-unavailable"),
        (AuthenticationError("a reason of somebody else's"), "invalid-credentials"),
    ],
)
def test_so_has_one_by_a_verifier(error: Exception, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    ask(guarded(verifiers={**verifiers(), "key": Raising(error)}), "POST", RPC, headers={"X-API-Key": KEY})
    (event,) = events(caplog)
    assert (event["reason"], event["detail"]) == (reason, str(error))


@walk(
    ("request_", "reason"),
    [
        ({"json": {"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"tenant": "theirs"}}}, "tenant"),
        ({"content": b'{"id":1,"method":"x","params":{"tenant":"a","tenant":"b"}}'}, "ambiguous-request"),
        ({"content": b'{"id":[],"method":"GetExtendedAgentCard"}'}, "ambiguous-request"),
        ({"content": b"{}" * 10_000_000}, "too-large"),
        ({"json": {"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"}}, "extended-card"),
    ],
)
def test_a_known_caller_who_asks_for_too_much_is_named(
    request_: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = guarded(PROMISING, extended_card=ExtendedCard(PROMISING, may_read=lambda caller: False), rules=NOBODY)
    ask(app, "POST", RPC, headers={"X-API-Key": KEY, "Content-Type": "application/json"}, **request_)
    *allowed, refused = events(caplog)
    assert (refused["event"], refused["reason"], refused["caller"]) == ("refused", reason, "ann@api-keys")
    # The rule of the extended card is asked about a request that is admitted.
    assert [each["event"] for each in allowed] == ["allowed"] * (reason == "extended-card")


def test_so_is_one_who_lacks_scopes(caplog: pytest.LogCaptureFixture) -> None:
    ask(guarded(), "POST", RPC, headers={"X-API-Key": POOR_KEY})
    (event,) = events(caplog)
    assert (event["reason"], event["caller"]) == ("insufficient-scope", "bob@api-keys")
    assert POOR_KEY not in caplog.text


def test_who_is_refused_for_an_invalid_credential_is_nobody(caplog: pytest.LogCaptureFixture) -> None:
    ask(guarded(), "POST", RPC, headers={"X-API-Key": KEY, "Authorization": "Bearer junk"})
    (event,) = events(caplog)
    assert "caller" not in event


def test_refusals_of_one_outage_are_counted_by_the_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = [0.0]
    outages = RepeatedRejections(Reason.KEY_SOURCE_UNAVAILABLE, clock=lambda: clock[0])
    scope = {"type": "http", "method": "POST", "path": "/rpc"}
    for clock[0] in (0.0, 1.0, 30.0, 59.9):
        outages.log(scope, "a is down")
    outages.log(scope, "b is down")
    told = [(event["detail"], event.get("count")) for event in events(caplog)]
    assert told == [("a is down", None), ("b is down", None)]
    caplog.clear()
    clock[0] = 60.0
    outages.log(scope, "a is down")  # it is of the next minute, which begins with the count
    assert [(event["detail"], event.get("count")) for event in events(caplog)] == [("a is down", 3)]
    caplog.clear()
    clock[0] = 120.0
    outages.log(scope, "b is down")  # for a minute there was none
    told = [(event["detail"], event.get("count")) for event in events(caplog)]
    assert told == [("a is down", 1), ("b is down", None)]
    caplog.clear()
    clock[0] = 180.0
    outages.log(scope, "a is down")
    assert [(event["detail"], event.get("count")) for event in events(caplog)] == [("a is down", None)]
    caplog.clear()
    outages.flush()
    assert events(caplog) == []  # nothing was held back


def test_a_cause_has_one_event_a_minute_for_as_long_as_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    clock = [0.0]
    refusals = RepeatedRejections(Reason.TOO_MANY_REQUESTS, clock=lambda: clock[0])
    scope = {"type": "http", "method": "POST", "path": "/rpc"}
    for second in range(600):
        clock[0] = float(second)
        refusals.log(scope, f"too many ({second % 3})", "too many")
    told = [(event["detail"], event.get("count")) for event in events(caplog)]
    assert told == [("too many (0)", None), ("too many (0)", 59), *[("too many (0)", 60)] * 8]
    refusals.flush()
    refusals.flush()
    assert sum(event.get("count", 1) for event in events(caplog)) == 600
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_the_causes_that_are_kept_apart_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    clock = [0.0]
    refusals = RepeatedRejections(Reason.TOO_MANY_REQUESTS, clock=lambda: clock[0])
    for clock[0] in (0.0, 1.0, 61.0, 122.0):
        for number in range(1000):
            refusals.log({"type": "http", "path": "/rpc"}, f"peer {number}")
        assert len(refusals._open) == 65
    refusals.flush()
    assert sum(event.get("count", 1) for event in events(caplog)) == 4000


def test_a_path_cannot_write_lines_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    ask(guarded(), "GET", "/x%0A2026-11-21%20allowed%20everybody%1b[2J")
    (event,) = events(caplog)
    assert event["path"] == "/x\\n2026-11-21 allowed everybody\\x1b[2J"
    assert len(caplog.text.splitlines()) == 1


def test_a_card_that_is_not_served_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ring, path = tmp_path / "ring.json", tmp_path / "card.json"
    signer = generate_signer()
    save_key_ring(ring, KeyRing.begin(signer, NOW))
    path.write_text(json.dumps(sign_card(CARD, signer).card))
    app = guarded(CardFile(path, trust=KeyRingFile(ring), clock=lambda: NOW), clock=lambda: NOW)
    assert ask(app, "GET", "/.well-known/agent-card.json").status_code == 200
    update_key_ring(ring, lambda old: old.revoke(signer.kid, NOW))
    for _ in range(3):
        assert ask(app, "GET", "/.well-known/agent-card.json").status_code == 503
    (event,) = events(caplog)
    assert (event["event"], event["reason"]) == ("not-served", "card")
    assert "revoked" in event["detail"]
    assert caplog.records[-1].levelno == logging.ERROR


def test_refusals_are_heard_at_info_and_callers_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "a2a_trust.audit")
    app = guarded()
    ask(app, "POST", RPC, json=CALL, headers={"X-API-Key": KEY})
    for _ in range(5):
        ask(app, "POST", RPC)
    assert [event["event"] for event in events(caplog)] == ["refused"] * 5  # each once
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3 + ["INFO"] * 2


def test_the_first_refusals_of_each_kind_are_warnings_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "a2a_trust.audit")
    app = guarded()
    for headers in ({}, {"X-API-Key": "x" * 40}, {"X-API-Key": POOR_KEY}):
        for _ in range(5):
            ask(app, "POST", RPC, headers=headers)
    told = [record.getMessage() for record in caplog.records]
    assert [told.count(line) for line in dict.fromkeys(told)] == [3, 3, 3]
    assert told[0].endswith(f"[401 missing-credentials: {Reason.MISSING_CREDENTIALS.hint}]")
    assert told[3].endswith(f"[401 invalid-credentials, 'key': {Reason.INVALID_CREDENTIALS.hint}]")
    assert told[6].endswith(f"[403 insufficient-scope: {Reason.INSUFFICIENT_SCOPE.hint}]")
    assert [reason for reason in Reason if not reason.hint] == []


def test_where_info_is_not_shown_later_refusals_are_one_event_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "a2a_trust.audit")
    clock = [0.0]
    trail = Trail(clock=lambda: clock[0])
    scope = {"type": "http", "method": "GET", "path": "/x", "headers": []}
    for second in range(180):
        clock[0] = float(second)
        for _ in range(100):
            trail.rejected(scope, "no credential", Decision(Reason.MISSING_CREDENTIALS, status=401))
            trail.rejected(scope, "no such path", Decision(Reason.UNDECLARED_PATH, status=404))
    trail.flush()
    counted = [event for event in events(caplog) if "count" in event]
    assert len(events(caplog)) == 2 * (3 + 3)
    assert [(event["reason"], event["seconds"]) for event in counted[:2]] == [
        ("missing-credentials", 60),
        ("undeclared-path", 60),
    ]
    assert sum(event.get("count", 1) for event in events(caplog)) == 2 * 18_000
    assert "refused 5997 more requests in 60 seconds: the reason is missing-credentials" in caplog.text


def test_a_logger_that_is_silent_costs_no_record(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "a2a_trust.audit")
    app = guarded()
    for _ in range(10):
        ask(app, "POST", RPC)
    assert events(caplog) == []


def test_what_is_the_operators_fault_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Servers show INFO of nobody, and somebody has to see why every request is 503."""

    class OutOfReach:
        async def verify(self, credential: str, now: float) -> Identity:
            raise KeySourceUnavailableError("the issuer cannot be reached")

    caplog.set_level(logging.WARNING, "a2a_trust.audit")
    app = guarded(verifiers={**verifiers(), "key": OutOfReach()})
    assert ask(app, "POST", RPC, headers={"X-API-Key": KEY}).status_code == 503
    assert [(event["reason"], event["detail"]) for event in events(caplog)] == [
        ("key-source-unavailable", "the issuer cannot be reached")
    ]


def test_neither_can_a_method_or_an_address(caplog: pytest.LogCaptureFixture) -> None:
    """Seen here: hypercorn takes any text for the method of HTTP/2."""
    scope = {
        "type": "http",
        "method": "GET\x1b[1A\x1b[2Kallowed GET /rpc for ann",
        "path": "/x for ann",
        "headers": [],
        "client": ("\x1b[2J", 1),
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        pass

    asyncio.run(guarded()(scope, receive, send))
    (event,) = events(caplog)
    assert event["method"] == "GET\\x1b[1A\\x1b[2Kallowed GET /rp"
    assert event["client"] == "\\x1b[2J"
    assert "refused GET\\x1b[1A\\x1b[2Kallowed\\x20GET\\x20/rp /x\\x20for\\x20ann: no credential" in caplog.text
    assert "\x1b" not in caplog.text
