"""``a2a-sign memory``: what people do when an agent's key has changed, and what the command never does by itself."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from a2a_trust import Origins, TrustedKey, TrustStore, VerifiedCard, sign_card, verify_card
from a2a_trust.cli.report import Exit, exit_of
from a2a_trust.client.memory import TableCardMemory
from a2a_trust.client.memory_store import SqliteCardMemory
from a2a_trust.client.verification import TrustOnFirstUse
from a2a_trust.errors import (
    CardMemoryError,
    CardMemoryUnavailableError,
    PinnedKeyError,
    RolledBackCardError,
    TrustError,
)
from a2a_trust.keys import LocalSigner
from a2a_trust.keys.rotation import new_ring_key
from tests.cli.conftest import CARD, Run

AGENT = "https://invoice.example.com"
NOW = 1_800_000_000.0
FILE = ("--file", "cards.db")


@pytest.fixture(scope="module")
def first() -> LocalSigner:
    return new_ring_key("ES256")  # its thumbprint, which is an argument here, does not begin with a dash


@pytest.fixture(scope="module")
def second() -> LocalSigner:
    return new_ring_key("ES256")  # its thumbprint, which is an argument here, does not begin with a dash


@pytest.fixture
def memory(tmp_path: Path) -> SqliteCardMemory:
    return SqliteCardMemory(tmp_path / "cards.db", create=True)


def proof(signer: LocalSigner, *, named: bool = False, **options: Any) -> VerifiedCard:
    trust = TrustOnFirstUse().trust_store([signer.public_key], AGENT, TrustStore(()))
    if named:
        trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("invoice.example.com"))])
    signed = json.dumps(sign_card(CARD, signer, **options).card).encode()
    return verify_card(signed, trust, origin=AGENT, now=NOW)


def admit(memory: TableCardMemory, verified: VerifiedCard) -> None:
    memory.admit(verified, AGENT, now=NOW)


def thumbprint(signer: LocalSigner) -> str:
    return signer.public_key.thumbprint


def test_the_command_in_the_refusal_is_the_one_that_accepts(
    run: Run, memory: SqliteCardMemory, first: LocalSigner, second: LocalSigner, tmp_path: Path
) -> None:
    """From another folder, too, and word for word."""
    admit(memory, proof(first, iat=NOW))
    with pytest.raises(PinnedKeyError) as caught:
        admit(memory, proof(second, iat=NOW))
    program, *arguments = shlex.split(str(caught.value).splitlines()[-1])
    (tmp_path / "elsewhere").mkdir()
    done = run(*arguments, cwd=tmp_path / "elsewhere")
    assert (program, done.code, done.err) == ("a2a-sign", 0, "")
    assert f"accepted {AGENT}" in done.out
    assert thumbprint(second) in done.out
    admit(memory, proof(second, iat=NOW))
    with pytest.raises(PinnedKeyError):
        admit(memory, proof(first, iat=NOW))


def test_the_command_in_the_refusal_of_an_older_card_forgets(
    run: Run, memory: SqliteCardMemory, first: LocalSigner
) -> None:
    admit(memory, proof(first, iat=NOW, named=True))
    with pytest.raises(RolledBackCardError) as caught:
        admit(memory, proof(first, iat=NOW - 1, named=True))
    program, *arguments = shlex.split(str(caught.value)[str(caught.value).index("a2a-sign memory forget") :])
    done = run(*arguments)
    assert (program, done.code) == ("a2a-sign", 0)
    admit(memory, proof(first, iat=NOW - 1, named=True))


def test_a_thumbprint_that_begins_with_a_dash_goes_through_the_shell(run: Run, memory: SqliteCardMemory) -> None:
    odd = f"-{'x' * 42}"
    command = memory._hint("accept", AGENT, [odd, "_" * 43])
    assert run(*shlex.split(command)[1:]).code == 0
    (record,) = memory.records()
    assert record.thumbprints == {odd, "_" * 43}


def test_a_list_shows_what_is_remembered(
    run: Run, memory: SqliteCardMemory, first: LocalSigner, second: LocalSigner
) -> None:
    admit(memory, proof(first, iat=NOW - 60, named=True))
    memory.accept("https://other.example:8443", [thumbprint(first), thumbprint(second)], now=NOW)
    done, report = run("memory", "list", *FILE), run("memory", "list", *FILE, "--json")
    assert (done.code, report.code, done.err, report.err) == (0, 0, "", "")
    heads, *rows = [line.split("  ") for line in done.out.splitlines()]
    assert [[cell.strip() for cell in row if cell.strip()] for row in rows] == [
        [AGENT, "trust store", "2027-01-15T07:59:00Z", "2.4.1", *["2027-01-15T08:00:00Z"] * 2, thumbprint(first)],
        [
            "https://other.example:8443", "first use", "-", "-", *["2027-01-15T08:00:00Z"] * 2,
            ", ".join(sorted([thumbprint(first), thumbprint(second)])),
        ],
    ]  # fmt: skip
    assert heads[0] == "LOCATION"
    assert (report.json["command"], report.json["ok"], report.json["exit"]) == ("memory list", True, 0)
    assert report.json["file"] == "cards.db"
    assert report.json["records"][0] == {
        "location": AGENT,
        "thumbprints": [thumbprint(first)],
        "on_first_use": False,
        "issued": "2027-01-15T07:59:00Z",
        "version": "2.4.1",
        "first_seen": "2027-01-15T08:00:00Z",
        "last_seen": "2027-01-15T08:00:00Z",
    }
    assert report.json["records"][1]["on_first_use"] is True


def test_a_version_cannot_steer_the_terminal(run: Run, memory: SqliteCardMemory, first: LocalSigner) -> None:
    trust = TrustStore([TrustedKey(key=first.public_key, origins=Origins("invoice.example.com"))])
    signed = json.dumps(sign_card({**CARD, "version": "1\x1b[2J\n\u202e9"}, first).card).encode()
    admit(memory, verify_card(signed, trust, origin=AGENT, now=NOW))
    done = run("memory", "list", *FILE)
    assert "1\\x1b[2J\\n\\u202e9" in done.out
    assert "\x1b" not in done.out
    assert len(done.out.splitlines()) == 2


def test_a_forgotten_agent_is_seen_for_the_first_time_again(
    run: Run, memory: SqliteCardMemory, first: LocalSigner, second: LocalSigner
) -> None:
    admit(memory, proof(first))
    done = run("memory", "forget", *FILE, "HTTPS://Invoice.example.com:443/", "--json")
    assert (done.code, done.json["command"], done.json["location"]) == (0, "memory forget", AGENT)
    assert done.json["thumbprints"] == [thumbprint(first)]
    assert memory.records() == ()
    again = run("memory", "forget", *FILE, AGENT)
    assert (again.code, again.out) == (2, "")
    assert f"there is no record of {AGENT}" in again.err
    admit(memory, proof(second))
    done = run("memory", "forget", *FILE, AGENT)
    assert (done.code, done.out.splitlines()[:2]) == (0, [f"forgot {AGENT}", f"  its keys were: {thumbprint(second)}"])


def test_a_key_is_accepted_before_the_agent_is_ever_asked(run: Run, tmp_path: Path, first: LocalSigner) -> None:
    """In the memory of this user, which is made for its owner only."""
    data = tmp_path / "data"
    arguments = ("memory", "accept", "invoice.example.com", thumbprint(first))
    done = run(*arguments, "--json", XDG_DATA_HOME=str(data))
    path = data / "a2a-trust" / "cards.db"
    assert (done.code, done.json["file"], done.json["location"]) == (0, str(path), AGENT)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [record.thumbprints for record in SqliteCardMemory(path).records()] == [{thumbprint(first)}]
    assert AGENT in run("memory", "list", XDG_DATA_HOME=str(data)).out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("accept", *FILE, AGENT, "x" * 42), "RFC 7638 thumbprint"),
        (("accept", *FILE, AGENT, "SHA256:" + "x" * 43), "RFC 7638 thumbprint"),
        (("accept", *FILE, AGENT), "THUMBPRINT"),
        (("accept", *FILE, "ftp://invoice.example.com", "x" * 43), "https"),
        (("accept", *FILE, "https://a@invoice.example.com", "x" * 43), "location: write the URL"),
        (("forget", *FILE, ""), "location: write the URL"),
        (("accept", "--file", "missing.db", AGENT, "x" * 42), "RFC 7638 thumbprint"),
        (("accept", "--file", "missing.db", "ftp://invoice.example.com", "x" * 43), "https"),
        (("list", "--file", "missing.db"), "there is no memory of cards at missing.db"),
        (("forget", "--file", "missing.db", AGENT), "there is no memory of cards at missing.db"),
    ],
)
def test_mistakes_are_told_and_change_nothing(
    run: Run, memory: SqliteCardMemory, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    done = run("memory", *arguments)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    report = run("memory", *arguments, "--json")
    assert (report.code, report.json["ok"], report.json["error"]["class"]) == (2, False, "usage")
    assert memory.records() == ()
    assert [path.name for path in tmp_path.iterdir()] == ["cards.db"]


def test_a_damaged_memory_is_told_and_left_as_it_is(run: Run, memory: SqliteCardMemory, tmp_path: Path) -> None:
    path = tmp_path / "cards.db"
    memory.accept(AGENT, ["x" * 43], now=NOW)
    path.write_bytes(path.read_bytes()[:4096] + b"\0" * (path.stat().st_size - 4096))
    before = path.read_bytes()
    for arguments in (("list",), ("accept", AGENT, "y" * 43), ("forget", AGENT)):
        done = run("memory", arguments[0], *FILE, *arguments[1:])
        assert (done.code, done.out) == (6, "")
        assert "cards.db is damaged" in done.err
        assert "restore it from a copy" in done.err
    assert run("memory", "list", *FILE, "--json").json["error"]["class"] == "input-output"
    assert path.read_bytes() == before
    path.write_bytes(b"x" * 9000)
    done = run("memory", "accept", *FILE, AGENT, "y" * 43)
    assert (done.code, path.read_bytes()) == (2, b"x" * 9000)
    assert "is not a valid memory of cards" in done.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PinnedKeyError("x", AGENT, presented=frozenset(), pinned=frozenset()), Exit.UNTRUSTED),
        (RolledBackCardError("x", AGENT, issued=None, remembered=NOW), Exit.UNTRUSTED),
        (CardMemoryError("x", AGENT), Exit.UNTRUSTED),
        (CardMemoryUnavailableError("x"), Exit.INPUT_OUTPUT),
    ],
)
def test_what_the_memory_refuses_is_untrusted_and_a_memory_out_of_reach_is_no_verdict(
    error: TrustError, code: Exit
) -> None:
    assert exit_of(error) is code


def test_a_file_that_cannot_be_made_is_told(run: Run, tmp_path: Path) -> None:
    done = run("memory", "accept", "--file", "no/such/folder/cards.db", AGENT, "y" * 43)
    assert done.code == 6
    assert list(tmp_path.iterdir()) == []
