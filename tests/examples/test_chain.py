"""The chain of examples/on_behalf_of: three agents on sockets, each of which sees the user and all who act."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from a2a_trust.client import BearerToken, CredentialsRejectedError
from tests.servers.serving import ROOT

pytestmark = pytest.mark.anyio

README = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
LINES = ["planner: for alice", "researcher: for alice, by planner", "archive: for alice, by researcher, by planner"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def running() -> AsyncIterator[Any]:
    """The example as a module, with its servers and agents on their sockets."""
    spec = importlib.util.spec_from_file_location("chain", ROOT / "examples" / "on_behalf_of" / "chain.py")
    assert spec is not None
    assert spec.loader is not None
    chain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(chain)
    servers = {name: uvicorn.Server(uvicorn.Config(app, log_config=None)) for name, app in chain.apps().items()}
    tasks = [asyncio.create_task(each.serve([chain.sockets[name]])) for name, each in servers.items()]
    try:
        yield chain
    finally:
        for each in servers.values():
            each.should_exit = True
        await asyncio.gather(*tasks)


async def asked(chain: Any, agent: str, token: str) -> list[str]:
    async with chain.client_of(agent, BearerToken(token, origins=[chain.urls[agent]])) as http:
        said: list[str] = await chain.ask(agent, http)
        return said


def test_the_command_of_the_readme_prints_what_it_shows() -> None:
    command, shown = re.findall(r"\$ python (examples/on_behalf_of/chain\.py)\n(.*?)```", README, re.DOTALL)[0]
    done = subprocess.run([sys.executable, command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, shown), done.stderr[-4000:]
    assert shown.splitlines() == LINES


async def test_each_hop_has_the_user_and_its_actors_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "a2a_trust.audit")
    async with running() as chain:
        token = chain.home.token("alice", audience=chain.urls["planner"], scopes=["read", "write"])
        assert await asked(chain, "planner", token) == LINES
        events = [record.__dict__["audit"] for record in caplog.records if record.name == "a2a_trust.audit"]
        home, partner = chain.home.url, chain.partner.url
        planner, researcher = (f"{chain.urls[name]}@{home}" for name in ("planner", "researcher"))
        assert [(each["event"], each["caller"], each.get("actors")) for each in events] == [
            ("allowed", f"alice@{home}", None),
            ("allowed", f"alice@{home}", [planner]),
            ("allowed", f"alice@{partner}", [researcher, planner]),
        ]
        assert [each["client_id"] for each in events] == ["test", chain.urls["planner"], chain.urls["researcher"]]


async def test_callers_at_once_stay_apart() -> None:
    async with running() as chain:
        names = ["ann", "bob"] * 5
        tokens = [chain.home.token(name, audience=chain.urls["planner"], scopes=["read"]) for name in names]
        answers = await asyncio.gather(*[asked(chain, "planner", token) for token in tokens])
    assert [lines[2] for lines in answers] == [f"archive: for {name}, by researcher, by planner" for name in names]


async def test_tokens_for_another_hop_without_the_scope_or_with_other_actors_are_rejected() -> None:
    async with running() as chain:
        urls, home, partner = chain.urls, chain.home, chain.partner
        planner, stranger = ({"iss": home.url, "sub": sub} for sub in (urls["planner"], "stranger"))
        researcher = {"iss": home.url, "sub": urls["researcher"]}
        good = {"scopes": ["read"]}
        cases = [
            ("researcher", home.token(audience=urls["planner"], **good), 401),
            ("archive", home.token(audience=urls["archive"], **good), 401),
            ("planner", home.token(audience=urls["planner"]), 403),
            ("planner", home.token(audience=urls["planner"], act=planner, **good), 401),
            ("researcher", home.token(audience=urls["researcher"], act=stranger, **good), 401),
            ("archive", partner.token(audience=urls["archive"], act={**researcher, "act": stranger}, **good), 401),
            ("archive", partner.token(audience=urls["archive"], act={"sub": urls["planner"]}, **good), 401),
        ]
        for agent, token, status in cases:
            with pytest.raises(CredentialsRejectedError) as rejected:
                await asked(chain, agent, token)
            assert rejected.value.response.status_code == status
        act = {**researcher, "act": planner}
        assert await asked(chain, "archive", partner.token(audience=urls["archive"], act=act, **good)) == [
            "archive: for ann, by researcher, by planner"
        ]
