"""An agent in a process of its own, which can be killed: tokens bound to keys, proofs remembered in a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from a2a_trust import DPoP, JwtVerifier
from a2a_trust.auth import SqliteProofMemory
from a2a_trust.keys import JwksCache
from a2a_trust.keys.jwk import publish_jwks
from tests.auth.proofs import BASE, by_dpop
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER
from tests.middleware.agent import CARD, Agent, guarded
from tests.servers.serving import free_port

__all__ = ["OAUTH", "AgentFiles", "AgentProcess", "application"]

OAUTH: dict[str, Any] = {**CARD, "securityRequirements": [{"schemes": {"oauth": {"list": ["read"]}}}]}
_START_SECONDS = 300


def application() -> Any:
    """The agent, as its process makes it from the environment."""
    files, patience = AgentFiles(Path(os.environ["AGENT_FILES"])), float(os.environ["AGENT_PATIENCE"])

    async def keys() -> tuple[bytes, float | None]:
        return files.keys.read_bytes(), None

    return guarded(
        Agent(),
        OAUTH,
        verifiers={"oauth": JwtVerifier(JwksCache(keys), issuer=ISSUER, audience=AUDIENCE)},
        dpop=DPoP(url=BASE, memory=SqliteProofMemory(files.proofs, create=True, timeout=patience)),
        clock=lambda: float(files.clock.read_text()),
    )


@dataclass(frozen=True)
class AgentFiles:
    """What processes of one agent share: the issuer's keys, the used proofs, and what their clock says."""

    folder: Path

    def __post_init__(self) -> None:
        if not self.keys.exists():
            self.keys.write_text(json.dumps(publish_jwks([EC.public_key])))

    @property
    def keys(self) -> Path:
        return self.folder / "jwks.json"

    @property
    def proofs(self) -> Path:
        return self.folder / "proofs.db"

    @property
    def clock(self) -> Path:
        return self.folder / "clock"

    def set_clock(self, now: float) -> None:
        """Every process of the agent reads this time from now on."""
        new = self.folder / "clock.new"
        new.write_text(str(now))
        new.replace(self.clock)

    @contextmanager
    def serving(self, *, patience: float = 60.0) -> Iterator[AgentProcess]:
        """A process of the agent that serves while the block runs, unless it is killed. It waits for the file of
        proofs for ``patience`` seconds at the longest."""
        port = free_port()
        command = [sys.executable, "-m", "uvicorn", "--factory", f"{__name__}:application", "--port", str(port)]
        command += ["--timeout-keep-alive", "60"]  # longer than clients do, or it may close what they write into
        environment = {**os.environ, "AGENT_FILES": str(self.folder), "AGENT_PATIENCE": str(patience)}
        process = subprocess.Popen([*command, "--log-level", "warning"], env=environment)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as http:
                _wait_for(process, http)
                yield AgentProcess(process, http)
        finally:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class AgentProcess:
    """One that serves."""

    process: subprocess.Popen[bytes]
    http: httpx.Client

    def ask(self, token: str, proof: str) -> int:
        """The status of the answer to a request with that token and that proof."""
        return self.http.post("/rpc", headers=by_dpop(token, proof)).status_code

    def kill(self) -> None:
        """SIGKILL: nothing can be tidied up."""
        self.process.kill()
        self.process.wait()


def _wait_for(process: subprocess.Popen[bytes], http: httpx.Client) -> None:
    until = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < until:
        try:
            http.get("/rpc")
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the agent does not serve")
