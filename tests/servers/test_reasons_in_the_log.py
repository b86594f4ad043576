"""A developer who runs an agent, with no logging configured, sees why requests were rejected; a scan is short."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.servers.serving import SERVERS, free_port

AGENT = """
from {module} import {name}
from a2a_trust import ApiKeyVerifier, SqliteApiKeys, protect

card = {{
    "name": "Invoices",
    "supportedInterfaces": [
        {{"url": "http://localhost:8000/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}}
    ],
    "securitySchemes": {{"key": {{"apiKeySecurityScheme": {{"location": "header", "name": "X-API-Key"}}}}}},
    "securityRequirements": [{{"schemes": {{"key": {{"list": []}}}}}}],
}}
app = protect(
    {name}(), card=card, verifiers={{"key": ApiKeyVerifier(SqliteApiKeys("keys.db", create=True))}}
)
"""
MISSING = "refused POST /rpc: no credential for any scheme of the card; expected: key (header X-API-Key)"
WRONG = "refused POST /rpc: the API key is unknown [401 invalid-credentials, 'key': the caller must get another"
COUNTED = "more requests in 60 seconds: the reason is missing-credentials"


def status_of(url: str, headers: dict[str, str] | None = None) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, b"{}", headers or {}), timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@pytest.mark.parametrize("server", ["uvicorn-h11", "hypercorn"])
@pytest.mark.parametrize(("module", "name"), [("fastapi", "FastAPI"), ("starlette.applications", "Starlette")])
def test_the_reasons_are_in_the_output_of_the_server(server: str, module: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT.format(module=module, name=name))
    port = free_port()
    command = [sys.executable, "-m", *SERVERS[server]("agent:app", port)]
    with (tmp_path / "output").open("w+") as output:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT)
        try:
            until = time.monotonic() + 300
            while status_of(f"http://127.0.0.1:{port}/rpc", {"X-API-Key": "wrong"}) == 0:
                assert process.poll() is None
                assert time.monotonic() < until
            for _ in range(20):
                assert status_of(f"http://127.0.0.1:{port}/rpc") == 401
        finally:
            process.terminate()
            process.wait(60)
        output.seek(0)
        lines = output.read()
    assert lines.count(MISSING) == 3
    assert lines.count(WRONG) == 1
    assert f"refused 17 {COUNTED}" in lines
