"""Ends answers that outlive the credentials of their callers: ``RequestRules(end_streams_with_credential=True)``.

While an answer of unknown length runs, its credentials are verified again once a second (``Guard.recheck``). When one
expires, or is not accepted any more, or the check takes too long, the answer ends:

- server-sent events, between two events: with an event that has the error of the binding;
- a websocket: with the code 1008, or 1013 if the credential cannot be checked now;
- any other answer: the application is cancelled, and the server closes the connection of an answer that is not whole.

Servers report the end of events and of a websocket to the application, as a disconnect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Final

from a2a_trust.auth.guard import Rejected
from a2a_trust.auth.principal import RECHECKS
from a2a_trust.errors import KeySourceUnavailableError
from a2a_trust.middleware.caller import Caller
from a2a_trust.middleware.calls import call_of
from a2a_trust.middleware.decision import Access, Seen
from a2a_trust.middleware.disconnect import Message
from a2a_trust.middleware.documents import Send
from a2a_trust.middleware.rejection import Rejection

_LOOK_SECONDS: Final = 1.0
_PATIENCE: Final = 10.0
"""How long a check may take, in seconds: as long as a request waits for a store."""
_ENDS_OF_EVENTS: Final = (b"\n\n", b"\r\r", b"\n\r", b"\n\r\n", b"\r\r\n")
"""An empty line ends an event; a line ends with CR, LF or both (HTML 9.2.5)."""


class WatchedAnswer:
    """``send`` of an application, for one answer that ends with the credentials of its caller."""

    def __init__(self, access: Access, seen: Seen, caller: Caller, send: Send, clock: Callable[[], float]) -> None:
        """Call it before ``Access.admit``, which takes the credentials out of the request."""
        self._access, self._seen, self._caller, self._send, self._clock = access, seen, caller, send, clock
        self._request = {**seen.scope}
        self._expires_at = inf
        self.rejection: Rejection | None = None
        """Why the answer has ended."""
        self._task: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._runs = self._is_over = self._is_cancelled = self._has_events = False
        self._tail = b"\n\n"

    async def during(self, work: Awaitable[None]) -> None:
        """Do the work of the application, which uses ``send``."""
        self._task = asyncio.current_task()
        try:
            await work
        except ConnectionResetError:  # perhaps of ``send``
            if not self._is_over:
                raise
        except asyncio.CancelledError:
            if not self._is_cancelled or self._task is None or self._task.uncancel():
                raise
        finally:
            if self._watch is not None:
                if not self._is_over:
                    self._watch.cancel()
                await asyncio.gather(self._watch, return_exceptions=True)  # it may be sending the error

    async def send(self, message: Message) -> None:
        is_late = self._runs and message.get("more_body", True) and self._clock() >= self._expires_at
        if is_late and self._watch is not None:
            await asyncio.wait([self._watch])  # which ends the answer now
        if not self._is_over:
            self._note(message)
            await self._send(message)
        elif self._seen.scope.get("asgi", {}).get("spec_version", "2.0") >= "2.4":
            raise ConnectionResetError("the answer has ended with the credential of its caller")
        else:
            await asyncio.sleep(0)  # an application that only sends must not stop the event loop

    def _note(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            headers = dict(message.get("headers", ()))
            self._runs = b"content-length" not in headers
            is_plain = b"content-encoding" not in headers
            self._has_events = is_plain and headers.get(b"content-type", b"").lower().startswith(b"text/event-stream")
        elif kind == "websocket.accept":
            self._runs = True
        elif kind == "websocket.close" or (kind == "http.response.body" and not message.get("more_body", False)):
            self._runs = False
        if self._has_events:
            self._tail = (self._tail + bytes(message.get("body", b"")[-3:]))[-3:]
        if self._runs and self._watch is None:
            identities = (*self._caller.identities, *self._caller.for_skills)
            self._expires_at = min(each.expires_at for _, each in identities)
            self._watch = asyncio.create_task(self._watch_until_its_end())

    async def _watch_until_its_end(self) -> None:
        RECHECKS.set(True)  # in the context of this task
        while self._runs:
            rest = self._expires_at - self._clock()
            await asyncio.sleep(min(_LOOK_SECONDS, max(0.0, rest)))
            await self._check()

    async def _check(self) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                rejected = await self._access.guard.recheck(self._request, self._caller, self._clock())
        except Exception as error:  # noqa: BLE001  a user's verifier may raise anything
            why = f"the check of the credential of a running answer ended in {type(error).__name__}"
            rejected = Rejected(KeySourceUnavailableError(why))
        if self._runs and rejected is not None:
            self._runs, self._is_over = False, True
            await self._end(rejected)

    async def _end(self, rejected: Rejected) -> None:
        call = call_of(self._seen.scope)
        self.rejection = rejection = self._access.reject(rejected, self._seen, None, call and call.call_id)
        if self._seen.method is None:
            code = 1013 if isinstance(rejected.error, KeySourceUnavailableError) else 1008
            await self._send({"type": "websocket.close", "code": code, "reason": ""})
        elif self._has_events and self._tail.endswith(_ENDS_OF_EVENTS):
            body = b"event: error\ndata: %b\n\n" % rejection.body
            await self._send({"type": "http.response.body", "body": body, "more_body": False})
        elif self._task is not None:
            self._is_cancelled = True
            self._task.cancel()
