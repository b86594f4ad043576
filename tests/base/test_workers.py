"""Work on all cores: in order, bounded, without deadlocks, and without workers that stay behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from a2a_trust.base.workers import CHUNK, WorkerEndedError, in_threads, on_all_cores, usable_cores
from a2a_trust.errors import ConfigurationError
from tests.conftest import ROOT
from tests.tables import walk

linux = pytest.mark.skipif(sys.platform != "linux", reason="workers are forks on Linux only")
MANY = 12 * CHUNK


def processes_of(items: Iterable[int], count: int | None = None) -> set[int]:
    return set(on_all_cores(lambda _: os.getpid(), items, count))


def counted(number: int, count: int) -> Iterator[tuple[int, int]]:
    """How many items were read when each result came."""
    read = 0

    def numbers() -> Iterator[int]:
        nonlocal read
        for item in range(1, number + 1):
            read = item
            yield item

    for result in on_all_cores(lambda item: item, numbers(), count):
        yield result, read


def test_the_default_is_a_worker_for_each_core_that_may_be_used() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


@walk("count", [0, -1, True, 1.0])
def test_a_number_of_workers_that_is_none_is_an_error(count: int) -> None:
    with pytest.raises(ConfigurationError, match="workers: write the number"):
        on_all_cores(str, [], count)


# Each of these runs in a process of its own, without threads: pytest with xdist has some.


def keeps_the_order() -> None:
    """The first worker of each pair of chunks is the slower one."""

    def slow_for_even(number: int) -> int:
        if number % (2 * CHUNK) == 0:
            time.sleep(0.05)
        return number

    assert list(on_all_cores(slow_for_even, range(MANY + 1), 2)) == list(range(MANY + 1))


def reads_few_chunks_ahead() -> None:
    results = list(counted(MANY, 2))
    assert [result for result, _ in results] == list(range(1, MANY + 1))
    assert max(read - result for result, read in results) <= 8 * CHUNK
    assert [result for result, _ in counted(CHUNK + 1, 2)] == list(range(1, CHUNK + 2))


def works_in_forks() -> None:
    """With state that cannot be pickled."""
    lock = threading.Lock()
    processes = set(on_all_cores(lambda _: (lock.locked(), os.getpid()), range(MANY), 2))
    assert len(processes) == 2
    assert (False, os.getpid()) not in processes


def works_here_where_forks_do_not_pay() -> None:
    assert processes_of(range(MANY), 1) == processes_of(range(CHUNK)) == {os.getpid()}
    assert processes_of([]) == set()
    assert all(result == read for result, read in counted(MANY, 1))


def works_here_beside_threads() -> None:
    """A fork has the locks of threads that it does not have."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    processes = processes_of(range(MANY), 2)
    over.set()
    thread.join()
    assert processes == {os.getpid()}
    assert os.getpid() not in processes_of(range(MANY), 2)


def sends_large_chunks_and_large_results() -> None:
    data = [bytes([number % 256]) * 20_000 for number in range(4 * CHUNK)]
    assert list(on_all_cores(lambda each: each, data, 2)) == data


def shows_a_defect_in_the_work() -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        list(on_all_cores(lambda number: 1 // (number - 3), range(MANY), 2))
    with pytest.raises(ZeroDivisionError):
        list(on_all_cores(lambda number: 1 // (number - 3), range(MANY), 1))


def fails_when_a_worker_is_killed() -> None:
    def ending(number: int) -> None:
        if number == 5 * CHUNK:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerEndedError, match="exit code -9"):
        list(on_all_cores(ending, range(MANY), 2))


def leaves_no_worker_when_the_results_are_not_taken() -> None:
    results = on_all_cores(lambda _: os.getpid(), range(MANY), 2)
    process = next(results)
    assert lives(process)
    results.close()  # type: ignore[attr-defined]
    assert not lives(process)


@linux
@pytest.mark.parametrize(
    "check",
    [
        keeps_the_order,
        reads_few_chunks_ahead,
        works_in_forks,
        works_here_where_forks_do_not_pay,
        works_here_beside_threads,
        sends_large_chunks_and_large_results,
        shows_a_defect_in_the_work,
        fails_when_a_worker_is_killed,
        leaves_no_worker_when_the_results_are_not_taken,
    ],
    ids=lambda check: check.__name__,
)
def test_work_on_all_cores(check: Callable[[], None]) -> None:
    script = f"from tests.base.test_workers import {check.__name__}; {check.__name__}()"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


_PARENT = """
import os, signal, sys, time
from a2a_trust.base.workers import CHUNK, on_all_cores

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored

def work(number):
    if number % CHUNK == 0:
        with open(sys.argv[1], "a") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(0.05)

for number, _ in enumerate(on_all_cores(work, range(1_000 * CHUNK), 3)):
    if number == 20 * CHUNK:
        os.kill(os.getpid(), getattr(signal, sys.argv[2]))
"""


@linux
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_no_worker_outlives_its_parent(name: str, tmp_path: Path) -> None:
    notes = tmp_path / "processes"
    command = [sys.executable, "-c", _PARENT, str(notes), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "Process" not in done.stderr  # multiprocessing would show how each worker ended
    processes = set(map(int, notes.read_text().split()))
    assert len(processes) == 3
    until = time.monotonic() + 60
    while any(map(lives, processes)):
        assert time.monotonic() < until
        time.sleep(0.01)


def lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_threads_keep_the_order_and_read_few_ahead() -> None:
    read = 0

    def numbers() -> Iterator[int]:
        nonlocal read
        for number in range(1, 301):
            read = number
            yield number

    names = set()
    for number, (result, name) in enumerate(in_threads(slow_named, numbers()), 1):
        assert result == number
        assert read - number <= 64
        names.add(name)
    assert 1 < len(names) <= 16
    assert list(in_threads(slow_named, [1])) == [(1, threading.current_thread().name)]
    assert list(in_threads(slow_named, [])) == []


def slow_named(number: int) -> tuple[int, str]:
    time.sleep(0.01 if number % 3 else 0)
    return number, threading.current_thread().name
