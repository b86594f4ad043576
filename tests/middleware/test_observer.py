"""An observer gets each decision once, and each change of state; what it does changes no decision."""

from __future__ import annotations

import asyncio
import gc
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from a2a_trust.auth.peers import Networks
from a2a_trust.auth.principal import Identity
from a2a_trust.base import state_changes
from a2a_trust.base.databases.availability import Database, DatabaseUrl
from a2a_trust.base.state_changes import StateChange, StateKind
from a2a_trust.card.operations import Binding, Operation
from a2a_trust.card.view import read_card
from a2a_trust.errors import (
    AuthorizationError,
    ConfigurationError,
    FetchError,
    KeySourceUnavailableError,
    TooManyRequestsError,
)
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust.jwks_cache import JwksCache
from a2a_trust.keys.trust.origins import Origins
from a2a_trust.keys.trust.store import TrustedKey, TrustStore
from a2a_trust.middleware.audit import DECISION, Decision, Reason, Trail
from a2a_trust.middleware.caller import reject_caller
from a2a_trust.middleware.card import CardFile, FixedCard
from a2a_trust.middleware.decision import Access, Admitted, CallRules, NeedsBody, decide, decide_with_body
from a2a_trust.middleware.extended_card import ExtendedCard, ExtendedCardEndpoint
from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.protection import ProtectedAgent, protect, protect_agents
from a2a_trust.signing.sign import sign_card
from tests.middleware.agent import CALL, CARD, KEY, POOR_KEY, Agent, grouped, guarded, verifiers
from tests.middleware.test_protection import GOOD, NOW, PROMISING, application, ask
from tests.tables import walk

RPC = "/rpc"


class Notes:
    """An observer that keeps what it gets."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self.changes: list[StateChange] = []

    def on_decision(self, decision: Decision) -> None:
        self.decisions.append(decision)

    def on_change(self, change: StateChange) -> None:
        self.changes.append(change)


def observed(app: Any = None, card: Any = CARD, **options: Any) -> tuple[Any, Notes]:
    notes = Notes()
    given = {"verifiers": verifiers(), **grouped(options)}
    return protect(app or application(), card=card, observer=notes, **given), notes


def test_an_admitted_call_is_one_decision() -> None:
    app, notes = observed()
    for _ in range(2):
        ask(app, "POST", RPC, json=CALL, headers=GOOD)
    first, second = notes.decisions
    assert first[:4] == second[:4] == (None, ("key",), Binding.JSONRPC, Operation.SEND_MESSAGE)
    assert first.guard_seconds is not None
    assert first.verifier_seconds is not None
    assert first.guard_seconds > first.verifier_seconds > 0
    assert second.verifier_seconds == 0  # its caller was in the cache
    assert second[6:] == ("", 0, False, "", "", ())


def test_a_method_that_a2a_does_not_have_is_no_operation() -> None:
    app, notes = observed()
    ask(app, "POST", RPC, json={**CALL, "method": "x" * 99}, headers=GOOD)
    assert (notes.decisions[0].binding, notes.decisions[0].operation) == (Binding.JSONRPC, None)


def test_a_request_of_the_application_is_one_decision_and_a_public_one_is_none() -> None:
    app, notes = observed(public_paths=["/healthz"])
    ask(app, "GET", "/healthz")
    ask(app, "GET", "/.well-known/agent-card.json")
    ask(app, "GET", "/own", headers=GOOD)
    assert [each[:4] for each in notes.decisions] == [(None, ("key",), None, None)]


@walk(
    ("request_", "expected"),
    [
        ({}, (Reason.MISSING_CREDENTIALS, (), 401)),
        ({"headers": {"X-API-Key": "x" * 40}}, (Reason.INVALID_CREDENTIALS, ("key",), 401)),
        ({"headers": {"X-API-Key": POOR_KEY}}, (Reason.INSUFFICIENT_SCOPE, ("key",), 403)),
    ],
)
def test_a_request_that_the_guard_rejects_is_one_decision(request_: Any, expected: Any) -> None:
    app, notes = observed()
    assert ask(app, "POST", RPC, **request_).status_code == expected[2]
    (decision,) = notes.decisions
    assert (decision.reason, decision.schemes, decision.status) == expected
    assert (decision.binding, decision.operation) == (Binding.JSONRPC, None)
    assert (decision.method, decision.path, decision.is_second) == ("POST", RPC, False)
    assert decision.guard_seconds is not None


@walk(
    ("request_", "reason", "operation"),
    [
        ({"json": {**CALL, "params": {"tenant": "theirs"}}}, Reason.TENANT, None),
        ({"content": b"{", "headers": {"Content-Type": "application/json"}}, Reason.AMBIGUOUS_REQUEST, None),
        ({"content": b"{}" * 10_000_000}, Reason.TOO_LARGE, None),
    ],
)
def test_a_call_that_the_rules_reject_is_one_decision(request_: Any, reason: Reason, operation: Any) -> None:
    app, notes = observed()
    headers = {**GOOD, **request_.get("headers", {})}
    ask(app, "POST", RPC, **{**request_, "headers": headers})
    (decision,) = notes.decisions
    assert (decision.reason, decision.schemes, decision.operation) == (reason, ("key",), operation)
    assert decision.guard_seconds is not None


def test_a_rest_call_that_is_rejected_has_its_operation() -> None:
    app, notes = observed()
    ask(app, "GET", "/rest/tasks/3?tenant=theirs", headers=GOOD)
    assert notes.decisions[0][:4] == (Reason.TENANT, ("key",), Binding.HTTP_JSON, Operation.GET_TASK)


def test_a_late_rule_is_an_outage() -> None:
    async def never(*_: Any) -> bool:
        await asyncio.Event().wait()
        return True

    app, notes = observed(may_use_tenant=never)
    ask(app, "POST", RPC, json={**CALL, "params": {"tenant": "theirs"}}, headers=GOOD)
    assert [(each.reason, each.status) for each in notes.decisions] == [(Reason.KEY_SOURCE_UNAVAILABLE, 503)]


def test_the_rule_of_the_extended_card_makes_a_second_decision() -> None:
    extended = ExtendedCard(PROMISING, may_read=lambda caller: False)
    app, notes = observed(card=PROMISING, extended_card=extended)
    ask(app, "POST", RPC, json={**CALL, "method": "GetExtendedAgentCard"}, headers=GOOD)
    admitted, rejected = notes.decisions
    assert (admitted.reason, admitted.operation) == (None, Operation.GET_EXTENDED_CARD)
    assert (rejected.reason, rejected.operation, rejected.is_second) == (
        Reason.EXTENDED_CARD,
        Operation.GET_EXTENDED_CARD,
        True,
    )
    assert (rejected.guard_seconds, rejected.verifier_seconds) == (None, None)


def test_a_handler_makes_a_second_decision() -> None:
    async def handler(request: Any) -> Any:
        reject_caller(request, AuthorizationError("not today"))

    app, notes = observed(Starlette(routes=[Route("/own", handler)]))
    assert ask(app, "GET", "/own", headers=GOOD).status_code == 403
    admitted, rejected = notes.decisions
    assert (admitted.reason, admitted.is_second) == (None, False)
    assert (rejected.reason, rejected.schemes, rejected.is_second) == (Reason.INSUFFICIENT_SCOPE, ("key",), True)
    assert rejected.guard_seconds is None


def test_a_websocket_is_one_decision() -> None:
    app, notes = observed(Agent())
    for headers in ([(b"x-api-key", KEY.encode())], []):

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None: ...

        asyncio.run(app({"type": "websocket", "path": "/ws", "headers": headers}, receive, send))
    assert [(each.reason, each.method) for each in notes.decisions] == [
        (None, ""),
        (Reason.MISSING_CREDENTIALS, "GET"),
    ]


def test_a_decision_names_its_agent_among_several() -> None:
    notes = Notes()
    agents = {}
    for prefix in ("/a", "/b"):
        card = {
            **CARD,
            "supportedInterfaces": [{**CARD["supportedInterfaces"][0], "url": f"http://x.example{prefix}/rpc"}],
        }
        agents[prefix] = ProtectedAgent(card=card, verifiers=verifiers())
    app = protect_agents(Agent(), agents, observer=notes)
    for path in ("/a/rpc", "/b/rpc", "/elsewhere"):
        ask(app, "POST", path)
    ask(app, "POST", "/b/rpc", json=CALL, headers=GOOD)
    assert [(each.agent, each.reason, each.status) for each in notes.decisions] == [
        ("/a", Reason.MISSING_CREDENTIALS, 401),
        ("/b", Reason.MISSING_CREDENTIALS, 401),
        ("", Reason.UNDECLARED_PATH, 404),
        ("/b", None, 0),
    ]


def test_an_agent_whose_card_exists_late_is_observed_too() -> None:
    app, notes = observed(card=lambda: CARD)
    ask(app, "POST", RPC)
    assert [each.reason for each in notes.decisions] == [Reason.MISSING_CREDENTIALS]


def test_readers_of_the_card_outside_its_networks_are_a_decision() -> None:
    app, notes = observed(readers=Networks("10.0.0.0/8"))
    assert ask(app, "GET", "/.well-known/agent-card.json").status_code == 403
    assert [(each.reason, each.status, each.guard_seconds) for each in notes.decisions] == [(Reason.NETWORK, 403, None)]


def test_the_guard_in_a_list_of_middleware_is_observed_too() -> None:
    notes = Notes()
    app = guarded(Agent(), observer=notes)
    ask(app, "POST", RPC)
    ask(app, "POST", RPC, headers=GOOD)
    assert [(each.reason, each.operation) for each in notes.decisions] == [
        (Reason.MISSING_CREDENTIALS, None),
        (None, None),
    ]


def test_front_ends_that_are_not_asgi_have_the_same_decisions() -> None:
    notes = Notes()
    view = read_card(CARD)
    access = Access(view, verifiers(), rules=RequestRules(), trail=Trail(notes))
    calls = CallRules(access, RequestRules(), ExtendedCardEndpoint(view, None))

    async def run(headers: dict[str, str], body: bytes) -> Any:
        lines = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        request = {"type": "http", "method": "POST", "path": RPC, "headers": lines}
        found = await decide(access, calls, request, NOW)
        return await decide_with_body(calls, found, body) if isinstance(found, NeedsBody) else found

    json_ = {**GOOD, "Content-Type": "application/json"}
    admitted = asyncio.run(run(json_, json.dumps(CALL).encode()))
    assert isinstance(admitted, Admitted)
    assert isinstance(admitted.request[DECISION], Decision)
    asyncio.run(run({}, b""))
    asyncio.run(run(json_, b"{"))
    assert [(each.reason, each.operation) for each in notes.decisions] == [
        (None, Operation.SEND_MESSAGE),
        (Reason.MISSING_CREDENTIALS, None),
        (Reason.AMBIGUOUS_REQUEST, None),
    ]


def test_without_an_observer_no_clock_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would make the guard slower."""

    def forbidden() -> float:
        raise AssertionError("the clock was read")

    for module in ("a2a_trust.middleware.decision", "a2a_trust.auth.guard"):
        monkeypatch.setattr(f"{module}.perf_counter", forbidden)
    app = protect(application(), card=CARD, verifiers=verifiers())
    for headers, status in (({}, 401), (GOOD, 200), (GOOD, 200)):
        assert ask(app, "POST", RPC, json=CALL, headers=headers).status_code == status
    with pytest.raises(AssertionError, match="the clock was read"):
        ask(observed()[0], "POST", RPC)


@walk(
    "observer",
    [Notes, object(), type("Half", (), {"on_decision": lambda self, decision: None})()],
)
def test_an_observer_that_would_miss_something_is_wrong_at_the_start(observer: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"observer: pass an object with the plain \(not async\) method on_"):
        protect(application(), card=CARD, verifiers=verifiers(), observer=observer)


def test_an_async_observer_is_wrong_at_the_start() -> None:
    class Async(Notes):
        async def on_decision(self, decision: Decision) -> None:  # type: ignore[override]
            """Nobody would await it."""

    with pytest.raises(ConfigurationError, match="method on_decision"):
        protect(application(), card=CARD, verifiers=verifiers(), observer=Async())  # type: ignore[arg-type]


# changes of state


def test_a_change_reaches_each_observer_once_and_as_long_as_its_guard_lives() -> None:
    notes, other = Notes(), Notes()
    apps = [protect(application(), card=CARD, verifiers=verifiers(), observer=each) for each in (notes, notes, other)]
    change = StateChange(StateKind.STORE_LOST, "the store")
    state_changes.announce(change)
    assert notes.changes == other.changes == [change]
    del apps
    gc.collect()
    state_changes.announce(change)
    assert notes.changes == other.changes == [change]


class Server(Database):
    _errors = (OSError,)

    async def aclose(self) -> None:
        """It has no connection."""

    def _reason(self, error: Exception) -> str:
        return "no answer"


def test_a_store_that_is_lost_and_found_is_two_changes() -> None:
    app, notes = observed()
    url = DatabaseUrl.redis("redis://ann:secret@127.0.0.1/0")
    store = Server("Redis", url, "API keys", KeySourceUnavailableError, 1.0)
    for _ in range(3):
        with pytest.raises(KeySourceUnavailableError), store._translate(audits=True):
            raise OSError
    with store._translate(audits=True):
        pass
    assert [each.kind for each in notes.changes] == [StateKind.STORE_LOST, StateKind.STORE_FOUND]
    assert "secret" not in notes.changes[0].detail
    assert notes.changes[0].detail == f"API keys in {url.shown}: no answer"
    assert app is not None


def test_a_key_set_that_cannot_be_refreshed_is_stale_until_it_is() -> None:
    app, notes = observed()
    answers: list[Exception | bytes] = [FetchError("no route"), FetchError("no route"), b'{"keys":[]}']
    clock = [0.0]

    async def load() -> tuple[bytes, float | None]:
        answer = answers.pop(0)
        if isinstance(answer, bytes):
            return answer, None
        raise answer

    async def run() -> None:
        cache = JwksCache(load, name="keys of a", clock=lambda: clock[0])
        for clock[0] in (0.0, 10.0):
            with pytest.raises(KeySourceUnavailableError):
                await cache.keys()
        clock[0] = 100.0
        await cache.keys()

    asyncio.run(run())
    assert notes.changes == [
        StateChange(StateKind.KEYS_STALE, "keys of a: no route"),
        StateChange(StateKind.KEYS_FRESH, "keys of a"),
    ]
    assert app is not None


def test_a_card_that_ends_soon_is_announced_once(caplog: pytest.LogCaptureFixture) -> None:
    signer = generate_signer()
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("agent.example"))])
    card = FixedCard(sign_card(CARD, signer, iat=int(NOW), lifetime=1000).card, trust=trust, clock=lambda: NOW)
    clock = [NOW]
    app, notes = observed(card=card, clock=lambda: clock[0])
    for clock[0] in (NOW, NOW + 740, NOW + 760, NOW + 770):
        assert ask(app, "GET", "/.well-known/agent-card.json").status_code == 200
    (change,) = notes.changes
    assert change.kind is StateKind.CARD_ENDS_SOON
    assert change.detail.endswith("sign it again")
    assert [record.__dict__["audit"]["event"] for record in caplog.records if "audit" in vars(record)] == ["ends-soon"]
    clock[0] = NOW + 1001
    assert ask(app, "GET", "/.well-known/agent-card.json").status_code == 503
    assert notes.changes[1].kind is StateKind.CARD_NOT_SERVED


def test_a_card_file_that_is_lost_and_back_is_two_changes(tmp_path: Path) -> None:
    signer, path = generate_signer(), tmp_path / "card.json"
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("agent.example"))])
    path.write_text(json.dumps(sign_card(CARD, signer).card))
    file = CardFile(path, trust=trust, reload=True)
    app, notes = observed()
    file._tell(OSError("gone"))
    file._tell(None)
    assert [each.kind for each in notes.changes] == [StateKind.CARD_NOT_RELOADED, StateKind.CARD_RELOADED]
    assert app is not None


def test_the_begin_of_a_throttle_is_one_change_for_each_cause() -> None:
    class Limited:
        async def verify(self, credential: str, now: float) -> Identity:
            raise TooManyRequestsError("too many from 192.0.2.1", cause="too many from 192.0.2.1", retry_after=5)

    app, notes = observed(verifiers={**verifiers(), "key": Limited()})
    for _ in range(5):
        assert ask(app, "POST", RPC, headers={"X-API-Key": KEY}).status_code == 429
    assert notes.changes == [StateChange(StateKind.THROTTLE_BEGINS, "too many from 192.0.2.1")]
    assert len(notes.decisions) == 5


def test_a_decision_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Decision().status = 200  # type: ignore[misc]
