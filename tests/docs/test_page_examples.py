"""Each page about protecting and running agents has an example that runs, and prints what the page shows."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from a2a_trust.auth import SqliteApiKeys
from a2a_trust.keys.ring_file import load_key_ring, save_key_ring
from a2a_trust.keys.rotation import KeyRing, new_ring_key
from a2a_trust.signing.sign import sign_card
from tests.docs.newcomer import Newcomer
from tests.docs.pages import PAGES
from tests.docs.sessions import blocks, check_program, check_session, examples
from tests.tiers import missing

#: Pages with a program, and what it prints below it.
WITH_PROGRAMS = (
    *("agents", "audit", "browsers", "callers", "capacity", "dpop", "failed-credentials", "operations", "outages"),
    *("push", "rejections", "requests", "rollover", "startup", "streams", "telemetry", "verifiers"),
)


@pytest.fixture
def card() -> dict[str, Any]:
    """The card of docs/tutorial.md, at a public URL."""
    text = blocks("docs/tutorial.md", "json")[0].replace("http://localhost:8000", "https://agent.example.com")
    found: dict[str, Any] = json.loads(text)
    return found


def ring_in(folder: Path) -> KeyRing:
    save_key_ring(folder / "ring.json", KeyRing.begin(new_ring_key("ES256"), time.time()))
    return load_key_ring(folder / "ring.json")


@pytest.mark.parametrize("page", WITH_PROGRAMS)
def test_the_program_prints_what_its_page_shows(page: str, tmp_path: Path, card: dict[str, Any]) -> None:
    (example,) = examples(f"docs/{page}.md")
    if page in ("push", "rollover"):
        signer = ring_in(tmp_path).signer(time.time())
        SqliteApiKeys(tmp_path / "keys.db", create=True)
        for name, version in (("card.json", "1.0.0"), ("new.json", "1.1.0")):
            signed = sign_card({**card, "version": version}, signer, iat=int(time.time()), lifetime=600).card
            (tmp_path / name).write_text(json.dumps(signed))
        (tmp_path / "broken.json").write_text(json.dumps(card)[:100])
    check_program(*example, tmp_path)


def test_no_program_is_left_out() -> None:
    named = {f"docs/{page}.md" for page in WITH_PROGRAMS}
    assert {name for name in PAGES if examples(name)} >= named
    assert all(len(examples(name)) == 1 for name in named)


def test_api_keys_are_made_and_revoked(tmp_path: Path) -> None:
    one, many = blocks("docs/api-keys.md", "console")
    check_session(one, tmp_path)
    (tmp_path / "teams.txt").write_text("team-a\nteam-b\nteam-c\n")
    create, *others = many.splitlines(keepends=True)
    check_session("".join([create, *others[:2]]), tmp_path)
    store = SqliteApiKeys(tmp_path / "keys.db")
    with closing(sqlite3.connect(tmp_path / "keys.db", isolation_level=None)) as hand:
        hand.execute("UPDATE api_key SET created = 1 WHERE owner = 'team-b'")
    check_session("".join(others[2:]), tmp_path)
    assert [each.owner for each in store.records() if each.revoked is None] == ["ann", "team-c"]


def test_passwords_are_made_and_revoked(tmp_path: Path) -> None:
    (session,) = blocks("docs/passwords.md", "console")
    check_session(session, tmp_path)


@pytest.mark.real
def test_a_key_that_others_can_read_is_rejected(tmp_path: Path, card: dict[str, Any]) -> None:
    (tmp_path / "card.json").write_text(json.dumps(card))
    (session,) = blocks("docs/files.md", "console")
    check_session(session, tmp_path)


@pytest.mark.real
def test_each_command_copies_a_store_in_use(tmp_path: Path) -> None:
    if shutil.which("sqlite3") is None:
        missing("sqlite3", "real-databases")
    (session,) = blocks("docs/backup.md", "console")
    SqliteApiKeys(tmp_path / "keys.db", create=True).create(owner="ann")
    check_session(session, tmp_path)
    for copy in ("keys-2026-11-22.db", "keys-2026-11-23.db"):
        assert [record.owner for record in SqliteApiKeys(tmp_path / copy).records()] == ["ann"]


@pytest.mark.real
def test_the_first_agent_runs_as_its_page_says(tmp_path: Path) -> None:
    text = PAGES["docs/protect.md"].partition("The server's log has")[0]
    Newcomer(tmp_path, Path(sys.executable).parent, 8000).follow(text)


def test_pytest_runs_the_first_test_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "test_invoices.py").write_text(blocks("docs/testing.md", "python")[0])
    (session,) = blocks("docs/testing.md", "console")
    check_session(session, tmp_path)
