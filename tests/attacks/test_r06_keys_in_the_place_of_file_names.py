"""R6: a key stands where the name of a file belongs, and the log of the job shows it.

A variable of the pipeline has the key and not its file, an option is mistaken for another one, or the file with the key
is taken for a list of names. The table of places comes from the parser, so a new option cannot be forgotten.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from a2a_trust.auth import SqliteApiKeys
from a2a_trust.cli.arguments import COMMANDS, FILES
from a2a_trust.cli.main import _parser, main
from a2a_trust.keys import generate_signer
from a2a_trust.keys.files import private_key_bytes
from tests.tables import walk

#: Arguments whose values are no files, each with its reason: where it is public, or where it must not be a secret.
NO_FILES = {
    "alg": "a word",
    "allow": "the name of a rule",
    "at": "a moment",
    "credential": "a scheme and a file, with a test below",
    "entry": "the name of an entry, or its URL",
    "expires": "a time",
    "expires_within": "a time",
    "id": "the public ID of an API key",
    "ids": "public IDs of API keys",
    "jku": "a URL that cards publish",
    "interface_origin": "an origin",
    "jwks_url": "a URL",
    "keep": "a time",
    "kid": "the public name of a key, which may be its thumbprint",
    "lacking": "a scheme and a file, with a test below",
    "location": "a URL",
    "name": "the name of a party",
    "not_after": "a time",
    "not_before": "a time",
    "origin": "a host or a URL",
    "overlap": "a time",
    "owner": "the name of a caller",
    "prefix": "a word",
    "reason": "a note",
    "scope": "a scope",
    "thumbprint": "the public name of a key",
    "thumbprints": "public names of keys",
    "unused_for": "a time",
    "url": "the URL of a database, which has tests of its own",
    "urls": "URLs of agents, with a test below",
    "user": "the name of a caller",
    "what": "the public name of an entry, which may be a thumbprint",
}


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of all commands and actions."""
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in inner:
        for each in action.choices.values():
            yield from parsers(each)
    if not inner:
        yield parser


def takes_text(action: argparse.Action) -> bool:
    return action.nargs != 0 and action.choices is None


def is_filled(parser: argparse.ArgumentParser, action: argparse.Action, place: argparse.Action) -> bool:
    """Whether the command needs this argument, too."""
    groups = [group for group in parser._mutually_exclusive_groups if group.required]
    first_of_groups = [group._group_actions[0] for group in groups if place not in group._group_actions]
    return action is not place and (action.required or action in first_of_groups)


def command_line(parser: argparse.ArgumentParser, place: argparse.Action, value: str) -> list[str]:
    """The command with ``value`` in that place, and a word for every other argument that it needs."""
    options, positional = list[str](), list[str]()
    for action in parser._actions:
        if action is not place and not is_filled(parser, action, place):
            continue
        given = value if action is place else "x"
        if action.option_strings:
            options.append(f"{action.option_strings[-1]}={given}")
        else:
            positional.append(given)
    if place.dest != "files" and any(action.dest == "files" for action in parser._actions):
        positional.append("x.json")
    return [*parser.prog.split()[1:], *options, "--", *positional]


TABLE = [
    pytest.param(parser, action, id=f"{parser.prog} {action.option_strings[-1:] or action.dest}")
    for parser in parsers(_parser(*COMMANDS))
    for action in parser._actions
    if action.metavar in FILES
]
SIGNER = generate_signer(kid="secret")
PEM = private_key_bytes(SIGNER).decode()
JWK = private_key_bytes(SIGNER, format="jwk").decode()


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def api_key(folder: Path) -> str:
    return SqliteApiKeys(folder / "keys.db", create=True).create(owner="ann").text


SECRETS = {
    "PEM": PEM,
    "PEM in one line": PEM.replace("\n", " "),
    "body of a PEM": "".join(PEM.splitlines()[1:-1]),
    "PEM in base64": in_base64(PEM),
    "PEM in base64, cut": in_base64(PEM)[:-7],
    "JWK": JWK,
    "JWK in base64": in_base64(JWK),
    "encrypted JWK": private_key_bytes(SIGNER, format="jwk", passphrase="x").decode(),
    "d of a JWK": json.loads(JWK)["d"],
    "API key": "",
    "token": "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "URL with a password": "https://ann:correct-horse@agent.example.com/card.json",
    "URL of a database": " postgresql://ann:correct-horse@db.example.com/agents",
    "assignment of a URL": "URL=postgresql://ann:correct-horse@db.example.com/agents",
}


def parts(secret: str) -> list[str]:
    """Parts of the secret that are not in texts without it."""
    if "://" in secret:
        return ["correct-horse"]
    return [secret[at : at + 10] for at in range(30, len(secret) - 10, 10)] or [secret[8:18]]


def test_every_argument_is_a_file_or_is_none_for_a_reason() -> None:
    others = {
        action.dest
        for parser in parsers(_parser(*COMMANDS))
        for action in parser._actions
        if takes_text(action) and action.metavar not in FILES
    }
    assert others == set(NO_FILES)
    assert len(TABLE) > 45


@walk(("parser", "place"), TABLE)
def test_no_argument_shows_or_writes_it(
    parser: argparse.ArgumentParser,
    place: argparse.Action,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for kind, given in SECRETS.items():
        secret = given or api_key(tmp_path)
        line = command_line(parser, place, secret)
        for more in ([], ["--json"]) if kind == "JWK" else ([],):
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x" * 40)))
            code = main([*line[: line.index("--")], *more, *line[line.index("--") :]])
            said = "".join(capsys.readouterr())
            assert (code, [part for part in parts(secret) if part in said], "Traceback" in said) == (2, [], False), kind
    assert list(folder.iterdir()) == []


@walk("kind", SECRETS)
@walk("words", [["--credential", "key={}"], ["--lacking", "key={}"], ["{}"], ["--credential", "{}"]])
def test_no_argument_of_a_probe_shows_it(
    words: list[str], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = SECRETS[kind] or api_key(tmp_path)
    monkeypatch.chdir(tmp_path)
    code = main(["probe", *[word.replace("{}", secret) for word in words], "https://agent.invalid"])
    said = "".join(capsys.readouterr())
    assert (code, [part for part in parts(secret) if part in said], "Traceback" in said) == (2, [], False)


@walk("kind", SECRETS)
@walk("words", [[], ["--"], ["keys"], ["--check", "--"], ["verify", "--signer"]])
def test_a_key_in_the_place_of_any_word_is_not_shown(
    words: list[str], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = SECRETS[kind] or api_key(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main([*words, secret]) == 2
    said = "".join(capsys.readouterr())
    assert [part for part in parts(secret) if part in said] == []


@walk("kind", ["PEM", "body of a PEM", "JWK", "API key"])
@walk(
    "words",
    [
        ["sign", "--check", "--files-from"],
        ["lint", "--files-from"],
        ["verify", "--any-origin", "--jwks", "k.json", "--files-from"],
        ["verify", "--any-origin", "--jwks", "k.json", "--cards-from"],
        ["lint"],
        ["inspect"],
    ],
)
def test_a_file_with_a_key_is_no_list_of_names(
    words: list[str], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = SECRETS[kind] or api_key(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["keygen", "-o", "k.pem"]) == 0
    Path("k.jwks.json").rename("k.json")
    monkeypatch.setenv("A2A_SIGN_KEY_FILE", "k.pem")
    Path("secret.txt").write_text(secret)
    capsys.readouterr()
    main([*words, "secret.txt"])
    said = "".join(capsys.readouterr())
    assert [part for part in parts(secret) if part in said] == []


@pytest.mark.parametrize("times", [1, 20], ids=["short", "too long for a name"])
def test_a_passphrase_in_the_place_of_its_file_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], times: int
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("A2A_SIGN_KEY_PASSPHRASE_FILE", "correct horse battery" * times)
    assert main(["keygen", "-o", "k.pem", "--encrypt"]) == 2
    assert "horse" not in "".join(capsys.readouterr())
