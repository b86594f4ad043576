"""The door of a client, with an agent in this process in place of the network."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import httpx
import pytest

from a2a_trust import AsyncVerifyingTransport, ConfigurationError, VerifyingTransport, verifying_client
from a2a_trust.client import BearerToken
from a2a_trust.client.attachment import attach
from a2a_trust.client.destinations import Destination
from a2a_trust.client.messages import NOTHING, Attachment
from tests.client.agents import NEW, OWNER_TRUSTED, card_of, signed, trusting

HOST: Final = "agent.example"
ORIGIN: Final = f"https://{HOST}"
CARD: Final = signed(card_of(ORIGIN))
ODD: Final = b"\xe9t\xe9"


@contextmanager
def in_process(answer: Any) -> Iterator[None]:
    async def handle(_: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        response: httpx.Response = answer(request)
        return response

    with patch.object(httpx.AsyncHTTPTransport, "handle_async_request", handle):
        yield


@pytest.mark.parametrize("status", [200, 404])
def test_headers_beyond_ascii_pass_with_a_card_and_with_an_error(status: int) -> None:
    headers = [(b"X-Note", ODD), (b"Content-Type", b"application/json")]
    network = httpx.MockTransport(lambda _: httpx.Response(status, headers=headers, content=CARD))
    with httpx.Client(transport=VerifyingTransport(network, trusting(HOST))) as http:
        answer = http.get(f"{ORIGIN}{NEW}")
    assert (answer.status_code, answer.content) == (status, CARD if status == 200 else b"")
    assert (b"X-Note", ODD) in answer.headers.raw


def test_two_event_loops_share_one_search() -> None:
    """One fetches the card, and the other one, in another thread, waits for it."""
    searching, asked = threading.Event(), threading.Event()
    fetches: list[str] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path != NEW:
            return httpx.Response(200)
        fetches.append(threading.current_thread().name)
        searching.set()
        await asyncio.to_thread(asked.wait, 60)
        return httpx.Response(200, content=CARD)

    transport = AsyncVerifyingTransport(httpx.MockTransport(answer), trusting(HOST))
    answers: list[int] = []

    def first() -> None:
        answers.append(asyncio.run(call()))

    async def call() -> int:
        return (await transport.handle_async_request(httpx.Request("POST", f"{ORIGIN}/rpc"))).status_code

    async def second() -> int:
        calling = asyncio.create_task(call())
        while not transport._connection._turns._taken:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        asked.set()
        return await calling

    thread = threading.Thread(target=first, name="first")
    thread.start()
    assert searching.wait(60)
    answers.append(asyncio.run(second()))
    thread.join(60)
    assert (answers, fetches) == ([200, 200], ["first"])


def test_a_program_that_fetches_the_card_again_keeps_the_tokens() -> None:
    given: list[str] = []

    def token() -> str:
        given.append("t")
        return "t"

    document = signed(
        card_of(
            ORIGIN,
            securitySchemes={"s": {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
            securityRequirements=[{"schemes": {"s": {"list": []}}}],
        )
    )

    async def calls() -> list[Any]:
        credentials = {"s": BearerToken(token, origins=[ORIGIN])}
        async with verifying_client(ORIGIN, trust=OWNER_TRUSTED, credentials=credentials) as http:
            demands: list[Any] = []
            for _ in range(2):
                await http.get(f"{ORIGIN}{NEW}")
                await http.post(f"{ORIGIN}/rpc")
                [(_, public)] = http._transport._connection._public.items()  # type: ignore[attr-defined]
                demands.append(public.demands)
        return demands

    with in_process(lambda request: httpx.Response(200, content=document if request.url.path == NEW else b"")):
        first, second = asyncio.run(calls())
    assert first is second is not None
    assert given == ["t", "t"]


def test_no_credential_removes_one_of_another_flow() -> None:
    request = httpx.Request("POST", f"{ORIGIN}/rpc")
    attach(request, Attachment(headers=((b"x-key", b"secret"),), parameters=(("key", "secret"),)))
    attach(request, NOTHING)
    assert b"secret" not in b"".join([value for _, value in request.headers.raw])
    assert b"secret" not in request.url.raw_path


def test_the_query_of_a_url_is_in_no_text_of_a_destination() -> None:
    called = Destination.of(f"{ORIGIN}/rpc?key=secret")
    assert called.query == "key=secret"
    assert "secret" not in f"{called!r} {called}"


@pytest.mark.parametrize("card", [f"{ORIGIN}/a/../card.json?key=secret", f"ftp://{HOST}/card.json?key=secret"])
def test_the_query_of_a_card_is_in_no_error(card: str) -> None:
    for make in (
        lambda: VerifyingTransport(httpx.HTTPTransport(), OWNER_TRUSTED, cards={f"{ORIGIN}/rpc": card}),
        lambda: verifying_client(card, trust=OWNER_TRUSTED, credentials={}),
    ):
        with pytest.raises(ConfigurationError) as refused:
            make()
        assert "secret" not in str(refused.value)
