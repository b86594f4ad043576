"""A password in the URL of a database, where a user should not have written it: no output repeats it."""

from __future__ import annotations

import pytest

from a2a_trust.databases.addresses import DatabaseUrl
from a2a_trust.errors import ConfigurationError
from tests.cli.conftest import Run

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
@pytest.mark.parametrize("url", URLS)
def test_no_output_has_the_password(run: Run, command: tuple[str, ...], url: str) -> None:
    for more in ((), ("--json",)):
        done = run(*command, url, *more)
        assert done.code == 2
        assert "hunter2" not in done.out + done.err


@pytest.mark.parametrize("url", URLS)
def test_no_url_shows_it(url: str) -> None:
    for read in (DatabaseUrl.postgres, DatabaseUrl.redis):
        try:
            shown = read(url)
        except ConfigurationError as error:
            assert "hunter2" not in str(error)
        else:
            assert "hunter2" not in f"{shown} {shown.shown} {shown.argument}"
