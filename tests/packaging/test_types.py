"""What type checkers know of the package: every public name has a known type, in the wheel as users install it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

from tests.interop.sdk_process import node_environment

_LOCKED = Path(__file__).with_name("pyright-1.1.414")
_ROOT = Path(__file__).resolve().parents[2]


def test_every_public_name_has_a_known_type(tmp_path: Path) -> None:
    node, packages = node_environment(_LOCKED)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=_ROOT, check=True, capture_output=True)
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (installed,) = environment.glob("lib/python*/site-packages")
    zipfile.ZipFile(next(tmp_path.glob("*.whl"))).extractall(installed)
    (installed / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    done = subprocess.run(
        [
            node,
            packages / "node_modules/pyright/index.js",
            "--verifytypes",
            "a2a_trust",
            "--ignoreexternal",
            "--outputjson",
        ],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)
    unknown = [each["name"] for each in report["typeCompleteness"]["symbols"] if not each["isTypeKnown"]]
    assert (unknown, report["typeCompleteness"]["completenessScore"]) == ([], 1)
    assert len(report["typeCompleteness"]["symbols"]) > 1000
