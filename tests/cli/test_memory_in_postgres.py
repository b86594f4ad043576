"""``--file`` and ``--memory`` with the URL of a database: as with a file, and no password in any argument or answer."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from a2a_trust.client import PostgresCardMemory
from a2a_trust.errors import PinnedKeyError
from a2a_trust.keys import LocalSigner
from tests.cli.conftest import Run
from tests.cli.test_memory import AGENT, NOW, admit, first, proof, second, thumbprint  # noqa: F401  fixtures
from tests.cli.test_startup import loaded
from tests.databases import PostgresServer
from tests.tables import walk

SECRET = "hunter2"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy database is no error of these commands."""
    monkeypatch.setattr("a2a_trust.cli.stores.COMMAND_SECONDS", 60.0)


@pytest.fixture
def memory(postgres_url: str) -> PostgresCardMemory:
    return PostgresCardMemory(postgres_url, timeout=20)


@pytest.mark.real
def test_the_commands_work_on_a_database(
    run: Run,
    postgres_url: str,
    first: LocalSigner,  # noqa: F811
    tmp_path: Path,
) -> None:
    at = ("--file", postgres_url)
    done = run("memory", "accept", *at, AGENT, thumbprint(first), "--json")
    assert (done.code, done.json["file"], done.json["location"]) == (0, postgres_url, AGENT)
    listed = run("memory", "list", *at)
    assert (listed.code, listed.err) == (0, "")
    assert listed.out.splitlines()[1].split()[0] == AGENT
    assert thumbprint(first) in run("memory", "forget", *at, AGENT).out
    again = run("memory", "forget", *at, AGENT)
    assert (again.code, again.out) == (2, "")
    assert again.err == (
        f"a2a-sign: error: {postgres_url}: forget: there is no record of {AGENT}; write a location as in a2a-sign "
        "memory list\n"
    )
    assert run("memory", "list", *at, "--json").json["records"] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real
def test_the_command_in_the_refusal_is_the_one_that_accepts(
    run: Run,
    memory: PostgresCardMemory,
    first: LocalSigner,  # noqa: F811
    second: LocalSigner,  # noqa: F811
) -> None:
    url = memory._database.url.text
    secret = PostgresCardMemory(url.replace("postgres@", f"postgres:{SECRET}@") + "?sslmode=disable", timeout=20)
    admit(secret, proof(first, iat=NOW))
    with pytest.raises(PinnedKeyError) as caught:
        admit(secret, proof(second, iat=NOW))
    assert SECRET not in str(caught.value)
    program, *arguments = shlex.split(str(caught.value).splitlines()[-1])
    done = run(*arguments, PGPASSWORD=SECRET)
    assert (program, done.code, done.err) == ("a2a-sign", 0, "")
    assert arguments[3] == f"{url}?sslmode=disable"
    admit(memory, proof(second, iat=NOW))


OTHER = "write postgresql://USER@HOST/DATABASE"


@walk(
    ("url", "told"),
    [
        (f"postgresql://ann:{SECRET}@127.0.0.1:1/cards", "PGPASSFILE"),
        (f"postgres://ann:{SECRET}@127.0.0.1:1/cards", "PGPASSFILE"),
        (f"postgresql://ann@127.0.0.1:1/cards?password={SECRET}", "PGPASSFILE"),
        (f"postgresql://ann@127.0.0.1:1/cards?sslkey=key.pem&sslpassword={SECRET}", "PGPASSFILE"),
        (f"POSTGRESQL://ann:{SECRET}@127.0.0.1:1/cards", "PGPASSFILE"),
        (f"postgresql+asyncpg://ann:{SECRET}@127.0.0.1:1/cards", OTHER),
        (f"postgresql://ann:1/{SECRET}@127.0.0.1:1/cards", OTHER),
        (f"redis://:{SECRET}@127.0.0.1:1/0", OTHER),
        (f"mysql://ann:{SECRET}@127.0.0.1:1/cards", OTHER),
    ],
)
@walk("form", [(), ("--json",)])
def test_a_password_in_an_argument_is_refused_and_not_repeated(
    run: Run, url: str, told: str, form: tuple[str, ...]
) -> None:
    for arguments in (
        ("memory", "list", "--file", url),
        ("memory", "accept", "--file", url, AGENT, "x" * 43),
        ("memory", "forget", "--file", url, AGENT),
        ("verify", AGENT, "--memory", url, "--on-first-use"),
    ):
        done = run(*arguments, *form)
        said = done.out + done.err
        assert (done.code, SECRET in said, "Traceback" in said) == (2, False, False)
        assert told in said


@pytest.mark.real
def test_a_database_that_is_lost_or_not_prepared_is_told_once(
    run: Run,
    postgres: PostgresServer,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = postgres.database(tables=False)
    done = run("memory", "list", "--file", bare)
    assert (done.code, done.out, done.err.count("\n")) == (6, "", 1)
    assert f"run: a2a-sign database migrate {bare}" in done.err
    monkeypatch.setattr("a2a_trust.cli.stores.COMMAND_SECONDS", 0.5)
    with postgres.frozen():
        done = run("memory", "accept", "--file", postgres_url, AGENT, "x" * 43)
    assert (done.code, done.out, done.err.count("\n")) == (6, "", 1)
    assert "no answer within 0.5 seconds" in done.err
    monkeypatch.setattr("a2a_trust.cli.stores.COMMAND_SECONDS", 60.0)
    assert run("memory", "list", "--file", postgres_url, "--json").json["records"] == []


@pytest.mark.real
def test_libraries_of_databases_are_loaded_for_urls_only(postgres_url: str, tmp_path: Path) -> None:
    assert "asyncpg" in loaded("memory", "list", "--file", postgres_url, cwd=tmp_path)
    modules = loaded("memory", "accept", "--file", "cards.db", AGENT, "x" * 43, cwd=tmp_path)
    assert not modules & {"asyncpg", "redis", "asyncio", "ssl"}


def test_without_asyncpg_the_command_says_what_to_install(run_process: Run, tmp_path: Path) -> None:
    (tmp_path / "asyncpg.py").write_text("raise ImportError")
    done = run_process("memory", "list", "--file", "postgresql://127.0.0.1:1/cards", PYTHONPATH=str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert 'pip install "./a2a-trust[postgres]"' in done.err
