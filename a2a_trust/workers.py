"""Work on many things on all cores: in worker processes, in order, and in bounded memory.

Threads would not help: the interpreter runs one at a time, and the work is computing.

- A worker is a fork where that is safe: on Linux, and with no other thread of Python. It has the state from the start,
  with open files, locks and private keys, which are never copied through a pipe.
- Otherwise a worker is a new interpreter, and the state is pickled. State that cannot be pickled is worked on here.
- One chunk is worked on here as well: to start workers takes longer.

A worker ends when its pipe closes. So no worker outlives this process, however it ends.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from itertools import chain, islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from a2a_trust.errors import ConfigurationError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from queue import SimpleQueue

_S = TypeVar("_S")
_C = TypeVar("_C")
_R = TypeVar("_R")

CHUNK: Final = 250
"""The number of cards in a chunk: some 40 ms of work, so the way through the pipe takes little of it."""
_AHEAD: Final = 4
"""So many chunks of each worker may be done before an earlier chunk of another one is."""
_JOIN_SECONDS: Final = 5.0
_THREADS: Final = 16
"""For work that waits for the network."""


class WorkerEndedError(OSError):
    """A worker process has ended in the middle of its work: it was killed, or the memory was exhausted."""


def usable_cores() -> int:
    """The number of cores that this process may use."""
    of_this_process = getattr(os, "sched_getaffinity", None)  # Linux
    return (os.cpu_count() or 1) if of_this_process is None else len(of_this_process(0))


def chunks_of(items: Iterable[_C]) -> Iterator[list[_C]]:
    """The items in lists of ``CHUNK``; the last one may be shorter."""
    rest = iter(items)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk


def in_threads(work: Callable[[_C], _R], items: Iterable[_C]) -> Iterator[_R]:
    """The result of ``work`` for each item, in order, for work that waits for the network.

    A single item is worked on in the thread of the caller.
    """
    rest = iter(items)
    first = list(islice(rest, 2))
    if len(first) < 2:
        yield from map(work, first)
        return
    from concurrent.futures import Future, ThreadPoolExecutor

    waiting: deque[Future[_R]] = deque()
    with ThreadPoolExecutor(_THREADS) as threads:
        try:
            for item in chain(first, rest):
                waiting.append(threads.submit(work, item))
                if len(waiting) >= _AHEAD * _THREADS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


class Workers(Generic[_S]):
    """Workers that share a state, as a context manager.

    The state is in a context manager, too: every worker enters it when it begins, and leaves it at the end. Between
    two chunks a worker may keep things in its copy of the state; ``each`` goes on with them.
    """

    def __init__(
        self, state: AbstractContextManager[_S], count: int | None = None, *, is_picklable: bool = True
    ) -> None:
        """``count`` is the number of workers; default: one for each usable core.

        ``is_picklable=False``: the state may reach a worker by a fork only.
        """
        if count is not None and (type(count) is not int or count < 1):
            raise ConfigurationError("workers: write the number of worker processes, 1 or more, or leave it out")
        self._state = state
        self._count = usable_cores() if count is None else count
        self._is_picklable = is_picklable
        self._workers: list[_Worker] = []
        self._here: tuple[_S] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.connection.close()
        for worker in self._workers:
            worker.end()
        self._workers.clear()
        if self._here is not None:
            self._here = None
            self._state.__exit__(kind, error, trace)

    def map(self, work: Callable[[_S, _C], _R], chunks: Iterable[_C]) -> Iterator[_R]:
        """The result of ``work`` for each chunk, in order. Both functions are of a module, as for ``pickle``.

        WorkerEndedError: a worker was killed.
        """
        rest = iter(chunks)
        first = list(islice(rest, 2))
        here = self._start(is_wanted=len(first) > 1)
        if here is not None:
            for chunk in chain(first, rest):
                yield work(here[0], chunk)
            return
        yield from self._by_workers(work, chain(first, rest))

    def each(self, work: Callable[[_S], _R]) -> list[_R]:
        """The result of ``work`` in every worker."""
        here = self._start(is_wanted=False)
        if here is not None:
            return [work(here[0])]
        for worker in self._workers:
            worker.send((work,))
        return [worker.receive() for worker in self._workers]

    def _by_workers(self, work: Callable[[_S, _C], _R], chunks: Iterator[_C]) -> Iterator[_R]:
        """A worker has one chunk and the next one, so it does not wait for us."""
        from multiprocessing.connection import wait

        by_connection = {worker.connection: worker for worker in self._workers}
        free = deque([*self._workers, *self._workers])
        given: dict[_Worker, deque[int]] = {worker: deque() for worker in self._workers}
        done: dict[int, _R] = {}
        numbered = enumerate(chunks)
        following = 0
        is_over = False
        while True:
            while free and not is_over and sum(map(len, given.values())) + len(done) < _AHEAD * len(self._workers):
                number, chunk = next(numbered, (-1, None))
                is_over = number < 0
                if chunk is not None:
                    worker = free.popleft()
                    worker.send((work, chunk))
                    given[worker].append(number)
            busy = [worker.connection for worker in self._workers if given[worker]]
            if not busy:
                return
            for ready in wait(busy):
                worker = by_connection[ready]  # type: ignore[index]  # what was given comes back
                done[given[worker].popleft()] = worker.receive()
                free.append(worker)
            while following in done:
                yield done.pop(following)
                following += 1

    def _start(self, *, is_wanted: bool) -> tuple[_S] | None:
        """Start the workers if they are wanted and possible; otherwise return the state, which is entered here."""
        if self._workers or self._here is not None:
            return self._here
        can_fork = sys.platform == "linux" and threading.active_count() == 1
        if not is_wanted or self._count == 1 or not (can_fork or self._is_picklable):
            self._here = (self._state.__enter__(),)
            return self._here
        import multiprocessing  # slow, and not needed for a few cards

        context: Any = multiprocessing.get_context("fork" if can_fork else "spawn")
        for _ in range(self._count):
            ours, theirs = context.Pipe()
            others = [worker.connection for worker in self._workers] if can_fork else []
            process = context.Process(target=_serve, args=(theirs, [ours, *others] if can_fork else [], self._state))
            self._workers.append(_Worker(process, ours))
            process.start()
            theirs.close()
        return None


class _Worker:
    __slots__ = ("_process", "connection")

    def __init__(self, process: BaseProcess, connection: Connection) -> None:
        self._process = process
        self.connection = connection

    def send(self, task: tuple[Any, ...]) -> None:
        try:
            self.connection.send(task)
        except OSError:
            raise self._ended() from None

    def receive(self) -> Any:
        try:
            result, failure = self.connection.recv()
        except (EOFError, OSError):
            raise self._ended() from None
        if failure:
            raise RuntimeError(f"a worker process failed:\n{failure}")
        return result

    def end(self) -> None:
        """Wait for the process, which ends because its pipe is closed."""
        with suppress(AssertionError, ValueError):  # it was not started
            self._process.join(_JOIN_SECONDS)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
            self._process.close()

    def _ended(self) -> WorkerEndedError:
        self._process.join(_JOIN_SECONDS)
        return WorkerEndedError(
            f"a worker process has ended (exit code {self._process.exitcode}); run again, with more memory if it was "
            "killed for that. A program that uses several cores needs: if __name__ == '__main__':"
        )


def _serve(connection: Connection, inherited: list[Connection], shared: AbstractContextManager[Any]) -> None:
    """The life of a worker. ``inherited`` are the ends of pipes that only its parent may hold."""
    import traceback  # these two are slow, and only workers need them
    from queue import SimpleQueue

    gc.freeze()  # a collection would write to every page that this process shares with its parent
    for each in inherited:
        each.close()
    tasks: SimpleQueue[tuple[Any, ...] | None] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, tasks), daemon=True).start()
    with suppress(BrokenPipeError, ConnectionResetError, KeyboardInterrupt), shared as state:
        while (task := tasks.get()) is not None:
            work, *chunk = task
            try:
                result = work(state, *chunk), ""
            except Exception:  # noqa: BLE001  of a defect here: the parent raises it again
                result = None, traceback.format_exc()
            connection.send(result)


def _receive(connection: Connection, tasks: SimpleQueue[tuple[Any, ...] | None]) -> None:
    """Take tasks out of the pipe at once: if both ends waited until the other one reads, they would wait for ever."""
    with suppress(EOFError, OSError):
        while True:
            tasks.put(connection.recv())
    tasks.put(None)
