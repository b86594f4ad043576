"""The lifespans of several applications as one: an application, and those that are mounted in it.

Starlette does not run the latter, so a mounted agent would never start. Source: ASGI, Lifespan Protocol 2.0.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import anyio

from a2a_trust.middleware.documents import ASGIApp, Receive, Scope, Send

_COMPLETE: Final = "lifespan.startup.complete"


async def run_lifespans(
    apps: Sequence[ASGIApp], scope: Scope, receive: Receive, send: Send, *, started: Callable[[], Awaitable[str]]
) -> None:
    """Run the lifespans of all applications; all write into the one state of ``scope``.

    They start in order and stop in reverse order. When all have started, ``started`` is called; it returns the failure
    of the start, or "". An application without a lifespan counts as started.
    """
    await receive()  # lifespan.startup
    running: list[Lifespan] = []
    failure = ""
    async with anyio.create_task_group() as tasks:
        for app in apps:
            lifespan = Lifespan(app, {**scope})  # Starlette writes itself into it; the state is one
            running.append(lifespan)
            tasks.start_soon(lifespan.run)
            failure = await lifespan.started()
            if failure:
                break
        failure = failure or await started()
        if not failure:
            await send({"type": _COMPLETE})
            await receive()  # lifespan.shutdown
        failures = [said for lifespan in reversed(running) if (said := await lifespan.stop())]
        tasks.cancel_scope.cancel()  # also applications that reported their end, and still run
    # After the group: servers raise their own exceptions here, and must get them back unchanged.
    if failure:
        await send({"type": "lifespan.startup.failed", "message": failure})
    elif failures:
        await send({"type": "lifespan.shutdown.failed", "message": "; ".join(failures)})
    else:
        await send({"type": "lifespan.shutdown.complete"})


def closing(send: Send, close: Callable[[], Awaitable[None]]) -> Send:
    """``send`` of a lifespan that first closes what it has: servers cancel it when they know that it has ended."""

    async def close_and_send(message: Any) -> None:
        if message["type"].startswith("lifespan.shutdown"):
            await close()
        await send(message)

    return close_and_send


class Lifespan:
    def __init__(self, app: ASGIApp, scope: Scope) -> None:
        self._app, self._scope = app, scope
        self._asked_to_stop = anyio.Event()
        self._has_started, self._has_ended = anyio.Event(), anyio.Event()
        self._is_told_to_start = False
        self._runs = False
        self._failure = ""

    async def started(self) -> str:
        """Wait until it has started; returns the failure, or an empty string."""
        await self._has_started.wait()
        failure, self._failure = self._failure, ""
        return failure

    async def stop(self) -> str:
        """Wait until it has ended; returns the failure since it started, or an empty string."""
        self._asked_to_stop.set()
        await self._has_ended.wait()
        return self._failure

    async def run(self) -> None:
        """Run the application, which starts at once and stops when ``stop`` is called."""
        try:
            await self._app(self._scope, self._receive, self._send)
        except Exception as error:  # noqa: BLE001  an error before the start means that it does not know lifespans
            if self._runs:
                self._failure = self._failure or f"{type(error).__name__}: {error}"
        finally:
            self._has_started.set()
            self._has_ended.set()

    async def _receive(self) -> dict[str, Any]:
        if not self._is_told_to_start:
            self._is_told_to_start = True
            return {"type": "lifespan.startup"}
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
