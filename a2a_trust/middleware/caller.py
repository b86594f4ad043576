"""For code behind the guard: finds the caller, and rejects it for a skill's requirements or for a reason of its own.

The caller is found from the request, the context of the a2a-sdk, or the running task.

The guard writes the caller into the scope, and the a2a-sdk copies it into its own contexts. For code that gets neither,
a context variable has it, too. Python copies that variable into every task and thread that a request starts, and such a
task may serve other callers later: a2a-sdk 1.0.0 runs the messages of all callers of an A2A task in the context of the
first one. So the variable is valid only in the task of the request, in the tasks of its task groups (of asyncio and
anyio), in threads for which one of these waits (of anyio, such as sync endpoints), and in blocks of ``acting_for``. A
worker in a task group of the application, begun by ``await group.start(worker)``, is a task of the request until
``started()``. A task group whose tasks work for other requests needs ``acting_for``.

The context of a thread does not say which task waits for it, because a task and the request that began it have equal
contexts. anyio gives its threads the cancel scopes around the call, which say so; asyncio gives its threads nothing.

A handler may raise AuthorizationError, AuthenticationError or TooManyRequestsError. If the error reaches the guard
before the answer begins, the guard answers it as it answers its own rejections: the status, the challenge, the form of
the binding. Some frameworks answer all errors themselves, as a2a-sdk does. For these, ``reject_caller`` and
``require_skill`` also note the rejection in the request, and the guard replaces the framework's answer, if that is an
error of the server.

InvalidCredentialsError never becomes an answer: verifiers raise it about any credential, also about one that another
server sent to the application.
"""

from __future__ import annotations

from asyncio import Task, TaskGroup, all_tasks, current_task
from collections.abc import Awaitable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from inspect import Parameter, Signature
from typing import Any, Final, NoReturn, Protocol, TypeAlias, cast

import anyio
from starlette.authentication import AuthCredentials
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from a2a_trust.auth.guard import Guard, Rejected
from a2a_trust.auth.principal import Anonymous, Principal, SubjectToken
from a2a_trust.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigurationError,
    InvalidCredentialsError,
    MissingCredentialsError,
    NoCallerError,
    TooManyRequestsError,
    TrustError,
)
from a2a_trust.middleware.documents import CachingRules, Receive, Scope, Send

Caller: TypeAlias = Principal | Anonymous

_PRINCIPAL: Final = "a2a_trust.principal"
_PUBLIC: Final = object()
"""In the place of the caller: the path is public, so there is none."""


class CallerCredentials(AuthCredentials):
    """The value of ``scope["auth"]`` behind the guard: the scopes of a caller, and the caller itself.

    The a2a-sdk has it in the state of its call contexts. Copies and pickles contain only the caller.
    """

    _keeps_token = False
    _token: SubjectToken | None = None
    guard: Guard | None = None
    """The guard that admitted the caller; None in copies."""
    rejected: Rejected | None = None
    """Why a handler rejects the caller."""

    def __init__(self, caller: Caller) -> None:
        self.scopes: list[str] = [*caller.scopes]  # all that the base class does
        self.caller: Final = caller

    def keep(self, token: SubjectToken | None) -> None:
        self._keeps_token, self._token = True, token

    def subject_token(self) -> SubjectToken:
        """The token that was kept. The errors are the same as from ``subject_token_of``."""
        if not self._keeps_token:
            raise ConfigurationError(
                "subject_token_of: no token is kept for this request; pass "
                'rules=RequestRules(keep_subject_token=True) to protect(app, …). Copies of scope["auth"] have no token'
            )
        if self._token is None:
            raise MissingCredentialsError(
                "subject_token_of: this caller has no access token; it is anonymous, or used another credential"
            )
        return self._token

    def __reduce__(self) -> tuple[Any, ...]:
        return CallerCredentials, (self.caller,)


def set_caller(scope: Scope, caller: Caller) -> CallerCredentials:
    """Write the caller of the request into the scope, and its credentials, which are returned."""
    credentials = CallerCredentials(caller)
    scope["user"], scope["auth"], scope[_PRINCIPAL] = caller, credentials, caller
    return credentials


def set_public(scope: Scope) -> None:
    scope[_PRINCIPAL] = _PUBLIC


def is_public(scope: Mapping[str, Any]) -> bool:
    return scope.get(_PRINCIPAL) is _PUBLIC


class CallContext(Protocol):
    """A ``ServerCallContext`` of the a2a-sdk, which puts ``scope["auth"]`` into its ``state``, a mapping."""

    @property
    def state(self) -> Any: ...


class _RequestContext(Protocol):
    """A ``RequestContext`` of the a2a-sdk."""

    @property
    def call_context(self) -> CallContext | None: ...


Context: TypeAlias = Mapping[str, Any] | CallContext | _RequestContext
"""An ASGI scope, a request or websocket of Starlette, or a ``RequestContext`` or ``ServerCallContext`` of a2a-sdk."""


def principal_of(context: Context) -> Caller:
    """The caller of the request.

    ``context`` is an ASGI scope, a request or websocket of Starlette or FastAPI, or a ``RequestContext`` or
    ``ServerCallContext`` of the a2a-sdk. ConfigurationError: no guard has checked the request, its path is public, or
    ``scope["auth"]`` was replaced. A handler must not treat that as any caller.
    """
    return _caller_of(context, "principal_of")


# FastAPI gives the request to ``Depends(principal_of)`` only if the argument has this one type.
principal_of.__signature__ = Signature(  # type: ignore[attr-defined]
    [Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=HTTPConnection)]
)


def subject_token_of(context: Context) -> SubjectToken:
    """The access token of the caller of the request; needs ``RequestRules(keep_subject_token=True)``.

    ``context`` is as for ``principal_of``. ConfigurationError: as there, or no token is kept. MissingCredentialsError:
    the caller is anonymous, or used another credential.
    """
    return credentials_of(context, "subject_token_of").subject_token()


def credentials_of(context: Context, what: str) -> CallerCredentials:
    """The value of ``scope["auth"]`` of the request, for the function ``what``. ConfigurationError: as for
    ``principal_of``."""
    return _credentials(_place(context), what)


def _caller_of(context: Any, what: str) -> Caller:
    place = _place(context)
    caller = place.get(_PRINCIPAL)
    return caller if isinstance(caller, Principal | Anonymous) else _credentials(place, what).caller


def _place(context: Any) -> Mapping[str, Any]:
    """The mapping that the guard has written into, or the a2a-sdk's copy."""
    # RequestContext has call_context, ServerCallContext state; requests have scope, and some a state of their own.
    for name in ("call_context", "scope", "state"):
        if not isinstance(context, Mapping):
            context = getattr(context, name, context)
    if isinstance(context, Mapping) and "auth" not in context:  # over gRPC, the a2a-sdk's state has only the context
        context = getattr(context.get("grpc_context"), "scope", context)
    return context if isinstance(context, Mapping) else {}


def _credentials(place: Mapping[str, Any], what: str) -> CallerCredentials:
    credentials = place.get("auth")
    if is_public(place) or not isinstance(credentials, CallerCredentials):
        raise ConfigurationError(
            f'{what}: this request did not come through protect(), its path is public, or scope["auth"] was replaced; '
            "wrap the application, and pass the request, its scope, or the context that the a2a-sdk gives. In tests "
            "use as_caller or fake_request of a2a_trust.testing"
        )
    return credentials


class Running:
    """The caller of the code that runs in a request or in a block of ``acting_for``."""

    __slots__ = ("_before", "caller", "task")

    def __init__(self, caller: Caller | None, task: int | None) -> None:
        """``task`` restricts it to that task and the tasks of its task groups. ``caller`` is None for a public path."""
        self.caller: Caller | None = caller
        self.task: int | None = task
        self._before: Running | None = None

    def __enter__(self) -> Caller | None:
        self._before = _RUNNING.get()
        _RUNNING.set(self)
        return self.caller

    def __exit__(self, *_: object) -> None:
        self.caller = None
        # Not with a token: at the end of the program this may run in another context. Nothing of the previous value is
        # kept: uvicorn passes the context of one request on to the next one of the connection.
        before, self._before = self._before, None
        _RUNNING.set(before)

    def is_here(self) -> bool:
        """Whether this code runs in the task, in a task of its task groups, which end before it does, or in a thread
        for which one of these waits.

        Nothing is kept of a look: ``started()`` moves a worker, and the tasks below it, from the task that awaits
        ``group.start(worker)`` to the task of the group, which may outlive the request.
        """
        if self.task is None:
            return True
        try:
            current = current_task()
        except RuntimeError:  # a thread
            return any(id(host) == self.task for host in _hosts_of_thread())
        if current is None:  # a callback of the event loop, for an unknown caller
            return False
        if id(current) == self.task:
            return True
        owner = _owner(current, anyio.get_current_task().parent_id)
        if owner not in (None, self.task):  # further up; this looks at all tasks
            tasks = {id(each): each for each in all_tasks()}
            parents = {each.id: each.parent_id for each in anyio.get_running_tasks()}
            while owner not in (None, self.task):
                task = tasks.pop(owner, None)  # each task once, whatever they say
                owner = None if task is None else _owner(task, parents.get(owner))
        return owner == self.task


def _owner(task: Task[Any], parent: int | None) -> int | None:
    """The ``id`` of the task whose task group has this task. ``parent`` is that task in anyio's view."""
    host = _host_of_group(task) if parent is None else None
    return parent if host is None else id(host)


def _host_of_group(task: Task[Any]) -> Task[Any] | None:
    """The task of the ``asyncio.TaskGroup`` that waits for this task. Only its callback says so."""
    groups = (getattr(callback, "__self__", None) for callback, _ in getattr(task, "_callbacks", None) or ())
    return next((getattr(group, "_parent_task", None) for group in groups if isinstance(group, TaskGroup)), None)


def _hosts_of_thread() -> Iterator[Task[Any]]:
    """The tasks of anyio's cancel scopes around the call that this thread works for, and of their groups in asyncio."""
    from anyio import from_thread  # takes 4 % of the import of protect

    scope = getattr(getattr(from_thread, "threadlocals", None), "current_cancel_scope", None)
    while scope is not None:
        host = getattr(scope, "_host_task", None)
        while host is not None:
            yield host
            host = _host_of_group(host)
        scope = getattr(scope, "_parent_scope", None)


_RUNNING: Final[ContextVar[Running | None]] = ContextVar("a2a_trust.running", default=None)


def acting_for(context: Caller | Context) -> AbstractContextManager[Caller]:
    """A ``with`` block in which ``current_principal()`` is the caller of that context.

    Tasks and threads that start in the block have that caller until the block ends. ``context`` is as for
    ``principal_of``, or a caller. Use it in executors of the a2a-sdk, and in your own tasks and threads. Do not use it

    - around a ``yield`` of an async generator: Python runs the consumer of the value in the same context;
    - around the sending of an answer: uvicorn begins the next request of the connection in the same context.

    ConfigurationError: as for ``principal_of``.
    """
    caller = context if isinstance(context, Principal | Anonymous) else _caller_of(context, "acting_for")
    return cast("AbstractContextManager[Caller]", Running(caller, None))  # the caller is not None


def current_principal() -> Caller:
    """The caller of the request that this code answers.

    NoCallerError where the caller is not certain: outside of requests, after the end of the request, for a public path,
    and in tasks and threads that the request has started, unless they run in a block of ``acting_for``. Tasks of a task
    group in the request, sync endpoints and threads of anyio for which the request waits need no block.
    """
    running = _RUNNING.get()
    if running is None:
        raise NoCallerError(
            "current_principal: no request is being answered here; call it in a handler behind protect(), or write "
            "with acting_for(context): …"
        )
    caller = running.caller
    if caller is None:
        raise NoCallerError(
            "current_principal: the request that this code belongs to has ended, or its path is public; write "
            "with acting_for(context): … around work that continues after a request"
        )
    if not running.is_here():
        raise NoCallerError(
            "current_principal: this code does not run in the task of the request, but in another task or in a thread, "
            "such as of create_task, gather, asyncio.to_thread, or wait_for in Python 3.11, which may serve other "
            "callers, too; write with acting_for(context): … in it or around its start, or use principal_of(context)"
        )
    return caller


def this_task() -> int:
    """The ``id`` of the running task, as in anyio; ConfigurationError in another event loop than asyncio's."""
    try:
        return id(current_task())
    except RuntimeError:
        raise ConfigurationError(
            "this code runs in another event loop than asyncio's, such as trio; run the agent and its tests on asyncio "
            "or uvloop, as in hypercorn --worker-class asyncio"
        ) from None


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


_STARTS: Final = ("http.response.start", "websocket.http.response.start")


class HeldAnswer:
    """``receive`` and ``send`` of an application, whose answer gets the headers of ``caching``.

    A short answer of status 500 is held back until it is known whether the application then fails with an error that
    rejects its caller: Starlette answers 500 first, and raises it again. If a handler has rejected the caller already,
    an answer of any length is, and only its beginning is kept.

    ``has_begun``: a part of the answer was sent.
    """

    __slots__ = ("_caching", "_credentials", "_held", "_nonce", "_receive", "_send", "has_begun")

    def __init__(
        self,
        receive: Receive,
        send: Send,
        credentials: CallerCredentials,
        caching: CachingRules = CachingRules(()),  # noqa: B008  it keeps nothing
        nonce: str | None = None,
    ) -> None:
        """``nonce`` is for the caller's next proof of DPoP."""
        self._receive, self._send, self._credentials = receive, send, credentials
        self._caching, self._nonce = caching, nonce
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
        return self._send(self._caching.add(message, self._nonce) if message["type"] in _STARTS else message)

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
            await self.send(message)
