"""A certificate authority for the agents of these tests, one agent, and a fetcher that finds it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from a2a_trust import Fetcher
from tests.base.net.test_fetcher import Authority, Names
from tests.cheap_hashes import cheap_hashes
from tests.client.agents import Agent, serving_agent

__all__ = ["cheap_hashes"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def agent(authority: Authority) -> Iterator[Agent]:
    """It has certificates for ``agent.test``, ``other.test``, ``localhost`` and 127.0.0.1."""
    with serving_agent(authority.server("agent.test", "other.test", "localhost", "127.0.0.1")) as running:
        yield running


@pytest.fixture
def fetcher(agent: Agent, authority: Authority) -> Fetcher:
    """A fetcher through which the agent can be reached, by both of its names."""
    names = Names(agent_test=[["127.0.0.1"]], other_test=[["127.0.0.1"]])
    origins = [agent.origin("agent.test"), agent.origin("other.test")]
    return Fetcher(private_origins=origins, ssl_context=authority.client(), resolver=names, timeout=60)
