"""The lifespans of several applications as one: an application, and those that are mounted in it.

Starlette runs no lifespan of what is mounted, so what a mounted agent does when it starts would never happen. Source:
ASGI, Lifespan Protocol 2.0.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from a2a_trust.errors import ConfigurationError
from a2a_trust.middleware.documents import ASGIApp, Receive, Scope, Send

__all__ = ["run_lifespans"]

_COMPLETE: Final = "lifespan.startup.complete"


async def run_lifespans(
    apps: Sequence[ASGIApp],
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    started: Callable[[], Awaitable[None]],
) -> None:
    """Run the lifespans of all applications; all write into the one state of ``scope``.

    They start in their order, and end in the other. When all have started, ``started`` is called; a
    ConfigurationError of it fails the start, with its text. An application without a lifespan has started at once.
    """
    await receive()  # lifespan.startup
    async with anyio.create_task_group() as tasks:
        running: list[_Lifespan] = []
        failure = ""
        for app in apps:
            lifespan = _Lifespan(app, {**scope})  # Starlette writes itself into it; the state is one
            running.append(lifespan)
            failure = await lifespan.start(tasks)
            if failure:
                break
        else:
            try:
                await started()
            except ConfigurationError as error:
                failure = str(error)
        if failure:
            for lifespan in reversed(running):
                await lifespan.stop()
            await send({"type": "lifespan.startup.failed", "message": failure})
            return
        await send({"type": _COMPLETE})
        await receive()  # lifespan.shutdown
        failures = [said for lifespan in reversed(running) if (said := await lifespan.stop())]
        if failures:
            await send({"type": "lifespan.shutdown.failed", "message": "; ".join(failures)})
        else:
            await send({"type": "lifespan.shutdown.complete"})


class _Lifespan:
    """The lifespan of one application, in a task of its own."""

    def __init__(self, app: ASGIApp, scope: Scope) -> None:
        self._app, self._scope = app, scope
        self._asked_to_stop = anyio.Event()
        self._has_started, self._has_ended = anyio.Event(), anyio.Event()
        self._messages = iter(("lifespan.startup",))
        self._runs = False
        self._failure = ""

    async def start(self, tasks: TaskGroup) -> str:
        """Wait until it has started; why it could not, or nothing."""
        tasks.start_soon(self._run)
        await self._has_started.wait()
        failure, self._failure = self._failure, ""
        return failure

    async def stop(self) -> str:
        """Wait until it has ended; what went wrong since it started, or nothing."""
        self._asked_to_stop.set()
        await self._has_ended.wait()
        return self._failure

    async def _run(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._send)
        except Exception as error:  # noqa: BLE001  what it raises before it has started says that it knows no lifespan
            if self._runs:
                self._failure = self._failure or f"{type(error).__name__}: {error}"
        finally:
            self._has_started.set()
            self._has_ended.set()

    async def _receive(self) -> dict[str, Any]:
        for message in self._messages:
            return {"type": message}
        await self._asked_to_stop.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, message: Any) -> None:
        kind = message["type"]
        if kind == _COMPLETE:
            self._runs = True
            self._has_started.set()
        elif kind == "lifespan.startup.failed":
            self._failure = message.get("message") or "the application failed to start"
            self._has_started.set()
        elif kind == "lifespan.shutdown.failed":
            self._failure = message.get("message") or "the application failed to stop"
            self._has_ended.set()
        elif kind == "lifespan.shutdown.complete":
            self._has_ended.set()
