"""The public names of a package, imported on first use, so that a program loads only the modules that it uses.

A package has its names twice: in imports, for type checkers and tools that pack programs, and in a table, for run time.
A test compares the two.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # typing takes a tenth of the time that --help may take
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

_LIBRARIES_OF_EXTRAS: Final = ("anyio", "authlib", "httpcore", "httpx", "starlette")
_EXTRAS: Final = {
    "client": ("clients", "client"), "probe": ("probes", "client"), "push": ("push notifications", "client"),
    "testing": ("tests", "server,client"),
}  # fmt: skip
"""Package -> the users of its names, and the extra to install. All other packages are for servers."""


def lazy(package: str, modules: dict[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package (PEP 562). ``modules``: module below ``a2a_trust`` -> its names."""
    names = {name: f"a2a_trust.{module}" for module, listed in modules.items() for name in listed.split()}

    def find(name: str) -> Any:
        if name == "__all__":
            return sorted(names)
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = _import(names[name], name)
        setattr(sys.modules[package], name, value)
        return value

    return find, lambda: sorted({*vars(sys.modules[package]), *names})


def _import(module: str, name: str) -> Any:
    """Import the name. ImportError: a library of an extra is missing; the text says which extra to install."""
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in _LIBRARIES_OF_EXTRAS:
            raise
        user, extra = _EXTRAS.get(module.split(".")[1], ("servers", "server"))
        instead = ", or import it from a2a_trust.client.httpx2" if module == "a2a_trust.client.httpx" else ""
        text = f'{name} is for {user} and needs {library}: pip install "./a2a-trust[{extra}]"{instead}'
        raise ImportError(text) from None
