"""What commands share that issue secrets of a store: API keys and passwords.

A new secret goes to standard output, alone, and everything else to standard error: ``… create … > key.txt`` holds the
secret. It is shown this once; one that could not be shown is taken back. A secret never comes in as an argument, where
other users and the shell's history would see it.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from a2a_trust.cli.moments import moment
from a2a_trust.cli.report import Exit, exit_of, failed, put_report, said
from a2a_trust.cli.sources import naming, read_input
from a2a_trust.errors import KeySourceUnavailableError, TrustError

__all__ = ["Unseen", "check_output", "expiry", "read_secret", "run_action", "signals_held"]


def run_action(
    name: str,
    actions: Mapping[str, Callable[[argparse.Namespace], dict[str, Any] | None]],
    options: argparse.Namespace,
) -> int:
    """Do what ``options.action`` is for, in the store ``options.store``; its report is JSON where that is asked for."""
    command = f"{name} {options.action}"
    try:
        with naming(options.store):
            report = actions[options.action](options)
    except _NotShownError as error:
        sys.stdout = None  # what is left in it goes nowhere, and neither does a report
        return failed(command, error, as_json=False, code=Exit.INPUT_OUTPUT)
    except BrokenPipeError:
        raise
    except (TrustError, OSError) as error:
        code = Exit.INPUT_OUTPUT if isinstance(error, KeySourceUnavailableError) else exit_of(error)
        return failed(command, error, as_json=options.json, code=code)
    if options.json and report is not None:
        put_report(command, Exit.OK, report)
    return Exit.OK


class _NotShownError(OSError):
    """A new secret could not be shown."""


def check_output(what: str) -> None:
    """_NotShownError when nothing can be shown; ask before anything is changed."""
    if sys.stdout is None:
        raise _NotShownError(f"standard output is closed, and a new {what} is shown there once; nothing was changed")


@contextmanager
def signals_held() -> Iterator[Callable[[], object]]:
    """In the block, signals that end the command wait until it calls what it gets, or ends: a new secret is either
    shown or taken back."""
    if sys.platform == "win32":
        yield lambda: None
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGHUP, signal.SIGINT))
    release = partial(signal.pthread_sigmask, signal.SIG_SETMASK, before)
    try:
        yield release
    finally:
        release()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """A new secret that nobody has seen yet: ``what`` it is ("key"), and its public ``name``.

    ``undone`` says what ``take_back`` leaves behind; ``command`` revokes the secret where that fails.
    """

    what: str
    name: str
    take_back: Callable[[], None]
    undone: str
    command: str

    @contextmanager
    def showing(self, release: Callable[[], object]) -> Iterator[None]:
        """Show the secret in the block; it is taken back when that fails, and _NotShownError says so.

        ``release`` lets the signals come that were held back while the secret was made.
        """
        try:
            release()
            yield
            sys.stdout.flush()
        except BaseException as error:
            self._take_back(error)
            raise

    def _take_back(self, error: BaseException) -> None:
        why = getattr(error, "strerror", None) or (said(error) if isinstance(error, Exception) else "interrupted")
        try:
            with signals_held():
                self.take_back()
        except TrustError as second:
            raise _NotShownError(
                f"the new {self.what} {self.name} could not be shown ({why}) and could not be revoked ({second}); "
                f"run: {self.command}"
            ) from None
        if isinstance(error, Exception):
            raise _NotShownError(f"the new {self.what} could not be shown ({why}); {self.undone}") from None


def read_secret(name: str, what: str) -> bytes:
    """The content of a file, or of standard input for ``-``, without the end of its line."""
    try:
        return read_input(name).removesuffix(b"\n").removesuffix(b"\r")
    except OSError as error:
        # The name is not repeated: people give the secret where its file belongs.
        raise OSError(
            f"the file with the {what}: {error.strerror}; give a file or -, never the {what} itself"
        ) from None


def expiry(lifetime: str | None) -> float:
    """The moment that --expires names; infinite where it is not given."""
    return math.inf if lifetime is None else moment(lifetime, time.time(), "--expires")
