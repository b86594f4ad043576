"""Applications in memory run as servers run them, and an agent in memory is as strict as a real one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from a2a_trust import CardAuth, ConfigurationError, Origins, TrustedKey, TrustStore, generate_signer, verify_card
from a2a_trust.client import ApiKey, AsyncVerifyingTransport, CredentialsRejectedError, UnverifiedCardError
from a2a_trust.testing import InMemoryAgent, memory_client

pytestmark = pytest.mark.anyio

URL = "https://agent.test"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# --- memory_client


def living(happened: list[str], fails: str = "") -> Starlette:
    """An application with a lifespan, which may fail at the start or at the end."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[dict[str, Any]]:
        if fails == "start":
            raise OSError("no database")
        happened.append("started")
        yield {"book": happened}
        happened.append("ended")
        if fails == "stop":
            raise OSError("still in use")

    async def book(request: Request) -> PlainTextResponse:
        request.state.book.append("asked")
        return PlainTextResponse(request.headers.get("x-told", ""))

    return Starlette(routes=[Route("/", book)], lifespan=lifespan)


async def test_the_lifespan_runs_around_the_block_and_its_state_is_in_requests() -> None:
    happened: list[str] = []
    async with memory_client(living(happened), headers={"X-Told": "by all"}) as http:
        assert happened == ["started"]
        assert (await http.get("/")).text == "by all"
    assert happened == ["started", "asked", "ended"]


async def test_the_lifespan_ends_after_a_failure_of_the_test_which_comes_out_as_it_is() -> None:
    happened: list[str] = []
    with pytest.raises(ZeroDivisionError):
        async with memory_client(living(happened)):
            raise ZeroDivisionError
    assert happened == ["started", "ended"]


@pytest.mark.parametrize(("when", "why"), [("start", "failed to start: .*no database"), ("stop", "stop: .*in use")])
async def test_a_lifespan_that_fails_fails_the_test(when: str, why: str) -> None:
    with pytest.raises(RuntimeError, match=f"(?s){why}"):
        async with memory_client(living([], fails=when)):
            pass


async def test_an_application_without_a_lifespan_runs_too() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await PlainTextResponse("hello")(scope, receive, send)

    async with memory_client(app, base_url="http://localhost:8000") as http:
        assert (await http.get("/")).text == "hello"
        assert (await http.get("http://localhost:8000/x")).text == "hello"


@pytest.mark.parametrize("elsewhere", ["https://other.test/", "http://agent.test/", "https://agent.test:8443/"])
async def test_there_is_nothing_at_another_origin(elsewhere: str) -> None:
    async with memory_client(living([])) as http:
        with pytest.raises(httpx.ConnectError, match=r"only https://agent\.test can be reached"):
            await http.get(elsewhere)


async def test_an_exception_of_the_application_comes_out_of_the_request() -> None:
    async def broken(_: Request) -> PlainTextResponse:
        raise ZeroDivisionError

    async with memory_client(Starlette(routes=[Route("/", broken)])) as http:
        with pytest.raises(ZeroDivisionError):
            await http.get("/")


@asynccontextmanager
async def entered_elsewhere() -> AsyncIterator[httpx.AsyncClient]:
    """As fixtures of some plug-ins: the start runs in another task than the end."""
    block = memory_client(living([]))
    yield await asyncio.create_task(block.__aenter__())
    await asyncio.create_task(block.__aexit__(None, None, None))


async def test_a_fixture_may_begin_in_one_task_and_end_in_another() -> None:
    async with entered_elsewhere() as http:
        assert (await http.get("/")).status_code == 200


# --- InMemoryAgent


def shout(text: str, caller: Any) -> str:
    return f"{text.upper()} {caller.display_name}"


def call(method: str) -> dict[str, Any]:
    is_1_0 = "/" not in method
    part = {"text": "hi"} if is_1_0 else {"kind": "text", "text": "hi"}
    message = {"messageId": "1", "role": "ROLE_USER" if is_1_0 else "user", "parts": [part]}
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": {"message": message}}


TEXTS: dict[str, Callable[[Any], str]] = {
    "SendMessage": lambda result: result["message"]["parts"][0]["text"],
    "message/send": lambda result: result["parts"][0]["text"],
}
STREAMS = {"SendStreamingMessage": TEXTS["SendMessage"], "message/stream": TEXTS["message/send"]}


@pytest.mark.parametrize("method", [*TEXTS, *STREAMS])
async def test_a_client_verifies_the_card_and_gets_its_answer(method: str) -> None:
    agent = InMemoryAgent(shout)
    async with agent.client(agent.key()) as http:
        answer = (await http.post(f"{agent.url}/rpc", json=call(method))).raise_for_status()
    if method in STREAMS:
        assert answer.headers["content-type"].startswith("text/event-stream")
        said = json.loads(answer.text.removeprefix("data: "))
    else:
        said = answer.json()
    assert said["id"] == 7
    assert {**TEXTS, **STREAMS}[method](said["result"]) == "HI ann@api-keys"


async def test_other_calls_are_told_that_they_are_not_supported() -> None:
    agent = InMemoryAgent(shout)
    task = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "1"}}
    async with agent.client(agent.key()) as http:
        assert (await http.post(f"{agent.url}/rpc", json=task)).json()["error"]["code"] == -32004


async def test_two_owners_are_two_callers_with_the_scopes_of_their_keys() -> None:
    agent = InMemoryAgent(lambda _, caller: f"{caller.label} {sorted(caller.scopes)}")
    said = []
    for key in (agent.key("read"), agent.key(owner="bob")):
        async with agent.client(key) as http:
            answer = await http.post(f"{agent.url}/rpc", json=call("SendMessage"))
            said.append(TEXTS["SendMessage"](answer.json()["result"]))
    assert said == ["ann ['read']", "bob []"]


async def test_a_stranger_and_a_key_without_the_scope_are_rejected() -> None:
    agent = InMemoryAgent(shout, scopes=["write"])
    async with memory_client(agent.app) as http:
        headers: list[dict[str, str]] = [{}, {"X-API-Key": agent.key("read")}, {"X-API-Key": agent.key("write")}]
        statuses = [(await http.post("/rpc", json=call("SendMessage"), headers=each)).status_code for each in headers]
    assert statuses == [401, 403, 200]
    async with agent.client(InMemoryAgent(shout).key("write")) as http:
        with pytest.raises(CredentialsRejectedError):
            await http.post(f"{agent.url}/rpc", json=call("SendMessage"))


async def test_the_card_is_signed_and_says_so_in_both_generations() -> None:
    agent = InMemoryAgent(shout, url="https://shop.test:8443")
    async with httpx.AsyncClient(transport=agent.transport) as http:
        served = (await http.get(f"{agent.url}/.well-known/agent-card.json")).raise_for_status().content
    verified = verify_card(served, agent.trust, origin=agent.url)
    assert verified.card == agent.card.card
    assert (verified.card["protocolVersion"], verified.card["url"]) == ("0.3.0", "https://shop.test:8443/rpc")


async def test_a_client_that_trusts_another_key_gets_no_card_and_sends_nothing() -> None:
    asked: list[str] = []

    def remember(text: str, _: Any) -> str:
        asked.append(text)
        return text

    agent = InMemoryAgent(remember)
    other = TrustStore([TrustedKey(key=generate_signer().public_key, origins=Origins("agent.test"))])
    auth = CardAuth(agent.card, {"key": ApiKey(agent.key(), origins=[agent.url])}, trust=agent.trust)
    async with httpx.AsyncClient(transport=AsyncVerifyingTransport(agent.transport, other), auth=auth) as http:
        with pytest.raises(UnverifiedCardError):
            await http.get(f"{agent.url}/.well-known/agent-card.json")
        with pytest.raises(UnverifiedCardError):
            await http.post(f"{agent.url}/rpc", json=call("SendMessage"))
    assert asked == []


async def test_a_client_asks_only_for_what_the_card_names() -> None:
    agent = InMemoryAgent(shout)
    async with agent.client(agent.key()) as http:
        with pytest.raises(UnverifiedCardError):
            await http.post(f"{agent.url}/other", json=call("SendMessage"))


async def test_requests_to_other_origins_do_not_reach_the_agent() -> None:
    agent = InMemoryAgent(shout)
    async with httpx.AsyncClient(transport=agent.transport) as http:
        with pytest.raises(httpx.ConnectError, match=r"only https://agent\.test can be reached"):
            await http.post("https://evil.test/rpc", json=call("SendMessage"), headers={"X-API-Key": agent.key()})


def test_the_url_of_an_agent_is_an_origin() -> None:
    for wrong in (f"{URL}/", f"{URL}/team", "HTTPS://agent.test"):
        with pytest.raises(ConfigurationError, match=r"write an origin, such as .https://agent\.test"):
            InMemoryAgent(shout, url=wrong)


async def test_several_agents_are_one_world() -> None:
    agents = [InMemoryAgent(shout, url=f"https://{name}.test") for name in ("a", "b")]
    async with httpx.AsyncClient(mounts={each.url: each.transport for each in agents}) as http:
        names = [(await http.get(f"{each.url}/.well-known/agent-card.json")).json()["url"] for each in agents]
    assert names == ["https://a.test/rpc", "https://b.test/rpc"]
