"""M35: anybody who asks whether the agent is ready loads its stores and issuers, learns reasons, or reaches more.

Readiness is answered without a credential, and what is lost is tried again when somebody asks.
"""

from __future__ import annotations

import pytest

from a2a_trust.errors import KeySourceUnavailableError
from tests.middleware.several import asked
from tests.middleware.test_health import Clock, Source, Store, key_agent, token_agent, token_verifier, use
from tests.waiting import settled

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def ask(app: object, times: int = 1_000) -> list[bytes]:
    answers = set()
    for _ in range(times):
        _, end = await asked(app, "/readyz", method="GET", type="http", headers=[])
        answers.add(end["body"])
    await settled()
    return [*answers]


async def test_a_flood_of_questions_makes_one_look_up_at_a_time_in_a_lost_store() -> None:
    store, clock = Store(), Clock()
    app = key_agent(store, clock, readiness_path="/readyz")
    assert await ask(app) == [b"ready"]
    assert store.finds == 0
    store.is_lost = True
    assert await use(app) == 503
    for _ in range(3):
        finds = store.finds
        assert await ask(app) == [b"not ready"]
        assert store.finds == finds  # the pause after a failure
        clock.now += 60
        assert await ask(app) == [b"not ready"]
        assert store.finds - finds <= 2  # one attempt, and the name that no record has


async def test_a_flood_of_questions_makes_one_load_at_a_time_of_a_lost_key_set() -> None:
    source = Source()
    source.is_lost = True
    app = token_agent(token_verifier(source.cache), readiness_path="/readyz")
    assert await ask(app) == [b"ready"]
    assert source.loads == 0
    with pytest.raises(KeySourceUnavailableError):
        await source.use()
    for loads in (2, 3, 4):
        source.clock.now += 60
        assert await ask(app) == [b"not ready"]
        assert source.loads == loads


async def test_only_reading_exactly_this_path_needs_no_credential() -> None:
    app = key_agent(Store(), readiness_path="/readyz")
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        start, _ = await asked(app, "/readyz", method=method, type="http", headers=[])
        assert start["status"] == 401
    for path in ("/readyz/", "//readyz", "/%72eadyz", "/readyz;x", "/READYZ", "/readyz/../rpc", "/x/readyz"):
        start, _ = await asked(app, path, method="GET", type="http", headers=[])
        assert start["status"] == 401
    sent = await asked(app, "/readyz", type="websocket", headers=[])
    assert sent[0]["type"] == "websocket.close"
