"""``a2a-sign password``: make, import, list, rotate and revoke the passwords in a store."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from a2a_trust.auth.basic.records import IssuedPassword, MemoryPasswords, PasswordRecord
from a2a_trust.auth.basic.user_pass import normalize
from a2a_trust.auth.record_table import SqlitePasswords
from a2a_trust.base.databases.availability import is_database_url
from a2a_trust.cli.issuing import (
    Unseen,
    check_output,
    create_all,
    expiry,
    hold_signals,
    is_selected,
    names_in,
    read_secret,
    rights_of,
    run_action,
    state_of,
)
from a2a_trust.cli.moments import rfc3339
from a2a_trust.cli.report import Exit, mark, printable, put, put_report, put_table, warn
from a2a_trust.errors import ConfigurationError


def run(options: argparse.Namespace) -> int:
    return run_action("password", _ACTIONS, options)


def _passwords(name: str, *, create: bool = False) -> SqlitePasswords:
    """The store that ``--store`` names. ConfigurationError: it is missing, is not a store, or is a URL."""
    if is_database_url(name):
        raise ConfigurationError("--store: passwords are stored in files; write the name of a file, not a URL")
    return SqlitePasswords(name, create=create)


def _create(options: argparse.Namespace) -> dict[str, Any] | None:
    # Made in memory first: a wrong argument leaves nothing behind.
    new = partial(MemoryPasswords().create, scopes=options.scope, expires=expiry(options.expires))
    if options.names is not None:
        add = lambda records: _passwords(options.store, create=True).add(records)  # noqa: E731
        return create_all("password", options, lambda user: new(user=user), add, _entry)
    if options.output is not None:
        raise ConfigurationError("--output works only with --users-from; a single password goes to standard output")
    check_output("password")
    issued = new(user=options.user)
    store = _passwords(options.store, create=True)
    with hold_signals() as release:
        (before,) = store.add([issued.record])
        _show(IssuedPassword(issued.record, issued.text, before), store, options, release)
    return None


def _import(options: argparse.Namespace) -> dict[str, Any]:
    expires, text = expiry(options.expires), _read_password(options.file)
    record = MemoryPasswords().import_password(text, user=options.user, scopes=options.scope, expires=expires)
    store = _passwords(options.store, create=True)
    store.add([record])
    if not options.json and not options.quiet:
        put(f"{mark('imported', 'green', sys.stdout)} {_line(record)}")
    return _entry(record)


def _list(options: argparse.Namespace) -> dict[str, Any]:
    store = _passwords(options.store)
    records, unreadable = [each for each in store.records() if is_selected(each, options)], store.unreadable()
    if options.quiet and not options.json:
        for record in records:
            put(printable(record.user))
    elif not options.json:
        heads = ("USER", "STATE", "CHANGED", "EXPIRES", "SCOPES")
        put_table(heads, [*map(_row, records), *((printable(user), "unreadable", *3 * [""]) for user, _ in unreadable)])
        for user, why in unreadable:
            warn(f"{printable(user)} is rejected, because the record is unreadable: {why}")
    return {
        "passwords": [_entry(record) for record in records],
        "unreadable": [{"user": printable(user), "reason": why} for user, why in unreadable],
    }


def _rotate(options: argparse.Namespace) -> None:
    expires = None if options.expires is None else expiry(options.expires)
    check_output("password")
    store = _passwords(options.store)
    with hold_signals() as release:
        issued = store.rotate(options.user, expires=expires)
        _show(issued, store, options, release)


def _revoke(options: argparse.Namespace) -> dict[str, Any]:
    users = [options.user] if options.names is None else names_in(options.names)
    records = _passwords(options.store).revoke_all(map(normalize, users))
    if not options.json and not options.quiet:
        for record in records:
            put(f"{mark('revoked', 'green', sys.stdout)} {_line(record)}")
        put("  running servers reject revoked passwords within 2 seconds, unless they set another refresh")
    return {"passwords": list(map(_entry, records))}


def _show(
    issued: IssuedPassword, store: SqlitePasswords, options: argparse.Namespace, release: Callable[[], object]
) -> None:
    """Show a new password, only this once. If that fails, the password is taken back."""
    record, before = issued.record, issued.replaces
    goes_on = before is not None and before.is_good(record.changed)
    unseen = Unseen(
        kind="password",
        name=f"of {printable(record.user)}",
        take_back=lambda: store.take_back(issued),
        undone="the old one stays valid" if goes_on else "it was revoked at once",
        command=f"a2a-sign password revoke --store {shlex.quote(str(options.store))} --user {shlex.quote(record.user)}",
    )
    with unseen.showing(release):
        if options.json:
            put_report(f"password {options.action}", Exit.OK, {"password": issued.text, **_entry(record)})
        else:
            put(issued.text)
    if options.json or options.quiet:
        return
    put(f"{mark('made', 'green', sys.stderr)} {_line(record)}", sys.stderr)
    put("  the password is shown only now, and not stored; keep it where only its user can read it", sys.stderr)
    if goes_on:
        put("  running servers reject the old one within 2 seconds, unless they set another refresh", sys.stderr)
    elif before is not None:
        put("  note: the user had a password before, which is no longer valid; both name the same caller", sys.stderr)


def _read_password(name: str) -> str:
    """The password to import, from a file, from standard input for ``-``, or typed in twice without an echo."""
    if name == "-" and sys.stdin.isatty():
        from getpass import getpass

        text = getpass("Password to import: ")
        if text != getpass("Once more: "):
            raise ConfigurationError("the two passwords differ, so nothing was changed; try again")
        return text
    try:
        return read_secret(name, "password").decode()
    except UnicodeDecodeError:
        pass  # the error holds the password
    raise ConfigurationError("the imported password is not UTF-8 text; write it in UTF-8")


def _entry(record: PasswordRecord) -> dict[str, Any]:
    return {
        "user": record.user,
        "scopes": sorted(record.scopes),
        "state": state_of(record),
        "created": rfc3339(record.created),
        "changed": rfc3339(record.changed),
        "expires": rfc3339(record.expires),
        "revoked": rfc3339(record.revoked),
    }


def _row(record: PasswordRecord) -> tuple[str, ...]:
    changed, ends = rfc3339(record.changed) or "", rfc3339(record.expires) or "never"
    return (printable(record.user), state_of(record), changed, ends, " ".join(sorted(record.scopes)))


def _line(record: PasswordRecord) -> str:
    return f"the password of {printable(record.user)}: {rights_of(record)}"


_ACTIONS: Final = {"create": _create, "import": _import, "list": _list, "rotate": _rotate, "revoke": _revoke}
