"""The parts that the commands for secrets in a store share: API keys and passwords.

- A new secret goes to standard output, and everything else to standard error, so ``… create … > key.txt`` writes the
  secret only.
- It is shown only once. If that fails, it is taken back.
- A secret never comes in as an argument, because other users and the shell's history would see it.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, TypeVar

from a2a_trust.auth.records import Issued
from a2a_trust.base.databases.availability import is_database_url
from a2a_trust.base.files.atomic import flush_folder
from a2a_trust.cli.moments import duration, moment, rfc3339
from a2a_trust.cli.report import Exit, error_text, mark, printable, put, report_failure, run_and_report
from a2a_trust.cli.sources import naming, read_input
from a2a_trust.errors import ConfigurationError, TrustError

if TYPE_CHECKING:
    from a2a_trust.auth.api_key.verifier import ApiKeyRecord
    from a2a_trust.auth.basic.records import PasswordRecord

_R = TypeVar("_R")


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


def names_in(file: str) -> list[str]:
    """The names on the lines of a file, or of standard input for ``-``; each occurs once."""
    text = read_input(file).decode(errors="surrogateescape")  # no name may have surrogates
    names = [line for line in text.replace("\r\n", "\n").split("\n") if line]
    if not names:
        raise ConfigurationError(f"{file}: no names; write one on a line")
    for name, count in Counter(names).items():
        if count > 1:
            raise ConfigurationError(f"{file}: name {names.index(name) + 1} occurs {count} times; write it once")
    return names


def create_all(
    kind: str,
    options: argparse.Namespace,
    issue: Callable[[str], Issued[_R]],
    save: Callable[[list[_R]], object],
    entry_of: Callable[[_R], dict[str, Any]],
) -> dict[str, Any]:
    """Make a secret for each name in a file, all of them or none. The secrets go to files of a new folder, and to the
    disk. Then ``save`` puts their records into the store; if it fails, the folder is removed."""
    issued = list[Issued[_R]]()
    for number, name in enumerate(names_in(options.names), 1):
        try:
            issued.append(issue(name))
        except ConfigurationError as error:
            raise ConfigurationError(f"{options.names}: name {number}: {error}") from None
    entries = [{"file": f"{number:06}", **entry_of(each.record)} for number, each in enumerate(issued, 1)]
    index = ["\t".join(entry[name] for name in ("file", "id", "owner", "user") if name in entry) for entry in entries]
    texts = {entry["file"]: each.text for entry, each in zip(entries, issued, strict=True)}
    with _new_folder(options.output, {**texts, "index.tsv": "\n".join(index)}):
        save([each.record for each in issued])
    if not options.json and not options.quiet:
        put(f"{mark('made', 'green', sys.stdout)} {len(issued)} {kind}s in {printable(options.output)}")
        put(f"  each {kind} is only in its file there; index.tsv names the owner of each file")
    return {"folder": options.output, f"{kind}s": entries}


@contextmanager
def _new_folder(name: str | None, files: Mapping[str, str]) -> Iterator[None]:
    """A new folder with these files, which are on the disk before the block begins; removed if the block raises."""
    if name is None:
        raise ConfigurationError("name a new folder for the files with the secrets: --output FOLDER")
    folder = Path(name)
    with hold_signals():
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            raise ConfigurationError(f"--output {name}: it exists; name a new folder") from None
        try:
            for file, text in files.items():
                descriptor = os.open(folder / file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
                    opened.write(f"{text}\n")
            for file in files:  # after all are written, which is much faster than one by one
                flush_folder(folder / file)
            flush_folder(folder)
            flush_folder(folder.absolute().parent)
            yield
        except BaseException:
            rmtree(folder)
            raise


def expiry(lifetime: str | None) -> float:
    """The moment of --expires in seconds since the epoch; infinity without it."""
    return math.inf if lifetime is None else moment(lifetime, time.time(), "--expires")


def state_of(record: ApiKeyRecord | PasswordRecord) -> str:
    if record.revoked is not None:
        return "revoked"
    return "valid" if record.is_good(time.time()) else "expired"


def is_selected(record: ApiKeyRecord | PasswordRecord, options: argparse.Namespace) -> bool:
    """Whether --expires-within and --unused-for select the record: only valid ones, and all records without them."""
    now, within, unused = time.time(), options.expires_within, getattr(options, "unused_for", None)
    last_used = getattr(record, "last_used", None) or record.created
    return (within is None and unused is None) or (
        record.is_good(now)
        and (within is None or record.expires <= now + duration(within, "--expires-within").total_seconds())
        and (unused is None or last_used <= now - duration(unused, "--unused-for").total_seconds())
    )


def rights_of(record: ApiKeyRecord | PasswordRecord) -> str:
    """The scopes of a secret, and how long it is valid, for people."""
    ends = rfc3339(record.expires)
    return f"{' '.join(sorted(record.scopes)) or 'no scopes'}, {f'until {ends}' if ends else 'never expires'}"
