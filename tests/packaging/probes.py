"""What programs and commands do in an environment: one process starts there, and forks for each program."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Done", "clean_environment", "done_in"]

_PROBE = """
import contextlib, io, json, os, sys, tempfile, traceback

def done(work):
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            try:
                code = work() or 0
            except SystemExit as ended:
                code = ended.code or 0
            except BaseException:
                traceback.print_exc()
                code = 1
        out.seek(0)
        errors.seek(0)
        return code, out.read(), errors.read()

def forked(program):
    reader, writer = os.pipe()
    if os.fork() == 0:
        text = json.dumps(done(lambda: exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})))
        with open(writer, "w") as pipe:
            pipe.write(text)
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        found = json.load(pipe)
    os.wait()
    return found

programs, commands = json.load(sys.stdin)
found = [forked(each) for each in programs]
from a2a_trust.cli.main import main
found += [done(lambda: main(each)) for each in commands]
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
