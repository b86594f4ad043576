"""Cards that exist late: made when the application has started, and asked for again when callers read them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.responses import JSONResponse

from a2a_trust.card.merge import CardSecurity
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust.origins import Origins
from a2a_trust.keys.trust.store import TrustedKey, TrustStore
from a2a_trust.middleware.application import FromApplication, is_function
from a2a_trust.middleware.card import CardReaders, FixedCard
from a2a_trust.middleware.documents import json_bytes
from a2a_trust.middleware.extended_card import ExtendedCard
from a2a_trust.middleware.protection import ProtectedAgent, protect, protect_agents
from a2a_trust.signing.verify import verify_card
from tests.middleware.agent import CALL, CARD, KEY, Agent, grouped, verifiers
from tests.middleware.several import ALL, agent_at, asked, card_of, judged_by, running
from tests.middleware.test_card import events
from tests.middleware.test_protection import PATHS, ask
from tests.tables import walk

pytestmark = pytest.mark.anyio

GOOD = {"X-API-Key": KEY}
OTHER_RULES: list[dict[str, Any]] = [
    {**CARD, "securityRequirements": CARD["securityRequirements"][:1]},
    {**CARD, "securitySchemes": {**CARD["securitySchemes"], "more": {"mtlsSecurityScheme": {}}}},
    {**CARD, "supportedInterfaces": CARD["supportedInterfaces"][:1]},
    {**CARD, "capabilities": {"extendedAgentCard": True}},
    {**CARD, "skills": [{"id": "x", "securityRequirements": CARD["securityRequirements"]}]},
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Time:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """The clock that says when a card is asked for again."""
    clock = Time()
    for module in ("agents", "application"):
        monkeypatch.setattr(f"a2a_trust.middleware.{module}.monotonic", clock)
    return clock


class Generator:
    """What gives the card: counts how often it is asked, waits while it is told to, and gives or raises."""

    def __init__(self, card: Any = CARD) -> None:
        self.card = card
        self.asked = 0
        self.may_answer: anyio.Event | None = None

    async def __call__(self) -> Any:
        self.asked += 1
        if self.may_answer is not None:
            await self.may_answer.wait()
        if isinstance(self.card, Exception):
            raise self.card
        return self.card


def late(card: Any, inner: Any = None, **options: Any) -> Any:
    return protect(inner or Agent(), card=card, verifiers=verifiers(), **grouped(options))


def forms_of_functions() -> dict[str, Callable[[], Any]]:
    async def slow() -> Any:
        await anyio.lowlevel.checkpoint()
        return CARD

    return {
        "a function": lambda: CARD,
        "an async function": slow,
        "an object": Generator(),
        "bytes": lambda: json_bytes(CARD),
        "text": lambda: json_bytes(CARD).decode(),
        "a partial": partial(dict, CARD),
    }


@walk("form", forms_of_functions())
async def test_a_function_gives_the_card_when_the_application_has_started(form: str) -> None:
    function = forms_of_functions()[form]
    assert is_function(function)
    inner = Agent()
    app = late(function, inner)
    async with running(app) as lifespan:
        assert lifespan.kinds == ["startup.complete"]
        for path in PATHS:
            assert (await asked(app, path))[1]["body"] == json_bytes(CARD)
        assert (await asked(app, "/rpc"))[0]["status"] == 401
    assert lifespan.kinds == ["startup.complete", "shutdown.complete"]
    assert [scope["type"] for scope in inner.scopes] == ["lifespan"]


@walk("card", [CARD, b"{}", "{}", dict, FixedCard(CARD), FromApplication(), 5])
def test_a_card_is_no_function(card: Any) -> None:
    assert not is_function(card)


async def test_it_is_asked_for_after_the_application_has_started() -> None:
    order: list[str] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        order.append("started")
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def card() -> Any:
        order.append("card")
        return CARD

    async with running(late(card, inner)):
        assert order == ["started", "card"]


@walk(
    ("card", "words"),
    [
        (RuntimeError("no database"), "card: making it failed with RuntimeError: no database"),
        (ConfigurationError("not configured"), "not configured"),
        ([], "card: list is not a card; write a dict"),
        (b"[]", "card: : a JSON object is needed"),
        (b"{", "card: "),
        ({**CARD, "securitySchemes": []}, "card: /securitySchemes: an object is needed"),
        ({**CARD, "securityRequirements": [{"schemes": {"other": {}}}]}, "other"),
        ({"name": "open"}, "card: it names no interface; add supportedInterfaces"),
        ({**CARD, "signatures": [{"protected": "x", "signature": "y"}]}, "card: it has signatures"),
        ({**CARD, "capabilities": {"extendedAgentCard": True}}, r"ExtendedCard\(FromApplication\(\)\)"),
        (FixedCard(CARD), "card: FixedCard is not a card"),
    ],
)
async def test_a_card_that_fails_a_check_fails_the_start(card: Any, words: str) -> None:
    inner = Agent()
    app = late(Generator(card), inner)
    async with running(app) as lifespan:
        assert re.search(words, lifespan.failure)
    (scope,) = inner.scopes  # its lifespan ended: ``running`` has waited for that
    assert scope["type"] == "lifespan"


async def test_the_application_is_shut_down_when_its_card_fails() -> None:
    received = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        received.append((await receive())["type"])
        await send({"type": "lifespan.startup.complete"})
        received.append((await receive())["type"])
        await send({"type": "lifespan.shutdown.complete"})

    async with running(late(Generator(ValueError("x")), inner)) as lifespan:
        assert "ValueError: x" in lifespan.failure
    assert received == ["lifespan.startup", "lifespan.shutdown"]
    assert lifespan.kinds == ["startup.failed"]


async def test_agents_that_would_share_a_path_fail_the_start() -> None:
    root = agent_at("", card=Generator(card_of("")), card_paths=["/ops/card.json"])
    async with running(protect_agents(Agent(), {"/": root, "/ops": agent_at("/ops")})) as lifespan:
        assert "'/' would have a document at '/ops/card.json', which belongs to '/ops'" in lifespan.failure
    a = agent_at("/a", card=Generator(card_of("/a/b")))
    async with running(protect_agents(Agent(), {"/a": a, "/a/b": agent_at("/a/b")})) as lifespan:
        assert "'/a/b/rpc', in the card or the rules of the agent '/a', is a path of another agent" in lifespan.failure


async def test_the_failure_of_one_of_several_names_it() -> None:
    for error in (ValueError("no database"), ConfigurationError("no database")):
        app = protect_agents(Agent(), {"/ops": agent_at("/ops", card=Generator(error))})
        async with running(app) as lifespan:
            assert lifespan.failure.startswith("agent '/ops': ")
            assert lifespan.failure.endswith("no database")


async def test_without_a_lifespan_the_first_request_asks(time: Time) -> None:
    card = Generator()
    app = late(card)
    assert card.asked == 0
    assert (await asked(app, "/rpc"))[0]["status"] == 401
    assert (await asked(app, PATHS[0]))[1]["body"] == json_bytes(CARD)
    assert card.asked == 1


async def test_without_a_card_everything_is_503_and_it_is_asked_for_once_in_ten_seconds(
    time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "a2a_trust.middleware.agents")
    card, inner = Generator([]), Agent()
    app = late(card, inner)
    for path in (*PATHS, "/rpc", "/", "/.well-known/jwks.json"):
        messages = await asked(app, path, headers=[(b"x-api-key", KEY.encode())])
        assert messages[0]["status"] == 503
        assert dict(messages[0]["headers"])[b"retry-after"] == b"10"
        assert dict(messages[0]["headers"])[b"cache-control"] == b"no-store"
    assert judged_by(await asked(app, "/rpc", type="websocket")) == "closed 1013"
    assert (card.asked, inner.scopes) == (1, [])
    time.now += 9.9
    await asked(app, "/rpc")
    assert card.asked == 1
    time.now += 0.1
    await asked(app, "/rpc")
    assert card.asked == 2
    (record,) = caplog.records
    assert record.getMessage().startswith("requests get 503 until the card can be made: card: list is not a card")
    time.now += 10
    card.card = b"[]"
    await asked(app, "/rpc")
    assert len(caplog.records) == 2  # another reason
    time.now += 10
    card.card = CARD
    assert (await asked(app, "/rpc"))[0]["status"] == 401
    assert card.asked == 4


async def test_one_line_of_the_log_has_the_trace_of_an_error(time: Time, caplog: pytest.LogCaptureFixture) -> None:
    app = late(Generator(ValueError("no database")))
    for _ in range(3):
        assert (await asked(app, "/rpc"))[0]["status"] == 503
        time.now += 10
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[0] is ValueError


async def test_a_function_that_never_answers_fails_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_trust.middleware.application.ASK_SECONDS", 0.05)
    card = Generator()
    card.may_answer = anyio.Event()
    async with running(late(card)) as lifespan:
        assert lifespan.failure == "card: the function or the application did not give it within 0 seconds"


async def test_an_agent_that_waits_for_its_card_holds_up_no_other(time: Time) -> None:
    card = Generator(card_of("/ops"))
    card.may_answer = anyio.Event()
    agents = {"/billing": agent_at("/billing", card=lambda: card_of("/billing")), "/ops": agent_at("/ops", card=card)}
    app = protect_agents(Agent(), agents, unguarded_paths=["/healthz"])
    statuses: list[str] = []

    async def request(path: str) -> None:
        statuses.append(judged_by(await asked(app, path)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(request, "/ops/rpc")
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(60):
            for path in ("/billing/rpc", "/healthz", "/x"):
                await request(path)
        assert statuses == ["X-billing", "200", "404"]
        card.may_answer.set()
    assert (statuses[-1], card.asked) == ("X-ops", 1)


@pytest.mark.parametrize(
    "path",
    ["/.well-known/oauth-protected-resource/public/ops", "/public/ops/.well-known/jwks.json", f"{PATHS[0]}?id=ops"],
)
async def test_documents_outside_a_prefix_have_the_cards_made(path: str, time: Time) -> None:
    url, signer = "https://agent.example/public/ops", generate_signer()
    ops = agent_at("/ops", card=lambda: card_of("/ops"), url=url, signer=signer)
    app = protect_agents(Agent(), {"/ops": ops}, card_of=lambda query: f"/{query['id']}")
    where, _, query = path.partition("?")
    assert judged_by(await asked(app, where, query_string=query.encode())) == "200"


async def test_requests_that_come_together_ask_once(time: Time) -> None:
    card = Generator()
    card.may_answer = anyio.Event()
    app = late(card)
    statuses: list[int] = []

    async def request() -> None:
        statuses.append((await asked(app, "/rpc"))[0]["status"])

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(request)
        await anyio.wait_all_tasks_blocked()
        assert (card.asked, statuses) == (1, [])
        card.may_answer.set()
    assert (card.asked, statuses) == (1, [401] * 5)


async def test_requests_that_come_together_fail_once(time: Time) -> None:
    card = Generator(ValueError("x"))
    card.may_answer = anyio.Event()
    app = late(card)
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(asked, app, "/rpc")
        await anyio.wait_all_tasks_blocked()
        card.may_answer.set()
    assert card.asked == 1


async def test_a_first_request_that_is_cancelled_has_the_card_made_all_the_same(time: Time) -> None:
    card = Generator()
    card.may_answer = anyio.Event()
    app = late(card)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked, app, "/rpc")
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
        card.may_answer.set()
    assert (await asked(app, "/rpc"))[0]["status"] == 401
    assert card.asked == 1


async def test_an_agent_without_its_card_is_503_and_the_others_answer(time: Time) -> None:
    app = protect_agents(
        Agent(),
        {"/billing": agent_at("/billing"), "/ops": agent_at("/ops", card=Generator(ValueError("x")))},
        unguarded_paths=["/healthz"],
    )
    for _ in range(2):
        assert judged_by(await asked(app, "/ops/rpc")) == "503"
    assert judged_by(await asked(app, "/billing/rpc")) == "X-billing"
    assert judged_by(await asked(app, "/healthz")) == "200"
    assert judged_by(await asked(app, "/x")) == "404"
    assert judged_by(await asked(app, "/ops/../billing")) == "404"


@pytest.mark.parametrize("signs", [False, True])
def test_another_text_is_served_and_signed_again(time: Time, *, signs: bool) -> None:
    card, signer = Generator(), generate_signer()
    app = late(card, **({"signer": signer} if signs else {}))
    first = ask(app, "GET", PATHS[0])
    card.card = {**CARD, "description": "Better."}
    time.now += 9.9
    assert ask(app, "GET", PATHS[0]).content == first.content
    assert card.asked == 1
    time.now += 0.1
    assert ask(app, "POST", "/rpc", json=CALL, headers=GOOD).status_code == 200
    assert card.asked == 1  # only readers ask
    second = ask(app, "GET", PATHS[1], headers={"If-None-Match": first.headers["etag"]})
    assert (second.status_code, second.json()["description"], card.asked) == (200, "Better.", 2)
    assert ask(app, "HEAD", PATHS[0], headers={"If-None-Match": second.headers["etag"]}).status_code == 304
    assert card.asked == 2
    if signs:
        trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("agent.example"))])
        for answer in (first, second):
            verify_card(answer.content, trust, origin="https://agent.example")
    time.now += 10
    assert ask(app, "GET", PATHS[0]).content == second.content  # the same text is not signed again


@walk("changed", OTHER_RULES)
def test_other_rules_are_not_served_and_not_enforced(
    changed: dict[str, Any], time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "a2a_trust.audit")
    card, inner = Generator(), Agent()
    app = late(card, inner)
    etag = ask(app, "GET", PATHS[0]).headers["etag"]
    card.card = changed
    time.now += 10
    for _ in range(3):
        answer = ask(app, "GET", PATHS[0], headers={"If-None-Match": etag})
        assert (answer.status_code, answer.content) == (503, b"")
        assert ask(app, "POST", "/rpc", json=CALL, headers=GOOD).status_code == 200
        assert ask(app, "POST", "/rpc", json=CALL).status_code == 401
        time.now += 10
    (event,) = [each for each in events(caplog) if each["event"] == "not-served"]
    assert "its rules differ from those that are enforced; restart the agent" in event["detail"]
    card.card = CARD
    assert ask(app, "GET", PATHS[0]).status_code == 200
    assert inner.paths == ["/rpc"] * 3


@walk("signs", [False, True])
@walk("failure", [RuntimeError("secret-password"), b"{", [], b"[]"])
def test_a_card_that_cannot_be_read_again_leaves_the_last_one(
    failure: Any, time: Time, caplog: pytest.LogCaptureFixture, *, signs: bool
) -> None:
    caplog.set_level(logging.INFO, "a2a_trust.audit")
    card = Generator()
    app = late(card, **({"signer": generate_signer()} if signs else {}))
    first = ask(app, "GET", PATHS[0])
    card.card = failure
    for _ in range(3):
        time.now += 10
        assert ask(app, "GET", PATHS[0]).content == first.content
    assert card.asked == 4
    assert [each["event"] for each in events(caplog)] == ["not-reloaded"]
    assert events(caplog)[0]["detail"].startswith("generated card: ")
    assert "secret-password" not in caplog.text
    card.card = CARD
    time.now += 10
    assert ask(app, "GET", PATHS[0]).content == first.content
    assert [each["event"] for each in events(caplog)] == ["not-reloaded", "reloaded"]
    card.card = failure
    time.now += 10
    ask(app, "GET", PATHS[0])
    assert [each["event"] for each in events(caplog)] == ["not-reloaded", "reloaded", "not-reloaded"]


async def test_readers_get_the_last_card_while_one_of_them_asks(time: Time) -> None:
    card = Generator()
    app = late(card)
    await asked(app, PATHS[0])
    time.now += 10
    card.may_answer, card.card = anyio.Event(), {**CARD, "description": "Better."}
    bodies: list[bytes] = []

    async def read() -> None:
        bodies.append((await asked(app, PATHS[0]))[1]["body"])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        for _ in range(3):
            with anyio.fail_after(60):
                await read()
        assert (bodies, card.asked) == ([json_bytes(CARD)] * 3, 2)
        card.may_answer.set()
    assert bodies[-1] == json_bytes(card.card)


@pytest.mark.parametrize("readers", ["CALLERS", "EVERYBODY"])
def test_strangers_to_a_card_for_callers_do_not_have_it_asked_for(readers: str, time: Time) -> None:
    card = Generator()
    app = late(card, readers=CardReaders[readers])
    ask(app, "GET", PATHS[0])
    time.now += 10
    status = ask(app, "GET", PATHS[0]).status_code
    assert (status, card.asked) == ((401, 1) if readers == "CALLERS" else (200, 2))
    assert ask(app, "GET", PATHS[0], headers=GOOD).status_code == 200
    assert card.asked == 2


async def test_security_is_added_to_a_generated_card_each_time(time: Time) -> None:
    plain = {name: value for name, value in CARD.items() if not name.startswith("security")}
    security = CardSecurity(schemes=CARD["securitySchemes"], requirements=CARD["securityRequirements"])
    card = Generator(plain)
    app = late(card, security=security)
    assert ask_card(await asked(app, PATHS[0])) == json_bytes(security.added_to(plain))
    card.card = {**plain, "description": "Better."}
    time.now += 10
    assert ask_card(await asked(app, PATHS[0])) == json_bytes(security.added_to(card.card))
    card.card = {**plain, "securityRequirements": [{"schemes": {}}]}  # which contradicts
    time.now += 10
    assert ask_card(await asked(app, PATHS[0])) == json_bytes(security.added_to({**plain, "description": "Better."}))


def ask_card(messages: Any) -> bytes:
    assert messages[0]["status"] == 200
    body: bytes = messages[1]["body"]
    return body


async def test_a_card_that_exists_late_is_served_with_all_documents_of_its_agent() -> None:
    signer = generate_signer()
    agents = {
        "/billing": agent_at(
            "/billing",
            card=lambda: card_of("/billing"),
            url="https://agent.example/billing",
            signer=signer,
            card_paths=["/billing/card.json"],
        ),
        "/ops": agent_at("/ops", card=lambda: card_of("/ops")),
    }
    app = protect_agents(Agent(), agents, card_of=lambda query: f"/{query['id']}")
    async with running(app):
        for path in (f"/billing{PATHS[0]}", "/billing/card.json", "/billing/.well-known/jwks.json"):
            assert (await asked(app, path))[0]["status"] == 200
        for path in ("/.well-known/oauth-protected-resource/billing", f"/ops{PATHS[1]}"):
            assert (await asked(app, path))[0]["status"] == 200
        assert (await asked(app, PATHS[0], query_string=b"id=ops"))[1]["body"] == json_bytes(card_of("/ops"))
        good = [(b"x-ops", ALL.encode())]
        assert judged_by(await asked(app, "/ops/rest/tasks", headers=good)) == "200"
        assert judged_by(await asked(app, "/billing/rpc", headers=good)) == "X-billing"


def test_security_and_a_source_of_cards_are_not_for_each_other() -> None:
    security = CardSecurity(schemes=CARD["securitySchemes"], requirements=CARD["securityRequirements"])
    with pytest.raises(ConfigurationError, match=r"security: .* serves cards as they are"):
        ProtectedAgent(card=FixedCard(CARD), verifiers=verifiers(), security=security)


def test_a_card_in_a_file_is_asked_for_too(tmp_path: Path, time: Time) -> None:
    path = tmp_path / "card.json"
    path.write_bytes(json_bytes(CARD))
    app = late(lambda: path)
    assert ask(app, "GET", PATHS[0]).content == json_bytes(CARD)
    path.write_bytes(json_bytes({**CARD, "description": "Better."}))
    time.now += 10
    assert ask(app, "GET", PATHS[0]).json()["description"] == "Better."


def test_the_extended_card_of_a_late_card_is_checked_too() -> None:
    promising = {**CARD, "capabilities": {"extendedAgentCard": True}}
    app = late(lambda: promising, extended_card=ExtendedCard(promising))
    assert ask(app, "GET", "/rest/extendedAgentCard", headers=GOOD).status_code == 200
    app = late(lambda: CARD, extended_card=ExtendedCard(promising))
    assert ask(app, "GET", "/rest/extendedAgentCard", headers=GOOD).status_code == 503


async def test_the_card_is_asked_for_by_the_request_that_needs_it(time: Time) -> None:
    """What the first request brought along is not kept for others."""
    seen: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["state"])
        await JSONResponse(CARD)(scope, receive, send)

    app = late(FromApplication(), inner, url="http://agent.example")
    for number in (1, 2):
        await asked(app, PATHS[0], state={"number": number})
        time.now += 10
    assert seen == [{"number": 1}, {"number": 2}]


def test_what_stands_for_the_application_has_parentheses() -> None:
    with pytest.raises(ConfigurationError, match=r"card: write FromApplication\(\), with parentheses"):
        late(FromApplication)
