"""The README is true: word for word, in order, in an empty folder, its commands and its Python run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from tests.base.net.test_fetcher import Authority
from tests.client.agents import NEW, Page, serving_agent
from tests.conftest import ROOT
from tests.servers.serving import free_port, serving

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(console|python)\n(.*?)```", README, re.DOTALL)
PYTHON = [text for language, text in BLOCKS if language == "python"]


#: What a program of the README finds when it asks for its agent: one on this machine, by its name and over TLS.
INTERNET = """
import ssl
import a2a_trust.client.verification
from a2a_trust.base.net.fetcher import Fetcher

class Names:
    async def resolve(self, host, port):
        return ["127.0.0.1"]

class FetcherToHere(Fetcher):
    async def fetch(self, url, **rest):
        return await super().fetch(url.replace("{host}", "{host}:{port}", 1), **rest)

fetcher = FetcherToHere(
    private_origins=["https://{host}:{port}"],
    ssl_context=ssl.create_default_context(cafile="authority.pem"),
    resolver=Names(),
)
a2a_trust.client.verification.Fetcher = lambda: fetcher
"""
AGENT = "georoute-agent.example.com"


def ask_the_agent(text: str, folder: Path) -> None:
    """Run what asks the agent while it serves the card that the blocks before have signed."""
    authority, card = Authority(folder), folder / "card.json"
    (folder / "authority.pem").write_bytes(authority.certificate.public_bytes(Encoding.PEM))
    with serving_agent(authority.server(AGENT)) as agent:
        agent.pages[NEW] = Page(body=card.read_bytes())
        run(INTERNET.replace("{host}", AGENT).replace("{port}", str(agent.port)) + text, "python", folder)
        assert agent.paths() == [NEW]


def run(text: str, language: str, folder: Path) -> str:
    if language == "python":
        command = [sys.executable, "-W", "error", "-c", text]
    else:
        lines = [line.removeprefix("$ ") for line in text.strip().splitlines()]
        command = ["bash", "-euo", "pipefail", "-c", "\n".join(lines)]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "XDG_CONFIG_HOME": str(folder / "config")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    assert language == "console" or not done.stderr, f"{text}\n{done.stderr}"
    return done.stdout


@pytest.mark.real
def test_the_readme_runs_word_for_word_from_a_clone(tmp_path: Path) -> None:
    # What `make demo` leaves in a clone: the examples, and the virtual environment that the tests run in.
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parent.parent)
    session = "source .venv/bin/activate\n"
    for language, text in BLOCKS:
        if language == "python" and "protect(" in text:
            (tmp_path / "agent.py").write_text(text)  # as the README says; it runs in the server
        elif "fetch_card(" in text:
            ask_the_agent(text, tmp_path)
        else:
            run(text if language == "python" else session + text, language, tmp_path)
    assert "signatures" in (tmp_path / "card.json").read_text()
    url = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "uvicorn", "agent:app", "--port", url.rpartition(":")[2]]
    with serving(command, url, {}, tmp_path):
        key = (tmp_path / "ann.key").read_text().strip()
        assert httpx.get(f"{url}/docs").status_code == 401
        assert httpx.get(f"{url}/docs", headers={"X-API-Key": f"{key}x"}).status_code == 401
        assert httpx.get(f"{url}/docs", headers={"X-API-Key": key}).status_code == 200
        assert httpx.get(f"{url}/.well-known/agent-card.json").json()["name"] == "Invoice Agent"


@pytest.mark.parametrize("text", PYTHON, ids=["sign", "verify", "protect"])
def test_each_job_takes_ten_lines_of_python_at_most(text: str) -> None:
    assert len([line for line in text.splitlines() if line.strip()]) <= 10


def test_there_is_a_block_for_each_job() -> None:
    assert "sign_card(" in PYTHON[0]
    assert "fetch_card(" in PYTHON[1]
    assert "protect(" in PYTHON[2]


def test_every_file_that_the_documents_link_to_is_there() -> None:
    for document in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]:
        for target in re.findall(r"\]\(((?!http)[^)#]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
