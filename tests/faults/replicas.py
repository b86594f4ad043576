"""Replicas of one agent in processes of their own, which share their state in databases, and callers that load them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx

from a2a_trust import ApiKeyVerifier, CardServing, DPoP, JwtVerifier, KeyRingFile, protect
from a2a_trust.auth import PostgresApiKeys, PostgresProofMemory, RedisApiKeys, RedisProofMemory
from a2a_trust.keys import JwksCache
from a2a_trust.keys.jwk import publish_jwks
from tests.auth.proofs import BASE, bound_token, by_dpop, proof
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER
from tests.faults.processes import SECONDS, until
from tests.servers.serving import free_port

__all__ = ["REFRESH", "STALE", "Load", "Replica", "application", "proof_now", "replicas", "token_now"]

REFRESH = 2.0
STALE = 3_000.0
"""So many seconds a key counts after the store was lost. No test takes so long: it moves the clocks of the replicas."""
CARD: dict[str, Any] = {
    "name": "Replica",
    "description": "One of several.",
    "version": "1.0.0",
    "supportedInterfaces": [{"url": f"{BASE}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "a", "name": "a", "description": "a", "tags": ["a"]}],
    "securitySchemes": {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
        "oauth": {"oauth2SecurityScheme": {"flows": {"clientCredentials": {"tokenUrl": "https://issuer.example/t"}}}},
    },
    "securityRequirements": [{"schemes": {"key": {}}}, {"schemes": {"oauth": {}}}],
}


def application() -> Any:
    """The agent, as its process makes it from the environment."""
    folder = Path(os.environ["REPLICA_FOLDER"])
    proofs, keys = os.environ["REPLICA_PROOFS"], os.environ["REPLICA_KEYS"]
    seconds = float(os.environ.get("REPLICA_TIMEOUT", "0.25"))
    kind = RedisProofMemory if proofs.startswith("redis") else PostgresProofMemory
    memory = kind(proofs, timeout=seconds)
    of_keys = RedisApiKeys if keys.startswith("redis") else PostgresApiKeys
    store = of_keys(keys, timeout=seconds)

    async def issuer_keys() -> tuple[bytes, float | None]:
        return (folder / "jwks.json").read_bytes(), None

    return protect(
        _answer,
        card=CARD,
        verifiers={
            "key": ApiKeyVerifier(
                store,
                refresh=REFRESH,
                stale_if_error=STALE,
                clock=lambda: time.monotonic() + _ahead(folder, "monotonic"),
            ),
            "oauth": JwtVerifier(JwksCache(issuer_keys), issuer=ISSUER, audience=AUDIENCE),
        },
        url=BASE,
        serving=CardServing(signer=KeyRingFile(folder / "ring.json")),
        dpop=DPoP(url=BASE, memory=memory),
        clock=lambda: time.time() + _ahead(folder, "wall"),
    )


def _ahead(folder: Path, clock: str) -> float:
    return float((folder / clock).read_text())


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def token_now() -> str:
    """A token that is valid now, and bound to a key."""
    now = int(time.time())
    return bound_token(iat=now, nbf=now, exp=now + 3_600)


def proof_now(token: str, **changes: Any) -> str:
    return proof(token, **{"iat": int(time.time()), **changes})


@dataclass
class Replica:
    """A server with one or more processes."""

    port: int
    folder: Path
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def audit(self) -> str:
        """What the server logged."""
        return self.log.read_text()

    def put_clock(self, clock: Literal["wall", "monotonic"], seconds_ahead: float) -> None:
        """From now on this clock of all its processes is so far ahead."""
        _put_clock(self.folder, clock, seconds_ahead)


@contextmanager
def replicas(
    folder: Path,
    *,
    proofs: str,
    keys: str,
    workers: tuple[int, ...] = (1,),
    ring: Path | None = None,
    more: Mapping[str, str] | None = None,
) -> Iterator[list[Replica]]:
    """Replicas with so many worker processes each, and with files of their own."""
    with ExitStack() as stack:
        started = [
            stack.enter_context(_replica(folder / f"replica-{number}", count, ring, proofs, keys, more or {}))
            for number, count in enumerate(workers)
        ]
        for each in started:
            _wait_for(each)
        yield started


@contextmanager
def _replica(
    folder: Path, workers: int, ring: Path | None, proofs: str, keys: str, more: Mapping[str, str]
) -> Iterator[Replica]:
    folder.mkdir(parents=True)
    (folder / "jwks.json").write_text(json.dumps(publish_jwks([EC.public_key])))
    for clock in ("wall", "monotonic"):
        _put_clock(folder, clock, 0)
    if ring is None:
        command = [sys.executable, "-m", "a2a_trust", "keys", "create", str(folder / "ring.json")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    else:
        shutil.copy2(ring, folder / "ring.json")
    port, log = free_port(), folder / "log"
    command = [sys.executable, "-m", "uvicorn", "--factory", f"{__name__}:application", "--port", str(port)]
    command += ["--timeout-keep-alive", "60"]  # longer than clients do, or it may close what they write into
    environment = {
        **os.environ, "REPLICA_FOLDER": str(folder), "REPLICA_PROOFS": proofs, "REPLICA_KEYS": keys, **more,
    }  # fmt: skip
    with log.open("ab") as output:  # a test may empty it
        process = subprocess.Popen(
            [*command, "--workers", str(workers), "--log-level", "warning"],
            env=environment,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield Replica(port, folder, process, log)
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the workers, too
        process.wait()


def _put_clock(folder: Path, clock: str, seconds_ahead: float) -> None:
    new = folder / f"{clock}.new"
    new.write_text(str(seconds_ahead))
    new.replace(folder / clock)


def _wait_for(replica: Replica) -> None:
    until = time.monotonic() + SECONDS
    while replica.process.poll() is None and time.monotonic() < until:
        try:
            httpx.get(f"{replica.origin}/.well-known/agent-card.json", trust_env=False).raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"the replica does not serve: {replica.audit()}")


@dataclass
class Load:
    """Callers that ask all replicas without a pause, each with a new proof or with the API key.

    ``used`` are the proofs that were accepted, ``statuses`` the answers by kind of credential, ``answered`` their
    number by caller.
    """

    origins: list[str]
    token: str
    key: str
    used: list[str] = field(default_factory=list)
    statuses: dict[str, Counter[int]] = field(default_factory=lambda: {"proof": Counter(), "key": Counter()})
    retry_after: Counter[str] = field(default_factory=Counter)
    answered: Counter[int] = field(default_factory=Counter)
    _is_over: bool = False

    @asynccontextmanager
    async def running(self, callers: int = 6) -> AsyncIterator[None]:
        """They ask while the block runs."""
        self._is_over = False
        async with httpx.AsyncClient(trust_env=False, timeout=SECONDS) as client, asyncio.TaskGroup() as group:
            for number in range(callers):
                group.create_task(self._caller(client, number))
            yield
            self._is_over = True

    async def _caller(self, client: httpx.AsyncClient, number: int) -> None:
        turn = number
        while not self._is_over:
            turn += 1
            kind = "proof" if turn % 2 else "key"
            new = proof_now(self.token) if kind == "proof" else ""
            status = await self.ask(client, self.origins[turn // 2 % len(self.origins)], new)
            self.statuses[kind][status] += 1
            self.answered[number] += 1
            if status == 200 and new:
                self.used.append(new)

    async def sees(self, kind: str, status: int, times: int = 1) -> None:
        """Wait for so many more of these answers."""
        enough = self.statuses[kind][status] + times
        await until(lambda: self.statuses[kind][status] >= enough, f"{kind} {status}: {self.statuses}")

    async def answers_all(self) -> None:
        """Wait until each caller has got an answer to a request that it began after this moment."""
        enough = {number: count + 2 for number, count in self.answered.items()}
        await until(lambda: all(self.answered[each] >= count for each, count in enough.items()), "answers to all")

    async def ask(self, client: httpx.AsyncClient, origin: str, used: str) -> int:
        """The status of a request with that proof, or with the API key."""
        headers = by_dpop(self.token, used) if used else [(b"x-api-key", self.key.encode())]
        answer = await client.post(f"{origin}/rpc", headers=headers, json={"jsonrpc": "2.0", "id": 1, "method": "x"})
        if answer.status_code == 503:
            self.retry_after[answer.headers.get("retry-after", "missing")] += 1
        return answer.status_code

    async def settled(self, client: httpx.AsyncClient, origin: str, used: str) -> int:
        """The first status that is not 503: a machine that is busy may take longer than a replica waits."""
        ends = time.monotonic() + SECONDS
        while (status := await self.ask(client, origin, used)) == 503 and time.monotonic() < ends:
            await asyncio.sleep(0.05)
        return status

    async def accepted(self, client: httpx.AsyncClient, origin: str) -> None:
        """Wait until a new proof and the API key are accepted, and nothing but 503 came before."""
        ends = time.monotonic() + SECONDS
        while (statuses := [await self.ask(client, origin, used) for used in (proof_now(self.token), "")]) != [200] * 2:
            assert set(statuses) <= {200, 503}, statuses
            assert time.monotonic() < ends, statuses
            await asyncio.sleep(0.05)

    async def replay(self) -> Counter[int]:
        """The answers to every accepted proof, sent once more, to each of the replicas in turn."""
        async with httpx.AsyncClient(trust_env=False, timeout=SECONDS) as client:
            asked = [(self.origins[turn % len(self.origins)], used) for turn, used in enumerate(self.used)]
            return Counter([await self.settled(client, origin, used) for origin, used in asked])
