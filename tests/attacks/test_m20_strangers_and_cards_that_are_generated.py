"""M20: a card that is generated changes its rules, or strangers have the application make it again and again.

Also an application that never makes it: it takes nobody else with it. The defenses: a card is served only while it has
the rules that are enforced, it is asked for once in ten seconds, and only for requests to its own agent.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from a2a_trust.keys.signer import generate_signer
from a2a_trust.middleware.application import FromApplication
from a2a_trust.middleware.card import CardReaders
from a2a_trust.middleware.protection import protect, protect_agents
from tests.middleware.agent import CALL, grouped, uvicorn_serving
from tests.middleware.several import ALL, agent_at, card_of, verifiers
from tests.middleware.test_generated import Time
from tests.middleware.test_protection import PATHS
from tests.tables import walk

pytestmark = pytest.mark.anyio

GOOD: Final = {"X-root": ALL}
OPEN: Final[list[dict[str, Any]]] = [
    {"securitySchemes": {}, "securityRequirements": []},
    {"securityRequirements": [{"schemes": {}}]},
    {"securityRequirements": [{"schemes": {"key": {"list": []}}}]},  # without the scope
    {"securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "query", "name": "X-root"}}}},
    {"securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Other"}}}},
    {"supportedInterfaces": [{"url": "http://evil.example/rpc", "protocolBinding": "JSONRPC"}]},
    {"capabilities": {"extendedAgentCard": True}},
    {"securitySchemes": None, "securityRequirements": None},
    {"securityRequirements": 5},
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    for module in ("agents", "application"):
        monkeypatch.setattr(f"a2a_trust.middleware.{module}.monotonic", clock)
    return clock


class Application:
    """A real application that makes its card at each request for it; ``waits`` is what that waits for."""

    def __init__(self, card: Any) -> None:
        self.card, self.asked = card, 0
        self.waits: anyio.Event | None = None
        self.called: list[str] = []
        self.app = Starlette(
            routes=[
                Route("/{rest:path}agent-card.json", self._made),
                Route("/{rest:path}", self._called, methods=["GET", "POST"]),
            ]
        )

    async def _made(self, request: Request) -> JSONResponse:
        self.asked += 1
        if self.waits is not None:
            await self.waits.wait()
        return JSONResponse(self.card)

    async def _called(self, request: Request) -> PlainTextResponse:
        self.called.append(request.url.path)
        return PlainTextResponse("called")


def late(application: Application, **options: Any) -> Any:
    return protect(application.app, card=FromApplication(), verifiers=verifiers(), **grouped(options))


@walk("changed", OPEN)
async def test_a_card_that_comes_to_say_other_rules_opens_nothing(changed: dict[str, Any], time: Time) -> None:
    application = Application(card_of(""))
    app = late(application, signer=generate_signer())
    async with uvicorn_serving(app, "httptools", lifespan="on") as origin, httpx.AsyncClient(base_url=origin) as http:
        first = await http.get(PATHS[0])
        application.card = {**card_of(""), **changed}
        for _ in range(3):
            time.now += 10
            for path in PATHS:
                again = await http.get(path)
                assert (again.status_code, again.content) in ((200, first.content), (503, b""))
            for query in ("", f"?X-root={ALL}"):
                assert (await http.post(f"/rpc{query}", json=CALL)).status_code == 401
            assert (await http.post("/rpc", json=CALL, headers={"X-Other": ALL})).status_code == 401
            assert (await http.post("/rpc", json=CALL, headers=GOOD)).text == "called"
    assert application.called == ["/rpc"] * 3


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_many_readers_have_a_card_made_once_in_ten_seconds(http: str, time: Time) -> None:
    application = Application(card_of(""))
    async with uvicorn_serving(late(application), http, lifespan="on") as origin:
        assert application.asked == 1
        async with httpx.AsyncClient(base_url=origin) as client:
            for round_ in range(3):
                answers = await asyncio.gather(
                    *(
                        client.request(method, f"{path}?x={at}")
                        for at in range(10)
                        for path in PATHS
                        for method in ("GET", "HEAD")
                    )
                )
                assert {answer.status_code for answer in answers} == {200}
                assert application.asked == 1 + round_
                time.now += 10


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_many_requests_without_a_lifespan_ask_once_in_ten_seconds(http: str, time: Time) -> None:
    application = Application({"name": "no rules"})
    async with uvicorn_serving(late(application), http) as origin, httpx.AsyncClient(base_url=origin) as client:
        for round_ in range(3):
            paths = (*PATHS, "/rpc", "/", "/.well-known/jwks.json", "/x")
            requests = [client.request(method, path) for path in paths for method in ("GET", "POST", "OPTIONS")]
            answers = await asyncio.gather(*requests)
            assert {answer.status_code for answer in answers} == {503}
            assert application.asked == 1 + round_
            time.now += 10
        application.card = card_of("")
        assert (await client.post("/rpc", json=CALL)).status_code == 401
        assert (await client.post("/rpc", json=CALL, headers=GOOD)).text == "called"
    assert application.called == ["/rpc"]


async def test_requests_that_end_early_ask_once_and_the_card_is_made_all_the_same(
    monkeypatch: pytest.MonkeyPatch, time: Time
) -> None:
    monkeypatch.setattr("a2a_trust.middleware.application.ASK_SECONDS", 0.5)
    application = Application(card_of(""))
    application.waits = anyio.Event()
    inner = late(application)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        """As a middleware that gives every request some time."""
        with anyio.move_on_after(0.05) as limit:
            await inner(scope, receive, send)
        if limit.cancelled_caught:
            await PlainTextResponse("too late", 504)(scope, receive, send)

    async with uvicorn_serving(app, "h11") as origin, httpx.AsyncClient(base_url=origin) as client:
        for _ in range(2):
            answers = await asyncio.gather(*(client.get("/rpc") for _ in range(5)))
            assert {answer.status_code for answer in answers} <= {503, 504}
        with anyio.fail_after(60):
            while (await client.get("/rpc")).status_code != 503:  # it gave no answer in its time
                pass
        assert application.asked == 1
        time.now += 10
        first = asyncio.create_task(client.get("/rpc"))
        with anyio.fail_after(60):
            while application.asked < 2:
                await asyncio.sleep(0)
            assert (await client.get("/rpc")).status_code == 504  # so the first one's time is over, too
            application.waits.set()
            await first
        assert (await client.get("/rpc")).status_code == 401
    assert application.asked == 2


async def test_strangers_to_a_card_for_callers_have_nothing_made(time: Time) -> None:
    application = Application(card_of(""))
    app = late(application, readers=CardReaders.CALLERS)
    async with uvicorn_serving(app, "h11", lifespan="on") as origin, httpx.AsyncClient(base_url=origin) as client:
        time.now += 10
        for path in PATHS:
            assert (await client.get(path)).status_code == 401
            assert (await client.get(path, headers={"X-root": "wrong"})).status_code == 401
        assert application.asked == 1
        assert (await client.get(PATHS[0], headers=GOOD)).status_code == 200
        assert application.asked == 2


async def test_an_agent_that_never_has_its_card_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_trust.middleware.application.ASK_SECONDS", 60.0)
    application = Application(card_of("/ops"))
    application.waits = anyio.Event()
    agents = {"/billing": agent_at("/billing"), "/ops": agent_at("/ops", card=FromApplication())}
    app = protect_agents(application.app, agents, unguarded_paths=["/healthz"])
    async with uvicorn_serving(app, "h11") as origin, httpx.AsyncClient(base_url=origin, timeout=60) as client:
        waiting = [asyncio.create_task(client.get("/ops/rpc")) for _ in range(5)]
        while not application.asked:
            await asyncio.sleep(0)
        for path, status in (("/billing/rpc", 401), (f"/billing{PATHS[0]}", 200), ("/healthz", 200), ("/x", 404)):
            assert (await client.get(path)).status_code == status
        assert not any(task.done() for task in waiting)
        application.waits.set()
        assert {(await task).status_code for task in waiting} == {401}
    assert application.asked == 1
    assert application.called == ["/healthz"]


async def test_readers_get_the_last_card_of_an_application_that_never_answers_again(
    monkeypatch: pytest.MonkeyPatch, time: Time
) -> None:
    monkeypatch.setattr("a2a_trust.middleware.application.ASK_SECONDS", 0.5)
    application = Application(card_of(""))
    async with (
        uvicorn_serving(late(application), "h11", lifespan="on") as origin,
        httpx.AsyncClient(base_url=origin, timeout=60) as client,
    ):
        application.waits = anyio.Event()  # never set
        first = await client.get(PATHS[0])
        time.now += 10
        answers = await asyncio.gather(*(client.get(PATHS[0]) for _ in range(5)))
        assert {answer.content for answer in answers} == {first.content}
        assert (await client.post("/rpc", json=CALL, headers=GOOD)).text == "called"
    assert application.asked == 2
