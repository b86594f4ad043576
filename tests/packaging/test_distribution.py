"""What is installed is what was meant: the files of wheel and sdist, and an environment with nothing else in it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest
import trove_classifiers

from tests.packaging.environments import EXTRAS, environment_with

ROOT = Path(__file__).resolve().parents[2]
#: The rooms that an installation without extras cannot import, and which extras bring what they need.
NEEDS = {
    "card.models": {"models"},
    "client": {"client"},
    "net.fetcher": {"server", "client"},
    "auth.guard": {"server"},
    "auth.throttle": {"server"},
    "auth.introspection": {"server", "client"},
    "auth.introspection_endpoint": {"server", "client"},
    "auth.providers": {"server", "client"},
    "providers": {"server", "client"},
    "middleware": {"server"},
    "endpoints": {"server"},
    "servers": {"uvicorn"},
    "testing.callers": {"server"},
    "testing.agents": set(),  # it needs two extras
    "servers.hypercorn": set(),  # it is for those who have hypercorn, and an extra would bring nothing else
}


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
    assert points == "[console_scripts]\na2a-sign = a2a_trust.cli.main:main\n"
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
        "mkdocs.yml",
    } <= names
    assert {name.partition("/")[0] for name in names} <= {
        *("a2a_trust", "tests", "docs", "examples", "benchmarks", "requirements"),
        *("README.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md", "Makefile", "Containerfile", "action.yml"),
        "mkdocs.yml",
        *("pyproject.toml", "PKG-INFO", ".gitignore", ".dockerignore", ".pre-commit-hooks.yaml", "templates"),
    }
    assert not [name for name in names if "__pycache__" in name or ".sdk" in name or name.endswith(".pyc")]
    assert not [name for name in names if name.startswith("benchmarks/") and name.endswith((".txt", ".json"))]


@pytest.fixture(scope="module", params=EXTRAS, ids=lambda extra: extra or "core")
def installed(request: pytest.FixtureRequest, built: tuple[Path, Path]) -> tuple[str, Path]:
    """An environment with the locked requirements of that extra, and the wheel."""
    return request.param, environment_with(request.param, built[0])


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "A2A_"))}
    return subprocess.run([python, *arguments], cwd="/", env=clean, capture_output=True, text=True, check=False)


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


def test_every_part_imports_with_what_its_extra_brings(installed: tuple[str, Path]) -> None:
    extra, python = installed
    done = run(python, "-W", "error", "-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    missing = json.loads(done.stdout)
    without = {room for room, bringing in NEEDS.items() if extra not in bringing}
    assert {module for module in missing if not any(_is_in(module, room) for room in without)} == set()
    assert "a2a_trust" not in {name.partition(".")[0] for name in missing.values()}
    if extra == "":
        assert all(any(_is_in(module, room) for module in missing) for room in NEEDS)


def _is_in(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def test_what_is_declared_is_what_is_needed(installed: tuple[str, Path]) -> None:
    done = run(Path(sys.executable), "-m", "pip", "--python", str(installed[1]), "check")
    assert done.returncode == 0, done.stdout


def test_the_names_of_servers_say_which_extra_brings_them(installed: tuple[str, Path]) -> None:
    extra, python = installed
    done = run(python, "-c", "from a2a_trust import protect")
    if extra == "server":
        assert done.returncode == 0, done.stderr
    else:
        assert 'pip install "./a2a-trust[server]"' in done.stderr


def test_passwords_say_which_extra_hashes_them(installed: tuple[str, Path]) -> None:
    extra, python = installed
    done = run(python, "-W", "error", "-c", "from a2a_trust.auth import MemoryPasswords as M; M().create(user='ann')")
    if extra == "basic":
        assert done.returncode == 0, done.stderr
    else:
        assert 'pip install "./a2a-trust[server,basic]"' in done.stderr


@pytest.mark.parametrize(
    ("brings", "made"),
    [
        ("postgres", "PostgresApiKeys('postgresql://localhost')"),
        ("redis", "RedisProofMemory('redis://localhost')"),
    ],
)
def test_databases_say_which_extra_brings_their_client(installed: tuple[str, Path], brings: str, made: str) -> None:
    extra, python = installed
    done = run(python, "-W", "error", "-c", f"from a2a_trust.auth import {made.partition('(')[0]}; {made}")
    if extra == brings:
        assert done.returncode == 0, done.stderr
    else:
        assert f'pip install "./a2a-trust[{brings}]"' in done.stderr


def test_completion_says_which_extra_brings_it(installed: tuple[str, Path]) -> None:
    extra, python = installed
    done = run(python, "-W", "error", "-m", "a2a_trust", "--print-completion", "bash")
    if extra == "completion":
        assert (done.returncode, "a2a-sign" in done.stdout, done.stderr) == (0, True, "")
    else:
        assert (done.returncode, 'pip install "./a2a-trust[completion]"' in done.stderr) == (2, True)


def test_the_command_signs_and_verifies(installed: tuple[str, Path], tmp_path: Path) -> None:
    command = installed[1].with_name("a2a-sign")
    (tmp_path / "card.json").write_text((ROOT / "examples" / "georoute-agent-card.json").read_text())
    for line in (
        "keygen -o key.pem",
        "card.json --key key.pem",
        "verify card.json --any-origin --jwks key.jwks.json",
        "lint card.json",
        "trust add trust.toml --origin georoute-agent.example.com --jwks key.jwks.json",
        "verify card.json --trust trust.toml --origin georoute-agent.example.com",
        "inspect card.json --trust trust.toml --origin-from-card",
        "--version",
    ):
        done = subprocess.run([command, *line.split()], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"


def test_key_sets_on_the_network_say_which_extra_fetches_them(installed: tuple[str, Path], tmp_path: Path) -> None:
    extra, python = installed
    (tmp_path / "card.json").write_text((ROOT / "examples" / "georoute-agent-card.json").read_text())
    entry = '[[trust]]\norigins = ["other.example.com"]\njwks_url = "https://other.example.com/jwks.json"\n'
    (tmp_path / "trust.toml").write_text(f"version = 1\n{entry}")
    command = [str(python.with_name("a2a-sign")), "verify", "card.json", "--trust", "trust.toml", "--any-origin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if extra in NEEDS["net.fetcher"]:
        assert done.returncode == 3, done.stderr  # the card is unsigned; it is of another host, so nothing is fetched
    else:
        assert done.returncode == 2
        assert 'pip install "./a2a-trust[client]"' in done.stderr
