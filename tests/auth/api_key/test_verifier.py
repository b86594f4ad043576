"""API keys: what lets in, what does not, how soon a change counts, and that no key is ever kept."""

from __future__ import annotations

import asyncio
import copy
import hmac
import logging
import math
import pickle
import re
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

import a2a_trust.auth.api_key.verifier as subject
from a2a_trust.auth import records
from a2a_trust.auth.api_key.verifier import (
    ApiKeyRecord,
    ApiKeyStore,
    ApiKeyVerifier,
    MemoryApiKeys,
    key_id_of,
)
from a2a_trust.auth.principal import Principal
from a2a_trust.auth.records import Found
from a2a_trust.base import cache
from a2a_trust.errors import (
    ConfigurationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MalformedError,
)
from tests.tables import walk
from tests.waiting import settled

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000.0
FOREIGN = "sk-live-0123456789abcdef0123456789"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _write_uses_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_GATHERING", 0)


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


class Store(MemoryApiKeys):
    """A memory store that counts, and that fails or hangs when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.looked_up: list[bytes] = []
        self.error: Exception | None = None
        self.touch_error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.touched: list[dict[str, float]] = []

    async def find(self, digests: tuple[bytes, ...]) -> Found[ApiKeyRecord]:
        self.reads += 1
        self.looked_up += digests
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return await super().find(digests)

    async def touch(self, used: Mapping[str, float]) -> None:
        if self.touch_error is not None:
            raise self.touch_error
        self.touched.append(dict(used))
        await super().touch(used)


class WatchedStore(Store):
    """Tells of changes. What it finds is of the moment in which it was asked, even if the answer comes later."""

    def watch(self, changed: Callable[[], None]) -> None:
        self.changed = changed

    async def find(self, digests: tuple[bytes, ...]) -> Found[ApiKeyRecord]:
        found = await MemoryApiKeys.find(self, digests)
        await super().find(digests)
        return found


async def background(verifier: ApiKeyVerifier) -> None:
    """The verifier has read and written what it had started to."""
    for flights in (verifier._records._look_ups._round_trips, verifier._uses._flights):
        task = flights.running(None)
        if task is not None:
            await asyncio.wait({task})


# --- the text of a key


def test_a_key_has_the_form_that_scanners_look_for() -> None:
    issued = MemoryApiKeys().create(owner="alice")
    assert re.fullmatch(r"a2a_[0-9A-Za-z]{12}_[0-9A-Za-z]{38}", issued.text)
    assert key_id_of(issued.text) == issued.record.key_id == issued.text[:16]
    number = 0
    for digit in issued.text[-6:]:
        number = number * 62 + "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz".index(digit)
    assert number == zlib.crc32(issued.text[:-6].encode())


def test_keys_are_random_in_id_and_in_secret() -> None:
    store = MemoryApiKeys()
    issued = [store.create(owner="alice") for _ in range(50)]
    assert len({key.record.key_id for key in issued}) == 50
    secrets = {key.text[17:49] for key in issued}
    assert len(secrets) == 50
    assert len(set("".join(secrets))) == 62


def test_every_typo_of_one_character_is_caught_by_the_checksum() -> None:
    text = MemoryApiKeys().create(owner="alice").text
    for place, char in enumerate(text):
        typo = text[:place] + ("x" if char != "x" else "y") + text[place + 1 :]
        with pytest.raises(MalformedError):
            key_id_of(typo)
    for other in ("", text[:-1], text + "0", text.swapcase(), f" {text}", f"{text}\n"):
        with pytest.raises(MalformedError):
            key_id_of(other)


@walk("prefix", ["", "a", "A2A", "1a", "a_b", "a-b", "a" * 17, "ä2", "a2a\n"])
def test_a_prefix_is_one_small_word(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="as in a2a"):
        MemoryApiKeys().create(owner="alice", prefix=prefix)


# --- what lets in


async def test_a_key_names_its_owner_with_its_scopes_and_its_end() -> None:
    store = MemoryApiKeys()
    issued = store.create(owner="alice", scopes=["read", "write"], expires=time.time() + 60, prefix="acme")
    identity = await ApiKeyVerifier(store).verify(issued.text, time.time())
    assert (identity.issuer, identity.subject) == ("api-keys", "alice")
    assert identity.scopes == {"read", "write"}
    assert identity.expires_at == issued.record.expires
    assert identity.claims == {"key_id": issued.record.key_id}


async def test_what_handlers_do_to_the_claims_does_not_reach_other_requests() -> None:
    store = MemoryApiKeys()
    key = store.create(owner="alice").text
    identity = await ApiKeyVerifier(store).verify(key, NOW)
    with pytest.raises(TypeError):
        identity.claims["key_id"] = "another"  # type: ignore[index]


async def test_keys_of_one_owner_are_one_caller_and_owners_of_two_stores_are_two() -> None:
    first, second = MemoryApiKeys(), MemoryApiKeys()
    one, two = first.create(owner="alice").text, first.create(owner="alice").text
    three, four = second.create(owner="alice").text, first.create(owner="Alice").text
    ours, theirs = ApiKeyVerifier(first), ApiKeyVerifier(second, issuer="partners")
    identities = [
        await ours.verify(one, NOW),
        await ours.verify(two, NOW),
        await theirs.verify(three, NOW),
        await ours.verify(four, NOW),
    ]
    names = [Principal(identities=(("key", identity),)).display_name for identity in identities]
    assert names[0] == names[1]
    assert len({*names}) == 3


@walk("owner", ["", " ", "alice ", "\talice", "al\u200bice", "al\x00ice", "a" * 257, "al\ud800ice"])
def test_owners_that_only_look_alike_are_refused(owner: str) -> None:
    with pytest.raises(ConfigurationError, match="printable"):
        MemoryApiKeys().create(owner=owner)


@walk("scopes", ["read", ["read write"], [""], ['a"b'], ["a\\b"], ["é"], ["a\n"]])
def test_scopes_are_words(scopes: list[str] | str) -> None:
    with pytest.raises(ConfigurationError, match="scope"):
        MemoryApiKeys().create(owner="alice", scopes=scopes)


# --- what does not


async def test_every_other_text_than_the_key_is_refused() -> None:
    store = MemoryApiKeys()
    key, other = store.create(owner="alice").text, store.create(owner="bob").text
    verifier = ApiKeyVerifier(store)
    assert (await verifier.verify(key, NOW)).subject == "alice"
    crossed = key[:17] + other[17:]
    wrong = ["", "_", key[:16], key[:-1], key + "0", key.upper(), f" {key}", f"{key} ", f"{key},{key}", crossed]
    wrong += [key.replace("_", "__"), "a" * 55, "a" * 1025, key[:-1] + "\u0661", "\ud800" * 55, "\x00" * 32]
    for text in wrong:
        with pytest.raises(InvalidCredentialsError):
            await verifier.verify(text, NOW)


async def test_the_digest_of_a_key_does_not_stand_for_the_key() -> None:
    store = MemoryApiKeys()
    record = store.import_key(FOREIGN, owner="alice")
    verifier = ApiKeyVerifier(store)
    for text in (record.digest.hex(), record.digest.decode("latin-1"), record.key_id, "\x00" * 32):
        with pytest.raises(InvalidCredentialsError):
            await verifier.verify(text, NOW)


async def test_nothing_stands_for_the_key_of_nobody() -> None:
    verifier = ApiKeyVerifier(MemoryApiKeys())
    assert subject._NOBODY.good_until == -math.inf
    for text in ("", "a" * 55, "\x00" * 32):
        with pytest.raises(InvalidCredentialsError, match="unknown"):
            await verifier.verify(text, -math.inf)


async def test_an_unknown_id_takes_the_same_way_as_a_wrong_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryApiKeys()
    key = store.create(owner="alice").text
    stranger = MemoryApiKeys().create(owner="alice").text
    wrong_secret = key[:17] + stranger[17:]
    verifier = ApiKeyVerifier(store)
    await verifier.verify(key, NOW)
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def counting(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return real(a, b)

    monkeypatch.setattr(subject, "compare_digest", counting)
    ways = []
    for text in (stranger, wrong_secret):
        compared.clear()
        with pytest.raises(InvalidCredentialsError):
            await verifier.verify(text, NOW)
        ways.append(list(compared))
    assert ways == [[(32, 32)]] * 2
    compared.clear()
    await verifier.verify(key, NOW)  # found by its digest in the cache
    assert compared == []
    await ApiKeyVerifier(store).verify(key, NOW)
    assert compared == [(32, 32)]


async def test_a_key_ends_at_its_moment_of_expiry() -> None:
    store = MemoryApiKeys()
    issued = store.create(owner="alice", expires=time.time() + 60)
    verifier = ApiKeyVerifier(store)
    end = issued.record.expires
    assert (await verifier.verify(issued.text, math.nextafter(end, 0))).subject == "alice"
    for moment in (end, end + 1, math.inf, math.nan):
        with pytest.raises(InvalidCredentialsError, match="expired"):
            await verifier.verify(issued.text, moment)


@walk("expires", [0.0, 1.0, math.nan, -math.inf, 1_900_000_000_000.0])
def test_a_key_is_not_made_to_end_in_the_past_or_in_milliseconds(expires: float) -> None:
    store = MemoryApiKeys()
    with pytest.raises(ConfigurationError, match="seconds"):
        store.create(owner="alice", expires=expires)
    with pytest.raises(ConfigurationError, match="seconds"):
        store.import_key(FOREIGN, owner="alice", expires=expires)
    assert store.records() == ()


async def test_a_revoked_key_is_refused_and_stays_revoked() -> None:
    store = MemoryApiKeys()
    issued = store.create(owner="alice")
    revoked = store.revoke(issued.record.key_id)
    assert store.revoke(issued.record.key_id) == revoked
    with pytest.raises(InvalidCredentialsError, match=f"{issued.record.key_id} is revoked"):
        await ApiKeyVerifier(store).verify(issued.text, NOW)
    with pytest.raises(ConfigurationError, match="revoked"):
        store.rotate(issued.record.key_id, overlap=timedelta(days=1))


# --- imported keys


async def test_an_imported_key_is_known_by_its_digest() -> None:
    store = MemoryApiKeys()
    record = store.import_key(FOREIGN, owner="alice", scopes=["read"])
    identity = await ApiKeyVerifier(store).verify(FOREIGN, NOW)
    assert (identity.subject, identity.scopes) == ("alice", frozenset({"read"}))
    assert identity.claims == {"key_id": record.key_id}
    store.revoke(record.key_id)
    with pytest.raises(InvalidCredentialsError, match="revoked"):
        await ApiKeyVerifier(store).verify(FOREIGN, NOW)


async def test_a_key_of_another_store_can_be_imported_and_named_anew() -> None:
    store = MemoryApiKeys()
    theirs = MemoryApiKeys().create(owner="alice")
    record = store.import_key(theirs.text, owner="bob")
    assert record.key_id != theirs.record.key_id
    assert (await ApiKeyVerifier(store).verify(theirs.text, NOW)).subject == "bob"


async def test_an_imported_key_that_begins_with_the_id_of_another_is_still_its_own() -> None:
    store = MemoryApiKeys()
    issued = store.create(owner="alice")
    lookalike = f"{issued.record.key_id}_{'0123456789abcdefghij' * 2}"[:55]
    store.import_key(lookalike, owner="bob")
    verifier = ApiKeyVerifier(store)
    assert (await verifier.verify(lookalike, NOW)).subject == "bob"
    assert (await verifier.verify(issued.text, NOW)).subject == "alice"


@walk("text", ["", "x" * 31, "x" * 1025, "x" * 40 + " ", " " + "x" * 40, "x" * 40 + "\n", "é" * 40, "x\x7f" * 20])
def test_a_key_that_is_short_or_would_not_pass_a_header_is_not_imported(text: str) -> None:
    store = MemoryApiKeys()
    with pytest.raises(ConfigurationError, match="an imported key") as caught:
        store.import_key(text, owner="alice")
    assert not text or text not in str(caught.value)
    assert store.records() == ()


def test_a_key_is_imported_once() -> None:
    store = MemoryApiKeys()
    first = store.import_key(FOREIGN, owner="alice")
    with pytest.raises(ConfigurationError, match=first.key_id) as caught:
        store.import_key(FOREIGN, owner="bob")
    assert FOREIGN not in str(caught.value)
    mine = store.create(owner="alice")
    with pytest.raises(ConfigurationError, match=mine.record.key_id):
        store.import_key(mine.text, owner="bob")


# --- rotation


async def test_a_rotated_key_is_good_for_the_overlap_beside_its_successor() -> None:
    store = MemoryApiKeys()
    old = store.create(owner="alice", scopes=["read"], expires=time.time() + 7200, prefix="acme")
    before = time.time()
    new = store.rotate(old.record.key_id, overlap=timedelta(hours=1))
    kept = {record.key_id: record for record in store.records()}
    ends = kept[old.record.key_id].expires
    assert before + 3600 <= ends <= time.time() + 3600
    assert kept[old.record.key_id].replaced_by == new.record.key_id
    assert new.text.startswith("acme_")
    assert new.record.expires - new.record.created == pytest.approx(7200, abs=60)
    verifier = ApiKeyVerifier(store)
    old_identity, new_identity = [await verifier.verify(key.text, time.time()) for key in (old, new)]
    assert (old_identity.subject, old_identity.scopes) == (new_identity.subject, new_identity.scopes)
    assert (await verifier.verify(new.text, ends)).subject == "alice"
    with pytest.raises(InvalidCredentialsError, match="expired"):
        await verifier.verify(old.text, ends)


def test_rotation_never_makes_the_old_key_live_longer() -> None:
    store = MemoryApiKeys()
    old = store.create(owner="alice", expires=time.time() + 60)
    store.rotate(old.record.key_id, overlap=timedelta(days=30))
    assert store.records()[0].expires == old.record.expires


def test_a_key_is_rotated_once_and_forward_only() -> None:
    store = MemoryApiKeys()
    old = store.create(owner="alice").record.key_id
    with pytest.raises(ConfigurationError, match="negative"):
        store.rotate(old, overlap=timedelta(seconds=-1))
    new = store.rotate(old, overlap=timedelta(0)).record
    assert new.expires == math.inf
    with pytest.raises(ConfigurationError, match=f"rotate {new.key_id}"):
        store.rotate(old, overlap=timedelta(days=1))
    store.rotate(new.key_id, overlap=timedelta(0))
    assert len(store.records()) == 3


async def test_without_overlap_the_old_key_ends_now() -> None:
    store = MemoryApiKeys()
    old = store.create(owner="alice")
    store.rotate(old.record.key_id, overlap=timedelta(0))
    with pytest.raises(InvalidCredentialsError, match="expired"):
        await ApiKeyVerifier(store).verify(old.text, time.time())


def test_a_key_that_is_given_for_an_id_is_not_repeated() -> None:
    store = MemoryApiKeys()
    text = store.create(owner="alice").text
    for change in (lambda: store.revoke(text), lambda: store.rotate(text, overlap=timedelta(0))):
        with pytest.raises(ConfigurationError, match="no key has this id") as caught:
            change()
        assert text not in str(caught.value)


# --- how soon a change counts, and what happens when the store is out of reach


async def test_a_revocation_counts_after_the_stated_seconds_also_after_a_pause() -> None:
    store, clock = Store(), Clock()
    issued = store.create(owner="alice")
    verifier = ApiKeyVerifier(store, refresh=2.0, clock=clock)
    await verifier.verify(issued.text, NOW)
    store.revoke(issued.record.key_id)
    clock.at += 0.9
    assert (await verifier.verify(issued.text, NOW)).subject == "alice"  # the stated delay: nothing was read yet
    clock.at += 1.1
    with pytest.raises(InvalidCredentialsError, match="revoked"):
        await verifier.verify(issued.text, NOW)


async def test_under_traffic_the_store_is_read_in_the_background_and_no_hit_waits() -> None:
    store, clock = Store(), Clock()
    key = store.create(owner="alice").text
    verifier = ApiKeyVerifier(store, refresh=2.0, clock=clock)
    await verifier.verify(key, NOW)
    await background(verifier)
    store.gate.clear()
    for _ in range(10):
        clock.at += 0.19
        with pytest.raises(StopIteration) as ended:
            verifier.verify(key, NOW).send(None)  # one step, so nothing was awaited
        assert ended.value.value.subject == "alice"
    assert store.reads == 1  # the second read has not begun to run, and there is no third
    await asyncio.sleep(0)
    assert store.reads == 2
    store.gate.set()
    await background(verifier)
    clock.at += 0.5
    with pytest.raises(StopIteration):
        verifier.verify(key, NOW).send(None)


async def test_a_storm_of_first_requests_reads_once() -> None:
    store = Store()
    key = store.create(owner="alice").text
    verifier = ApiKeyVerifier(store)
    identities = await asyncio.gather(*(verifier.verify(key, NOW) for _ in range(100)))
    assert {identity.subject for identity in identities} == {"alice"}
    assert store.reads == 1


async def test_a_request_that_is_cancelled_does_not_end_the_read_for_the_others() -> None:
    store = Store()
    key = store.create(owner="alice").text
    store.gate.clear()
    verifier = ApiKeyVerifier(store)
    first, second = (asyncio.create_task(verifier.verify(key, NOW)) for _ in range(2))
    await settled()
    first.cancel()
    await asyncio.sleep(0)
    store.gate.set()
    assert (await second).subject == "alice"
    assert first.cancelled()


async def test_without_a_first_read_nobody_can_tell() -> None:
    store, clock = Store(), Clock()
    key = store.create(owner="alice").text
    store.error = OSError("disk of alice")
    verifier = ApiKeyVerifier(store, refresh=2.0, clock=clock)
    for _ in range(5):
        with pytest.raises(KeySourceUnavailableError):
            await verifier.verify(key, NOW)
    assert store.reads == 2  # the second for a key that nobody has; a store that is down is not stormed
    store.error = None
    clock.at += 1
    assert (await verifier.verify(key, NOW)).subject == "alice"


async def test_while_the_store_is_down_the_last_read_counts_for_a_bounded_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, clock = Store(), Clock()
    issued = store.create(owner="alice", expires=time.time() + 3600)
    verifier = ApiKeyVerifier(store, refresh=2.0, stale_if_error=10.0, clock=clock)
    await verifier.verify(issued.text, time.time())
    await background(verifier)
    store.error = RuntimeError(issued.text)
    clock.at += 9.9
    assert (await verifier.verify(issued.text, time.time())).subject == "alice"
    with pytest.raises(InvalidCredentialsError, match="expired"):  # what was read before still knows the time
        await verifier.verify(issued.text, issued.record.expires)
    clock.at += 0.1
    for text in (issued.text, "unknown"):
        with pytest.raises(KeySourceUnavailableError):
            await verifier.verify(text, time.time())
    store.error = None
    clock.at += 1
    assert (await verifier.verify(issued.text, time.time())).subject == "alice"
    assert [record.getMessage() for record in caplog.records] == [  # once, and not for each request
        "the API keys could not be read: RuntimeError",
        "the API keys can be read again",
    ]


async def test_a_read_that_hangs_holds_nobody_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_PATIENCE", 0.05)
    store, clock = Store(), Clock()
    key = store.create(owner="alice").text
    verifier = ApiKeyVerifier(store, refresh=2.0, stale_if_error=10.0, clock=clock)
    await verifier.verify(key, NOW)
    store.gate.clear()
    clock.at += 5
    assert (await verifier.verify(key, NOW)).subject == "alice"
    clock.at += 5
    with pytest.raises(KeySourceUnavailableError):
        await verifier.verify(key, NOW)
    assert store.reads == 3
    store.gate.set()


async def test_a_crowd_before_a_slow_store_waits_for_twice_the_patience_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records, "_PATIENCE", 0.1)

    class Slow(Store):
        async def find(self, digests: tuple[bytes, ...]) -> Found[ApiKeyRecord]:
            await asyncio.sleep(0.05)
            return await super().find(digests)

    store = Slow()
    verifier = ApiKeyVerifier(store, refresh=2.0)
    answers = await asyncio.gather(
        *[verifier.verify(f"unknown {number}", NOW) for number in range(2_000)], return_exceptions=True
    )
    assert store.reads < 20  # the trips of all take a second, and some had their answer before
    assert KeySourceUnavailableError in {type(each) for each in answers}
    await background(verifier)


async def test_a_read_that_hangs_does_not_keep_out_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that was lost without a word must not refuse everybody until the process is started anew."""
    monkeypatch.setattr(records, "_PATIENCE", 0.05)
    store, clock = Store(), Clock()
    key = store.create(owner="alice").text
    verifier = ApiKeyVerifier(store, refresh=2.0, stale_if_error=10.0, clock=clock)
    await verifier.verify(key, NOW)
    hung, store.gate = store.gate, asyncio.Event()
    clock.at += 12
    with pytest.raises(KeySourceUnavailableError):
        await verifier.verify(key, NOW)
    store.gate = hung  # the next read works, the one before never ends
    clock.at += 1
    assert (await verifier.verify(key, NOW)).subject == "alice"
    assert store.reads == 3


async def test_a_store_that_is_down_is_asked_neither_by_junk_nor_by_good_keys(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, clock = Store(), Clock()
    key, later = store.create(owner="alice").text, store.create(owner="bob").text
    verifier = ApiKeyVerifier(store, refresh=2.0, stale_if_error=10.0, clock=clock)
    await verifier.verify(key, NOW)
    await background(verifier)
    store.error, store.reads = OSError(), 0
    for number in range(200):
        with pytest.raises(KeySourceUnavailableError):  # nobody can tell, so it is not 401
            await verifier.verify(f"junk {number}", NOW)
        with pytest.raises(KeySourceUnavailableError):
            await verifier.verify(later, NOW)
        assert (await verifier.verify(key, NOW)).subject == "alice"
    assert store.reads == 2  # the second for a key that nobody has
    assert len(caplog.records) == 1
    assert len(verifier._records.known) == 1


@pytest.mark.parametrize("age", [1.5, 3.0])
async def test_a_flood_of_junk_neither_delays_a_revocation_nor_shuts_out_a_known_key(
    monkeypatch: pytest.MonkeyPatch, age: float
) -> None:
    monkeypatch.setattr(cache, "_WAITING", 500)
    store, clock = Store(), Clock()
    thief, good = store.create(owner="thief"), store.create(owner="good")
    verifier = ApiKeyVerifier(store, refresh=2.0, stale_if_error=30.0, clock=clock)
    for key in (thief, good):
        await verifier.verify(key.text, NOW)
    await background(verifier)
    store.gate.clear()
    flood = [asyncio.create_task(verifier.verify(f"junk {number}", NOW)) for number in range(1000)]
    await settled()
    assert any(task.done() for task in flood), "the queue is full"
    store.revoke(thief.record.key_id)
    clock.at += age
    waiting = [asyncio.create_task(verifier.verify(key.text, NOW)) for key in (thief, good)]
    await settled()
    assert [task.done() for task in waiting] == [age < 2] * 2, "a key that was confirmed lately does not wait"
    store.looked_up = []
    store.gate.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    if age >= 2:
        assert "is revoked" in str(results[0])
        assert store.looked_up[:2] == [thief.record.digest, good.record.digest], "they were in the next trip"
    await background(verifier)
    with pytest.raises(InvalidCredentialsError, match="revoked"):
        await verifier.verify(thief.text, NOW)
    assert (await verifier.verify(good.text, NOW)).subject == "good"
    assert len(await asyncio.gather(*flood, return_exceptions=True)) == 1000


# --- look-ups


async def test_a_key_is_looked_up_once_while_nothing_changes() -> None:
    store, clock = Store(), Clock()
    keys = [store.create(owner="alice").text for _ in range(50)]
    verifier = ApiKeyVerifier(store, refresh=2.0, clock=clock)
    for _ in range(10):
        for key in keys:
            await verifier.verify(key, NOW)
            await background(verifier)
        clock.at += 1.5
    # Each of the nine later rounds begins with one look, which confirms all.
    assert len(store.looked_up) == 50 + 9


async def test_after_a_change_keys_are_looked_up_again_in_the_background_when_they_are_used() -> None:
    store, clock = Store(), Clock()
    first, second = store.create(owner="alice"), store.create(owner="bob")
    verifier = ApiKeyVerifier(store, refresh=2.0, clock=clock)
    for issued in (first, second):
        await verifier.verify(issued.text, NOW)
    await background(verifier)
    store.revoke(second.record.key_id)
    clock.at += 1.5
    with pytest.raises(StopIteration):
        verifier.verify(first.text, NOW).send(None)  # waits for nothing
    await background(verifier)
    with pytest.raises(StopIteration):
        verifier.verify(second.text, NOW).send(None)  # within the stated delay; it is being looked up
    await background(verifier)
    with pytest.raises(InvalidCredentialsError, match="revoked"):
        await verifier.verify(second.text, NOW)


async def test_a_key_of_an_earlier_revision_does_not_count_longer_for_what_others_look_up() -> None:
    store, clock = Store(), Clock()
    revoked, other = store.create(owner="alice"), store.create(owner="bob")
    verifier = ApiKeyVerifier(store, refresh=2.0, clock=clock)
    await verifier.verify(revoked.text, NOW)
    store.revoke(revoked.record.key_id)
    clock.at += 0.5
    for _ in range(3):
        await verifier.verify(other.text, NOW)
        clock.at += 0.5
    with pytest.raises(InvalidCredentialsError, match="revoked"):
        await verifier.verify(revoked.text, NOW)


async def test_a_slow_look_up_does_not_undo_what_a_later_one_found() -> None:
    store, clock = Store(), Clock()
    issued = store.create(owner="alice")
    verifier = ApiKeyVerifier(store, refresh=2.0, clock=clock)
    digest = issued.record.digest
    earlier = await store.find((digest,))
    store.revoke(issued.record.key_id)
    slow = asyncio.Event()

    async def late(digests: tuple[bytes, ...]) -> Found[ApiKeyRecord]:
        await slow.wait()
        return earlier

    store.find, find = late, store.find  # type: ignore[method-assign]
    looking = asyncio.create_task(verifier._records._find((digest,)))
    await asyncio.sleep(0)
    store.find = find  # type: ignore[method-assign]
    clock.at += 0.1
    with pytest.raises(InvalidCredentialsError, match="revoked"):
        await verifier.verify(issued.text, NOW)
    slow.set()
    await looking
    with pytest.raises(InvalidCredentialsError, match="revoked"):
        await verifier.verify(issued.text, NOW)


async def test_a_key_that_is_deleted_is_unknown() -> None:
    store, clock = Store(), Clock()
    issued = store.create(owner="alice")
    verifier = ApiKeyVerifier(store, refresh=2.0, clock=clock)
    await verifier.verify(issued.text, NOW)
    with store._writing():
        store._table.records.clear()
        store._table.ids.clear()
    clock.at += 2
    with pytest.raises(InvalidCredentialsError, match="unknown"):
        await verifier.verify(issued.text, NOW)
    assert len(verifier._records.known) == 0


async def test_a_new_key_is_known_at_once_also_when_it_was_tried_before() -> None:
    store, clock = Store(), Clock()
    verifier = ApiKeyVerifier(store, refresh=2.0, clock=clock)
    with pytest.raises(InvalidCredentialsError):
        await verifier.verify(FOREIGN, NOW)
    store.import_key(FOREIGN, owner="alice")
    assert (await verifier.verify(FOREIGN, NOW)).subject == "alice"


def test_two_records_that_share_a_text_are_never_chosen_between() -> None:
    first = MemoryApiKeys()
    record = first.import_key(FOREIGN, owner="alice")
    twin = replace(record, key_id="a2a_000000000000", owner="bob", revoked=1.0)
    with pytest.raises(ConfigurationError, match="share the id or the text"):
        MemoryApiKeys([record, twin])


def test_a_verifier_serves_several_event_loops() -> None:
    store = MemoryApiKeys()
    key = store.create(owner="alice").text
    verifier = ApiKeyVerifier(store, refresh=0.01)

    async def several() -> list[str]:
        subjects = []
        for _ in range(5):
            subjects.append((await verifier.verify(key, NOW)).subject)
            await asyncio.sleep(0.01)
        return subjects

    done: list[list[str]] = []
    threads = [threading.Thread(target=lambda: done.append(asyncio.run(several()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [["alice"] * 5] * 3


# --- the last use


async def test_the_last_use_is_written_once_a_minute_and_a_key() -> None:
    store = Store()
    first, second = store.create(owner="alice"), store.create(owner="bob")
    verifier = ApiKeyVerifier(store)
    for moment in (NOW, NOW + 1, NOW + 59.9):
        await verifier.verify(first.text, moment)
    await verifier.verify(second.text, NOW + 2)
    await background(verifier)
    await verifier.verify(first.text, NOW + 60)
    await background(verifier)
    assert sum(len(used) for used in store.touched) == 3
    assert {record.key_id: record.last_used for record in store.records()} == {
        first.record.key_id: NOW + 60,
        second.record.key_id: NOW + 2,
    }


async def test_a_refused_key_leaves_no_use() -> None:
    store = Store()
    issued = store.create(owner="alice", expires=time.time() + 60)
    verifier = ApiKeyVerifier(store)
    with pytest.raises(InvalidCredentialsError):
        await verifier.verify(issued.text, issued.record.expires)
    with pytest.raises(InvalidCredentialsError):
        await verifier.verify(issued.text[:-1], NOW)
    await background(verifier)
    assert store.touched == []


async def test_uses_that_cannot_be_written_refuse_nobody_and_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    store, clock = Store(), Clock()
    keys = [store.create(owner="alice").text for _ in range(3)]
    verifier = ApiKeyVerifier(store, clock=clock)
    store.touch_error = RuntimeError(keys[0])
    for key in keys:
        assert (await verifier.verify(key, NOW)).subject == "alice"
        await background(verifier)
        clock.at += 60
    assert [record.getMessage() for record in caplog.records] == [
        "the last use of API keys could not be written: RuntimeError"
    ]
    store.touch_error = None
    await verifier.verify(keys[0], NOW + 60)
    await background(verifier)
    assert len(store.touched) == 1


async def test_a_use_alone_makes_no_revision() -> None:
    store = MemoryApiKeys()
    issued = store.create(owner="alice")
    before = (await store.find(())).revision
    await store.touch({issued.record.key_id: NOW, "a2a_unknown00000": NOW})
    assert (await store.find(())).revision == before
    await store.touch({issued.record.key_id: NOW - 1})
    assert store.records()[0].last_used == NOW
    store.revoke(issued.record.key_id)
    assert (await store.find(())).revision != before


# --- secrets stay secret


async def test_a_key_is_in_no_repr_pickle_exception_or_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store = MemoryApiKeys()
    issued = store.create(owner="alice")
    imported = store.import_key(FOREIGN, owner="bob")
    verifier = ApiKeyVerifier(store)
    identity = await verifier.verify(issued.text, NOW)
    await verifier.verify(FOREIGN, NOW)
    said = [repr(issued), str(issued), repr(imported), repr(store.records()), repr(identity), repr(identity.claims)]
    said += [repr(verifier), repr(store)]
    typo = issued.text[:-1] + ("0" if issued.text[-1] != "0" else "1")
    store.revoke(issued.record.key_id)
    for key in (issued.text, typo, typo + "0", FOREIGN + "0"):
        with pytest.raises(InvalidCredentialsError) as caught:
            await ApiKeyVerifier(store).verify(key, NOW)
        assert caught.value.__cause__ is None
        said.append(repr(caught.value))
    with pytest.raises(MalformedError) as malformed:
        key_id_of(typo)
    said.append(str(malformed.value))
    text = "\n".join([*said, caplog.text])
    for secret in (issued.text[17:40], FOREIGN, issued.record.digest.hex()):
        assert secret not in text
    assert issued.text[17:40].encode() not in pickle.dumps(store.records())
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(issued)
    with pytest.raises(TypeError, match="not pickled"):
        copy.copy(issued)


# --- configuration


@walk(("refresh", "stale"), [(0.0, 30.0), (-1.0, 30.0), (5.0, 1.0), (1.0, math.inf), (math.nan, 30.0), (1.0, math.nan)])
def test_delays_are_bounded(refresh: float, stale: float) -> None:
    with pytest.raises(ConfigurationError, match="refresh"):
        ApiKeyVerifier(MemoryApiKeys(), refresh=refresh, stale_if_error=stale)


def test_an_issuer_has_a_name() -> None:
    store: ApiKeyStore = MemoryApiKeys()
    with pytest.raises(ConfigurationError, match="issuer="):
        ApiKeyVerifier(store, issuer="")


@walk("change", [{"key_id": "alice"}, {"digest": b"short"}, {"created": math.nan}])
def test_a_record_that_says_nothing_sound_is_refused(change: dict[str, object]) -> None:
    record = MemoryApiKeys().create(owner="alice").record
    with pytest.raises(ConfigurationError, match="API key"):
        replace(record, **change)  # type: ignore[arg-type]


# --- changes that the store tells of


async def test_a_change_counts_as_soon_as_the_store_tells_of_it() -> None:
    store, clock = WatchedStore(), Clock()
    issued = store.create(owner="ann")
    verifier = ApiKeyVerifier(store, refresh=60, stale_if_error=60, clock=clock)
    await verifier.verify(issued.text, NOW)
    store.revoke(issued.record.key_id)
    await verifier.verify(issued.text, NOW)
    assert verifier.remembered(issued.text, NOW) is not None
    store.changed()
    assert verifier.remembered(issued.text, NOW) is None
    with pytest.raises(InvalidCredentialsError, match="revoked"):
        await verifier.verify(issued.text, NOW)


async def test_what_was_read_before_a_change_is_read_again_after_it() -> None:
    """A look-up in the background is under way while the store tells of the change."""
    store, clock = WatchedStore(), Clock()
    issued = store.create(owner="ann")
    verifier = ApiKeyVerifier(store, refresh=60, stale_if_error=60, clock=clock)
    await verifier.verify(issued.text, NOW)
    clock.at += 31
    store.gate.clear()
    await verifier.verify(issued.text, NOW)  # begins a look-up
    await asyncio.sleep(0)
    store.revoke(issued.record.key_id)
    store.changed()
    store.gate.set()
    await background(verifier)
    with pytest.raises(InvalidCredentialsError, match="revoked"):
        await verifier.verify(issued.text, NOW)


async def test_a_store_that_tells_of_a_change_and_goes_away_leaves_the_time_of_an_outage() -> None:
    store, clock = WatchedStore(), Clock()
    issued = store.create(owner="ann")
    verifier = ApiKeyVerifier(store, refresh=2, stale_if_error=30, clock=clock)
    await verifier.verify(issued.text, NOW)
    store.error = OSError("gone")
    store.changed()
    clock.at += 27
    await verifier.verify(issued.text, NOW)
    clock.at += 2
    with pytest.raises(KeySourceUnavailableError):
        await verifier.verify(issued.text, NOW)
