"""The house keeps its order: who imports whom, and where each library lives."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

import a2a_trust
from tests.tables import walk

PACKAGE = Path(a2a_trust.__file__).parent

#: From the ground up; a room imports from its own and from lower floors only.
FLOORS = (
    ("errors",),
    ("base",),
    ("card",),
    ("keys",),
    ("signing", "auth"),
    ("lint",),
    ("middleware", "client"),
    ("probe", "push", "servers"),
    ("serve",),
    ("cli", "proxies", "certificates", "fastapi", "providers", "telemetry", "testing", "grpc"),
    ("__main__",),
)

#: The same within large rooms: modules, and folders of modules.
FLOORS_WITHIN = {
    "base": (
        ("dates", "exports", "state_changes"),
        ("cache", "files", "strict_json", "workers"),
        ("net",),
        ("databases",),
    ),
    "keys": (
        ("algorithms", "base64url", "files", "jwk", "jws", "rotation", "sealed", "signer"),
        ("trust",),
        ("ring_file",),
    ),
    "auth": (
        ("principal", "credentials", "peers", "discovery"),
        ("records", "throttle", "token_claims"),
        ("proofs", "dpop", "introspection_endpoint", "jwt"),
        ("api_key", "basic", "certificate", "introspection", "record_table"),
        ("guard_config", "providers"),
        ("guard",),
    ),
    "middleware": (
        ("audit", "browsers", "documents", "routing"),
        ("caller", "disconnect", "lifespan", "rejection"),
        ("application", "calls", "card", "options"),
        ("extended_card", "webhooks"),
        ("decision",),
        ("streams",),
        ("door",),
        ("agents",),
        ("protection",),
    ),
}

#: Each library, and the files that may import it.
HOMES = {
    "cryptography": ("keys/", "auth/certificate/"),
    "joserfc": ("keys/jwk.py", "keys/files.py"),
    "orjson": ("base/strict_json/reader.py", "base/strict_json/jcs.py", "signing/sign.py"),
    "platformdirs": ("cli/sources.py",),
    "argon2": ("auth/basic/hashing.py",),
    "argparse": ("cli/",),
    "shtab": ("cli/main.py",),
    "httpcore": ("base/net/fetcher.py", "serve/proxy.py"),
    "anyio": (
        "base/net/fetcher.py",
        "client/flow.py",
        "middleware/agents.py",
        "middleware/application.py",
        "middleware/caller.py",
        "middleware/lifespan.py",
        "middleware/door.py",
        "serve/application.py",
        "serve/proxy.py",
    ),
    "msgspec": ("card/simple.py", "middleware/calls.py", "signing/lines.py"),
    "httpx": (
        "client/httpx.py",
        "push/httpx.py",
        "testing/agents.py",
    ),
    "httpx2": ("client/httpx2.py", "push/httpx2.py"),
    "authlib": ("client/oauth.py",),
    "starlette": ("middleware/", "testing/", "fastapi.py"),
    "fastapi": ("fastapi.py",),
    "opentelemetry": ("telemetry.py",),
    "uvicorn": ("servers/uvicorn.py",),
    "hypercorn": ("servers/hypercorn.py",),
    "pydantic": ("card/models.py", "serve/configuration.py", "serve/forms.py"),
    "a2a": ("card/given.py",),
    "google": ("client/sdk_hook.py", "grpc.py"),
    "grpc": ("probe/grpc.py", "grpc.py", "client/grpc.py"),
    "asyncpg": ("base/databases/postgres.py",),
    "redis": ("base/databases/redis.py",),
    "sqlite3": (
        "base/files/sqlite.py",
        "auth/proofs/sqlite.py",
        "auth/record_table.py",
        "client/memory_store.py",
    ),
}

STANDARD = {
    "abc", "asyncio", "base64", "binascii", "bisect", "codecs", "collections", "concurrent", "contextlib",
    "contextvars", "copy", "dataclasses", "datetime", "decimal", "email", "enum", "errno", "fcntl", "fnmatch",
    "functools", "__future__", "gc", "getpass", "hashlib", "heapq", "hmac", "importlib", "inspect", "io", "ipaddress",
    "itertools", "json", "logging", "math", "multiprocessing", "operator", "os", "pathlib", "queue", "re", "resource",
    "difflib",
    "secrets", "shlex", "shutil", "signal", "socket", "ssl", "stat", "struct", "sys", "tempfile", "textwrap",
    "threading", "time", "tomllib", "traceback", "types", "typing", "unicodedata", "urllib", "uuid", "warnings",
    "weakref", "zlib",
}  # fmt: skip


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree_of(path)))


def imports(path: Path, *, for_types: bool = False) -> Iterator[str]:
    """What a file imports, anywhere in it; what it imports for type checking only, ``for_types``."""
    typing_only = {
        id(node)
        for block in nodes_of(path)
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in ast.walk(block)
        if not for_types
    }
    for node in nodes_of(path):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            # `from a2a_trust import strict_json` and `from a2a_trust.keys import base64url` name modules
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def floor_of(module: str) -> int:
    room = module.split(".")[1]
    for floor, rooms in enumerate(FLOORS):
        if room in rooms:
            return floor
    raise AssertionError(f"{module} is on no floor; add its room to FLOORS")


def name_of(path: Path) -> str:
    return ".".join(("a2a_trust", *path.relative_to(PACKAGE).with_suffix("").parts))


@walk("path", modules(), ids=name_of)
def test_a_module_imports_only_from_its_own_and_lower_floors(path: Path) -> None:
    if path == PACKAGE / "__init__.py":
        return  # names every room, and loads none until it is asked
    for imported in imports(path):
        if imported.startswith("a2a_trust."):
            here, there = name_of(path), imported
            assert floor_of(there) <= floor_of(here), f"{here} imports {there} from above"
            assert {here.split(".")[1], there.split(".")[1]} != {"signing", "auth"}, f"{here} imports {there}"


def test_clients_import_nothing_of_servers_but_the_token_that_they_exchange() -> None:
    taken = {
        imported
        for path in (PACKAGE / "client").rglob("*.py")
        for imported in imports(path, for_types=True)
        if imported.startswith(("a2a_trust.auth.", "a2a_trust.middleware."))
    }
    assert taken == {"a2a_trust.auth.principal.SubjectToken"}


def floor_within(room: str, module: str) -> int:
    part = module.split(".")[2]
    for floor, parts in enumerate(FLOORS_WITHIN[room]):
        if part in parts:
            return floor
    raise AssertionError(f"{module} is on no floor of {room}; add it to FLOORS_WITHIN")


@walk("path", [path for room in FLOORS_WITHIN for path in (PACKAGE / room).rglob("[!_]*.py")], ids=name_of)
def test_within_a_large_room_a_module_imports_only_from_its_own_and_lower_floors(path: Path) -> None:
    here = name_of(path)
    room = here.split(".")[1]
    for imported in imports(path, for_types=True):
        if imported.startswith(f"a2a_trust.{room}."):
            assert floor_within(room, imported) <= floor_within(room, here), f"{here} imports {imported} from above"


def test_no_module_imports_itself_by_way_of_others() -> None:
    files = {name_of(path).removesuffix(".__init__"): path for path in modules()}
    for package in LAZY:  # they name modules, and load none until they are asked
        del files[package.__name__]
    graph: dict[str, set[str]] = {}
    for here, path in files.items():
        named = {each for name in imports(path, for_types=True) for each in (name, name.rpartition(".")[0])}
        graph[here] = named & files.keys() - {here}
    list(TopologicalSorter(graph).static_order())  # CycleError names the modules


@walk("path", modules(), ids=name_of)
def test_a_library_is_imported_only_where_it_lives(path: Path) -> None:
    here = path.relative_to(PACKAGE).as_posix()
    for imported in imports(path):
        library = imported.split(".")[0]
        if library == "a2a_trust" or (library in STANDARD and library not in HOMES):
            continue
        assert library in HOMES, f"{here} imports {library}, which has no home; add it to HOMES"
        assert here.startswith(HOMES[library]), f"{here} imports {library}, which lives in {HOMES[library]}"


#: The packages and modules whose names are public.
PUBLIC = ("", ".keys", ".signing", ".auth", ".lint", ".middleware", ".client", ".probe", ".push", ".serve", ".testing")
DOORS = (".errors", ".proxies", ".certificates", ".providers")


LAZY = [import_module(f"a2a_trust{each}") for each in (*PUBLIC, *DOORS) if each != ".errors"]


@walk("package", LAZY, ids=lambda each: each.__name__)
def test_type_checkers_and_programs_find_the_same_public_names(package: ModuleType) -> None:
    path = Path(str(package.__file__))
    imported = [node for node in nodes_of(path) if isinstance(node, ast.ImportFrom)]
    names = {alias.asname: node.module for node in imported for alias in node.names if alias.asname}
    for name, module in names.items():
        value = getattr(package, name)
        assert not isinstance(value, type) or value.__name__ == name
        assert value is getattr(import_module(str(module)), name)
        assert name in dir(package)
        assert path.stem != "__init__" or not path.with_name(f"{name}.py").exists(), "a module would hide it"
    assert package.__all__ == sorted(names)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_every_public_name_is_found_in_a_zip_file(tmp_path: Path) -> None:
    """As in programs that PyInstaller packs, there are no files of ours to read."""
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as packed:
        for path in modules():
            packed.write(path, path.relative_to(PACKAGE.parent))
    stars = "\n".join(f"from {package.__name__} import *" for package in LAZY)
    program = f"import a2a_trust\n{stars}\nprint(a2a_trust.__file__, protect.__code__.co_filename)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": "packed.zip"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.count("packed.zip/a2a_trust/") == 2, done.stderr


def test_what_the_package_exports_fits_on_a_page() -> None:
    assert len(LAZY[0].__all__) <= 48
    assert a2a_trust.__version__ == version("a2a-trust")


LONGEST = 60


@walk("path", modules(), ids=name_of)
def test_a_function_fits_on_a_screen(path: Path) -> None:
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{name_of(path).removeprefix('a2a_trust.')}.{node.name}"
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= LONGEST, f"{name}: {lines} lines; {LONGEST} are the limit"


def test_no_two_classes_have_one_name() -> None:
    # httpx2.py has the names of httpx.py: tests/client/test_httpx2.py
    there = [path for path in modules() if path.name != "httpx2.py"]
    names = [node.name for path in there for node in nodes_of(path) if isinstance(node, ast.ClassDef)]
    assert {name for name in names if names.count(name) > 1} == set()


def test_no_module_is_named_for_having_no_name() -> None:
    assert not {path.stem for path in modules()} & {"utils", "util", "helpers", "common", "misc"}


@walk(
    ("name", "library", "extra"),
    [
        ("protect", "starlette", "server"),
        ("Fetcher", "httpcore", "server"),
        ("fetch_card", "anyio", "client"),
        ("VerifyingTransport", "httpx", "client"),
    ],
)
def test_without_an_extra_its_names_say_what_to_install(name: str, library: str, extra: str) -> None:
    program = f"import sys; sys.modules[{library!r}] = None; import a2a_trust; a2a_trust.{name}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{name} is for {extra}s and needs {library}" in done.stderr.splitlines()[-1]
    assert f'pip install "./a2a-trust[{extra}]"' in done.stderr.splitlines()[-1]


def test_passwords_say_which_extra_they_need() -> None:
    missing = "import sys; sys.modules['argon2'] = None; from a2a_trust.auth import BasicVerifier, MemoryPasswords"
    done = subprocess.run(
        [sys.executable, "-c", f"{missing}; BasicVerifier(print); BasicVerifier(MemoryPasswords())"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert 'need argon2: pip install "./a2a-trust[server,basic]"' in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(("name", "library"), [("as_caller", "starlette"), ("InMemoryAgent", "httpx")])
def test_names_for_tests_say_that_they_need_both_extras(name: str, library: str) -> None:
    program = f"import sys; sys.modules[{library!r}] = None; from a2a_trust.testing import {name}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    said = f'{name} is for tests and needs {library}: pip install "./a2a-trust[server,client]"'
    assert said in done.stderr.splitlines()[-1]


def test_tokens_for_tests_need_no_extra() -> None:
    missing = "sys.modules |= dict.fromkeys(['anyio', 'httpx', 'starlette'])"
    program = f"import sys; {missing}; from a2a_trust.testing import TokenIssuer; TokenIssuer().token(audience='a')"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_agent_with_api_keys_starts_without_cryptography() -> None:
    card = {
        "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
        "securityRequirements": [{"schemes": {"key": {"list": []}}}],
        "supportedInterfaces": [
            {"url": "https://agent.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ],
    }
    program = (
        "import sys; sys.modules['cryptography'] = None; from a2a_trust import protect; "
        "from a2a_trust.auth import ApiKeyVerifier, MemoryApiKeys; url = 'https://agent.example'; "
        f"protect(print, card={card}, url=url, verifiers={{'key': ApiKeyVerifier(MemoryApiKeys())}})"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_cards_are_fetched_without_httpx() -> None:
    program = "import sys; sys.modules['httpx'] = None; import a2a_trust; a2a_trust.fetch_card"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_map_in_the_documents_names_every_module_in_its_room() -> None:
    text = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^### (?:`([\w/]+)`|\(top\))\n\n((?:[- ].*\n)+)", text, re.MULTILINE)
    named = {f"{room}/{name}" if room else name for room, names in rows for name in re.findall(r"`(\w+)`", names)}
    there = {path.relative_to(PACKAGE).with_suffix("").as_posix() for path in modules() if path.stem != "__init__"}
    assert there - named == set(), "not in docs/architecture.md"
    assert {name for name in named if "/" in name} - there - {"middleware/protect"} == set(), "not in the package"


def public_names_of(module: ModuleType) -> set[str]:
    if module in LAZY:
        return set(module.__all__)
    return {
        name for name, value in vars(module).items() if isinstance(value, type) and value.__module__ == module.__name__
    }


def test_the_page_of_public_names_has_each_of_them_once() -> None:
    """Those of the top are in its table only; proxies repeats ``Networks``, which is of two doors."""
    text = (PACKAGE.parent / "docs" / "api.md").read_text(encoding="utf-8")
    sections = {section.partition("`")[0]: section for section in text.split("\n## `")[1:]}
    assert set(sections) == {f"a2a_trust{each}" for each in (*PUBLIC, *DOORS)}
    top = public_names_of(LAZY[0])
    for name, section in sections.items():
        listed = re.findall(r"^\| `(\w+)` \| .+ \|$", section, re.MULTILINE)
        assert sorted(listed) == sorted(public_names_of(import_module(name)) - (set() if name == "a2a_trust" else top))


def test_the_page_of_public_names_shows_where_to_import_them() -> None:
    text = (PACKAGE.parent / "docs" / "api.md").read_text(encoding="utf-8")
    (imports,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {}
    exec(imports, names)
    assert names["verify_card"] is a2a_trust.verify_card
