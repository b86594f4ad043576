"""``a2a-sign trust``: show and edit a trust file; what people wrote in it stays as it is."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from a2a_trust.atomic_write import write_atomically
from a2a_trust.cli.moments import moment, written
from a2a_trust.cli.report import Exit, exit_of, failed, mark, printable, put, put_json, put_table, warn
from a2a_trust.cli.sources import public_key, read_input
from a2a_trust.errors import ConfigurationError, MalformedError, TrustError
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.keyset import read_jwks
from a2a_trust.keys.origins import Origins, host_of
from a2a_trust.keys.trust import LOSSLESS_FORMS, Form
from a2a_trust.keys.trust_edit import (
    EMPTY,
    Members,
    entry_of_key,
    entry_of_url,
    update_trust_file,
    with_entries,
    with_revoked,
    without_entry,
)
from a2a_trust.keys.trust_file import TrustDocument, TrustEntry, keys_of_file, read_trust

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Do what ``options.action`` names, with the trust file in ``options.file``."""
    actions: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
        "add": _add,
        "remove": _remove,
        "list": _list,
        "revoke": _revoke,
    }
    command = f"trust {options.action}"
    try:
        report = actions[options.action](options)
    except BrokenPipeError:
        raise
    except (TrustError, ConfigurationError, OSError) as error:
        # The file is the operator's: what is wrong with it is no verdict on a card.
        code = exit_of(error) if isinstance(error, OSError) else Exit.USAGE
        return failed(command, error, as_json=options.json, code=code)
    if options.json:
        put_json({"command": command, "ok": True, "exit": Exit.OK, "file": options.file, **report})
    return Exit.OK


def _add(options: argparse.Namespace) -> dict[str, Any]:
    now = time.time()
    members = Members(
        origins=[_origin(origin) for origin in options.origin],
        forms=LOSSLESS_FORMS | set(map(Form, options.form)) if options.form else None,
    )
    if options.not_before is not None:
        members["not_before"] = moment(options.not_before, now, "--not-before", may_have_passed=True)
    if options.not_after is not None:
        members["not_after"] = moment(options.not_after, now, "--not-after")
    keys = _given_keys(options)
    entries = [entry_of_key(key, **members) for key in keys]
    if options.jwks_url is not None:
        entries.append(entry_of_url(options.jwks_url, **members))
    path = Path(options.file)

    def add(text: str, before: TrustDocument) -> str:
        for key in keys:
            if key.kid in {known.kid for entry in before.entries for known in entry.keys if known.kty == key.kty}:
                warn(f"{key.kid} is in the file already; where both entries hold, such a name means neither")
        return with_entries(text, entries)

    read_trust(with_entries(EMPTY, entries).encode(), options.file)  # before a new file is made for them
    is_new = not path.exists()
    if is_new:
        with suppress(FileExistsError):  # somebody else was faster, with the same
            write_atomically(path, EMPTY.encode(), mode=0o644, replace=False)
    update_trust_file(path, add)
    added = [key.kid for key in keys] + ([] if options.jwks_url is None else [options.jwks_url])
    if not options.json:
        put(f"{mark('made' if is_new else 'changed', 'green', sys.stdout)} {printable(options.file)}")
        for name in added:
            put(f"  {printable(name)} may speak for {printable(', '.join(members['origins']))}")
    return {"added": added, "origins": members["origins"]}


def _given_keys(options: argparse.Namespace) -> list[PublicKey]:
    if options.kid is not None and options.key is None:
        raise ConfigurationError("--kid names the key of --key; the keys of a set have names of their own")
    if options.key is not None:
        return [public_key(options.key, options.kid)]
    if options.jwks is None:
        return []
    found = read_jwks(read_input(options.jwks))
    for skipped in found.skipped:
        warn(f"{options.jwks}: key {skipped.index} skipped: {skipped.reason}")
    if not found.keys:
        raise ConfigurationError(f"{options.jwks}: no key in this JWK Set can verify a card")
    return list(found.keys)


def _origin(text: str) -> str:
    """The host of a URL, or a host or a pattern as it is."""
    if "://" in text:
        try:
            return host_of(text)
        except MalformedError as error:
            raise ConfigurationError(f"--origin: {error}") from None
    Origins(text)
    return text


def _remove(options: argparse.Namespace) -> dict[str, Any]:
    removed: list[int] = []

    def remove(text: str, before: TrustDocument) -> str:
        removed[:] = [
            index
            for index, entry in enumerate(before.entries)
            if options.what in (entry.url, entry.file, *(key.kid for key in entry.keys))
        ]
        if not removed:
            raise ConfigurationError(
                f"no entry has this kid, URL or file; see: a2a-sign trust list {shlex.quote(options.file)}"
            )
        for index in reversed(removed):
            text = without_entry(text, index)
        after = read_trust(text.encode(), options.file)
        if len(after.entries) != len(before.entries) - len(removed):
            raise ConfigurationError(f"{options.file}: the lines of this entry cannot be told; edit the file by hand")
        return text

    _existing(options.file, remove)
    if not options.json:
        put(f"{mark('removed', 'green', sys.stdout)} {printable(options.what)}")
    return {"removed": options.what, "entries": len(removed)}


def _revoke(options: argparse.Namespace) -> dict[str, Any]:
    now = time.time()
    was_revoked: list[bool] = []

    def revoke(text: str, before: TrustDocument) -> str:
        was_revoked.append(options.kid in {key.kid for key in before.revoked})
        return text if was_revoked[-1] else with_revoked(text, options.kid, at=now, reason=options.reason)

    after = _existing(options.file, revoke)
    if not options.json:
        put(f"{mark('revoked', 'green', sys.stdout)} {printable(options.kid)}")
        if was_revoked[-1]:
            put("  it was revoked already; nothing was changed")
        if not any(options.kid == key.kid for entry in after.entries for key in entry.keys):
            put("  no entry of the file has a key of this name; it counts for key files and key sets too")
    return {"kid": options.kid, "was_revoked": was_revoked[-1]}


def _existing(name: str, change: Callable[[str, TrustDocument], str]) -> TrustDocument:
    try:
        return update_trust_file(Path(name), change)
    except FileNotFoundError:
        raise ConfigurationError(
            f"there is no trust file at {name}; make it: a2a-sign trust add {shlex.quote(name)} --origin HOST "
            "--key FILE"
        ) from None


_HEADINGS: Final = ("KID", "ALG", "MAY SPEAK FOR", "FORMS", "VALID", "STATE")


def _list(options: argparse.Namespace) -> dict[str, Any]:
    path = Path(options.file)
    document = read_trust(path.read_bytes(), options.file)
    now, revoked = time.time(), frozenset(key.kid for key in document.revoked)
    entries = [
        row for entry in document.entries for row in _rows(entry, path, revoked=revoked, now=now, name=options.file)
    ]
    if not options.json:
        put_table(_HEADINGS, [_cells(row) for row in entries])
        for each in document.policies:
            hosts, kids = ", ".join(each.origins.patterns), sorted(each.policy.kids)
            needed = "all" if each.policy.count == len(kids) else each.policy.count
            put(f"policy: cards of {printable(hosts)} need {needed} of {printable(', '.join(kids))}")
        for key in document.revoked:
            since = "" if key.at is None else f" since {written(key.at)}"
            put(f"revoked: {printable(key.kid)}{since}{f': {printable(key.reason)}' if key.reason else ''}")
    return {
        "entries": entries,
        "policies": [
            {"origins": list(each.origins.patterns), "keys": sorted(each.policy.kids), "count": each.policy.count}
            for each in document.policies
        ],
        "revoked": [{"kid": key.kid, "at": written(key.at), "reason": key.reason} for key in document.revoked],
    }


def _rows(entry: TrustEntry, path: Path, *, revoked: frozenset[str], now: float, name: str) -> list[dict[str, Any]]:
    """One row for every key of the entry; one for a key set on the network, whose keys only a verification fetches."""
    common = {
        "line": entry.line,
        "origins": list(entry.origins.patterns) if isinstance(entry.origins, Origins) else ["*"],
        "forms": sorted(entry.forms),
        "not_before": written(entry.not_before if entry.not_before > 0 else None),
        "not_after": written(entry.not_after),
        "file": entry.file,
        "url": entry.url,
    }
    state = "not yet valid" if now < entry.not_before else "expired" if now >= entry.not_after else "trusted"
    if entry.url is not None:
        return [{"kid": None, "alg": None, "thumbprint": None, **common, "state": state}]
    keys = entry.keys
    if entry.file is not None:
        keys = keys_of_file(entry, path.parent / entry.file, f"{name}, line {entry.line}").keys
    return [
        {
            "kid": key.kid,
            "alg": key.alg,
            "thumbprint": key.thumbprint,
            **common,
            "state": "revoked" if key.kid in revoked else state,
        }
        for key in keys
    ]


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    starts, ends = row["not_before"], row["not_after"]
    valid = " ".join(filter(None, (f"from {starts}" if starts else "", f"until {ends}" if ends else ""))) or "always"
    return (
        printable(row["url"] if row["kid"] is None else row["kid"]),
        row["alg"] or "",
        printable(", ".join(row["origins"])),
        ", ".join(row["forms"]),
        valid,
        row["state"],
    )
