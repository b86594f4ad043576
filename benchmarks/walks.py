"""Counts the way of a credential: ``python -m benchmarks.walks``, with httpx and with httpx2.

A POST goes through ``verifying_client`` to an agent in this process with the card of ``examples``, which demands a
token. Counted are calls of functions of the package, the modules that they are in, and the moves between modules: calls
of a function in another module than the function of the package that was entered before.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import thread_time
from types import FrameType
from typing import Any, Final
from unittest.mock import patch

import httpx
import httpx2

import a2a_trust
from a2a_trust import Origins, TrustedKey, TrustStore, generate_signer, sign_card
from a2a_trust.client import BearerToken
from a2a_trust.client import httpx as door
from a2a_trust.client import httpx2 as door2

__all__ = ["main"]

_PACKAGE: Final = str(Path(a2a_trust.__file__).parent)
_ROOT: Final = Path(__file__).resolve().parent.parent
_AGENT: Final = "https://georoute-agent.example.com"
_RPC: Final = f"{_AGENT}/a2a/v1"
_CARD: Final = "/.well-known/agent-card.json"
_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
_CALL: Final = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage"}
_CALLS: Final = 200
_ROUNDS: Final = 60


@dataclass
class Walk:
    """The functions of the package that were entered, in order, as file and name."""

    entered: list[tuple[str, str]] = field(default_factory=list)

    @property
    def modules(self) -> int:
        return len({file for file, _ in self.entered})

    @property
    def moves(self) -> int:
        return sum(one != other for (one, _), (other, _) in pairwise(self.entered))

    @property
    def verifications(self) -> int:
        return sum(name == "verify_card" or name.endswith("verified_again") for _, name in self.entered)


@contextmanager
def counted() -> Iterator[Walk]:
    """Count the calls of this thread and of those that begin in the block."""
    walk = Walk()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            walk.entered.append((frame.f_code.co_filename[len(_PACKAGE) + 1 :], frame.f_code.co_name))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


class _Agent:
    """Answers in place of the network; ``paths`` are those that were asked for."""

    def __init__(self, library: Any) -> None:
        self.library = library
        signer = generate_signer("ES256")
        card = json.loads((_ROOT / "examples" / "georoute-agent-card.json").read_text(encoding="utf-8"))
        card.pop("signatures", None)
        self.trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("*.example.com"))])
        self.document = json.dumps(sign_card(card, signer, iat=int(time.time())).card).encode()
        self.paths: list[str] = []

    def answer(self, request: Any) -> Any:
        self.paths.append(request.url.path)
        if request.url.path.endswith(_CARD):
            return self.library.Response(200, content=self.document)
        return self.library.Response(200 if "authorization" in dict(_lines(request)) else 401, content=b"{}")


def _lines(request: Any) -> list[tuple[str, str]]:
    return [(name.decode().lower(), value.decode()) for name, value in request.headers.raw]


@contextmanager
def _instead_of_the_network(agent: _Agent) -> Iterator[None]:
    async def handle(_: object, request: Any) -> Any:
        return agent.answer(request)

    with patch.object(agent.library.AsyncHTTPTransport, "handle_async_request", handle):
        yield


def _client(agent: _Agent) -> Any:
    token = BearerToken("t" * 600, origins=[_AGENT])
    verifying_client: Callable[..., Any] = (door2 if agent.library is httpx2 else door).verifying_client
    return verifying_client(_AGENT, trust=agent.trust, credentials={"google": token})


async def _walks(agent: _Agent) -> None:
    async with _client(agent) as warm:  # what is imported and compiled on first use is not of a walk
        await warm.post(_RPC, json=_CALL)
    for title, by_sdk in (("first", False), ("first, after an SDK has fetched the card", True)):
        async with _client(agent) as http:
            agent.paths.clear()
            fetching = Walk()
            if by_sdk:
                with counted() as fetching:
                    await http.get(_AGENT + _CARD)
            with counted() as first:
                assert (await http.post(_RPC, json=_CALL)).status_code == 200
            with counted() as again:
                await http.post(_RPC, json=_CALL)
        fetches = sum(path.endswith(_CARD) for path in agent.paths)
        verifications = fetching.verifications + first.verifications
        if by_sdk:
            _tell("the SDK's fetch", fetching)
        _tell(title, first, f"{fetches} fetches, {verifications} verifications in all")
        if not by_sdk:
            _tell("again", again)


def _tell(title: str, walk: Walk, more: str = "") -> None:
    print(f"{title}: {len(walk.entered)} calls, {walk.modules} modules, {walk.moves} moves{more and ', '}{more}")


class _Server(asyncio.Protocol):
    """Answers every request of a connection that stays open, when its head and its body have come."""

    def connection_made(self, transport: Any) -> None:
        self._transport, self._received = transport, b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        if end and len(body) >= length:
            self._received = b""
            self._transport.write(_ANSWER)


async def _times(agent: _Agent) -> None:
    """The time that repeated calls take of one processor, beside those of a bare client, in turns: without a network,
    and over a connection on this machine with the server in the same thread."""
    port = (await asyncio.get_running_loop().create_server(_Server, "127.0.0.1", 0)).sockets[0].getsockname()[1]
    library, taken = agent.library, dict[tuple[str, str], list[float]]()
    network = library.AsyncHTTPTransport.handle_async_request

    async def sent(transport: Any, request: Any) -> Any:
        """To the server, whatever the URL: with all its headers, as the network gets them."""
        wire = library.Request(
            "POST", f"http://127.0.0.1:{port}/", headers=request.headers.raw, content=request.content
        )
        return await network(transport, wire)

    bare = library.AsyncClient(timeout=10.0, trust_env=False, headers={"Authorization": "Bearer " + "t" * 600})
    ours = _client(agent)
    async with bare, ours:
        with _instead_of_the_network(agent):
            await ours.post(_RPC, json=_CALL)
        for _ in range(_ROUNDS):
            for kind, place in (
                ("alone", _instead_of_the_network(agent)),
                ("over a connection", patch.object(library.AsyncHTTPTransport, "handle_async_request", sent)),
            ):
                with place:
                    for name, http in (("bare", bare), ("ours", ours)):
                        start = thread_time()
                        for _ in range(_CALLS):
                            await http.post(_RPC, json=_CALL)
                        taken.setdefault((kind, name), []).append((thread_time() - start) / _CALLS)
    for kind in ("alone", "over a connection"):
        our, own = taken[kind, "ours"], taken[kind, "bare"]
        ratio = median(one / other for one, other in zip(our, own, strict=True))
        best = min(our) / min(own)
        print(f"a repeated call {kind}: {median(our) * 1e6:.1f} us, {ratio:.3f} of a bare client, {best:.3f} at best")


def main() -> None:
    """Print the walks, and the time of a repeated call."""
    for library in (httpx, httpx2):
        print(f"{library.__name__} {library.__version__}")
        agent = _Agent(library)
        with _instead_of_the_network(agent):
            asyncio.run(_walks(agent))
        asyncio.run(_times(agent))


if __name__ == "__main__":
    main()
