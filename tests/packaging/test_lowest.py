"""The lowest versions that pyproject.toml allows do the work. `make lowest` runs the tests with them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.packaging.environments import environment_with
from tests.packaging.probes import done_in
from tests.packaging.pythons import ROOT, build_wheel

PROGRAM = """
import asyncio, json, pathlib, shtab, sys, threading
import a2a_trust.servers.uvicorn
from argon2 import PasswordHasher
from a2a_trust import generate_signer, sign_card, verify_card
from a2a_trust.card.models import AgentCard
from a2a_trust.client.verification import fetch_card
from a2a_trust.auth import BasicVerifier, MemoryPasswords, PostgresProofMemory, RedisProofMemory
from a2a_trust.errors import KeySourceUnavailableError
from a2a_trust.testing import InMemoryAgent


async def talk():
    agent = InMemoryAgent(lambda text, caller: f"{caller.label} said {text}", scopes=["read"])
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    async with agent.client(agent.key("read")) as http:
        answer = (await http.post(f"{agent.url}/rpc", json=call)).raise_for_status().json()
        assert answer["result"]["message"]["parts"][0]["text"] == "ann said hi", answer
    async with agent.client(agent.key()) as http:
        assert (await http.post(f"{agent.url}/rpc", json=call)).status_code == 403


asyncio.run(talk())
for memory in (PostgresProofMemory("postgresql://127.0.0.1:1/a"), RedisProofMemory("redis://127.0.0.1:1")):
    try:
        asyncio.run(memory.first_use("key", "1", now=0, issued=0, window=60))
    except KeySourceUnavailableError:
        continue
    raise AssertionError("nobody can tell")
BasicVerifier(MemoryPasswords())
MemoryPasswords().create(user="ann")
"""


def test_the_lock_has_the_lowest_versions_of_every_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    bounds = [*project["dependencies"], *(bound for extra in extras for bound in extra)]
    lock = Path(__file__).with_name("requirements-lowest.txt").read_text()
    locked = dict(re.findall(r"^([a-z0-9-]+)(?:\[.*\])?==([\d.]+)", lock, re.MULTILINE))
    for bound in bounds:
        name, _, lowest = re.sub(r"\[.*\]", "", bound).partition(">=")
        # 45 is 45.0.x: the first one that is on the index, and was not taken back
        assert f"{locked[name]}.".startswith(f"{lowest}."), bound


def test_the_lowest_versions_do_the_work(tmp_path: Path) -> None:
    python = environment_with("lowest", build_wheel(tmp_path))
    (tmp_path / "card.json").write_text((ROOT / "examples" / "georoute-agent-card.json").read_text())
    lines = (
        "keygen -o key.pem",
        "card.json --key key.pem",
        "verify card.json --jwks key.jwks.json --origin https://georoute-agent.example.com",
    )
    done = done_in(python, tmp_path, programs=(PROGRAM,), commands=lines)
    assert {name: each for name, each in done.items() if each.returncode} == {}
