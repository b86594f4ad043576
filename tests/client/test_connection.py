"""The door of a client, with an agent in this process in place of the network."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from unittest.mock import patch

import httpx
import pytest

from a2a_trust import (
    AsyncVerifyingTransport,
    ConfigurationError,
    TrustError,
    VerifyingTransport,
    verify_card,
    verifying_client,
)
from a2a_trust.client import (
    ApiKey,
    BearerToken,
    CardAuth,
    CredentialsError,
    CredentialsRejectedError,
    UnverifiedCardError,
)
from a2a_trust.client.attachment import attach
from a2a_trust.client.destinations import Destination
from a2a_trust.client.messages import NOTHING, Attachment
from tests.attacks.calling import key_scheme
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
        answer: httpx.Response = await transport.handle_async_request(httpx.Request("POST", f"{ORIGIN}/rpc"))
        return answer.status_code

    async def second() -> int:
        calling = asyncio.create_task(call())
        while len(*transport._connection._slots._queues.values()) < 2:
            await asyncio.sleep(0)
        asked.set()
        return await calling

    thread = threading.Thread(target=first, name="first")
    thread.start()
    assert searching.wait(60)
    answers.append(asyncio.run(second()))
    thread.join(60)
    assert (answers, fetches) == ([200, 200], ["first"])


@pytest.mark.parametrize("nested", [lambda call: call, asyncio.ensure_future], ids=["its task", "a task that it makes"])
@pytest.mark.parametrize("has_agent", [False, True], ids=["any agent", "one agent"])
def test_a_transport_that_calls_through_its_own_client_goes_on(
    nested: Any, monkeypatch: pytest.MonkeyPatch, *, has_agent: bool
) -> None:
    """While it fetches a card, it calls the same agent, and another task waits for that card already."""
    answers: list[int] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == NEW and not answers:
            answers.append(0)
            while len(*transport._connection._slots._queues.values()) < 2:
                await asyncio.sleep(0)
            answers.append(await nested(call()))
        return httpx.Response(200, content=CARD if request.url.path == NEW else b"")

    async def call() -> int:
        return (await http.post(f"{ORIGIN}/rpc")).status_code

    async def calls() -> list[int]:
        async with http:
            return [*await asyncio.wait_for(asyncio.gather(call(), call()), 60)]

    transport = AsyncVerifyingTransport(httpx.MockTransport(answer), trusting(HOST))
    http = httpx.AsyncClient(transport=transport)
    if has_agent:
        credentials = {"key": ApiKey("k", origins=[ORIGIN])}
        monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", lambda _, request: answer(request))
        http = verifying_client(ORIGIN, trust=trusting(HOST), credentials=credentials)
        transport = http._transport  # type: ignore[assignment]
    assert (asyncio.run(calls()), answers) == ([200, 200], [0, 200])
    assert not transport._connection._slots._queues


def test_a_transport_of_a_thread_that_calls_through_its_own_client_goes_on() -> None:
    """As above: the thread that waits for the card stands between this thread and itself."""
    answers: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == NEW and not answers:
            answers.append(0)
            waiting.start()
            while len(*transport._connection._slots._queues.values()) < 2:
                waiting.join(0.01)
            answers.append(call())
        return httpx.Response(200, content=CARD if request.url.path == NEW else b"")

    def call() -> int:
        answer: httpx.Response = transport.handle_request(rpc())
        return answer.status_code

    transport = VerifyingTransport(httpx.MockTransport(answer), trusting(HOST))
    waiting = threading.Thread(target=call, daemon=True)
    first = threading.Thread(target=call, daemon=True)
    first.start()
    for thread in (first, waiting):
        thread.join(60)
        assert not thread.is_alive()
    assert answers == [0, 200]


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


def rpc(url: str = f"{ORIGIN}/rpc", **options: Any) -> httpx.Request:
    return httpx.Request("POST", url, **options)


def demanding(kind: str, name: str) -> bytes:
    scheme = {"bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}}, "key": key_scheme(name)}[kind]
    requirements: list[Any] = [{"schemes": {name: {"list": []}}}]
    return signed(card_of(ORIGIN, securitySchemes={name: scheme}, securityRequirements=requirements))


def test_the_same_card_that_comes_again_changes_no_permit() -> None:
    """An SDK fetches the card before each call, and a token takes a while: the permits of these calls go on."""
    document, asked = demanding("bearer", "s"), list[str]()

    async def token() -> str:
        asked.append("token")
        await http.get(f"{ORIGIN}{NEW}")
        return "t"

    http = verifying_client(ORIGIN, trust=OWNER_TRUSTED, credentials={"s": BearerToken(token, origins=[ORIGIN])})

    async def calls() -> list[int]:
        return [(await http.post(f"{ORIGIN}/rpc")).status_code for _ in range(3)]

    with in_process(lambda request: httpx.Response(200, content=document if request.url.path == NEW else b"")):
        assert asyncio.run(calls()) == [200] * 3
    assert len(asked) == 3


def test_another_form_of_the_card_does_not_take_the_place_of_the_agents() -> None:
    """The server has another card for programs of another version, which asks for a credential that is not here."""
    forms = {"1.0": demanding("bearer", "s"), "0.3": demanding("key", "old")}
    sent: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == NEW:
            return httpx.Response(200, content=forms[request.headers.get("a2a-version", "1.0")])
        sent.append(dict(request.headers.raw).get(b"authorization", b"").decode())
        return httpx.Response(200)

    async def calls(first: str) -> None:
        credentials = {"s": BearerToken("t", origins=[ORIGIN])}
        async with verifying_client(ORIGIN, trust=OWNER_TRUSTED, credentials=credentials) as http:
            await http.get(f"{ORIGIN}{NEW}", headers={"A2A-Version": first})
            await http.post(f"{ORIGIN}/rpc")
            await http.get(f"{ORIGIN}{NEW}", headers={"A2A-Version": "0.3"})
            await http.post(f"{ORIGIN}/rpc")

    with in_process(answer):
        asyncio.run(calls("1.0"))
    assert sent == ["Bearer t", "Bearer t"]


@pytest.mark.parametrize("header", ["Authorization", "Cookie"])
def test_a_card_for_one_caller_is_not_the_agents(header: str) -> None:
    personal, common = demanding("key", "old"), demanding("bearer", "s")

    def answer(request: httpx.Request) -> httpx.Response:
        card = personal if header in request.headers else common
        return httpx.Response(200, content=card if request.url.path == NEW else b"")

    async def calls() -> None:
        credentials = {"s": BearerToken("t", origins=[ORIGIN])}
        async with verifying_client(ORIGIN, trust=OWNER_TRUSTED, credentials=credentials) as http:
            await http.get(f"{ORIGIN}{NEW}", headers={header: "a=b"})
            await http.post(f"{ORIGIN}/rpc")

    with in_process(answer):
        asyncio.run(calls())


def test_a_failed_search_tells_nobody_of_the_callers_before() -> None:
    network = httpx.MockTransport(lambda _: httpx.Response(404))
    errors: list[UnverifiedCardError] = []
    with httpx.Client(transport=VerifyingTransport(network, trusting(HOST))) as http:
        for name in ("ann", "bob"):
            try:
                raise KeyError(f"private of {name}")
            except KeyError:
                with pytest.raises(UnverifiedCardError) as refused:
                    http.post(f"{ORIGIN}/rpc")
                errors.append(refused.value)
    ann, bob = errors
    assert str(ann) == str(bob)
    assert ann.__cause__ is not bob.__cause__
    assert "private of ann" not in "".join(traceback.format_exception(bob))


def test_a_stream_that_was_looked_into_is_sent_again_after_a_redirect() -> None:
    bodies: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200 if request.url.path == NEW else 404, content=CARD)
        bodies.append(request.content)
        if request.url.path == "/rpc":
            return httpx.Response(307, headers={"Location": "/rest/message:send"})
        return httpx.Response(200)

    def body() -> Iterator[bytes]:
        yield b"{}"

    network = httpx.MockTransport(answer)
    with httpx.Client(transport=VerifyingTransport(network, trusting(HOST)), follow_redirects=True) as http:
        assert http.post(f"{ORIGIN}/rpc", content=body()).status_code == 200
    assert bodies == [b"{}", b"{}"]


def test_a_request_with_the_extensions_of_an_earlier_one_has_its_credentials() -> None:
    document, sent = demanding("bearer", "s"), list[bytes | None]()

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == NEW:
            return httpx.Response(200, content=document)
        sent.append(dict(request.headers.raw).get(b"authorization"))
        return httpx.Response(200)

    async def calls() -> None:
        credentials = {"s": BearerToken("t", origins=[ORIGIN])}
        async with verifying_client(ORIGIN, trust=OWNER_TRUSTED, credentials=credentials) as http:
            first = await http.post(f"{ORIGIN}/rpc")
            await http.send(rpc(extensions=first.request.extensions))

    with in_process(answer):
        asyncio.run(calls())
    assert sent == [b"Bearer t", b"Bearer t"]


@pytest.mark.parametrize(
    ("moved", "keys"), [(f"{ORIGIN}/rpc?trace=1", [b"k0", b"k1"]), ("https://evil.test/rpc", [None])]
)
def test_a_hook_takes_a_request_of_card_auth_elsewhere_without_its_credential(
    moved: str, keys: list[bytes | None]
) -> None:
    sent: list[bytes | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(dict(request.headers.raw).get(b"x-api-key"))
        return httpx.Response(401 if len(sent) == 1 else 200)

    def move(request: httpx.Request) -> None:
        request.url = httpx.URL(moved)

    card = verify_card(CARD, OWNER_TRUSTED, origin=ORIGIN)
    auth = CardAuth(card, {"key": ApiKey(lambda: f"k{len(sent)}", origins=[ORIGIN])}, trust=OWNER_TRUSTED)
    network = httpx.MockTransport(answer)
    with httpx.Client(transport=network, auth=auth, event_hooks={"request": [move]}) as http, suppress(TrustError):
        http.post(f"{ORIGIN}/rpc")
    assert sent == keys


def test_a_rejection_has_the_headers_of_the_answer() -> None:
    card = verify_card(CARD, OWNER_TRUSTED, origin=ORIGIN)
    auth = CardAuth(card, {"key": ApiKey("k", origins=[ORIGIN])}, trust=OWNER_TRUSTED)
    network = httpx.MockTransport(lambda _: httpx.Response(401, headers={"Content-Type": "a/b", "X-Note": "n"}))
    with httpx.Client(transport=network, auth=auth) as http, pytest.raises(CredentialsRejectedError) as refused:
        http.post(f"{ORIGIN}/rpc")
    assert (refused.value.response.headers["content-type"], refused.value.response.headers["x-note"]) == ("a/b", "n")


def test_a_card_that_cannot_be_fetched_is_named_without_its_query() -> None:
    async def call() -> None:
        async with verifying_client(f"{ORIGIN}/card.json?key=secret", trust=OWNER_TRUSTED, credentials={}) as http:
            with pytest.raises(CredentialsError, match="answers with status 503") as refused:
                await http.post(f"{ORIGIN}/rpc")
            assert "secret" not in str(refused.value)

    with in_process(lambda _: httpx.Response(503)):
        asyncio.run(call())
