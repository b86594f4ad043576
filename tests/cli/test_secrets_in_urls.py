"""A password in the URL of a database, where a user should not have written it: no output repeats it."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest
import redis

from a2a_trust.auth import RedisApiKeys
from a2a_trust.base.databases.availability import DatabaseUrl
from a2a_trust.errors import ConfigurationError
from tests.cli.conftest import Run
from tests.databases import RedisServer, temporary_folder

URLS = (
    "redis://:hunter2@127.0.0.1:1/0",
    "redis://ann:hunter2@127.0.0.1:99999/0",
    "redis://ann:hunter2@127.0.0.1:1/0?a=b",
    "redis://:x@y/hunter2@127.0.0.1/0",
    "postgresql://ann:hunter2@127.0.0.1:1/d",
    "postgresql://ann@127.0.0.1:1/d?password=hunter2",
    "postgresql://ann:x@y/hunter2@127.0.0.1/d",
    "postgresql://ann:x@y?hunter2@127.0.0.1/d",
    "mysql://ann:hunter2@127.0.0.1/d",
    " postgresql://ann:hunter2@127.0.0.1:1/d",
    " postgresql://127.0.0.1:1/d?password=hunter2",
    "\tredis://ann:hunter2@127.0.0.1:1/0",
)
COMMANDS = (
    ("api-key", "list", "--store"),
    ("api-key", "create", "--owner", "ann", "--store"),
    ("password", "list", "--store"),
    ("password", "create", "--user", "ann", "--store"),
    ("memory", "list", "--file"),
    ("database", "check"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_output_has_the_password(run: Run, command: tuple[str, ...]) -> None:
    for url in URLS:
        for more in ((), ("--json",)):
            done = run(*command, url, *more)
            assert (done.code, "hunter2" in done.out + done.err) == (2, False), url


def test_no_output_of_a_process_has_the_password(run_process: Run) -> None:
    """Not even one that the interpreter writes at its end."""
    done = run_process(*COMMANDS[0], URLS[0])
    assert (done.code, "hunter2" in done.out + done.err) == (2, False)


def test_no_url_shows_it() -> None:
    for url, read in product(URLS, (DatabaseUrl.postgres, DatabaseUrl.redis)):
        try:
            made = read(url)
            shown = f"{made} {made.shown} {made.argument}"
        except ConfigurationError as error:
            shown = str(error)
        assert "hunter2" not in shown, url


@pytest.mark.real
def test_the_password_of_redis_comes_from_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the error about a password in a URL says."""
    with temporary_folder() as folder:
        server = RedisServer(folder)
        monkeypatch.setattr(server, "client", lambda: redis.Redis(port=server.port, password="hunter2"))
        server.start("--requirepass", "hunter2")
        try:
            create = ("api-key", "create", "--owner", "ann", "--store", server.url)
            for given in ({}, {"REDISCLI_AUTH": "hunter3"}):
                done = run(*create, **given)
                assert (done.code, "the server rejects the user name or the password" in done.err) == (6, True)
            done = run(*create, REDISCLI_AUTH="hunter2")
            assert done.code == 0, done.err
            assert "hunter2" not in done.out + done.err
            monkeypatch.setenv("REDISCLI_AUTH", "hunter2")
            (record,) = RedisApiKeys(server.url, timeout=60).records()
            assert record.owner == "ann"
            monkeypatch.setenv("REDISCLI_AUTH", "hunter3")  # one in the URL counts first
            keys = RedisApiKeys(server.url.replace("//", "//:hunter2@"), timeout=60)
            assert keys.records() == (record,)

            async def find() -> int:
                found = await keys.find((record.digest,))
                await keys.aclose()
                return len(found.records)

            assert asyncio.run(find()) == 1
        finally:
            server.kill()
