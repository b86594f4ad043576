"""Released SDKs of others, run for real: each in its own locked environment, as a process that answers JSON lines.

An environment is made on first use in ``.sdk`` at the project's root, from the lock files in ``sdks/<name>``, and
found again under their hash. It is made beside its place and moved there whole, so two runs cannot spoil it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

__all__ = [
    "SDKS",
    "SdkProcess",
    "SdkUnavailableError",
    "install",
    "node_environment",
    "node_sdk",
    "python_environment",
    "python_sdk",
]

SDKS: Final = Path(__file__).resolve().parent / "sdks"
_UV: Final = Path(sys.executable).with_name("uv")
_ENVIRONMENTS: Final = Path(__file__).resolve().parents[2] / ".sdk"
_BUILD_SECONDS: Final = 900
_END_SECONDS: Final = 30
_MIN_NODE: Final = (20, 12)  # what the OpenID provider asks for; the JavaScript SDK asks for 20


class SdkUnavailableError(Exception):
    """An SDK cannot be run here; the text says what is missing."""


class SdkProcess:
    """One SDK, waiting for requests. It serves many cards, because its start takes longer than all of them."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  closed in __exit__
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
        )

    def refusal(self, card: str, *keys: dict[str, Any], reader: str = "plain") -> str | None:
        """What the SDK says against the card, raw JSON, when it trusts these JWKs; None when it verifies."""
        answer: str | None = self._ask({"do": "verify", "card": card, "keys": keys, "reader": reader})["refused"]
        return answer

    def sign(
        self,
        card: str,
        key: dict[str, Any],
        *,
        reader: str = "plain",
        wire: str = "printed",
        jku: str | None = None,
    ) -> str | None:
        """The card, raw JSON, signed by the SDK with a private JWK; None when the SDK cannot.

        ``wire``: "printed" is the signed card as the SDK prints it, "served" as its own server sends it, "typed" the
        typed card of the JavaScript SDK instead of a plain object.
        """
        request = {"do": "sign", "card": card, "key": key, "reader": reader, "wire": wire, "jku": jku}
        signed: str | None = self._ask(request)["card"]
        return signed

    def describe(self) -> dict[str, list[dict[str, Any]]]:
        """The fields of every message that the SDK's protobuf descriptors reach from AgentCard."""
        answer: dict[str, list[dict[str, Any]]] = self._ask({"do": "describe"})["messages"]
        return answer

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        pipes = self._process
        assert pipes.stdin is not None
        assert pipes.stdout is not None
        try:
            pipes.stdin.write(json.dumps(request) + "\n")
            pipes.stdin.flush()
            line = pipes.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._errors.seek(0)
            raise AssertionError(f"the SDK's process ended:\n{self._errors.read()[-4000:]}")
        answer: dict[str, Any] = json.loads(line)
        assert "crashed" not in answer, answer["crashed"]
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._process.communicate(timeout=_END_SECONDS)  # the end of its input ends it
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        finally:
            self._errors.close()


def python_sdk(name: str) -> SdkProcess:
    """The Python SDK of ``sdks/<name>/requirements.txt``; SdkUnavailableError when it cannot be installed."""

    environment = python_environment(SDKS / name)
    program = "python_sdk_0_3.py" if name.startswith("python-0.3.") else "python_sdk.py"
    return SdkProcess([str(environment / "bin" / "python"), "-I", str(SDKS / program)], environment)


def python_environment(locked: Path) -> Path:
    """A virtual environment with what ``requirements.txt`` in ``locked`` names; SdkUnavailableError."""

    def build(folder: Path) -> None:
        _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder)
        install(folder, "--require-hashes", "--only-binary", ":all:", "-r", str(locked / "requirements.txt"))

    # An environment belongs to the interpreter that made it: another version or place of that one needs another.
    return _environment(locked, f"{sys.version} {sys.base_prefix}", build)


def install(environment: Path, *arguments: str) -> None:
    """Install into an environment without pip; SdkUnavailableError.

    uv takes a thirtieth of pip's processor time, and there are dozens of environments. pip is for indexes that only its
    own configuration names.
    """
    python = str(environment / "bin" / "python")
    try:
        _run([str(_UV), "pip", "install", "--quiet", "--python", python, *arguments], environment)
    except SdkUnavailableError:
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile"]
        _run([*pip, *arguments], environment)


def node_sdk(name: str) -> SdkProcess:
    """The JavaScript SDK of ``sdks/<name>/package-lock.json``; SdkUnavailableError without Node or network."""
    node, environment = node_environment(SDKS / name)
    # A module from the command line finds its imports from the folder it runs in, where the packages are.
    program = (SDKS / "js_sdk.mjs").read_text(encoding="utf-8")
    return SdkProcess([node, "--input-type=module", "--eval", program], environment)


def node_environment(locked: Path) -> tuple[str, Path]:
    """Node, and a folder with the packages that the lock file in ``locked`` names; SdkUnavailableError."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise SdkUnavailableError("Node is not installed (node and npm)")
    version = _run([node, "--version"], SDKS)
    if tuple(map(int, version.removeprefix("v").split(".")[:2])) < _MIN_NODE:
        raise SdkUnavailableError(f"Node is {version}, {'.'.join(map(str, _MIN_NODE))} or newer is needed")

    def build(folder: Path) -> None:
        shutil.copytree(locked, folder, dirs_exist_ok=True)
        _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)

    return node, _environment(locked, "node", build)


def _environment(locked: Path, interpreter: str, build: Callable[[Path], None]) -> Path:
    digest = hashlib.sha256(interpreter.encode())
    for file in sorted(locked.iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    environment = _ENVIRONMENTS / f"{locked.name}-{digest.hexdigest()[:16]}"
    _ENVIRONMENTS.mkdir(exist_ok=True)
    with (_ENVIRONMENTS / f"{environment.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes, and one of them makes it
        if not environment.is_dir():
            with tempfile.TemporaryDirectory(prefix=f"{locked.name}-", dir=_ENVIRONMENTS) as unfinished:
                folder = Path(unfinished) / "environment"
                folder.mkdir()
                build(folder)
                folder.rename(environment)
    return environment


def _run(command: list[str], folder: Path) -> str:
    """What the command printed; SdkUnavailableError when it failed."""
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_BUILD_SECONDS
        )
    except FileNotFoundError:
        raise SdkUnavailableError(f"{command[0]}: not installed") from None
    except subprocess.TimeoutExpired:
        raise SdkUnavailableError(f"{command[0]}: not done after {_BUILD_SECONDS} seconds") from None
    if done.returncode:
        last = "\n".join(f"{done.stdout}\n{done.stderr}".strip().splitlines()[-8:])
        raise SdkUnavailableError(f"{' '.join(command)}\n{last}")
    return done.stdout.strip()
