"""A store of very many keys: what a request costs does not grow with their number. Counts and bytes, no times."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from a2a_trust.auth import records
from a2a_trust.auth.api_key.verifier import ApiKeyRecord, ApiKeyVerifier
from a2a_trust.auth.record_table import SqliteApiKeys
from a2a_trust.auth.records import Found
from a2a_trust.errors import InvalidCredentialsError
from benchmarks.api_keys import key_of, store_of
from tests.auth.api_key.test_verifier import NOW, Clock, background


class Counted(SqliteApiKeys):
    """Counts what is looked up, and the steps that SQLite takes for it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.looked_up = 0
        self.steps = 0
        self._look_up = self._find
        self._find = self._count_steps  # type: ignore[method-assign]

    async def find(self, digests: tuple[bytes, ...]) -> Found[ApiKeyRecord]:
        self.looked_up += len(digests)
        return await super().find(digests)

    def _count_steps(self, keys: Sequence[str | bytes]) -> Found[ApiKeyRecord]:
        self._look_up(())  # the connection is open
        opened = self._reader._opened
        assert opened is not None
        opened.set_progress_handler(self._step, 1)
        try:
            return self._look_up(keys)
        finally:
            opened.set_progress_handler(None, 1)

    def _step(self) -> None:
        self.steps += 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


def made(folder: Path, number: int) -> Counted:
    path = folder / f"{number}.db"
    if not path.exists():
        store_of(path, number)
    return Counted(path)


def test_a_look_up_reads_the_same_however_many_keys_there_are(folder: Path, is_long: bool) -> None:
    steps = {}
    for number in (200, 1_000_000 if is_long else 20_000):
        store = made(folder, number)

        async def served(store: Counted = store, number: int = number) -> None:
            verifier = ApiKeyVerifier(store)
            for each in (0, number // 2, number - 1):
                assert (await verifier.verify(key_of(each), NOW)).subject == f"owner {each}"
            with pytest.raises(InvalidCredentialsError):
                await verifier.verify(key_of(number), NOW)
            await background(verifier)

        asyncio.run(served())
        assert store.looked_up == 4
        steps[number] = store.steps
    few, many = steps.values()
    assert 0 < many <= 2 * few, steps


def test_memory_holds_the_keys_that_are_used_and_not_the_store(folder: Path, is_long: bool) -> None:
    number = 1_000_000 if is_long else 20_000
    store = made(folder, number)

    async def served() -> int:
        verifier = ApiKeyVerifier(store)
        tracemalloc.start()
        try:
            await asyncio.gather(*(verifier.verify(key_of(each), NOW) for each in range(500)))
            await background(verifier)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert asyncio.run(served()) < 4_000_000  # 20,000 records take 10 MB


def test_memory_is_bounded_and_unknown_keys_take_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_MOST_RECORDS", 300)
    store = made(folder, 20_000)

    async def served() -> None:
        verifier = ApiKeyVerifier(store, clock=Clock())
        for each in range(1000):
            await verifier.verify(key_of(each), NOW)
        assert len(verifier._records.known) == len(verifier._records.at_once) == 300
        kept = store.looked_up
        flood = [verifier.verify(f"{key_of(30_000 + each)}", NOW) for each in range(2000)]
        refused = await asyncio.gather(*flood, return_exceptions=True)
        assert {type(each) for each in refused} == {InvalidCredentialsError}
        assert store.looked_up == kept + 2000
        for each in range(700, 1000):
            await verifier.verify(key_of(each), NOW)
        assert store.looked_up == kept + 2000, "the flood drove good keys out"
        await background(verifier)

    asyncio.run(served())


def test_a_change_makes_only_the_keys_that_are_used_be_looked_up_again(folder: Path, is_long: bool) -> None:
    number = 1_000_000 if is_long else 20_000
    store, clock = made(folder, number), Clock()
    others = SqliteApiKeys(folder / f"{number}.db")

    async def served() -> None:
        verifier = ApiKeyVerifier(store, refresh=2.0, clock=clock)
        for each in range(100):
            await verifier.verify(key_of(each), NOW)
        await background(verifier)
        before = store.looked_up
        others.revoke(f"a2a_{7:012}")
        new = others.create(owner="alice")
        clock.at += 1.5
        for some in (range(1), range(1, 100)):  # in the background: nobody waits, also when the change is known
            for each in some:
                with pytest.raises(StopIteration):
                    verifier.verify(key_of(each), NOW).send(None)
            await background(verifier)
        assert store.looked_up == before + 100
        assert (await verifier.verify(new.text, NOW)).subject == "alice"
        with pytest.raises(InvalidCredentialsError, match="revoked"):
            await verifier.verify(key_of(7), NOW)
        assert (await verifier.verify(key_of(8), NOW)).subject == "owner 8"
        assert store.looked_up == before + 101
        await background(verifier)

    asyncio.run(served())
