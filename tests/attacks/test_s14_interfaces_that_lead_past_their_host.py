"""S14, C3: the key may speak for the host in an interface, and whoever calls the interface reaches somebody else.

A client of gRPC takes the authority of ``dns://8.8.8.8/agent.example.com`` for a name server, and so on for the other
resolvers; over ``http`` and ``ws`` anybody on the way answers. The owner has signed such a card by mistake, or somebody
else has the owner's key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from a2a_trust import (
    AsyncVerifyingTransport,
    CardVerifier,
    Fetcher,
    FetchError,
    Origins,
    TrustedKey,
    TrustStore,
    VerifyingTransport,
    sign_card,
    verify_card,
)
from a2a_trust.client import UnverifiedCardError, fetch_extended_card
from a2a_trust.client.verification import FetchOptions
from a2a_trust.errors import FailureReason, SigningError, UntrustedCardError
from a2a_trust.keys import LocalSigner, UnsafeAnyOrigin
from a2a_trust.signing import Coverage
from tests.attacks.forgery import JSONObject, canonical, entry, served, signs
from tests.attacks.verifying import HOST, NOW, ORIGIN, refusal, verified
from tests.base.net.test_fetcher import Authority, Names
from tests.client.agents import NEW, Agent, card_of, serving_agent, signed, trusting
from tests.tables import walk

WRONG = FailureReason.WRONG_ORIGIN


def by(signer: LocalSigner, card: JSONObject) -> JSONObject:
    return entry({"alg": signer.alg, "kid": signer.kid}, canonical(card), signs(signer.private_key, signer.alg))


def pointing(card: JSONObject, url: str) -> JSONObject:
    return {**card, "supportedInterfaces": [card["supportedInterfaces"][0], {"url": url, "protocolBinding": "GRPC"}]}


# --- a name server where a host is expected ------------------------------------------------------------------------

#: In each the host that the key may speak for stands where the host of an https URL would.
PAST_THE_HOST = [
    f"dns://{HOST}/evil.example:443",
    f"DNS://{HOST}:53/evil.example",
    f"xds://{HOST}/evil.example",
    f"passthrough://{HOST}/evil.example:443",
    f"ipv4://{HOST}/1.2.3.4:443",
    f"ipv6://{HOST}/[2001:db8::1]:443",
    f"unix://{HOST}/tmp/evil.sock",
    f"google-c2p://{HOST}/evil.example",
    f"kubernetes://{HOST}/evil",
    f"ftp://{HOST}/",
    f"javascript://{HOST}/%0aalert(1)",
    f"file://{HOST}/etc/passwd",
]


@walk("url", PAST_THE_HOST)
def test_the_host_of_the_key_is_the_name_server_of_the_interface(
    card: JSONObject, owner: LocalSigner, trust: TrustStore, url: str
) -> None:
    card = pointing(card, url)
    document = served(card, by(owner, card))
    refusal(UntrustedCardError, document, trust, WRONG, match="/supportedInterfaces/1/url: URL: the scheme")
    refusal(UntrustedCardError, document, trust, WRONG, coverage=Coverage.SIGNED_PART_ONLY)
    with pytest.raises(UntrustedCardError):
        CardVerifier(trust, clock=lambda: NOW).verify(document, origin=ORIGIN)
    # Nor by a key that may speak for every host.
    anywhere = TrustStore([TrustedKey(key=owner.public_key, origins=UnsafeAnyOrigin())])
    refusal(UntrustedCardError, document, anywhere, WRONG, match="the scheme")


@walk("name", ["unix", "dns", "xds", "ipv4", "passthrough", "grpc", "https"])
def test_the_name_of_a_host_is_the_scheme_of_a_resolver(card: JSONObject, owner: LocalSigner, name: str) -> None:
    """``unix:443`` is a socket in the folder of the program, not the host of that name."""
    card = pointing(card, f"{name}:443")
    trust = TrustStore([TrustedKey(key=owner.public_key, origins=Origins(HOST, name))])
    refusal(UntrustedCardError, served(card, by(owner, card)), trust, WRONG, match=f"the scheme '{name}'")


# --- URLs in which readers find different hosts -----------------------------------------------------------------------

#: A reader finds the bank in each of them, and another one finds somebody else, or no host.
TWO_HOSTS = [
    f"grpcs://{HOST}@evil.example:443",
    f"{HOST}:443,evil.example:443",
    f"https://{HOST}@evil.example/",
    f"https://evil.example\\@{HOST}/",
    f"https://{HOST}:evil.example/",
    f"https://{HOST}./",
    f"https://{HOST} .evil.example/",
    f"HTTPS:{HOST}",
    "http://[::ffff:192.0.2.1]/",
    "https://3221225985/",
    HOST,
    "/a2a",
    "",
]


@walk("url", TWO_HOSTS)
@walk("legacy", [False, True], ids=["1.0", "0.3"])
def test_a_url_with_two_hosts_is_neither_signed_nor_verified(
    card: JSONObject, owner: LocalSigner, trust: TrustStore, url: str, legacy: bool
) -> None:
    """Our own command signed such cards, which looked like cards of the bank to a reader with keys for every host."""
    if legacy:
        old = {name: card[name] for name in ("name", "description", "version", "capabilities", "skills")}
        card = {**old, "url": url, "protocolVersion": "0.3.0", "defaultInputModes": [], "defaultOutputModes": []}
    else:
        card = pointing(card, url)
    with pytest.raises(SigningError, match=r"/url: URL: .*verifiers would reject it"):
        sign_card(card, owner)
    document = served(card, by(owner, card))
    anywhere = TrustStore([TrustedKey(key=owner.public_key, origins=UnsafeAnyOrigin())])
    for keys in (trust, anywhere):
        refusal(UntrustedCardError, document, keys, WRONG, match="/url: URL: ")
        refusal(UntrustedCardError, document, keys, WRONG, match="/url: URL: ", origin=UnsafeAnyOrigin())


# --- connections that are not encrypted ----------------------------------------------------------------------------


@pytest.mark.parametrize("url", [f"http://{HOST}/a2a", f"WS://{HOST}:8080/", f"HTTP://{HOST}"])
def test_an_interface_that_is_not_encrypted_is_told(
    card: JSONObject, owner: LocalSigner, trust: TrustStore, url: str
) -> None:
    assert verified(served(card, by(owner, card)), trust).warnings == ()
    card = pointing(card, url)
    (warning,) = verified(served(card, by(owner, card)), trust).warnings
    assert warning.startswith("not encrypted: /supportedInterfaces/1/url; ")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def agent(authority: Authority) -> Iterator[Agent]:
    """It has a certificate for the agent's name, and one for this machine."""
    with serving_agent(authority.server("agent.test", "localhost")) as running:
        yield running


@pytest.fixture
def eavesdropper() -> Iterator[Agent]:
    """It answers without TLS, whatever host is asked."""
    with serving_agent(None) as running:
        running.pages["/rpc"] = b"{}"
        yield running


def test_credentials_are_sent_over_no_interface_that_is_not_encrypted(
    agent: Agent, eavesdropper: Agent, authority: Authority
) -> None:
    """Even if the operator permits a server of this machine that speaks http."""
    url = f"http://agent.test:{eavesdropper.port}/rpc"
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    document = signed(card_of(agent.origin(), supportedInterfaces=[interface]))
    card = verify_card(document, trusting("agent.test"), origin=agent.origin(), now=time.time())
    assert any(warning.startswith("not encrypted") for warning in card.warnings)
    fetcher = Fetcher(
        private_origins=[agent.origin(), f"http://localhost:{eavesdropper.port}"],
        ssl_context=authority.client(),
        resolver=Names(agent_test=[["127.0.0.1"]]),
    )
    with pytest.raises(FetchError, match="credentials are sent to no other host"):
        fetch_extended_card(
            card, trusting("agent.test"), headers={"X-API-Key": "secret"}, options=FetchOptions(fetcher=fetcher)
        )
    assert eavesdropper.asked == []


def test_an_encrypted_interface_goes_before_one_that_is_not(agent: Agent, authority: Authority) -> None:
    """Both are permitted on this machine; the order of the card does not send the key in the clear."""
    with serving_agent(None) as plain:
        names = [f"http://localhost:{plain.port}", agent.origin("localhost")]
        interfaces = [{"url": f"{name}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"} for name in names]
        document = signed(card_of(names[1], supportedInterfaces=interfaces))
        card = verify_card(document, trusting("localhost"), origin=names[1], now=time.time())
        fetcher = Fetcher(
            private_origins=names, ssl_context=authority.client(), resolver=Names(localhost=[["127.0.0.1"]] * 2)
        )
        with pytest.raises(FetchError, match="404"):
            fetch_extended_card(
                card, trusting("localhost"), headers={"X-API-Key": "secret"}, options=FetchOptions(fetcher=fetcher)
            )
        assert (plain.paths(), agent.paths()) == ([], ["/rpc"])


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("scheme", ["http", "HTTP"])
def test_a_client_calls_no_interface_that_is_not_encrypted(agent: Agent, kind: str, scheme: str) -> None:
    """The program has read the URL in the card that came through its transport, and sends its key there."""
    sent: list[str] = []
    document = b""

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(str(request.url))
        return httpx.Response(200, content=document)

    origin = "https://agent.test"
    interface = {"protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    urls = [f"{origin}/rpc", f"{scheme}://agent.test/rpc", f"{scheme}://agent.test:8080/rpc"]
    document = signed(card_of(origin, supportedInterfaces=[{"url": url, **interface} for url in urls]))
    inner: Any = httpx.MockTransport(answer)

    async def in_loop() -> None:
        async with httpx.AsyncClient(transport=AsyncVerifyingTransport(inner, trusting("agent.test"))) as http:
            await http.get(origin + NEW)
            for url in urls[1:]:
                with pytest.raises(UnverifiedCardError, match="is not sent"):
                    await http.post(url, json={}, headers={"X-API-Key": "secret"})
            await http.post(urls[0], json={})

    if kind == "async":
        asyncio.run(in_loop())
    else:
        with httpx.Client(transport=VerifyingTransport(inner, trusting("agent.test"))) as http:
            http.get(origin + NEW)
            for url in urls[1:]:
                with pytest.raises(UnverifiedCardError, match="is not sent") as caught:
                    http.post(f"{url}?token=secret", json={}, headers={"X-API-Key": "secret"})
                assert "secret" not in str(caught.value)
            http.post(urls[0], json={})
    assert sent == [origin + NEW, urls[0]]


def test_control_an_agent_of_this_machine_is_called_without_tls(agent: Agent) -> None:
    sent: list[str] = []
    document = b""

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(str(request.url))
        return httpx.Response(200, content=document)

    hosts = ("localhost", "127.0.0.1", "[::1]")
    interface = {"protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    urls = [f"http://{host}:8000/rpc" for host in hosts]
    document = signed(card_of("http://localhost:8000", supportedInterfaces=[{"url": url, **interface} for url in urls]))
    with httpx.Client(transport=VerifyingTransport(httpx.MockTransport(answer), trusting(*hosts))) as http:
        http.get("http://localhost:8000" + NEW)
        for url in urls:
            http.post(url, json={})
    assert sent[1:] == urls


def test_control_the_extended_card_of_an_agent_of_this_machine_needs_permission(authority: Authority) -> None:
    with serving_agent(None) as plain:
        url = f"http://localhost:{plain.port}"
        document = signed(card_of(url))
        plain.pages = {"/rpc": b'{"id": "extended-card", "result": %b}' % document}
        card = verify_card(document, trusting("localhost"), origin=url, now=time.time())
        names = Names(localhost=[["127.0.0.1"]])
        key = {"X-API-Key": "secret"}
        with pytest.raises(FetchError, match="only https URLs are fetched"):
            fetch_extended_card(
                card, trusting("localhost"), headers=key, options=FetchOptions(fetcher=Fetcher(resolver=names))
            )
        assert plain.asked == []
        fetcher = Fetcher(private_origins=[url], resolver=names)
        assert fetch_extended_card(
            card, trusting("localhost"), headers=key, options=FetchOptions(fetcher=fetcher)
        ).card == card_of(url)
        assert [each.headers["x-api-key"] for each in plain.asked] == ["secret"]
