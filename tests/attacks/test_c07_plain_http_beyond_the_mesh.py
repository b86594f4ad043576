"""C7: a program speaks plain http to names of its service mesh, and an attacker wants it to go elsewhere.

adk-python #7139 asked for http to in-cluster names. The attacker has a public server, a name that looks like one of the
mesh, a name server that changes its answers, or a document with a URL. The test says what the first look-up answers;
``socket.getaddrinfo`` is what the operating system answers to whoever asks again.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final

import httpx
import pytest

from a2a_trust import (
    AsyncVerifyingTransport,
    CardAuth,
    ConfigurationError,
    Fetcher,
    FetchError,
    Origins,
    TrustedKey,
    TrustStore,
    VerifyingTransport,
    verify_card,
    verifying_client,
)
from a2a_trust.auth import OAuth2Keys, OpenIdKeys
from a2a_trust.client import ApiKey, CredentialsError, UnsafePassAnything, UnverifiedCardError, fetch_extended_card
from a2a_trust.client.verification import FetchOptions
from a2a_trust.errors import KeySourceUnavailableError
from tests.attacks.calling import KEY, assert_got_nothing
from tests.attacks.recording import events_outside
from tests.base.net.test_fetcher import Names
from tests.client.agents import NEW, OWNER, OWNER_TRUSTED, Agent, card_of, serving_agent, signed, trusting
from tests.tables import walk

MESH: Final = "svc.cluster.local"
NAME: Final = f"agent.team.{MESH}"
OUTSIDE: Final = [
    "8.8.8.8", "2606:4700::1111", "172.32.0.1", "169.254.169.254", "fe80::1", "100.100.100.200", "fd00:ec2::254",
    "168.63.129.16", "0.0.0.0", "::ffff:10.0.0.1", "64:ff9b::a00:1", "203.0.113.1", "224.0.0.1", "255.255.255.255",
]  # fmt: skip
LOOK_ALIKES: Final = [
    "evilsvc.cluster.local", f"agent.evil-{MESH}", f"{MESH}.evil.com", f"{NAME}.evil.com", f"{NAME}.", "cluster.local",
    "agent.default", "agent", "10.0.0.1", "[fd12::1]", f"{NAME}@evil.com", f"{NAME}:80@evil.com", f"evil.com%2f.{MESH}",
    f"{NAME}%2e", f"evil.com\\.{MESH}", f"evil.com%00.{MESH}",
]  # fmt: skip


@pytest.fixture
def agent() -> Iterator[Agent]:
    with serving_agent(None) as running:
        running.pages = {NEW: signed(card_of(here(running))), "/rpc": b"{}"}
        yield running


@pytest.fixture
def victim(agent: Agent) -> Iterator[Agent]:
    """What the attacker wants to be asked: another server at the same port."""
    with serving_agent(None, address="127.0.0.2", port=agent.port) as running:
        running.pages = {NEW: signed(card_of(here(agent))), "/rpc": b"{}", "/jwks": b'{"keys": []}'}
        yield running


def here(agent: Agent) -> str:
    return f"http://{NAME}:{agent.port}"


def card_at_root(agent: Agent) -> dict[str, str]:
    """Where its card is, so that it is the first thing that is asked for."""
    return {here(agent): here(agent) + NEW}


Call = Callable[..., list[httpx.Response | Exception]]


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Call:
    """What comes of a POST with a key to each URL, by one program with one transport."""

    def call_sync(names: Names, urls: tuple[str, ...], sent: Any, options: Any) -> list[httpx.Response | Exception]:
        outcomes: list[httpx.Response | Exception] = []
        with httpx.Client(transport=VerifyingTransport(httpx.HTTPTransport(), resolver=names, **options)) as http:
            for url in urls:
                try:
                    outcomes.append(http.post(url, **sent))
                except (UnverifiedCardError, httpx.InvalidURL) as error:
                    outcomes.append(error)
        return outcomes

    async def call_async(
        names: Names, urls: tuple[str, ...], sent: Any, options: Any
    ) -> list[httpx.Response | Exception]:
        outcomes: list[httpx.Response | Exception] = []
        transport = AsyncVerifyingTransport(httpx.AsyncHTTPTransport(), resolver=names, **options)
        async with httpx.AsyncClient(transport=transport) as http:
            for url in urls:
                try:
                    outcomes.append(await http.post(url, **sent))
                except (UnverifiedCardError, httpx.InvalidURL) as error:
                    outcomes.append(error)
        return outcomes

    def call(names: Names, *urls: str, headers: Any = (), **options: Any) -> list[httpx.Response | Exception]:
        options = {"trust": trusting(NAME), "http_within": [MESH], **options}
        sent = {"json": {}, "headers": {"X-API-Key": KEY, **dict(headers)}}
        if request.param == "sync":
            return call_sync(names, urls, sent, options)
        return asyncio.run(call_async(names, urls, sent, options))

    return call


def connections(events: list[str]) -> list[str]:
    return [event for event in events if event.startswith(("socket.connect", "socket.getaddrinfo"))]


# --- a public address ----------------------------------------------------------------------------------------------


@walk("address", OUTSIDE)
def test_a_name_with_an_address_outside_is_not_fetched_from(address: str) -> None:
    for addresses in ([address], ["10.0.0.1", address], [address, "127.0.0.1"]):
        fetcher = Fetcher(http_within=[MESH], resolver=Names(**{NAME: [addresses]}))
        with events_outside() as events, pytest.raises(FetchError, match="for private addresses only"):
            asyncio.run(fetcher.fetch(f"http://{NAME}/jwks", configured=True))
        assert connections(events) == []


@walk("address", OUTSIDE)
def test_a_name_with_an_address_outside_is_sent_nothing(call: Call, address: str) -> None:
    tried: list[tuple[list[str], Any]] = [(["10.0.0.1", address], ()), ([address, "127.0.0.1"], ())]
    tried += [([address], also) for also in ((), [f"http://{NAME}"], UnsafePassAnything())]
    for addresses, also in tried:
        with events_outside() as events:
            [refused] = call(Names(**{NAME: [addresses]}), f"http://{NAME}/rpc", also=also)
        assert isinstance(refused, UnverifiedCardError)
        assert "for private addresses only" in str(refused)
        assert connections(events) == []


# --- a look-alike ----------------------------------------------------------------------------------------------------


@walk("host", LOOK_ALIKES)
def test_a_look_alike_is_neither_looked_up_nor_asked(call: Call, host: str) -> None:
    names = Names(**{each: [["127.0.0.1"]] for each in (*LOOK_ALIKES, "evil.com")})
    with events_outside() as events:
        for configured in (True, False):
            with pytest.raises(FetchError, match=r"only https URLs are fetched|^URL: "):
                asyncio.run(Fetcher(http_within=[MESH], resolver=names).fetch(f"http://{host}/", configured=configured))
        [refused] = call(names, f"http://{host}/rpc")
    assert isinstance(refused, UnverifiedCardError | httpx.InvalidURL)
    assert (connections(events), names.asked) == ([], [])


def test_credentials_for_a_look_alike_make_no_client() -> None:
    for host in ("evilsvc.cluster.local", f"{NAME}.evil.com"):
        key = {"key": ApiKey(KEY, origins=[f"http://{NAME}", f"http://{host}"])}
        with pytest.raises(ConfigurationError, match="http is only for this machine"):
            verifying_client(f"http://{NAME}", trust=trusting(NAME), credentials=key, http_within=[MESH])


# --- another address than the one that was checked -----------------------------------------------------------------


@pytest.fixture
def rebound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second answer: whoever asks the operating system for the name is led to 127.0.0.2."""
    ask = socket.getaddrinfo

    def led_astray(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        return ask("127.0.0.2" if name == NAME else host, port, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", led_astray)


@pytest.mark.usefixtures("rebound")
def test_a_name_that_changes_after_the_check_is_asked_where_it_was_checked(
    call: Call, agent: Agent, victim: Agent
) -> None:
    names = Names(**{NAME: [["127.0.0.1"], ["127.0.0.1"], ["127.0.0.2"]]})
    [answer] = call(names, f"{here(agent)}/rpc", cards=card_at_root(agent))
    assert isinstance(answer, httpx.Response)
    assert (agent.paths(), names.asked) == ([NEW, "/rpc"], [NAME] * 2)
    fetcher = Fetcher(http_within=[MESH], resolver=Names(**{NAME: [["127.0.0.1"], ["127.0.0.2"]]}))
    assert json.loads(asyncio.run(fetcher.fetch(here(agent) + NEW, configured=True)).body)["name"] == "Ledger"
    assert victim.asked == []
    httpx.get(f"{here(agent)}/rpc", trust_env=False)
    assert victim.paths() == ["/rpc"]  # control: the second answer leads there


def test_each_request_checks_again(call: Call, agent: Agent) -> None:
    """The slow kind: an agent was verified, and its name leads out of the mesh from then on."""
    names = Names(**{NAME: [["127.0.0.1"], ["127.0.0.1"], ["8.8.8.8"]]})
    with events_outside() as events:
        answered, refused = call(names, f"{here(agent)}/rpc", f"{here(agent)}/rpc", cards=card_at_root(agent))
    assert isinstance(answered, httpx.Response)
    assert isinstance(refused, UnverifiedCardError)
    assert agent.paths() == [NEW, "/rpc"]
    assert not [event for event in events if "8.8.8.8" in event]

    moved = Names(**{NAME: [["127.0.0.1"], ["8.8.8.8"]]})
    fetcher = Fetcher(http_within=[MESH], resolver=moved)
    asyncio.run(fetcher.fetch(here(agent) + NEW, configured=True))
    with pytest.raises(FetchError, match="for private addresses only"):
        asyncio.run(fetcher.fetch(here(agent) + NEW, configured=True))


def test_a_header_leads_the_sidecar_to_no_other_service(call: Call, agent: Agent) -> None:
    """Sidecars choose the destination by ``Host``, and not by the address."""
    headers = {"Host": f"inner.{MESH}"}
    [answer] = call(Names(**{NAME: [["127.0.0.1"]]}), f"{here(agent)}/rpc", headers=headers)
    assert isinstance(answer, httpx.Response)
    assert {asked.headers["host"] for asked in agent.asked} == {f"{NAME}:{agent.port}"}


# --- URLs out of documents, and credentials ------------------------------------------------------------------------


def test_a_url_out_of_a_document_does_not_profit_from_the_mesh(agent: Agent, victim: Agent) -> None:
    names = Names(**{NAME: [["127.0.0.1"]], f"inner.{MESH}": [["127.0.0.2"]]})
    fetcher = Fetcher(http_within=[MESH], resolver=names)
    with pytest.raises(FetchError, match="only https URLs are fetched"):
        asyncio.run(fetcher.fetch(f"{here(agent)}{NEW}", configured=False))
    for kind, path in ((OpenIdKeys, "openid-configuration"), (OAuth2Keys, "oauth-authorization-server")):
        for elsewhere in (f"http://inner.{MESH}:{agent.port}/jwks", f"http://{NAME}:{agent.port + 1}/jwks"):
            document = {"issuer": here(agent), "jwks_uri": elsewhere}
            agent.pages[f"/.well-known/{path}"] = json.dumps(document).encode()
            with pytest.raises(KeySourceUnavailableError):
                asyncio.run(kind(here(agent), fetcher).key("a", "EC"))
    assert victim.asked == []
    assert set(names.asked) == {NAME}
    agent.pages["/jwks"] = json.dumps({"keys": [OWNER.public_key.to_jwk()]}).encode()
    document = {"issuer": here(agent), "jwks_uri": f"{here(agent)}/jwks"}
    agent.pages["/.well-known/openid-configuration"] = json.dumps(document).encode()
    key = asyncio.run(OpenIdKeys(here(agent), fetcher).key("owner", "EC"))  # control: at the issuer's own origin
    assert key.kid == "owner"


def test_no_credential_goes_over_http_by_a_client_that_checks_no_address(agent: Agent) -> None:
    card = verify_card(signed(card_of(here(agent))), trusting(NAME), origin=here(agent))
    with pytest.raises(ConfigurationError, match="http is only for this machine"):
        CardAuth(card, {"key": ApiKey(KEY, origins=[here(agent)])}, trust=OWNER_TRUSTED)
    auth = CardAuth(card, {"key": ApiKey(KEY, origins=[f"https://{NAME}"])}, trust=OWNER_TRUSTED)
    with httpx.Client(auth=auth) as http, pytest.raises(CredentialsError, match="neither https, nor http"):
        http.post(f"{here(agent)}/rpc")
    options = FetchOptions(fetcher=Fetcher(http_within=[MESH], resolver=Names(**{NAME: [["127.0.0.1"]]})))
    with pytest.raises(FetchError, match="credentials are sent to no other host"):
        fetch_extended_card(card, trusting(NAME), headers={"X-API-Key": KEY}, options=options)
    assert_got_nothing(agent)
    assert agent.asked == []


def test_a_card_of_the_mesh_leads_no_credential_out_of_it(call: Call, agent: Agent) -> None:
    """The key of the agent may speak for more hosts than the mesh has, and its card names one over http."""
    outside = [{"url": "http://agent.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
    agent.pages[NEW] = signed(card_of(here(agent), supportedInterfaces=outside))
    trust = TrustStore([TrustedKey(key=OWNER.public_key, origins=Origins(NAME, "agent.example"))])
    names = Names(**{NAME: [["127.0.0.1"]], "agent.example": [["127.0.0.1"]]})
    outcomes = call(names, f"{here(agent)}/rpc", "http://agent.example/rpc", trust=trust)
    assert [type(each) for each in outcomes] == [UnverifiedCardError] * 2
    assert_got_nothing(agent)
    assert set(names.asked) == {NAME}
