"""What a flow needs from the world, and the two ways to get it.

A flow is a generator. It yields what it needs, is sent what came of it or has thrown in why nothing did, and returns
its result. It knows neither sockets nor event loops, so one flow serves programs with and without them; ``run`` and
``run_async`` differ in how they wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from anyio import to_thread

from a2a_trust.errors import TrustError
from a2a_trust.keys.trust import TrustStore
from a2a_trust.net.fetcher import Fetched, Fetcher

__all__ = ["Flow", "FreshKeys", "Get", "InThread", "KeyFetcher", "at_once", "run", "run_async"]

T = TypeVar("T")


@runtime_checkable
class KeyFetcher(Protocol):
    """A source of trusted keys some of which are on the network: ``TrustFile`` and its like."""

    async def fetch(self, origin: str | None = None) -> TrustStore:
        """The trusted keys, with those for that URL as fresh as they can be. ``trust_store`` gives the same object
        then, until something changes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Get:
    """An answer through the fetcher, by the URL that the program's own words lead to; the members are those of
    ``Fetcher.fetch``."""

    url: str
    known: Fetched | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # credentials; tracebacks show locals
    content: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class FreshKeys:
    """The trusted keys for that URL."""

    trust: KeyFetcher
    origin: str


@dataclass(frozen=True, slots=True)
class InThread:
    """A call that may wait for a disk, or take long, so not on an event loop."""

    call: Callable[[], Any]


Step: TypeAlias = Get | FreshKeys | InThread
Flow: TypeAlias = Generator[Step, Any, T]


async def run_async(flow: Flow[T], fetcher: Fetcher | None = None) -> T:
    """The result of the flow, on the running event loop; without ``fetcher`` through one with the usual rules."""
    return await _driven(flow, lambda step: _taken(step, fetcher))


def run(flow: Flow[T], fetcher: Fetcher | None = None) -> T:
    """The result of the flow, for programs that wait; what needs an event loop gets one, also where one is running."""

    async def taken(step: Step) -> Any:
        return step.call() if isinstance(step, InThread) else _waited(partial(_taken, step, fetcher))

    return at_once(_driven(flow, taken))


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for everything itself, so that it needs no event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("it waits for an event loop")


async def _driven(flow: Flow[T], taken: Callable[[Step], Coroutine[Any, Any, Any]]) -> T:
    error: TrustError | None = None
    answer: Any = None
    try:
        while True:
            step = flow.send(answer) if error is None else flow.throw(error)
            try:
                answer, error = await taken(step), None
            except TrustError as raised:
                error = raised
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        flow.close()


async def _taken(step: Step, fetcher: Fetcher | None) -> Any:
    match step:
        case Get():
            fetcher = Fetcher() if fetcher is None else fetcher
            return await fetcher.fetch(
                step.url, configured=True, known=step.known, headers=step.headers, content=step.content
            )
        case FreshKeys():
            return await step.trust.fetch(step.origin)
        case InThread():
            return await to_thread.run_sync(step.call)


def _waited(begin: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """What it comes to, on an event loop of its own; in a thread of its own where this one has a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_to_the_end(begin()))
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(lambda: asyncio.run(_to_the_end(begin()))).result()


async def _to_the_end(first: Coroutine[Any, Any, Any]) -> Any:
    """What it comes to, when what it has begun behind the caller's back is done, too: it would end with this loop, so
    that keys would be asked for each time and never come."""
    outcome: Any
    [outcome] = await asyncio.gather(first, return_exceptions=True)
    begun = asyncio.all_tasks() - {asyncio.current_task()}
    if begun:
        await asyncio.wait(begun)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome
