"""API keys in SQLite, 10,000 and 1,000,000 of them: what a request pays, and what the whole store does to a process.

``python -m benchmarks.api_keys [NUMBER]`` measures the whole: the first answer of a new process, its memory, and the
slowest request while keys are changed.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from hashlib import scrypt, sha256
from pathlib import Path
from time import perf_counter
from typing import Final

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier
from a2a_trust.auth.record_table import SqliteApiKeys
from benchmarks.rounds import Contender, Row, Timer, calls_per_round, repeated
from benchmarks.setting import Setting
from benchmarks.tokens import LOOP, awaited

__all__ = ["key_of", "rows", "store_of"]

_NUMBERS: Final = (10_000, 1_000_000)


def key_of(number: int) -> str:
    """The text of a key of ``store_of``; real ones are as long."""
    return f"a2a_{number:012}_{sha256(str(number).encode()).hexdigest()[:38]}"


def store_of(path: Path, number: int) -> SqliteApiKeys:
    """A store of so many keys, made in one transaction: one by one, a million would take an hour."""
    store = SqliteApiKeys(path, create=True)
    rows = (
        (f"a2a_{each:012}", sha256(key_of(each).encode()).digest(), f"owner {each}", "read", 1.7e9, math.inf)
        for each in range(number)
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript("PRAGMA cache_size = -600000; PRAGMA synchronous = OFF; BEGIN")
        connection.executemany("INSERT INTO api_key VALUES (?, ?, ?, ?, ?, ?, NULL, NULL, 0, NULL)", rows)
        connection.execute("COMMIT")
    return store


def rows(setting: Setting) -> Iterator[Row]:
    """A key to its owner."""
    text = key_of(5)
    with tempfile.TemporaryDirectory() as folder:
        stores = {number: store_of(Path(folder, f"{number}.db"), number) for number in _NUMBERS}
        yield Row(
            title="API key in memory",
            baseline=_FLOOR,
            contenders=(
                _floor(text),
                *(
                    Contender(name=f"a2a_trust, {number:,} keys", timer=_hit(store, text), target=1.6)
                    for number, store in stores.items()
                ),
            ),
            rounds=setting.rounds(60),
        )
        yield Row(
            title="API key that is looked up in SQLite",
            baseline=_FLOOR,
            contenders=(
                _floor(text),
                *(
                    Contender(name=f"a2a_trust, {number:,} keys, {how}", timer=_misses(store, number, at_once))
                    for number, store in stores.items()
                    for how, at_once in (("one by one", 1), ("100 at once", 100))
                ),
            ),
            rounds=setting.rounds(60),
        )
        LOOP.run_until_complete(asyncio.sleep(2))  # last uses are on their way to the files
    # A row of its own: it leaves cold caches to whoever comes after it.
    yield Row(
        title="API key, kept under a slow hash",
        baseline=_FLOOR,
        contenders=(
            _floor(text),
            *setting.available("argon2-cffi", lambda: _argon2id(text)),
            Contender(name="scrypt of the standard library (n=2^15, r=8)", timer=_scrypt(text)),
        ),
        rounds=setting.rounds(15),
        notes=("as for passwords, which are not random",),
    )


_FLOOR: Final = "sha256 of it and a dict (floor)"


def _floor(text: str) -> Contender:
    known = {sha256(text.encode()).digest(): True}
    return Contender(name=_FLOOR, timer=repeated(lambda: known.get(sha256(text.encode()).digest())))


def _hit(store: SqliteApiKeys, text: str) -> Timer:
    verifier, now = ApiKeyVerifier(store), time.time()
    return awaited(lambda: verifier.verify(text, now))


def _misses(store: SqliteApiKeys, number: int, at_once: int) -> Timer:
    """Keys that no request has used before, in a process that has just started."""
    now, steps = time.time(), itertools.count(0, 7919)

    async def timed(calls: int) -> float:
        verifier = ApiKeyVerifier(store)
        start = perf_counter()
        for _ in range(calls):
            keys = [key_of(next(steps) % number) for _ in range(at_once)]
            await asyncio.gather(*(verifier.verify(key, now) for key in keys))
        return (perf_counter() - start) / calls / at_once

    calls = calls_per_round(LOOP.run_until_complete(timed(3)) * at_once)
    return lambda: LOOP.run_until_complete(timed(calls))


def _argon2id(key: str) -> Contender:
    from argon2 import PasswordHasher

    hasher = PasswordHasher()
    kept = hasher.hash(key)
    return Contender(name="argon2id (argon2-cffi, its defaults)", timer=repeated(lambda: hasher.verify(kept, key)))


def _scrypt(key: str) -> Timer:
    salt = bytes(16)
    return repeated(lambda: scrypt(key.encode(), salt=salt, n=2**15, r=8, p=1, maxmem=2**26))


async def _first_answer(path: Path) -> None:
    """In a new process: the time to the first answer, and what the process takes when its memory of keys is full."""
    start = perf_counter()
    verifier = ApiKeyVerifier(SqliteApiKeys(path))
    await verifier.verify(key_of(5), time.time())
    print(f"first answer, after the imports: {(perf_counter() - start) * 1e3:.0f} ms; {_resident()}")
    with closing(sqlite3.connect(path)) as connection:
        (number,) = connection.execute("SELECT count(*) FROM api_key").fetchone()
    step = max(1, number // 50_000)
    for begin in range(0, number, 1000 * step):
        keys = [key_of(each) for each in range(begin, min(begin + 1000 * step, number), step)]
        await asyncio.gather(*(verifier.verify(key, time.time()) for key in keys))
    print(f"after requests with {len(range(0, number, step)):,} keys: {_resident()}")


def _resident() -> str:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(f"{int(line.split()[1]) / 1000:.0f} MB" for line in status.splitlines() if line.startswith("VmRSS"))


_CHANGES: Final = """
import sys, time
from a2a_trust import SqliteApiKeys
store = SqliteApiKeys(sys.argv[1])
for _ in range(20):
    store.revoke(store.create(owner="a new one").record.key_id)
    time.sleep(0.2)
"""


async def _under_changes(path: Path, number: int, refresh: float) -> None:
    """The slowest of many requests, of 200 callers, while another process changes keys and while it does not."""
    verifier = ApiKeyVerifier(SqliteApiKeys(path), refresh=refresh)
    keys = [key_of(each) for each in range(0, number, number // 200)]
    for key in keys:
        await verifier.verify(key, time.time())
    for when in ("nothing changes", "40 changes in 5 s"):
        command = [sys.executable, "-c", _CHANGES if when[0] == "4" else "import time; time.sleep(5)", str(path)]
        taken: list[float] = []
        with subprocess.Popen(command) as process:
            while process.poll() is None:
                for key in keys:
                    start = perf_counter()
                    await verifier.verify(key, time.time())
                    taken.append(perf_counter() - start)
                await asyncio.sleep(0.005)
        taken.sort()
        print(f"{when}: {len(taken):,} requests; the slowest {taken[-1] * 1e3:.1f} ms, 99.9 % within ", end="")
        print(f"{taken[len(taken) * 999 // 1000] * 1e3:.2f} ms")


async def _new_key(path: Path) -> None:
    """The first request with a key that was just made."""
    store = SqliteApiKeys(path)
    verifier = ApiKeyVerifier(SqliteApiKeys(path))
    await verifier.verify(key_of(5), time.time())
    made = perf_counter()
    issued = await asyncio.to_thread(lambda: store.create(owner="a new one"))
    known = perf_counter()
    await verifier.verify(issued.text, time.time())
    print(f"a new key: made in {(known - made) * 1e3:.1f} ms, known {(perf_counter() - known) * 1e3:.1f} ms later")


def main() -> None:
    """Measure a store of so many keys, in a new process where that matters."""
    if sys.argv[1:2] == ["first-answer"]:
        asyncio.run(_first_answer(Path(sys.argv[2])))
        return
    number = int(sys.argv[1]) if sys.argv[1:] else _NUMBERS[-1]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "keys.db")
        store_of(path, number)
        print(f"{number:,} keys, {path.stat().st_size / 1e6:.0f} MB", flush=True)
        subprocess.run([sys.executable, "-m", "benchmarks.api_keys", "first-answer", str(path)], check=True)
        asyncio.run(_new_key(path))
        asyncio.run(_under_changes(path, number, refresh=2.0))


if __name__ == "__main__":
    main()
