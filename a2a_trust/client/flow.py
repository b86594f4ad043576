"""The steps of a flow, and the two drivers that run it.

A flow is a generator. It yields a step, gets the step's result or error, and returns its own result at the end. It uses
neither sockets nor event loops, so one flow serves sync and async programs. ``run`` and ``run_async`` differ only in
how they wait.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from typing import Any, Final, Protocol, TypeAlias, TypeVar, runtime_checkable

from anyio import to_thread

from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.keys.trust import TrustStore
from a2a_trust.net.fetcher import Fetched, Fetcher, FormAnswer

T = TypeVar("T")


class HiddenHeaders(dict[str, str]):
    """Headers that may be credentials, with an empty repr, because tracebacks show locals."""

    def __repr__(self) -> str:
        return "{…}"


@runtime_checkable
class KeyFetcher(Protocol):
    """A source of trusted keys some of which are on the network: ``TrustFile`` and its like."""

    async def fetch(self, origin: str | None = None) -> TrustStore:
        """The trusted keys; those for that URL are fetched if needed. ``trust_store`` returns the same object
        afterwards, until something changes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Get:
    """Fetch a URL that the program configured, through the fetcher; members as for ``Fetcher.fetch``."""

    url: str
    known: Fetched | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # credentials; tracebacks show locals
    content: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class FreshKeys:
    """The trusted keys for that URL; without one, all of them."""

    trust: KeyFetcher
    origin: str | None


@dataclass(frozen=True, slots=True)
class InThread:
    """A call that may wait for a disk, or take long, so not on an event loop."""

    call: Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PostForm:
    """The answer of a token endpoint, through the fetcher of its client; as ``Fetcher.post_form``."""

    fetcher: Fetcher
    url: str
    form: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Ask:
    """The result of a function of the program; asynchronous functions are for programs with an event loop."""

    function: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Answered:
    """Wait for a future that another thread or task completes: True.

    False: the event loop of this thread has to complete it, so to wait would be a deadlock.
    """

    future: Future[None]
    thread: int


@dataclass(frozen=True, slots=True)
class ToTheEnd:
    """The result of a flow that goes on to its end also when the one who waits for it is cancelled.

    ``ended`` is called then, whatever came of it.
    """

    flow: Generator[Any, Any, Any]
    ended: Callable[[], None]


_UNATTENDED: Final[set[asyncio.Task[Any]]] = set()
"""The tasks of such flows: an event loop holds its tasks by weak references only."""

Step: TypeAlias = Get | FreshKeys | InThread | PostForm | Ask | Answered | ToTheEnd
Flow: TypeAlias = Generator[Step, Any, T]


async def run_async(flow: Flow[T], fetcher: Fetcher | None = None) -> T:
    """The result of the flow, on the running event loop; without ``fetcher`` through one with the usual rules."""
    return await _driven(flow, lambda step: _taken(step, fetcher))


def run(flow: Flow[T], fetcher: Fetcher | None = None) -> T:
    """The result of the flow, for sync programs. Steps that need an event loop get one, also where one is running."""

    async def taken(step: Step) -> Any:
        match step:
            case InThread():
                return step.call()
            case Ask():
                return _plain(step.function())
            case ToTheEnd():
                try:
                    return run(step.flow, fetcher)
                finally:
                    step.ended()
            case Answered():
                if step.thread == get_ident():
                    return False
                step.future.result()
                return True
        return waited(partial(_taken, step, fetcher))

    return at_once(_driven(flow, taken))


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for everything itself, so that it needs no event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("the coroutine waits for an event loop, and must not")


async def _driven(flow: Flow[T], taken: Callable[[Step], Coroutine[Any, Any, Any]]) -> T:
    error: TrustError | None = None
    answer: list[Any] = [None]  # taken out before the flow goes on: it may be a secret, and tracebacks show locals
    try:
        while True:
            step = flow.send(answer.pop()) if error is None else flow.throw(error)
            try:
                error = None
                answer.append(await taken(step))
            except TrustError as raised:
                error = raised
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        flow.close()


async def _taken(step: Step, fetcher: Fetcher | None) -> Any:
    match step:
        case Get() | PostForm():
            return await _fetched(step, fetcher)
        case FreshKeys():
            return await step.trust.fetch(step.origin)
        case InThread():
            return await to_thread.run_sync(step.call)
        case Ask():
            given = step.function()
            return await given if inspect.isawaitable(given) else given
        case Answered():
            await asyncio.wrap_future(step.future)
            return True
        case ToTheEnd():
            task = asyncio.ensure_future(run_async(step.flow, fetcher))
            _UNATTENDED.add(task)
            task.add_done_callback(lambda ended: _end(ended, step.ended))
            return await asyncio.shield(task)


def _end(task: asyncio.Task[Any], ended: Callable[[], None]) -> None:
    _UNATTENDED.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, so that the loop does not log it when no task waits any more
    ended()


async def _fetched(step: Get | PostForm, fetcher: Fetcher | None) -> Fetched | FormAnswer:
    try:
        if isinstance(step, PostForm):
            return await step.fetcher.post_form(step.url, step.form, headers=step.headers)
        fetcher = Fetcher() if fetcher is None else fetcher
        return await fetcher.fetch(
            step.url, configured=True, known=step.known, headers=step.headers, content=step.content
        )
    except TrustError as error:
        error.__context__ = None
        raise error.with_traceback(None)  # its frames hold the headers and the form  # noqa: B904


def _plain(given: Any) -> Any:
    """The result of a function, in a program that cannot await it."""
    if inspect.isawaitable(given):
        if inspect.iscoroutine(given):
            given.close()  # else Python warns that it was never awaited
        raise ConfigurationError("an async function is for httpx.AsyncClient; give httpx.Client a plain function")
    return given


def waited(begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result, on a new event loop; in a new thread if this one has a loop already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_to_the_end(begin()))
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(lambda: asyncio.run(_to_the_end(begin()))).result()


async def _to_the_end(first: Coroutine[Any, Any, T]) -> T:
    """The result, after the background tasks that it started, too. They would end with this loop, so that keys would be
    fetched each time and never arrive."""
    outcome: T | BaseException
    [outcome] = await asyncio.gather(first, return_exceptions=True)
    begun = asyncio.all_tasks() - {asyncio.current_task()}
    if begun:
        await asyncio.wait(begun)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome
