"""``a2a-sign api-key``: make, import, list, rotate and revoke the API keys of a store.

A new key goes to standard output, alone, and everything else to standard error: ``… create … > key.txt`` holds the key.
It is shown this once. A key never comes in as an argument, where other users and the shell's history would see it.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from typing import Any

from a2a_trust.auth.api_key.sqlite import SqliteApiKeys
from a2a_trust.auth.api_key.verifier import ApiKeyRecord, IssuedApiKey
from a2a_trust.cli.moments import duration, moment, written
from a2a_trust.cli.report import Exit, exit_of, failed, mark, printable, put, put_json, put_table
from a2a_trust.cli.sources import naming
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError, TrustError

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Do what ``options.action`` names, in the store ``options.store``."""
    command = f"api-key {options.action}"
    actions = {"create": _create, "import": _import, "list": _list, "rotate": _rotate, "revoke": _revoke}
    try:
        with naming(options.store):
            report = actions[options.action](options)
    except BrokenPipeError:
        raise
    except (TrustError, ConfigurationError, OSError) as error:
        code = Exit.INPUT_OUTPUT if isinstance(error, KeySourceUnavailableError) else exit_of(error)
        return failed(command, error, as_json=options.json, code=code)
    if options.json:
        put_json({"command": command, "ok": True, "exit": Exit.OK, **report})
    return Exit.OK


def _create(options: argparse.Namespace) -> dict[str, Any]:
    expires = _expires(options.expires)
    store = SqliteApiKeys(options.store, create=True)
    issued = store.create(owner=options.owner, scopes=options.scope, expires=expires, prefix=options.prefix)
    return _issued(issued, store, options)


def _import(options: argparse.Namespace) -> dict[str, Any]:
    expires, text = _expires(options.expires), _given(options.file)
    store = SqliteApiKeys(options.store, create=True)
    record = store.import_key(text, owner=options.owner, scopes=options.scope, expires=expires, prefix=options.prefix)
    if not options.json:
        put(f"{mark('imported', 'green', sys.stdout)} {_line(record)}")
    return {**_entry(record), "other_keys": _others(record, store)}


def _list(options: argparse.Namespace) -> dict[str, Any]:
    records = SqliteApiKeys(options.store).records()
    if not options.json:
        heads = ("ID", "OWNER", "STATE", "EXPIRES", "LAST USED", "SCOPES")
        put_table(heads, map(_row, records))
    return {"keys": [_entry(record) for record in records]}


def _rotate(options: argparse.Namespace) -> dict[str, Any]:
    expires = None if options.expires is None else _expires(options.expires)
    store = SqliteApiKeys(options.store)
    issued = store.rotate(options.id, overlap=duration(options.overlap, "--overlap"), expires=expires)
    report = _issued(issued, store, options)
    old = next(record for record in store.records() if record.key_id == options.id)
    if not options.json:
        put(f"  {old.key_id}, which it replaces, is good until {written(old.expires)}", sys.stderr)
    return {**report, "replaces": {"id": old.key_id, "expires": written(old.expires)}}


def _revoke(options: argparse.Namespace) -> dict[str, Any]:
    record = SqliteApiKeys(options.store).revoke(options.id)
    if not options.json:
        put(f"{mark('revoked', 'green', sys.stdout)} {_line(record)}")
        put("  running servers refuse it as soon as they read the store again, within their refresh seconds")
    return _entry(record)


def _issued(issued: IssuedApiKey, store: SqliteApiKeys, options: argparse.Namespace) -> dict[str, Any]:
    """Show a new key, this once."""
    record = issued.record
    if not options.json:
        put(issued.text)  # first: whatever fails now, the key is not lost
        put(f"{mark('made', 'green', sys.stderr)} {_line(record)}", sys.stderr)
        put("  the key is shown this once and kept nowhere; store it where only its user can read it", sys.stderr)
    others = _others(record, store)
    if others and not options.json:
        put(f"  note: {others} more of this owner's keys are good; they all name the same caller", sys.stderr)
    return {"key": issued.text, **_entry(record), "other_keys": others}


def _others(record: ApiKeyRecord, store: SqliteApiKeys) -> int:
    """How many more keys name the same caller now: an owner's name that two people chose shows here."""
    now = time.time()
    return sum(
        other.owner == record.owner and other.key_id != record.key_id and other.is_good(now)
        for other in store.records()
    )


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
