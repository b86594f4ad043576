"""Environments with locked requirements, and nothing else: made in ``.sdk``, once for every lock and interpreter."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Final

from tests.interop.sdk_process import install

__all__ = ["EXTRAS", "environment_of", "environment_with"]

#: What is installed: nothing else, or one of the extras alone.
EXTRAS: Final = (
    *("", "server", "client", "client-httpx2", "basic", "uvicorn", "models", "serve", "postgres", "redis", "otel"),
    "grpc",
    "completion",
)
_FOLDER: Final = Path(__file__).parent
_ENVIRONMENTS: Final = _FOLDER.parents[1] / ".sdk"


def environment_with(extra: str, wheel: Path) -> Path:
    """The Python of an environment without pip, in which the wheel is installed."""
    return environment_of(_FOLDER / f"requirements-{extra or 'core'}.txt", wheel)


def environment_of(locked: Path, wheel: Path, interpreter: str = sys.executable) -> Path:
    """As ``environment_with``, with the requirements of any lock, for any interpreter."""
    which = "import sys; print(sys.version, sys.base_prefix)"
    version = subprocess.run([interpreter, "-c", which], capture_output=True, check=True).stdout
    digest = sha256(locked.read_bytes() + b"\0" + version).hexdigest()
    name = locked.stem.removeprefix("requirements-")
    folder = _ENVIRONMENTS / f"packaging-{name}-{digest[:16]}"
    if not (folder / "ready").exists():  # made in its place: its scripts name it
        subprocess.run([interpreter, "-m", "venv", "--clear", "--without-pip", folder], check=True)
        install(folder, "--require-hashes", "--only-binary", ":all:", "-r", str(locked))
        (folder / "ready").touch()
    install(folder, "--no-deps", "--force-reinstall", str(wheel))
    return folder / "bin" / "python"
