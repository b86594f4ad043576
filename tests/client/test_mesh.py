"""Plain http within a service mesh, with a real agent on this machine: verified, answered, and known by its name."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from http.cookiejar import CookieJar
from typing import Any, Final

import httpx
import pytest

from a2a_trust import (
    AsyncVerifyingTransport,
    CardAuth,
    ConfigurationError,
    VerifyingTransport,
    fetch_card,
    verify_card,
    verifying_client,
)
from a2a_trust.base.net.fetcher import Fetcher, SystemResolver
from a2a_trust.client import ApiKey, CredentialsError, FetchOptions, UnsafePassAnything, UnverifiedCardError
from a2a_trust.keys.files import private_key_bytes
from tests.base.net.test_fetcher import Names
from tests.client.agents import NEW, OWNER, OWNER_TRUSTED, Agent, card_of, serving_agent, signed, trusting
from tests.servers.serving import SERVERS, free_port, serving

MESH: Final = "svc.cluster.local"
NAME: Final = f"agent.team.{MESH}"
KEY: Final = "key-8c2f71d9e0a4b6-51f0a2d7c39be846"
CALL: Final[dict[str, Any]] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "SendMessage",
    "params": {"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}},
}
STREAM: Final = {**CALL, "method": "SendStreamingMessage"}
SCHEMES: Final = {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}}


def card_at(origin: str) -> dict[str, Any]:
    capabilities = {"streaming": True, "extendedAgentCard": False}
    return card_of(origin, capabilities=capabilities, securitySchemes=SCHEMES)


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a protected agent, which runs under uvicorn on 127.0.0.1."""
    port, folder = free_port(), tmp_path_factory.mktemp("mesh")
    named = f"http://{NAME}:{port}"
    command = [sys.executable, "-m", *SERVERS["uvicorn-h11"]("tests.client.mesh_agent:app", port)]
    settings = {"key": KEY, "card": card_at(named), "signer": private_key_bytes(OWNER).decode()}
    with serving(command, f"http://127.0.0.1:{port}{NEW}", {"MESH_AGENT": json.dumps(settings)}, folder):
        yield named


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """What the operating system's resolver would answer in the cluster."""
    names = Names(**{NAME: [["127.0.0.1"]]})

    async def resolve(_: SystemResolver, host: str, port: int) -> Sequence[str]:
        return await names.resolve(host, port)

    monkeypatch.setattr(SystemResolver, "resolve", resolve)
    return names


def domains(jar: CookieJar) -> set[str]:
    return {cookie.domain for cookie in jar}


def test_a_client_of_one_line_calls_an_agent_of_the_mesh(
    origin: str, names: Names, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=httpx.__name__)

    async def called() -> None:
        key = {"key": ApiKey(KEY, origins=[origin])}
        async with verifying_client(origin, trust=trusting(NAME), credentials=key, http_within=[MESH]) as http:
            async with http.stream("POST", f"{origin}/rpc", json=STREAM) as stream:
                lines = stream.aiter_lines()
                assert (stream.status_code, await anext(lines)) == (200, "data: first")
                answer = await http.post(f"{origin}/rpc", json=CALL, headers={"Host": "other.example"})
                assert [line async for line in lines] == ["", "data: last", ""]
            assert answer.json() == {"hosts": [origin.removeprefix("http://")]}  # sidecars go by it
            assert str(answer.request.url) == str(answer.url) == f"{origin}/rpc"
            assert KEY not in repr(answer.request.headers)
            assert domains(http.cookies.jar) == {NAME}

    asyncio.run(called())
    assert names.asked == [NAME] * 3  # for the card, and for each call
    lines = [record.getMessage() for record in caplog.records if record.name == httpx.__name__]
    assert lines
    assert all(f"{origin}/" in line and "127.0.0.1" not in line for line in lines)


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a running loop"])
def test_a_transport_for_programs_that_wait_does_the_same(origin: str, inside: bool) -> None:
    names = Names(**{NAME: [["127.0.0.1"]]})

    def called() -> None:
        transport = VerifyingTransport(httpx.HTTPTransport(), trusting(NAME), http_within=[MESH], resolver=names)
        with httpx.Client(transport=transport, headers={"X-API-Key": KEY}) as http:
            assert http.get(f"{origin}{NEW}").json()["name"] == "Ledger"
            with http.stream("POST", f"{origin}/rpc", json=STREAM) as stream:
                lines = stream.iter_lines()
                assert next(lines) == "data: first"
                answer = http.post(f"{origin}/rpc", json=CALL)
                assert [*lines] == ["", "data: last", ""]
            assert answer.json() == {"hosts": [origin.removeprefix("http://")]}
            assert answer.request.url.host == NAME
            assert domains(http.cookies.jar) == {NAME}

    async def called_inside() -> None:
        called()

    asyncio.run(called_inside()) if inside else called()
    assert names.asked == [NAME] * 3


def test_a_card_is_fetched_within_the_mesh(origin: str, names: Names) -> None:
    options = FetchOptions(fetcher=Fetcher(http_within=[MESH]))
    assert fetch_card(origin, trusting(NAME), options).origin == NAME


# --- which addresses are tried ---------------------------------------------------------------------------------------


@pytest.fixture
def agent() -> Iterator[Agent]:
    with serving_agent(None) as running:
        running.pages = {NEW: signed(card_at(here(running))), "/rpc": b"{}", "/a%20b;c/~x": b"{}"}
        yield running


def here(agent: Agent) -> str:
    return f"http://{NAME}:{agent.port}"


Ask = Callable[..., httpx.Response]


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """A request by a client of either kind; ``options`` are those of its transport."""

    def ask_sync(names: Names, method: str, url: str, sent: dict[str, Any], **options: Any) -> httpx.Response:
        transport = VerifyingTransport(httpx.HTTPTransport(), trusting(NAME), resolver=names, **options)
        with httpx.Client(transport=transport) as http:
            return http.request(method, url, **sent)

    def ask_async(names: Names, method: str, url: str, sent: dict[str, Any], **options: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            inner = httpx.AsyncHTTPTransport()
            transport = AsyncVerifyingTransport(inner, trusting(NAME), resolver=names, **options)
            async with httpx.AsyncClient(transport=transport) as http:
                return await http.request(method, url, **sent)

        return asyncio.run(asked())

    chosen = ask_sync if request.param == "sync" else ask_async

    def ask(names: Names, url: str, method: str = "POST", *, sent: Any = None, **options: Any) -> httpx.Response:
        return chosen(names, method, url, {"json": {}} if sent is None else sent, **{"http_within": [MESH], **options})

    return ask


def test_the_next_address_is_tried_when_one_does_not_answer(agent: Agent, ask: Ask) -> None:
    names = Names(**{NAME: [["127.0.0.9", "127.0.0.1"]]})  # nobody listens at the first one
    assert ask(names, f"{here(agent)}/rpc").status_code == 200
    nobody = Names(**{NAME: [["127.0.0.9", "127.0.0.8"]]})
    with pytest.raises(httpx.ConnectError):
        ask(nobody, f"{here(agent)}/rpc", also=[here(agent)])


def test_a_name_without_address_is_no_answer(agent: Agent, ask: Ask) -> None:
    with pytest.raises(httpx.ConnectError, match="the name has no address"):
        ask(Names(), f"{here(agent)}/rpc", also=[here(agent)])
    with pytest.raises(UnverifiedCardError, match="no verified card names"):
        ask(Names(), f"{here(agent)}/rpc")


def test_a_name_that_is_looked_up_for_too_long_is_given_up(agent: Agent, ask: Ask) -> None:
    class Slow(Names):
        async def resolve(self, host: str, port: int) -> Sequence[str]:
            await asyncio.sleep(60)
            return ["127.0.0.1"]

    with pytest.raises(httpx.ConnectTimeout, match=r"its name servers do not answer in time"):
        ask(Slow(), f"{here(agent)}/rpc", sent={"timeout": 0.2}, also=[here(agent)])


def test_paths_queries_and_bodies_go_as_they_are(agent: Agent, ask: Ask) -> None:
    names = Names(**{NAME: [["127.0.0.1"]]})
    path = "/a%20b;c/~x?q=%2F&a=b%20c+d&e"
    assert ask(names, f"{here(agent)}{path}", sent={"content": b"\x00x"}, also=[here(agent)]).status_code == 200
    (asked,) = agent.asked
    assert (asked.path, asked.body) == (path, b"\x00x")


def test_without_suffixes_and_to_other_names_everything_is_as_it_was(agent: Agent, ask: Ask) -> None:
    names = Names(**{NAME: [["127.0.0.1"]]})
    with pytest.raises(UnverifiedCardError, match="neither https, nor http to this machine"):
        ask(names, f"{here(agent)}/rpc", http_within=())
    url = f"http://127.0.0.1:{agent.port}/rpc"
    assert ask(names, url, also=UnsafePassAnything()).status_code == 200
    assert names.asked == []


@pytest.mark.parametrize("place", ["header", "query", "cookie"])
def test_a_key_goes_wherever_the_scheme_says_and_stays_hidden(agent: Agent, names: Names, place: str) -> None:
    schemes = {"key": {"apiKeySecurityScheme": {"location": place, "name": "X-API-Key"}}}
    agent.pages[NEW] = signed(card_of(here(agent), securitySchemes=schemes))

    async def called() -> httpx.Response:
        key = {"key": ApiKey(KEY, origins=[here(agent)])}
        async with verifying_client(here(agent), trust=trusting(NAME), credentials=key, http_within=[MESH]) as http:
            return await http.post(f"{here(agent)}/rpc", json={})

    answer = asyncio.run(called())
    assert [KEY in repr(asked) for asked in agent.asked if asked.path.partition("?")[0] == "/rpc"] == [True]
    assert KEY not in f"{answer.request.url!r} {answer.request.headers!r} {answer.request.headers.raw}"


@pytest.mark.parametrize(("address", "host"), [("10.1.2.3", "10.1.2.3"), ("fd12::1", "[fd12::1]")])
def test_a_transport_below_is_given_the_address_and_keeps_no_key(
    agent: Agent, names: Names, monkeypatch: pytest.MonkeyPatch, address: str, host: str
) -> None:
    card, sent = signed(card_at(here(agent))), list[tuple[httpx.Request, str, bool]]()

    async def answer(_: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        sent.append((request, str(request.url), KEY in str(request.headers.raw)))
        return httpx.Response(200, content=card if request.method == "GET" else b"{}")

    async def called() -> None:
        key = {"key": ApiKey(KEY, origins=[here(agent)])}
        async with verifying_client(here(agent), trust=trusting(NAME), credentials=key, http_within=[MESH]) as http:
            await http.post(f"{here(agent)}/rpc", json={})

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", answer)  # there is no cluster here
    names.answers[NAME] = [[address]]
    asyncio.run(called())
    at = f"http://{host}:{agent.port}"
    assert [(url, keyed) for _, url, keyed in sent] == [(f"{at}{NEW}", False), (f"{at}/rpc", True)]
    assert not [request for request, _, _ in sent if KEY in str(request.headers.raw)]


# --- what is refused at the start ----------------------------------------------------------------------------------


def test_a_client_without_the_mesh_takes_no_credential_for_it() -> None:
    origin = f"http://{NAME}"
    key = {"key": ApiKey(KEY, origins=[origin])}
    with pytest.raises(ConfigurationError, match=r"credentials\['key'\]: origins: .* http_within") as caught:
        verifying_client(origin, trust=trusting(NAME), credentials=key)
    assert KEY not in str(caught.value)
    with pytest.raises(ConfigurationError, match="http is only for this machine"):
        verifying_client(origin, trust=trusting(NAME), credentials=key, http_within=["other.local"])
    card = verify_card(signed(card_at(origin)), trusting(NAME), origin=origin)
    with pytest.raises(ConfigurationError, match="http is only for this machine"):
        CardAuth(card, key, trust=OWNER_TRUSTED)
    auth = CardAuth(card, {"key": ApiKey(KEY, origins=[f"https://{NAME}"])}, trust=OWNER_TRUSTED)
    refused = pytest.raises(CredentialsError, match="neither https, nor http to this machine")
    with httpx.Client(auth=auth) as http, refused:
        http.post(f"{origin}/rpc")


@pytest.mark.parametrize("wrong", ["svc.cluster.local", ["local"], ["http://svc.cluster.local"]])
def test_what_is_no_suffix_is_refused(wrong: Any) -> None:
    for make in (
        lambda: VerifyingTransport(httpx.HTTPTransport(), trusting(NAME), http_within=wrong),
        lambda: AsyncVerifyingTransport(httpx.AsyncHTTPTransport(), trusting(NAME), http_within=wrong),
        lambda: verifying_client(f"https://{NAME}", trust=trusting(NAME), credentials={}, http_within=wrong),
    ):
        with pytest.raises(ConfigurationError, match=r"^http_within: "):
            make()


def test_requests_that_begin_at_once_share_a_look_up(origin: str) -> None:
    """Each look-up takes a thread, and there are 64."""
    asked: list[str] = []

    class Slow:
        async def resolve(self, host: str, port: int) -> Sequence[str]:
            asked.append(host)
            for _ in range(1_000):  # while the others begin
                await asyncio.sleep(0)
            return ["127.0.0.1"]

    async def called() -> list[int]:
        inner = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=10))
        transport = AsyncVerifyingTransport(inner, trusting(NAME), http_within=[MESH], resolver=Slow())
        async with httpx.AsyncClient(transport=transport, headers={"X-API-Key": KEY}, timeout=60) as http:
            assert (await http.post(f"{origin}/rpc", json=CALL)).status_code == 200
            del asked[:]
            answers = await asyncio.gather(*(http.post(f"{origin}/rpc", json=CALL) for _ in range(100)))
            return [answer.status_code for answer in answers]

    assert asyncio.run(called()) == [200] * 100
    assert asked == [NAME]


def test_an_address_that_swallows_packets_leaves_time_for_the_next(
    origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("a2a_trust.client.connection._FETCH_SECONDS", 120.0)
    seen: list[tuple[str, float]] = []

    class Swallowing(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            seen.append((request.url.host, request.extensions["timeout"]["connect"]))
            if request.url.host == "10.0.0.1":
                raise httpx.ConnectTimeout("", request=request)
            return await super().handle_async_request(request)

    async def called() -> int:
        names = Names(**{NAME: [["10.0.0.1", "127.0.0.1"]]})
        transport = AsyncVerifyingTransport(Swallowing(), trusting(NAME), http_within=[MESH], resolver=names)
        async with httpx.AsyncClient(transport=transport, headers={"X-API-Key": KEY}, timeout=120) as http:
            return (await http.post(f"{origin}/rpc", json=CALL)).status_code

    assert asyncio.run(called()) == 200
    assert seen == [("10.0.0.1", 60.0), ("127.0.0.1", 60.0)] * (len(seen) // 2)
