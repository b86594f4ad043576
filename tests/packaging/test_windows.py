"""What is known of Windows without one: modules that it does not have are not needed to import, sign and verify."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.pythons import ROOT

#: Modules of POSIX that Windows does not have.
BLOCKED = """
import sys
sys.modules |= dict.fromkeys(["fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "uvloop"])
"""
IMPORT_EVERYTHING = """
import importlib, pkgutil, a2a_trust
for module in pkgutil.walk_packages(a2a_trust.__path__, "a2a_trust."):
    importlib.import_module(module.name)
"""
COMMAND = """
import sys
sys.modules["fcntl"] = None  # other modules of POSIX are guarded by the name of the platform
from a2a_trust.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_every_module_imports_without_modules_of_posix() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + IMPORT_EVERYTHING], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("verify card.json --jwks key.jwks.json --origin https://georoute-agent.example.com", 0, "verified"),
        ("trust add trust.toml --origin georoute-agent.example.com --jwks key.jwks.json", 0, ""),
    ],
)
def test_files_are_written_without_flock(arguments: str, code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text((ROOT / "examples" / "georoute-agent-card.json").read_text())
    program = "import os; vars(os).pop('O_TMPFILE', None)\n" + COMMAND  # nor files without a name
    for line, expected in (("keygen -o key.pem", 0), ("card.json --key key.pem", 0), (arguments, code)):
        command = [sys.executable, "-W", "error", "-c", program, *line.split()]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == expected, f"{line}: {done.stdout}{done.stderr}"
    assert said in done.stdout.lower()
    assert not list(tmp_path.glob(".*.a2a-sign"))


def test_a_trust_file_that_is_there_is_not_changed_without_flock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COMMAND]
    for line in ("keygen -o key.pem", "trust add trust.toml --origin a.example.com --jwks key.jwks.json"):
        subprocess.run([*command, *line.split()], cwd=tmp_path, check=True, capture_output=True)
    before = (tmp_path / "trust.toml").read_bytes()
    again = ["trust", "add", "trust.toml", "--origin", "b.example.com", "--jwks", "key.jwks.json"]
    done = subprocess.run([*command, *again], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode != 0, "POSIX lock" in done.stderr) == (True, True), done.stderr
    assert (tmp_path / "trust.toml").read_bytes() == before
