"""M29: the answers beyond the limit of failures show which guess is right.

Passwords are remembered after they were verified, so that not every request costs a hash. If one that is remembered is
accepted from everybody beyond the limit, 200 in place of 429 answers guesses as fast as the network carries them.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from a2a_trust.auth.basic.records import MemoryPasswords
from a2a_trust.auth.basic.verifier import BasicVerifier
from a2a_trust.auth.throttle import FailureLimits, RedisCounters
from tests.attacks.test_m09_passwords_written_oddly import CARD_OF_BASIC
from tests.auth.basic.test_verifier import PASSWORD, RECORD
from tests.middleware.agent import Agent, guarded
from tests.tables import walk

pytestmark = pytest.mark.anyio

LIMITS = {"by_credential": "3/day", "by_peer": "5/day"}  # for machines that are slow
ANN, ATTACKER = "192.0.2.7", "192.0.2.66"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def agent(source: Any = None, shared: RedisCounters | None = None) -> Any:
    return guarded(
        Agent(),
        CARD_OF_BASIC,
        verifiers={"login": BasicVerifier(MemoryPasswords([RECORD]) if source is None else source)},
        failures=FailureLimits(**LIMITS, shared=shared),
        clock=time.time,
    )


async def status(app: Any, password: str, peer: str, user: str = "ann") -> int:
    carried = b64encode(f"{user}:{password}".encode()).decode()
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app, client=(peer, 1)), base_url="http://a.example"
    ) as http:
        return (await http.post("/rpc", headers={"Authorization": f"Basic {carried}"})).status_code


async def test_no_guess_beyond_the_limit_is_answered_and_the_user_goes_on() -> None:
    app = agent()
    assert await status(app, PASSWORD, ANN) == 200
    guesses = [f"guess {number}" for number in range(100)]
    guesses.insert(50, PASSWORD)
    assert Counter([await status(app, each, ATTACKER) for each in guesses]) == {401: 3, 429: 98}
    assert await status(app, PASSWORD, ANN) == 200


async def test_a_password_that_the_attacker_has_opens_no_other() -> None:
    store = MemoryPasswords([RECORD])
    own = store.create(user="eve").text
    app = agent(store)
    assert await status(app, PASSWORD, ANN) == 200
    assert await status(app, own, ATTACKER, "eve") == 200
    assert [await status(app, str(each), ATTACKER) for each in range(4)] == [401] * 3 + [429]
    assert await status(app, own, ATTACKER, "eve") == 200
    assert await status(app, PASSWORD, ATTACKER) == 429


@walk(
    ("user", "attacker", "seen"),
    [
        ("2001:db8:0:1::5", "2001:db8:0:1::66", 200),  # one network of 64 bits is one peer
        ("2001:db8:0:1::5", "2001:db8:0:2::66", 429),
        ("::ffff:192.0.2.7", "192.0.2.7", 200),
        ("", "", 200),  # all callers without an address are one peer
        ("", "192.0.2.7", 429),
    ],
)
async def test_a_peer_is_what_the_limits_count(user: str, attacker: str, seen: int) -> None:
    app = agent()
    assert await status(app, PASSWORD, user) == 200
    assert [await status(app, str(each), attacker) for each in range(4)] == [401] * 3 + [429]
    assert await status(app, PASSWORD, attacker) == seen


@pytest.mark.real
async def test_the_same_holds_beyond_a_limit_that_several_processes_reached(redis_url: str) -> None:
    shared = [RedisCounters(redis_url) for _ in range(2)]
    try:
        here, there = (agent(shared=each) for each in shared)
        assert await status(here, PASSWORD, ANN) == 200
        assert [await status(there, str(each), ATTACKER) for each in range(3)] == [401] * 3
        assert (
            await status(here, PASSWORD, ATTACKER) == 429
        )  # where no guess has failed, and the password is remembered
        assert await status(here, PASSWORD, ANN) == 200
    finally:
        for each in shared:
            await each.aclose()


async def test_what_is_remembered_for_others_is_not_even_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time would show it, where the answer does not."""
    real: Callable[..., bool] = BasicVerifier.is_remembered
    asked = []

    def noted(verifier: BasicVerifier, credential: str, now: float) -> bool:
        asked.append(credential)
        return real(verifier, credential, now)

    monkeypatch.setattr(BasicVerifier, "is_remembered", noted)
    app = agent()
    await status(app, PASSWORD, ANN)
    for each in ("1", "2", "3", "4", PASSWORD):
        await status(app, each, ATTACKER)
    assert asked == []
    assert await status(app, PASSWORD, ANN) == 200
    assert len(asked) == 1
