"""Changes of a trust file that leave all other lines as they are, comments included.

New entries go to the end; removing an entry removes its lines. The new text is read again before it is written, and
must say what was meant. Otherwise nothing is written.

tomlkit 0.15 is not used: it moves a ``[[trust]]`` that stands after another table, and with an entry it removes the
comments above the next one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Required, TypedDict, Unpack

from a2a_trust.base.dates import date_of
from a2a_trust.base.files.atomic import lock_file, write_atomically
from a2a_trust.base.files.watched import check_writers
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.trust.file import RevokedKey, TrustDocument, TrustEntry, comments, places, read_trust
from a2a_trust.keys.trust.store import SigningTool

EMPTY = "# Which keys we trust for which agents. Edit this file by hand, or with: a2a-sign trust\nversion = 1\n"


def make_trust_file(path: Path, change: Callable[[str, TrustDocument], str]) -> TrustDocument:
    """Make a trust file: ``change`` gets the text of an empty one. Returns the content of the new file.

    Errors as of ``update_trust_file``; FileExistsError: the file exists, so change it with ``update_trust_file``.
    """
    data, after = _apply(change, EMPTY.encode(), path)
    write_atomically(path, data, mode=0o644, replace=False)
    return after


def update_trust_file(path: Path, change: Callable[[str, TrustDocument], str]) -> TrustDocument:
    """Replace the text of a trust file by the result of ``change``, and return the new content. Other writers wait.

    If ``change`` raises, or its result is not a trust file, the file stays as it was. ConfigurationError: such a
    result. OSError: the file cannot be written, or another program changed it without the lock.
    """
    with lock_file(path) as file:
        check_writers(os.fstat(file.opened.fileno()), path, "change which keys are trusted")
        data = file.opened.read()
        changed, after = _apply(change, data, path)
        if changed != data:
            file.prepare(changed)
            file.commit()
    return after


def _apply(change: Callable[[str, TrustDocument], str], data: bytes, path: Path) -> tuple[bytes, TrustDocument]:
    """The text after the change, and its content."""
    before = read_trust(data, str(path))
    changed = change(data.decode("utf-8"), before).encode("utf-8")
    return changed, read_trust(changed, str(path))


class Members(TypedDict, total=False):
    """The limits of the trust in the keys of an entry; moments in seconds since the epoch."""

    origins: Required[Sequence[str]]
    name: str | None
    signer: SigningTool | None
    alg: str | None
    not_before: float | None
    not_after: float | None


def entry_of_key(key: PublicKey, **members: Unpack[Members]) -> str:
    jwk = ", ".join(f"{name} = {_to_toml(value)}" for name, value in key.to_jwk().items())
    return _entry(f"jwk = {{ {jwk} }}", members)


def entry_of_url(url: str, **members: Unpack[Members]) -> str:
    return _entry(f"jwks_url = {_to_toml(url)}", members)


def _entry(source: str, members: Members) -> str:
    texts = (("name", members.get("name")), ("signer", members.get("signer")), ("alg", members.get("alg")))
    lines = ["[[trust]]", *[f"{name} = {_to_toml(value)}" for name, value in texts if value is not None]]
    lines += [f"origins = {_to_toml(list(members['origins']))}", source]
    times = (("not_before", members.get("not_before")), ("not_after", members.get("not_after")))
    lines += [f"{name} = {date_of(value)}" for name, value in times if value is not None]
    return "\n".join(lines)


def with_entries(text: str, entries: Iterable[str]) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    ended = text if not text or text.endswith("\n") else f"{text}{newline}"
    return ended + "".join(f"{newline}{entry.replace(chr(10), newline)}{newline}" for entry in entries)


def with_revoked(text: str, key: RevokedKey) -> str:
    members = (("kid", key.kid), ("thumbprint", key.thumbprint), ("entry", key.entry), ("reason", key.reason or None))
    lines = ["[[revoked]]", *[f"{name} = {_to_toml(value)}" for name, value in members if value is not None]]
    if key.at is not None:
        lines.append(f"at = {date_of(key.at)}")
    return with_entries(text, ["\n".join(lines)])


def without_entries(text: str, document: TrustDocument, gone: Collection[TrustEntry]) -> str:
    """The text of the document without these entries; ConfigurationError if a policy or revocation names them."""
    kept = tuple(entry for entry in document.entries if entry not in gone)
    _check_unreferenced(text, document, gone, kept)
    changed = text
    for index in reversed(range(len(document.entries))):
        if document.entries[index] in gone:
            changed = without_entry(changed, index)
    with suppress(ConfigurationError):
        if read_trust(changed.encode(), "").entries == kept:
            return changed
    # The lines of an entry are known; if they were not, the file would stay as it is.
    text = f"{document.name}: the lines of this entry were not found; edit the file by hand"  # pragma: no cover
    raise ConfigurationError(text)  # pragma: no cover


def _check_unreferenced(
    text: str, document: TrustDocument, gone: Collection[TrustEntry], kept: Collection[TrustEntry]
) -> None:
    """ConfigurationError for an entry that a policy or a revocation names, which would have no meaning without it."""
    lines = dict(reversed(list(places(text))))
    named = [
        (("policy", index, "parties"), party)
        for index, each in enumerate(document.policies)
        for party in sorted(each.policy.parties)
    ]
    named += [(("revoked", index, "entry"), key.entry) for index, key in enumerate(document.revoked) if key.entry]
    lost = [
        f"line {lines[place]} ({place[0]}.{place[2]})"
        for place, name in named
        if any(each.is_called(name) for each in gone) and not any(each.is_called(name) for each in kept)
    ]
    if lost:
        raise ConfigurationError(
            f"{document.name}: this entry is still named on {', '.join(dict.fromkeys(lost))}; change these lines first"
        )


def without_entry(text: str, index: int) -> str:
    """The text without the lines of one ``[[trust]]`` entry and the comments within; ``index`` counts from 0.

    Comments above the entry and below it stay.
    """
    lines = text.split("\n")
    headers = [(place, number) for place, number in places(text) if not place[2]]
    begins = next(number for place, number in headers if place == ("trust", index, ""))
    ends = next((number for _, number in headers if number > begins), len(lines) + 1) - 1
    # Comments between its last member and the next table may be about the next table.
    commented = set(comments(text))
    while not (last := lines[ends - 1].strip()) or (last.startswith("#") and ends in commented):
        ends -= 1
    if begins > 1 and not lines[begins - 2].strip():
        begins -= 1  # and the blank line that stood before it
    return "\n".join(lines[: begins - 1] + lines[ends:])


def _to_toml(value: object) -> str:
    """A text, or a list of texts, in TOML."""
    written = json.dumps(value, ensure_ascii=False)
    if not written.isascii() and any("\ud800" <= char <= "\udfff" for char in written):
        raise ConfigurationError("a trust file cannot hold this text: it is not well-formed Unicode")
    return written.replace("\x7f", "\\u007f")  # JSON allows this character, TOML does not
