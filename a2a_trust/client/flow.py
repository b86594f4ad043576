"""The steps of a flow, and the two drivers that run it.

A flow is a generator. It yields a step, gets the step's result or error, and returns its own result at the end. It uses
neither sockets nor event loops, so one flow serves sync and async programs. The drivers ``Blocking`` and ``Awaiting``
take the steps; they differ only in how they wait.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Generator, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from threading import Lock, get_ident
from typing import Any, Final, Self, TypeAlias, TypeVar, cast

import anyio
import anyio.to_thread

from a2a_trust.errors import ConfigurationError, TrustError

T = TypeVar("T")


class HiddenHeaders(dict[str, str]):
    """Headers that may be credentials, with an empty repr, because tracebacks show locals."""

    def __repr__(self) -> str:
        return "{…}"


@dataclass(frozen=True, slots=True)
class InThread:
    """A call that may wait for a disk, or take long, so not on an event loop."""

    call: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """The result of a function of the program; asynchronous functions are for programs with an event loop."""

    function: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Answered:
    """Wait for a future that another thread or task completes: True. False: the event loop of this thread, which is one
    of ``threads``, has to complete it, so to wait would be a deadlock."""

    future: Future[None]
    threads: frozenset[int]


@dataclass(frozen=True, slots=True)
class ToTheEnd:
    """The result of a flow that goes on when its caller is cancelled. ``ended`` is called at its end in every case."""

    flow: Generator[Any, Any, Any]
    ended: Callable[[], None]


@dataclass(frozen=True, slots=True, repr=False)
class Awaited:
    """The result of a coroutine that needs an event loop. Its arguments may be secrets: the repr does not show them."""

    begin: Callable[[], Coroutine[Any, Any, Any]]


@dataclass(frozen=True, slots=True)
class Within:
    """The result of a flow. TimeoutError: it took longer; where nothing can end it, it looks at the clock itself."""

    seconds: float
    flow: Generator[Any, Any, Any]


_UNATTENDED: Final[set[asyncio.Task[Any]]] = set()
"""The tasks of flows to the end: an event loop holds its tasks by weak references only."""

Flow: TypeAlias = Generator[Any, Any, T]
"""A flow with a result; its steps are of this module, or of a driver that is made for it."""


class Steps:
    """A flow that runs: ``for step in steps``, and then ``outcome.append`` the result of the step, or ``failed``.

    What failed is raised in the flow, which cleans up, and raises it again. The outcome is in no local when the flow
    goes on: it may be a secret, and tracebacks show locals.
    """

    def __init__(self, flow: Flow[Any]) -> None:
        self.outcome: list[Any] = [None]
        self.result: Any = None
        self._flow = flow
        self._resume: Callable[[Any], Any] = flow.send

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        resume, self._resume = self._resume, self._flow.send
        try:
            return resume(self.outcome.pop())
        except StopIteration as done:
            self.result = done.value
            raise

    def failed(self, error: BaseException) -> None:
        self.outcome.append(error)
        self._resume = self._flow.throw


class Slots:
    """One flow at a time for each key, in the order in which they begin, also of several threads and event loops.

    A flow that is part of another one never waits for it: its task, or a task that began its task, is in the other one.
    """

    def __init__(self) -> None:
        self._guard = Lock()
        self._queues: dict[Hashable, list[Slot]] = {}


class Slot:
    """The slot of one flow, which begins with it: wait for it, and end it, also after an error while waiting."""

    def __init__(self, slots: Slots, key: Hashable) -> None:
        self._slots, self._key = slots, key
        self.thread: Final[int] = get_ident()
        self.come: Final[Future[None]] = Future()
        self.come.set_running_or_notify_cancel()  # so no one who waits can cancel it
        self.failure: Any = None  # of this flow, for those that wait when it ends
        self.failure_before: Any = None
        self.has_ended: bool = False
        outer = _OUTER.get()
        while outer is not None and outer.has_ended:
            outer = outer.outer
        self.outer: Final[Slot | None] = outer
        with slots._guard:
            queue = slots._queues.setdefault(key, [])
            while outer is not None and outer not in queue:
                outer = outer.outer
            self.is_first: Final[bool] = not queue
            #: The threads of the flows to wait for; none if this flow is part of one of them.
            self.threads_before: Final[frozenset[int]] = frozenset(
                map(attrgetter("thread"), queue if outer is None else ())
            )
            queue.append(self)

    def wait(self) -> Flow[bool]:
        """Wait until the flows before this one have ended. False: there was none, or this one is part of one."""
        _OUTER.set(self)
        if not self.threads_before:
            return False
        has_come: bool = yield Answered(self.come, self.threads_before)
        return has_come

    def end(self) -> None:
        queues = self._slots._queues
        with self._slots._guard:
            queue = queues.get(self._key, [])
            if self not in queue:
                return
            was_first = queue[0] is self
            queue.remove(self)
            self.has_ended = True
            if not queue:
                del queues[self._key]
            for waiting in queue if self.failure is not None else ():
                waiting.failure_before = self.failure
        if was_first and queue:
            queue[0].come.set_result(None)


_OUTER: Final[ContextVar[Slot | None]] = ContextVar("outer", default=None)
"""The last slot of this task; at first, of the task that began it."""


class Blocking:
    """Runs flows for sync programs. Steps that need an event loop get one, also where one is running."""

    def run(self, flow: Flow[T]) -> T:
        steps = Steps(flow)
        for step in steps:
            try:
                steps.outcome.append(self.take(step))
            except BaseException as error:  # noqa: BLE001  it is raised in the flow
                steps.failed(error)
        return cast("T", steps.result)

    def take(self, step: Any) -> Any:
        match step:
            case InThread():
                return step.call()
            case Ask():
                return _plain(step.function())
            case Within():
                return self.run(step.flow)
            case ToTheEnd():
                try:
                    return self.run(step.flow)
                finally:
                    step.ended()
            case Answered():
                if get_ident() in step.threads:
                    return False
                step.future.result()
                return True
        return run_on_new_loop(partial(_on_loop, step))


class Awaiting:
    """Runs flows on the running event loop."""

    async def run(self, flow: Flow[T]) -> T:
        steps = Steps(flow)
        for step in steps:
            try:
                steps.outcome.append(await self.take(step))
            except BaseException as error:  # noqa: BLE001  it is raised in the flow
                steps.failed(error)
        return cast("T", steps.result)

    async def take(self, step: Any) -> Any:
        match step:
            case InThread():
                return await anyio.to_thread.run_sync(step.call)
            case Ask():
                given = step.function()
                return await given if inspect.isawaitable(given) else given
            case Within():
                with anyio.fail_after(step.seconds):
                    return await self.run(step.flow)
            case ToTheEnd():
                task = asyncio.ensure_future(self.run(step.flow))
                _UNATTENDED.add(task)
                task.add_done_callback(lambda ended: _end(ended, step.ended))
                return await asyncio.shield(task)
            case Answered():
                await asyncio.wrap_future(step.future)
                return True
        return await _on_loop(step)


def run(flow: Flow[T]) -> T:
    """The result of the flow, for sync programs."""
    return Blocking().run(flow)


async def run_async(flow: Flow[T]) -> T:
    """As ``run``, on the running event loop."""
    return await Awaiting().run(flow)


async def _on_loop(step: Awaited) -> Any:
    try:
        return await step.begin()
    except TrustError as error:
        error.__context__ = None
        raise error.with_traceback(None)  # its frames hold the headers and the form  # noqa: B904


def _end(task: asyncio.Task[Any], ended: Callable[[], None]) -> None:
    _UNATTENDED.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, so that the loop does not log it when no task waits any more
    ended()


def _plain(given: Any) -> Any:
    if inspect.isawaitable(given):
        if inspect.iscoroutine(given):
            given.close()  # else Python warns that it was never awaited
        raise ConfigurationError("an async function is for AsyncClient; give Client a plain function")
    return given


def run_on_new_loop(begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result, on a new event loop; in a new thread if this one has a loop already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_to_the_end(begin()))
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(copy_context().run, lambda: asyncio.run(_to_the_end(begin()))).result()


async def _to_the_end(first: Coroutine[Any, Any, T]) -> T:
    """The result, after its background tasks, which end with this loop: else fetched keys would never arrive."""
    outcome: T | BaseException
    [outcome] = await asyncio.gather(first, return_exceptions=True)
    begun = asyncio.all_tasks() - {asyncio.current_task()}
    if begun:
        await asyncio.wait(begun)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome
