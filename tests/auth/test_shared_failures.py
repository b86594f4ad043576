"""Failed credentials that replicas count together, in a real Redis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from a2a_trust.auth import FailureLimits, RedisFailures
from a2a_trust.auth.throttle import Throttle
from a2a_trust.errors import ConfigurationError, TooManyRequestsError
from tests.databases import RedisServer

pytestmark = pytest.mark.anyio

PEER = {"client": ("192.0.2.7", 50_000)}
OTHER = {"client": ("192.0.2.8", 50_000)}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def replica(shared: RedisFailures) -> Throttle:
    return Throttle(FailureLimits(by_credential="3/hour", by_peer="5/hour", shared=shared))


@pytest.fixture
async def stores(redis_server: RedisServer, redis_url: str) -> AsyncIterator[list[RedisFailures]]:
    made = [RedisFailures(redis_url) for _ in range(2)]
    yield made
    for each in made:
        await each.aclose()


async def written(store: RedisFailures) -> None:
    """Until what was counted is in Redis."""
    await store._writing.run(None, store._write)


async def is_over(throttle: Throttle, name: str, peer: dict[str, tuple[str, int]] = PEER) -> bool:
    try:
        end = await throttle.begin(peer, {name})
    except TooManyRequestsError as error:
        return 0 < error.retry_after <= 3_600
    end()
    return False


async def test_failures_at_two_replicas_reach_one_limit(stores: list[RedisFailures]) -> None:
    one, two = map(replica, stores)
    assert one.failed(PEER, {"ann"}) is None
    assert one.failed(PEER, {"ann"}) is None
    await written(stores[0])
    assert not await is_over(two, "ann")
    assert two.failed(PEER, {"ann"}) is None
    await written(stores[1])
    assert [await is_over(each, "ann") for each in (one, two)] == [True, True]
    assert not await is_over(one, "bob")
    assert not await is_over(one, "ann", OTHER)
    for name in ("bob", "carol"):
        two.failed(PEER, {name})
    await written(stores[1])
    assert await is_over(one, "dave")  # by_peer
    assert not await is_over(one, "dave", OTHER)


async def test_redis_learns_no_name_and_no_address(redis_server: RedisServer, stores: list[RedisFailures]) -> None:
    replica(stores[0]).failed(PEER, {"ann"})
    await written(stores[0])
    with redis_server.client() as client:
        names = [name.decode() for name in client.scan_iter() if name != b"a2a:proofs"]
        assert len(names) == 2
        assert all(0 < client.ttl(name) <= 3_600 for name in names)
    assert all(name.startswith("a2a:failures:fixed") for name in names)
    assert not any("ann" in name or "192.0.2" in name for name in names)


async def test_while_redis_is_down_each_replica_counts_for_itself(redis_server: RedisServer, redis_url: str) -> None:
    store = RedisFailures(redis_url)
    throttle = replica(store)
    assert not await is_over(throttle, "ann")
    with redis_server.frozen():
        begun = time.monotonic()
        assert not await is_over(throttle, "ann")
        first = time.monotonic()
        for _ in range(20):
            assert not await is_over(throttle, "ann")
        assert time.monotonic() - first < first - begun  # the others do not wait
        for _ in range(3):
            throttle.failed(PEER, {"ann"})
        assert await is_over(throttle, "ann")
        await written(store)
    await asyncio.sleep(1.1)
    assert not await is_over(throttle, "bob")
    assert throttle.failed(PEER, {"bob"}) is None
    await written(store)
    await store.aclose()
    with redis_server.client() as client:
        assert len([name for name in client.scan_iter() if name.startswith(b"a2a:failures")]) == 2


async def test_invented_names_of_one_peer_do_not_fill_redis(
    redis_server: RedisServer, stores: list[RedisFailures]
) -> None:
    throttle = replica(stores[0])
    for number in range(200):
        throttle.failed(PEER, {f"name {number}"})
        await written(stores[0])
    with redis_server.client() as client:
        assert len([name for name in client.scan_iter() if name.startswith(b"a2a:failures")]) <= 1 + 6


def test_what_is_no_store_of_failures_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="write shared=RedisFailures"):
        FailureLimits(shared="redis://127.0.0.1")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="not the URL of a database"):
        RedisFailures("http://127.0.0.1")
