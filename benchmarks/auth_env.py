"""The environment in which requests and tokens are measured: all peers and what a2a_trust needs, in one process.

It is made on first use from the locked requirements in ``auth_peers`` and found again under their hash.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["in_auth_environment", "run_in_auth_environment"]

_ROOT: Final = Path(__file__).resolve().parent.parent
_LOCKED: Final = Path(__file__).with_name("auth_peers") / "requirements.txt"


def in_auth_environment() -> bool:
    """Whether this process has all peers."""
    return find_spec("fastmcp") is not None


def run_in_auth_environment(*arguments: str) -> int:
    """Run ``python -m benchmarks`` with these arguments where the peers are; its exit code."""
    python = _environment() / "bin" / "python"
    return subprocess.run(
        [python, "-m", "benchmarks", *arguments], cwd=_ROOT, env={**os.environ, "PYTHONPATH": str(_ROOT)}, check=False
    ).returncode


def _environment() -> Path:
    digest = sha256(_LOCKED.read_bytes() + sys.version.encode()).hexdigest()[:16]
    environment = _ROOT / ".sdk" / f"benchmarks-{digest}"
    if not environment.is_dir():
        print("making the environment of the peers, once …", file=sys.stderr)
        environment.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=environment.parent) as unfinished:
            folder = Path(unfinished) / "environment"
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            install = [
                "-m",
                "pip",
                "install",
                "--quiet",
                "--require-hashes",
                "--only-binary",
                ":all:",
                "-r",
                str(_LOCKED),
            ]
            subprocess.run([folder / "bin" / "python", *install], check=True)
            shutil.move(folder, environment)
    return environment
