"""docs/credentials.md and docs/client-tokens.md are true: their lines get tokens, call a protected agent, and act on
behalf of two callers."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from a2a_trust import ConfigurationError, Fetcher, publish_jwks
from a2a_trust.auth.principal import SubjectToken
from a2a_trust.client import ClientSecret, OAuthClient
from a2a_trust.keys.signer import sign_jwt
from tests.base.net.test_fetcher import Authority
from tests.client.agents import NEW, OWNER, Agent, Asked, Page, card_of, serving_agent, signed
from tests.docs.pages import PAGES

GUIDE, TOKENS = PAGES["docs/credentials.md"], PAGES["docs/client-tokens.md"]
ONE_LINE, LOCAL, ELSEWHERE, BEHIND, SEVERAL = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
ON_BEHALF, CLIENTS, ACROSS = re.findall(r"```python\n(.*?)```", TOKENS, re.DOTALL)
(PRINTED,), (PRINTED_FOR_CALLERS,) = (re.findall(r"```text\n(.*?)```", page, re.DOTALL) for page in (GUIDE, TOKENS))
KEY = "key-1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def login(authority: Authority) -> Iterator[Agent]:
    def page(asked: Asked) -> Page:
        form = parse_qs(asked.body.decode())
        kind = form["grant_type"][0].rpartition(":")[2]
        subject = form.get("subject_token", [""])[0]
        token = {"access_token": f"{kind}.{subject}", "token_type": "Bearer", "expires_in": 600}
        issued = {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}
        return Page(body=json.dumps({**token, **issued}).encode())

    with serving_agent(authority.server("127.0.0.1")) as running:
        running.pages["/token"] = page
        yield running


@pytest.fixture
def agent(authority: Authority, login: Agent) -> Iterator[Agent]:
    with serving_agent(authority.server("127.0.0.1")) as running:
        here = running.origin("127.0.0.1")
        flow = {"tokenUrl": f"{login.origin('127.0.0.1')}/token", "scopes": {"read": "Read"}}
        card = card_of(
            here,
            securitySchemes={
                "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
                "login": {"oauth2SecurityScheme": {"flows": {"clientCredentials": flow}}},
            },
            securityRequirements=[
                {"schemes": {"key": {}, "login": {"list": ["read"]}}},
                {"schemes": {"key": {}}},
                {"schemes": {"login": {"list": ["read"]}}},
            ],
        )
        running.pages |= {NEW: signed(card), "/rpc": Page(body=b"{}")}
        yield running


@pytest.fixture
def lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Authority, agent: Agent, login: Agent
) -> Callable[[str], str]:
    """The lines of the guide, with its hosts here. Network and authorities are those of the test."""
    monkeypatch.chdir(tmp_path)
    Path("login-secret").write_text("s3cret\n")
    Path("agent-key").write_text(f"{KEY}\n")
    Path("owner.json").write_text(json.dumps(publish_jwks([OWNER.public_key])))
    Path("trust.toml").write_text('version = 1\n[[trust]]\norigins = ["127.0.0.1"]\nkeys = "owner.json"\n')
    Path("ca.pem").write_bytes(authority.certificate.public_bytes(Encoding.PEM))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))  # httpx and Python's ssl look here
    here, there = agent.origin("127.0.0.1"), login.origin("127.0.0.1")

    class FetcherToHere(Fetcher):
        def __init__(self, *, ssl_context: ssl.SSLContext | None = None) -> None:
            super().__init__(private_origins=[here, there], ssl_context=ssl_context or authority.client())

    for module in ("a2a_trust", "a2a_trust.client.oauth", "a2a_trust.client.verification"):
        monkeypatch.setattr(f"{module}.Fetcher", FetcherToHere)
    return lambda block: block.replace("https://agent.example.com", here).replace("https://login.example.com", there)


def run_block(text: str, names: dict[str, Any]) -> dict[str, Any]:
    exec(compile(text, "docs/credentials.md", "exec"), names)
    return names


def test_one_line_gets_a_token_and_sends_it_with_the_key(
    lines: Callable[[str], str], agent: Agent, login: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    run_block(lines(ONE_LINE), {})
    assert capsys.readouterr().out == PRINTED
    assert agent.paths() == [NEW, "/rpc"]
    sent = agent.asked[-1].headers
    assert (sent["x-api-key"], sent["authorization"]) == (KEY, "Bearer client_credentials.")
    assert "authorization" not in agent.asked[0].headers
    assert login.asked[0].headers["authorization"] == httpx.BasicAuth("orchestrator", "s3cret")._auth_header


def test_servers_of_this_machine_are_named() -> None:
    block = LOCAL.replace("…", "s3cret", 1)
    names = run_block(block, {"OAuthClient": OAuthClient, "ClientSecret": ClientSecret})
    assert names["local_login"].token_endpoint == "http://localhost:9000/token"
    with pytest.raises(ConfigurationError, match=r"pass fetcher=Fetcher\(private_origins="):
        run_block(block.replace("fetcher=here,", ""), {"OAuthClient": OAuthClient, "ClientSecret": ClientSecret})


def test_clients_authenticate_in_the_other_ways(lines: Callable[[str], str], authority: Authority) -> None:
    authority.server("client.example")
    key, begin, certificate = (authority.folder / "server.pem").read_text().partition("-----BEGIN CERTIFICATE")
    Path("client.pem").write_text(begin + certificate)
    Path("client.key").write_text(key)
    Path("client.key").chmod(0o600)
    names = run_block(lines(CLIENTS), {"OAuthClient": OAuthClient})
    assert isinstance(names["by_certificate"], OAuthClient)
    assert isinstance(names["bound_to_a_key"], OAuthClient)


def test_a_fetched_card_is_answered(
    lines: Callable[[str], str], agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    names = run_block(lines(ONE_LINE).partition("async def main")[0], {})
    run_block(lines(ELSEWHERE).replace("…", KEY), names)
    assert capsys.readouterr().out == "200\n"
    sent = agent.asked[-1].headers
    assert (sent["x-api-key"], sent.get("authorization")) == (KEY, None)
    agent.asked.clear()
    run_block(lines(BEHIND).replace("…", KEY), names)

    async def call() -> None:
        async with names["behind"] as http:
            await http.post(f"{agent.origin('127.0.0.1')}/rpc", json={})

    asyncio.run(call())
    assert [(asked.path, asked.headers["x-api-key"]) for asked in agent.asked] == [
        (NEW, KEY),
        (NEW, KEY),
        ("/rpc", KEY),
    ]


def test_two_callers_at_once_have_a_token_each(
    lines: Callable[[str], str], agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    names = run_block(lines(ONE_LINE).partition("async def main")[0], {})
    run_block(lines(ON_BEHALF), names)
    tokens = {
        name: SubjectToken(name, issuer="https://login.example", subject=name, expires_at=2e9)
        for name in ("ann", "bob")
    }
    names["subject_token_of"] = tokens.__getitem__

    async def both() -> None:
        async with names["for_callers"]:
            await asyncio.gather(*[names["handle"](name) for name in ("ann", "bob") * 5])

    asyncio.run(both())
    assert capsys.readouterr().out == 10 * PRINTED_FOR_CALLERS
    sent = sorted(each.headers["authorization"] for each in agent.asked if each.path == "/rpc")
    assert sent == ["Bearer token-exchange.ann"] * 5 + ["Bearer token-exchange.bob"] * 5


def test_several_agents_get_their_own_keys(
    lines: Callable[[str], str],
    agent: Agent,
    authority: Authority,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("other-key").write_text("key-2\n")
    with serving_agent(authority.server("127.0.0.1")) as other:
        there = other.origin("127.0.0.1")
        other.pages |= {NEW: signed(card_of(there)), "/rpc": Page(body=b"{}")}
        run_block(lines(SEVERAL.replace("https://other-agent.example.com", there)), {})
        assert capsys.readouterr().out == f"{agent.origin('127.0.0.1')} 200\n{there} 200\n"
        assert (agent.asked[-1].headers["x-api-key"], other.asked[-1].headers["x-api-key"]) == (KEY, "key-2")
        assert other.asked[-1].headers["user-agent"].startswith("python-httpx2/")


def test_a_caller_of_another_issuer_has_a_token_by_an_assertion(
    lines: Callable[[str], str], agent: Agent, login: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = run_block(lines(ONE_LINE).partition("async def main")[0], {})
    here, there = agent.origin("127.0.0.1"), login.origin("127.0.0.1")
    header = {"alg": "ES256", "typ": "oauth-id-jag+jwt"}
    claims = {"aud": there, "client_id": "orchestrator", "scope": "read", "resource": here}
    answer = {"access_token": sign_jwt(header, claims, OWNER), "token_type": "N_A", "expires_in": 60}
    issued = {"issued_token_type": "urn:ietf:params:oauth:token-type:id-jag"}
    login.pages["/exchange"] = Page(body=json.dumps({**answer, **issued}).encode())
    svid = {"sub": "spiffe://example.com/orchestrator", "aud": ["https://idp.example.com"], "exp": 4e9}
    Path("jwt_svid.token").write_text(sign_jwt({"alg": "ES256"}, svid, OWNER))
    run_block(lines(ON_BEHALF), names)
    run_block(lines(ACROSS).replace("https://idp.example.com/token", f"{there}/exchange"), names)
    ann: dict[str, Any] = {"issuer": "https://idp.example.com", "subject": "ann", "expires_at": 2e9}
    names["caller"].set(SubjectToken("ann", **ann, scopes=frozenset({"read"})))

    async def call() -> None:
        async with names["for_other_callers"] as http:
            await http.post(f"{here}/rpc", json={})

    asyncio.run(call())
    assert [asked.path for asked in login.asked] == ["/exchange", "/token"]
    exchange, grant = ({name: value for name, (value,) in parse_qs(each.body.decode()).items()} for each in login.asked)
    assert (exchange["subject_token"], exchange["audience"], exchange["resource"]) == ("ann", there, here)
    assert exchange["client_assertion_type"].endswith(":jwt-spiffe")
    assert grant["assertion"] == answer["access_token"]
    assert agent.asked[-1].headers["authorization"] == "Bearer jwt-bearer."
