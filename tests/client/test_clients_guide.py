"""docs/clients.md is true: its Python runs, and what it says of answers is so."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from a2a_trust import CardProofTransport, Door, UnprovenCardError, publish_jwks
from tests.client.agents import NEW, OWNER, Agent, Asked, Page, card_of, signed, trusting
from tests.servers.environments import python_of
from tests.servers.serving import ROOT
from tests.test_fetch import Authority

GUIDE = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
FETCH, EXTENDED, SDK = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
HOST = "127.0.0.1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the guide's programs run: with the trust file that they name."""
    (tmp_path / "owner.json").write_text(json.dumps(publish_jwks([OWNER.public_key])))
    (tmp_path / "trust.toml").write_text(f'version = 1\n[[trust]]\norigins = ["{HOST}"]\nkeys = "owner.json"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_cards_are_fetched_as_the_guide_says(
    folder: Path, agent: Agent, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = agent.origin(HOST)

    def extended(asked: Asked) -> Page:
        assert asked.headers["x-api-key"] == "the key"
        return Page(body=b'{"id": "extended-card", "result": %b}' % signed(card_of(url, description="More.")))

    agent.pages = {NEW: Page(body=signed(card_of(url)), headers={"Cache-Control": "max-age=60"}), "/rpc": extended}
    door = Door(private_origins=[url], ssl_context=authority.client())
    monkeypatch.setattr("a2a_trust.client.flow.Door", lambda: door)
    names: dict[str, Any] = {"key": "the key"}
    code = (FETCH + EXTENDED).replace("https://agent.example.com", url)
    exec(compile(code, "docs/clients.md", "exec"), names)
    assert names["card"] == card_of(url)
    assert names["extended"].card["description"] == "More."
    assert [record.origin for record in names["memory"].records()] == [url]
    exec(compile(code, "docs/clients.md", "exec"), {**names})
    assert agent.paths() == [NEW, "/rpc"] * 2  # the cache of the second run is another one


def test_the_program_of_the_sdk_runs_and_refuses(folder: Path, agent: Agent, authority: Authority) -> None:
    url = agent.origin(HOST)
    program = folder / "program.py"
    program.write_text(SDK.replace("https://agent.example.com", url))
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
    assert (good.returncode, good.stdout.split()[:1]) == (0, ["Ledger"]), good.stderr
    agent.pages[NEW] = json.dumps(card_of(url)).encode()
    bad = run()
    assert (bad.returncode, bad.stdout) == (1, "")
    for name in ("UnsignedCardError", "UnprovenCardError", "AgentCardResolutionError"):
        assert name in bad.stderr


def test_what_the_guides_table_calls_a_card_is_proven(agent: Agent, authority: Authority) -> None:
    (row,) = re.findall(r"^\| extended cards: (.*?) \|", GUIDE, re.MULTILINE)
    named = re.findall(r"`(.*?)`", row)
    assert len(named) == 5
    url = agent.origin(HOST)
    unsigned = json.dumps(card_of(url)).encode()
    transport = CardProofTransport(httpx.HTTPTransport(verify=authority.client()), trusting(HOST))
    with httpx.Client(transport=transport) as http:
        for name in named:
            path = name.replace("…", "/team") if "…" in name else "/rpc"
            agent.pages[path] = unsigned if "…" in name else b'{"result": %b}' % unsigned
            call = {"jsonrpc": "2.0", "id": 1, "method": name}
            request = http.build_request(*(("GET", url + path) if "…" in name else ("POST", url + path)), json=call)
            with pytest.raises(UnprovenCardError):
                http.send(request)
