"""``a2a-sign api-key``: make, import, list, rotate and revoke the API keys of a store.

A new key goes to standard output, alone, and everything else to standard error: ``… create … > key.txt`` holds the key.
It is shown this once; a key that could not be shown is revoked again. A key never comes in as an argument, where other
users and the shell's history would see it.
"""

from __future__ import annotations

import argparse
import math
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from a2a_trust.auth.api_key.sqlite import SqliteApiKeys
from a2a_trust.auth.api_key.verifier import ApiKeyRecord, IssuedApiKey
from a2a_trust.cli.moments import duration, moment, written
from a2a_trust.cli.report import (
    Exit,
    exit_of,
    failed,
    mark,
    printable,
    put,
    put_report,
    put_table,
    said,
    warn,
)
from a2a_trust.cli.sources import naming
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError, TrustError

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Do what the action is for, in the store ``options.store``."""
    command = f"api-key {options.action}"
    try:
        with naming(options.store):
            report = _ACTIONS[options.action](options)
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
    """A new key could not be shown."""


def _create(options: argparse.Namespace) -> None:
    expires = _expires(options.expires)
    _check_output()
    store = SqliteApiKeys(options.store, create=True)
    with _signals_held() as release:
        issued = store.create(owner=options.owner, scopes=options.scope, expires=expires, prefix=options.prefix)
        _show(issued, store, options, release)


def _import(options: argparse.Namespace) -> dict[str, Any]:
    expires, text = _expires(options.expires), _given(options.file)
    store = SqliteApiKeys(options.store, create=True)
    record = store.import_key(text, owner=options.owner, scopes=options.scope, expires=expires, prefix=options.prefix)
    if not options.json:
        put(f"{mark('imported', 'green', sys.stdout)} {_line(record)}")
    return {**_entry(record), "other_keys": _others(record, store.records(owner=record.owner))}


def _list(options: argparse.Namespace) -> dict[str, Any]:
    store = SqliteApiKeys(options.store)
    records, unreadable = store.records(), store.unreadable()
    if not options.json:
        heads = ("ID", "OWNER", "STATE", "EXPIRES", "LAST USED", "SCOPES")
        put_table(
            heads,
            [*map(_row, records), *((printable(key_id), "", "unreadable", *3 * [""]) for key_id, _ in unreadable)],
        )
        for key_id, why in unreadable:
            warn(f"{key_id} is rejected, because its record is unreadable: {why}")
    return {
        "keys": [_entry(record) for record in records],
        "unreadable": [{"id": printable(key_id), "reason": why} for key_id, why in unreadable],
    }


def _rotate(options: argparse.Namespace) -> None:
    expires = None if options.expires is None else _expires(options.expires)
    _check_output()
    store = SqliteApiKeys(options.store)
    overlap = duration(options.overlap, "--overlap")
    with _signals_held() as release:
        issued = store.rotate(options.id, overlap=overlap, expires=expires)
        _show(issued, store, options, release)


def _revoke(options: argparse.Namespace) -> dict[str, Any]:
    record = SqliteApiKeys(options.store).revoke(options.id)
    if not options.json:
        put(f"{mark('revoked', 'green', sys.stdout)} {_line(record)}")
        put("  running servers refuse it as soon as they read the store again, within their refresh seconds")
    return _entry(record)


def _check_output() -> None:
    if sys.stdout is None:
        raise _NotShownError("standard output is closed, and a new key is shown there once; nothing was changed")


@contextmanager
def _signals_held() -> Iterator[Callable[[], object]]:
    """In the block, signals that end the command wait until it calls what it gets, or ends: a new key is either shown
    or taken back."""
    if sys.platform == "win32":
        yield lambda: None
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGHUP, signal.SIGINT))
    release = partial(signal.pthread_sigmask, signal.SIG_SETMASK, before)
    try:
        yield release
    finally:
        release()


def _show(
    issued: IssuedApiKey, store: SqliteApiKeys, options: argparse.Namespace, release: Callable[[], object]
) -> None:
    """Show a new key, this once. _NotShownError: it could not be shown, and nothing is left of it but its record.

    ``release`` lets the signals come that were held back while the key was made.
    """
    try:
        release()
        record, of_owner = issued.record, store.records(owner=issued.record.owner)
        others = _others(record, of_owner)
        old = next((other for other in of_owner if other.replaced_by == record.key_id), None)
        if options.json:
            replaces = {} if old is None else {"replaces": {"id": old.key_id, "expires": written(old.expires)}}
            report = {"key": issued.text, **_entry(record), "other_keys": others, **replaces}
            put_report(f"api-key {options.action}", Exit.OK, report)
        else:
            put(issued.text)
        sys.stdout.flush()
    except BaseException as error:
        _take_back(issued, store, options, error)
        raise
    if options.json:
        return
    put(f"{mark('made', 'green', sys.stderr)} {_line(record)}", sys.stderr)
    put("  the key is shown this once and kept nowhere; store it where only its user can read it", sys.stderr)
    if others:
        put(f"  note: {others} more of this owner's keys are good; they all name the same caller", sys.stderr)
    if old is not None:
        put(f"  {old.key_id}, which it replaces, is good until {written(old.expires)}", sys.stderr)


def _take_back(issued: IssuedApiKey, store: SqliteApiKeys, options: argparse.Namespace, error: BaseException) -> None:
    """Revoke a key that nobody has seen. _NotShownError: it was an error, or the key could not be revoked."""
    key_id, old = issued.record.key_id, issued.replaces
    why = getattr(error, "strerror", None) or (said(error) if isinstance(error, Exception) else "interrupted")
    try:
        with _signals_held():
            store.take_back(issued)
    except TrustError as second:
        raise _NotShownError(
            f"the new key {key_id} could not be shown ({why}) and could not be revoked ({second}); "
            f"run: a2a-sign api-key revoke --store {shlex.quote(str(options.store))} {key_id}"
        ) from None
    if isinstance(error, Exception):
        goes_on = "" if old is None else f", and {old.key_id} goes on as it was"
        raise _NotShownError(f"the new key could not be shown ({why}); {key_id} was revoked again{goes_on}") from None


def _others(record: ApiKeyRecord, of_owner: Iterable[ApiKeyRecord]) -> int:
    """How many more keys name the same caller now: an owner's name that two people chose shows here."""
    now = time.time()
    return sum(other.key_id != record.key_id and other.is_good(now) for other in of_owner)


def _given(name: str) -> str:
    """The key to import, from a file, from standard input for ``-``, or typed in without an echo."""
    if name == "-" and sys.stdin.isatty():
        from getpass import getpass

        return getpass("API key to import: ")
    from a2a_trust.cli.sources import read_input

    try:
        return read_input(name).decode("ascii").rstrip("\r\n")
    except UnicodeDecodeError:
        raise ConfigurationError("an imported key is visible ASCII characters without blanks") from None
    except OSError as error:
        # The name is not repeated: people give the key where its file belongs.
        raise OSError(f"the file with the key: {error.strerror}; give a file or -, never the key itself") from None


def _expires(lifetime: str | None) -> float:
    return math.inf if lifetime is None else moment(lifetime, time.time(), "--expires")


def _state(record: ApiKeyRecord) -> str:
    if record.revoked is not None:
        return "revoked"
    return "good" if record.is_good(time.time()) else "expired"


def _entry(record: ApiKeyRecord) -> dict[str, Any]:
    return {
        "id": record.key_id,
        "owner": record.owner,
        "scopes": sorted(record.scopes),
        "state": _state(record),
        "created": written(record.created),
        "expires": written(record.expires),
        "revoked": written(record.revoked),
        "last_used": written(record.last_used),
        "replaced_by": record.replaced_by,
        "imported": record.imported,
    }


def _row(record: ApiKeyRecord) -> tuple[str, ...]:
    state = _state(record) if record.replaced_by is None else f"{_state(record)}, replaced by {record.replaced_by}"
    used, ends = written(record.last_used) or "never", written(record.expires) or "never"
    return (record.key_id, printable(record.owner), state, ends, used, " ".join(sorted(record.scopes)))


def _line(record: ApiKeyRecord) -> str:
    ends = written(record.expires)
    scopes = " ".join(sorted(record.scopes)) or "no scopes"
    return f"{record.key_id} of {printable(record.owner)}: {scopes}, {f'until {ends}' if ends else 'never expires'}"


_ACTIONS: Final = {"create": _create, "import": _import, "list": _list, "rotate": _rotate, "revoke": _revoke}
