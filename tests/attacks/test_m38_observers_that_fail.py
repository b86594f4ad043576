"""M38: an observer is code of others in the way of each decision: it raises, for a caller's text too, or spoils values.

No decision changes, no request fails, the log has one line for each type, and no text of an exception.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from a2a_trust.base.state_changes import StateChange, StateKind, announce
from a2a_trust.middleware.audit import Decision
from a2a_trust.middleware.extended_card import ExtendedCard
from a2a_trust.middleware.protection import protect
from tests.middleware.agent import CALL, CARD, KEY, POOR_KEY, Agent, verifiers
from tests.middleware.test_protection import PROMISING, ask

SECRET = "the observer's password"
REQUESTS: tuple[tuple[str, str, dict[str, Any], int], ...] = (
    ("POST", "/rpc", {"json": CALL}, 401),
    ("POST", "/rpc", {"json": CALL, "headers": {"X-API-Key": "x" * 40}}, 401),
    ("POST", "/rpc", {"json": CALL, "headers": {"X-API-Key": POOR_KEY}}, 403),
    ("POST", "/rpc", {"json": CALL, "headers": {"X-API-Key": KEY}}, 200),
    ("GET", "/rest/tasks/1", {"headers": {"X-API-Key": KEY}}, 200),
    ("GET", "/rest/tasks/1?tenant=theirs", {"headers": {"X-API-Key": KEY}}, 403),
    ("GET", "/elsewhere", {"headers": {"X-API-Key": KEY}}, 404),
)


class Failing:
    def __init__(self, error: Exception) -> None:
        self.error = error
        self.count = 0

    def on_decision(self, decision: Decision) -> None:
        self.count += 1
        raise self.error

    def on_change(self, change: StateChange) -> None:
        raise self.error


def agent(observer: Any) -> Any:
    return protect(
        Agent(), card=PROMISING, verifiers=verifiers(), extended_card=ExtendedCard(PROMISING), observer=observer
    )


@pytest.mark.parametrize("error", [RuntimeError(SECRET), KeyError(SECRET), PermissionError(SECRET)], ids=repr)
def test_an_observer_that_raises_changes_no_decision(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    failing = Failing(error)
    app = agent(failing)
    for _ in range(3):
        for method, path, request, status in REQUESTS:
            assert ask(app, method, path, **request).status_code == status
    assert failing.count == 3 * len(REQUESTS)
    own = [record for record in caplog.records if record.name == "a2a_trust.middleware.audit"]
    assert [(each.levelno, type(error).__name__ in each.getMessage()) for each in own] == [(logging.ERROR, True)]
    assert SECRET not in caplog.text


def test_it_harms_no_other_observer_of_a_change(caplog: pytest.LogCaptureFixture) -> None:
    class Noting(Failing):
        def on_change(self, change: StateChange) -> None:
            self.count += 1

    noting = Noting(RuntimeError())
    apps = [agent(each) for each in (Failing(RuntimeError(SECRET)), noting, Failing(RuntimeError(SECRET)))]
    announce(StateChange(StateKind.STORE_LOST, "the store"))
    assert noting.count == 1
    assert SECRET not in caplog.text
    assert len(apps) == 3


def test_types_that_are_new_each_time_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    failing = Failing(RuntimeError())
    app = protect(Agent(), card=CARD, verifiers=verifiers(), observer=failing)
    for number in range(200):
        failing.error = type(f"Error{number}", (RuntimeError,), {})(SECRET)
        ask(app, "POST", "/rpc")
    own = [record for record in caplog.records if record.name == "a2a_trust.middleware.audit"]
    assert len(own) == 64
