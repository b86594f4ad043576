"""The hello world agent of the SDK, protected by its card, under every server, and who may call it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from a2a_trust.auth.record_table import SqliteApiKeys
from tests.servers.callers import FOLDER, Callers
from tests.servers.environments import python_of
from tests.servers.issuer import Issuer, issuing
from tests.servers.serving import serving_under_all


@pytest.fixture(scope="package")
def issuer() -> Iterator[Issuer]:
    with issuing() as running:
        yield running


@pytest.fixture(scope="package")
def callers(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Callers:
    path = tmp_path_factory.mktemp("keys") / "keys.db"
    return Callers(issuer, path, SqliteApiKeys(path, create=True))


@pytest.fixture(scope="package")
def hello_worlds(callers: Callers) -> Iterator[dict[str, str]]:
    """The origins of the protected agent, by the names of the servers."""
    python: Path = python_of("server-1.3.0")
    with serving_under_all(python, "tests.servers.sdk_patient_hello_world:app", FOLDER, callers.settings) as origins:
        yield origins
