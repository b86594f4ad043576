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
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from a2a_trust.auth.records import Issued
from a2a_trust.base.databases.availability import is_database_url
from a2a_trust.base.files.atomic import flush_folder
from a2a_trust.cli.moments import duration, moment, rfc3339
from a2a_trust.cli.progress import hold_signals, note_transaction
from a2a_trust.cli.report import Exit, error_text, mark, printable, put, put_report, put_table, warn
from a2a_trust.cli.sources import naming, read_input
from a2a_trust.errors import ConfigurationError, TrustError

if TYPE_CHECKING:
    from a2a_trust.auth.api_key.verifier import ApiKeyRecord
    from a2a_trust.auth.basic.records import PasswordRecord

_R = TypeVar("_R", "ApiKeyRecord", "PasswordRecord")


class SecretActions(Generic[_R]):
    """The actions on a store of secrets of one kind. Subclasses say what differs between the kinds."""

    kind: ClassVar[str]
    """The word in texts and reports: "key"."""
    person: ClassVar[str]
    """The option that names the caller: "owner"."""
    name: ClassVar[str]
    """The member of a record that names it, and in reports the member ``headings[0]``."""
    named_by: ClassVar[str]
    """The option of ``revoke`` before that name, and a blank; or nothing."""
    headings: ClassVar[tuple[str, ...]]
    """The columns of the list; each shows the member of ``entry_of`` with that name."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.is_shown: bool = not (options.json or options.quiet)

    def store(self, *, create: bool = False) -> Any:
        """The store that ``--store`` names. ConfigurationError: it is missing, or is not a store."""
        raise NotImplementedError

    def issue(self, name: str, expires: float) -> Issued[_R]:
        """A secret for the caller of that name, made in memory: a wrong argument leaves nothing behind."""
        raise NotImplementedError

    def imported(self, expires: float) -> _R:
        """The record of the secret in ``options.file``."""
        raise NotImplementedError

    def rotated(self, store: Any, expires: float | None) -> Issued[_R]:
        raise NotImplementedError

    def revoked(self, store: Any) -> Iterable[_R]:
        """The records that the arguments name, revoked."""
        raise NotImplementedError

    def entry_of(self, record: _R) -> dict[str, Any]:
        """The record in a report."""
        raise NotImplementedError

    def about(self, issued: Issued[_R], store: Any) -> tuple[dict[str, Any], list[str]]:
        """Further members of the report on a new secret, and notes on it for people."""
        raise NotImplementedError

    # --- the actions ------------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any] | None:
        """Run ``options.action``; returns the members of its report, unless it has reported itself."""
        note_transaction(self.options)
        actions = {"create": self._create, "import": self._import, "list": self._list, "rotate": self._rotate}
        # A URL may hold a password, and errors of databases name them without.
        with nullcontext() if is_database_url(self.options.store) else naming(self.options.store):
            return actions.get(self.options.action, self._revoke)()

    def _create(self) -> dict[str, Any] | None:
        options, expires = self.options, expiry(self.options.expires)
        if options.names is not None:
            return self._create_all(expires)
        if options.output is not None:
            raise ConfigurationError(
                f"--output works only with --{self.person}s-from; a single {self.kind} goes to standard output"
            )
        self._check_output()
        issued = self.issue(getattr(options, self.person), expires)
        store = self.store(create=True)
        with hold_signals() as release:
            (before,) = store.add([issued.record]) or [None]
            self._show(replace(issued, replaces=before), store, release)
        return None

    def _create_all(self, expires: float) -> dict[str, Any]:
        """Make a secret for each name in a file, all of them or none. The secrets go to files of a new folder, and to
        the disk. Then their records go to the store; if that fails, the folder is removed."""
        options, issued = self.options, list[Issued[_R]]()
        for number, name in enumerate(names_in(options.names), 1):
            try:
                issued.append(self.issue(name, expires))
            except ConfigurationError as error:
                raise ConfigurationError(f"{options.names}: name {number}: {error}") from None
        entries = [{"file": f"{number:06}", **self.entry_of(each.record)} for number, each in enumerate(issued, 1)]
        index = [
            "\t".join(entry[name] for name in ("file", "id", "owner", "user") if name in entry) for entry in entries
        ]
        texts = {entry["file"]: each.text for entry, each in zip(entries, issued, strict=True)}
        with _new_folder(options.output, {**texts, "index.tsv": "\n".join(index)}):
            store, now = self.store(create=True), time.time()
            known = {getattr(record, self.person) for record in store.records() if record.is_good(now)}
            for name in (getattr(each.record, self.person) for each in issued):
                if name in known:
                    raise ConfigurationError(
                        f"{self.person} {name!a} has a valid {self.kind}; rotate it, or remove the name"
                    )
            store.add([each.record for each in issued])
        if self.is_shown:
            put(f"{mark('made', 'green', sys.stdout)} {len(issued)} {self.kind}s in {printable(options.output)}")
            put(f"  each {self.kind} is only in its file there; index.tsv names the owner of each file")
        return {"folder": options.output, f"{self.kind}s": entries}

    def _import(self) -> dict[str, Any]:
        record = self.imported(expiry(self.options.expires))
        store = self.store(create=True)
        store.add([record])
        self._put_done("imported", [record])
        return {**self.entry_of(record), **self.about(Issued(record, ""), store)[0]}

    def _list(self) -> dict[str, Any]:
        store = self.store()
        records: list[_R] = [each for each in store.records() if self._is_selected(each)]
        unreadable: list[tuple[str, str]] = store.unreadable()
        if self.options.quiet and not self.options.json:
            for record in records:
                put(printable(self._name_of(record)))
        elif not self.options.json:
            damaged: list[dict[str, Any]] = [
                {self.headings[0].lower(): name, "state": "unreadable"} for name, _ in unreadable
            ]
            put_table(self.headings, map(self._row, [*map(self.entry_of, records), *damaged]))
            for name, why in unreadable:
                warn(f"{printable(name)} is rejected, because the record is unreadable: {why}")
        return {
            f"{self.kind}s": list(map(self.entry_of, records)),
            "unreadable": [{self.headings[0].lower(): printable(name), "reason": why} for name, why in unreadable],
        }

    def _row(self, entry: dict[str, Any]) -> list[str]:
        cells = {name: "never" if each is None else each for name, each in entry.items()}
        if entry.get("replaced_by"):
            cells["state"] += f", replaced by {entry['replaced_by']}"
        cells["scopes"] = " ".join(cells.get("scopes", ()))
        return [printable(cells.get(heading.lower().replace(" ", "_"), "")) for heading in self.headings]

    def _name_of(self, record: _R) -> str:
        return str(getattr(record, self.name))

    def _is_selected(self, record: _R) -> bool:
        """Whether --owner, --expires-within and --unused-for select the record; the last two only valid ones."""
        wanted, now = vars(self.options), time.time()
        owner, within, unused = (wanted.get(name) for name in ("owner", "expires_within", "unused_for"))
        last_used = getattr(record, "last_used", None) or record.created
        return (
            (owner is None or getattr(record, self.person) == owner)
            and ((within is None and unused is None) or record.is_good(now))
            and (within is None or record.expires <= now + duration(within, "--expires-within").total_seconds())
            and (unused is None or last_used <= now - duration(unused, "--unused-for").total_seconds())
        )

    def _rotate(self) -> None:
        expires = None if self.options.expires is None else expiry(self.options.expires)
        self._check_output()
        store = self.store()
        with hold_signals() as release:
            self._show(self.rotated(store, expires), store, release)

    def _revoke(self) -> dict[str, Any]:
        records = list(self.revoked(self.store()))
        self._put_done("revoked", records)
        if self.is_shown:
            put(f"  running servers reject revoked {self.kind}s within 2 seconds, unless they set another refresh")
        return {f"{self.kind}s": list(map(self.entry_of, records))}

    def _put_done(self, word: str, records: Iterable[_R]) -> None:
        for record in records if self.is_shown else ():
            put(f"{mark(word, 'green', sys.stdout)} {self._line(record)}")

    def _line(self, record: _R) -> str:
        """The record with its rights, for people."""
        ends, scopes = rfc3339(record.expires), " ".join(sorted(record.scopes)) or "no scopes"
        name = f"the {self.kind}" if self.name == self.person else self._name_of(record)
        title = f"{name} of {printable(getattr(record, self.person))}"
        return f"{title}: {scopes}, {f'until {ends}' if ends else 'never expires'}"

    # --- a new secret is shown, or taken back -----------------------------------------------------------------------

    def _check_output(self) -> None:
        """_NotShownError if nothing can be shown; call it before a change."""
        if sys.stdout is None:
            raise _NotShownError(
                f"standard output is closed, so a new {self.kind} cannot be shown; nothing was changed. Open standard "
                "output"
            )

    def _show(self, issued: Issued[_R], store: Any, release: Callable[[], object]) -> None:
        """Show a new secret, only this once. If that fails, it is taken back, and _NotShownError is raised.

        ``release`` ends the block of ``hold_signals`` in which the secret was made.
        """
        options, record = self.options, issued.record
        try:
            release()
            members, notes = self.about(issued, store)
            if options.json:
                report = {self.kind: issued.text, **self.entry_of(record), **members}
                put_report(f"{options.command} {options.action}", Exit.OK, report)
            else:
                put(issued.text)
            sys.stdout.flush()
        except BaseException as error:
            self._take_back(issued, store, error)
            raise
        if self.is_shown:
            put(f"{mark('made', 'green', sys.stderr)} {self._line(record)}", sys.stderr)
            put(
                f"  the {self.kind} is shown only now, and not stored; keep it where only its user can read it",
                sys.stderr,
            )
            for note in notes:
                put(f"  {note}", sys.stderr)

    def _take_back(self, issued: Issued[_R], store: Any, error: BaseException) -> None:
        why = getattr(error, "strerror", None) or (error_text(error) if isinstance(error, Exception) else "interrupted")
        name, old = self._name_of(issued.record), issued.replaces
        undone = f"{'it' if self.name == self.person else name} was revoked at once"
        if old is not None and old.is_good(time.time()):
            undone += f", and {'the old one' if self.name == self.person else self._name_of(old)} stays valid as before"
        try:
            with hold_signals():
                store.take_back(issued)
        except TrustError as second:
            command = f"{self.options.command} revoke --store {shlex.quote(self.options.store)}"
            raise _NotShownError(
                f"the new {self.kind} {printable(name)} could not be shown ({why}) and could not be revoked "
                f"({second}); run: a2a-sign {command} {self.named_by}{shlex.quote(name)}"
            ) from None
        if isinstance(error, Exception):
            raise _NotShownError(
                f"the new {self.kind} could not be shown ({why}); {undone}. Run the command again"
            ) from None


class _NotShownError(OSError):
    """A new secret could not be shown. The rest of the output, and a report, must not be written."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        sys.stdout = None


def read_secret(name: str, kind: str, *, twice: bool = False) -> str:
    """The secret to import, from a file, from standard input for ``-``, or typed in without an echo."""
    if name == "-" and sys.stdin.isatty():
        from getpass import getpass

        text = getpass(f"{kind[0].upper()}{kind[1:]} to import: ")
        if twice and text != getpass("Once more: "):
            raise ConfigurationError("the two passwords differ, so nothing was changed; try again")
        return text
    try:
        return read_input(name).decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        # The error does not repeat the name: people type the secret in place of its file.
        raise OSError(f"the file to import: {error.strerror}; give a file or -, never the {kind} itself") from None
    except UnicodeDecodeError:
        pass  # the error holds the secret
    raise ConfigurationError(f"the imported {kind} is not UTF-8 text; write it in UTF-8")


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
