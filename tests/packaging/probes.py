"""What programs and commands do in an environment: one process starts there, and forks for each of them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Done", "clean_environment", "done_in"]

_PROBE = """
import json, os, sys, tempfile, traceback

def done(work):
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        pid = os.fork()
        if pid == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            code = 0
            try:
                work()
            except SystemExit as ended:
                code = ended.code or 0
            except BaseException:
                traceback.print_exc()
                code = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.seek(0)
        errors.seek(0)
        return code, out.read(), errors.read()

programs, commands = json.load(sys.stdin)
found = [done(lambda: exec(compile(text, "<program>", "exec"), {"__name__": "__main__"})) for text in programs]
from a2a_trust.cli.main import main
found += [done(lambda: sys.exit(main(command))) for command in commands]
print(json.dumps(found))
"""


class Done(NamedTuple):
    """How it ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def clean_environment() -> dict[str, str]:
    """This environment without what changes Python or the command."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "A2A_"))}


def done_in(
    python: Path, folder: Path, *, programs: Sequence[str] = (), commands: Sequence[str] = ()
) -> Mapping[str, Done]:
    """What each program does, which nothing was imported for, and then each command of ``a2a-sign``, one after the
    other in the folder. Warnings are errors."""
    asked = json.dumps([programs, [command.split() for command in commands]])
    done = subprocess.run(
        [python, "-W", "error", "-c", _PROBE],
        cwd=folder,
        env=clean_environment(),
        input=asked,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {name: Done(*each) for name, each in zip((*programs, *commands), json.loads(done.stdout), strict=True)}
