"""Where a guard stands: inside an application of Starlette or FastAPI, and around any other.

Inside, the application stays the object that it was: its routes, its state and its tools go on working, and there is no
other object that would serve it without the guard. The guard is outside of all its middleware, whatever is added later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, cast

from starlette.applications import Starlette

from a2a_trust.errors import ConfigurationError
from a2a_trust.middleware.documents import ASGIApp, Receive, Scope, Send
from a2a_trust.middleware.options import check_app

__all__ = ["AppT", "Installation", "is_protected"]

AppT = TypeVar("AppT", bound=ASGIApp)

#: Whose ``__call__`` does nothing but to call the middleware. A subclass may answer before that.
_KNOWN_CALLS: Final = ("starlette.applications", "fastapi.applications")


class Installation(Generic[AppT]):
    """The place for a guard in front of an application. ConfigurationError: it has a guard, or is none."""

    def __init__(self, app: AppT) -> None:
        check_app(app)
        if is_protected(app):
            raise ConfigurationError(
                "app: it is protected already; for several agents in one application write protect_agents(app, …) once"
            )
        self._app = app
        self._stack = _Stack(app) if _has_known_call(app) else None

    @property
    def unguarded(self) -> ASGIApp:
        """The application without the guard, for the guard to pass requests on to."""
        return self._app if self._stack is None else self._stack

    def finish(self, guard: ASGIApp) -> AppT:
        """The application behind the guard."""
        if self._stack is None:
            return cast("AppT", _Wrapper(self._app, guard))  # with the attributes that it has
        self._stack.install(guard)
        return self._app


def is_protected(app: object) -> bool:
    """Whether ``protect`` has put a guard in front of it."""
    build = getattr(app, "build_middleware_stack", None)
    return isinstance(app, _Wrapper) or isinstance(getattr(build, "__self__", None), _Stack)


def _has_known_call(app: object) -> bool:
    return isinstance(app, Starlette) and type(app).__call__.__module__ in _KNOWN_CALLS


class _Stack:
    """The middleware and the routes of a Starlette application, built when it is first called."""

    def __init__(self, app: Any) -> None:
        if app.middleware_stack is not None:
            raise ConfigurationError("app: it has served requests already; protect it before it is used")
        self._app = app
        self._build: Callable[[], ASGIApp] = app.build_middleware_stack
        self._built: ASGIApp | None = None
        self._guard: ASGIApp = self

    def install(self, guard: ASGIApp) -> None:
        self._guard = guard
        self._app.build_middleware_stack = self.build

    def build(self) -> ASGIApp:
        """What the application calls for every request from now on."""
        self._built = self._build()
        return self._guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._built is None:
            self._built = self._build()
        await self._built(scope, receive, send)


class _Wrapper:
    """An application behind its guard; its public attributes are those of the application."""

    __slots__ = ("__weakref__", "_app", "_guard")

    def __init__(self, app: ASGIApp, guard: ASGIApp) -> None:
        self._app, self._guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guard(scope, receive, send)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self._app).__name__!r} is protected, and has no public attribute {name!r}")
        return getattr(self._app, name)
