"""Installs a guard: inside a Starlette or FastAPI application, and around any other.

A Starlette application stays the same object, so its routes, state and tools still work, and no other object serves it
without the guard. Only its class changes, to a subclass that calls the guard first. So the guard is outside of all
middleware, also of middleware that is added later, and outside of tools for errors and traces: they see no credential.
"""

from __future__ import annotations

from types import new_class
from typing import Any, Generic, TypeVar, cast

from starlette.applications import Starlette

from a2a_trust.errors import ConfigurationError
from a2a_trust.middleware.documents import ASGIApp, Receive, Scope, Send
from a2a_trust.middleware.options import check_app

AppT = TypeVar("AppT", bound=ASGIApp)


class Installation(Generic[AppT]):
    """The place for a guard in front of an application. ConfigurationError: it has one, or is not an application."""

    def __init__(self, app: AppT) -> None:
        check_app(app)
        if is_protected(app):
            raise ConfigurationError(
                "app: it is protected already; for several agents in one application write protect_agents(app, …) once"
            )
        self._app: Any = app
        self._class: type[Any] = type(app)

    @property
    def unguarded(self) -> ASGIApp:
        """The application without the guard, for the guard to pass requests on to."""
        return self._call_of_class if isinstance(self._app, Starlette) else self._app

    async def _call_of_class(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Found for each request: tools replace it.
        await self._class.__call__(self._app, scope, receive, send)

    def finish(self, guard: ASGIApp) -> AppT:
        """The application behind the guard."""
        if not isinstance(self._app, Starlette):
            return cast("AppT", _Wrapper(self._app, guard))  # with the attributes that it has

        async def call(_: Any, scope: Scope, receive: Receive, send: Send) -> None:
            await guard(scope, receive, send)

        members = {"__call__": call, "__module__": self._class.__module__}
        guarded = new_class(
            self._class.__name__, (_Guarded, self._class), exec_body=lambda space: space.update(members)
        )
        self._app.__class__ = guarded
        return cast("AppT", self._app)


def is_protected(app: object) -> bool:
    """Whether the application is behind ``protect`` already."""
    return isinstance(app, _Guarded | _Wrapper)


class _Guarded:
    """The class of an application that calls a guard first."""


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
