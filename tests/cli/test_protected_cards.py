"""``--header-from`` and ``--client-certificate``: cards behind authentication, on real sockets of this machine."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509

from a2a_trust import publish_jwks
from tests.certificates import SERVER
from tests.certificates import Authority as Certificates
from tests.cli.conftest import Run
from tests.client.agents import NEW, OLD, OWNER, Agent, Asked, Page, card_of, serving_agent, signed

SECRET = "header-71be02"


@pytest.fixture
def agent(run: Run, tmp_path: Path) -> Iterator[Agent]:
    with serving_agent(None) as running:
        url = running.origin("127.0.0.1").replace("https", "http")

        def behind_a_key(asked: Asked) -> Page:
            return Page(body=signed(card_of(url)), status=200 if asked.headers.get("x-api-key") == SECRET else 401)

        running.pages[NEW] = behind_a_key
        (tmp_path / "keys.json").write_text(json.dumps(publish_jwks([OWNER.public_key])))
        (tmp_path / "headers").write_text(f"X-API-Key: {SECRET}\n")
        yield running


def url_of(agent: Agent, path: str = NEW) -> str:
    return f"http://127.0.0.1:{agent.port}{path}"


def test_the_headers_go_to_the_url_of_the_card(agent: Agent, run: Run) -> None:
    given = (url_of(agent), "--private-origins", "--jwks", "keys.json")
    assert run("verify", *given).code == 6
    for command in ("verify", "inspect"):
        done = run(command, *given, "--header-from", "headers")
        assert done.code == 0, done
        assert SECRET not in done.out + done.err
    assert [asked.headers.get("x-api-key") for asked in agent.asked] == [None, SECRET, SECRET]


def test_they_follow_no_redirect_and_go_to_no_key_set(agent: Agent, run: Run) -> None:
    agent.pages[NEW] = Page(status=302, headers={"Location": url_of(agent, OLD)})
    agent.pages[OLD] = signed(card_of(url_of(agent, "")))
    given = (url_of(agent), "--private-origins", "--header-from", "headers")
    assert run("verify", *given, "--jwks", "keys.json").code == 6
    agent.pages[NEW] = agent.pages[OLD]
    assert run("verify", *given, "--on-first-use", "--memory", "cards.db").code == 4
    shown = [asked.path for asked in agent.asked if SECRET in str(asked.headers)]
    assert shown == [NEW, NEW]
    assert agent.paths() == [NEW, NEW, "/.well-known/jwks.json"]


@pytest.mark.parametrize(
    "text",
    [
        "Host: a.test",
        "cookie: a=b",
        "Connection: x",
        "TE: trailers",
        "Transfer-Encoding: chunked",
        "Proxy-Authorization: Basic eA==",
        "X-Key",
        f"X-API-Key: {SECRET}\r",
        f"X-API-Key: {SECRET}\rHost: a.test",
        f"X-API-Key: {SECRET}\n\nHost: a.test",
        f"X-API-Key: {SECRET}\nx-api-key: {SECRET}",
        f"X-API-Key: {SECRET}é",
        SECRET,
        "",
    ],
)
def test_other_headers_are_errors(agent: Agent, run: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "headers").write_bytes(text.encode("latin-1"))
    done = run("verify", url_of(agent), "--private-origins", "--jwks", "keys.json", "--header-from", "headers")
    assert done.code == 2, done
    assert SECRET not in done.out + done.err
    assert agent.asked == []


@pytest.mark.parametrize(
    "option", [("--header-from", "headers"), ("--client-certificate", "a.pem", "--client-key", "a.key")]
)
def test_they_are_for_one_card(agent: Agent, run: Run, option: tuple[str, ...]) -> None:
    one, other, agents = url_of(agent), url_of(agent, "/b.json"), url_of(agent, "")
    for names in ([one, other], [agents], ["keys.json"]):
        done = run("verify", *names, "--any-origin", "--private-origins", "--jwks", "keys.json", *option)
        assert (done.code, "name only the URL of one card" in done.err) == (2, True), done
    assert agent.asked == []


def test_a_certificate_that_is_missing(agent: Agent, run: Run) -> None:
    done = run(
        "verify",
        url_of(agent),
        "--private-origins",
        "--jwks",
        "keys.json",
        "--client-certificate",
        "a.pem",
        "--client-key",
        "a.key",
    )
    assert (done.code, agent.asked) == (6, [])
    assert "a.pem" in done.out


def test_a_certificate_is_shown_for_the_card(run: Run, tmp_path: Path) -> None:
    authority = Certificates()
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    authority.issue(x509.DNSName("client.example")).write(tmp_path, "client")[1].chmod(0o600)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue(x509.IPAddress(ip_address("127.0.0.1")), usage=SERVER).load_into(context, tmp_path)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(tmp_path / "ca.pem")
    with serving_agent(context) as agent:
        origin = agent.origin("127.0.0.1")
        agent.pages[NEW] = signed(card_of(origin))
        (tmp_path / "keys.json").write_text(json.dumps(publish_jwks([OWNER.public_key])))
        given = ("verify", f"{origin}{NEW}", "--private-origins", "--jwks", "keys.json")
        trusted = {"SSL_CERT_FILE": str(tmp_path / "ca.pem")}
        assert run(*given, **trusted).code == 6
        done = run(*given, "--client-certificate", "client.pem", "--client-key", "client.key", **trusted)
        assert run(*given, "--client-key", "client.key", **trusted).code == 2
        assert done.code == 0, done
        assert agent.paths() == [NEW]
