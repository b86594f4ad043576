"""Runs of ``a2a-sign`` that get a signal exactly between two of the calls by which they change files.

Every run is a process of its own with the real command in it: a server, which has loaded the package, forks it. In it
the functions of ``os`` that open, link, rename, sync and remove files count their calls. Point 1 is before the first
call, point 2 after it, and so on. At its point the process sends itself the signal.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_SLEEPING = ("230", "35") if os.uname().machine == "x86_64" else ("115", "101")
"""The numbers of clock_nanosleep and nanosleep."""
CALLS = ("open", "fchmod", "fchown", "fsync", "link", "replace", "unlink", "close")


@dataclass(frozen=True)
class Lacking:
    """What the system of a run does not have."""

    nameless_files: bool = False  # as macOS
    locks: bool = False  # as Windows


@dataclass(frozen=True)
class Run:
    """A process that was started, with what it writes in the file ``said``."""

    pid: int
    said: Path
    server: Server

    def ended(self) -> int:
        """Wait for its end: its exit code, or the negative number of the signal that killed it."""
        return os.waitstatus_to_exitcode(self.server.ask("wait", pid=self.pid))

    def stopped(self) -> bool:
        """Wait until it has stopped at its point; False when it ended before."""
        return os.WIFSTOPPED(self.server.ask("wait until stopped", pid=self.pid))

    def goes_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def wait_until_blocked(self) -> bool:
        """Wait until it waits for a lock that another process has; False when it ended before.

        It sleeps between two looks at the lock, and at no other time.
        """
        while Path(f"/proc/{self.pid}/syscall").read_text().split()[0] not in _SLEEPING:
            if Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return False
            time.sleep(0.002)
        return True


class Server:
    """The process that forks the runs; one for the tests of a file."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.stepwise"],
            cwd=ROOT,
            env={**os.environ, "XDG_CONFIG_HOME": "/nonexistent"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, what: str, **how: Any) -> int:
        """What the server answers: a pid or a wait status."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"what": what, **how}).encode() + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def start(
        self, folder: Path, *arguments: str, point: int = 0, number: int = 0, lacking: Lacking = Lacking()
    ) -> Run:
        """Run the command in the folder, which gets the signal ``number`` at ``point``; 0: none."""
        said = folder.with_name(f"{folder.name}.said")
        pid = self.ask(
            "start",
            folder=str(folder),
            arguments=arguments,
            point=point,
            number=number,
            lacking=vars(lacking),
            said=str(said),
        )
        return Run(pid, said, self)

    def run(self, folder: Path, *arguments: str, lacking: Lacking = Lacking()) -> tuple[int, str]:
        """The exit code of the command, and what it wrote."""
        run = self.start(folder, *arguments, lacking=lacking)
        return run.ended(), run.said.read_text()

    def stopped_at_every_point(
        self, files: Path, parent: Path, *arguments: str, lacking: Lacking = Lacking()
    ) -> Iterator[tuple[Path, Run]]:
        """Copies of the files in ``parent``, each with the command stopped in it, at one point further each time."""
        for point in count(1):
            folder = parent / str(point)
            shutil.copytree(files, folder)
            run = self.start(folder, *arguments, point=point, number=signal.SIGSTOP, lacking=lacking)
            if not run.stopped():
                break
            yield folder, run
            shutil.rmtree(folder)
        assert point > 9

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            assert self._process.wait(timeout=60) == 0
        finally:
            self._process.kill()


@contextmanager
def server() -> Iterator[Server]:
    """A server, until the end of the block."""
    it = Server()
    try:
        yield it
    finally:
        it.close()


def _warm_up() -> None:
    """Load what the commands load, once for all runs."""
    from a2a_trust.cli.main import main
    from tests.cli.conftest import CARD

    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        os.chdir(folder)
        Path("card.json").write_text(json.dumps(CARD))
        for line in (
            "keygen -o key.jwk --kid k",
            "keys create ring.json",
            "keys rotate ring.json",
            "keys export ring.json -o keys.json",
            "card.json --key key.jwk",
            "lint --fix card.json",
            "trust add trust.toml --origin a.example --jwks key.jwks.json",
            "trust revoke trust.toml k",
        ):
            assert main(line.split()) == 0, line
        os.chdir(ROOT)


def _serve() -> None:
    _warm_up()
    running: set[int] = set()
    for line in sys.stdin:
        wanted = json.loads(line)
        if wanted["what"] == "start":
            answer = os.fork() or _command(wanted)
            running.add(answer)
        else:
            pid, answer = os.waitpid(wanted["pid"], os.WUNTRACED if "stopped" in wanted["what"] else 0)
            if not os.WIFSTOPPED(answer):
                running.remove(pid)
        print(answer, flush=True)
    for pid in running:  # of a test that failed
        os.kill(pid, signal.SIGKILL)


def _command(wanted: dict[str, Any]) -> int:
    """Become the command; never returns."""
    said = os.open(wanted["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.chdir(wanted["folder"])
    if wanted["lacking"]["locks"]:
        sys.modules["fcntl"] = None  # type: ignore[assignment]
    if wanted["lacking"]["nameless_files"]:
        del os.O_TMPFILE
    from a2a_trust.cli.main import main

    signal.alarm(300)  # two that wait for each other end so, and the test fails
    _count_calls(wanted["point"], wanted["number"])
    code = main(wanted["arguments"])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _count_calls(point: int, number: int) -> None:
    passed = 0

    def step() -> None:
        nonlocal passed
        passed += 1
        if passed == point:
            os.kill(os.getpid(), number)

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any, **named: Any) -> Any:
            step()
            result = call(*arguments, **named)
            step()
            return result

        return count

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))


if __name__ == "__main__":
    _serve()
