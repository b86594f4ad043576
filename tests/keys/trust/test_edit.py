"""Editing a trust file: what people wrote in it stays, and nothing else than what was meant is written."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from a2a_trust.base.files.watched import stamp_of_path
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust.edit import (
    EMPTY,
    Members,
    entry_of_key,
    entry_of_url,
    update_trust_file,
    with_entries,
    with_revoked,
    without_entry,
)
from a2a_trust.keys.trust.file import RevokedKey, TrustDocument, TrustEntry, read_trust
from a2a_trust.keys.trust.origins import Origins
from a2a_trust.keys.trust.store import SigningTool
from tests.tables import walk

KEYS = [generate_signer("EdDSA", kid=f"key-{number}").public_key for number in range(6)]
PEM = KEYS[0].to_pem().decode()
X = KEYS[1].jwk["x"]
MEMBERS = f'kty = "OKP"\ncrv = "Ed25519"\nx = "{X}"'


@dataclass(frozen=True)
class Block:
    """Lines of a trust file; ``comments`` are those that stand among them, and go with them."""

    text: str
    is_entry: bool = False
    comments: int = 0


#: Entries as people write them, also with what looks like a table, a comment or the end of a text and is none.
ENTRIES = [
    '[[trust]]\norigins = ["a.example"]\njwks_url = "https://a.example/k"',
    "[[ 'trust' ]]  # @\norigins = [\n  # @ [[trust]]\n  'a.example', # @ '''\n  \"*.b.example\",\n]\n"
    "\"jwks_url\" = 'https://a.example/k'",
    f'[[trust]]\nkid = """\nthe [[trust]]\n# key\n"""\n\norigins = ["a.example"]\n# @ """\npem = \'\'\'\n{PEM}\'\'\'',
    f'[[trust]]\norigins = ["a.example"] # @\n[trust.jwk]\n{MEMBERS}\nkid = "\'\'\'"',
    f"[[trust]]\norigins = ['a.example']\npem = '''{PEM}'''\nkid = '''ann\n\n# no comment'''",
    "\t[[\ttrust]]\n\torigins = ['a.example'] \n\tkeys = 'a\"\"\"b.jwks' # @\n\tnot_after = 2027-01-01 12:00:00Z",
    f'[[trust]]\n"origins" = ["a.example"]\njwk = {{ {", ".join(MEMBERS.splitlines())}, kid = "a # \\"]" }}',
]  # fmt: skip
OTHERS = [
    "# @",
    '# @ """ not the beginning of a text',
    "# @ [[trust]]",
    "",
    '[[policy]]  # @\norigins = ["a.example"]\nparties = ["MMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMM"] # @',
    '[[revoked]]\nkid = "gone" # @\nreason = """\n[[trust]]\n# no comment\n"""',
    "[[revoked]]\nkid = '''['''\n# @\nat = 2026-01-01",
]


@st.composite
def files(draw: st.DrawFn) -> tuple[str, list[Block]]:
    """A trust file, and the blocks that it was made of; every comment has a number of its own."""
    number = 0
    blocks = [Block("version = 1")]
    for text in draw(st.lists(st.sampled_from([*ENTRIES, *OTHERS]), max_size=7)):
        numbered = []
        for part in re.split(r"(# @)", text):
            number += part == "# @"
            numbered.append(f"# @{number}." if part == "# @" else part)
        blocks.append(Block("".join(numbered), is_entry=text in ENTRIES, comments=text.count("# @")))
    text = "\n".join(block.text for block in blocks) + draw(st.sampled_from(["\n", "\n\n", "\n# @0.\n"]))
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"]))), blocks


def read(text: str) -> TrustDocument:
    return read_trust(text.encode(), "trust.toml")


def says(document: TrustDocument) -> tuple[object, ...]:
    """What a document says, wherever that stands in the file."""
    return [as_much(entry) for entry in document.entries], document.policies, document.revoked


def as_much(entry: TrustEntry) -> tuple[object, ...]:
    return tuple(getattr(entry, name) for name in TrustEntry.__slots__ if name != "line")


def comments(text: str) -> list[str]:
    return re.findall(r"# @\d+\.", text)


hosts = st.lists(st.sampled_from(["a.example", "*.b.example", "xn--e1afmkfd.example", "[::1]"]), min_size=1, max_size=3)
moments = st.none() | st.integers(0, 4_000_000_000)
keys = st.sampled_from(KEYS)


@st.composite
def added(draw: st.DrawFn) -> str:
    members = Members(origins=draw(hosts), signer=draw(st.none() | st.sampled_from(SigningTool)))
    starts, ends = draw(moments), draw(moments)
    if starts is not None and ends is not None:
        assume(starts < ends)
    members["not_before"], members["not_after"] = starts, ends
    if draw(st.booleans()):
        return entry_of_url("https://keys.example/jwks.json?a=b&c=%22", **members)
    return entry_of_key(draw(keys), **members)


@given(files())
def test_every_entry_is_found_on_its_line(made: tuple[str, list[Block]]) -> None:
    text, blocks = made
    document = read(text)
    assert len(document.entries) == sum(block.is_entry for block in blocks)
    lines = text.split("\n")
    at, expected = 1, []
    for block in blocks:
        expected += [at] * block.is_entry
        at += block.text.count("\n") + 1
    assert [entry.line for entry in document.entries] == expected
    assert all(re.match(r"\s*\[\[\s*'?trust", lines[entry.line - 1]) for entry in document.entries)


@given(files(), st.lists(added(), min_size=1, max_size=3))
def test_what_was_added_and_removed_again_leaves_the_same_bytes(
    made: tuple[str, list[Block]], entries: list[str]
) -> None:
    text, before = made[0], read(made[0])
    longer = with_entries(text, entries)
    assert longer.startswith(text)
    after = read(longer)
    new = read(with_entries(EMPTY, entries))
    assert says(after)[0] == [*map(as_much, before.entries), *map(as_much, new.entries)]
    assert says(after)[1:] == says(before)[1:]
    for _ in entries:
        longer = without_entry(longer, len(read(longer).entries) - 1)
    assert longer.encode() == text.encode()


@given(files(), st.data())
def test_removing_an_entry_leaves_the_others_and_every_comment_outside_of_it(
    made: tuple[str, list[Block]], data: st.DataObject
) -> None:
    text, blocks = made
    before = read(text)
    assume(before.entries)
    index = data.draw(st.integers(0, len(before.entries) - 1))
    shorter = without_entry(text, index)
    after = read(shorter)
    entries = [*map(as_much, before.entries)]
    assert says(after) == ([*entries[:index], *entries[index + 1 :]], *says(before)[1:])
    gone = [block for block in blocks if block.is_entry][index]
    assert comments(shorter) == [each for each in comments(text) if each not in comments(gone.text)]
    rest = iter(text.split("\n"))
    assert all(line in rest for line in shorter.split("\n"))  # the same lines in the same order


@given(files(), st.text(min_size=1, max_size=20), st.text(max_size=20), st.integers(0, 4_000_000_000))
def test_revoking_adds_to_the_end_whatever_the_key_is_called(
    made: tuple[str, list[Block]], kid: str, reason: str, at: int
) -> None:
    assume(not re.search("[\ud800-\udfff]", kid + reason))
    longer = with_revoked(made[0], RevokedKey(kid=kid, at=at, reason=reason))
    assert longer.startswith(made[0])
    last = read(longer).revoked[-1]
    assert (last.kid, last.reason, last.at) == (kid, reason, at)
    assert says(read(longer))[:2] == says(read(made[0]))[:2]


def test_a_revocation_says_which_key_and_where() -> None:
    key = RevokedKey(kid="a", thumbprint=KEYS[0].thumbprint, at=5, reason="lost")
    scoped = RevokedKey(kid="b", entry="https://a.example/k")
    text = with_entries(EMPTY, [entry_of_url("https://a.example/k", origins=["a.example"])])
    assert read(with_revoked(with_revoked(text, key), scoped)).revoked == (key, scoped)


def test_a_last_line_without_an_end_gets_one() -> None:
    longer = with_entries("version = 1 # end", [entry_of_url("https://a.example/k", origins=["a.example"])])
    assert longer.startswith("version = 1 # end\n\n[[trust]]\n")
    assert without_entry(longer, 0) == "version = 1 # end\n"


def test_line_ends_of_windows_are_kept_and_used() -> None:
    longer = with_revoked("version = 1\r\n", RevokedKey(kid="a", at=0, reason="b"))
    assert longer.count("\n") == longer.count("\r\n") == 6


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_a_name_that_is_no_text_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not well-formed Unicode"):
        with_revoked(EMPTY, RevokedKey(kid=text))


def test_an_entry_holds_what_was_said_of_the_key() -> None:
    members = Members(origins=["a.example"], name="bank", signer=SigningTool.WHOLE, not_before=10.9, not_after=1e9)
    (entry,) = read(with_entries(EMPTY, [entry_of_key(KEYS[2], **members)])).entries
    assert (entry.keys, entry.origins) == ((KEYS[2],), Origins("a.example"))
    assert (entry.name, entry.signer) == ("bank", SigningTool.WHOLE)
    assert (entry.not_before, entry.not_after, entry.line) == (10, 1e9, 4)
    (plain,) = read(with_entries(EMPTY, [entry_of_key(KEYS[2], origins=["a.example"])])).entries
    assert (plain.name, plain.signer) == (None, None)


@walk("alg", ["ES256", "ES384", "ES512", "EdDSA", "RS256", "PS512"])
def test_keys_of_every_kind_come_back_as_they_went_in(alg: str) -> None:
    key = generate_signer(alg, kid='a"\\ #]é').public_key
    (entry,) = read(with_entries(EMPTY, [entry_of_key(key, origins=["a.example"])])).entries
    assert entry.keys == (key,)


# The file


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "trust.toml"
    path.write_text(EMPTY)
    return path


def test_a_change_replaces_the_file_and_keeps_its_rights(path: Path) -> None:
    path.chmod(0o640)
    before = path.stat()
    after = update_trust_file(path, lambda text, _: with_revoked(text, RevokedKey(kid="a")))
    assert [key.kid for key in after.revoked] == ["a"]
    assert read_trust(path.read_bytes(), "trust.toml") == TrustDocument(
        name="trust.toml", entries=(), policies=(), revoked=after.revoked
    )
    assert path.stat().st_mode == before.st_mode
    assert path.stat().st_ino != before.st_ino
    assert names(path.parent) == ["trust.toml"]


def test_a_link_to_the_file_stays_one(path: Path) -> None:
    link = path.with_name("link.toml")
    link.symlink_to(path)
    update_trust_file(link, lambda text, _: with_revoked(text, RevokedKey(kid="a")))
    assert link.is_symlink()
    assert 'kid = "a"' in path.read_text()


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ("version = 2\n", "line 1: version: "),
        (f"{EMPTY}[[trust]]\norigins = ['a.example']\n", r"line 3: trust\[0\]: write exactly one of"),
        (f"{EMPTY}[[revoked]]\n", r"line 3: revoked\[0\]: write the kid"),
        (f"{EMPTY}[[revoked]\n", "in TOML: .* line 3"),
    ],
)
def test_what_would_be_no_trust_file_is_not_written(path: Path, changed: str, line: str) -> None:
    before, status = path.read_bytes(), stamp_of_path(path)
    with pytest.raises(ConfigurationError, match=line):
        update_trust_file(path, lambda *_: changed)
    assert (path.read_bytes(), stamp_of_path(path)) == (before, status)
    assert names(path.parent) == ["trust.toml"]


def test_a_file_that_is_no_trust_file_is_not_changed(path: Path) -> None:
    path.write_bytes(b"version = 1\n[[trust]]\norigins = 7\njwks_url = 'https://a.example/k'\n")
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match=r"trust\.toml, line 3: trust\[0\]\.origins: name hosts"):
        update_trust_file(path, lambda text, _: with_revoked(text, RevokedKey(kid="a")))
    assert path.read_bytes() == before


def test_a_change_that_changes_nothing_writes_nothing(path: Path) -> None:
    before = stamp_of_path(path)
    update_trust_file(path, lambda text, _: text)
    assert stamp_of_path(path) == before


def test_a_change_that_fails_leaves_the_file(path: Path) -> None:
    def fail(text: str, before: TrustDocument) -> str:
        raise ConfigurationError("no")

    before = stamp_of_path(path)
    with pytest.raises(ConfigurationError, match="no"):
        update_trust_file(path, fail)
    assert stamp_of_path(path) == before


def test_changes_at_once_are_all_there_in_the_end(path: Path) -> None:
    kids = [f"kid-{number}" for number in range(24)]
    with ThreadPoolExecutor(8) as several:
        list(
            several.map(
                lambda kid: update_trust_file(path, lambda text, _: with_revoked(text, RevokedKey(kid=kid))), kids
            )
        )
    assert sorted(str(key.kid) for key in read_trust(path.read_bytes(), "trust.toml").revoked) == sorted(kids)


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        update_trust_file(tmp_path / "none.toml", lambda text, _: text)
    assert names(tmp_path) == []
