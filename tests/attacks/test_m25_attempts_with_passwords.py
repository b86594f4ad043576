"""M25: an attempt with a password tells who has one, or takes the server away from others.

A user who does not exist is answered sooner than one who does (as in many servers of Basic), or otherwise; and a slow
hash for each of many attempts fills the memory and the event loop. Costs are counted in hashes, never in time.
"""

from __future__ import annotations

import asyncio
import threading
import time
from base64 import b64encode
from dataclasses import replace
from typing import Any

import httpx
import pytest

from a2a_trust.auth.basic import hashing
from a2a_trust.auth.basic.hashing import Hashing
from a2a_trust.auth.basic.records import MemoryPasswords, PasswordRecord
from a2a_trust.auth.basic.verifier import BasicVerifier
from a2a_trust.auth.records import Found
from tests.attacks.test_m09_passwords_written_oddly import CARD_OF_BASIC
from tests.auth.basic.test_verifier import PASSWORD, RECORD
from tests.middleware.agent import Agent, guarded
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Store(MemoryPasswords):
    """A store of an operator's own: it may be out of reach, and its author did not think of one name."""

    is_down = False
    trips = 0

    async def find(self, users: tuple[str, ...]) -> Found[PasswordRecord]:
        self.trips += 1
        if self.is_down:
            raise OSError
        if "odd" in users:
            raise ValueError
        return await super().find(users)


class Attacked:
    """A guarded agent with three users, and the costs of the hashes that requests take: what argon2 is told to do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.costs: list[str] = []
        self.passwords: list[str] = []
        self.running = self.most_running = 0
        self.may_end = threading.Event()
        self.may_end.set()
        real = Hashing._verify

        def counted(pool: Hashing, hashed: str, password: str) -> bool:
            self.costs.append(hashed.rpartition("$")[0].rpartition("$")[0])
            self.passwords.append(password)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            try:
                self.may_end.wait()
                return real(pool, hashed, password)
            finally:
                self.running -= 1

        monkeypatch.setattr(Hashing, "_verify", counted)
        past = time.time() - 5
        self.store = Store(
            [RECORD, replace(RECORD, user="revoked", revoked=past), replace(RECORD, user="expired", expires=past)]
        )
        self.agent = Agent()
        self.at = 1000.0
        verifier = BasicVerifier(self.store, clock=lambda: self.at)
        self.app: Any = guarded(self.agent, CARD_OF_BASIC, verifiers={"login": verifier}, clock=time.time)

    async def ask(self, user: str, password: str, peer: str = "192.0.2.7") -> httpx.Response:
        carried = b64encode(f"{user}:{password}".encode()).decode()
        transport = httpx.ASGITransport(self.app, client=(peer, 50_000))
        async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as http:
            return await http.post("/rpc", headers={"Authorization": f"Basic {carried}"})

    async def seen(self, user: str, password: str) -> tuple[int, list[tuple[str, str]], bytes, list[str], int]:
        """All that an attacker can learn from an attempt: the answer, and what it costs."""
        self.costs.clear()
        self.store.trips = 0
        answer = await self.ask(user, password)
        return answer.status_code, sorted(answer.headers.items()), answer.content, [*self.costs], self.store.trips


@pytest.fixture
def attacked(monkeypatch: pytest.MonkeyPatch) -> Attacked:
    return Attacked(monkeypatch)


@walk("is_down", [False, True])
@walk("seconds", [0, 1, 40])
async def test_no_attempt_tells_who_there_is(attacked: Attacked, is_down: bool, seconds: float) -> None:
    for user in ("ann", "revoked", "expired"):  # their records are in memory
        await attacked.ask(user, PASSWORD)
    attacked.store.is_down = is_down
    attacked.at += seconds
    wrong = await attacked.seen("ann", "wrong")
    assert (wrong[0], wrong[3]) == (503 if is_down else 401, ["$argon2id$v=19$m=65536,t=3,p=4"])
    for user, password in (("nobody", "wrong"), ("revoked", PASSWORD), ("expired", PASSWORD), ("Ann", PASSWORD)):
        attacked.at += seconds or is_down  # after a second the store is tried again
        assert await attacked.seen(user, password) == wrong, user
    challenge = [value for name, value in wrong[1] if name == "www-authenticate"]
    assert challenge == ([] if is_down else ['Basic realm="A2A", charset="UTF-8"'])


async def test_a_name_for_which_the_store_raises_takes_it_away_from_nobody(attacked: Attacked) -> None:
    names = ["odd", *(f"user{number}" for number in range(12)), "ann"]
    for wave in range(3):
        answers = await asyncio.gather(*(attacked.ask(name, PASSWORD, f"192.0.2.{wave}") for name in names))
        assert [answer.status_code for answer in answers] == [503, *[401] * 12, 200]
        attacked.at += 400  # the password of ann is not remembered any more
        assert (await attacked.ask("odd", PASSWORD, "192.0.2.9")).status_code == 503
        assert (await attacked.ask("ann", PASSWORD)).status_code == 200
    attacked.costs.clear()
    statuses = [(await attacked.ask("odd", PASSWORD, "192.0.2.10")).status_code for _ in range(12)]
    assert (statuses, len(attacked.costs)) == ([503] * 10 + [429] * 2, 10), "it counts as a guess"


async def test_a_flood_of_attempts_takes_no_more_than_two_hashes_at_once_and_no_caller_away(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashing, "_MOST_WAITING", 6)
    assert (await attacked.ask("ann", PASSWORD)).status_code == 200
    attacked.costs.clear()
    attacked.may_end.clear()  # no hash ends while the flood begins, however busy the machine is
    flood = [asyncio.create_task(attacked.ask(f"user{number % 9}", f"wrong {number}")) for number in range(100)]
    try:
        async with asyncio.timeout(60):
            while sum(each.done() for each in flood) < 92:
                await asyncio.sleep(0)
            assert (await attacked.ask("ann", PASSWORD)).status_code == 200  # her password is remembered
    finally:
        attacked.may_end.set()
    statuses = [answer.status_code for answer in await asyncio.gather(*flood)]
    assert (statuses.count(401), statuses.count(503)) == (8, 92)
    assert (len(attacked.costs), attacked.most_running) == (8, 2)
    assert [scope["user"].label for scope in attacked.agent.scopes] == ["ann", "ann"]


async def test_a_flood_of_one_peer_does_not_fill_the_queue_of_hashes(attacked: Attacked) -> None:
    """Two run at once and 64 wait: 100 guesses at 100 names would take all of those places."""
    attacked.may_end.clear()
    flood = asyncio.gather(*(attacked.ask(f"user{number}", "wrong") for number in range(100)))
    try:
        async with asyncio.timeout(60):
            while attacked.running < 2:
                await asyncio.sleep(0)
        ann = asyncio.create_task(attacked.ask("ann", PASSWORD, peer="192.0.2.8"))  # it is not remembered
        for _ in range(1_000):  # turns of the loop: all of them have come to the queue
            await asyncio.sleep(0)
    finally:
        attacked.may_end.set()
    assert (await ann).status_code == 200
    assert attacked.passwords.index(PASSWORD) <= 20
    await flood


@pytest.mark.parametrize(
    ("user", "password"), [("ann", "x" * 1025), ("a" * 257, "x"), ("ann", "\U0001f511" * 100_000), ("", PASSWORD)]
)
async def test_what_no_user_has_costs_no_hash(attacked: Attacked, user: str, password: str) -> None:
    status, _, _, costs, _ = await attacked.seen(user, password)
    assert (status, costs) == (401, [])
