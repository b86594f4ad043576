"""The public names of a package, imported on first use, so that a program loads only the modules that it uses.

The stub beside a package's ``__init__.py`` is the one table of its names. Type checkers read the stub; at run time
``lazy`` reads its lines ``from module import name as name``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module

TYPE_CHECKING = False  # typing takes a tenth of the time that --help may take
if TYPE_CHECKING:
    from typing import Any, Final

_LINE: Final = r"(?m)^from (a2a_trust\.[\w.]+) import (\w+) as \2$"
_LIBRARIES_OF_EXTRAS: Final = ("anyio", "authlib", "httpcore", "httpx", "starlette")
_EXTRAS: Final = {"client": ("clients", "client"), "testing": ("tests", "server,client")}
"""Room -> the users of its names, and the extra to install. All other rooms are for servers."""


@cache
def public_names(init_file: str) -> dict[str, str]:
    """Name -> module, of the package with that ``__init__.py``."""
    from pathlib import Path  # a tenth of the start of a command that needs no public name

    try:
        stub = Path(init_file).with_suffix(".pyi").read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ImportError(f"a2a-trust is not installed whole: {error.filename} is missing; install it again") from None
    return {name: module for module, name in re.findall(_LINE, stub)}


def lazy(package: str, init_file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package (PEP 562)."""

    def find(name: str) -> Any:
        names = public_names(init_file)
        if name == "__all__":
            return sorted(names)
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = _imported(names[name], name)
        setattr(sys.modules[package], name, value)
        return value

    return find, lambda: sorted({*vars(sys.modules[package]), *public_names(init_file)})


def _imported(module: str, name: str) -> Any:
    """Import the name. ImportError: a library of an extra is missing; the text says which extra to install."""
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in _LIBRARIES_OF_EXTRAS:
            raise
        room = module.split(".")[1]
        user, extra = _EXTRAS.get(room, ("servers", "server"))
        raise ImportError(f'{name} is for {user} and needs {library}: pip install "./a2a-trust[{extra}]"') from None
