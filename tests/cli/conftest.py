"""The command as a user runs it: another process, its own folder, no keys in the environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

COMMAND = Path(sys.executable).with_name("a2a-sign")

CARD: dict[str, Any] = {
    "name": "Invoice Agent",
    "description": "Reads and reconciles supplier invoices.",
    "version": "2.4.1",
    "supportedInterfaces": [
        {"url": "https://invoice.example.com/a2a/v1", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {"streaming": True},
    "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
    "securityRequirements": [{"schemes": {"bearer": {"list": ["read"]}}}],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["application/json"],
    "skills": [{"id": "reconcile", "name": "Reconcile", "description": "Matches invoices.", "tags": ["finance"]}],
}


@dataclass(frozen=True)
class Done:
    """How a run of the command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.out)
        return report


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a2a-sign with these arguments in a fresh folder; ``stdin`` and further environment by name."""

    def run(*arguments: str | Path, stdin: bytes = b"", cwd: Path = tmp_path, **environment: str) -> Done:
        done = subprocess.run(
            [COMMAND, *map(str, arguments)],
            input=stdin,
            cwd=cwd,
            env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config"), **environment},
            capture_output=True,
            check=False,
            timeout=60,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def card(tmp_path: Path) -> Path:
    """A card on disk, as people write them."""
    path = tmp_path / "card.json"
    path.write_text(json.dumps(CARD, indent=2) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def key(tmp_path: Path, run: Run) -> Path:
    """A key that keygen made, with its JWK Set beside it."""
    assert run("keygen", "-o", "key.pem").code == 0
    return tmp_path / "key.pem"
