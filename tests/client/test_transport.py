"""Cards on their way through a client on httpx: verified ones as they came, no others, and everything else untouched.

Requests may go anywhere here, so that it is answers that are judged; ``test_destinations`` has where they may go.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2a_trust import (
    AsyncVerifyingTransport,
    CardVerificationError,
    ConfigurationError,
    Fetcher,
    MalformedError,
    Origins,
    TrustedKey,
    TrustError,
    TrustFile,
    TrustStore,
    VerifiedCard,
    VerifyingTransport,
    generate_signer,
    publish_jwks,
    verify_card,
)
from a2a_trust.client import UnsafePassAnything, UnverifiedCardError
from a2a_trust.client.memory import AdmittedCard, VolatileCardMemory
from a2a_trust.errors import (
    CardMemoryError,
    FetchError,
    PartialSignatureError,
    RolledBackCardError,
    UncoveredFieldsError,
    UnsignedCardError,
    UntrustedCardError,
)
from a2a_trust.keys import SigningTool
from tests.attacks.forgery import canonical, entry, pruned, served, signs
from tests.base.net.test_fetcher import Authority
from tests.client.agents import NEW, OLD, OWNER, Agent, Asked, Page, card_of, signed, trusting

HOST = "127.0.0.1"
EXTENDED = [
    "/rest/extendedAgentCard",
    "/rest/team/extendedAgentCard",
    "/extendedAgentCard/",
    "/rest/v1/card",
    "/agent/authenticatedExtendedCard",
]
METHODS = ["GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard"]


class Client:
    """One client for all requests of a test, of either kind."""

    def __init__(self, kind: str, tls: ssl.SSLContext, trust: Any, **options: Any) -> None:
        self._is_async = kind == "async"
        self._loop = asyncio.new_event_loop()
        self.http: Any
        if self._is_async:
            inner = httpx.AsyncHTTPTransport(verify=tls)
            self.http = httpx.AsyncClient(transport=AsyncVerifyingTransport(inner, trust, **options))
        else:
            self.http = httpx.Client(transport=VerifyingTransport(httpx.HTTPTransport(verify=tls), trust, **options))

    def ask(self, method: str, url: str, **options: Any) -> httpx.Response:
        asked = self.http.request(method, url, **options)
        answer: httpx.Response = self._loop.run_until_complete(asked) if self._is_async else asked
        return answer

    def get(self, url: str, **options: Any) -> httpx.Response:
        return self.ask("GET", url, **options)

    def call(self, url: str, method: str = METHODS[0], **options: Any) -> httpx.Response:
        return self.ask("POST", url, json={"jsonrpc": "2.0", "id": 1, "method": method}, **options)

    def refusal(self, error: type[TrustError], url: str, **options: Any) -> TrustError:
        """Why the answer was not passed on."""
        ask = self.call if options.pop("by_call", False) else self.get
        with pytest.raises(UnverifiedCardError, match="is not passed on") as caught:
            ask(url, **options)
        assert isinstance(caught.value, httpx.RequestError)
        assert type(caught.value.__cause__) is error
        return caught.value.__cause__

    def close(self) -> None:
        if self._is_async:
            self._loop.run_until_complete(self.http.aclose())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())  # of bodies that were not read to their end
        else:
            self.http.close()
        self._loop.close()


Make = Callable[..., Client]


@pytest.fixture(params=["sync", "async"])
def make(request: pytest.FixtureRequest, authority: Authority) -> Iterator[Make]:
    made: list[Client] = []

    def make_client(trust: Any = None, **options: Any) -> Client:
        options = {"also": UnsafePassAnything(), **options}
        made.append(Client(request.param, authority.client(), trust or trusting(HOST), **options))
        return made[-1]

    yield make_client
    for client in made:
        client.close()


@pytest.fixture
def url(agent: Agent) -> str:
    return agent.origin(HOST)


def result(document: bytes) -> bytes:
    return b'{"jsonrpc": "2.0", "id": 1, "result": %b}' % document


# --- verified cards pass as they came --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [NEW, OLD, f"/team{NEW}", *EXTENDED])
def test_a_verified_card_passes_as_it_came(make: Make, agent: Agent, url: str, path: str) -> None:
    document = signed(card_of(url)).replace(b", ", b" ,\n ")
    agent.pages[path] = Page(body=document, headers={"X-Other": "kept", "ETag": '"one"'})
    answer = make().get(url + path)
    assert (answer.status_code, answer.content, answer.headers["x-other"]) == (200, document, "kept")
    assert answer.headers["etag"] == '"one"'
    assert answer.json()["name"] == "Ledger"


@pytest.mark.parametrize("method", METHODS)
def test_a_verified_card_in_an_answer_of_json_rpc_passes_as_it_came(
    make: Make, agent: Agent, url: str, method: str
) -> None:
    agent.pages["/rpc"] = result(signed(card_of(url)))
    answer = make().call(url + "/rpc", method)
    assert answer.content == agent.pages["/rpc"]


def test_the_credentials_of_the_program_go_along(make: Make, agent: Agent, url: str) -> None:
    agent.pages[EXTENDED[0]] = signed(card_of(url))
    make().get(url + EXTENDED[0], headers={"X-API-Key": "secret"}, auth=("ann", "pass"))
    assert agent.asked[0].headers["x-api-key"] == "secret"
    assert agent.asked[0].headers["authorization"].startswith("Basic ")


# --- others do not -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [NEW, OLD, NEW.upper(), f"/team{NEW}/", "/.well-known/agent%2Dcard.json", *EXTENDED])
def test_an_unverified_card_does_not_pass(make: Make, agent: Agent, url: str, path: str) -> None:
    good, client = card_of(url), make()
    for document, error in [
        (json.dumps(good).encode(), UnsignedCardError),
        (json.dumps({**good, "signatures": []}).encode(), UnsignedCardError),
        (signed(good).replace(b"Books", b"Cooks"), CardVerificationError),
        (signed(good, by=generate_signer(kid="mallory")), UntrustedCardError),
        (signed(card_of(agent.origin("localhost"))), UntrustedCardError),
        (b"", MalformedError),
        (b"null", MalformedError),
        (b'\xef\xbb\xbf{"signatures": [1]}', MalformedError),
        (signed(good) + b"{}", MalformedError),
        (signed(good).replace(b'{"name"', b'{"name": "Evil", "name"', 1), MalformedError),
        (signed(good).decode().encode("utf-16"), MalformedError),
    ]:
        agent.pages[path] = document
        client.refusal(error, url + path + "?x=y")


@pytest.mark.parametrize("method", METHODS)
def test_an_unverified_card_in_an_answer_of_json_rpc_does_not_pass(
    make: Make, agent: Agent, url: str, method: str
) -> None:
    good, client = signed(card_of(url)), make()
    for body, error in [
        (result(json.dumps(card_of(url)).encode()), UnsignedCardError),
        (result(good.replace(b"Books", b"Cooks")), CardVerificationError),
        (result(b"[]"), MalformedError),
        (result(b"null"), MalformedError),
        (result(good)[:-1] + b', "result": {}}', MalformedError),
        (result(good)[:-1] + b', "error": {}}', MalformedError),
        (good, MalformedError),
        (b"[" + result(good) + b"," + result(b"{}") + b"]", UnsignedCardError),
        (b"[]", MalformedError),
        (b"[[" + result(b"{}") + b"]]", MalformedError),
        (b"data: " + result(good), MalformedError),
    ]:
        agent.pages["/rpc"] = Page(body=body, headers={"Content-Type": "text/event-stream"} if body[:1] == b"d" else {})
        client.refusal(error, url + "/rpc", by_call=True, headers={"A2A-Version": "1.0"})


@pytest.mark.parametrize("document", [b"%b", b"[%b]", b"[%b, %b]"])
def test_a_call_in_a_batch_is_a_call(make: Make, agent: Agent, url: str, document: bytes) -> None:
    call = b'{"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"}'
    other = b'{"jsonrpc": "2.0", "id": 2, "method": "GetTask"}'
    batch = document % ((other, call)[-document.count(b"%b") :])
    agent.pages["/rpc"] = b"[" + result(json.dumps(card_of(url)).encode()) + b"]"
    client = make()
    for headers in ({"Content-Type": "application/json; charset=utf-8"}, {}):
        with pytest.raises(UnverifiedCardError):
            client.ask("POST", url + "/rpc", content=batch, headers=headers)
    agent.pages["/rpc"] = b"[" + result(signed(card_of(url))) + b"]"
    assert client.ask("POST", url + "/rpc", content=batch).status_code == 200


def test_a_stream_as_the_body_of_a_call_is_looked_into(make: Make, agent: Agent, url: str) -> None:
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": METHODS[0]}).encode()
    agent.pages["/rpc"] = result(b"{}")
    client = make()

    async def chunks() -> AsyncIterator[bytes]:
        yield call

    content = chunks() if client._is_async else iter([call])
    headers = {"Content-Type": "application/json", "Content-Length": str(len(call))}
    with pytest.raises(UnverifiedCardError):
        client.ask("POST", url + "/rpc", content=content, headers=headers)
    assert agent.asked[0].body == call


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "application/json"}, {"Content-Type": "text/plain"}])
def test_a_stream_that_may_be_a_call_is_read_to_a_bound(
    make: Make, agent: Agent, url: str, headers: dict[str, str]
) -> None:
    """What comes behind the bound may be a call for a card: it is refused, not sent unread."""
    agent.pages["/rpc"] = b"{}"
    client, chunks = make(), 0

    def blanks() -> Iterator[bytes]:
        nonlocal chunks
        while chunks < 80:
            chunks += 1
            yield b" " * 65_536

    async def slowly() -> AsyncIterator[bytes]:
        for chunk in blanks():
            yield chunk

    content = slowly() if client._is_async else blanks()
    length = {"Content-Length": str(80 * 65_536)}
    if headers.get("Content-Type") == "text/plain":
        assert client.ask("POST", url + "/rpc", content=content, headers={**headers, **length}).status_code == 200
        return
    with pytest.raises(UnverifiedCardError, match="pass it as bytes"):
        client.ask("POST", url + "/rpc", content=content, headers={**headers, **length})
    assert (agent.asked, chunks) == ([], 17)
    assert client.ask("POST", url + "/rpc", content=b" " * 2_000_000, headers=headers).status_code == 200


def test_a_card_under_any_status_of_success_is_a_card(make: Make, agent: Agent, url: str) -> None:
    """``raise_for_status`` lets all of them through."""
    client = make()
    for status in (200, 201, 203, 206, 299):
        agent.pages[NEW] = Page(status=status, body=json.dumps(card_of(url)).encode())
        client.refusal(UnsignedCardError, url + NEW)
        agent.pages[NEW] = Page(status=status, body=signed(card_of(url)))
        assert client.get(url + NEW).status_code == status


def test_a_card_by_another_method_is_a_card(make: Make, agent: Agent, url: str) -> None:
    agent.pages[NEW] = json.dumps(card_of(url)).encode()
    client = make()
    with pytest.raises(UnverifiedCardError):
        client.ask("POST", url + NEW, content=b"x")
    assert client.ask("HEAD", url + NEW).status_code == 200


@pytest.mark.parametrize("path", EXTENDED)
def test_what_is_posted_to_other_services_is_answered(make: Make, agent: Agent, url: str, path: str) -> None:
    """``/v1/card`` is a path of payment services too; their answers come when the deed is done."""
    agent.pages[path] = b'{"charged": true}'
    assert make().ask("POST", url + path, content=b"{}").json() == {"charged": True}


@pytest.mark.parametrize("name", [NEW, OLD, EXTENDED[0]])
@pytest.mark.parametrize("base", ["/?x=", "/?", "/a?b=c&d=", "/#", "/rpc?tenant=1#"])
def test_names_behind_a_question_mark_or_a_hash_are_asked_for_all_the_same(
    make: Make, agent: Agent, url: str, base: str, name: str
) -> None:
    """``A2ACardResolver`` appends them to whatever URL the program was given for the agent, by a stranger perhaps."""
    agent.pages[base.partition("?")[0].partition("#")[0]] = json.dumps(card_of(url)).encode()
    client = make()
    for asked in (url + base + name, str(httpx.URL(url + base + name).copy_merge_params({"version": "1.0"}))):
        with pytest.raises(UnverifiedCardError):
            client.get(asked)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_does_not_lead_round_the_proof(make: Make, agent: Agent, url: str, status: int) -> None:
    """The transport sees the next request, for a path that says nothing of cards; it cannot know what asked for it."""
    agent.pages["/elsewhere"] = json.dumps(card_of(url)).encode()
    client = make()
    for path in (NEW, EXTENDED[0]):
        agent.pages[path] = Page(status=status, headers={"Location": "/elsewhere"})
        client.refusal(MalformedError, url + path, follow_redirects=True)
    assert "/elsewhere" not in agent.paths()


def test_a_redirect_to_a_card_is_judged_by_where_it_leads(make: Make, agent: Agent, url: str) -> None:
    other = agent.origin("localhost")
    agent.pages = {"/agents/1": Page(status=302, headers={"Location": other + NEW}), NEW: signed(card_of(url))}
    client = make()
    assert client.get(url + NEW).status_code == 200
    client.refusal(UntrustedCardError, url + "/agents/1", follow_redirects=True)


def test_a_program_with_a_cache_of_its_own_gets_whole_answers(make: Make, agent: Agent, url: str) -> None:
    """What lies in that cache may never have been verified: 304 would bring it out."""
    document = signed(card_of(url))

    def page(asked: Asked) -> Page:
        return Page(status=304) if "if-none-match" in asked.headers else Page(body=document, headers={"ETag": '"one"'})

    agent.pages[NEW] = page
    client = make()
    headers = {"If-None-Match": '"one"', "If-Modified-Since": "Sat, 21 Nov 2026 10:00:00 GMT", "Range": "bytes=0-9"}
    assert client.get(url + NEW, headers=headers).content == document
    assert not {"if-none-match", "if-modified-since", "range"} & agent.asked[0].headers.keys()
    agent.pages[NEW] = Page(status=304)
    client.refusal(MalformedError, url + NEW, headers=headers)


def test_a_compressed_card_is_not_asked_for_and_does_not_pass(make: Make, agent: Agent, url: str) -> None:
    document = signed(card_of(url))

    def page(asked: Asked) -> Page:
        if "gzip" in asked.headers["accept-encoding"]:
            return Page(body=gzip.compress(document), headers={"Content-Encoding": "gzip"})
        return Page(body=document)

    agent.pages[NEW] = page
    client = make()
    assert client.get(url + NEW).content == document
    assert agent.asked[0].headers["accept-encoding"] == "identity"
    for body, encoding in [
        (gzip.compress(document), "gzip"),
        (gzip.compress(bytes(10_000_000)), "gzip"),
        (document, "x-unknown"),
    ]:
        agent.pages[NEW] = Page(body=body, headers={"Content-Encoding": encoding})
        client.refusal(MalformedError, url + NEW)


@pytest.mark.parametrize("charset", ["utf-16", "utf-7", "latin-1"])
def test_a_charset_that_would_make_another_text_of_it_is_refused(
    make: Make, agent: Agent, url: str, charset: str
) -> None:
    """``json()`` does not look at it, ``text`` does."""
    client = make()
    agent.pages[NEW] = Page(body=signed(card_of(url)), headers={"Content-Type": f"application/json; charset={charset}"})
    client.refusal(MalformedError, url + NEW)
    agent.pages[NEW] = Page(body=signed(card_of(url)), headers={"Content-Type": "application/json; charset=UTF-8"})
    assert client.get(url + NEW).status_code == 200


def test_a_card_that_never_ends_is_not_read_to_its_end(make: Make, agent: Agent, url: str) -> None:
    agent.pages[NEW] = Page(body=b" " * 5_000_000)
    assert "larger than 1048576 bytes" in str(make().refusal(MalformedError, url + NEW))


class Dripping(httpx.AsyncByteStream, httpx.SyncByteStream):
    """A card that comes blank by blank, and ends as one that is refused for another reason."""

    def __init__(self) -> None:
        self.chunks = 0

    def __iter__(self) -> Iterator[bytes]:
        for self.chunks in range(100):
            time.sleep(0.01)
            yield b" "

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in range(100):
            self.chunks = chunk
            await asyncio.sleep(0.01)
            yield b" "


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("timeout", [None, 60.0, 0.05])
def test_a_card_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch, method: str, timeout: float | None) -> None:
    """Nobody has vouched for its server; requests to that agent wait for their turn meanwhile."""
    monkeypatch.setattr("a2a_trust.client.connection._FETCH_SECONDS", 0.1)
    streams: list[Dripping] = []

    def answer(request: httpx.Request) -> httpx.Response:
        steps = dict.fromkeys(("connect", "read", "write", "pool"), min(timeout or 0.1, 0.1))
        assert request.extensions == {"timeout": steps}
        streams.append(Dripping())
        return httpx.Response(200, stream=streams[-1])

    async def ask() -> None:
        async with httpx.AsyncClient(
            transport=AsyncVerifyingTransport(httpx.MockTransport(answer), trusting(HOST)), timeout=timeout
        ) as http:
            await http.request(method, f"https://{HOST}{NEW}")

    with pytest.raises(UnverifiedCardError, match=r"not arrive within 0\.1 seconds"):
        asyncio.run(ask())
    with (
        httpx.Client(
            transport=VerifyingTransport(httpx.MockTransport(answer), trusting(HOST)), timeout=timeout
        ) as http,
        pytest.raises(UnverifiedCardError, match=r"not arrive within 0\.1 seconds") as caught,
    ):
        http.request(method, f"https://{HOST}{NEW}")
    cause = caught.value.__cause__
    assert cause is not None
    assert isinstance(cause if method == "GET" else cause.__cause__, FetchError)
    assert len(streams) == 2  # the search ends with the first
    assert all(stream.chunks < 99 for stream in streams)


def test_a_proof_with_open_ends_is_not_enough(make: Make, agent: Agent, url: str) -> None:
    """The program reads the card as it came, and takes an absent requirement for none."""
    stripped = pruned(card_of(url))
    made = entry({"alg": "ES256", "kid": "owner"}, canonical(stripped), signs(OWNER.private_key, "ES256"))
    document = agent.pages[NEW] = served(stripped, made)
    memory = VolatileCardMemory()
    refusals: dict[SigningTool | None, type[TrustError]] = {
        None: PartialSignatureError,
        SigningTool.A2A_TRUST: PartialSignatureError,
        SigningTool.A2A_PYTHON: UncoveredFieldsError,
        SigningTool.A2A_JS: UncoveredFieldsError,
    }
    for tool, error_class in refusals.items():
        trust = TrustStore([TrustedKey(key=OWNER.public_key, origins=Origins(HOST), signer=tool)])
        error = make(trust, memory=memory).refusal(error_class, url + NEW)
        if error_class is UncoveredFieldsError:
            verify_card(document, trust, origin=url, now=time.time())  # control: refused here alone
            assert "fetch_card" in str(error)
        assert memory.records() == ()
    whole = TrustStore([TrustedKey(key=OWNER.public_key, origins=Origins(HOST), signer=SigningTool.WHOLE)])
    assert make(whole, memory=memory).get(url + NEW).status_code == 200


def test_a_host_that_two_readers_read_as_two_is_refused(make: Make) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=signed(card_of("https://127.0.0.1"))))
    with httpx.Client(transport=VerifyingTransport(transport, trusting(HOST), also=UnsafePassAnything())) as http:
        assert http.get(f"https://ann:pass@127.0.0.1{NEW}").status_code == 200
        with pytest.raises(UnverifiedCardError) as caught:
            http.get(f"https://127.0.0.1.{NEW}")
        assert isinstance(caught.value.__cause__, MalformedError)


def test_the_error_repeats_no_secret_of_the_request(make: Make, agent: Agent, url: str) -> None:
    agent.pages[NEW] = json.dumps(card_of(url)).encode()
    secret = url.replace("https://", "https://ann:secret@") + NEW + "?key=secret"
    with pytest.raises(UnverifiedCardError) as caught:
        make().get(secret, headers={"X-API-Key": "secret"})
    assert "secret" not in str(caught.value) + repr(caught.value) + str(caught.value.__cause__)


# --- what is not a card is none of its business --------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 404, 503])
def test_errors_pass_without_their_body(make: Make, agent: Agent, url: str, status: int) -> None:
    """A program that does not look at the status would read a card in it."""
    body = gzip.compress(json.dumps(card_of(url)).encode())
    page = Page(status=status, body=body, headers={"Content-Encoding": "gzip", "Retry-After": "7", "X-Note": "é"})
    agent.pages = dict.fromkeys([NEW, "/rpc", EXTENDED[0]], page)
    client = make()
    for answer in (client.get(url + NEW), client.get(url + EXTENDED[0]), client.call(url + "/rpc")):
        assert (answer.status_code, answer.content) == (status, b"")
        assert (answer.headers["retry-after"], answer.headers["x-note"]) == ("7", "é")


def test_an_error_of_json_rpc_passes(make: Make, agent: Agent, url: str) -> None:
    agent.pages["/rpc"] = b'{"jsonrpc": "2.0", "id": 1, "error": {"code": -32007, "message": "none"}}'
    assert make().call(url + "/rpc").json()["error"]["code"] == -32007


def test_other_answers_pass_untouched(make: Make, agent: Agent, url: str) -> None:
    body = gzip.compress(b'{"a": 1}')
    agent.pages = {
        path: Page(body=body, headers={"Content-Encoding": "gzip"}) for path in ("/rpc", "/x", "/v1/cards", "/card")
    }
    agent.pages["/moved"] = Page(status=302, headers={"Location": "/x"})
    client = make()
    assert client.get(url + "/x", headers={"If-None-Match": '"one"'}).json() == {"a": 1}
    assert (agent.asked[0].headers["if-none-match"], "gzip" in agent.asked[0].headers["accept-encoding"]) == (
        '"one"',
        True,
    )
    assert client.get(url + "/moved", follow_redirects=True).json() == {"a": 1}
    assert client.get(url + "/v1/cards").json() == {"a": 1}
    assert client.get(url + "/card").json() == {"a": 1}
    for call in (
        {"method": "SendMessage", "params": {"text": "GetExtendedAgentCard"}},
        {"method": ["GetExtendedAgentCard"]},
        ["GetExtendedAgentCard"],
        "GetExtendedAgentCard",
    ):
        assert client.ask("POST", url + "/rpc", json=call).json() == {"a": 1}
    assert client.ask("POST", url + "/rpc", content=b"GetExtendedAgentCard").json() == {"a": 1}
    upload = client.ask("POST", url + "/rpc", content=b"xtended", headers={"Content-Type": "application/octet-stream"})
    assert upload.json() == {"a": 1}


def test_a_stream_is_handed_on_while_it_comes(make: Make) -> None:
    """The second event is made after the first was seen: nobody has waited for the end."""
    seen: list[bytes] = []

    class Events(httpx.AsyncByteStream, httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield b"data: 1\n\n"
            assert seen == [b"data: 1\n\n"]
            yield b"data: 2\n\n"

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for event in self:
                yield event

    transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=Events()))

    async def main() -> None:
        async with (
            httpx.AsyncClient(
                transport=AsyncVerifyingTransport(transport, trusting(HOST), also=UnsafePassAnything())
            ) as http,
            http.stream("POST", "https://127.0.0.1/rpc", json={"method": "SendStreamingMessage"}) as answer,
        ):
            async for event in answer.aiter_raw():
                seen.append(event)  # noqa: PERF401  the next one is made after this

    asyncio.run(main())
    assert seen == [b"data: 1\n\n", b"data: 2\n\n"]
    seen.clear()
    with (
        httpx.Client(transport=VerifyingTransport(transport, trusting(HOST), also=UnsafePassAnything())) as http,
        http.stream("POST", "https://127.0.0.1/rpc", json={"method": "SendStreamingMessage"}) as answer,
    ):
        for event in answer.iter_raw():
            seen.append(event)  # noqa: PERF402
    assert len(seen) == 2


# --- settings ------------------------------------------------------------------------------------------------------


def test_cards_at_other_places_are_named(make: Make, agent: Agent, url: str) -> None:
    agent.pages = dict.fromkeys(["/cards/one", "/cards/two"], json.dumps(card_of(url)).encode())
    client = make(cards={url + "/rpc": url.replace("https", "HTTPS") + "/cards/one/"})
    client.refusal(UnsignedCardError, url + "/cards/one")
    client.refusal(UnsignedCardError, url + "/cards/%6Fne?x=y")
    assert client.get(url + "/cards/two").status_code == 200
    agent.pages["/cards/one"] = signed(card_of(url))
    assert client.get(url + "/cards/one").status_code == 200


@pytest.mark.parametrize(
    "wrong",
    ["/card", "agent.example.com/card", "https://", "https://[", "ftp://a.test/card", "", "http://a.test/card"],
)
def test_a_place_that_is_no_url_is_refused_at_the_start(wrong: str) -> None:
    for options in ({"cards": {"https://a.test/rpc": wrong}}, {"cards": {wrong: "https://a.test/card"}}):
        with pytest.raises(ConfigurationError, match=r"^cards: "):
            VerifyingTransport(httpx.HTTPTransport(), trusting(HOST), cards=options["cards"])
    with pytest.raises(ConfigurationError, match=r"^also: "):
        VerifyingTransport(httpx.HTTPTransport(), trusting(HOST), also=[wrong])


def test_the_memory_sees_public_cards(make: Make, agent: Agent, url: str) -> None:
    now, memory = time.time(), VolatileCardMemory()
    client = make(memory=memory)
    for path in (NEW, EXTENDED[0]):
        agent.pages[path] = signed(card_of(url), iat=now)
        assert client.get(url + path).status_code == 200
    for path in (NEW, EXTENDED[0]):
        agent.pages[path] = signed(card_of(url), iat=now - 100)
    client.refusal(RolledBackCardError, url + NEW)
    # Each caller's extended card was signed when it was: that says nothing about the public one.
    assert client.get(url + EXTENDED[0]).status_code == 200
    agent.pages[NEW] = signed(card_of(url), iat=now + 50)
    agent.pages[OLD] = json.dumps(card_of(url)).encode()
    assert "may have been removed" in str(client.refusal(UnsignedCardError, url + OLD))
    assert [record.issued for record in memory.records()] == [now]
    assert issubclass(RolledBackCardError, CardMemoryError)


def test_a_mistake_of_the_operator_is_no_refusal_of_a_card(make: Make, agent: Agent, url: str) -> None:
    """Seen here: it was wrapped in an error for which programs try again, and looked for at all other places."""

    class Broken(VolatileCardMemory):
        is_broken = True

        def admit(self, verified: VerifiedCard, url: str, *, now: float | None = None) -> AdmittedCard:
            if self.is_broken:
                raise ConfigurationError("the memory is of another release")
            return super().admit(verified, url, now=now)

    memory, now = Broken(), [time.time()]
    client = make(memory=memory, also=(), clock=lambda: now[0])
    agent.pages = {NEW: signed(card_of(url)), "/rpc": b'{"jsonrpc": "2.0", "id": 1, "result": {}}'}
    with pytest.raises(ConfigurationError, match=r"^the memory is of another release$"):
        client.get(url + NEW)
    agent.asked.clear()
    with pytest.raises(ConfigurationError, match=r"^the memory is of another release$"):
        client.call(url + "/rpc", "SendMessage")
    assert [asked.path for asked in agent.asked] == [f"/rpc{NEW}", f"/rpc{OLD}", NEW]
    memory.is_broken = False
    assert client.call(url + "/rpc", "SendMessage").status_code == 200
    now[0] += 86_400  # the card that names the URL is verified again
    memory.is_broken = True
    agent.asked.clear()
    with pytest.raises(ConfigurationError, match=r"^the memory is of another release$"):
        client.call(url + "/rpc", "SendMessage")
    assert agent.asked == []


def test_keys_of_a_trust_file_are_fetched(
    make: Make, agent: Agent, authority: Authority, url: str, tmp_path: Path
) -> None:
    path = tmp_path / "trust.toml"
    path.write_text(f'version = 1\n[[trust]]\norigins = ["127.0.0.1"]\njwks_url = "{url}/keys"\n')
    agent.pages = {"/keys": json.dumps(publish_jwks([OWNER.public_key])).encode(), NEW: signed(card_of(url))}
    fetcher = Fetcher(private_origins=[url], ssl_context=authority.client())
    client = make(TrustFile(path, fetcher=fetcher))
    assert client.get(url + NEW).status_code == 200
    assert agent.paths() == [NEW, "/keys"]


def test_an_extended_card_leads_no_further_than_the_public_one(make: Make, agent: Agent, url: str) -> None:
    login = "https://login.example.com"
    wider = json.loads(json.dumps(card_of(url)).replace(login, "https://login.evil.example"))
    agent.pages = {NEW: signed(card_of(url)), EXTENDED[0]: signed(wider), "/rpc": result(signed(wider))}
    client = make()
    assert client.get(url + EXTENDED[0]).status_code == 200  # no public card has said anything about this origin
    assert client.get(url + NEW).status_code == 200
    assert "login.evil.example" in str(client.refusal(CardVerificationError, url + EXTENDED[0]))
    assert "login.evil.example" in str(client.refusal(CardVerificationError, url + "/rpc", by_call=True))
    agent.pages[f"/other{NEW}"] = signed(wider)  # another agent of this origin, which has such a login
    assert client.get(f"{url}/other{NEW}").status_code == 200
    assert client.get(url + EXTENDED[0]).status_code == 200


def test_how_far_public_cards_lead_is_remembered_of_the_last_ones(make: Make) -> None:
    """A server of many agents cannot fill the memory."""
    wider = card_of("https://127.0.0.1")
    wider["securitySchemes"]["login"]["oauth2SecurityScheme"]["oauth2MetadataUrl"] = "https://evil.example"
    public, extended = signed(card_of("https://127.0.0.1")), signed(wider)

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=extended if request.url.path == EXTENDED[0] else public)

    with httpx.Client(
        transport=VerifyingTransport(httpx.MockTransport(answer), trusting(HOST), also=UnsafePassAnything())
    ) as http:
        for index in range(300):
            assert http.get(f"https://127.0.0.1/{index}{NEW}").status_code == 200
        assert len(http._transport._connection._public) == 256  # type: ignore[attr-defined]
        with pytest.raises(UnverifiedCardError):
            http.get(f"https://127.0.0.1{EXTENDED[0]}")


def test_closing_closes_what_is_below() -> None:
    closed: list[str] = []

    class Inner(httpx.BaseTransport, httpx.AsyncBaseTransport):
        def close(self) -> None:
            closed.append("sync")

        async def aclose(self) -> None:
            closed.append("async")

    VerifyingTransport(Inner(), trusting(HOST)).close()
    asyncio.run(AsyncVerifyingTransport(Inner(), trusting(HOST)).aclose())
    assert closed == ["sync", "async"]
