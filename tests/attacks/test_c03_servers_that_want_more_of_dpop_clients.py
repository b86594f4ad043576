"""C3, C5: a server that a client rightly asks, with proof and token, wants the token elsewhere, or the client's time.

agents-cli #46 sent credentials to whoever had a name like the right one; A2A Java GHSA-x32g-jvvm-4725 wrote them into
logs. Here the server redirects, challenges, and answers with nonces as it likes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import httpx
import pytest

from a2a_trust import generate_signer, verify_card
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.client import (
    BearerToken,
    CardAuth,
    ClientCredentials,
    ClientSecret,
    CredentialsError,
    CredentialsRejectedError,
    OAuthClient,
)
from a2a_trust.errors import FetchError, TokenRequestError
from tests.base.net.test_fetcher import Authority
from tests.client.agents import OWNER_TRUSTED, Agent, Page, card_of, serving_agent, signed, trusting
from tests.client.proofs import proof_in
from tests.tables import walk

VICTIM, EVIL = "127.0.0.1", "localhost"
SIGNER: Final = generate_signer("ES256")
TOKEN: Final = "the.access-token"
#: Made once, for clients that speak no TLS: it takes longer than a test.
UNUSED: Final = ssl.create_default_context()
DEMAND: Final = 'DPoP error="use_dpop_nonce"'

Ask = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> ssl.SSLContext:
    return authority.client()


@pytest.fixture
def agent(authority: Authority) -> Iterator[Agent]:
    """It has both names; the token is for VICTIM."""
    with serving_agent(authority.server(VICTIM, EVIL)) as running:
        yield running


@pytest.fixture
def thief() -> Iterator[Agent]:
    """Plain http at another port."""
    with serving_agent(None) as running:
        yield running


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest, tls: ssl.SSLContext) -> Ask:
    """Sends a request as a program does that follows redirects."""

    def ask_sync(auth: CardAuth, url: str, **more: Any) -> httpx.Response:
        with httpx.Client(auth=auth, verify=tls, trust_env=False, follow_redirects=True) as client:
            return client.post(url, **more)

    def ask_async(auth: CardAuth, url: str, **more: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            async with httpx.AsyncClient(auth=auth, verify=tls, trust_env=False, follow_redirects=True) as client:
                return await client.post(url, **more)

        return asyncio.run(asked())

    return ask_sync if request.param == "sync" else ask_async


def auth_at(origin: str, credential: BearerToken | ClientCredentials, token_url: str = "") -> CardAuth:
    """For the agent whose card is verified there, and asks for a token."""
    flow = {"tokenUrl": token_url or "https://login.example.com/token", "scopes": {}}
    scheme = {"oauth2SecurityScheme": {"flows": {"clientCredentials": flow}}}
    card = card_of(origin, securitySchemes={"login": scheme}, securityRequirements=[{"schemes": {"login": {}}}])
    verified = verify_card(signed(card), trusting(VICTIM, "agent.example"), origin=origin)
    return CardAuth(verified, {"login": credential}, trust=OWNER_TRUSTED)


def auth_for(agent: Agent, token: Any = TOKEN) -> CardAuth:
    origin = agent.origin(VICTIM)
    return auth_at(origin, BearerToken(token, origins=[origin], dpop=SIGNER))


def short(value: object) -> str:
    """The name of a test, when its subject is a megabyte."""
    return ascii(value)[:24] if isinstance(value, str | bytes) else str(value)


def nonces(agent: Agent) -> list[str | None]:
    return [proof_in(asked).claims.get("nonce") for asked in agent.asked]


# Elsewhere


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("where", ["another name", "http", "here"])
def test_a_redirect_takes_no_token_along(agent: Agent, thief: Agent, ask: Ask, status: int, where: str) -> None:
    elsewhere = {
        "another name": agent.origin(EVIL),
        "http": f"http://{VICTIM}:{thief.port}",
        "here": agent.origin(VICTIM),
    }[where]
    agent.pages["/rpc"] = Page(status=status, headers={"Location": f"{elsewhere}/steal?secret"})
    agent.pages["/steal"] = thief.pages["/steal"] = Page(headers={"DPoP-Nonce": "of-the-thief"})
    auth = auth_for(agent)
    assert ask(auth, f"{agent.origin(VICTIM)}/rpc").status_code == 200
    victim, stolen = [*agent.asked, *thief.asked]
    assert victim.headers["authorization"] == f"DPoP {TOKEN}"
    assert not {"authorization", "dpop"} & stolen.headers.keys()
    # And the nonce of the thief is forgotten.
    agent.pages["/rpc"] = Page()
    ask(auth, f"{agent.origin(VICTIM)}/rpc")
    assert "nonce" not in proof_in(agent.asked[-1]).claims


def test_a_redirect_to_another_url_of_the_card_takes_no_token_along(agent: Agent, ask: Ask) -> None:
    agent.pages["/rpc"] = Page(status=307, headers={"Location": "/rest/message:send"})
    agent.pages["/rest/message:send"] = Page()
    assert ask(auth_for(agent), f"{agent.origin(VICTIM)}/rpc").status_code == 200
    assert agent.paths() == ["/rpc", "/rest/message:send"]
    assert not {"authorization", "dpop"} & agent.asked[1].headers.keys()


def test_a_redirect_that_the_program_follows_by_itself_takes_no_token_along(
    agent: Agent, thief: Agent, tls: ssl.SSLContext
) -> None:
    agent.pages["/rpc"] = Page(status=307, headers={"Location": f"http://{VICTIM}:{thief.port}/steal"})
    with httpx.Client(auth=auth_for(agent), verify=tls, trust_env=False) as client:
        answer = client.post(f"{agent.origin(VICTIM)}/rpc")
        assert answer.status_code == 307
        assert answer.next_request is not None
        client.send(answer.next_request)
    (stolen,) = thief.asked
    assert not {"authorization", "dpop"} & stolen.headers.keys()


def test_a_redirect_to_the_demand_for_a_nonce_makes_no_further_request(agent: Agent, thief: Agent, ask: Ask) -> None:
    agent.pages["/rpc"] = Page(status=307, headers={"Location": f"http://{VICTIM}:{thief.port}/"})
    thief.pages["/"] = Page(status=401, headers={"WWW-Authenticate": DEMAND, "DPoP-Nonce": "of-the-thief"})
    assert ask(auth_for(agent), f"{agent.origin(VICTIM)}/rpc").status_code == 401
    assert (len(agent.asked), len(thief.asked)) == (1, 1)


@walk(
    "url",
    [
        "http://agent.example/rpc",
        "http://agent.example:443/rpc",
        "https://agent.example:8443/rpc",
        "https://agent.example./rpc",
        "https://xagent.example/rpc",
        "https://agent.example.evil.example/rpc",
        "https://agent.example@evil.example/rpc",
        "https://agent.example%2Eevil.example/rpc",
        "https://evil.example/https://agent.example/rpc",
        "https://evil.example/rpc?https://agent.example/rpc#https://agent.example/rpc",
        "https://аgent.example/rpc",  # the first letter is Cyrillic
        "https://127.0.0.1/rpc",
        "ws://agent.example/rpc",
        "wss://agent.example/rpc",
    ],
)
def test_a_url_that_looks_like_the_right_one_gets_nothing(url: str) -> None:
    asked_for_token: list[str] = []

    def token() -> str:
        asked_for_token.append(url)
        return TOKEN

    here = "https://agent.example"
    auth = auth_at(here, BearerToken(token, origins=[here], dpop=SIGNER))
    with suppress(CredentialsError, httpx.InvalidURL):
        request = next(auth.sync_auth_flow(httpx.Request("POST", url)))
        assert not {b"authorization", b"dpop"} & {name.lower() for name, _ in request.headers.raw}
    assert asked_for_token == []


def test_control_the_right_url_in_other_spellings_is_no_other(agent: Agent, ask: Ask) -> None:
    agent.pages["/rpc"] = Page()
    credential = BearerToken(TOKEN, origins=[f"HTTPS://{VICTIM}:{agent.port}"], dpop=SIGNER)
    auth = auth_at(agent.origin(VICTIM), credential)
    assert ask(auth, f"https://ann:pw@{VICTIM}:{agent.port}/rpc").status_code == 200
    assert agent.asked[0].headers["authorization"] == f"DPoP {TOKEN}"


# Downgrade


@walk(
    "challenge",
    [
        "Bearer",
        'Bearer error="invalid_token"',
        'Bearer error="use_dpop_nonce"',
        'Bearer, DPoP algs="none"',
        "Basic",
        DEMAND,
    ],
)
def test_no_challenge_makes_a_bearer_token_of_it(agent: Agent, ask: Ask, challenge: str) -> None:
    agent.pages["/rpc"] = Page(status=401, headers={"WWW-Authenticate": challenge, "DPoP-Nonce": "n"})
    for _ in range(2):
        with pytest.raises(CredentialsRejectedError, match="answers 401"):
            ask(auth_for(agent), f"{agent.origin(VICTIM)}/rpc")
    assert {asked.headers["authorization"] for asked in agent.asked} == {f"DPoP {TOKEN}"}
    assert {proof_in(asked).header["alg"] for asked in agent.asked} == {"ES256"}


# Nonces


@pytest.fixture
def server() -> Iterator[Agent]:
    """The agent without TLS, for many short tests."""
    with serving_agent(None) as running:
        yield running


def plain(server: Agent) -> str:
    return f"http://{VICTIM}:{server.port}"


def auth_to(server: Agent) -> CardAuth:
    return auth_at(plain(server), BearerToken(TOKEN, origins=[plain(server)], dpop=SIGNER))


def auth_by(server: Agent) -> CardAuth:
    """With tokens of the server, which is the authorization server, too: at /token."""
    client = OAuthClient(
        issuer=plain(server),
        token_endpoint=f"{plain(server)}/token",
        client_id="me",
        authentication=ClientSecret("s"),
        dpop=SIGNER,
        fetcher=Fetcher(private_origins=[plain(server)]),
    )
    credential = ClientCredentials(client, origins=[plain(server)], allowed_scopes=[])
    return auth_at(plain(server), credential, f"{plain(server)}/token")


def ask_plainly(auth: CardAuth, url: str) -> httpx.Response:
    with httpx.Client(auth=auth, verify=UNUSED, trust_env=False) as client:
        return client.post(url)


UNUSABLE: Final = [
    *("", " ", "a b", "a\x01b", "a\x00b", "a\tb", 'a"b', "a\\b", "a\x7fb", "é", "\xff"),
    *("a" * 1025, "a" * 60_000, "a\r\nDPoP-Nonce: b", "a\r\nDPoP-Nonce: a"),
]


@pytest.mark.parametrize("nonce", UNUSABLE, ids=short)
@pytest.mark.parametrize("status", [401, 200])
def test_a_nonce_that_no_proof_could_hold_goes_into_none(server: Agent, nonce: str, status: int) -> None:
    server.pages["/rpc"] = Page(status=status, headers={"WWW-Authenticate": DEMAND, "DPoP-Nonce": nonce})
    auth = auth_to(server)
    for _ in range(3):
        try:
            ask_plainly(auth, f"{plain(server)}/rpc")
        except CredentialsRejectedError:
            assert status == 401
        except httpx.RemoteProtocolError:
            assert not nonce.isprintable()  # httpx itself may refuse such headers
    assert nonces(server) == [None] * 3


@pytest.mark.parametrize("nonce", UNUSABLE, ids=short)
def test_a_nonce_of_a_token_endpoint_that_no_proof_could_hold_goes_into_none(server: Agent, nonce: str) -> None:
    answer = Page(status=400, body=b'{"error":"use_dpop_nonce"}', headers={"DPoP-Nonce": nonce})
    server.pages["/token"] = answer
    auth = auth_by(server)
    for _ in range(3):
        with pytest.raises(CredentialsError):
            ask_plainly(auth, f"{plain(server)}/rpc")
    assert server.paths() == ["/token"] * 3
    assert nonces(server) == [None] * 3


def test_a_nonce_of_a_megabyte_is_not_kept(server: Agent) -> None:
    huge = Page(status=401, headers={"WWW-Authenticate": DEMAND, "DPoP-Nonce": "a" * 1_048_576})
    server.pages["/rpc"] = lambda _: huge if len(server.asked) == 1 else Page()
    auth = auth_to(server)
    with pytest.raises(httpx.RemoteProtocolError):
        ask_plainly(auth, f"{plain(server)}/rpc")
    assert ask_plainly(auth, f"{plain(server)}/rpc").status_code == 200
    assert nonces(server) == [None, None]


def test_control_the_longest_nonce_is_sent_back_as_it_came(server: Agent) -> None:
    longest = "!#$[]^~,;=" * 102 + "aaaa"
    server.pages["/rpc"] = Page(status=401, headers={"WWW-Authenticate": DEMAND, "DPoP-Nonce": longest})
    with pytest.raises(CredentialsRejectedError):
        ask_plainly(auth_to(server), f"{plain(server)}/rpc")
    assert nonces(server) == [None, longest]


def test_ever_new_nonces_make_neither_a_loop_nor_a_growing_memory(server: Agent) -> None:
    server.pages["/rpc"] = lambda _: Page(
        status=401, headers={"WWW-Authenticate": DEMAND, "DPoP-Nonce": f"n{len(server.asked)}"}
    )
    credential = BearerToken(TOKEN, origins=[plain(server)], dpop=SIGNER)
    auth = auth_at(plain(server), credential)
    for _ in range(3):
        with pytest.raises(CredentialsRejectedError, match="answers 401"):
            ask_plainly(auth, f"{plain(server)}/rpc")
    assert nonces(server) == [None, "n1", "n2", "n3", "n4", "n5"]
    assert credential._proofs is not None
    assert len(credential._proofs._nonces) == 1


def test_ever_new_nonces_of_a_token_endpoint_make_no_loop(server: Agent) -> None:
    server.pages["/token"] = lambda _: Page(
        status=400, body=b'{"error":"use_dpop_nonce"}', headers={"DPoP-Nonce": f"n{len(server.asked)}"}
    )
    auth = auth_by(server)
    for _ in range(2):
        with pytest.raises(CredentialsError):
            ask_plainly(auth, f"{plain(server)}/rpc")
    assert nonces(server) == [None, "n1", "n2", "n3"]


@pytest.mark.parametrize(
    "challenge",
    ["dpop error " * 5000, "dpop error=" * 5000, "dpop " * 10_000, 'DPoP error="' + " " * 50_000],
    ids=short,
)
def test_a_challenge_of_many_kilobytes_is_read_in_one_go(server: Agent, challenge: str) -> None:
    server.pages["/rpc"] = Page(status=401, headers={"WWW-Authenticate": challenge, "DPoP-Nonce": "n"})
    with pytest.raises(CredentialsRejectedError, match="answers 401"):
        ask_plainly(auth_to(server), f"{plain(server)}/rpc")
    assert nonces(server) == [None]


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 1000 + b"1" + b"}" * 1000,
        json.dumps({"error": "use_dpop_nonce", "filler": "a" * 1_100_000}).encode(),
        b'{"error":"use_dpop_nonce","error":"invalid_grant"}',
        b'{"error":"use_dpop_nonce"}'.decode().encode("utf-16"),
        b"\xff\xfe\x00",
    ],
    ids=short,
)
def test_a_token_endpoints_answer_that_is_no_sound_json_is_final(server: Agent, body: bytes) -> None:
    server.pages["/token"] = Page(status=400, body=body, headers={"DPoP-Nonce": "n"})
    with pytest.raises(CredentialsError) as raised:
        ask_plainly(auth_by(server), f"{plain(server)}/rpc")
    assert isinstance(raised.value.__cause__, TokenRequestError | FetchError)
    assert (server.paths(), nonces(server)) == (["/token"], [None])


# Traces


def test_the_token_is_in_no_log_and_no_error(agent: Agent, ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    agent.pages["/rpc"] = Page(status=401, headers={"WWW-Authenticate": DEMAND, "DPoP-Nonce": "n"})
    caplog.set_level(logging.DEBUG)
    auth = auth_for(agent)
    with pytest.raises(CredentialsRejectedError) as raised:
        ask(auth, f"{agent.origin(VICTIM)}/rpc")
    answer = ask(auth, f"{agent.origin(EVIL)}/rpc?key=secret")
    refusal = raised.value
    sent = [refusal.request.headers, refusal.response.request.headers, answer.request.headers]
    told = [caplog.text, repr(auth), str(refusal), repr(refusal), repr(refusal.response), *map(repr, sent)]
    proof = agent.asked[0].headers["dpop"]
    assert "use_dpop_nonce" in caplog.text  # httpcore logs the headers of answers
    assert not [each for each in told if TOKEN in each or proof in each]
    assert not {"authorization", "dpop"} & agent.asked[-1].headers.keys()
