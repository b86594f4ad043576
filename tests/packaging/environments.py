"""Environments with the locked requirements of one extra, and nothing else: made in ``.sdk``, once for every lock."""

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

__all__ = ["EXTRAS", "environment_with"]

#: What is installed: nothing else, or one of the extras alone.
EXTRAS: Final = ("", "server", "client", "basic", "uvicorn", "models", "completion")
_FOLDER: Final = Path(__file__).parent
_ENVIRONMENTS: Final = _FOLDER.parents[1] / ".sdk"


@contextmanager
def environment_with(extra: str, wheel: Path) -> Iterator[Path]:
    """The Python of an environment in which the wheel is installed, for as long as the block."""
    locked = _FOLDER / f"requirements-{extra or 'core'}.txt"
    digest = sha256(b"\0".join((locked.read_bytes(), sys.version.encode(), sys.base_prefix.encode()))).hexdigest()
    folder = _ENVIRONMENTS / f"packaging-{extra or 'core'}-{digest[:16]}"
    python = folder / "bin" / "python"
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if not folder.is_dir():
        _ENVIRONMENTS.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_ENVIRONMENTS) as unfinished:
            made = Path(unfinished) / "environment"
            subprocess.run([sys.executable, "-m", "venv", made], check=True)
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
