"""``a2a-sign trust``: show and edit a trust file; what people wrote in it stays as it is."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from a2a_trust.cli.moments import moment, written
from a2a_trust.cli.report import (
    Exit,
    exit_of_setup,
    failed,
    mark,
    printable,
    put,
    put_report,
    put_table,
    warn,
)
from a2a_trust.cli.sources import algorithm_option, given_alg, needing_client, public_key, public_keys
from a2a_trust.errors import ConfigurationError, MalformedError, TrustError
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.keyset import KeySet, read_jwks
from a2a_trust.keys.origins import Origins, host_of, overlap
from a2a_trust.keys.policy import is_thumbprint
from a2a_trust.keys.trust import SigningTool
from a2a_trust.keys.trust_edit import (
    EMPTY,
    Members,
    entry_of_key,
    entry_of_url,
    make_trust_file,
    update_trust_file,
    with_entries,
    with_revoked,
    without_entries,
)
from a2a_trust.keys.trust_file import (
    RevokedKey,
    TrustDocument,
    TrustEntry,
    keys_of_file,
    load_trust,
    read_trust,
)

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Do what the action is for, with the trust file in ``options.file``."""
    command = f"trust {options.action}"
    try:
        report = _ACTIONS[options.action](options)
    except BrokenPipeError:
        raise
    except (TrustError, OSError) as error:
        return failed(command, error, as_json=options.json, code=exit_of_setup(error))
    if options.json:
        put_report(command, Exit.OK, {"file": options.file, **report})
    return Exit.OK


def _add(options: argparse.Namespace) -> dict[str, Any]:
    now = time.time()
    members = Members(
        origins=list(dict.fromkeys(map(_origin, options.origin))),
        name=options.name,
        signer=None if options.signer is None else SigningTool(options.signer),
    )
    if options.not_before is not None:
        members["not_before"] = moment(options.not_before, now, "--not-before", may_have_passed=True)
    if options.not_after is not None:
        members["not_after"] = moment(options.not_after, now, "--not-after")
    keys = _given_keys(options)
    entries = [entry_of_key(key, **members) for key in keys]
    if options.jwks_url is not None:
        members["alg"] = None if options.alg is None else algorithm_option(options.alg)
        entries.append(entry_of_url(options.jwks_url, **members))
    path, added = Path(options.file), list[str]()

    def add(text: str, before: TrustDocument) -> str:
        for toml, entry in zip(entries, new.entries, strict=True):
            if any(map(entry.says_as_much_as, before.entries)):
                continue
            _check_new(entry, before, path)
            text = with_entries(text, [toml])
            added.append(entry.url or entry.keys[0].kid)
        return text

    try:
        new = read_trust(with_entries(EMPTY, entries).encode(), "what would be added")
    except ConfigurationError as error:
        raise _of_option(error) from None
    is_new = not path.exists()
    try:
        after = make_trust_file(path, add) if is_new else update_trust_file(path, add)
    except FileExistsError:  # somebody else was faster
        added.clear()
        after = update_trust_file(path, add)
    _warn_of_dead(keys, [key for key in _revoked_keys(after, path) if key.kid in added], path, now)
    if not options.json:
        word = "made" if is_new else "changed" if added else "unchanged"
        put(f"{mark(word, 'green', sys.stdout)} {printable(options.file)}")
        if not added:
            put("  already there; nothing was changed")
        for name in added:
            put(f"  {printable(name)} may speak for {printable(', '.join(members['origins']))}")
    return {"added": added, "origins": members["origins"]}


def _warn_of_dead(given: Iterable[PublicKey], revoked: Iterable[PublicKey], path: Path, now: float) -> None:
    """Tell which of the keys prove nothing now: by what they say of themselves, or by what the file says."""
    for key in given:
        if not key.is_valid_at(now):
            warn(f"{key.kid}: the key says of itself that it is revoked, or not valid now; it proves nothing now")
    for key in revoked:
        if not key.revoked:
            warn(f"{key.kid} is revoked in {path}: it proves nothing, although it was added")


def _of_option(error: ConfigurationError) -> ConfigurationError:
    """The reader's error, which names a line and a member that nobody wrote, with the option that it comes from."""
    found = re.fullmatch(r".*?, line [0-9]+: trust\[[0-9]+\]\.(\w+): (.*)", str(error), re.DOTALL)
    if found is None:
        return error
    option = {"origins": "origin", "jwk": "public-key"}.get(found[1], found[1].replace("_", "-"))
    return ConfigurationError(f"--{option}: {found[2].replace('not_before', '--not-before')}")


def _check_new(new: TrustEntry, before: TrustDocument, path: Path) -> None:
    """Refuse a key or key set that is trusted for the same hosts in another way: the laxer of the two would count."""
    thumbprints = {key.thumbprint for key in new.keys}
    for entry in before.entries:
        known = {key.thumbprint for key in _keys(entry, path, str(path))}
        is_same = entry.url == new.url if new.url is not None else bool(known & thumbprints)
        if is_same and overlap(entry.origins, new.origins):
            name = new.url or new.keys[0].kid
            raise ConfigurationError(
                f"{path}, line {entry.line}: {name!a} is trusted for the same hosts already, in another way. Remove "
                f"that entry first: a2a-sign trust remove {shlex.quote(str(path))} {shlex.quote(entry.file or name)}"
            )


def _given_keys(options: argparse.Namespace) -> list[PublicKey]:
    if options.kid is not None and options.public_key is None:
        raise ConfigurationError("--kid names the --public-key; the keys of a set have names of their own")
    if options.public_key is not None:
        return given_alg([public_key(options.public_key, options.kid)], options.alg, options.public_key)
    if options.jwks is None:
        return []
    keys = given_alg(public_keys(options.jwks), options.alg, options.jwks)
    if options.name is not None and len(keys) > 1:
        raise ConfigurationError(
            f"--name: {options.jwks} has {len(keys)} keys, and one name stands on one entry; use --jwks-url, or write "
            f'an entry with keys = "{options.jwks}" by hand'
        )
    return keys


def _origin(text: str) -> str:
    """The host of a URL, or a host or a pattern as it is."""
    try:
        if "://" in text:
            return host_of(text)
        Origins(text)
    except (MalformedError, ConfigurationError) as error:
        raise ConfigurationError(f"--origin: {error}; or write a URL with its scheme, http://localhost:8000") from None
    return text


def _remove(options: argparse.Namespace) -> dict[str, Any]:
    gone: list[TrustEntry] = []

    def remove(text: str, before: TrustDocument) -> str:
        gone[:] = _named_entries(before, options)
        return without_entries(text, before, gone)

    _existing(options.file, remove)
    if not options.json:
        put(f"{mark('removed', 'green', sys.stdout)} {printable(options.what)}")
        for entry in gone:
            put(f"  it spoke for {printable(', '.join(_patterns(entry)))}")
    return {"removed": options.what, "entries": len(gone)}


def _named_entries(document: TrustDocument, options: argparse.Namespace) -> list[TrustEntry]:
    """The entries that the argument names; ConfigurationError when there is none."""
    found = [
        entry
        for entry in document.entries
        if options.what in (entry.name, entry.url, entry.file, *(key.kid for key in entry.keys))
    ]
    if found:
        return found
    for entry in document.entries:
        if options.what in [key.kid for key in _keys(entry, Path(options.file), options.file)]:
            raise ConfigurationError(
                f"this key is one of {entry.file}, which line {entry.line} names: take it out of that file, or "
                f"remove the whole of it: a2a-sign trust remove {shlex.quote(options.file)} "
                f"{shlex.quote(str(entry.file))}"
            )
    raise ConfigurationError(
        f"no entry has this kid, name, URL or file; see: a2a-sign trust list {shlex.quote(options.file)}"
    )


def _revoke(options: argparse.Namespace) -> dict[str, Any]:
    now = time.time()
    path = Path(options.file)
    revoked: list[RevokedKey] = []
    was_revoked: list[bool] = []

    def revoke(text: str, before: TrustDocument) -> str:
        key = replace(_meant(options, before, path), at=now, reason=options.reason)
        revoked.append(key)
        was_revoked.append(any(known.says_as_much_as(key) for known in before.revoked))
        return text if was_revoked[-1] else with_revoked(text, key)

    _existing(options.file, revoke)
    key = revoked[-1]
    if not options.json:
        put(f"{mark('revoked', 'green', sys.stdout)} {printable(key.kid or key.thumbprint)}")
        if was_revoked[-1]:
            put("  it was revoked already; nothing was changed")
        elif key.entry is not None:
            what = "the kid" if key.thumbprint is None else f"the key {key.thumbprint}, under every kid,"
            put(f"  {what} is revoked in the entry {printable(key.entry)} only; --thumbprint revokes a key everywhere")
    return {
        "kid": key.kid,
        "thumbprint": key.thumbprint,
        "entry": key.entry,
        "was_revoked": was_revoked[-1],
    }


def _meant(options: argparse.Namespace, document: TrustDocument, path: Path) -> RevokedKey:
    """The key that the arguments name, by thumbprint if that is known; ConfigurationError when they name none."""
    kid, entry = options.kid, options.entry
    if options.thumbprint is not None:
        if not is_thumbprint(options.thumbprint):
            raise ConfigurationError("--thumbprint: write the RFC 7638 thumbprint: 43 letters, digits, - and _")
        if entry is not None or options.fetch:
            raise ConfigurationError("--thumbprint names the key wherever it is listed; leave out --entry and --fetch")
        return RevokedKey(kid=kid, thumbprint=options.thumbprint)
    if kid is None:
        raise ConfigurationError("name the key: KID, or --thumbprint")
    if entry is not None and not any(each.is_called(entry) for each in document.entries):
        raise ConfigurationError(f"--entry: no entry of {path} has the name or jwks_url {ascii(entry)[:128]}")
    written = _written_keys(document, path, kid, entry)
    if len(written) > 1:
        raise ConfigurationError(
            f"{len(written)} keys of {path} have this kid; say which by --thumbprint: {', '.join(sorted(written))}"
        )
    if written:
        (thumbprint,) = written
        return RevokedKey(kid=kid if kid != thumbprint else None, thumbprint=thumbprint)
    if entry is None:
        raise ConfigurationError(
            f"no key in {path}, or in a key file that it names, has the kid {ascii(kid)[:128]}; see: a2a-sign trust "
            f"list {shlex.quote(str(path))}. For a key of a fetched key set add --entry NAME|URL; for a key that is "
            "listed nowhere, --thumbprint"
        )
    url = next(each.url for each in document.entries if each.is_called(entry))
    if url is None:
        raise ConfigurationError(f"--entry: {ascii(entry)[:128]} of {path} has no key with the kid {ascii(kid)[:128]}")
    return RevokedKey(kid=kid, entry=entry, thumbprint=_fetched_thumbprint(url, kid) if options.fetch else None)


def _written_keys(document: TrustDocument, path: Path, kid: str, entry: str | None) -> set[str]:
    """The thumbprints of the keys with that kid that the operator wrote down, in one entry or in all of them.

    A key file that cannot be read is a warning if the key stands elsewhere: a revocation waits for no other repair.
    """
    found, unread = set[str](), list[ConfigurationError]()
    for each in document.entries:
        if entry is None or each.is_called(entry):
            try:
                keys = _keys(each, path, str(path))
            except ConfigurationError as error:
                unread.append(error)
            else:
                found.update(key.thumbprint for key in keys if kid in (key.kid, key.thumbprint))
    if unread and not found:
        raise ConfigurationError(f"{unread[0]}. To revoke the key without that file, name it by --thumbprint")
    for reason in unread:
        warn(f"not searched for this kid: {reason}")
    return found


def _fetched_thumbprint(url: str, kid: str) -> str:
    """The thumbprint of the key with that kid in the key set at that URL, as it is served now."""
    import asyncio  # only the network needs it, and the start is to be fast

    with needing_client("for --fetch"):
        from a2a_trust.net.fetcher import Fetcher
    fetched = asyncio.run(Fetcher().fetch(url, configured=True))
    found = {key.thumbprint for key in read_jwks(fetched.body).keys if key.kid == kid}
    if len(found) != 1:
        number = "no key" if not found else f"{len(found)} keys"
        raise ConfigurationError(
            f"--fetch: the key set at {url} has {number} with the kid {ascii(kid)[:128]} now; leave --fetch out to "
            "revoke the kid in this entry, or give --thumbprint"
        )
    return found.pop()


def _existing(name: str, change: Callable[[str, TrustDocument], str]) -> TrustDocument:
    try:
        return update_trust_file(Path(name), change)
    except FileNotFoundError:
        raise _no_file(name) from None


def _no_file(name: str) -> OSError:
    return FileNotFoundError(
        f"there is no trust file at {name}; make it: "
        f"a2a-sign trust add {shlex.quote(name)} --origin HOST --public-key FILE"
    )


_HEADINGS: Final = ("KID", "ALG", "NAME", "MAY SPEAK FOR", "SIGNER", "VALID", "STATE", "KEY FROM")


def _list(options: argparse.Namespace) -> dict[str, Any]:
    path = Path(options.file)
    try:
        document = load_trust(path)
    except FileNotFoundError:
        raise _no_file(options.file) from None
    now, revoked = time.time(), _revoked_keys(document, path)
    entries = [
        row for entry in document.entries for row in _rows(entry, path, revoked=revoked, now=now, name=options.file)
    ]
    if not options.json:
        put_table(_HEADINGS, [_cells(row) for row in entries])
        for each in document.policies:
            hosts, parties = ", ".join(each.origins.patterns), sorted(each.policy.parties)
            needed = "all" if each.policy.count == len(parties) else each.policy.count
            put(f"policy: cards of {printable(hosts)} need {needed} of {printable(', '.join(parties))}")
        for key in document.revoked:
            since = "" if key.at is None else f" since {written(key.at)}"
            where = "" if key.entry is None else f" in {key.entry}"
            what = key.kid or key.thumbprint
            put(f"revoked: {printable(f'{what}{where}')}{since}{f': {printable(key.reason)}' if key.reason else ''}")
    return {
        "entries": entries,
        "policies": [
            {"origins": list(each.origins.patterns), "parties": sorted(each.policy.parties), "count": each.policy.count}
            for each in document.policies
        ],
        "revoked": [{**asdict(key), "at": written(key.at)} for key in document.revoked],
    }


def _revoked_keys(document: TrustDocument, path: Path) -> frozenset[PublicKey]:
    """The keys that the operator wrote down and that are revoked now."""
    files = {
        entry.file: KeySet(keys=_keys(entry, path, str(path))) for entry in document.entries if entry.file is not None
    }
    return frozenset(trusted.key for trusted in document.store(files, {}).keys if trusted.revoked)


def _rows(
    entry: TrustEntry, path: Path, *, revoked: frozenset[PublicKey], now: float, name: str
) -> list[dict[str, Any]]:
    """One row for every key of the entry; one for a key set on the network, whose keys only a verification fetches."""
    common = {
        "line": entry.line,
        "name": entry.name,
        "origins": _patterns(entry),
        "signer": entry.signer,
        "file": entry.file,
        "url": entry.url,
    }
    if entry.url is not None:
        valid = _validity(entry.not_before, entry.not_after, now, is_revoked=False)
        return [{"kid": None, "alg": entry.alg, "thumbprint": None, **common, **valid}]
    return [
        {
            "kid": each.key.kid,
            "alg": each.key.alg,
            "thumbprint": each.key.thumbprint,
            **common,
            **_validity(each.not_before, each.not_after, now, is_revoked=each.revoked or each.key in revoked),
        }
        for each in entry.trusted(_keys(entry, path, name))  # with what the keys say about themselves
    ]


def _validity(starts: float, ends: float, now: float, *, is_revoked: bool) -> dict[str, Any]:
    state = "revoked" if is_revoked else "not yet valid" if now < starts else "expired" if now >= ends else "trusted"
    return {"not_before": written(starts if starts > 0 else None), "not_after": written(ends), "state": state}


def _patterns(entry: TrustEntry) -> list[str]:
    return list(entry.origins.patterns) if isinstance(entry.origins, Origins) else ["*"]


def _keys(entry: TrustEntry, path: Path, name: str) -> tuple[PublicKey, ...]:
    """The keys of an entry that are here, in the trust file or in the file that it names."""
    if entry.file is None:
        return entry.keys
    return keys_of_file(entry, path.parent / entry.file, f"{name}, line {entry.line}").keys


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    starts, ends = row["not_before"], row["not_after"]
    valid = " ".join(filter(None, (f"from {starts}" if starts else "", f"until {ends}" if ends else ""))) or "always"
    return (
        printable("(of the set)" if row["kid"] is None else row["kid"]),
        row["alg"] or "",
        printable(row["name"] or ""),
        printable(", ".join(row["origins"])),
        row["signer"] or "",
        valid,
        row["state"],
        printable(row["url"] or row["file"] or "here"),
    )


_ACTIONS: Final = {"add": _add, "remove": _remove, "list": _list, "revoke": _revoke}
