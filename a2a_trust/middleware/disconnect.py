"""Cancels the work for a request when its client disconnects.

ASGI reports a disconnect with ``http.disconnect``, which comes after the body, and only when the next message is
awaited. So while a request waits for something else (an issuer, a key set, a thread), its messages are read ahead.

This means that a part of the body is read before the caller is known, but only in a wait of more than 0.1 seconds, and
64 kB at most, as servers do by themselves. The disconnect of a client that has sent more is noticed after the wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Coroutine, Generator, MutableMapping
from functools import partial
from types import coroutine
from typing import Any, Final, TypeAlias, TypeVar

from a2a_trust.middleware.documents import Receive

Message: TypeAlias = MutableMapping[str, Any]

_PATIENCE: Final = 0.1
_MOST: Final = 65_536
_MESSAGE: Final = 256
"""About the memory of a message without its body, in bytes: many empty messages must not fill the memory."""

_T = TypeVar("_T")


class ClientGoneError(Exception):
    """The client has disconnected, so no answer is needed."""


@coroutine
def _rest(work: Coroutine[Any, Any, _T], awaited: Any) -> Generator[Any, Any, _T]:
    """The result of a coroutine that was started by hand, and waits for ``awaited`` now."""
    while True:
        try:
            answer = yield awaited
        except BaseException as error:  # noqa: BLE001  also a cancellation, which is for the coroutine to see
            step = partial(work.throw, error)
        else:
            step = partial(work.send, answer)
        try:
            awaited = step()
        except StopIteration as ended:
            result: _T = ended.value
            return result


async def as_coroutine(work: Awaitable[_T]) -> _T:
    return await work


async def watched(work: Coroutine[Any, Any, _T], receive: Receive) -> tuple[_T, Receive]:
    """The result of ``work``, and the ``receive`` for later messages. When the client disconnects first, ``work`` is
    cancelled: ClientGoneError."""
    ahead = ReadAhead(receive)
    try:
        result = await ahead.during(work)
    finally:
        ahead.close()
    return result, ahead.receive


class ReadAhead:
    """The messages of one request, read ahead. Call ``close`` when the request is over, or after a whole body."""

    __slots__ = ("_came", "_is_gone", "_next", "_receive", "_watch")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._came = deque[Message]()
        self._next: asyncio.Task[Message] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._is_gone = False

    async def during(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of ``work``. When the client disconnects first, ``work`` is cancelled: ClientGoneError."""
        try:
            first = work.send(None)  # nearly all work ends at once; a timer for it took a fifth of a request
        except StopIteration as ended:
            result: _T = ended.value
            return result
        return await self._run_watched(_rest(work, first))

    async def _run_watched(self, work: Awaitable[_T]) -> _T:
        loop = asyncio.get_running_loop()
        waiter = asyncio.current_task()
        if waiter is None:  # the request is stepped by hand, outside of any task
            return await work
        cancellations = waiter.cancelling()
        begin = loop.call_later(_PATIENCE, self._begin, waiter)  # nearly all work is done before, and costs no task
        try:
            return await work
        finally:
            begin.cancel()
            if self._watch is not None:
                self._watch.cancel()
            if self._is_gone and waiter.uncancel() <= cancellations:
                raise ClientGoneError from None

    @property
    def receive(self) -> Receive:
        """The ``receive`` for the reader of the request: first the messages that were read ahead, then the rest."""
        return self._receive if self._watch is None else self._receive_next

    def close(self) -> None:
        """Stop reading ahead; messages that came are kept."""
        awaited, self._next = self._next, None
        if not (awaited is None or awaited.cancel() or awaited.cancelled() or awaited.exception() is not None):
            self._came.append(awaited.result())

    def _begin(self, waiter: asyncio.Task[Any]) -> None:
        self._watch = asyncio.create_task(self._read(waiter))

    async def _read(self, waiter: asyncio.Task[Any]) -> None:
        size = 0
        while size <= _MOST:
            size += await self._take(waiter)

    async def _take(self, waiter: asyncio.Task[Any]) -> int:
        """The size of the next message, which is kept. The wait for it is never cancelled: servers could lose it."""
        # In a separate task: granian's future never completes after a wait for it was cancelled.
        self._next = asyncio.create_task(self._message())
        await asyncio.wait({self._next})
        if self._next.cancelled() or self._next.exception() is not None:
            return _MOST + 1  # the reader of the request gets the error
        message, self._next = self._next.result(), None
        self._came.append(message)
        if message["type"] != "http.request":
            self._is_gone = True
            waiter.cancel()
            return _MOST + 1
        return _MESSAGE + len(message.get("body", b""))

    async def _message(self) -> Message:
        return await self._receive()  # called in here: the request may be over before the task begins

    async def _receive_next(self) -> Message:
        if self._came:
            return self._came.popleft()
        if self._next is not None:
            awaited, self._next = self._next, None
            return await awaited
        return await self._receive()
