"""``a2a-sign api-key``: make, import, list, rotate and revoke the API keys in a store."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from a2a_trust.auth.api_key.verifier import ApiKeyRecord, IssuedApiKey, MemoryApiKeys
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
from a2a_trust.cli.moments import duration, rfc3339
from a2a_trust.cli.report import Exit, mark, printable, put, put_report, put_table, warn
from a2a_trust.cli.stores import ApiKeys, api_keys
from a2a_trust.errors import ConfigurationError


def run(options: argparse.Namespace) -> dict[str, Any] | None:
    return run_action(_ACTIONS, options)


def _create(options: argparse.Namespace) -> dict[str, Any] | None:
    # Made in memory first: a wrong argument leaves nothing behind.
    new = partial(MemoryApiKeys().create, scopes=options.scope, expires=expiry(options.expires), prefix=options.prefix)
    if options.names is not None:
        return create_all("key", options, lambda owner: new(owner=owner), partial(_add_all, options.store), _entry)
    if options.output is not None:
        raise ConfigurationError("--output works only with --owners-from; a single key goes to standard output")
    check_output("key")
    issued = new(owner=options.owner)
    store = api_keys(options.store, create=True)
    with hold_signals() as release:
        store.add([issued.record])
        _show(issued, store, options, release)
    return None


def _add_all(name: str, records: list[ApiKeyRecord]) -> None:
    store, now = api_keys(name, create=True), time.time()
    known = {record.owner for record in store.records() if record.is_good(now)}
    for owner in (record.owner for record in records if record.owner in known):
        raise ConfigurationError(f"owner {owner!a} has a valid key; rotate it, or remove the name")
    store.add(records)


def _import(options: argparse.Namespace) -> dict[str, Any]:
    expires, text = expiry(options.expires), _read_key(options.file)
    record = MemoryApiKeys().import_key(
        text, owner=options.owner, scopes=options.scope, expires=expires, prefix=options.prefix
    )
    store = api_keys(options.store, create=True)
    store.add([record])
    if not options.json and not options.quiet:
        put(f"{mark('imported', 'green', sys.stdout)} {_line(record)}")
    return {**_entry(record), "other_keys": _others(record, store.records(owner=record.owner))}


def _list(options: argparse.Namespace) -> dict[str, Any]:
    store = api_keys(options.store)
    records = [record for record in store.records(owner=options.owner) if is_selected(record, options)]
    unreadable = store.unreadable()
    if options.quiet and not options.json:
        for record in records:
            put(record.key_id)
    elif not options.json:
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
    expires = None if options.expires is None else expiry(options.expires)
    check_output("key")
    store = api_keys(options.store)
    overlap = duration(options.overlap, "--overlap")
    with hold_signals() as release:
        issued = store.rotate(options.id, overlap=overlap, expires=expires)
        _show(issued, store, options, release)


def _revoke(options: argparse.Namespace) -> dict[str, Any]:
    if (options.owner is None) == (not options.ids):
        raise ConfigurationError("name the keys: IDs, or - to read them from standard input, or --owner NAME")
    store = api_keys(options.store)
    if options.owner is None:
        records = store.revoke_all(names_in("-") if options.ids == ["-"] else options.ids)
    else:
        while left := [each.key_id for each in store.records(owner=options.owner) if each.revoked is None]:
            store.revoke_all(left)  # once more if somebody has rotated one meanwhile
        records = store.records(owner=options.owner)
    if not records:
        raise ConfigurationError("--owner: no key is of this owner; list the keys to see the owners")
    if not options.json and not options.quiet:
        for record in records:
            put(f"{mark('revoked', 'green', sys.stdout)} {_line(record)}")
        put("  running servers reject revoked keys within 2 seconds, unless they set another refresh")
    return {"keys": list(map(_entry, records))}


def _show(issued: IssuedApiKey, store: ApiKeys, options: argparse.Namespace, release: Callable[[], object]) -> None:
    """Show a new key, only this once. If that fails, the key is revoked."""
    record, before = issued.record, issued.replaces
    unseen = Unseen(
        kind="key",
        name=record.key_id,
        take_back=lambda: store.take_back(issued),
        undone=f"{record.key_id} was revoked at once"
        + ("" if before is None else f", and {before.key_id} stays valid as before"),
        command=f"a2a-sign api-key revoke --store {shlex.quote(str(options.store))} {record.key_id}",
    )
    with unseen.showing(release):
        of_owner = store.records(owner=record.owner)
        others = _others(record, of_owner)
        old = next((other for other in of_owner if other.replaced_by == record.key_id), None)
        if options.json:
            replaces = {} if old is None else {"replaces": {"id": old.key_id, "expires": rfc3339(old.expires)}}
            report = {"key": issued.text, **_entry(record), "other_keys": others, **replaces}
            put_report(f"api-key {options.action}", Exit.OK, report)
        else:
            put(issued.text)
    if options.json or options.quiet:
        return
    put(f"{mark('made', 'green', sys.stderr)} {_line(record)}", sys.stderr)
    put("  the key is shown only now, and not stored; keep it where only its user can read it", sys.stderr)
    if others:
        verb = "key of this owner is" if others == 1 else "keys of this owner are"
        put(f"  note: {others} more {verb} valid; all keys of an owner name the same caller", sys.stderr)
    if old is not None:
        put(f"  {old.key_id}, which it replaces, is valid until {rfc3339(old.expires)}", sys.stderr)


def _others(record: ApiKeyRecord, of_owner: Iterable[ApiKeyRecord]) -> int:
    """The number of other keys that name the same caller now; it shows if two people chose one owner's name."""
    now = time.time()
    return sum(other.key_id != record.key_id and other.is_good(now) for other in of_owner)


def _read_key(name: str) -> str:
    """The key to import, from a file, from standard input for ``-``, or typed in without an echo."""
    if name == "-" and sys.stdin.isatty():
        from getpass import getpass

        return getpass("API key to import: ")
    try:
        return read_secret(name, "key").decode("ascii").rstrip("\r\n")
    except UnicodeDecodeError:
        raise ConfigurationError(
            "an imported key must be visible ASCII characters without blanks, and this one has other characters"
        ) from None


def _entry(record: ApiKeyRecord) -> dict[str, Any]:
    return {
        "id": record.key_id,
        "owner": record.owner,
        "scopes": sorted(record.scopes),
        "state": state_of(record),
        "created": rfc3339(record.created),
        "expires": rfc3339(record.expires),
        "revoked": rfc3339(record.revoked),
        "last_used": rfc3339(record.last_used),
        "replaced_by": record.replaced_by,
        "imported": record.imported,
    }


def _row(record: ApiKeyRecord) -> tuple[str, ...]:
    state = state_of(record) if record.replaced_by is None else f"{state_of(record)}, replaced by {record.replaced_by}"
    used, ends = rfc3339(record.last_used) or "never", rfc3339(record.expires) or "never"
    return (record.key_id, printable(record.owner), state, ends, used, " ".join(sorted(record.scopes)))


def _line(record: ApiKeyRecord) -> str:
    return f"{record.key_id} of {printable(record.owner)}: {rights_of(record)}"


_ACTIONS: Final = {"create": _create, "import": _import, "list": _list, "rotate": _rotate, "revoke": _revoke}
