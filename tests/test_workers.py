"""Work in worker processes: in order, bounded, without deadlocks, and without workers that stay behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from a2a_trust.errors import ConfigurationError
from a2a_trust.workers import CHUNK, WorkerEndedError, Workers, chunks_of, in_threads, usable_cores
from tests.conftest import ROOT
from tests.tables import walk

linux = pytest.mark.skipif(sys.platform != "linux", reason="workers are forks on Linux only")


@dataclass
class Kept:
    """A state in which each worker keeps what it has seen."""

    seen: list[int] = field(default_factory=list)

    def take(self, number: int) -> tuple[int, int]:
        self.seen.append(number)
        return number, os.getpid()

    def all(self) -> tuple[int, list[int]]:
        return os.getpid(), self.seen


def slow_for_even(_: None, number: int) -> int:
    time.sleep(0.02 if number % 2 == 0 else 0)
    return number


def echoed(_: None, data: bytes) -> bytes:
    return data


def failing(_: None, number: int) -> int:
    return 1 // number


def ending(_: None, number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def process_of(_: object, __: int) -> int:
    return os.getpid()


def test_chunks_have_all_items_in_order() -> None:
    chunks = list(chunks_of(range(2 * CHUNK + 1)))
    assert [len(chunk) for chunk in chunks] == [CHUNK, CHUNK, 1]
    assert [item for chunk in chunks for item in chunk] == list(range(2 * CHUNK + 1))
    assert list(chunks_of(())) == []


def test_the_default_is_a_worker_for_each_core_that_may_be_used() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


@walk("count", [0, -1, True, 1.0])
def test_a_number_of_workers_that_is_none_is_an_error(count: int) -> None:
    with pytest.raises(ConfigurationError, match="workers: write the number"):
        Workers(nullcontext(), count)


@walk("count", [1, 2])
def test_results_come_in_the_order_of_the_chunks(count: int) -> None:
    with Workers(nullcontext(), count) as workers:
        assert list(workers.map(slow_for_even, range(30))) == list(range(30))
        assert list(workers.map(slow_for_even, range(5))) == list(range(5))


@pytest.mark.parametrize("count", [1, 2])
def test_few_chunks_are_read_ahead(count: int) -> None:
    read = 0

    def numbers() -> Iterator[int]:
        nonlocal read
        for number in range(1, 61):
            read = number
            yield number

    with Workers(nullcontext(), count) as workers:
        for number in workers.map(slow_for_even, numbers()):
            assert read - number <= 4 * count


def in_a_process_without_threads(check: str) -> None:
    """Run a function of this module where nothing else runs: pytest with xdist has threads."""
    script = f"from tests.test_workers import {check}; {check}()"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def goes_on_with_what_it_has_kept() -> None:
    with Workers(nullcontext(Kept()), 2, is_picklable=False) as workers:
        taken = dict(workers.map(Kept.take, range(40)))
        kept = dict(workers.each(Kept.all))
    assert len(kept) == 2
    assert os.getpid() not in kept
    assert {number: process for process, seen in kept.items() for number in seen} == taken


def has_state_that_cannot_be_pickled() -> None:
    with Workers(nullcontext(threading.Lock()), 2, is_picklable=False) as workers:
        assert os.getpid() not in set(workers.map(process_of, range(4)))


@linux
def test_a_worker_goes_on_with_what_it_has_kept() -> None:
    in_a_process_without_threads("goes_on_with_what_it_has_kept")


@linux
def test_a_fork_has_state_that_cannot_be_pickled() -> None:
    in_a_process_without_threads("has_state_that_cannot_be_pickled")


@walk(("count", "chunks"), [(1, 4), (2, 1), (2, 0)])
def test_one_chunk_and_one_worker_need_no_process(count: int, chunks: int) -> None:
    with Workers(nullcontext(Kept()), count) as workers:
        assert {process for _, process in workers.map(Kept.take, range(chunks))} <= {os.getpid()}
        assert workers.each(Kept.all) == [(os.getpid(), list(range(chunks)))]


@pytest.mark.parametrize("is_picklable", [True, False])
def test_a_process_with_threads_is_not_forked(is_picklable: bool) -> None:
    """A fork has the locks of threads that it does not have."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        with Workers(nullcontext(), 2, is_picklable=is_picklable) as workers:
            processes = set(workers.map(process_of, range(4)))
    finally:
        over.set()
        thread.join()
    assert (os.getpid() in processes) is not is_picklable


def test_large_chunks_and_large_results_do_not_wait_for_each_other() -> None:
    data = [bytes([number]) * 3_000_000 for number in range(12)]
    with Workers(nullcontext(), 2) as workers:
        assert list(workers.map(echoed, data)) == data


def test_a_defect_in_the_work_is_shown_where_the_work_was_asked_for() -> None:
    with Workers(nullcontext(), 2) as workers, pytest.raises(RuntimeError, match="ZeroDivisionError"):
        list(workers.map(failing, [1, 2, 0, 4]))
    with Workers(nullcontext(), 1) as workers, pytest.raises(ZeroDivisionError):
        list(workers.map(failing, [1, 2, 0, 4]))


def test_a_worker_that_is_killed_is_an_error() -> None:
    with Workers(nullcontext(), 2) as workers, pytest.raises(WorkerEndedError, match="exit code -9"):
        list(workers.map(ending, range(1, 50)))


def test_every_process_leaves_the_state_that_it_entered(tmp_path: Path) -> None:
    with Workers(noted(tmp_path), 2, is_picklable=False) as workers:
        processes = set(workers.map(process_of, range(8)))
    names = {f"{process} {what}" for process in processes for what in ("entered", "left")}
    assert {path.name for path in tmp_path.iterdir()} == names


@contextmanager
def noted(folder: Path) -> Iterator[None]:
    (folder / f"{os.getpid()} entered").touch()
    yield
    (folder / f"{os.getpid()} left").touch()


_PARENT = """
import os, signal, sys, time
from contextlib import nullcontext
from a2a_trust.workers import Workers

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored

def work(_, number):
    with open(sys.argv[1], "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(0.05)

with Workers(nullcontext(), 3) as workers:
    for number, _ in enumerate(workers.map(work, range(1_000))):
        if number == 20:
            os.kill(os.getpid(), getattr(signal, sys.argv[2]))
"""


@linux
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_no_worker_outlives_its_parent(name: str, tmp_path: Path) -> None:
    notes = tmp_path / "processes"
    done = subprocess.run([sys.executable, "-c", _PARENT, notes, name], capture_output=True, text=True, check=False)
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
