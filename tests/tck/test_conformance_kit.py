"""The A2A conformance kit, run from a checkout of its own: what passes on a bare server passes behind the guard."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import httpx
import pytest

from a2a_trust.auth import SqliteApiKeys
from a2a_trust.card.merge import merged_card
from tests.servers.environments import python_of
from tests.servers.issuer import Issuer
from tests.servers.serving import ROOT, SERVERS, free_port, serving

_HERE: Final = Path(__file__).resolve().parent
_KIT: Final = "a2a-tck-1.0-dev"
_RUN_SECONDS: Final = 280
_MANY: Final = 100


class Agent(NamedTuple):
    """What the agent can do, which versions it speaks, and by which credential the kit calls it when it is wrapped."""

    capabilities: dict[str, bool]
    versions: list[str]
    credential: str


AGENTS: Final = {
    # The kit has tests for what an agent can do, and others for what it says when it cannot.
    "of-one-version": Agent({"streaming": True}, ["1.0"], "key"),
    "of-both-versions": Agent(
        {"streaming": True, "pushNotifications": True, "extendedAgentCard": True}, ["1.0", "0.3"], "token"
    ),
}
APPS: Final = ("bare", "wrapped", "served")
"""``served`` is the bare agent behind ``a2a-sign serve``."""
_FILE: Final = """
card = "card.json"
[upstream]
url = "{upstream}"
[listen]
address = "{address}"
[verifiers.key]
type = "ApiKeyVerifier"
store = {{ type = "SqliteApiKeys", path = "keys.db" }}
[verifiers.login]
type = "JwtVerifier"
keys = {{ type = "JwksFile", path = "keys.json" }}
issuer = "{issuer}"
audience = "{url}"
"""
_EXTENDED: Final = """[rules]
webhooks = { type = "UnsafeAnyWebhook" }
[extended_card]
source = { type = "FromApplication" }
"""

Outcomes: TypeAlias = dict[str, str]
"""By the ids of the kit's tests: "passed", or what kept a test from passing."""


@pytest.fixture(scope="module")
def kit() -> Path:
    """The kit's checkout. It is never part of this repository or of its continuous integration, so this only skips."""
    if "A2A_TCK" not in os.environ:
        pytest.skip("NO CONFORMANCE KIT: set A2A_TCK to a checkout of a2a-tck, line 1.0-dev")
    checkout = Path(os.environ["A2A_TCK"]).resolve()
    if not (checkout / "tests" / "compatibility").is_dir():
        pytest.fail(f"A2A_TCK={checkout} is no checkout of a2a-tck, line 1.0-dev: it has no tests/compatibility")
    return checkout


@pytest.fixture(scope="module")
def outcomes(kit: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Outcomes]:
    """Of every agent, bare and wrapped. The runs are side by side: each waits for a minute, and works for seconds."""
    server_python, kit_python = python_of("server-1.3.0"), python_of(_KIT, _HERE)
    folder = tmp_path_factory.mktemp("outcomes")

    def outcomes_of(run: tuple[str, str]) -> Outcomes:
        name, app = run
        return _outcomes(server_python, kit_python, kit, AGENTS[name], app, folder / f"{name}-{app}")

    runs = [(name, app) for name in AGENTS for app in APPS]
    with ThreadPoolExecutor(len(runs)) as pool:
        return dict(zip(runs, pool.map(outcomes_of, runs), strict=True))


def _outcomes(server_python: Path, kit_python: Path, kit: Path, agent: Agent, app: str, report: Path) -> Outcomes:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    issuer, key = Issuer("https://issuer.example"), secrets.token_hex(24)
    settings = {
        "url": url,
        "capabilities": agent.capabilities,
        "versions": agent.versions,
        "key": key,
        "issuer": issuer.url,
        "jwks": issuer.documents()["/jwks"].decode(),
    }
    credentials = {"key": {"X-API-Key": key}, "token": {"Authorization": f"Bearer {issuer.token(audience=url)}"}}
    with ExitStack() as stack:
        upstream = free_port() if app == "served" else port
        inner = "bare" if app == "served" else app
        server = [str(server_python), "-m", *SERVERS["uvicorn-h11"](f"tests.tck.agent:{inner}", upstream)]
        stack.enter_context(serving(server, f"http://127.0.0.1:{upstream}", {"AGENT": json.dumps(settings)}, ROOT))
        if app == "served":
            folder = report.with_suffix(".serve")
            folder.mkdir()
            _write(folder, f"http://127.0.0.1:{upstream}", settings)
            sign = [str(Path(sys.executable).with_name("a2a-sign")), "serve", "agent.toml"]
            stack.enter_context(serving(sign, url, {}, folder))
        refused = [httpx.post(url + path, json={}).status_code == 401 for path in ("/", "/a2a/rest/message:send")]
        assert refused == [app != "bare"] * 2, "without credentials"
        return _outcomes_at(kit_python, kit, url, credentials[agent.credential], report)


def _write(folder: Path, upstream: str, settings: dict[str, Any]) -> None:
    """The file of the proxy, and those that it names."""
    card = httpx.get(f"{upstream}/.well-known/agent-card.json").json()
    (folder / "card.json").write_text(json.dumps(merged_card(card) if "0.3" in settings["versions"] else card))
    (folder / "keys.json").write_text(settings["jwks"])
    SqliteApiKeys(folder / "keys.db", create=True).import_key(settings["key"], owner="ann", scopes=["read"])
    url = settings["url"]
    text = _FILE.format(upstream=upstream, address=url.removeprefix("http://"), issuer=settings["issuer"], url=url)
    has_extended = settings["capabilities"].get("extendedAgentCard")
    (folder / "agent.toml").write_text(text + (_EXTENDED if has_extended else ""))


def _outcomes_at(python: Path, kit: Path, url: str, credentials: dict[str, str], report: Path) -> Outcomes:
    command = [str(python), "-m", "pytest", "tests/compatibility", f"--sut-host={url}", f"--junitxml={report}"]
    done = subprocess.run(
        [*command, "-p", "with_credentials", "-p", "no:cacheprovider", "--tb=short", "-q"],
        cwd=kit,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(_HERE),  # of the plug-in
            "PYTHONDONTWRITEBYTECODE": "1",  # the checkout stays as it is
            "CREDENTIALS": json.dumps({"url": url, "headers": credentials}),
        },
        capture_output=True,
        text=True,
        timeout=_RUN_SECONDS,
        check=False,
    )
    assert done.returncode in (0, 1), f"the kit did not run:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    cases = ET.parse(report).getroot().iter("testcase")
    return {f"{case.get('classname')}::{case.get('name')}": _outcome(case) for case in cases}


def _outcome(case: Any) -> str:
    troubles = [found for kind in ("failure", "error", "skipped") for found in case.iterfind(kind)]
    return "; ".join(f"{found.tag}: {found.get('message')}" for found in troubles) or "passed"


@pytest.mark.parametrize("app", APPS[1:])
@pytest.mark.parametrize("name", AGENTS)
def test_what_the_kit_passes_on_a_bare_server_of_the_sdk_it_passes_behind_the_guard(
    name: str, app: str, outcomes: dict[tuple[str, str], Outcomes]
) -> None:
    bare, wrapped = outcomes[name, "bare"], outcomes[name, app]
    passed = [test for test, outcome in bare.items() if outcome == "passed"]
    assert len(passed) > _MANY, bare
    assert {test: wrapped.get(test, "not there") for test in passed if wrapped.get(test) != "passed"} == {}
