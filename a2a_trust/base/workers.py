"""Work on many things on all cores, or in threads: in order, and in bounded memory.

- Computing needs processes, because the interpreter runs one thread at a time. A worker is a fork of this process. So
  it has keys and settings from the start, and they are never copied through a pipe.
- A fork also has the locks of threads that it does not have. So a process with threads does all work itself. So does
  one on another system than Linux.
- A worker ends when its pipe closes. So no worker outlives this process, however it ends.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from a2a_trust.errors import ConfigurationError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

_C = TypeVar("_C")
_R = TypeVar("_R")

CHUNK: Final = 250
"""The number of cards in a chunk: some 40 ms of work, so the way through the pipe takes little of it."""
_AHEAD: Final = 4
"""So many chunks of each worker may be done before an earlier chunk of another one is."""
_THREADS: Final = 16
"""For work that waits for the network."""


class WorkerEndedError(OSError):
    """A worker process has ended in the middle of its work: it was killed, or the memory was exhausted."""


def usable_cores() -> int:
    """The number of cores that this process may use."""
    of_this_process = getattr(os, "sched_getaffinity", None)  # Linux
    return (os.cpu_count() or 1) if of_this_process is None else len(of_this_process(0))


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


def on_all_cores(work: Callable[[_C], _R], items: Iterable[_C], count: int | None = None) -> Iterator[_R]:
    """The result of ``work`` for each item, in order, for work that computes. Items and results are pickled.

    ``count`` is the number of worker processes; default: one for each usable core. One chunk of items is worked on
    here: to start workers takes longer.

    ConfigurationError: ``count`` is wrong. WorkerEndedError, while the results come: a worker was killed.
    """
    if count is not None and (type(count) is not int or count < 1):
        raise ConfigurationError("workers: write the number of worker processes, 1 or more, or leave it out")
    return _results(work, iter(items), usable_cores() if count is None else count)


def _results(work: Callable[[_C], _R], items: Iterator[_C], count: int) -> Iterator[_R]:
    can_fork = sys.platform == "linux" and threading.active_count() == 1
    first = list(islice(items, CHUNK + 1)) if can_fork and count > 1 else []
    if len(first) <= CHUNK:
        yield from map(work, chain(first, items))
        return
    from multiprocessing import get_context  # slow, and not needed for a few cards

    context = get_context("fork")
    workers: dict[Any, BaseProcess] = {}
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            process: BaseProcess = context.Process(target=_serve, args=(theirs, [ours, *workers], work), daemon=True)
            process.start()
            theirs.close()
            workers[ours] = process
        yield from _by_workers(workers, chain(first, items))
    finally:
        for connection, process in workers.items():
            process.kill()  # it only computes, so nothing is lost
            process.join()
            process.close()
            connection.close()


def _by_workers(workers: dict[Any, BaseProcess], items: Iterator[_C]) -> Iterator[Any]:
    from multiprocessing.connection import wait

    idle = list(workers)
    under_way = dict[Any, list[list[Any]]]()
    ordered = deque[list[list[Any]]]()
    """A place for the results of each chunk, in order; empty while a worker has the chunk."""
    while True:
        while idle and len(ordered) < _AHEAD * len(workers) and (chunk := list(islice(items, CHUNK))):
            connection = idle.pop()
            with suppress(OSError):  # the worker was killed, which the next step notices
                connection.send(chunk)
            ordered.append([])
            under_way[connection] = ordered[-1]
        if not under_way:
            return
        for ready in wait(list(under_way)):
            under_way.pop(ready).append(_receive(ready, workers[ready]))
            idle.append(ready)
        while ordered and ordered[0]:
            yield from ordered.popleft()[0]


def _receive(connection: Any, process: BaseProcess) -> list[Any]:
    results: list[Any]
    try:
        results, failure = connection.recv()
    except (EOFError, OSError):
        process.join()
        raise WorkerEndedError(
            f"a worker process has ended (exit code {process.exitcode}); run again, with more memory if it was killed "
            "for that"
        ) from None
    if failure:
        raise RuntimeError(f"a worker process failed:\n{failure}")
    return results


def _serve(connection: Connection, inherited: list[Connection], work: Callable[[Any], Any]) -> None:
    """The life of a worker. ``inherited`` are the ends of pipes that only its parent may hold."""
    with suppress(EOFError, OSError, KeyboardInterrupt):
        import traceback  # slow, and only workers need it

        gc.freeze()  # a collection would write to every page that this process shares with its parent
        for each in inherited:
            each.close()
        while True:
            chunk = connection.recv()
            try:
                result = list(map(work, chunk)), ""
            except Exception:  # noqa: BLE001  of a defect here: the parent raises it again
                result = [], traceback.format_exc()
            connection.send(result)
