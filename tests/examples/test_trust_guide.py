"""docs/trust.md is true: its commands say what it shows, its file is read, and its Python runs."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from a2a_trust import ConfigurationError, generate_signer, publish_jwks, sign_card
from a2a_trust.cli.main import main
from a2a_trust.errors import UntrustedCardError
from a2a_trust.keys import LocalSigner
from a2a_trust.keys.trust.file import _MEMBERS, read_trust
from a2a_trust.keys.trust.jwks_cache import JwksCacheTimes
from a2a_trust.keys.trust.policy import Threshold
from a2a_trust.keys.trust.store import SigningTool
from tests.cli.conftest import CARD
from tests.conftest import ROOT
from tests.docs.newcomer import commands_of, is_shown

GUIDE = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
FIRST, NEW_KEY, REVOKED, ERROR = re.findall(r"```console\n(.*?)```", GUIDE, re.DOTALL)
(FILE,) = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
(PROGRAM,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
FINANCE, NEXT = generate_signer(kid="finance-2026"), generate_signer(kid="finance-2027")
ORIGIN = "https://invoice.example.com"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the guide begins with: the keys of those who run the agent, and its card."""
    (tmp_path / "finance.jwks.json").write_text(json.dumps(publish_jwks([FINANCE.public_key])))
    both = publish_jwks([FINANCE.public_key, NEXT.public_key])
    (tmp_path / "finance-new.jwks.json").write_text(json.dumps(both))
    (tmp_path / "card.json").write_bytes(signed(FINANCE))
    (tmp_path / "new-card.json").write_bytes(signed(NEXT))
    broken = 'version = 1\n[[trust]]\njwks_url = "https://a.test/k"\norigins = ["https://a.test"]\n'
    (tmp_path / "bad.toml").write_text(broken)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def signed(signer: LocalSigner) -> bytes:
    return json.dumps(sign_card(CARD, signer).card).encode()


def test_the_commands_say_what_the_guide_shows(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = [0, 0, 0, 0, 0, 0, 0, 4, 2]
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    session = FIRST + NEW_KEY + REVOKED + ERROR
    for (command, shown), code in zip(commands_of(session), codes, strict=True):
        program, *arguments = shlex.split(command.replace("\\\n", ""))
        assert (program, main(arguments)) == ("a2a-sign", code), command
        # The key set is that of another host, so nothing is fetched.
        printed = "".join(capsys.readouterr())
        assert is_shown(printed, shown), f"{command}\n{printed}"


def test_the_file_of_the_guide_says_what_the_guide_says(folder: Path) -> None:
    document = read_trust(FILE.encode(), "trust.toml")
    finance, auditor, travel = document.entries
    assert (finance.file, finance.name, finance.signer) == ("finance.jwks.json", "finance", None)
    assert (auditor.name, auditor.url) == ("auditor", "https://auditor.example.org/jwks.json")
    assert (travel.url, travel.signer) == ("https://travel.example.org/.well-known/jwks.json", SigningTool.A2A_JS)
    assert document.policies[0].policy == Threshold(2, frozenset({"finance", "auditor"}))
    assert document.revoked[0].kid == "finance-2025"
    (folder / "trust.toml").write_text(FILE)
    assert main(["trust", "list", "trust.toml"]) == 0
    assert main(["verify", "card.json", "--trust", "trust.toml", "--origin", ORIGIN]) == 0


def test_the_table_of_members_is_whole() -> None:
    rows = re.findall(r"^\| (`\[\[\w+\]\]`)? ?\| (.*?) \|", GUIDE, re.MULTILINE)
    found: dict[str, set[str]] = {}
    table = ""
    for begins, members in rows:
        table = begins.strip("`[]") or table
        found.setdefault(table, set()).update(re.findall(r"`(\w+)`", members))
    assert found == {"": {"version"}, **_MEMBERS}


def test_the_program_verifies_cards_and_follows_the_file(folder: Path, next_second: Callable[[], None]) -> None:
    trust = folder / "trust.toml"
    shutil.copy("finance.jwks.json", "keys.json")
    trust.write_text('version = 1\n[[trust]]\norigins = ["invoice.example.com"]\nkeys = "keys.json"\n')
    names: dict[str, Any] = {}
    exec(compile(PROGRAM, "docs/trust.md", "exec"), names)

    def prove() -> Any:
        return asyncio.run(names["verified_card"](signed(FINANCE), ORIGIN))

    assert prove()["name"] == CARD["name"]
    sound = trust.read_text()
    trust.write_text("version = 1\n[[trust]]\n")
    next_second()
    assert prove()["name"] == CARD["name"]
    trust.write_text(f'{sound}\n[[revoked]]\nkid = "finance-2026"\n')
    next_second()
    with pytest.raises(UntrustedCardError, match="revoked"):
        prove()
    trust.write_text(sound)
    (folder / "keys.json").write_text(json.dumps(publish_jwks([generate_signer(kid="other").public_key])))
    next_second()
    with pytest.raises(UntrustedCardError, match="no trusted EC key"):
        prove()
    trust.write_text("version = 1\n[[trust]]\n")
    with pytest.raises(ConfigurationError):
        exec(compile(PROGRAM, "docs/trust.md", "exec"), {})


def test_the_times_of_key_sets_are_those_of_the_guide() -> None:
    times = JwksCacheTimes()
    assert (times.min_max_age, times.max_max_age, times.default_max_age) == (60, 86_400, 300)
    assert (times.revalidate, times.stale_if_error) == (300, 3_600)
    said = (
        "at least a minute and at most a day, and for 5 minutes if the server says nothing. For 5 more minutes a call "
        "may still get the old set while the new one is fetched. If the set is unreachable, its keys stay valid for an"
    )
    assert said in " ".join(GUIDE.split())


def test_a_date_is_its_beginning_in_utc() -> None:
    (entry,) = read_trust(
        b"version = 1\n[[trust]]\norigins = ['a.example']\njwks_url = 'https://a.example/k'\nnot_after = 2027-01-31\n",
        "trust.toml",
    ).entries
    assert time.gmtime(entry.not_after)[:6] == (2027, 1, 31, 0, 0, 0)
