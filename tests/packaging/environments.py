"""Environments with locked requirements, and nothing else: made in ``.sdk``, once for every lock and interpreter."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

__all__ = ["EXTRAS", "environment_of", "environment_with"]

#: What is installed: nothing else, or one of the extras alone.
EXTRAS: Final = ("", "server", "client", "basic", "uvicorn", "models")
_FOLDER: Final = Path(__file__).parent
_ENVIRONMENTS: Final = _FOLDER.parents[1] / ".sdk"


@contextmanager
def environment_with(extra: str, wheel: Path) -> Iterator[Path]:
    """The Python of an environment in which the wheel is installed, for as long as the block."""
    with environment_of(_FOLDER / f"requirements-{extra or 'core'}.txt", wheel) as python:
        yield python


@contextmanager
def environment_of(locked: Path, wheel: Path, interpreter: str = sys.executable) -> Iterator[Path]:
    """As ``environment_with``, with the requirements of any lock, for any interpreter."""
    which = "import sys; print(sys.version, sys.base_prefix)"
    version = subprocess.run([interpreter, "-c", which], capture_output=True, check=True).stdout
    digest = sha256(locked.read_bytes() + b"\0" + version).hexdigest()
    name = locked.stem.removeprefix("requirements-")
    folder = _ENVIRONMENTS / f"packaging-{name}-{digest[:16]}"
    python = folder / "bin" / "python"
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if not folder.is_dir():
        _ENVIRONMENTS.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_ENVIRONMENTS) as unfinished:
            made = Path(unfinished) / "environment"
            subprocess.run([interpreter, "-m", "venv", made], check=True)
            subprocess.run(
                [made / "bin" / "python", *install, "--require-hashes", "--only-binary", ":all:", "-r", locked],
                check=True,
            )
            shutil.move(made, folder)
    subprocess.run([python, *install, "--no-deps", "--force-reinstall", wheel], check=True)
    try:
        yield python
    finally:
        subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", "a2a-trust"], check=True)
