"""The package as a reader installs it: by the commands of a page, beside a clone of the project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

__all__ = ["installed"]


def installed(folder: Path, text: str) -> Path:
    """The programs of the environment ``env`` in ``folder``, which the one block of commands of ``text`` makes."""
    known = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, known.split("\0")):
        if (ROOT / name).is_file():
            (folder / "a2a-trust" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / "a2a-trust" / name)
    (folder / "python3").symlink_to(sys.executable)
    (commands,) = re.findall(r"(?ms)^```console\n(.*?)^```$", text)
    done = subprocess.run(
        ["bash", "-euc", "\n".join(re.findall(r"(?m)^\$ (.*)$", commands))],
        cwd=folder,
        env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "env" / "bin"
