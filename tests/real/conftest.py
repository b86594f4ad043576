"""The authorization servers that these tests talk to, each started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real.clock import Clock
from tests.real.glewlwyd import Glewlwyd, running_glewlwyd
from tests.real.openid_provider import OpenIdProvider, running_provider
from tests.real.token_servers import AuthlibServer, CanailleServer, DjangoServer, ExchangeServer, running


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is busy, servers may take long to answer."""
    monkeypatch.setattr("a2a_trust.auth.introspection_endpoint._PATIENCE", 60.0)
    monkeypatch.setattr("a2a_trust.client.connection._FETCH_SECONDS", 60.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of agents that ask about tokens, which the test moves."""
    clock = Clock()
    clock.is_of("a2a_trust.auth.introspection_endpoint", monkeypatch)
    return clock


@pytest.fixture(scope="package")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenIdProvider]:
    with running_provider(tmp_path_factory.mktemp("provider")) as running:
        yield running


@pytest.fixture(scope="package")
def authlib_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthlibServer]:
    with running(AuthlibServer, tmp_path_factory.mktemp("authlib")) as server:
        yield server


@pytest.fixture(scope="package")
def exchange_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExchangeServer]:
    with running(ExchangeServer, tmp_path_factory.mktemp("exchange")) as server:
        yield server


@pytest.fixture(scope="package")
def django_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DjangoServer]:
    with running(DjangoServer, tmp_path_factory.mktemp("django")) as server:
        yield server


@pytest.fixture(scope="package")
def canaille_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CanailleServer]:
    with running(CanailleServer, tmp_path_factory.mktemp("canaille")) as server:
        yield server


@pytest.fixture(scope="package")
def glewlwyd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Glewlwyd]:
    with running_glewlwyd(tmp_path_factory.mktemp("glewlwyd")) as server:
        yield server
