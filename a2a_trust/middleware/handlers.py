"""For handlers behind the guard: reject the caller, for a skill's requirements or for a reason of their own.

A handler may raise AuthorizationError, AuthenticationError or TooManyRequestsError. If the error reaches the guard
before the answer begins, the guard answers it as it answers its own rejections: the status, the challenge, the form of
the binding. Some frameworks answer all errors themselves, as a2a-sdk does. For these, ``reject_caller`` and
``require_skill`` also note the rejection in the request, and the guard replaces the framework's answer, if that is an
error of the server.

InvalidCredentialsError never becomes an answer: verifiers raise it about any credential, also about one that another
server sent to the application.
"""

from __future__ import annotations

from collections.abc import Awaitable, MutableMapping
from typing import Any, Final, NoReturn, TypeAlias

from starlette.exceptions import HTTPException

from a2a_trust.auth.guard import Rejected
from a2a_trust.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigurationError,
    InvalidCredentialsError,
    TooManyRequestsError,
    TrustError,
)
from a2a_trust.middleware.caller import Caller, CallerCredentials, Context, credentials_of
from a2a_trust.middleware.documents import Receive, Send

RejectingError: TypeAlias = AuthenticationError | AuthorizationError | TooManyRequestsError
"""The errors with which a handler rejects its caller: 401, 403, 429."""

_SERVER_ERROR: Final = 500


class CallerRejectedError(TrustError, HTTPException, code="caller-rejected"):
    """A handler rejects its caller. ``rejected.error`` says why, and decides the answer.

    It is an HTTPException of Starlette, too: frameworks that answer other errors themselves let these pass.
    """

    def __init__(self, rejected: Rejected) -> None:
        self.rejected: Rejected = rejected
        HTTPException.__init__(self, _SERVER_ERROR)

    def __str__(self) -> str:
        return str(self.rejected.error)


def require_skill(context: Context, skill: str) -> Caller:
    """The caller of the request, who satisfies the requirements of a skill of the card, by the skill's id.

    ``context`` is as for ``principal_of``. Call it in a handler before the skill's work begins. A card whose skills
    have requirements needs ``rules=RequestRules(handlers_check_skills=True)``. For a call that names its skill, the
    guard can check it by itself: ``RequestRules(skill_of=…)``.

    CallerRejectedError: a credential of the skill is missing (401) or lacks scopes (403), cannot be verified now (503),
    or the card has no such skill (403). ConfigurationError: as for ``principal_of``.
    """
    credentials = credentials_of(context, "require_skill")
    if credentials.guard is None:
        raise ConfigurationError(
            "require_skill: the guard that admitted the caller is not known here; pass the request or its context, not "
            'a copy of scope["auth"], and in tests call the protected application'
        )
    rejected = credentials.guard.check_skill(skill, credentials.caller)
    if rejected is not None:
        _reject(credentials, rejected)
    return credentials.caller


def reject_caller(context: Context, error: RejectingError) -> NoReturn:
    """Reject the caller of the request: with 401, 403 or 429, by the class of the error.

    ``context`` is as for ``principal_of``. Use it where a framework answers errors of handlers itself, as a2a-sdk does.
    Elsewhere ``raise error`` is enough. CallerRejectedError: always.
    """
    given: object = error
    if not isinstance(given, RejectingError) or isinstance(given, InvalidCredentialsError):
        raise ConfigurationError(
            "reject_caller: write AuthenticationError(…), AuthorizationError(…) or TooManyRequestsError(…)"
        )
    credentials = credentials_of(context, "reject_caller")
    _reject(credentials, Rejected(error, caller=credentials.caller))


def _reject(credentials: CallerCredentials, rejected: Rejected) -> NoReturn:
    credentials.rejected = rejected
    raise CallerRejectedError(rejected)


class HeldAnswer:
    """``receive`` and ``send`` of an application. A short answer of status 500 is held back until it is known whether
    the application then fails with an error that rejects its caller: Starlette answers 500 first, and raises it again.
    If a handler has rejected the caller already, an answer of any length is, and only its beginning is kept.

    ``has_begun``: a part of the answer was sent.
    """

    __slots__ = ("_credentials", "_held", "_receive", "_send", "has_begun")

    def __init__(self, receive: Receive, send: Send, credentials: CallerCredentials) -> None:
        self._receive, self._send, self._credentials = receive, send, credentials
        self._held: list[MutableMapping[str, Any]] = []
        self.has_begun: bool = False

    def rejection(self, error: BaseException | None) -> Rejected | None:
        """The answer in place of the application's, which has ended, perhaps with an error; None if its own counts."""
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:  # a task group in the handler
            error = error.exceptions[0]
        if self.has_begun or isinstance(error, InvalidCredentialsError):
            return None
        if isinstance(error, RejectingError):
            return Rejected(error, caller=self._credentials.caller)
        # Not error.rejected: a task that requests share may raise it in the request of another caller.
        is_rejected = isinstance(error, CallerRejectedError) or (error is None and self._held)
        return self._credentials.rejected if is_rejected else None

    def receive(self) -> Awaitable[MutableMapping[str, Any]]:
        return self._disconnect() if len(self._held) > 1 else self._receive()

    async def _disconnect(self) -> MutableMapping[str, Any]:
        """As servers do after a whole answer: to wait for the client would last forever."""
        return {"type": f"{self._held[0]['type'].partition('.')[0]}.disconnect"}

    def send(self, message: MutableMapping[str, Any]) -> Awaitable[None]:
        if not self.has_begun:
            if self._is_held_back(message):
                return self._hold(message)
            if self._held:
                return self.release(message)
            self.has_begun = True
        return self._send(message)

    def _is_held_back(self, message: MutableMapping[str, Any]) -> bool:
        if not self._held:
            return message.get("status") == _SERVER_ERROR
        is_whole = message["type"].endswith(".body") and not message.get("more_body", False)
        return self._credentials.rejected is not None or (len(self._held) == 1 and is_whole)

    async def _hold(self, message: MutableMapping[str, Any]) -> None:
        if len(self._held) < 2:
            self._held.append(message)

    async def release(self, *further: MutableMapping[str, Any]) -> None:
        """Send what was held back, and a further message."""
        self.has_begun = True
        held, self._held = self._held, []
        for message in (*held, *further):
            await self._send(message)
