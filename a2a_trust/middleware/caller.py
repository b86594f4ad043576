"""Finds the caller, for code behind the guard: from the request, the context of the a2a-sdk, or the running task.

The guard writes the caller into the scope, and the a2a-sdk copies it into its own contexts. For code that gets neither,
a context variable has it, too. Python copies that variable into every task and thread that a request starts, and such a
task may serve other callers later: a2a-sdk 1.0.0 runs the messages of all callers of an A2A task in the context of the
first one. So the variable is valid only in the task of the request, in the tasks of its task groups (of asyncio and
anyio), in threads for which one of these waits (of anyio, such as sync endpoints), and in blocks of ``acting_for``. A
worker in a task group of the application, begun by ``await group.start(worker)``, is a task of the request until
``started()``. A task group whose tasks work for other requests needs ``acting_for``.

The context of a thread does not say which task waits for it, because a task and the request that began it have equal
contexts. anyio gives its threads the cancel scopes around the call, which say so; asyncio gives its threads nothing.
"""

from __future__ import annotations

from asyncio import Task, TaskGroup, all_tasks, current_task
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from inspect import Parameter, Signature
from typing import Any, Final, Protocol, TypeAlias, cast

import anyio
from anyio import from_thread
from starlette.authentication import AuthCredentials
from starlette.requests import HTTPConnection

from a2a_trust.auth.guard import Guard, Rejected
from a2a_trust.auth.principal import Anonymous, Principal, SubjectToken
from a2a_trust.errors import ConfigurationError, MissingCredentialsError, NoCallerError
from a2a_trust.middleware.documents import Scope

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
