"""The five servers that A2A agents run under, for real: each one as a process that serves one application."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

__all__ = ["SERVERS", "free_port", "serving", "serving_under_all"]

ROOT: Final = Path(__file__).resolve().parents[2]
_START_SECONDS: Final = 300
_END_SECONDS: Final = 60
_PORT_LOCKS: Final = Path(tempfile.gettempdir()) / f"a2a-trust-test-ports-{os.getuid()}"

#: How each server is told, by its own command line, which application to serve at which port of this machine. They keep
#: idle connections for longer than clients do, or they may close what a client writes into.
SERVERS: Final[Mapping[str, Callable[[str, int], list[str]]]] = {
    "uvicorn-h11": lambda app, port: _uvicorn("h11", app, port),
    "uvicorn-httptools": lambda app, port: _uvicorn("httptools", app, port),
    "hypercorn": lambda app, port: ["hypercorn", "--keep-alive", "60", "--bind", f"127.0.0.1:{port}", app],
    "granian": lambda app, port: ["granian", "--interface", "asgi", "--host", "127.0.0.1", "--port", str(port), app],
    "daphne": lambda app, port: ["daphne", "-b", "127.0.0.1", "-p", str(port), app],
}


def _uvicorn(http: str, app: str, port: int) -> list[str]:
    command = ["uvicorn", app, "--http", http, "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
    return [*command, "--timeout-keep-alive", "60"]


def free_port() -> int:
    """A port that is free now, and that no other process of the tests is given before this process ends.

    It lies below the ports that Linux gives to connections. Two servers on one port would answer for each other.
    """
    _PORT_LOCKS.mkdir(exist_ok=True)
    while True:
        port = random.randrange(10_240, 32_768)
        lock = os.open(_PORT_LOCKS / str(port), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            os.close(lock)
        else:
            return port  # the lock is held until the process ends


@contextmanager
def serving(command: list[str], url: str, settings: Mapping[str, str], folder: Path) -> Iterator[None]:
    """The command runs, and answers at that URL, while the block does.

    The process imports from the project's root and from ``folder``.
    """
    with _running(command, settings, folder) as wait_for:
        wait_for(url)
        yield


@contextmanager
def serving_under_all(
    python: Path, app: str, folder: Path, settings: Callable[[str], Mapping[str, str]], names: Iterable[str] = ()
) -> Iterator[dict[str, str]]:
    """The application under every server, or those of ``names``, started side by side: origins by the servers' names.

    ``settings`` gives the environment of the process for an origin.
    """
    origins = {name: f"http://127.0.0.1:{free_port()}" for name in names or SERVERS}
    with ExitStack() as stack:
        waiting = []
        for name, origin in origins.items():
            command = [str(python), "-m", *SERVERS[name](app, int(origin.rpartition(":")[2]))]
            waiting.append((stack.enter_context(_running(command, settings(origin), folder)), origin))
        for wait_for, origin in waiting:
            wait_for(origin)
        yield origins


@contextmanager
def _running(command: list[str], settings: Mapping[str, str], folder: Path) -> Iterator[Callable[[str], None]]:
    """The process runs while the block does; what is given waits until it answers at a URL."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", **settings}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
        )

        def wait_for(url: str) -> None:
            until = time.monotonic() + _START_SECONDS
            while process.poll() is None and time.monotonic() < until:
                if _answers(url) and process.poll() is None:
                    return
                time.sleep(0.05)
            said.seek(0)
            raise AssertionError(f"{' '.join(command)} does not serve:\n{said.read()[-4000:]}")

        try:
            yield wait_for
        finally:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:  # it waits for a stream that a failed test has left open
                process.kill()
                process.wait()


def _answers(url: str) -> bool:
    """Whether somebody serves there; a refusal is an answer too."""
    try:
        # Whatever proxy the environment names, this machine is asked directly.
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5).close()
    except urllib.error.HTTPError as answer:
        answer.close()
    except OSError as error:
        # whose certificate is of a throw-away authority serves too
        return isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError)
    return True
