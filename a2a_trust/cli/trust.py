"""``a2a-sign trust``: show and edit a trust file. Comments, order and layout of the file stay as they are."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from a2a_trust.cli.moments import moment, rfc3339
from a2a_trust.cli.progress import note_targets
from a2a_trust.cli.report import mark, printable, put, put_table, warn
from a2a_trust.cli.sources import (
    algorithm_option,
    keys_for_alg,
    naming,
    needing_client,
    public_key,
    public_keys,
    read_input,
    trust_file_command,
)
from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys.jwk import KeySet, PublicKey, read_jwks
from a2a_trust.keys.rotation import public_keys_of_ring
from a2a_trust.keys.trust.edit import (
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
from a2a_trust.keys.trust.file import RevokedKey, TrustDocument, TrustEntry, keys_of_file, load_trust, read_trust
from a2a_trust.keys.trust.origins import Origins, host_of, overlap
from a2a_trust.keys.trust.policy import is_thumbprint
from a2a_trust.keys.trust.store import SigningTool


def run(options: argparse.Namespace) -> dict[str, Any]:
    note_targets(options, [options.file])
    return {"file": options.file, **_ACTIONS[options.action](options)}


def _add(options: argparse.Namespace) -> dict[str, Any]:
    now = time.time()
    members = _members(options, now)
    given = _given_keys(options)
    entries = [entry_of_key(key, **members) for key in given.keys]
    if options.jwks_url is not None:
        members["alg"] = None if options.alg is None else algorithm_option(options.alg)
        entries.append(entry_of_url(options.jwks_url, **members))
    path, added = Path(options.file), list[str]()

    def add(text: str, before: TrustDocument) -> str:
        for toml, entry in zip(entries, new.entries, strict=True):
            if entry in before.entries:
                continue
            _check_new(entry, before, path)
            text = with_entries(text, [toml])
            added.append(entry.url or entry.keys[0].kid)
        # Keys that the set revokes and that get no entry, because something else in their JWK is wrong.
        for thumbprint in sorted(given.revoked - {key.thumbprint for key in given.keys}):
            gone = RevokedKey(thumbprint=thumbprint, at=now, reason=f"revoked in {options.jwks}")
            if before.lacks(gone):
                text = with_revoked(text, gone)
                added.append(thumbprint)
        return text

    try:
        new = read_trust(with_entries(EMPTY, entries).encode(), "the new entries")
    except ConfigurationError as error:
        raise _of_option(error) from None
    is_new = not path.exists()
    try:
        after = make_trust_file(path, add) if is_new else update_trust_file(path, add)
    except FileExistsError:  # another process has just made the file
        added.clear()
        after = update_trust_file(path, add)
    _warn_of_dead(given.keys, [key for key in _revoked_keys(after, path) if key.kid in added], path, now)
    if not options.json:
        word = "made" if is_new else "changed" if added else "unchanged"
        put(f"{mark(word, 'green', sys.stdout)} {printable(options.file)}")
        if not added:
            put("  already there; nothing was changed")
        for name in added:
            state = "is revoked" if name in given.revoked else f"is trusted for {', '.join(members['origins'])}"
            put(f"  {printable(name)} {printable(state)}")
    return {"added": added, "origins": members["origins"]}


def _members(options: argparse.Namespace, now: float) -> Members:
    members = Members(
        origins=list(dict.fromkeys(map(_origin, options.origin))),
        name=options.name,
        signer=None if options.signer is None else SigningTool(options.signer),
    )
    if options.not_before is not None:
        members["not_before"] = moment(options.not_before, now, "--not-before", may_have_passed=True)
    if options.not_after is not None:
        members["not_after"] = moment(options.not_after, now, "--not-after")
    return members


def _warn_of_dead(given: Iterable[PublicKey], revoked: Iterable[PublicKey], path: Path, now: float) -> None:
    """Warn of keys that verify nothing now: their JWK says so, or the trust file revokes them."""
    for key in given:
        if not key.is_valid_at(now):
            warn(
                f"{key.kid}: the key is revoked or not valid now, according to nbf, exp or revoked in its JWK; its "
                "signatures are rejected now"
            )
    for key in revoked:
        if not key.revoked:
            warn(f"{key.kid}: the key was added, but {path} revokes it; its signatures are rejected")


def _of_option(error: ConfigurationError) -> ConfigurationError:
    """The reader's error, with the option in place of the line and member of the text that was built from it."""
    found = re.fullmatch(r".*?, line [0-9]+: trust\[[0-9]+\]\.(\w+): (.*)", str(error), re.DOTALL)
    if found is None:
        return error
    option = {"origins": "origin", "jwk": "public-key"}.get(found[1], found[1].replace("_", "-"))
    return ConfigurationError(f"--{option}: {found[2].replace('not_before', '--not-before')}")


def _check_new(new: TrustEntry, before: TrustDocument, path: Path) -> None:
    """ConfigurationError for a key or key set that an entry with other members trusts for the same hosts already.

    Verifiers would apply the laxer of the two entries.
    """
    thumbprints = {key.thumbprint for key in new.keys}
    for entry in before.entries:
        known = {key.thumbprint for key in _keys(entry, path).keys}
        is_same = entry.url == new.url if new.url is not None else bool(known & thumbprints)
        if is_same and overlap(entry.origins, new.origins):
            name = new.url or new.keys[0].kid
            raise ConfigurationError(
                f"{path}, line {entry.line}: this entry trusts {name!a} for the same hosts already, with other "
                "settings. Remove that entry first: a2a-sign trust remove "
                f"{shlex.quote(str(path))} {shlex.quote(entry.file or name)}"
            )


def _given_keys(options: argparse.Namespace) -> KeySet:
    if options.kid is not None and options.public_key is None:
        raise ConfigurationError("--kid works only with --public-key; the keys of a JWK Set have their own names")
    if options.public_key is not None:
        given = [public_key(options.public_key, options.kid)]
        return KeySet(keys=tuple(keys_for_alg(given, options.alg, options.public_key)))
    if options.jwks is None:
        return KeySet(keys=())
    found = public_keys(options.jwks)
    keys = keys_for_alg(found.keys, options.alg, options.jwks)
    if options.name is not None and len(keys) > 1:
        raise ConfigurationError(
            f"--name: {options.jwks} has {len(keys)} keys, and --jwks makes an entry for each key. To give one name to "
            f'all of them, use --jwks-url, or write one entry with keys = "{options.jwks}" by hand'
        )
    return replace(found, keys=tuple(keys))


def _origin(text: str) -> str:
    """The host of a URL; a host or pattern unchanged."""
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

    with _existing(options.file) as path:
        update_trust_file(path, remove)
    if not options.json:
        put(f"{mark('removed', 'green', sys.stdout)} {printable(options.what)}")
        for entry in gone:
            put(f"  it was trusted for {printable(', '.join(_patterns(entry)))}")
    return {"removed": options.what, "entries": len(gone)}


def _named_entries(document: TrustDocument, options: argparse.Namespace) -> list[TrustEntry]:
    """The entries that the argument names; ConfigurationError if it names no entry."""
    found = [
        entry
        for entry in document.entries
        if options.what in (entry.name, entry.url, entry.file, *(key.kid for key in entry.keys))
    ]
    if found:
        return found
    for entry in document.entries:
        if options.what in [key.kid for key in _keys(entry, Path(options.file)).keys]:
            raise ConfigurationError(
                f"{ascii(options.what)[:128]} is a key in {entry.file}, which line {entry.line} names: remove the key "
                f"from that file, or remove the whole file: a2a-sign trust remove {shlex.quote(options.file)} "
                f"{shlex.quote(str(entry.file))}"
            )
    raise ConfigurationError(
        f"no entry has the kid, name, URL or file {ascii(options.what)[:128]}; to see all: a2a-sign trust list "
        f"{shlex.quote(options.file)}"
    )


def _revoke(options: argparse.Namespace) -> dict[str, Any]:
    now, path = time.time(), Path(options.file)
    sets = _leaked_keys(options)
    revoked, losses = dict[RevokedKey, bool](), list[dict[str, Any]]()

    def revoke(text: str, before: TrustDocument) -> str:
        named = [RevokedKey(thumbprint=each) for each in sets] if sets else [_named_key(options, before, path)]
        keys = [replace(key, at=now, reason=options.reason) for key in named]
        revoked.clear()
        revoked.update((key, not before.lacks(key)) for key in keys)
        losses[:] = _losses(before, path, {key.thumbprint for key in keys if key.entry is None}, now)
        without = [row["host"] for row in losses if not row["left"]]
        if sets and without and not options.yes:
            raise ConfigurationError(
                f"no key would be left for {', '.join(without)}; nothing was changed. First add the new keys (a2a-sign "
                "trust add), or revoke all the same with --yes"
            )
        for key in keys:
            text = text if revoked[key] else with_revoked(text, key)
        return text

    with _existing(options.file):
        after = update_trust_file(path, revoke)
    listed, _ = _listed_keys(after.entries, path)
    for key, was_revoked in revoked.items():
        mistake = key.mistake(listed)
        if mistake is not None:
            raise ConfigurationError(
                f"{path}: the revocation was written, but {mistake}. Revoke that key: a2a-sign trust revoke "
                f"{shlex.quote(options.file)} {shlex.quote(key.kid or '')}; for a key that is not listed, leave out KID"
            )
        if options.json:
            continue
        put(f"{mark('revoked', 'green', sys.stdout)} {printable(key.kid or key.thumbprint)}")
        if was_revoked:
            put("  it was revoked before; nothing was changed")
        elif key.entry is not None:
            scope = "the kid" if key.thumbprint is None else f"the key {key.thumbprint}, under every kid,"
            put(f"  {scope} is revoked in the entry {printable(key.entry)} only; --thumbprint revokes a key everywhere")
    for row in losses if not options.json else ():
        put(f"  {printable(row['host'])} loses {printable(', '.join(row['loses']))}; {row['left'] or 'no key'} left")
    keys = [
        {"kid": key.kid, "thumbprint": key.thumbprint, "entry": key.entry, "was_revoked": was_revoked}
        for key, was_revoked in revoked.items()
    ]
    return {"keys": keys, "hosts": losses}


def _leaked_keys(options: argparse.Namespace) -> list[str]:
    """The thumbprints of the keys of --jwks or --ring; empty without these options."""
    if options.jwks is None and options.ring is None:
        return []
    if options.kid is not None or options.entry is not None or options.fetch:
        raise ConfigurationError("--jwks and --ring revoke each key everywhere; leave out KID, --entry and --fetch")
    if options.jwks is not None:
        found = public_keys(options.jwks)
        return sorted({key.thumbprint for key in found.keys} | found.revoked)
    with naming(options.ring):
        return sorted({key.thumbprint for key in public_keys_of_ring(read_input(options.ring))})


def _losses(document: TrustDocument, path: Path, gone: set[str | None], now: float) -> list[dict[str, Any]]:
    """The hosts that lose a valid key with these thumbprints: which keys, and how many keys and key sets are left."""
    listed, unread = _listed_keys(document.entries, path)
    for reason in unread:
        warn(f"the hosts of this file are not known: {reason}")
    files = {entry.file: KeySet(keys=()) for entry in document.entries if entry.file is not None}
    files |= {entry.file: _keys(entry, path) for entry, _ in listed if entry.file is not None}  # with what they revoke
    valid = [each for each in document.store(files, {}).keys if each.state(now) == "trusted"]
    losses = list[dict[str, Any]]()
    for host in dict.fromkeys(pattern for entry in document.entries for pattern in _patterns(entry)):
        keys = {each.key.thumbprint: each.key.kid for each in valid if each.origins.covers(host)}
        sets = sum(entry.url is not None and entry.origins.covers(host) for entry in document.entries)
        loses = [kid for thumbprint, kid in keys.items() if thumbprint in gone]
        if loses:
            losses.append({"host": host, "loses": loses, "left": len(keys) - len(loses) + sets})
    return losses


def _named_key(options: argparse.Namespace, document: TrustDocument, path: Path) -> RevokedKey:
    """The key that the arguments name, by thumbprint if that is known; ConfigurationError if they name no key."""
    if options.thumbprint is not None:
        return _key_of_thumbprint(options)
    kid, entry = options.kid, options.entry
    if kid is None:
        raise ConfigurationError("name the key: KID, or --thumbprint; or name many keys: --jwks, or --ring")
    called = [each for each in document.entries if entry is None or each.is_called(entry)]
    if entry is not None and not called:
        raise ConfigurationError(
            f"--entry: no entry of {path} has the name or jwks_url {ascii(entry)[:128]}; to see all: a2a-sign trust "
            f"list {shlex.quote(str(path))}"
        )
    thumbprints = _written_keys(called, path, kid)
    if len(thumbprints) > 1:
        raise ConfigurationError(
            f"{len(thumbprints)} keys of {path} have the kid {ascii(kid)[:128]}; name one of them with --thumbprint: "
            f"{', '.join(sorted(thumbprints))}"
        )
    for thumbprint in thumbprints:
        return RevokedKey(kid=kid if kid != thumbprint else None, thumbprint=thumbprint)
    if entry is None:
        raise ConfigurationError(
            f"no key in {path}, or in a key file that it names, has the kid {ascii(kid)[:128]}; to see all: a2a-sign "
            f"trust list {shlex.quote(str(path))}. For a key in a key set on the network add --entry NAME|URL. For a "
            "key that is not listed, give --thumbprint"
        )
    url = called[0].url
    if url is None:
        raise ConfigurationError(f"--entry: {ascii(entry)[:128]} of {path} has no key with the kid {ascii(kid)[:128]}")
    return RevokedKey(kid=kid, entry=entry, thumbprint=_fetched_thumbprint(url, kid) if options.fetch else None)


def _key_of_thumbprint(options: argparse.Namespace) -> RevokedKey:
    if not is_thumbprint(options.thumbprint):
        raise ConfigurationError(
            f"--thumbprint {ascii(options.thumbprint)[:66]}: not an RFC 7638 thumbprint; write its 43 letters, digits, "
            "- and _"
        )
    if options.entry is not None or options.fetch:
        raise ConfigurationError("--thumbprint revokes the key in every entry; leave out --entry and --fetch")
    return RevokedKey(kid=options.kid, thumbprint=options.thumbprint)


def _written_keys(entries: Iterable[TrustEntry], path: Path, kid: str) -> set[str]:
    """The thumbprints of the keys with that kid in these entries and the key files that they name.

    An unreadable key file is only a warning if the key is found elsewhere: revoking must not wait for a repair.
    """
    listed, unread = _listed_keys(entries, path)
    found = {key.thumbprint for _, keys in listed for key in keys if kid in (key.kid, key.thumbprint)}
    if unread and not found:
        raise ConfigurationError(f"{unread[0]}. To revoke the key without that file, name the key with --thumbprint")
    for reason in unread:
        warn(f"this file could not be searched for the kid: {reason}")
    return found


def _listed_keys(
    entries: Iterable[TrustEntry], path: Path
) -> tuple[list[tuple[TrustEntry, tuple[PublicKey, ...]]], list[ConfigurationError]]:
    """The keys of each entry in the trust file and its key files, and the errors of unreadable key files."""
    listed, unread = list[tuple[TrustEntry, tuple[PublicKey, ...]]](), list[ConfigurationError]()
    for entry in entries:
        try:
            listed.append((entry, _keys(entry, path).keys))
        except ConfigurationError as error:
            unread.append(error)
    return listed, unread


def _fetched_thumbprint(url: str, kid: str) -> str:
    """The thumbprint of the key with that kid in the key set that the URL serves now."""
    import asyncio  # slow, and only needed for the network

    with needing_client("to fetch a key set (--fetch)"):
        from a2a_trust.base.net.fetcher import Fetcher
    fetched = asyncio.run(Fetcher().fetch(url, configured=True))
    found = {key.thumbprint for key in read_jwks(fetched.body).keys if key.kid == kid}
    if len(found) != 1:
        number = "no key" if not found else f"{len(found)} keys"
        raise ConfigurationError(
            f"--fetch: the key set at {url} has {number} with the kid {ascii(kid)[:128]} now; leave out --fetch to "
            "revoke the kid in this entry, or give --thumbprint"
        )
    return found.pop()


@contextmanager
def _existing(name: str) -> Iterator[Path]:
    """In the block, the error for a missing trust file says how to make one."""
    try:
        yield Path(name)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no trust file at {name}; to make one: {trust_file_command(name)}") from None


_HEADINGS: Final = ("KID", "ALG", "NAME", "TRUSTED FOR", "SIGNER", "VALID", "STATE", "KEY FROM")


def _list(options: argparse.Namespace) -> dict[str, Any]:
    with _existing(options.file) as path:
        document = load_trust(path)
    now, revoked = time.time(), _revoked_keys(document, path)
    entries = [row for entry in document.entries for row in _rows(entry, path, revoked=revoked, now=now)]
    if not options.json:
        put_table(_HEADINGS, [_cells(row) for row in entries])
        for each in document.policies:
            hosts, parties = ", ".join(each.origins.patterns), sorted(each.policy.parties)
            needed = "all" if each.policy.count == len(parties) else each.policy.count
            put(f"policy: cards of {printable(hosts)} need signatures by {needed} of {printable(', '.join(parties))}")
        for key in document.revoked:
            since = "" if key.at is None else f" since {rfc3339(key.at)}"
            where = "" if key.entry is None else f" in {key.entry}"
            name = key.kid or key.thumbprint
            put(f"revoked: {printable(f'{name}{where}')}{since}{f': {printable(key.reason)}' if key.reason else ''}")
    return {
        "entries": entries,
        "policies": [
            {"origins": list(each.origins.patterns), "parties": sorted(each.policy.parties), "count": each.policy.count}
            for each in document.policies
        ],
        "revoked": [{**asdict(key), "at": rfc3339(key.at)} for key in document.revoked],
    }


def _revoked_keys(document: TrustDocument, path: Path) -> frozenset[PublicKey]:
    """The keys in the trust file and its key files that are revoked now."""
    files = {entry.file: _keys(entry, path) for entry in document.entries if entry.file is not None}
    return frozenset(trusted.key for trusted in document.store(files, {}).keys if trusted.revoked)


def _rows(entry: TrustEntry, path: Path, *, revoked: frozenset[PublicKey], now: float) -> list[dict[str, Any]]:
    """A row for every key of the entry; one row for a key set on the network, which only ``verify`` fetches."""
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
        # A trusted key has the times of the entry and of the key's JWK together.
        for each in entry.trusted_keys(_keys(entry, path).keys)
    ]


def _validity(starts: float, ends: float, now: float, *, is_revoked: bool) -> dict[str, Any]:
    state = "revoked" if is_revoked else "not yet valid" if now < starts else "expired" if now >= ends else "trusted"
    return {"not_before": rfc3339(starts if starts > 0 else None), "not_after": rfc3339(ends), "state": state}


def _patterns(entry: TrustEntry) -> list[str]:
    return list(entry.origins.patterns) if isinstance(entry.origins, Origins) else ["*"]


def _keys(entry: TrustEntry, path: Path) -> KeySet:
    """The keys of an entry, from the trust file or from the key file that it names."""
    if entry.file is None:
        return KeySet(keys=entry.keys)
    return keys_of_file(entry, path.parent / entry.file, f"{path}, line {entry.line}")


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
