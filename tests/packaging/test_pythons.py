"""In every Python that is found the wheel installs with the locked core, and works. `make pythons` does more."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.packaging.environments import environment_of
from tests.packaging.probes import done_in
from tests.packaging.pythons import ROOT, VERSIONS, build_wheel, interpreters
from tests.packaging.test_distribution import IMPORT_ALL, NEEDS

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
        pytest.skip(f"NO PYTHON {request.param}: neither on PATH nor of pyenv")
    return environment_of(CORE, wheel, FOUND[request.param])


def test_everything_imports_that_needs_no_extra_and_the_command_works(python: Path, tmp_path: Path) -> None:
    card = (ROOT / "examples" / "georoute-agent-card.json").read_text()
    (tmp_path / "card.json").write_text(card)
    verify = "verify card.json --jwks key.jwks.json --origin https://georoute-agent.example.com"
    lines = ("keygen -o key.pem", "card.json --key key.pem", verify)
    done = done_in(python, tmp_path, programs=(IMPORT_ALL,), commands=lines)
    assert {name: each for name, each in done.items() if each.returncode} == {}
    missing = json.loads(done[IMPORT_ALL].stdout)
    assert [each for each in missing if not each.startswith(tuple(NEEDS))] == []
    signed = json.loads((tmp_path / "card.json").read_text())
    (tmp_path / "card.json").write_text(json.dumps({**signed, "name": "another"}))
    assert done_in(python, tmp_path, commands=(verify,))[verify].returncode == 1
