"""One client of a database for each event loop of each process: a fork inherits none, and no loop uses another's."""

from __future__ import annotations

import asyncio
import os
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Final, Generic, TypeVar

_T = TypeVar("_T")

#: After a fork, the clients of the parent: kept, since closing them would end the connections of the parent.
_INHERITED: Final[list[object]] = []


class PerLoop(Generic[_T]):
    """The clients of one database, made when a loop first needs one."""

    def __init__(self, make: Callable[[], _T]) -> None:
        """``make`` makes a client for the running event loop, and does not wait."""
        self._make = make
        self._process = os.getpid()
        self._clients: dict[AbstractEventLoop, _T] = {}

    def get(self) -> _T:
        """The client of the running event loop."""
        loop = asyncio.get_running_loop()
        if self._process != os.getpid():
            _INHERITED.append(self._clients)
            self._process, self._clients = os.getpid(), {}
        if loop not in self._clients:
            for closed in [each for each in [*self._clients] if each.is_closed()]:
                self._clients.pop(closed, None)
            self._clients[loop] = self._make()
        return self._clients[loop]

    def pop(self) -> _T | None:
        """The client of the running event loop, which the caller closes; the next ``get`` makes another one."""
        return self._clients.pop(asyncio.get_running_loop(), None)
