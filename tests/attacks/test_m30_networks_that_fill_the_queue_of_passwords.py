"""M30: the owner of a network guesses passwords from many addresses, and takes all hashes for itself.

Two hashes run at once and 64 passwords wait for theirs. Six peers of one customer's network (56 bits of IPv6, 256
peers) fill that queue, if each peer only has a limit of its own.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from threading import Event
from typing import Any

import httpx
import pytest

from a2a_trust.auth.basic import hashing
from a2a_trust.auth.basic.hashing import Hashing
from a2a_trust.auth.basic.records import MemoryPasswords
from a2a_trust.auth.basic.verifier import BasicVerifier
from a2a_trust.auth.throttle import FailureLimits
from tests.attacks.test_m09_passwords_written_oddly import CARD_OF_BASIC
from tests.auth.basic.test_verifier import PASSWORD, RECORD
from tests.middleware.agent import Agent, guarded

pytestmark = pytest.mark.anyio

ANN = "192.0.2.7"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Attacked:
    """A guarded agent; no hash ends before ``may_end``, so that no test depends on how fast the machine is."""

    def __init__(self) -> None:
        self.hashed: list[str] = []
        self.may_end = Event()
        self.limit(FailureLimits(by_credential="1000/day", by_peer="1000/day"))

    def limit(self, failures: FailureLimits) -> None:
        verifier = BasicVerifier(MemoryPasswords([RECORD]))
        self.app: Any = guarded(
            Agent(), CARD_OF_BASIC, verifiers={"login": verifier}, failures=failures, clock=time.time
        )

    def verify(self, _: Hashing, hashed: str, password: str) -> bool:
        self.hashed.append(password)
        self.may_end.wait()
        return (hashed, password) == (RECORD.hash, PASSWORD)

    async def status(self, password: str, peer: str, user: str = "ann") -> int:
        carried = b64encode(f"{user}:{password}".encode()).decode()
        transport = httpx.ASGITransport(self.app, client=(peer, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as http:
            return (await http.post("/rpc", headers={"Authorization": f"Basic {carried}"})).status_code

    async def flood(self, peers: list[str], each: int) -> list[asyncio.Task[int]]:
        """So many guesses of each peer, all at once; returns when all of them wait, or are answered."""
        flood = [
            asyncio.create_task(self.status(f"{peer} {number}", peer, f"user{number}"))
            for number in range(each)
            for peer in peers
        ]
        await settled()
        return flood


async def settled() -> None:
    """Let every task go on until it waits for a hash."""
    for _ in range(200):
        await asyncio.sleep(0)


@pytest.fixture
def attacked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Attacked]:
    hashing.hashing.cache_clear()
    made = Attacked()
    monkeypatch.setattr(Hashing, "_verify", lambda *given: made.verify(*given))
    yield made
    made.may_end.set()
    hashing.hashing.cache_clear()


def of(network: int, peer: int) -> str:
    return f"2001:db8:7:{network:02x}{peer:02x}::1"


@pytest.mark.parametrize(
    "peers",
    [
        [of(0, peer) for peer in range(6)],
        [of(network, 0) for network in range(6)],
    ],
    ids=["/56", "/48"],
)
async def test_a_network_does_not_fill_the_queue(attacked: Attacked, peers: list[str]) -> None:
    flood = await attacked.flood(peers, 20)
    assert sum(each.done() for each in flood) == 0  # nobody was sent away: they wait for each other
    assert len(hashing.hashing()._waiting) + hashing.hashing()._running == 16
    ann = asyncio.create_task(attacked.status(PASSWORD, ANN))
    await settled()
    attacked.may_end.set()
    assert await ann == 200
    assert attacked.hashed.index(PASSWORD) <= 2 + 1  # after the two that ran, and one turn of that network
    assert Counter(await asyncio.gather(*flood)) == {401: len(flood)}


async def test_a_neighbor_in_that_network_has_its_turn(attacked: Attacked) -> None:
    flood = await attacked.flood([of(0, 0)], 100)
    ann = asyncio.create_task(attacked.status(PASSWORD, of(0, 1)))
    await settled()
    attacked.may_end.set()
    assert await ann == 200
    assert attacked.hashed.index(PASSWORD) <= 16 + 2
    await asyncio.gather(*flood)


async def test_many_networks_leave_a_place_for_one_more(attacked: Attacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "_MOST_WAITING", 12)
    flood = await attacked.flood([f"198.51.100.{number}" for number in range(4)], 16)
    assert sum(each.done() for each in flood) == 64 - 14
    ann = asyncio.create_task(attacked.status(PASSWORD, ANN))
    await settled()
    assert not ann.done()
    assert sum(each.done() for each in flood) == 64 - 13  # one of who has most made room
    attacked.may_end.set()
    assert await ann == 200
    assert attacked.hashed.index(PASSWORD) <= 2 + 4
    assert Counter(await asyncio.gather(*flood)) == {401: 13, 503: 51}


@pytest.mark.parametrize("user", ["ann", "user{}"], ids=["one name", "many names"])
async def test_the_guesses_of_a_network_are_limited_whatever_its_peers(attacked: Attacked, user: str) -> None:
    by_credential, by_peer = ("3/day", "99/day") if user == "ann" else ("99/day", "3/day")
    attacked.limit(FailureLimits(by_credential=by_credential, by_peer=by_peer))
    attacked.may_end.set()
    guessed = [
        await attacked.status("guess", of(network, peer), user.format(f"{network}-{peer}"))
        for network in range(8)
        for peer in range(8)
    ]
    assert Counter(guessed[:8]) == {401: 8}
    assert Counter(guessed) == {401: 48, 429: 16}
    assert await attacked.status(PASSWORD, of(200, 200)) == 429
    assert await attacked.status(PASSWORD, ANN) == 200
