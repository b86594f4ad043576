"""Ends answers that outlive the credentials of their callers: ``RequestRules(end_streams_with_credential=True)``.

While an answer runs, it is checked once a second whether a new request with its credentials would be admitted, by what
verifiers have cached and by stores (``Guard.recheck``). At the moment at which a credential expires, and when the check
fails or takes too long, the answer ends:

- server-sent events, between two events: with an event that has the error of the binding;
- a websocket: with the code 1008, or 1013 if the credential cannot be checked now;
- other answers: the server closes the connection, so clients see that the answer is not whole.

The application sees a disconnect, as if the client had gone away. If it ignores that, and no answer could be completed,
it is cancelled a second later, because servers close the connection when it returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Final

from a2a_trust.auth.guard import Rejected
from a2a_trust.errors import InvalidCredentialsError, KeySourceUnavailableError
from a2a_trust.middleware.caller import Caller
from a2a_trust.middleware.calls import call_of
from a2a_trust.middleware.decision import Access, Seen
from a2a_trust.middleware.disconnect import Message
from a2a_trust.middleware.documents import Receive, Send

_LOOK_SECONDS: Final = 1.0
_GRACE_SECONDS: Final = 1.0
"""How long an application may take to notice the disconnect."""
_PATIENCE: Final = 10.0
"""How long a check may take, in seconds: as long as a request waits for a store."""
_ENDS_OF_EVENTS: Final = (b"\n\n", b"\r\r", b"\n\r", b"\n\r\n", b"\r\r\n")
"""An empty line ends an event; a line ends with CR, LF or both (HTML 9.2.5)."""


class AnswerEndedError(OSError):
    """The application sends a part of an answer that has ended: an OSError, as after a disconnect (ASGI 2.4)."""


class WatchedAnswer:
    """``receive`` and ``send`` of an application, for one answer that ends with the credentials of its caller."""

    def __init__(
        self, access: Access, seen: Seen, caller: Caller, receive: Receive, send: Send, clock: Callable[[], float]
    ) -> None:
        """Call it before ``Access.admit``, which takes the credentials out of the request."""
        self._access, self._seen, self._caller = access, seen, caller
        self._receive, self._send, self._clock = receive, send, clock
        self._request = {**seen.scope}
        identities = (*caller.identities, *caller.for_skills)
        self._expires_at, self._scheme = min(((each.expires_at, name) for name, each in identities), default=(inf, ""))
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._check: asyncio.Task[None] | None = None
        self._next: asyncio.Task[Message] | None = None
        self._runs = self._is_body_read = self._is_cancelled = self._has_events = False
        self._sending, self._tail = 0, b"\n\n"

    async def during(self, work: Awaitable[None]) -> None:
        """Do the work of the application, which uses ``receive`` and ``send``."""
        self._task = asyncio.current_task()
        cancellations = 0 if self._task is None else self._task.cancelling()
        try:
            await work
        except AnswerEndedError:
            pass
        except asyncio.CancelledError:
            if not self._is_cancelled or self._task is None or self._task.uncancel() > cancellations:
                raise
        finally:
            self._stop()
            if self._next is not None:
                self._next.cancel()
            if self._check is not None:
                if not self._over.done():
                    self._check.cancel()
                await asyncio.wait([self._check])  # it may be sending the error

    async def receive(self) -> Message:
        if not self._is_body_read:  # nothing runs before, and a request without a stream costs no task
            message = await self._receive()
            self._is_body_read = not message.get("more_body", False)
            return message
        if self._next is None and not self._over.done():
            self._next = asyncio.create_task(self._message())
        if self._next is not None:
            # If the application stops waiting, the message is for its next call.
            waiting: set[asyncio.Future[Any]] = {self._next, self._over}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if self._over.done() or self._next is None:
            is_http = self._seen.method is not None
            return {"type": "http.disconnect"} if is_http else {"type": "websocket.disconnect", "code": 1008}
        received, self._next = self._next, None
        return received.result()

    async def _message(self) -> Message:
        return await self._receive()

    async def send(self, message: Message) -> None:
        if self._runs and message.get("more_body", True) and self._clock() >= self._expires_at:
            await self._end(self._expired())
        if self._over.done():
            await asyncio.sleep(0)  # an application that only sends must not stop the event loop
            if self._seen.scope.get("asgi", {}).get("spec_version", "2.0") >= "2.4":
                raise AnswerEndedError("the answer has ended with the credential of its caller")
            return
        self._note(message)
        self._sending += 1
        try:
            await self._send(message)
        finally:
            self._sending -= 1

    def _note(self, message: Message) -> None:
        """Watch an answer from its first part on; one whose length is known, from its second part on."""
        kind = message["type"]
        if kind == "http.response.start":
            headers = {name.lower(): value.lower() for name, value in message.get("headers", ())}
            self._has_events = headers.get(b"content-type", b"").startswith(b"text/event-stream")
            self._has_events = self._has_events and b"content-encoding" not in headers
            if b"content-length" not in headers:
                self._begin()
        elif kind == "http.response.body":
            self._tail = (self._tail + bytes(message.get("body", b"")[-3:]))[-3:]
            if not message.get("more_body", False):
                self._stop()
            elif not self._runs:
                self._begin()
        elif kind == "websocket.accept":
            self._begin()
        elif kind == "websocket.close":
            self._stop()

    def _begin(self) -> None:
        self._runs = True
        rest = self._expires_at - self._clock()
        self._timer = self._loop.call_later(min(_LOOK_SECONDS, max(0.0, rest)), self._look)

    def _stop(self) -> None:
        self._runs = False
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        now = self._clock()
        if now < self._expires_at and self._access.guard.find_cached(self._request, now) is not None:
            self._begin()  # nearly all looks end here
        else:
            self._check = self._loop.create_task(self._recheck(now))

    async def _recheck(self, now: float) -> None:
        rejected = await self._rejection(now) if now < self._expires_at else self._expired()
        if not self._runs:  # the answer has ended meanwhile
            return
        if rejected is None:
            self._begin()
        else:
            await self._end(rejected)

    async def _rejection(self, now: float) -> Rejected | None:
        try:
            async with asyncio.timeout(min(_PATIENCE, self._expires_at - now)):
                return await self._access.guard.recheck(self._request, self._caller, now)
        except Exception as error:  # noqa: BLE001  a user's verifier may raise anything
            why = f"the check of the credential of a running answer ended in {type(error).__name__}"
            is_over = self._clock() >= self._expires_at
            return self._expired() if is_over else Rejected(KeySourceUnavailableError(why), self._scheme)

    def _expired(self) -> Rejected:
        why = f"the credential of {self._scheme[:64]!a} expired while the answer ran"
        return Rejected(InvalidCredentialsError(why), self._scheme, caller=self._caller)

    async def _end(self, rejected: Rejected) -> None:
        self._stop()
        self._over.set_result(None)
        call = call_of(self._seen.scope)
        rejection = self._access.reject(rejected, self._seen, None, call and call.call_id)
        if self._seen.method is None:
            code = 1013 if isinstance(rejected.error, KeySourceUnavailableError) else 1008
            await self._send({"type": "websocket.close", "code": code, "reason": ""})
        elif self._has_events and not self._sending and self._tail.endswith(_ENDS_OF_EVENTS):
            body = b"event: error\ndata: %b\n\n" % rejection.body
            await self._send({"type": "http.response.body", "body": body, "more_body": False})
        else:
            self._timer = self._loop.call_later(_GRACE_SECONDS, self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._is_cancelled = True
            self._task.cancel()
