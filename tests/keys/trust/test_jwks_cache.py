"""The cache of one issuer's keys, with a clock that the test sets and a source that the test scripts."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging

import pytest

from a2a_trust import generate_signer
from a2a_trust.errors import (
    ConfigurationError,
    FetchError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
)
from a2a_trust.keys import LocalSigner
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.trust import jwks_cache
from a2a_trust.keys.trust.jwks_cache import JwksCache, JwksCacheTimes
from tests.tables import walk
from tests.waiting import settled

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


_SIGNERS = {name: generate_signer("ES256", kid=name) for name in ("a", "b", "c")}
_ED = generate_signer("EdDSA", kid="a")


def public(name: str) -> PublicKey:
    return _SIGNERS[name].public_key


def jwks(*signers: LocalSigner | str) -> bytes:
    keys = [(_SIGNERS[signer] if isinstance(signer, str) else signer).public_key.to_jwk() for signer in signers]
    return json.dumps({"keys": keys}).encode()


class World:
    """An issuer, the time, and the cache between them and the test."""

    def __init__(self, *names: LocalSigner | str) -> None:
        self.now = 1000.0
        self.document = jwks(*names)
        self.max_age: float | None = None
        self.error: BaseException | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.loads = 0
        self.cache = JwksCache(self.load, name="issuer", clock=lambda: self.now)

    async def load(self) -> tuple[bytes, float | None]:
        self.loads += 1
        document = self.document  # the issuer answers from what it has when it is asked
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return document, self.max_age

    async def has(self, kid: str) -> bool:
        try:
            return await self.cache.key(kid, "EC") == public(kid)
        except InvalidCredentialsError:
            return False

    async def settled(self) -> None:
        """After what goes on behind the callers' backs."""
        if (flight := self.cache._flights.running(None)) is not None:
            await asyncio.wait([flight])


async def test_a_fresh_set_answers_from_memory() -> None:
    world = World("a", "b")
    assert [await world.cache.key("a", "EC"), await world.cache.key("b", "EC")] == [public("a"), public("b")]
    world.now += 299
    assert await world.has("a")
    assert world.loads == 1


async def test_kid_and_type_name_a_key_together() -> None:
    world = World("a", _ED)
    assert await world.cache.key("a", "OKP") == _ED.public_key
    assert await world.cache.key("a", "EC") == public("a")
    with pytest.raises(InvalidCredentialsError, match="no RSA key named 'a'"):
        await world.cache.key("a", "RSA")


@walk(
    ("said", "fresh"),
    [(None, 300), (0.0, 60), (-5.0, 60), (120.0, 120), (1e9, 86_400), (float("inf"), 86_400), (float("nan"), 60)],
)
async def test_what_the_server_says_of_freshness_is_moved_into_bounds(said: float | None, fresh: float) -> None:
    world = World("a")
    world.max_age = said
    assert await world.has("a")
    world.now += fresh - 1
    assert await world.has("a")
    await world.settled()
    assert world.loads == 1
    world.now += 1
    assert await world.has("a")
    await world.settled()
    assert world.loads == 2


async def test_callers_at_the_same_time_share_one_load() -> None:
    world = World("a")
    world.gate.clear()
    callers = [asyncio.create_task(world.cache.key("a", "EC")) for _ in range(100)]
    await asyncio.sleep(0)
    world.gate.set()
    assert await asyncio.gather(*callers) == [public("a")] * 100
    assert world.loads == 1


async def test_a_caller_that_gives_up_does_not_take_the_load_from_the_others() -> None:
    world = World("a")
    world.gate.clear()
    first, second = (asyncio.create_task(world.cache.key("a", "EC")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    assert first.cancelled()
    world.gate.set()
    assert await second == public("a")
    assert world.loads == 1


async def test_a_failure_reaches_everybody_who_waits() -> None:
    world = World("a")
    world.error = FetchError("no route")
    world.gate.clear()
    callers = [asyncio.create_task(world.cache.key("a", "EC")) for _ in range(20)]
    await asyncio.sleep(0)
    world.gate.set()
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert {type(result) for result in results} == {KeySourceUnavailableError}
    assert world.loads == 1


async def test_a_load_that_cancels_itself_cancels_nobody_else() -> None:
    world = World("a")
    world.error = asyncio.CancelledError()
    with pytest.raises(KeySourceUnavailableError):
        await world.cache.key("a", "EC")
    world.error = None
    assert await world.has("a")


async def test_the_load_does_not_see_the_request_that_happened_to_start_it() -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")
    seen: list[str] = []

    async def load() -> tuple[bytes, float | None]:
        seen.append(request.get())
        return jwks("a"), None

    request.set("of the first caller")
    await JwksCache(load).key("a", "EC")
    assert seen == ["none"]


async def test_rotation_is_found_at_once() -> None:
    world = World("a")
    assert await world.has("a")
    world.document = jwks("a", "b")
    assert await world.has("b")
    assert (world.loads, world.cache.generation) == (2, 0)


async def test_rotation_during_a_load_is_found_by_the_next_one() -> None:
    """The load under way was answered before the key was published: it proves nothing about a younger token."""
    world = World("a")
    world.gate.clear()
    early = asyncio.create_task(world.has("a"))
    await settled()
    world.document = jwks("a", "b")
    late = asyncio.create_task(world.has("b"))
    await settled()
    world.gate.set()
    assert await early
    assert await late
    assert world.loads == 2


async def spent(world: World, searches: int = 5) -> None:
    """Look for as many unknown names, one after another."""
    for number in range(searches):
        assert not await world.has(f"unknown-{number}")


async def test_five_searches_may_follow_each_other_and_then_nobody_can_tell() -> None:
    world = World("a")
    assert await world.has("a")
    await spent(world)
    world.document = jwks("a", "b")
    for kid in ("b", "unknown"):
        with pytest.raises(KeySourceUnavailableError, match="too many unknown kids came"):
            await world.cache.key(kid, "EC")
    assert await world.has("a")
    assert world.loads == 1 + 5
    world.now += 5
    assert await world.has("b")


async def test_the_budget_of_searches_is_filled_by_one_in_five_seconds_up_to_five() -> None:
    world = World("a")
    assert await world.has("a")
    await spent(world)
    for _ in range(10):
        world.now += 5
        await spent(world, 1)
        with pytest.raises(KeySourceUnavailableError):
            await world.has("b")
    assert world.loads == 1 + 5 + 10
    world.now += 200
    await spent(world)
    with pytest.raises(KeySourceUnavailableError):
        await world.has("b")
    assert world.loads == 1 + 5 + 10 + 5


async def test_a_name_that_was_looked_for_in_vain_is_looked_for_again() -> None:
    """Whoever guesses the name of the next key must not keep it out."""
    world = World("a")
    assert await world.has("a")
    assert not await world.has("b")
    world.document = jwks("a", "b")
    assert await world.has("b")


async def test_a_source_that_hangs_does_not_keep_out_the_next_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks_cache, "_LOAD_TIMEOUT", 0.05)
    world = World("a")
    world.gate.clear()
    with pytest.raises(KeySourceUnavailableError):
        await world.has("a")
    world.gate.set()
    world.now += 2
    assert await world.has("a")
    assert world.loads == 2


async def test_a_name_that_was_looked_for_in_vain_is_found_when_it_came_with_another_load() -> None:
    world = World("a")
    assert await world.has("a")
    assert not await world.has("b")
    world.document = jwks("a", "b", "c")
    world.now += 30
    assert await world.has("c")
    assert await world.has("b")


async def test_a_first_load_without_the_key_is_not_repeated_for_the_same_caller() -> None:
    world = World("a")
    assert not await world.has("b")
    assert world.loads == 1


async def test_a_key_that_vanished_is_refused_after_the_refresh() -> None:
    world = World("a", "b")
    assert await world.has("b")
    world.document = jwks("a")
    world.now += 300
    assert await world.has("b")  # from the old set, while the new one is fetched
    await world.settled()
    assert not await world.has("b")
    assert await world.has("a")


async def test_an_empty_set_is_believed(caplog: pytest.LogCaptureFixture) -> None:
    world = World("a")
    assert await world.has("a")
    world.document = jwks()
    world.now += 300
    await world.has("a")
    await world.settled()
    assert not await world.has("a")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "issuer: usable keys: 0, not usable: 0"
    ]


async def test_after_the_short_while_callers_wait_for_the_refresh() -> None:
    world = World("a", "b")
    assert await world.has("b")
    world.document = jwks("a")
    world.now += 600
    assert not await world.has("b")


async def test_an_outage_is_bridged_and_then_it_is_nobodys_fault(caplog: pytest.LogCaptureFixture) -> None:
    world = World("a")
    assert await world.has("a")
    world.error = FetchError("issuer: down")
    world.now += 300
    while world.now < 1000 + 300 + 3600:
        assert await world.has("a")
        await world.settled()
        world.now += 50
    with pytest.raises(KeySourceUnavailableError, match="no usable keys"):
        await world.cache.key("a", "EC")
    world.error = None
    world.now += 60
    assert await world.has("a")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "issuer: cannot be refreshed, known keys stay valid for now: issuer: down"
    ]


async def test_nobody_waits_for_a_source_that_has_just_failed_while_keys_are_known() -> None:
    world = World("a")
    assert await world.has("a")
    world.error = FetchError("down")
    world.now += 650
    assert await world.has("a")  # this one has waited for the first failure
    world.now += 1
    world.gate.clear()
    assert await asyncio.wait_for(world.has("a"), 60)
    world.gate.set()
    await world.settled()
    assert world.loads == 3


async def test_attempts_at_a_failing_source_are_spaced_by_a_growing_back_off() -> None:
    world = World("a")
    world.error = OSError("down")
    attempts = []
    for second in range(200):
        loads = world.loads
        for kid in ("a", "b"):
            with pytest.raises(KeySourceUnavailableError):
                await world.cache.key(kid, "EC")
        if world.loads > loads:
            attempts.append(second)
        world.now += 1
    assert attempts == [0, 1, 3, 7, 15, 31, 63, 123, 183]


async def test_an_unknown_name_during_an_outage_is_no_refusal() -> None:
    world = World("a")
    assert await world.has("a")
    world.document, world.error = jwks("a", "b"), FetchError("down")
    for _ in range(3):
        with pytest.raises(KeySourceUnavailableError, match="not among the known keys"):
            await world.cache.key("b", "EC")
    assert world.loads == 2
    world.error = None
    world.now += 1
    assert await world.has("b")


@pytest.mark.parametrize(
    "document",
    [b"", b"SECRET", b"[]", b'{"keys": {}}', b'{"keys": [], "SECRET": 1, "SECRET": 2}', b'{"keys": [{"kty": "oct"}]}'],
)
async def test_a_broken_document_keeps_the_known_keys_and_is_not_quoted(
    document: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    world = World("a")
    assert await world.has("a")
    world.document = document
    for _ in range(5):
        world.now += 300
        assert await world.has("a")
        await world.settled()
    assert world.cache.generation == 0
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "not a readable JWK Set" in record.getMessage()
    assert "SECRET" not in caplog.text


async def test_the_words_of_strange_errors_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = World("a")
    world.error = RuntimeError("SECRET")
    with pytest.raises(KeySourceUnavailableError) as caught:
        await world.cache.key("a", "EC")
    assert "RuntimeError" in caplog.text
    assert "SECRET" not in caplog.text + str(caught.value)


async def test_generation_rises_when_a_key_is_lost_and_only_then() -> None:
    world = World("a")

    async def after(*names: LocalSigner | str) -> int:
        world.document = jwks(*names)
        world.now += 600
        await world.has("a")
        return world.cache.generation

    assert await after("a") == 0
    assert await after("a", "b") == 0
    assert await after("b", "a") == 0
    assert await after("a", "c") == 1
    assert await after("a", "c") == 1
    assert await after(generate_signer("ES256", kid="a"), "c") == 2
    assert await after() == 3
    assert await after("a", "b", "c") == 3


async def test_another_key_under_the_same_name_is_another_key() -> None:
    world = World("a")
    await world.has("a")
    other = generate_signer("ES256", kid="a")
    world.document = jwks(other)
    world.now += 600
    assert await world.cache.key("a", "EC") == other.public_key != public("a")


async def test_the_only_key_of_a_type() -> None:
    world = World("a", _ED)
    assert await world.cache.only_key("EC") == public("a")
    assert await world.cache.only_key("OKP") == _ED.public_key
    with pytest.raises(InvalidCredentialsError, match="no RSA key"):
        await world.cache.only_key("RSA")
    with pytest.raises(InvalidCredentialsError, match="several EC keys"):
        await World("a", "b").cache.only_key("EC")


async def test_the_only_key_of_a_type_is_found_after_a_change_of_types() -> None:
    world = World("a")
    assert await world.cache.only_key("EC") == public("a")
    world.document = jwks(_ED)
    assert await world.cache.only_key("OKP") == _ED.public_key


@walk(
    "times",
    [{"cooldown": 0.0}, {"stale_if_error": float("inf")}, {"min_max_age": float("nan")}, {"max_backoff": -1.0}],
)
def test_no_time_switches_a_bound_off(times: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(times))):
        JwksCacheTimes(**times)
    with pytest.raises(ConfigurationError, match="must be at most"):
        JwksCacheTimes(min_max_age=10, max_max_age=5)


def test_a_load_that_waits_in_another_event_loop_is_not_waited_for() -> None:
    async def begin() -> tuple[World, asyncio.Task[object] | None]:
        world = World("a")
        world.gate.clear()
        caller = asyncio.create_task(world.has("a"))
        await settled()
        caller.cancel()
        return world, world.cache._flights.running(None)

    stopped = asyncio.new_event_loop()
    world, abandoned = stopped.run_until_complete(begin())
    assert abandoned is not None
    world.gate.set()
    assert asyncio.run(asyncio.wait_for(world.has("a"), 60))
    stopped.run_until_complete(abandoned)
    stopped.close()
