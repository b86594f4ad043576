"""Names of files that are secrets: which names an error may show."""

from __future__ import annotations

from pathlib import Path

from a2a_trust.cli.file_names import is_secret, without_secrets
from tests.tables import walk


@walk(
    "name",
    [
        "card.json",
        "agents/invoice-agent/card.json",
        "agents/3fa85f64-5717-4562-b3fc-2c963f66afa6.json",
        "https://agent.example.com/agents/a-tenant-with-a-name-that-is-longer-than-forty-characters/agent-card.json",
        "~/.config/a2a-trust/signing-key",
    ],
)
def test_names_that_people_write_are_shown(name: str) -> None:
    assert not is_secret(name)


def test_only_a_file_that_is_not_there_is_a_secret(tmp_path: Path) -> None:
    name = str(tmp_path / "A1b2C3d4E5f6G7h8J9k0L1m2N3p4Q5r6S7t8U9v0")
    assert is_secret(name)
    Path(name).touch()
    assert not is_secret(name)


def test_a_folder_that_is_there_is_no_part_of_a_secret(tmp_path: Path) -> None:
    folder = tmp_path / "A1b2C3d4E5f6G7h8J9k0L1m2N3p4Q5r6S7t8U9v0"
    assert is_secret(str(folder / "card"))
    folder.mkdir()
    assert not is_secret(str(folder / "card"))


@walk("name", ["report-3f786850e387550fdab836ed7e6dc881de23001b.jsonl", "f" * 64])
def test_a_new_file_may_be_named_after_a_commit(name: str) -> None:
    assert is_secret(name)
    assert not is_secret(name, may_be_new=True)


@walk(
    "name",
    [
        "uV5-9MFYcKZ_b4fyCsKkvWq1-kIYbmY4cy0cPZ2C9eux7Q",
        "IFvG2snKChLESHyNNtzjJ-Lgmoh-ZBiDLxmtX-a_pfU",  # one digit
        "fDAaqNNvSKuhknUVlUClGCBrFaahlwCTugUPXB5ADtE",
        "NLKuv-ktVQDJ5UClgOrPe-IibKCMDQxMakUvwpSR-Ro",
    ],
)
def test_a_new_file_may_not_be_named_after_a_key(name: str) -> None:
    assert is_secret(name, may_be_new=True)


def test_a_new_file_may_have_a_long_name() -> None:
    assert not is_secret("Quarterly-Report-of-signed-Agent-Cards-and-Keys.jsonl", may_be_new=True)


def test_a_name_that_no_system_takes_is_only_missing() -> None:
    assert not is_secret("agents/\0card.json")
    assert is_secret("-----BEGIN PRIVATE KEY-----\0" * 500)


@walk(
    ("text", "shown"),
    [
        ("unrecognized arguments: --sing", "unrecognized arguments: --sing"),
        ("unrecognized arguments: -----BEGIN\nMIGH\n", "unrecognized arguments: (not shown)"),
        ('invalid choice: \'{"kty": "EC"}\'', "invalid choice: '(not shown)"),
        (f"invalid choice: '{'aB3' * 20}' (choose from a)", "invalid choice: '(not shown)' (choose from a)"),
    ],
)
def test_an_error_about_arguments_shows_no_secret(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
