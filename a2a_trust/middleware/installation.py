"""Installs a guard: inside a Starlette or FastAPI application, and around any other.

The class of a Starlette application is exchanged for a subclass whose call is that of the guard. The reasons:

- The application stays the same object, so its routes, state and tools still work, and no other object serves it
  without the guard.
- The guard is outside of all middleware, also of middleware that is added later, and outside of tools for errors and
  traces: they see no credential that the guard has checked. ``Middleware(protect, …)`` is only as far outside as its
  place in the list.
- An attribute ``__call__`` of the object would do nothing: Python looks calls up in the class.

Any other application gets a wrapper, a ``ProtectedApplication``.
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

    def finish(self, guard: Any) -> AppT:
        """The application behind the guard."""
        is_swapped = isinstance(self._app, Starlette)
        kind: type[Any] = self._class if is_swapped else ProtectedApplication

        async def guarded_call(_: Any, scope: Scope, receive: Receive, send: Send) -> None:
            await guard(scope, receive, send)

        members = {"__call__": guarded_call, "__module__": kind.__module__, **({} if is_swapped else {"__slots__": ()})}
        guarded = new_class(kind.__name__, (kind, _Guarded), exec_body=lambda space: space.update(members))
        if not is_swapped:
            return cast("AppT", guarded(self._app))
        self._app.__class__ = guarded
        return cast("AppT", self._app)


def is_protected(app: object) -> bool:
    """Whether the application is behind ``protect`` already."""
    return isinstance(app, _Guarded)


class _Guarded:
    """The class of an application whose call is that of a guard."""

    __slots__ = ()


class ProtectedApplication:
    """An application that is not of Starlette, behind its guard. It is called as the application is, and its public
    attributes are those of the application."""

    __slots__ = ("__weakref__", "_app")

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"the application is protected, and has no public attribute {name!r}")
        return getattr(self._app, name)
