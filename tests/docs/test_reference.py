"""docs/commands.md and docs/errors.md are complete: every command, code and reason of a signature."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from a2a_trust import errors
from a2a_trust.cli.report import exit_of
from a2a_trust.client.httpx import CredentialsError, CredentialsRejectedError, UnverifiedCardError
from a2a_trust.errors import FailureReason, TrustError
from a2a_trust.keys.files import PassphraseNeededError
from a2a_trust.middleware.caller import CallerRejectedError
from benchmarks import page as performance
from tests.cli.conftest import CARD
from tests.conftest import ROOT
from tests.docs import commands
from tests.docs.pages import PAGES

ERRORS = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
ENTRIES = dict(re.findall(r"(?ms)^### ([a-z-]+)\n\n(.*?)(?=^##|\Z)", ERRORS))
CLASSES: list[type[TrustError]] = [
    *(kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TrustError)),
    CallerRejectedError,
    CredentialsError,
    CredentialsRejectedError,
    PassphraseNeededError,
    UnverifiedCardError,
]


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="each Python formats help in its own way; the page has 3.11's"
)
def test_the_help_of_every_command_is_on_the_page() -> None:
    assert commands.PAGE.read_text(encoding="utf-8") == commands.page(), "run: python -m tests.docs.commands"


def test_every_code_has_an_entry() -> None:
    assert sorted(ENTRIES) == sorted(kind.code for kind in CLASSES)


def test_an_entry_has_class_exit_code_cause_and_fix() -> None:
    incomplete = []
    for kind in CLASSES:
        wanted = [rf"\A`{kind.__name__}`"]
        if kind is not TrustError:
            wanted += [rf"exit code {int(exit_of(kind.__new__(kind)))}\.\n", r"(?m)^- Cause: ", r"(?m)^- Fix: "]
        incomplete += [f"{kind.code}: {each}" for each in wanted if not re.search(each, ENTRIES[kind.code])]
    assert incomplete == []


def test_every_reason_of_a_signature_has_a_row() -> None:
    """Reasons of requests are on docs/rejections.md."""
    table = ERRORS.partition("## Rejected signatures\n")[2].partition("\n## ")[0]
    assert re.findall(r"(?m)^\| `([a-z-]+)` \|", table) == [reason.value for reason in FailureReason]


def test_the_glossary_is_in_alphabetical_order() -> None:
    without_links = re.sub(r"\[([^\]]+)\]\([^)]*\.md[^)]*\)", r"\1", PAGES["docs/glossary.md"])
    entries = re.findall(r"(?m)^\*\*`?(.+?)`?\.?\*\*", without_links)
    assert [re.sub(r"[^a-z]", "", entry.lower()) for entry in entries] == sorted(
        re.sub(r"[^a-z]", "", entry.lower()) for entry in entries
    )
    assert len(entries) > 45


@pytest.mark.parametrize(
    ("document", "printed"), [("[]", "malformed \n"), (json.dumps(CARD), "unsigned\n")], ids=["no card", "unsigned"]
)
def test_the_example_of_the_errors_prints_codes(
    document: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("card.json").write_text(document)
    Path("trust.toml").write_text("version = 1\n")
    (block,) = re.findall(r"(?ms)^```python\n(.*?)^```$", ERRORS)
    exec(compile(block, "docs/errors.md", "exec"), {})
    assert capsys.readouterr().out == printed
    assert "malformed" in printed or printed == re.findall(r"(?ms)^```text\n(.*?)^```$", ERRORS)[0]


def test_the_plots_are_those_of_the_last_measurement() -> None:
    assert performance.PAGE.read_text(encoding="utf-8") == performance.page(), "run: python -m benchmarks.page"
