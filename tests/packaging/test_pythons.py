"""In every Python that is found the wheel installs with the locked core, and works. `make pythons` does more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.environments import environment_of
from tests.packaging.pythons import ROOT, VERSIONS, build_wheel, interpreters
from tests.packaging.test_distribution import IMPORT_ALL, NEEDS, run

FOUND = interpreters()
CORE = ROOT / "tests/packaging/requirements-core.txt"
#: The test suite runs in this one, and tests/packaging/test_distribution.py tests it.
THIS = "{}.{}".format(*sys.version_info)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=[version for version in VERSIONS if version != THIS])
def python(request: pytest.FixtureRequest, wheel: Path) -> Path:
    if request.param not in FOUND:
        pytest.skip(f"NO PYTHON {request.param}: neither on PATH nor of pyenv")  # no target installs one
    return environment_of(CORE, wheel, FOUND[request.param])


def test_everything_that_needs_no_extra_imports(python: Path) -> None:
    done = run(python, "-W", "error", "-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    rooms = [f'"{room}' for room in NEEDS]
    missing = done.stdout.strip("{}\n").split(", ")
    assert [each for each in missing if not each.startswith(tuple(rooms))] == []


def test_the_command_signs_and_verifies(python: Path, tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text((ROOT / "examples" / "georoute-agent-card.json").read_text())
    for line in (
        "keygen -o key.pem",
        "card.json --key key.pem",
        "verify card.json --jwks key.jwks.json --origin https://georoute-agent.example.com",
    ):
        command = [str(python), "-W", "error", "-m", "a2a_trust", *line.split()]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    card = json.loads((tmp_path / "card.json").read_text())
    (tmp_path / "card.json").write_text(json.dumps({**card, "name": "another"}))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, f"a changed card: {done.stdout}{done.stderr}"
