"""Which HTTP library a door is for: httpx or httpx2, which have the same names, but not the same classes.

The door is written once, in ``adapters``, and makes the objects of the library that it gets here. An object of the
other library is rejected, not converted: its streams, time limits and errors mean nothing to this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Final, TypeAlias

DOORS: Final = {"httpx": "a2a_trust.client", "httpx2": "a2a_trust.client.httpx2"}
"""Library -> where to import the door for it."""


HttpRequest: TypeAlias = Any
"""A request of the library. The door replaces its headers, its URL and its stream by others of the library."""

HttpResponse: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Library:
    """The module of the library, and the errors of the door, which derive from its errors."""

    module: ModuleType
    unverified: type[Exception]
    no_credentials: type[Exception]
    rejected: Callable[..., Exception]

    def check(self, what: str, given: object, kind: type) -> None:
        """TypeError: it is not an object of that class. If it is of the other library, the text names its door."""
        if isinstance(given, kind):
            return
        library, name = self.module.__name__, type(given).__name__
        theirs = {each.__module__.partition(".")[0] for each in type(given).__mro__} & DOORS.keys() - {library}
        hint = "".join(f", but of {each}; import from {DOORS[each]} for it" for each in theirs)
        raise TypeError(f"{what}: {name} is not an {library}.{kind.__name__}{hint}")


@cache
def derived(ours: type, *theirs: Any) -> Any:
    """The class that derives from a class of the door and classes of a library."""
    return type(ours.__name__, (ours, *theirs), {"plain": theirs[0]})
