"""Failed credentials that several processes count together on a real Redis, and what holds while it is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from a2a_trust.auth import throttle
from a2a_trust.auth.throttle import Counter, FailureLimits, RedisCounters, Throttle
from a2a_trust.base.databases import availability
from a2a_trust.base.databases import redis as databases
from a2a_trust.errors import (
    ConfigurationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    TooManyRequestsError,
)
from a2a_trust.middleware.options import RequestRules
from tests.auth.api_key.test_verifier import Clock
from tests.auth.passwords import Passwords
from tests.auth.test_throttle import KEY, OTHER, PEER, counters, guard, outcome
from tests.databases import RedisServer, temporary_folder
from tests.tables import walk

pytestmark = pytest.mark.anyio

WRONG_KEY = KEY[:-8] + "00000000"
ANN, BOB = "'login' ann", "'login' bob"
REFUSED, WRONG = TooManyRequestsError, InvalidCredentialsError


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A server that the test may end."""
    with temporary_folder() as folder:
        server = RedisServer(folder)
        server.start()
        yield server
        server.kill()


def limits(shared: RedisCounters, by_credential: str = "3/hour", by_peer: str = "5/hour") -> FailureLimits:
    return FailureLimits(by_credential=by_credential, by_peer=by_peer, shared=shared)


@pytest.fixture(autouse=True)
def _patient_with_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes longer for a trip than requests wait."""
    monkeypatch.setattr(throttle, "REQUEST_SECONDS", 60.0)
    monkeypatch.setattr(throttle, "_ROUND_TRIP_SECONDS", 60.0)


async def goes_away(work: Coroutine[Any, Any, Any], when: Callable[[], bool]) -> None:
    """A caller that is cancelled as soon as that is so, by a scope of anyio, which cancels every await again."""
    scope = anyio.CancelScope()

    async def cancel() -> None:
        while not when():
            await asyncio.sleep(0.001)
        scope.cancel()

    async with asyncio.timeout(60):
        waiting = asyncio.create_task(cancel())
        with scope:
            await work
        await waiting


@asynccontextmanager
async def throttles(url: str, count: int = 2, **given: str) -> AsyncIterator[list[Throttle]]:
    """As of so many processes."""
    shared = [RedisCounters(url) for _ in range(count)]
    try:
        yield [Throttle(limits(each, **given)) for each in shared]
    finally:
        for each in shared:
            await each.aclose()


@contextmanager
def counting_trips(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    trips: list[int] = []
    real = databases.RedisServer.session

    def counted(server: Any) -> Any:
        trips.append(1)
        return real(server)

    with monkeypatch.context() as patch:
        patch.setattr(databases.RedisServer, "session", counted)
        yield trips


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.__dict__["audit"]["event"] for record in caplog.records if record.name == "a2a_trust.audit"]


# Limits


@walk("given", ["redis://127.0.0.1/0", 5, True, object()])
def test_shared_counters_are_an_object(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"write shared=RedisCounters\("):
        FailureLimits(shared=given)


def test_the_rules_of_an_agent_take_them() -> None:
    shared = RedisCounters("redis://user:secret@127.0.0.1/0")
    rules = RequestRules(failures=FailureLimits(shared=shared))
    assert rules.failures.shared is shared
    assert "secret" not in repr(rules)


@walk("url", ["postgresql://h/d", "redis://h/0?socket_timeout=9", ""])
def test_what_is_no_redis_does_not_start(url: str) -> None:
    with pytest.raises(ConfigurationError):
        RedisCounters(url)


class InThisProcess(RedisCounters):
    """Counters whose Redis is a dictionary; ``is_down`` as in an outage."""

    def __init__(self, failures: dict[str, int]) -> None:
        super().__init__("redis://127.0.0.1:9/0")
        self.failures = failures
        self.is_down = False

    def _windows(self, counters: Iterable[Counter]) -> dict[Counter, throttle._SharedWindow | None]:
        return {each: throttle._SharedWindow(self.failures.get(each.key, 0), each.seconds) for each in counters}

    async def _read(self, counters: tuple[Counter, ...]) -> Any:
        with self._server.pause.attempt():
            if self.is_down:
                raise KeySourceUnavailableError("down")
            return self._windows(counters)

    async def _write(self, hits: Any) -> Any:
        with self._server.pause.attempt():
            if self.is_down:
                raise KeySourceUnavailableError("down")
            for hit in hits:
                self.failures[hit.counter.key] = self.failures.get(hit.counter.key, 0) + 1
            windows = self._windows(hit.counter for hit in hits)
            return {hit: windows[hit.counter] for hit in hits}

    async def _end(self, counters: tuple[Counter, ...]) -> Any:
        for each in counters:
            self.failures.pop(each.key, None)
        return {}


async def test_counters_of_several_processes_reach_one_limit_without_a_server() -> None:
    """What a guard makes of shared counters; the tests below have a real Redis."""
    failures: dict[str, int] = {}
    shared = [InThisProcess(failures) for _ in range(3)]
    passwords = Passwords(ann="right", bob="right", cyd="right")
    one, two, three = (guard(passwords, Throttle(limits(each))) for each in shared)
    assert [await outcome(each, login="ann:wrong") for each in (one, two)] == [WRONG] * 2
    assert await outcome(three, login="ann:right") == "ann"  # which ends the count of ann, not that of the peer
    assert [await outcome(each, login="bob:wrong") for each in (one, two, three)] == [WRONG] * 3
    passwords.hashed.clear()
    for each in (one, two, three):
        assert await outcome(each, login="bob:right") is REFUSED
    assert passwords.hashed == []
    assert await outcome(two, OTHER, login="bob:right") == "bob"
    for counters_ in shared:
        counters_.is_down = True
    assert [await outcome(one, OTHER, login="cyd:wrong") for _ in range(4)] == [WRONG] * 3 + [REFUSED]
    assert await outcome(two, OTHER, login="cyd:right") == "cyd"


@pytest.mark.real
async def test_failures_at_several_processes_reach_one_limit(redis_url: str) -> None:
    passwords = Passwords(ann="right", bob="right")
    async with throttles(redis_url, 3) as all_of:
        one, two, three = (guard(passwords, each) for each in all_of)
        assert [await outcome(each, login="ann:wrong") for each in (one, two, three)] == [WRONG] * 3
        passwords.hashed.clear()
        for each in (one, two, three):
            assert await outcome(each, login="ann:right") is REFUSED
        assert passwords.hashed == []
        assert await outcome(two, login="bob:right") == "bob"
        assert await outcome(two, OTHER, login="ann:right") == "ann"


@pytest.mark.real
async def test_a_right_password_ends_the_count_of_its_user_in_all_processes(redis_url: str) -> None:
    async with throttles(redis_url, by_credential="3/hour", by_peer="9/hour") as (one, two):
        first, second = guard(Passwords(ann="right"), one), guard(Passwords(ann="right"), two)
        for _ in range(2):
            assert await outcome(first, login="ann:wrong") is WRONG
        assert await outcome(second, login="ann:right") == "ann"
        for number in range(3):
            assert await outcome(second, login=f"ann:{number}") is WRONG
        assert await outcome(second, login="ann:x") is REFUSED
        for number in range(4):
            assert await outcome(second, login=f"user{number}:x") is WRONG
        assert await outcome(second, login="user5:x") is REFUSED, "the count of the peer goes on"


@pytest.mark.real
async def test_a_peer_reaches_its_limit_with_any_names_and_keys(redis_url: str) -> None:
    async with throttles(redis_url) as (one, two):
        judges = [guard(Passwords(ann="right"), each) for each in (one, two)]
        for number in range(5):
            assert await outcome(judges[number % 2], login=f"user{number}:x") is WRONG
        for judge in judges:
            assert await outcome(judge, login="ann:right") is REFUSED
            assert await outcome(judge, key=WRONG_KEY) is REFUSED
            assert await outcome(judge, key=KEY) == "ann"


@pytest.mark.real
async def test_networks_of_ipv6_reach_their_limits_together(redis_url: str) -> None:
    async with throttles(redis_url, by_peer="2/hour") as (one, two):
        judges = [guard(Passwords(ann="right"), each) for each in (one, two)]
        peers: list[dict[str, Any]] = [{"client": (f"2001:db8:7:{number:x}::1", 1)} for number in range(10)]
        for number in range(8):  # four times the limit, at peers that fail once
            assert await outcome(judges[number % 2], peers[number], login="ann:wrong") is WRONG
        for judge in judges:
            assert await outcome(judge, peers[9], login="ann:right") is REFUSED
            assert await outcome(judge, {"client": ("2001:db8:7:100::1", 1)}, login="ann:right") == "ann"


@pytest.mark.real
async def test_wrong_keys_are_counted_together_though_each_is_verified(redis_url: str) -> None:
    async with throttles(redis_url) as (one, two):
        judges = [guard(Passwords(), each) for each in (one, two)]
        outcomes = [await outcome(judges[number % 2], key=WRONG_KEY) for number in range(6)]
    assert outcomes == [WRONG] * 3 + [REFUSED] * 3


@pytest.mark.real
async def test_retry_after_is_when_the_shared_window_ends(redis_url: str, redis_server: RedisServer) -> None:
    async with throttles(redis_url, by_credential="1/minute") as (one, two):
        judges = [guard(Passwords(ann="right"), each) for each in (one, two)]
        assert await outcome(judges[0], login="ann:wrong") is WRONG
        with pytest.raises(TooManyRequestsError) as caught:
            await two.begin(PEER, {ANN})
        assert str(caught.value) == "too many failed credentials from 192.0.2.7 (by_credential=1/minute)"
        assert 1 <= (caught.value.retry_after or 0) <= 60
        with redis_server.client() as client:
            client.flushall()  # the window ends there, and by the clock here
        ended = two._clock() + (caught.value.retry_after or 0)
        two._clock = lambda: ended
        assert await outcome(judges[1], login="ann:right") == "ann"


@pytest.mark.real
async def test_a_window_begins_with_its_first_failure(redis_url: str, redis_server: RedisServer) -> None:
    async with throttles(redis_url) as (one, two):
        await outcome(guard(Passwords(), one), login="ann:wrong")
        with redis_server.client() as client:
            for name in client.keys("a2a:failures:*"):
                client.expire(name, 600)
            await outcome(guard(Passwords(), two), login="ann:wrong")
            assert all(0 < client.ttl(name) <= 36000 for name in client.keys("a2a:failures:*"))


@pytest.mark.real
async def test_the_counters_of_a_process_are_exact_whatever_redis_has(
    redis_url: str, redis_server: RedisServer
) -> None:
    async with throttles(redis_url, 1) as (only,):
        judge = guard(Passwords(ann="right"), only)
        for _ in range(3):
            assert await outcome(judge, login="ann:wrong") is WRONG
            with redis_server.client() as client:
                client.flushall()
        assert await outcome(judge, login="ann:right") is REFUSED


@pytest.mark.real
async def test_many_guesses_at_once_are_limited_by_each_process_and_then_by_all(redis_url: str) -> None:
    passwords = Passwords(ann="right")
    async with throttles(redis_url) as all_of:
        judges = [guard(passwords, each) for each in all_of]
        outcomes = await asyncio.gather(*(outcome(judges[n % 2], login=f"ann:{n}") for n in range(100)))
        assert 3 <= outcomes.count(WRONG) <= 6
        assert len(passwords.hashed) <= 6
        passwords.hashed.clear()
        outcomes = await asyncio.gather(*(outcome(judges[n % 2], login="ann:right") for n in range(100)))
        assert (outcomes, passwords.hashed) == ([REFUSED] * 100, [])
        assert [each._begun for each in all_of] == [{}, {}]


# Trips


@pytest.mark.real
async def test_no_trip_without_a_guess_or_a_failure(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with throttles(redis_url, 1) as (only,):
        judge = guard(Passwords(ann="right"), only)
        with counting_trips(monkeypatch) as trips:
            assert await outcome(judge, login="ann:right") == "ann"
            assert len(trips) == 1  # it might have been a guess
            for _ in range(10):
                assert await outcome(judge, login="ann:right") == "ann"  # remembered
                assert await outcome(judge, key=KEY) == "ann"
                assert await outcome(judge, token="Bearer t") is WRONG
            assert len(trips) == 1
            assert await outcome(judge, key=WRONG_KEY) is WRONG
            assert len(trips) == 2


@pytest.mark.real
async def test_beyond_a_limit_there_are_no_trips_and_no_new_counters(
    redis_url: str, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither passwords nor wrong keys with invented ids fill the server, or the process that counted few itself."""
    async with throttles(redis_url, 3) as all_of:
        *others, judge = [guard(Passwords(), each) for each in all_of]
        for number in range(6):
            await outcome(others[number % 2], login=f"user{number}:x")
        assert await outcome(judge, login="ann:x") is REFUSED
        with redis_server.client() as client:
            before = client.dbsize()
            with counting_trips(monkeypatch) as trips:
                for number in range(100):
                    assert await outcome(judge, login=f"user{number}:x") is REFUSED
                    assert await outcome(judge, key=WRONG_KEY[:12] + f"{number:04}" + WRONG_KEY[16:]) is REFUSED
            assert trips == []
            assert client.dbsize() == before
        assert counters(all_of[-1]) == 1  # its peer


@pytest.mark.real
async def test_redis_gets_digests_that_expire(redis_url: str, redis_server: RedisServer) -> None:
    async with throttles(redis_url, 1) as (only,):
        await outcome(guard(Passwords(), only), login="ann:secret")
        with redis_server.client() as client:
            names = [name.decode() for name in client.keys("a2a:failures:*")]
            assert len(names) == 2
            assert all(name.startswith("a2a:failures:fixed-window:") for name in names)
            assert all(0 < client.ttl(name) <= 3600 for name in names)
            assert not [name for name in names for word in ("ann", "192.0.2", "secret") if word in name]


@pytest.mark.real
async def test_redis_may_drop_counters_to_make_room(redis_url: str, redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            async with throttles(redis_url) as all_of:
                judges = [guard(Passwords(), each) for each in all_of]
                outcomes = [await outcome(judges[n % 2], key=WRONG_KEY) for n in range(4)]
                assert outcomes == [WRONG] * 3 + [REFUSED]
        finally:
            client.config_set("maxmemory", "0")
            client.config_set("maxmemory-policy", "noeviction")


@pytest.mark.real
async def test_a_burst_takes_few_trips_and_is_no_outage(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a trip for each request, a burst of strangers takes longer than requests wait, and opens the limits."""

    async def fail(throttle: Throttle, peer: str, name: str) -> None:
        peer_scope = {"client": (peer, 1)}
        end = await throttle.begin(peer_scope, {name})
        await asyncio.sleep(0)
        await throttle.count_failure(peer_scope, {name})
        end()

    async def is_refused(throttle: Throttle) -> bool:
        try:
            end = await throttle.begin(PEER, {ANN})
        except REFUSED:
            return True
        end()
        return False

    async with throttles(redis_url) as (one, two):
        for _ in range(3):
            await fail(one, "192.0.2.7", ANN)
        with counting_trips(monkeypatch) as trips:
            peers = [f"198.18.{number // 250}.{number % 250}" for number in range(1000)]
            _, refused = await asyncio.gather(
                asyncio.gather(*(fail(two, peer, BOB) for peer in peers)),
                asyncio.gather(*(is_refused(two) for _ in range(1000))),
            )
        assert set(refused) == {True}
        assert len(trips) < 200
        for _ in range(2):
            await asyncio.gather(*(fail(one, peer, BOB) for peer in peers))
        for peer in peers:
            with pytest.raises(REFUSED):
                await two.begin({"client": (peer, 1)}, {BOB})
    assert events(caplog) == []


# Callers that go away


class Waiting(Passwords):
    """Passwords that are never verified."""

    begun = 0

    async def verify(self, credential: str, now: float) -> Any:
        self.begun += 1
        await asyncio.Event().wait()

    def has_begun(self, count: int) -> bool:
        return self.begun == count


@pytest.mark.real
async def test_a_caller_that_goes_away_is_counted_in_all_processes(redis_url: str, redis_server: RedisServer) -> None:
    async with throttles(redis_url) as (one, two):
        passwords = Waiting()
        judge = guard(passwords, one)
        for number in range(1, 4):
            await goes_away(outcome(judge, login="ann:guess"), partial(passwords.has_begun, number))
        with redis_server.client() as client:
            async with asyncio.timeout(60):
                while [client.get(name) for name in client.keys("a2a:failures:*")] != [b"3"] * 2:
                    await asyncio.sleep(0.01)
        assert await outcome(guard(Passwords(ann="right"), two), login="ann:right") is REFUSED
        assert one._begun == {}


@pytest.mark.real
async def test_a_caller_that_goes_away_while_its_failure_is_counted_counts_once(own_redis: RedisServer) -> None:
    async with throttles(own_redis.url, 1) as (only,):
        judge = guard(Passwords(), only)
        by_name = only._counters_of(("192.0.2.7",), [f"'key' {KEY[:16]}"])[1][0]

        def has_left(count: int) -> bool:
            return only._window(by_name).remaining == count

        with own_redis.frozen():
            for left in (2, 1):
                await goes_away(outcome(judge, key=WRONG_KEY), partial(has_left, left))
        assert only._window(by_name).remaining == 1


@pytest.mark.real
async def test_a_caller_that_goes_away_while_redis_is_asked_holds_nobody_up(own_redis: RedisServer) -> None:
    async with throttles(own_redis.url, 1) as (only,):
        with own_redis.frozen():
            for _ in range(3):
                await goes_away(only.begin(PEER, {ANN}), lambda: bool(only._begun))
        assert only._begun == {}
        assert counters(only) == 0


# Outages


@pytest.mark.real
async def test_without_redis_each_process_counts_for_itself(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(availability, "_PAUSE_SECONDS", 0.2)
    async with throttles(own_redis.url) as all_of:
        judges = [guard(Passwords(ann="right", bob="right"), each) for each in all_of]
        assert await outcome(judges[0], login="ann:wrong") is WRONG
        own_redis.kill()
        for judge, left in zip(judges, (2, 3), strict=True):
            assert [await outcome(judge, login="ann:wrong") for _ in range(left + 1)] == [WRONG] * left + [REFUSED]
            assert await outcome(judge, login="bob:right") == "bob"
            await asyncio.sleep(0.25)
            assert await outcome(judge, OTHER, login="ann:right") == "ann"
        assert events(caplog) == ["store-lost"] * 2  # one of each process
        own_redis.start()
        await asyncio.sleep(0.25)
        for number in range(3):
            assert await outcome(judges[number % 2], OTHER, login="cyd:wrong") is WRONG
        assert await outcome(judges[1], OTHER, login="cyd:wrong") is REFUSED
        assert events(caplog) == ["store-lost"] * 2 + ["store-found"] * 2


@pytest.mark.real
async def test_a_frozen_redis_delays_one_request_and_then_none_for_a_second(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle, "_ROUND_TRIP_SECONDS", 2.0)
    clock = Clock()
    monkeypatch.setattr(availability, "time", SimpleNamespace(monotonic=clock))
    many = {"by_credential": "1000/hour", "by_peer": "1000/hour"}
    async with throttles(own_redis.url, 1, **many) as (only,):
        judge = guard(Passwords(), only)
        assert await outcome(judge, login="first:x") is WRONG  # connects
        with own_redis.frozen(), counting_trips(monkeypatch) as trips:
            for number in range(51):
                assert await outcome(judge, login=f"second{number}:x") is WRONG
            assert len(trips) == 1
            clock.at += 1
            outcomes = await asyncio.gather(*(outcome(judge, login=f"user{number}:x") for number in range(10)))
            assert outcomes == [WRONG] * 10
            assert len(trips) == 2  # one finds out, and the others go on
        clock.at += 1
        with own_redis.client() as client:
            before = client.dbsize()
            assert await outcome(judge, login="back:x") is WRONG
            assert client.dbsize() > before


@pytest.mark.real
@pytest.mark.parametrize("value", [b"many", b"9" * 5_000, b"1e9", b"", ("list",)])
async def test_a_counter_that_is_no_number_is_left_out(
    redis_url: str, redis_server: RedisServer, value: bytes | tuple[str]
) -> None:
    async with throttles(redis_url, 1) as (only,):
        judge = guard(Passwords(ann="right"), only)
        await outcome(judge, login="ann:wrong")
        with redis_server.client() as client:
            for name in client.keys("a2a:failures:*"):
                client.delete(name)
                client.lpush(name, *value) if isinstance(value, tuple) else client.set(name, value)
        assert await outcome(judge, login="ann:wrong") is WRONG
        assert await outcome(judge, login="ann:wrong") is WRONG
        assert await outcome(judge, login="ann:right") is REFUSED


@pytest.mark.real
async def test_a_counter_that_is_no_number_hides_no_other(redis_url: str, redis_server: RedisServer) -> None:
    async with throttles(redis_url) as (one, two):
        for _ in range(3):
            await outcome(guard(Passwords(), one), login="ann:wrong")
        peer = one._counters_of(("192.0.2.7",), [])[0][0]
        with redis_server.client() as client:
            assert client.set(peer.key, "many", xx=True, keepttl=True)
        with pytest.raises(TooManyRequestsError, match="by_credential"):
            await two.begin(PEER, {ANN})


@pytest.mark.real
async def test_no_server_closes_a_counter_for_longer_than_its_window(redis_url: str, redis_server: RedisServer) -> None:
    async with throttles(redis_url) as (one, two):
        await outcome(guard(Passwords(), one), login="ann:wrong")
        with redis_server.client() as client:
            for name in client.keys("a2a:failures:*"):
                client.set(name, 1_000_000, ex=1_000_000)
        with pytest.raises(TooManyRequestsError) as caught:
            await two.begin(PEER, {ANN})
        assert 600 < (caught.value.retry_after or 0) <= 3600


@pytest.mark.real
async def test_a_full_redis_and_one_without_rights_are_outages(
    redis_url: str, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with redis_server.client() as client:
        client.config_set("maxmemory", "1mb")
        client.acl_setuser("reader", enabled=True, passwords=["+secret"], keys=["*"], commands=["-@all", "+get"])
        try:
            for url in (redis_url, redis_url.replace("redis://", "redis://reader:secret@")):
                async with throttles(url, 1) as (only,):
                    judge = guard(Passwords(ann="right"), only)
                    assert [await outcome(judge, login="ann:wrong") for _ in range(4)] == [WRONG] * 3 + [REFUSED]
        finally:
            client.config_set("maxmemory", "0")
            client.acl_deluser("reader")
    assert events(caplog) == ["store-lost"] * 2
    assert "secret" not in caplog.text


@pytest.mark.real
def test_event_loops_of_several_threads_and_times_share_the_counters(redis_url: str) -> None:
    """As a server that runs several loops, or one after the other."""
    shared = RedisCounters(redis_url)
    throttle = Throttle(limits(shared, by_credential="2/hour"))

    async def fail() -> Any:
        try:
            return await outcome(guard(Passwords(), throttle), login="ann:wrong")
        finally:
            await shared.aclose()

    assert [asyncio.run(fail()) for _ in range(3)] == [WRONG, WRONG, REFUSED]
