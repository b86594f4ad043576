"""The command as a user runs it: its own folder, no keys in the environment, in this process or in another."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from a2a_trust.cli.main import main
from a2a_trust.signing import sign
from tests.cheap_hashes import cheap_hashes

__all__ = ["CARD", "COMMAND", "Done", "Run", "cheap_hashes"]

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
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a2a-sign with these arguments in a fresh folder; ``stdin`` and further environment by name.

    The command runs in this process, in a hundredth of the time of ``run_process``. A test needs a process of its own
    when start-up, signals, a terminal, closed streams or a limit of the process decide.
    """

    def run(*arguments: str | Path, stdin: bytes = b"", cwd: Path = tmp_path, **environment: str) -> Done:
        streams = {"stdin": io.BytesIO(stdin), "stdout": io.BytesIO(), "stderr": io.BytesIO()}
        texts = {name: io.TextIOWrapper(each, "utf-8", write_through=True) for name, each in streams.items()}
        with monkeypatch.context() as patched:
            patched.chdir(cwd)
            for name, value in {"COLUMNS": "80", "XDG_CONFIG_HOME": str(tmp_path / "config"), **environment}.items():
                patched.setenv(name, value)
            patched.setattr(sign, "time", time)  # tests/conftest.py stops the clock of signing
            for name, text in texts.items():
                patched.setattr(sys, name, text)
            code = main([*map(str, arguments)])
        return Done(code, streams["stdout"].getvalue().decode(), streams["stderr"].getvalue().decode())

    return run


@pytest.fixture
def run_process(tmp_path: Path) -> Run:
    """The same as ``run``, in a process of its own."""

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
