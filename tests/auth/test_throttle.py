"""Failed credentials: what is counted, for whom, and what is refused then."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Callable, Iterable
from ipaddress import IPv6Address
from threading import Thread
from typing import Any

import pytest

from a2a_trust.auth import throttle as module
from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.guard import Guard
from a2a_trust.auth.peers import path_of
from a2a_trust.auth.principal import CredentialKind, Identity
from a2a_trust.auth.throttle import FailureLimits, Throttle
from a2a_trust.card.view import read_card
from a2a_trust.errors import (
    ConfigurationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MissingCredentialsError,
    TooManyRequestsError,
    TrustError,
)
from a2a_trust.middleware.options import RequestRules
from tests.auth.deciding import admitted, refused
from tests.auth.passwords import Passwords
from tests.auth.test_jwt import NOW
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


PEER = {"client": ("192.0.2.7", 50_000)}
OTHER = {"client": ("192.0.2.8", 50_000)}
LIMITS = FailureLimits(by_credential="3/minute", by_peer="5/minute")

STORE = MemoryApiKeys()
KEY = STORE.create(owner="ann").text

CARD: dict[str, Any] = {
    "name": "n",
    "securitySchemes": {
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        "login": {"type": "apiKey", "in": "header", "name": "X-Login"},
        "token": {"type": "http", "scheme": "bearer"},
    },
    "security": [{"key": []}, {"login": []}, {"token": []}],
}


class Rejecting:
    """A verifier of tokens, which are all expired."""

    async def verify(self, credential: str, now: float) -> Identity:
        raise InvalidCredentialsError("expired")


class Down:
    """A verifier that cannot tell now."""

    async def verify(self, credential: str, now: float) -> Identity:
        raise KeySourceUnavailableError("down")


def guard(login: Any, throttle: Throttle | None = None, **verifiers: Any) -> Guard:
    given: Any = {"key": ApiKeyVerifier(STORE), "login": login, "token": Rejecting(), **verifiers}
    return Guard(read_card(CARD), given, throttle=throttle or Throttle(LIMITS))


def scope(peer: dict[str, Any] = PEER, **credentials: str) -> dict[str, Any]:
    names = {"key": b"x-api-key", "login": b"x-login", "token": b"authorization"}
    headers = [(names[name], value.encode()) for name, value in credentials.items()]
    return {"type": "http", "headers": headers, "query_string": b"", **peer}


async def outcome(guard: Guard, peer: dict[str, Any] = PEER, **credentials: str) -> type | str:
    """The subject of who is admitted, or the kind of the error."""
    try:
        return (await admitted(guard, scope(peer, **credentials), NOW)).label
    except (TrustError, OSError) as error:
        return type(error)


def counters(throttle: Throttle) -> int:
    return len(throttle._counters)


# Limits


@walk(
    ("limit", "amount", "seconds"),
    [
        ("10/minute", 10, 60),
        ("1 per second", 1, 1),
        (" 20 PER 5 Minutes ", 20, 300),
        ("100/hours", 100, 3_600),
        ("7/2day", 7, 172_800),
        ("1/month", 1, 2_592_000),
        ("1/year", 1, 31_104_000),
    ],
)
def test_a_limit_is_a_number_and_a_time(limit: str, amount: int, seconds: int) -> None:
    throttle = Throttle(FailureLimits(by_credential=limit, by_peer=limit))
    for found in (throttle._by_credential, throttle._by_peer):
        assert [each[1:] for each in found] == [(times * amount, seconds) for times in (1, 4, 16)]


@walk(
    "limit",
    [
        "",
        "10",
        "ten/minute",
        "0/minute",
        "-1/minute",
        "1/second; 5/minute",
        "1/minutess",
        "1/fortnight",
        "1/0 minutes",
        10,
        None,
    ],
)
@walk("option", ["by_credential", "by_peer"])
def test_what_is_no_limit_does_not_start(option: str, limit: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"{option}=.* write a number of failures.*10/minute"):
        FailureLimits(**{option: limit})


def test_rules_take_limits_only() -> None:
    given: Any = "10/minute"
    with pytest.raises(ConfigurationError, match=r"failures: write FailureLimits\(…\)"):
        RequestRules(failures=given)
    assert RequestRules().failures == FailureLimits(by_credential="10/minute", by_peer="100/minute")


# Counting


async def test_the_fourth_password_for_a_name_is_not_hashed() -> None:
    passwords = Passwords(ann="right")
    judge = guard(passwords)
    for number in range(3):
        assert await outcome(judge, login=f"ann:{number}") is InvalidCredentialsError
    assert await outcome(judge, login="ann:right") is TooManyRequestsError
    assert passwords.hashed == ["ann:0", "ann:1", "ann:2"]
    assert await outcome(judge, OTHER, login="ann:right") == "ann"


async def test_the_sixth_password_of_a_peer_is_not_hashed_whatever_the_names() -> None:
    passwords = Passwords(ann="right")
    judge = guard(passwords)
    for number in range(5):
        assert await outcome(judge, login=f"user{number}:x") is InvalidCredentialsError
    error = (await refused(judge, scope(login="ann:right"), NOW)).error
    assert isinstance(error, TooManyRequestsError)
    assert str(error) == "too many failed credentials from 192.0.2.7 (by_peer=5/minute)"
    assert len(passwords.hashed) == 5


async def test_a_window_ends_when_retry_after_says_so() -> None:
    clock = [1000.0]
    passwords = Passwords(ann="right")
    judge = guard(passwords, Throttle(LIMITS, clock=lambda: clock[0]))
    for clock[0] in (1000.0, 1010.0, 1020.5):
        assert await outcome(judge, login="ann:wrong") is InvalidCredentialsError
    error = (await refused(judge, scope(login="ann:right"), NOW)).error
    assert isinstance(error, TooManyRequestsError)
    assert error.retry_after == 40
    clock[0] += error.retry_after - 1
    assert await outcome(judge, login="ann:right") is TooManyRequestsError
    clock[0] += 1
    assert await outcome(judge, login="ann:right") == "ann"


async def test_success_is_not_counted_and_what_is_remembered_goes_on() -> None:
    passwords = Passwords(ann="right", bob="right")
    judge = guard(passwords)
    for _ in range(20):
        assert await outcome(judge, login="ann:right") == "ann"
    for _ in range(3):
        assert await outcome(judge, login="ann:wrong") is InvalidCredentialsError
    assert await outcome(judge, login="ann:wrong") is TooManyRequestsError
    assert await outcome(judge, login="ann:right") == "ann"
    assert await outcome(judge, login="bob:right") == "bob"


async def test_a_peer_is_known_for_five_minutes_with_what_was_verified_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_trust.auth.throttle._COUNTERS", 3)
    clock = [1000.0]
    throttle = Throttle(LIMITS, clock=lambda: clock[0])
    throttle.note_valid(PEER, "login", "ann:right")
    clock[0] += 299
    assert throttle.knows(PEER, "login", "ann:right")
    for other in ((OTHER, "login", "ann:right"), (PEER, "key", "ann:right"), (PEER, "login", "ann:wrong")):
        assert not throttle.knows(*other)
    clock[0] += 1
    assert not throttle.knows(PEER, "login", "ann:right")
    for number in range(5):
        throttle.note_valid(PEER, "login", f"user{number}:right")
    assert [throttle.knows(PEER, "login", f"user{number}:right") for number in range(5)] == [False] * 2 + [True] * 3
    assert not any(b"right" in pair for pair, _ in throttle._known.items())


async def test_wrong_api_keys_are_counted_and_a_right_one_goes_on() -> None:
    judge = guard(Passwords())
    wrong = KEY[:-8] + "00000000"
    outcomes = [await outcome(judge, key=wrong) for _ in range(5)]
    assert outcomes == [InvalidCredentialsError] * 3 + [TooManyRequestsError] * 2
    assert await outcome(judge, key="of another form") is TooManyRequestsError  # the sixth of this peer
    assert await outcome(judge, login="ann:any") is TooManyRequestsError
    assert await outcome(judge, key=KEY) == "ann"
    without_passwords = guard(Rejecting())
    assert [await outcome(without_passwords, key=wrong) for _ in range(5)] == outcomes
    assert await outcome(without_passwords, key=KEY) == "ann"


async def test_tokens_outages_and_missing_credentials_are_not_counted() -> None:
    judge = guard(Passwords(ann="right"))
    for _ in range(20):
        assert await outcome(judge, token="Bearer t", key=KEY) is InvalidCredentialsError
        assert await outcome(judge) is MissingCredentialsError
    down = guard(Down())
    for _ in range(20):
        assert await outcome(down, login="ann:right") is KeySourceUnavailableError
    assert await outcome(judge, login="ann:right") == "ann"
    assert counters(judge._throttle) == counters(down._throttle) == 0


class Slow(Passwords):
    """Passwords whose verification waits until it is let go."""

    def __init__(self, **passwords: str) -> None:
        super().__init__(**passwords)
        self.go = asyncio.Event()

    async def verify(self, credential: str, now: float) -> Identity:
        self.hashed.append(credential)
        await self.go.wait()
        if credential.endswith(":break"):
            raise OSError("the store is broken")
        self.hashed.pop()
        return await super().verify(credential, now)


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_parallel_guesses_are_limited_exactly() -> None:
    passwords = Slow(ann="right")
    judge = guard(passwords)
    tasks = [asyncio.create_task(outcome(judge, login=f"ann:{number}")) for number in range(100)]
    await settled()
    assert len(passwords.hashed) == 3
    passwords.go.set()
    outcomes = await asyncio.gather(*tasks)
    assert sorted(map(str, outcomes)) == sorted(map(str, [InvalidCredentialsError] * 3 + [TooManyRequestsError] * 97))
    assert len(passwords.hashed) == 3


async def test_many_good_passwords_at_once_wait_and_are_not_refused() -> None:
    people = {f"user{number}": "right" for number in range(40)}
    passwords = Passwords(**people)
    judge = guard(passwords)
    async with asyncio.timeout(60):
        alike = await asyncio.gather(*(outcome(judge, login="user1:right") for _ in range(40)))
        others = await asyncio.gather(*(outcome(judge, login=f"{name}:right") for name in people))
    assert alike == ["user1"] * 40
    assert others == [*people]
    assert (judge._throttle._begun, judge._throttle._waiting) == ({}, {})


class TwoAtOnce(Passwords):
    """As threads that hash: the passwords come to their end one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.threads = asyncio.Semaphore(2)

    async def verify(self, credential: str, now: float) -> Identity:
        async with self.threads:
            await settled()
            return await super().verify(credential, now)


async def test_a_crowd_that_waits_is_not_woken_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    begins = 0
    real = Throttle._begin

    def counted(*args: Any) -> Any:
        nonlocal begins
        begins += 1
        return real(*args)

    monkeypatch.setattr(Throttle, "_begin", counted)
    judge = guard(TwoAtOnce(), Throttle(FailureLimits(by_peer="100/minute")))
    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(*(outcome(judge, login=f"user{number}:x") for number in range(1000)))
    assert (outcomes.count(InvalidCredentialsError), outcomes.count(TooManyRequestsError)) == (100, 900)
    assert begins <= 3 * 1000
    assert (judge._throttle._begun, judge._throttle._waiting) == ({}, {})


async def test_a_caller_that_goes_away_has_had_its_password_hashed() -> None:
    passwords = Slow(ann="right")
    judge = guard(passwords)
    for _ in range(3):
        task = asyncio.create_task(outcome(judge, login="ann:guess"))
        await settled()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    passwords.go.set()
    assert await outcome(judge, login="ann:right") is TooManyRequestsError
    assert len(passwords.hashed) == 3


async def test_who_waits_and_goes_away_is_not_counted_and_holds_nobody_up() -> None:
    passwords = Slow(ann="right")
    judge = guard(passwords)
    tasks = [asyncio.create_task(outcome(judge, login="ann:right")) for _ in range(10)]
    await settled()
    for task in tasks[3:8]:
        task.cancel()
    passwords.go.set()
    async with asyncio.timeout(60):
        assert await asyncio.gather(*tasks[:3], *tasks[8:]) == ["ann"] * 5
    assert counters(judge._throttle) == 0


async def test_a_verifier_that_breaks_counts_and_leaves_nothing_behind() -> None:
    passwords = Slow(ann="right")
    passwords.go.set()
    judge = guard(passwords)
    for _ in range(3):
        assert await outcome(judge, login="ann:break") is OSError
    assert await outcome(judge, login="ann:right") is TooManyRequestsError
    assert judge._throttle._begun == {}


async def test_a_success_clears_the_pairs_of_its_peer_and_names_and_nothing_else() -> None:
    throttle = Throttle(LIMITS)
    for peer in (PEER, OTHER):
        for name in ("ann", "bob"):
            for _ in range(2):
                await throttle.count_failure(peer, {name})
    await throttle.clear(PEER, {"ann", ""})
    remaining = {
        (peer["client"][0], name): [
            throttle._window(narrowest).remaining for narrowest, *_ in throttle._counters_of(path_of(peer), {name})
        ]
        for peer in (PEER, OTHER)
        for name in ("ann", "bob")
    }
    assert remaining == {
        ("192.0.2.7", "ann"): [1, 3],
        ("192.0.2.7", "bob"): [1, 1],
        ("192.0.2.8", "ann"): [1, 1],
        ("192.0.2.8", "bob"): [1, 1],
    }


async def test_a_success_of_a_neighbor_clears_no_counter_of_their_network() -> None:
    """Else who knows one password could guess it for ever from other addresses of the network, or let others guess."""
    throttle = Throttle(LIMITS)
    guessing, knowing = ({"client": (f"2001:db8:0:{number}::1", 50_000)} for number in (1, 2))
    await throttle.count_failure(guessing, {"ann"})
    before = [throttle._window(each).remaining for each in throttle._counters_of(path_of(knowing), {"ann"})[1]]
    await throttle.clear(knowing, {"ann"})
    after = [throttle._window(each).remaining for each in throttle._counters_of(path_of(knowing), {"ann"})[1]]
    assert before == after == [3, 11, 47]


async def test_guards_of_several_event_loops_wait_for_each_other() -> None:
    """A server may run an event loop in each thread."""
    throttle = Throttle(FailureLimits(by_credential="1/minute", by_peer="1/minute"))
    end = await throttle.begin(PEER, {"ann"})
    begun: list[str] = []

    async def wait() -> None:
        (await throttle.begin(PEER, {"ann"}))()
        begun.append("there")

    thread = Thread(target=lambda: asyncio.run(wait()))
    thread.start()
    await asyncio.sleep(0.1)
    assert begun == []
    end()
    await asyncio.to_thread(thread.join, 60)
    assert begun == ["there"]


async def test_an_outage_of_one_verifier_does_not_hide_the_failures_of_another() -> None:
    """Two schemes share a place: what the one rejects and the other cannot judge now is a guess all the same."""
    card: dict[str, Any] = {
        "name": "n",
        "securitySchemes": {
            name: {"type": "apiKey", "in": "header", "name": "X-Login"} for name in ("passwords", "others")
        },
        "security": [{"passwords": []}, {"others": []}],
    }
    passwords = Passwords(ann="right")
    judge = Guard(read_card(card), {"passwords": passwords, "others": Down()}, throttle=Throttle(LIMITS))
    for number in range(3):
        assert await outcome(judge, login=f"ann:{number}") is KeySourceUnavailableError
    assert await outcome(judge, login="ann:right") is TooManyRequestsError

    class Accepting:
        async def verify(self, credential: str, now: float) -> Identity:
            return Identity(issuer="others", subject="bob")

    judge = Guard(read_card(card), {"passwords": passwords, "others": Accepting()}, throttle=Throttle(LIMITS))
    for _ in range(20):  # the password of another store is no failure
        assert await outcome(judge, login="bob:his") == "bob"


class Odd(ApiKeyVerifier):
    """A verifier of API keys that says of its own that they can be guessed."""

    def credential_name(self, credential: str) -> str:
        return "all of them"

    def is_remembered(self, credential: str, now: float) -> bool:
        return False


async def test_a_verifier_of_api_keys_may_say_otherwise() -> None:
    assert ApiKeyVerifier(STORE).credential_name(KEY) == KEY[:16]
    assert ApiKeyVerifier(STORE).credential_name("elsewhere") == ""
    assert Odd.kind is CredentialKind.API_KEY
    judge = guard(Passwords(), key=Odd(STORE))
    for _ in range(3):
        assert await outcome(judge, key="wrong") is InvalidCredentialsError
    assert await outcome(judge, key=KEY) is TooManyRequestsError


# Networks of IPv6


def of(network: int, peer: int = 0) -> dict[str, Any]:
    """A peer of a network of 56 bits, of which a network of 48 bits has 256."""
    return {"client": (f"2001:db8:7:{network:02x}{peer:02x}::1", 50_000)}


async def failing(throttle: Throttle, peers: Iterable[dict[str, Any]], name: str = "") -> int:
    """How many of these peers may fail, one after the other, before they are all rejected."""
    for number, peer in enumerate(peers):
        try:
            end = await throttle.begin(peer, {name})
        except TooManyRequestsError:
            return number
        await throttle.count_failure(peer, {name})
        end()
    return -1


@pytest.mark.parametrize("name", ["", "ann"])
async def test_a_network_of_56_bits_has_four_times_the_limit_and_one_of_48_bits_sixteen_times(name: str) -> None:
    limits = FailureLimits(by_credential="3/day", by_peer="3/day" if not name else "99/day")
    throttle = Throttle(limits)
    assert await failing(throttle, [of(0)] * 9, name) == 3
    assert await failing(throttle, [of(0, peer) for peer in range(1, 99)], name) == 12 - 3
    assert await failing(throttle, [of(network) for network in range(1, 99)], name) == 48 - 12
    with pytest.raises(TooManyRequestsError) as caught:
        await throttle.begin(of(200, 200), {name})
    option = "by_credential=3/day" if name else "by_peer=3/day"
    assert str(caught.value) == f"too many failed credentials from 2001:db8:7::/48 (16 times {option})"
    (await throttle.begin({"client": ("2001:db8:8::1", 1)}, {name}))()
    assert await failing(throttle, [PEER] * 9, name) == 3


async def test_one_peer_that_fails_without_end_does_not_lock_out_its_neighbors() -> None:
    """As with wrong API keys, which are verified beyond the limit as well."""
    throttle = Throttle(LIMITS)
    for number in range(200):
        await throttle.count_failure(of(0), {f"key{number % 50}"})
    assert await failing(throttle, [of(0, 1)] * 9) == 5
    assert await failing(throttle, [of(0, 2)] * 9, "key1") == 3
    assert await throttle.count_failure(of(0), {"key"}) is not None


@pytest.mark.parametrize("busy_peers", [1, 4])
async def test_a_busy_peer_does_not_keep_its_neighbors_waiting(
    monkeypatch: pytest.MonkeyPatch, busy_peers: int
) -> None:
    """Who waits in one network of 48 bits takes turns."""
    monkeypatch.setattr("a2a_trust.auth.throttle._AT_ONCE", 2)
    throttle, order, running = Throttle(FailureLimits()), list[str](), list[Callable[[], None]]()

    async def begun(peer: dict[str, Any], name: str) -> None:
        running.append(await throttle.begin(peer, {name}))
        order.append(name)

    busy = [asyncio.create_task(begun(of(0, number % busy_peers), f"busy{number}")) for number in range(40)]
    await settled()
    others = [asyncio.create_task(begun(of(0, 9), "neighbor")), asyncio.create_task(begun(of(9), "farther"))]
    await settled()
    while running:  # one ends after the other
        running.pop(0)()
        await settled()
    await asyncio.gather(*busy, *others)
    assert order.index("farther") <= 2 + 2
    assert order.index("neighbor") <= 2 + 3 * busy_peers
    assert (len(order), throttle._begun, throttle._waiting) == (42, {}, {})


# Memory


async def test_neither_names_nor_peers_grow_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_COUNTERS", 64)  # in place of 32,768
    throttle = Throttle(FailureLimits(by_credential="10/day", by_peer="1000000/day"))
    name = "x" * 1000
    for number in range(200):
        await throttle.count_failure(PEER, {f"{name}{number}"})
        await throttle.count_failure({"client": (str(IPv6Address(number << 64)), 1)}, {"ann"})
    assert counters(throttle) == 64
    entries = throttle._counters.items()
    assert max(sys.getsizeof(key) for key, _ in entries) < 200


async def test_invented_names_of_one_peer_do_not_drive_out_the_counters_of_others() -> None:
    throttle = Throttle(LIMITS)
    for _ in range(3):
        assert await throttle.count_failure(OTHER, {"ann"}) is None
    for number in range(500):
        await throttle.count_failure(PEER, {f"name{number}"})
    assert counters(throttle) == 2 + 1 + 5
    assert await throttle.count_failure(OTHER, {"ann"}) is not None


class Anybodys:
    """A verifier of HTTP Basic that knows nothing of limits."""

    def __init__(self) -> None:
        self.verified = 0

    async def verify(self, credential: str, now: float) -> Identity:
        self.verified += 1
        raise InvalidCredentialsError("wrong")


async def test_passwords_are_counted_by_name_whoever_verifies_them() -> None:
    card = {"name": "n", "securitySchemes": {"p": {"type": "http", "scheme": "basic"}}, "security": [{"p": []}]}
    anybodys = Anybodys()
    judge = Guard(read_card(card), {"p": anybodys}, throttle=Throttle(LIMITS))

    async def tried(user: str) -> type[Exception]:
        text = base64.b64encode(f"{user}:guess".encode())
        scope = {"type": "http", "headers": [(b"authorization", b"Basic " + text)], "client": ("192.0.2.1", 5)}
        return type((await refused(judge, scope, NOW)).error)

    assert [await tried("ann") for _ in range(4)] == [InvalidCredentialsError] * 3 + [TooManyRequestsError]
    assert (await tried("bob"), anybodys.verified) == (InvalidCredentialsError, 4)
