"""docs/serve.md is true: its commands run, its files are valid, its programs verify the caller, the example serves."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2a_trust import KeyRingFile, Principal
from a2a_trust.auth import Identity
from a2a_trust.errors import InvalidCredentialsError
from a2a_trust.keys import load_key_ring, publish_jwks, save_key_ring
from a2a_trust.keys.rotation import KeyRing, new_ring_key
from a2a_trust.serve.application import make_agent
from a2a_trust.serve.caller_token import CallerTokens
from tests.conftest import ROOT
from tests.docs.sessions import check_session
from tests.interop.sdk_process import SDKS, node_environment
from tests.servers.serving import SERVERS, free_port, serving

EXAMPLE = ROOT / "examples" / "serve"
PAGE = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
COMMANDS, CALLS = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
FIRST, SECOND = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
VERIFYING, SERVED = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(NODE,) = re.findall(r"```js\n(.*?)```", PAGE, re.DOTALL)
#: An agent that trusts its proxy.
BEHIND = """
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route


async def rpc(request):
    assert request.headers["a2a-caller-token"]
    return JSONResponse({"jsonrpc": "2.0", "id": 1, "result": {"tasks": []}})


app = Starlette(routes=[Route("/rpc", rpc, methods=["POST"])])
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(EXAMPLE / "agent-card.json", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_run(folder: Path) -> None:
    check_session(COMMANDS, folder)
    assert {each.name for each in folder.iterdir()} >= {"agent.toml", "caller.json", "caller.jwks.json", "keys.db"}


def test_the_first_file_is_that_of_the_example(folder: Path) -> None:
    assert (EXAMPLE / "agent.toml").read_text() == FIRST
    check_session(COMMANDS, folder)
    (folder / "agent.toml").write_text(FIRST)
    assert make_agent(folder / "agent.toml").configuration.url == "http://localhost:8080"


@pytest.mark.real  # curl
def test_the_calls_get_the_answers_of_the_page(folder: Path) -> None:
    check_session(COMMANDS, folder)
    front, back = free_port(), free_port()
    (folder / "agent.toml").write_text(FIRST.replace(":8080", f":{front}").replace(":9000", f":{back}"))
    card = (folder / "agent-card.json").read_text()
    (folder / "agent-card.json").write_text(card.replace(":8080", f":{front}"))
    (folder / "behind.py").write_text(BEHIND)
    command = [str(Path(sys.executable).with_name("a2a-sign")), "serve", "agent.toml"]
    with (
        serving(
            [sys.executable, "-m", *SERVERS["uvicorn-h11"]("behind:app", back)], f"http://127.0.0.1:{back}", {}, folder
        ),
        serving(command, f"http://127.0.0.1:{front}", {}, folder),
    ):
        check_session(CALLS.replace(":8080", f":{front}"), folder)
    assert json.loads((folder / "answer.json").read_text()) == {"jsonrpc": "2.0", "id": 1, "result": {"tasks": []}}


def test_the_second_file_is_valid(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card: dict[str, Any] = json.loads((folder / "agent-card.json").read_text())
    card["supportedInterfaces"][0] |= {"url": "https://agent.example.com/rpc", "tenant": "acme"}
    card["capabilities"]["extendedAgentCard"] = True
    oidc = {"openIdConnectUrl": "https://sso.example.com/realms/agents/.well-known/openid-configuration"}
    card["securitySchemes"]["oidc"] = {"openIdConnectSecurityScheme": oidc}
    card["securityRequirements"].append({"schemes": {"oidc": {"list": ["greet"]}}})
    for name in ("agent-card.json", "extended-card.json"):
        (folder / name).write_text(json.dumps(card))
    (folder / "ring.passphrase").write_text("correct horse battery staple\n")
    ring = KeyRing.begin(new_ring_key("ES256"), time.time(), passphrase="correct horse battery staple")
    save_key_ring(folder / "ring.json", ring)
    monkeypatch.setitem(
        os.environ, "DATABASE_URL", "postgresql://agent:secret@db.example.com/agent?sslmode=verify-full"
    )
    (folder / "agent.toml").write_text(SECOND)
    made = make_agent(folder / "agent.toml")
    assert made.rules.other_paths == ("/docs",)
    assert {path.name for path in made.files} == {
        *("agent.toml", "agent-card.json", "extended-card.json", "ring.passphrase", "server.pem", "server.key"),
    }


def test_the_python_program_knows_the_caller(folder: Path) -> None:
    save_key_ring(folder / "caller.json", KeyRing.begin(new_ring_key("ES256"), time.time()))
    keys = KeyRingFile(folder / "caller.json")
    (folder / "caller.jwks.json").write_text(
        json.dumps(publish_jwks(load_key_ring(folder / "caller.json").published(time.time())))
    )
    tokens = CallerTokens(keys, issuer="http://localhost:8080", audience="http://127.0.0.1:9000")
    space: dict[str, Any] = {}
    exec(compile(VERIFYING, "docs/serve.md", "exec"), space)
    ann = Principal(identities=(("key", Identity(issuer="api-keys", subject="ann")),))
    assert space["caller_of"]({"A2A-Caller-Token": tokens.token(ann, time.time())}).id == "ann@api-keys"
    assert space["caller_of"]({"A2A-Caller-Token": ""}) is None
    with pytest.raises(InvalidCredentialsError):
        space["caller_of"]({"A2A-Caller-Token": "e30.e30.e30"})


def test_any_server_can_run_the_application(folder: Path) -> None:
    check_session(COMMANDS, folder)
    space: dict[str, Any] = {}
    exec(compile(SERVED, "docs/serve.md", "exec"), space)
    assert space["app"].configuration.card == Path("agent-card.json")


def test_the_lines_for_node_are_those_of_the_example() -> None:
    program = (EXAMPLE / "agent.mjs").read_text()
    lines = [line.strip() for line in NODE.splitlines()]
    assert len(lines) == 4
    assert all(line in program for line in lines[1:3])
    for part in ("createLocalJWKSet(JSON.parse(readFileSync(", "jwtVerify(", "keys, rules"):
        assert part in program
        assert part in NODE


@pytest.mark.real
def test_an_agent_on_the_sdk_for_node_greets_its_caller(folder: Path) -> None:
    check_session(COMMANDS, folder)
    (folder / "agent.toml").write_text(FIRST)
    front, back = free_port(), free_port()
    for name in ("agent.toml", "agent-card.json"):
        text = (folder / name).read_text().replace(":8080", f":{front}").replace(":9000", f":{back}")
        (folder / name).write_text(text)
    program = (EXAMPLE / "agent.mjs").read_text().replace(":8080", f":{front}").replace(":9000", f":{back}")
    node, packages = node_environment(SDKS / "js-1.3.0")
    (folder / "node_modules").symlink_to(packages / "node_modules")
    (folder / "agent.mjs").write_text(program)
    agent, proxy = f"http://127.0.0.1:{back}", f"http://127.0.0.1:{front}"
    command = [str(Path(sys.executable).with_name("a2a-sign")), "serve", "agent.toml"]
    message = {"role": "ROLE_USER", "messageId": "1", "parts": [{"text": "hello"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    key, version = (folder / "ann.key").read_text().strip(), {"A2A-Version": "1.0"}
    with (
        serving([node, "agent.mjs"], agent, {"PORT": str(back)}, folder),
        serving(command, proxy, {}, folder),
        httpx.Client(headers=version) as client,
    ):
        answer = client.post(f"{proxy}/rpc", json=call, headers={"X-API-Key": key})
        assert answer.json()["result"]["message"]["parts"] == [{"text": "Hello ann@api-keys"}]
        assert client.post(f"{proxy}/rpc", json=call).status_code == 401
        for forged in ({}, {"A2A-Caller-Token": "e30.e30.e30"}):
            assert client.post(f"{agent}/rpc", json=call, headers=forged).status_code == 401
        assert client.get(f"{proxy}/.well-known/agent-card.json").json()["name"] == "Greeter"
