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

__all__ = ["auth_environment", "in_auth_environment", "run_there"]

_ROOT: Final = Path(__file__).resolve().parent.parent
_LOCKED: Final = Path(__file__).with_name("auth_peers") / "requirements.txt"


def in_auth_environment() -> bool:
    """Whether this process has all peers."""
    return find_spec("fastmcp") is not None


def run_there(python: Path, *arguments: str) -> int:
    """Run ``python -m benchmarks`` with these arguments where the peers are; its exit code."""
    return subprocess.run(
        [python, "-m", "benchmarks", *arguments], cwd=_ROOT, env={**os.environ, "PYTHONPATH": str(_ROOT)}, check=False
    ).returncode


def auth_environment() -> Path | None:
    """The Python of the environment; None, said loudly, when it cannot be made."""
    # An environment belongs to the interpreter that made it.
    digest = sha256(b"\0".join((_LOCKED.read_bytes(), sys.version.encode(), sys.base_prefix.encode()))).hexdigest()
    environment = _ROOT / ".sdk" / f"benchmarks-{digest[:16]}"
    if not environment.is_dir():
        print("making the environment of the peers, once …", file=sys.stderr)
        environment.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=environment.parent) as unfinished:
            folder = Path(unfinished) / "environment"
            # Not pip: it rejects a locked package that another one demands with an extra.
            uv, options = Path(sys.executable).with_name("uv"), ["--require-hashes", "--only-binary", ":all:"]
            try:
                subprocess.run([sys.executable, "-m", "venv", folder], check=True)
                install = [str(uv), "pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), *options]
                subprocess.run([*install, "-r", str(_LOCKED)], check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                print(
                    f"\n*** NO ENVIRONMENT of {_LOCKED.relative_to(_ROOT)}, the reason stands above: {error}. "
                    "Going on with the peers that are installed here. ***",
                    file=sys.stderr,
                )
                return None
            shutil.move(folder, environment)
    return environment / "bin" / "python"
