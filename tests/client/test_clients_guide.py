"""The pages about clients and the card memory are true: their Python runs, and what they say of answers is so."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from a2a_trust import Fetcher, VerifyingTransport, errors, generate_signer, publish_jwks
from a2a_trust.base.net.fetcher import Fetched, SystemResolver
from a2a_trust.client import UnsafePassAnything, UnverifiedCardError
from a2a_trust.client.decisions import BARE_HEADERS
from a2a_trust.errors import RolledBackCardError
from tests.base.net.test_fetcher import Authority, Names
from tests.client.agents import NEW, OWNER, Agent, Asked, Page, card_of, serving_agent, signed, trusting
from tests.docs.pages import PAGES
from tests.servers.environments import python_of
from tests.servers.serving import ROOT


def blocks(page: str, language: str = "python") -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", PAGES[f"docs/{page}.md"])


FETCH, PLACE, OFFLINE, EXTENDED, REPORT, REGISTRY = blocks("clients")
SDK, OTHERS, HOOK = blocks("sdk-clients")
(FIRST_USE,), (MESH,) = blocks("first-use"), blocks("service-mesh")
TRANSPORT = PAGES["docs/sdk-clients.md"]
SENT = " ".join(TRANSPORT.split())
HOST = "127.0.0.1"
NAMES = ("agent.example.com", "new-agent.example.com", "unsigned-agent.example.com", "registry.example.com")


class FetcherToHere(Fetcher):
    """Finds every agent of the guide on this machine, at the port of the one agent; that is all that it changes."""

    def __init__(self, agent: Agent, authority: Authority) -> None:
        self._port = agent.port
        origins = [f"https://{name}:{agent.port}" for name in NAMES]
        super().__init__(private_origins=origins, ssl_context=authority.client(), resolver=Here())

    async def fetch(self, url: str, **rest: Any) -> Fetched:
        return await super().fetch(url.replace(".example.com", f".example.com:{self._port}", 1), **rest)


class Here:
    async def resolve(self, host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the guide's programs run: with the trust file that they name."""
    (tmp_path / "owner.json").write_text(json.dumps(publish_jwks([OWNER.public_key])))
    hosts = json.dumps([HOST, "agent.example.com"])
    (tmp_path / "trust.toml").write_text(f'version = 1\n[[trust]]\norigins = {hosts}\nkeys = "owner.json"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_block(text: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run a block of the guide word for word, after those before it."""
    exec(compile(text, "docs/clients.md", "exec"), names)
    return names


@pytest.fixture
def many(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """One server that is all agents of the guide; which one was asked is told by the header Host."""
    with serving_agent(authority.server(*NAMES)) as running:
        monkeypatch.setattr("a2a_trust.client.verification.Fetcher", lambda: FetcherToHere(running, authority))
        yield running


def test_cards_are_fetched_as_the_guide_says(
    folder: Path, many: Agent, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    agent, new, unsigned, _ = (f"https://{name}" for name in NAMES)
    stranger = generate_signer(kid="stranger")
    cards = {
        agent: signed(card_of(agent)),
        new: signed(card_of(new), by=stranger),
        unsigned: json.dumps(card_of(unsigned)).encode(),
    }

    def card(asked: Asked) -> Page:
        origin = "https://" + asked.headers["host"].partition(":")[0]
        return Page(body=cards[origin], headers={"Cache-Control": "max-age=60"})

    def extended(asked: Asked) -> Page:
        assert asked.headers["x-api-key"] == "the key"
        return Page(body=b'{"id": "extended-card", "result": %b}' % signed(card_of(agent, description="More.")))

    many.pages = {
        NEW: card,
        "/rpc": extended,
        "/.well-known/jwks.json": json.dumps(publish_jwks([stranger.public_key])).encode(),
    }
    (folder / "card.json").write_bytes(cards[agent])
    names = run_block(FETCH, {})
    assert names["card"] == card_of(agent)
    assert [capsys.readouterr().out] == blocks("clients", "text")
    many.pages["/agents/ledger"] = cards[agent]
    assert run_block(PLACE, {**names})["verified"].card == card_of(agent)
    assert many.asked.pop().headers["host"].startswith("registry.example.com")
    assert [record.location for record in names["options"].memory.records()] == [agent]
    assert run_block(OFFLINE, names)["verified"].card == card_of(agent)
    run_block("verified = " + FETCH.partition("verified = ")[2], names)
    assert many.paths() == [NEW]  # the answer was fresh

    capsys.readouterr()
    first = run_block(FIRST_USE, {})
    assert capsys.readouterr().out == blocks("first-use", "text")[0]
    assert first["verified"].origin == "new-agent.example.com"
    assert stranger.public_key.thumbprint in caplog.text
    assert [record.location for record in first["options"].memory.records()] == [new]

    report = run_block(REPORT, {**names})["report"]
    assert (report.reasons, report.unverified) == (("unsigned",), card_of(unsigned))

    assert run_block(EXTENDED, {**names, "key": "the key"})["extended"].card["description"] == "More."


def test_a_copy_that_is_older_than_what_was_seen_is_refused_as_the_guide_says(folder: Path, many: Agent) -> None:
    origin, now = "https://agent.example.com", time.time()
    many.pages[NEW] = signed(card_of(origin), iat=now - 10)
    names = run_block(FETCH, {})
    (folder / "card.json").write_bytes(signed(card_of(origin), iat=now - 1000))
    with pytest.raises(RolledBackCardError):
        run_block(OFFLINE, names)


@pytest.mark.real
def test_the_memory_is_used_as_its_own_guide_says(
    folder: Path, postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (text,), (shared,) = blocks("memory"), blocks("memory-stores")
    place = "postgresql://agents@db.example.com/agents"
    patient = shared.replace(f'"{place}"', f'"{postgres_url}", timeout=60')
    assert patient != shared
    assert run_block(patient, {})["memory"].records() == ()
    assert place in shared
    origin = "https://agent.example.com"
    names = run_block(text, {"document": signed(card_of(origin)), "url": f"{origin}{NEW}"})
    assert [capsys.readouterr().out] == blocks("memory", "text")
    assert names["memory"].expects_signature(origin)


def test_every_exception_of_the_guides_table_has_the_code_that_it_says() -> None:
    table = re.findall(r"^\| `?(\w+Error.*?) \| (.*?) \| ", PAGES["docs/clients.md"], re.MULTILINE)
    assert len(table) == 4
    for classes, codes in table:
        kinds = [getattr(errors, name) for name in re.findall(r"\w+Error", classes)]
        said = re.findall(r"`(.*?)`", codes)
        assert said
        known = {each.code for kind in kinds for each in (kind, *kind.__subclasses__())}
        assert set(said) <= known


def test_an_agent_of_a_service_mesh_is_called_as_the_guide_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = Names(ledger_team_svc_cluster_local=[["127.0.0.1"]])
    monkeypatch.setattr(SystemResolver, "resolve", lambda _, host, port: names.resolve(host, port))
    trusted = (folder / "trust.toml").read_text()
    (folder / "trust.toml").write_text(trusted.replace("agent.example.com", "*.team.svc.cluster.local"))
    (folder / "agent-key").write_text("the key")
    with serving_agent(None) as agent:
        agent.pages = {NEW: signed(card_of(f"http://ledger.team.svc.cluster.local:{agent.port}")), "/rpc": b"{}"}
        run_block(MESH.replace(":8000", f":{agent.port}"), {})
    assert [capsys.readouterr().out] == blocks("service-mesh", "text")
    assert [(asked.path, asked.headers.get("x-api-key")) for asked in agent.asked] == [(NEW, None), ("/rpc", "the key")]


def test_a_registry_counts_as_the_guide_says(folder: Path) -> None:
    origin = "https://agent.example.com"
    good = card_of(origin)
    documents = {"agent.example.com": signed(good), "other.example.com": signed(good), "evil.example.com": b"{}"}
    (folder / "cards").mkdir()
    for name, document in documents.items():
        (folder / "cards" / f"{name}.json").write_bytes(document)
    verdicts = run_block(REGISTRY, {})["verdicts"]
    assert verdicts == {"ok": 1, "untrusted": 1, "unsigned": 1}


def test_other_programs_on_httpx_get_verified_cards_as_the_guide_says(
    folder: Path,
    agent: Agent,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "authority.pem").write_bytes(authority.certificate.public_bytes(Encoding.PEM))
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "authority.pem"))
    url = agent.origin(HOST)
    agent.pages[NEW] = signed(card_of(url))
    text = OTHERS.replace("https://agent.example.com", url)
    assert run_block(text, {})["card"]["name"] == "Ledger"
    agent.pages[NEW] = json.dumps(card_of(url)).encode()
    assert "card" not in run_block(text, {})
    assert capsys.readouterr().out == "unsigned\n"


@pytest.mark.real
@pytest.mark.parametrize(
    ("block", "errors"),
    [
        (SDK, ("UnsignedCardError", "UnverifiedCardError", "AgentCardResolutionError")),
        (HOOK, ("UnsignedCardError",)),
    ],
    ids=["transport", "hook"],
)
def test_the_programs_of_the_sdk_run_and_refuse(
    folder: Path, agent: Agent, authority: Authority, block: str, errors: tuple[str, ...]
) -> None:
    url = agent.origin(HOST)
    program = folder / "program.py"
    program.write_text(block.replace("https://agent.example.com", url))
    (folder / "authority.pem").write_bytes(authority.certificate.public_bytes(Encoding.PEM))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "SSL_CERT_FILE": str(folder / "authority.pem"),
    }

    def run() -> subprocess.CompletedProcess[str]:
        command = [str(python_of("server-1.3.0")), str(program)]
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    agent.pages[NEW] = signed(card_of(url))
    good = run()
    assert good.returncode == 0, good.stderr
    if block == SDK:
        assert [good.stdout] == blocks("sdk-clients", "text")
    else:
        assert good.stdout == "Ledger\n"
    agent.pages[NEW] = json.dumps(card_of(url)).encode()
    bad = run()
    assert (bad.returncode, bad.stdout) == (1, "")
    for name in errors:
        assert name in bad.stderr


def test_what_the_guides_table_calls_a_card_is_verified(agent: Agent, authority: Authority) -> None:
    (row,) = re.findall(r"^Extended cards are answers to GET of (.*?)\.$", TRANSPORT, re.MULTILINE | re.DOTALL)
    named = re.findall(r"`(.*?)`", row)
    assert len(named) == 5
    url = agent.origin(HOST)
    unsigned = json.dumps(card_of(url)).encode()
    inner = httpx.HTTPTransport(verify=authority.client())
    transport = VerifyingTransport(inner, trusting(HOST), also=UnsafePassAnything())
    with httpx.Client(transport=transport) as http:
        for name in named:
            path = name.replace("…", "/team") if "…" in name else "/rpc"
            agent.pages[path] = unsigned if "…" in name else b'{"result": %b}' % unsigned
            call = {"jsonrpc": "2.0", "id": 1, "method": name}
            request = http.build_request(*(("GET", url + path) if "…" in name else ("POST", url + path)), json=call)
            with pytest.raises(UnverifiedCardError, match="is not passed on"):
                http.send(request)


def test_the_lines_that_the_guide_has_for_other_places_are_taken_and_the_error_names_them(agent: Agent) -> None:
    lines = [
        eval(f"dict({line})", {"UnsafePassAnything": UnsafePassAnything})
        for line in re.findall(r"^\| `((?:cards|also)=.*?)` \|", TRANSPORT, re.MULTILINE)
    ]
    assert len(lines) == 4
    for options in lines:
        VerifyingTransport(httpx.HTTPTransport(), trusting(HOST), **options)
    sent = "|".join(re.findall(r"`([A-Za-z0-9-]+)`", SENT.partition("only `Accept`")[2].partition("are sent")[0]))
    assert {"accept", *sent.lower().split("|")} == set(BARE_HEADERS)
    with (
        httpx.Client(transport=VerifyingTransport(httpx.HTTPTransport(), trusting(HOST))) as http,
        pytest.raises(UnverifiedCardError, match=r"write cards=\{.*write also=\["),
    ):
        http.post(agent.origin(HOST))
