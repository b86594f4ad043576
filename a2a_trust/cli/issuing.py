"""The parts that the commands for secrets in a store share: API keys and passwords.

- A new secret goes to standard output, and everything else to standard error, so ``… create … > key.txt`` writes the
  secret only.
- It is shown only once. If that fails, it is taken back.
- A secret never comes in as an argument, because other users and the shell's history would see it.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from a2a_trust.base.databases.addresses import is_database_url
from a2a_trust.cli.moments import moment, rfc3339
from a2a_trust.cli.report import Exit, error_text, report_failure, run_and_report
from a2a_trust.cli.sources import naming, read_input
from a2a_trust.errors import TrustError

if TYPE_CHECKING:
    from a2a_trust.auth.api_key.verifier import ApiKeyRecord
    from a2a_trust.auth.basic.records import PasswordRecord


def run_action(
    name: str, actions: Mapping[str, Callable[[argparse.Namespace], dict[str, Any] | None]], options: argparse.Namespace
) -> int:
    """Run ``options.action`` on the store ``options.store``, and report it as JSON if the options ask for JSON."""
    command = f"{name} {options.action}"

    def act() -> dict[str, Any] | None:
        # A URL may hold a password, and errors of databases name them without.
        with nullcontext() if is_database_url(options.store) else naming(options.store):
            return actions[options.action](options)

    try:
        return run_and_report(command, act, as_json=options.json)
    except _NotShownError as error:
        sys.stdout = None  # the rest of the output, and a report, must not be written
        return report_failure(command, error, as_json=False, code=Exit.INPUT_OUTPUT)


class _NotShownError(Exception):
    """A new secret could not be shown."""


def check_output(kind: str) -> None:
    """_NotShownError if nothing can be shown; call it before a change. ``kind`` is "key" or "password"."""
    if sys.stdout is None:
        raise _NotShownError(
            f"standard output is closed, so a new {kind} cannot be shown; nothing was changed. Open standard output"
        )


@contextmanager
def hold_signals() -> Iterator[Callable[[], object]]:
    """In the block, signals that end the command wait until the block ends or calls the yielded function.

    So a new secret is either shown or taken back.
    """
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
    """A new secret that was not shown yet: its ``kind`` ("key"), and its public ``name``.

    ``undone`` says what holds after ``take_back``; ``command`` revokes the secret if ``take_back`` fails.
    """

    kind: str
    name: str
    take_back: Callable[[], None]
    undone: str
    command: str

    @contextmanager
    def showing(self, release: Callable[[], object]) -> Iterator[None]:
        """Show the secret in the block; if that fails, take it back and raise _NotShownError.

        ``release`` ends the block of ``hold_signals`` in which the secret was made.
        """
        try:
            release()
            yield
            sys.stdout.flush()
        except BaseException as error:
            self._take_back(error)
            raise

    def _take_back(self, error: BaseException) -> None:
        why = getattr(error, "strerror", None) or (error_text(error) if isinstance(error, Exception) else "interrupted")
        try:
            with hold_signals():
                self.take_back()
        except TrustError as second:
            raise _NotShownError(
                f"the new {self.kind} {self.name} could not be shown ({why}) and could not be revoked ({second}); "
                f"run: {self.command}"
            ) from None
        if isinstance(error, Exception):
            raise _NotShownError(
                f"the new {self.kind} could not be shown ({why}); {self.undone}. Run the command again"
            ) from None


def read_secret(name: str, kind: str) -> bytes:
    """The content of a file, or of standard input for ``-``, without the end of its line."""
    try:
        return read_input(name).removesuffix(b"\n").removesuffix(b"\r")
    except OSError as error:
        # The error does not repeat the name: people type the secret in place of its file.
        raise OSError(
            f"the file with the {kind}: {error.strerror}; give a file or -, never the {kind} itself"
        ) from None


def expiry(lifetime: str | None) -> float:
    """The moment of --expires in seconds since the epoch; infinity without it."""
    return math.inf if lifetime is None else moment(lifetime, time.time(), "--expires")


def state_of(record: ApiKeyRecord | PasswordRecord) -> str:
    if record.revoked is not None:
        return "revoked"
    return "valid" if record.is_good(time.time()) else "expired"


def rights_of(record: ApiKeyRecord | PasswordRecord) -> str:
    """The scopes of a secret, and how long it is valid, for people."""
    ends = rfc3339(record.expires)
    return f"{' '.join(sorted(record.scopes)) or 'no scopes'}, {f'until {ends}' if ends else 'never expires'}"
