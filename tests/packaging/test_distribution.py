"""What is installed is what was meant: the files of wheel and sdist, and an environment with nothing else in it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest
import trove_classifiers

from tests.packaging.environments import EXTRAS, environment_with
from tests.packaging.probes import Done, clean_environment, done_in

ROOT = Path(__file__).resolve().parents[2]
#: The rooms that an installation without extras cannot import, and which extras bring what they need.
NEEDS = {
    "card.models": {"models", "serve"},
    "client": {"client", "client-httpx2"},
    "client.httpx": {"client"},
    "client.httpx2": {"client-httpx2"},
    "probe": {"client", "client-httpx2"},
    "push": {"client", "client-httpx2"},
    "push.httpx": {"client"},
    "push.httpx2": {"client-httpx2"},
    "base.net.fetcher": {"server", "client", "client-httpx2", "serve"},
    "auth.introspection": {"server", "client", "client-httpx2", "serve"},
    "auth.introspection_endpoint": {"server", "client", "client-httpx2", "serve"},
    "auth.providers": {"server", "client", "client-httpx2", "serve"},
    "middleware": {"server", "serve"},
    "servers": {"uvicorn"},
    "fastapi": set(),  # it is for those who have FastAPI
    "telemetry": {"otel"},
    "grpc": set(),  # it needs two extras
    "client.grpc": set(),  # so does this
    "probe.grpc": set(),  # so does this
    "testing.callers": {"server", "serve"},
    "testing.authorization_server": set(),  # it needs two extras
    "testing.agents": set(),  # it needs two extras
    "servers.hypercorn": {"serve"},
    "serve": {"serve"},
}
#: The door of a client for the library that an extra does not bring.
OTHER_CLIENT = {"client": "client.httpx2", "client-httpx2": "client.httpx"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Wheel and sdist, built from the tree as it is."""
    folder = tmp_path_factory.mktemp("built")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", folder], cwd=ROOT, check=True
    )
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def metadata_of(wheel: Path) -> tuple[Message, str]:
    """The metadata of the wheel, and its entry points."""
    with zipfile.ZipFile(wheel) as archive:
        (folder,) = {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        points = archive.read(f"{folder}/entry_points.txt").decode()
        return message_from_string(archive.read(f"{folder}/METADATA").decode()), points


def test_the_wheel_has_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
    sources = {
        str(path.relative_to(ROOT)) for path in (ROOT / "a2a_trust").rglob("*.py*") if "__pycache__" not in path.parts
    }
    assert {name for name in names if ".dist-info/" not in name} == {*sources, "a2a_trust/py.typed"}
    information = {name.partition("/")[2] for name in names if ".dist-info/" in name}
    assert information == {"METADATA", "WHEEL", "RECORD", "entry_points.txt"}


def test_the_metadata_says_what_is_true(built: tuple[Path, Path]) -> None:
    metadata, points = metadata_of(built[0])
    assert metadata["Author"] == "a2a-trust authors"
    assert (metadata["Requires-Python"], metadata["Description-Content-Type"]) == (">=3.11", "text/markdown")
    assert points == "[console_scripts]\na2a-sign = a2a_trust.cli.main:main\na2a-trust = a2a_trust.cli.main:main\n"
    assert set(metadata.get_all("Provides-Extra", [])) == {
        *filter(None, EXTRAS),
        "completion",
    }
    classifiers = metadata.get_all("Classifier", [])
    assert set(classifiers) <= set(trove_classifiers.classifiers)
    assert not [each for each in classifiers if each.startswith("License")]  # none is chosen
    assert {name for name in metadata if name.startswith("License") or name == "Project-URL"} == set()
    assert f"Programming Language :: Python :: {sys.version_info.major}.{sys.version_info.minor}" in classifiers


def test_the_readme_has_no_link_that_leads_nowhere_on_an_index(built: tuple[Path, Path]) -> None:
    text = metadata_of(built[0])[0].get_payload()
    assert isinstance(text, str)
    assert text.startswith("# a2a-trust\n")
    assert re.findall(r"\]\((?!https://)[^)]*\)|\]:|<(?:a|img)\b", text) == []
    assert "](https://a2a-protocol.org)" in text


def test_the_same_files_come_out_of_every_build(built: tuple[Path, Path], tmp_path: Path) -> None:
    """In another folder, with other times and rights of files, from the sdist, and a wheel also beside other files."""
    with tarfile.open(built[1]) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (copy,) = tmp_path.iterdir()
    for path in copy.rglob("*"):
        path.chmod(path.stat().st_mode & 0o700)
        os.utime(path, (1_500_000_000, 1_500_000_000))
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    command = f"umask 077; exec {sys.executable} -I -m hatchling build -d again"
    subprocess.run(["sh", "-c", command], cwd=copy, env=environment, check=True, capture_output=True)
    for first in built:
        second = copy / "again" / first.name
        assert second.read_bytes() == first.read_bytes(), f"{first.name} differs"
    for name in ("key.pem", ".env", "cli/ring.json", "vault/a2a_trust/key.py.bak"):
        (copy / "a2a_trust" / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / "a2a_trust" / name).write_text("secret")
    subprocess.run(["sh", "-c", f"{command} -t wheel"], cwd=copy, env=environment, check=True, capture_output=True)
    assert (copy / "again" / built[0].name).read_bytes() == built[0].read_bytes(), "a file beside the modules"


def test_the_sdist_can_be_tested_and_has_nothing_of_this_machine(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {
        "README.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "pyproject.toml",
        "tests/conftest.py",
        "docs/protect.md",
        "docs/two-sides.svg",
        "llms.txt",
        "mkdocs.yml",
    } <= names
    assert {name.partition("/")[0] for name in names} <= {
        *("a2a_trust", "tests", "docs", "examples", "benchmarks", "requirements"),
        *("README.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md", "Makefile", "Containerfile", "action.yml"),
        *("llms.txt", "mkdocs.yml"),
        *("pyproject.toml", "PKG-INFO", ".gitignore", ".dockerignore", ".pre-commit-hooks.yaml", "templates"),
    }
    assert not [name for name in names if "__pycache__" in name or ".sdk" in name or name.endswith(".pyc")]
    assert not [name for name in names if name.startswith("benchmarks/") and name.endswith((".txt", ".json"))]


IMPORT_ALL = """
import importlib, json, pkgutil, a2a_trust
found = {}
for module in pkgutil.walk_packages(a2a_trust.__path__, "a2a_trust."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        found[module.name.removeprefix("a2a_trust.")] = error.name
print(json.dumps(found))
"""


PROTECT = "from a2a_trust import protect"
PASSWORDS = "from a2a_trust.auth import MemoryPasswords as M; M().create(user='ann')"
POSTGRES = "from a2a_trust.auth import PostgresApiKeys; PostgresApiKeys('postgresql://localhost')"
REDIS = "from a2a_trust.auth import RedisProofMemory; RedisProofMemory('redis://localhost')"
#: It is unsigned, and the entry is of another host, so that nothing is fetched.
KEY_SET = "verify unsigned.json --trust network.toml --any-origin"
COMPLETION = "--print-completion bash"
WORK = (
    "keygen -o key.pem",
    "card.json --key key.pem",
    "verify card.json --any-origin --jwks key.jwks.json",
    "lint card.json",
    "trust add trust.toml --origin georoute-agent.example.com --jwks key.jwks.json",
    "verify card.json --trust trust.toml --origin georoute-agent.example.com",
    "inspect card.json --trust trust.toml --origin-from-card",
)


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path]) -> dict[str, Path]:
    """For nothing and for each extra, the Python of an environment with its locked requirements, and the wheel."""
    return {extra: environment_with(extra, built[0]) for extra in EXTRAS}


@pytest.fixture(scope="module")
def done(installed: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Mapping[str, Done]]:
    """What all programs and commands did there."""
    found = {}
    for extra, python in installed.items():
        folder = tmp_path_factory.mktemp("work")
        for name in ("card.json", "unsigned.json"):
            (folder / name).write_text((ROOT / "examples" / "georoute-agent-card.json").read_text())
        entry = '[[trust]]\norigins = ["other.example.com"]\njwks_url = "https://other.example.com/jwks.json"\n'
        (folder / "network.toml").write_text(f"version = 1\n{entry}")
        programs = (IMPORT_ALL, PROTECT, PASSWORDS, POSTGRES, REDIS)
        found[extra] = done_in(python, folder, programs=programs, commands=(*WORK, KEY_SET, COMPLETION))
    return found


@pytest.mark.parametrize("extra", EXTRAS, ids=lambda extra: extra or "core")
def test_every_part_imports_with_what_its_extra_brings(extra: str, done: dict[str, Mapping[str, Done]]) -> None:
    imported = done[extra][IMPORT_ALL]
    assert imported.returncode == 0, imported.stderr
    missing = json.loads(imported.stdout)
    without = {room for room, bringing in NEEDS.items() if extra not in bringing}
    assert {module for module in missing if not any(_is_in(module, room) for room in without)} == set()
    assert "a2a_trust" not in {name.partition(".")[0] for name in missing.values()}
    if extra == "":
        assert all(any(_is_in(module, room) for module in missing) for room in NEEDS)
    if extra.startswith("client"):
        assert [module for module in missing if _is_in(module, "client")] == ["client.grpc", OTHER_CLIENT[extra]]


def _is_in(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def test_what_is_declared_is_what_is_needed(installed: dict[str, Path]) -> None:
    uv = Path(sys.executable).with_name("uv")
    checked = [
        subprocess.run([uv, "pip", "check", "--python", python], capture_output=True, text=True, check=False)
        for python in installed.values()
    ]
    assert [each.stderr for each in checked if each.returncode != 0] == []


@pytest.mark.parametrize(
    ("work", "brings", "named", "code"),
    [
        (PROTECT, {"server", "serve"}, "server", 1),
        (PASSWORDS, {"basic"}, "server,basic", 1),
        (POSTGRES, {"postgres"}, "postgres", 1),
        (REDIS, {"redis"}, "redis", 1),
        (COMPLETION, {"completion"}, "completion", 2),
    ],
)
def test_what_needs_an_extra_says_which_one_brings_it(
    work: str, brings: set[str], named: str, code: int, done: dict[str, Mapping[str, Done]]
) -> None:
    """Servers, passwords, databases and completion."""
    outcomes = {extra: each[work] for extra, each in done.items()}
    assert [each for extra, each in outcomes.items() if extra in brings and (each.returncode or each.stderr)] == []
    told = f'pip install "./a2a-trust[{named}]"'
    others = {extra: each for extra, each in outcomes.items() if extra not in brings}
    assert {extra: each for extra, each in others.items() if each.returncode != code or told not in each.stderr} == {}
    if work == COMPLETION:
        assert "a2a-sign" in outcomes["completion"].stdout


def test_the_command_signs_and_verifies(done: dict[str, Mapping[str, Done]]) -> None:
    failed = {(extra, line): each[line] for extra, each in done.items() for line in WORK if each[line].returncode}
    assert failed == {}


def test_the_command_is_installed(installed: dict[str, Path]) -> None:
    for python in installed.values():
        command = [str(python.with_name("a2a-sign")), "--version"]
        assert subprocess.run(command, cwd="/", env=clean_environment(), check=True, capture_output=True).stdout


def test_key_sets_on_the_network_say_which_extra_fetches_them(done: dict[str, Mapping[str, Done]]) -> None:
    for extra, each in done.items():
        if extra in NEEDS["base.net.fetcher"]:
            assert each[KEY_SET].returncode == 3, each[KEY_SET]
        else:
            assert each[KEY_SET].returncode == 2, each[KEY_SET]
            assert 'pip install "./a2a-trust[client]"' in each[KEY_SET].stderr
