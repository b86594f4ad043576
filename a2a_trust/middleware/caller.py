"""Who is calling, for code behind the guard: by the request, by the context of the a2a-sdk, or by where it runs.

The guard writes the caller into the scope, where the a2a-sdk finds it and takes it along in its own contexts. A context
variable has it, too, for code that gets neither. That one is copied into every task and thread that a request starts,
and such a task may serve others later on: a2a-sdk 1.0.0 runs the messages of all callers of a task in the context of
the first of them. So it counts only in the task of the request, in the tasks of its task groups, and where
``acting_for`` says who is calling. A task group whose tasks work for other requests, too, needs ``acting_for``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeAlias, cast

import anyio
from starlette.authentication import AuthCredentials

from a2a_trust.auth.principal import Anonymous, Principal
from a2a_trust.auth.subject_token import SubjectToken
from a2a_trust.errors import ConfigurationError, MissingCredentialsError
from a2a_trust.middleware.documents import Scope

__all__ = [
    "CallContext",
    "Caller",
    "CallerCredentials",
    "Running",
    "acting_for",
    "current_principal",
    "is_public",
    "principal_of",
    "set_caller",
    "set_public",
    "subject_token_of",
    "this_task",
]

Caller: TypeAlias = Principal | Anonymous

_PRINCIPAL: Final = "a2a_trust.principal"
_PUBLIC: Final = object()
"""In the place of the caller: nobody was asked for."""


class CallerCredentials(AuthCredentials):
    """What the guard puts into ``scope["auth"]``: the scopes of a caller, and the caller itself.

    The a2a-sdk has it in the state of its call contexts. Copies and pickles go without the caller's token.
    """

    def __init__(self, caller: Caller) -> None:
        self.scopes: list[str] = [*caller.scopes]  # all that the base class does
        self.caller: Final = caller
        self._keeps_token = False
        self._token: SubjectToken | None = None

    def keep(self, token: SubjectToken | None) -> None:
        """Keep the access token of the caller for ``subject_token_of``; None: the caller has none."""
        self._keeps_token, self._token = True, token

    def subject_token(self) -> SubjectToken:
        """What was kept; the errors are those of ``subject_token_of``."""
        if not self._keeps_token:
            raise ConfigurationError(
                "subject_token_of: no token is kept for this request; pass "
                'rules=RequestRules(keep_subject_token=True) to protect(app, …). Copies of scope["auth"] have no token'
            )
        if self._token is None:
            raise MissingCredentialsError(
                "subject_token_of: this caller has no access token; it is anonymous, or known by another credential"
            )
        return self._token

    def __reduce__(self) -> tuple[Any, ...]:
        return CallerCredentials, (self.caller,)


def set_caller(scope: Scope, credentials: CallerCredentials) -> None:
    """Write into the scope who the request is from."""
    caller = credentials.caller
    scope["user"], scope["auth"], scope[_PRINCIPAL] = caller, credentials, caller


def set_public(scope: Scope) -> None:
    """Write into the scope that the guard lets the request pass without asking who it is from."""
    scope[_PRINCIPAL] = _PUBLIC


def is_public(scope: Mapping[str, Any]) -> bool:
    """Whether the guard has let the request pass without asking who it is from."""
    return scope.get(_PRINCIPAL) is _PUBLIC


class CallContext(Protocol):
    """A ``ServerCallContext`` of the a2a-sdk, as far as it counts here."""

    @property
    def state(self) -> Any:
        """A mapping; the SDK puts ``scope["auth"]`` into it."""


class _RequestContext(Protocol):
    """A ``RequestContext`` of the a2a-sdk, as far as it counts here."""

    @property
    def call_context(self) -> CallContext | None: ...


def principal_of(context: Mapping[str, Any] | CallContext | _RequestContext) -> Caller:
    """Who the request is from.

    ``context`` is an ASGI scope, a request or websocket of Starlette or FastAPI, or a ``RequestContext`` or
    ``ServerCallContext`` of the a2a-sdk. ConfigurationError where no guard has checked the request, or the context of
    the a2a-sdk has not what the guard put into ``scope["auth"]``: a handler must not take that for anybody.
    """
    return _caller_of(context, "principal_of")


def subject_token_of(context: Mapping[str, Any] | CallContext | _RequestContext) -> SubjectToken:
    """The access token of the caller whose request this is, with ``RequestRules(keep_subject_token=True)``.

    ``context`` is what ``principal_of`` takes. ConfigurationError as there, and where no token is kept.
    MissingCredentialsError: the caller is anonymous, or proved who it is without an access token.
    """
    return _credentials(_place(context), "subject_token_of").subject_token()


def _caller_of(context: Any, what: str) -> Caller:
    place = _place(context)
    caller = place.get(_PRINCIPAL)
    return caller if isinstance(caller, Principal | Anonymous) else _credentials(place, what).caller


def _place(context: Any) -> Mapping[str, Any]:
    """Where the guard has written, or the a2a-sdk has copied it to."""
    # RequestContext has call_context; requests have scope, and some have a state of their own; ServerCallContext has
    # state.
    for name in ("call_context", "scope", "state"):
        if not isinstance(context, Mapping):
            context = getattr(context, name, context)
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
    """A request that is being answered, or a block of ``acting_for``: the caller of the code that runs in it."""

    __slots__ = ("_before", "_within", "caller", "task")

    def __init__(self, caller: Caller | None, task: int | None) -> None:
        """``task`` restricts it to that task and those of its task groups. A caller of None: there is none."""
        self.caller: Caller | None = caller
        self.task: int | None = task
        self._before: Running | None = None
        self._within: frozenset[object] = _NO_TASKS

    def __enter__(self) -> Caller | None:
        self._before = _RUNNING.get()
        _RUNNING.set(self)
        return self.caller

    def __exit__(self, *_: object) -> None:
        self.caller, self._within = None, _NO_TASKS
        # Not by a token: at the end of the program this may run in another context. Nothing is kept of what came
        # before: uvicorn carries the context of one request on to the next of the connection.
        before, self._before = self._before, None
        _RUNNING.set(before)

    def is_here(self) -> bool:
        """Whether this code runs in the task, or in one of a task group in it: those end before it does."""
        if self.task is None:
            return True
        try:
            current = asyncio.current_task()
        except RuntimeError:  # a thread
            return False
        if current is None:  # a callback of the event loop, which may be anybody's
            return False
        if id(current) == self.task or current in self._within:
            return True
        parent = anyio.get_current_task().parent_id
        if parent not in (None, self.task):  # further up; this looks at all tasks
            parents = {each.id: each.parent_id for each in anyio.get_running_tasks()}
            for _ in parents:  # no more steps than tasks, whatever they say
                parent = parents.get(parent) if parent not in (None, self.task) else parent
        if parent != self.task:
            return False
        self._within |= {current}  # the task itself: its ``id`` may be that of another one later
        return True


_NO_TASKS: Final = frozenset[object]()
_RUNNING: Final[ContextVar[Running | None]] = ContextVar("a2a_trust.running", default=None)


def acting_for(context: Caller | Mapping[str, Any] | CallContext | _RequestContext) -> AbstractContextManager[Caller]:
    """A block in which ``current_principal()`` is the caller of that context, also in what starts in it, until it ends.

    ``context`` is what ``principal_of`` takes, or a caller. Use it in executors of the a2a-sdk, and in tasks and
    threads of your own. Do not use it around a ``yield`` of an async generator, because Python runs the one who asks
    for the next value in the same context, or around the sending of an answer, because uvicorn begins the next request
    of the connection in it. ConfigurationError as for ``principal_of``.
    """
    caller = context if isinstance(context, Principal | Anonymous) else _caller_of(context, "acting_for")
    return cast("AbstractContextManager[Caller]", Running(caller, None))  # which has a caller


def current_principal() -> Caller:
    """Who the request that this code answers is from.

    ConfigurationError where that is not certain: outside of requests, when the request has ended, and in tasks and
    threads that it has started, unless they run in a block of ``acting_for``.
    """
    running = _RUNNING.get()
    if running is None:
        raise ConfigurationError(
            "current_principal: no request is being answered here; call it in a handler behind protect(), or write "
            "with acting_for(context): …"
        )
    caller = running.caller
    if caller is None:
        raise ConfigurationError(
            "current_principal: the request that this code belongs to has ended, or its path is public; write "
            "with acting_for(context): … around the work that goes on after a request"
        )
    if not running.is_here():
        raise ConfigurationError(
            "current_principal: this is another task, or a thread (as that of a sync endpoint of FastAPI), than that "
            "of the request, and it may serve other callers, too; write with acting_for(context): … in it, or use "
            "principal_of(context)"
        )
    return caller


def this_task() -> int:
    """The ``id`` of the running task, as anyio names tasks; 0 for an event loop that is not asyncio's."""
    try:
        return id(asyncio.current_task())
    except RuntimeError:
        return 0
