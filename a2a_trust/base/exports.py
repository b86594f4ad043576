"""The public names of a package, imported on first use, so that a program loads only the modules that it uses.

A package names each of them once, in imports that run for type checkers only. Their code is compiled all the same, and
says at run time which module has which name, also where there are no files, as in a packed program.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # typing takes a tenth of the time that --help may take
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType
    from typing import Any, Final

_LIBRARIES_OF_EXTRAS: Final = ("anyio", "authlib", "httpcore", "httpx", "starlette")
_EXTRAS: Final = {
    "client": ("clients", "client"), "probe": ("probes", "client"), "push": ("push notifications", "client"),
    "testing": ("tests", "server,client"),
}  # fmt: skip
"""Package -> the users of its names, and the extra to install. All other packages are for servers."""


def lazy(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package (PEP 562), for the names in its block ``if TYPE_CHECKING``."""
    code = sys._getframe(1).f_code
    names: dict[str, str] = {}

    def modules() -> dict[str, str]:
        """Name -> its module."""
        if not names:
            names.update(_imports(code))
        return names

    def find(name: str) -> Any:
        if name == "__all__":
            return sorted(modules())
        # First a quick look: an import of a module of the package asks for its name here, too.
        if name not in code.co_names or name not in modules():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = _import(names[name], name)
        setattr(sys.modules[package], name, value)
        return value

    return find, lambda: sorted({*vars(sys.modules[package]), *modules()})


def _imports(code: CodeType) -> Iterator[tuple[str, str]]:
    """The names that the code imports from other modules than this one, and their modules."""
    from dis import get_instructions  # slow, and no command needs it

    module = ""
    for each in get_instructions(code):
        if each.opname == "IMPORT_NAME":
            module = each.argval
        elif each.opname == "IMPORT_FROM" and module != __name__:
            yield each.argval, module


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
