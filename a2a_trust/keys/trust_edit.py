"""Changes of a trust file that leave every other line as somebody wrote it, comments included.

What is added stands at the end; what is removed are the lines of one entry. The outcome is read again before it is
written, and has to be what was meant: else nothing is written.

This is ours because tomlkit 0.15 moves a ``[[trust]]`` that stands after another table, and removes the comments above
the next entry together with an entry.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Required, TypedDict, Unpack

from a2a_trust.dates import date_of
from a2a_trust.errors import ConfigurationError
from a2a_trust.files.atomic import locked, write_atomically
from a2a_trust.files.rights import check_writers
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.trust import SigningTool
from a2a_trust.keys.trust_file import RevokedKey, TrustDocument, TrustEntry, comments, places, read_trust

__all__ = [
    "EMPTY",
    "Members",
    "entry_of_key",
    "entry_of_url",
    "make_trust_file",
    "update_trust_file",
    "with_entries",
    "with_revoked",
    "without_entries",
    "without_entry",
]

EMPTY = "# Whom we trust for which agents. Edit it by hand, or with: a2a-sign trust\nversion = 1\n"


def make_trust_file(path: Path, change: Callable[[str, TrustDocument], str]) -> TrustDocument:
    """What a new file says, whose text is what ``change`` makes of one that trusts nobody.

    Errors as of ``update_trust_file``; FileExistsError: change that file.
    """
    data, after = _changed(EMPTY.encode(), change, path)
    write_atomically(path, data, mode=0o644, replace=False)
    return after


def update_trust_file(path: Path, change: Callable[[str, TrustDocument], str]) -> TrustDocument:
    """What the file says after the change of its text; others who change it wait so long.

    Where ``change`` raises, or gives what is no trust file, the file stays as it was. ConfigurationError. OSError: it
    cannot be written, or another program changed it meanwhile without the lock.
    """
    with locked(path) as file:
        check_writers(os.fstat(file.opened.fileno()), path, "say whom to trust")
        data = file.opened.read()
        changed, after = _changed(data, change, path)
        if changed != data:
            file.prepare(changed)
            file.commit()
    return after


def _changed(data: bytes, change: Callable[[str, TrustDocument], str], path: Path) -> tuple[bytes, TrustDocument]:
    """The text after the change, and what it says."""
    before = read_trust(data, str(path))
    changed = change(data.decode("utf-8"), before).encode("utf-8")
    return changed, read_trust(changed, str(path))


class Members(TypedDict, total=False):
    """How far the keys of an entry are trusted; moments in seconds since the epoch."""

    origins: Required[Sequence[str]]
    name: str | None
    signer: SigningTool | None
    alg: str | None
    not_before: float | None
    not_after: float | None


def entry_of_key(key: PublicKey, **members: Unpack[Members]) -> str:
    """A ``[[trust]]`` with that key in it, which says itself which algorithm it is for."""
    jwk = ", ".join(f"{name} = {_written(value)}" for name, value in key.to_jwk().items())
    return _entry(f"jwk = {{ {jwk} }}", members)


def entry_of_url(url: str, **members: Unpack[Members]) -> str:
    """A ``[[trust]]`` for the keys of that key set."""
    return _entry(f"jwks_url = {_written(url)}", members)


def _entry(source: str, members: Members) -> str:
    texts = (("name", members.get("name")), ("signer", members.get("signer")), ("alg", members.get("alg")))
    lines = ["[[trust]]", *[f"{name} = {_written(value)}" for name, value in texts if value is not None]]
    lines += [f"origins = {_written(list(members['origins']))}", source]
    times = (("not_before", members.get("not_before")), ("not_after", members.get("not_after")))
    lines += [f"{name} = {date_of(value)}" for name, value in times if value is not None]
    return "\n".join(lines)


def with_entries(text: str, entries: Iterable[str]) -> str:
    """The text with these tables at its end."""
    newline = "\r\n" if "\r\n" in text else "\n"
    ended = text if not text or text.endswith("\n") else f"{text}{newline}"
    return ended + "".join(f"{newline}{entry.replace(chr(10), newline)}{newline}" for entry in entries)


def with_revoked(text: str, key: RevokedKey) -> str:
    """The text with one more ``[[revoked]]`` at its end."""
    members = (("kid", key.kid), ("thumbprint", key.thumbprint), ("entry", key.entry), ("reason", key.reason or None))
    lines = ["[[revoked]]", *[f"{name} = {_written(value)}" for name, value in members if value is not None]]
    if key.at is not None:
        lines.append(f"at = {date_of(key.at)}")
    return with_entries(text, ["\n".join(lines)])


def without_entries(text: str, document: TrustDocument, gone: Collection[TrustEntry]) -> str:
    """The text of this document without these entries of it; ConfigurationError when it names them elsewhere."""
    kept = [entry for entry in document.entries if entry not in gone]
    _check_unreferenced(text, document, gone, kept)
    changed = text
    for index in reversed(range(len(document.entries))):
        if document.entries[index] in gone:
            changed = without_entry(changed, index)
    if not _has_entries(changed, kept):  # pragma: no cover  the lines of an entry are known; if not, all stays
        raise ConfigurationError(f"{document.name}: the lines of this entry cannot be told; edit the file by hand")
    return changed


def _check_unreferenced(
    text: str, document: TrustDocument, gone: Collection[TrustEntry], kept: Collection[TrustEntry]
) -> None:
    """Refuse to remove an entry that a policy or a revocation names: without it they would mean nothing."""

    def is_lost(name: str) -> bool:
        return any(each.is_called(name) for each in gone) and not any(each.is_called(name) for each in kept)

    lines = dict(reversed(list(places(text))))
    named = [
        (("policy", index, "parties"), party)
        for index, each in enumerate(document.policies)
        for party in sorted(each.policy.parties)
    ] + [
        (("revoked", index, "entry"), key.entry) for index, key in enumerate(document.revoked) if key.entry is not None
    ]
    lost = [f"line {lines[place]} ({place[0]}.{place[2]})" for place, name in named if is_lost(name)]
    if lost:
        raise ConfigurationError(
            f"{document.name}: this entry is still named on {', '.join(dict.fromkeys(lost))}; change that first"
        )


def _has_entries(text: str, entries: Sequence[TrustEntry]) -> bool:
    """Whether this is the text of a trust file with these entries and no others."""
    try:
        found = read_trust(text.encode(), "").entries
    except ConfigurationError:  # pragma: no cover
        return False
    return len(found) == len(entries) and all(map(TrustEntry.says_as_much_as, found, entries))


def without_entry(text: str, index: int) -> str:
    """The text without the lines of the ``[[trust]]`` of that number, from 0, and what is commented within them.

    Comments above it and below it stay.
    """
    lines = text.split("\n")
    headers = [(place, number) for place, number in places(text) if not place[2]]
    begins = next(number for place, number in headers if place == ("trust", index, ""))
    ends = next((number for _, number in headers if number > begins), len(lines) + 1) - 1
    # What stands between its last member and the next table may be about that one.
    commented = set(comments(text))
    while not (last := lines[ends - 1].strip()) or (last.startswith("#") and ends in commented):
        ends -= 1
    if begins > 1 and not lines[begins - 2].strip():
        begins -= 1  # and the blank line that stood before it
    return "\n".join(lines[: begins - 1] + lines[ends:])


def _written(value: object) -> str:
    """A text, or a list of texts, as TOML has it."""
    written = json.dumps(value, ensure_ascii=False)
    if not written.isascii() and any("\ud800" <= char <= "\udfff" for char in written):
        raise ConfigurationError("a trust file holds text that is well-formed in UTF-8; this is not")
    return written.replace("\x7f", "\\u007f")  # JSON lets it stand, TOML does not
