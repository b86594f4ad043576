"""Cards from a registry: the key is the agent's, and so is the place in the memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2a_trust import Fetcher, VerifiedCard, VerifyingTransport, async_fetch_card, fetch_card, verify_card
from a2a_trust.client import FetchOptions, VolatileCardMemory, verifying_client
from a2a_trust.errors import ConfigurationError
from tests.client.agents import Agent, Page, card_of, serving_agent, signed, trusting
from tests.client.registry import AGENTS, TRUST, Registry, agent_url, card_bytes, serving_registry


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving_registry() as running:
        yield running


def options_for(registry: Registry, **options: Any) -> FetchOptions:
    return FetchOptions(fetcher=Fetcher(private_origins=[registry.url], timeout=60), **options)


def test_all_cards_of_a_registry_are_found_by_skill_and_verified_for_their_agents(registry: Registry) -> None:
    memory = VolatileCardMemory()
    options = options_for(registry, memory=memory)
    for part in range(5):
        entries = httpx.get(f"{registry.url}/agents", params={"skill": f"skill-{part}"}).json()
        with httpx.stream("GET", f"{registry.url}/stream", params={"skill": f"skill-{part}"}) as streamed:
            assert [json.loads(line) for line in streamed.iter_lines()] == entries
        assert len(entries) == 10
        for entry in entries:
            verified = fetch_card(entry["card"], TRUST, options, origin=entry["agent"])
            assert verified.origin == httpx.URL(entry["agent"]).host
    assert {record.location for record in memory.records()} == {agent_url(*each) for each in AGENTS}


@pytest.mark.parametrize("ending", ["", ".json"])
def test_the_url_is_fetched_as_it_is(registry: Registry, ending: str) -> None:
    url = registry.card_url(3, 1, ending)
    for given in (url, f"{url}?lang=en"):
        fetching = async_fetch_card(given, TRUST, options_for(registry), origin="https://agent-3.test")
        assert asyncio.run(fetching).card["skills"][0]["id"] == "skill-1"
    assert [path for path, _ in registry.asked] == [f"/cards/3/1{ending}"] * 2


def test_an_origin_that_is_no_url(registry: Registry) -> None:
    with pytest.raises(ConfigurationError, match="write the URL of the agent"):
        fetch_card(registry.card_url(3, 1), TRUST, options_for(registry), origin="not a url")
    assert registry.asked == []


@pytest.fixture
def agent() -> Iterator[Agent]:
    """It is on plain http at ``localhost``, and the registry's host is 127.0.0.1."""
    with serving_agent(None) as running:
        running.pages["/rpc"] = Page(body=b"{}")
        yield running


def url_of(agent: Agent) -> str:
    return f"http://localhost:{agent.port}"


def card_for(agent: Agent, **members: Any) -> bytes:
    return signed(card_of(url_of(agent), securityRequirements=[], **members))


def test_a_transport_takes_the_card_of_an_interface_from_elsewhere(agent: Agent, registry: Registry) -> None:
    registry.cards[0, 0] = card_for(agent)
    memory = VolatileCardMemory()
    cards = {f"{url_of(agent)}/rpc": registry.card_url(0, 0)}
    transport = VerifyingTransport(httpx.HTTPTransport(), trusting("localhost"), memory=memory, cards=cards)
    with httpx.Client(transport=transport) as http:
        assert http.post(f"{url_of(agent)}/rpc", json={}).content == b"{}"
    assert [record.location for record in memory.records()] == [f"{url_of(agent)}/rpc"]
    assert agent.paths() == ["/rpc"]


def given(agent: Agent, registry: Registry, folder: Path, kind: str) -> str | Path | bytes | VerifiedCard:
    document = registry.cards[0, 0] = card_for(agent)
    path = folder / "card.json"
    path.write_bytes(document)
    verified = verify_card(document, trusting("localhost"), origin=url_of(agent))
    kinds: dict[str, str | Path | bytes | VerifiedCard] = {"url": registry.card_url(0, 0), "file": path}
    return {**kinds, "bytes": document, "verified": verified}[kind]


@pytest.mark.parametrize("kind", ["url", "file", "bytes", "verified"])
def test_a_client_takes_its_agents_card_from_elsewhere(
    agent: Agent, registry: Registry, tmp_path: Path, kind: str
) -> None:
    memory = VolatileCardMemory()
    card = given(agent, registry, tmp_path, kind)

    async def call() -> list[int]:
        client = verifying_client(url_of(agent), card=card, trust=trusting("localhost"), credentials={}, memory=memory)
        async with client as http:
            return [(await http.post(f"{url_of(agent)}/rpc", json={})).status_code for _ in range(2)]

    assert asyncio.run(call()) == [200, 200]
    assert agent.paths() == ["/rpc", "/rpc"]  # the agent serves no card
    assert len(registry.asked) == (kind == "url")
    assert [record.location for record in memory.records()] == [url_of(agent)]


def test_a_given_card_of_another_agent_sends_nothing(agent: Agent) -> None:
    async def call() -> None:
        client = verifying_client(
            f"{url_of(agent)}/other", card=card_for(agent), trust=trusting("localhost"), credentials={}
        )
        async with client as http:
            await http.post(f"{url_of(agent)}/rpc", json={})

    with pytest.raises(httpx.RequestError, match="names no interface at"):
        asyncio.run(call())
    assert agent.asked == []


def test_a_card_of_another_kind_is_an_error_at_once() -> None:
    with pytest.raises(ConfigurationError, match="card: write the URL of the card"):
        verifying_client("https://agent.test", card={}, trust=TRUST, credentials={})  # type: ignore[arg-type]


def test_the_card_of_a_grpc_agent_is_from_elsewhere_too(registry: Registry) -> None:
    interface = {"url": "grpcs://agent-2.test:50051", "protocolBinding": "GRPC", "protocolVersion": "1.0"}
    registry.cards[2, 0] = signed(
        {**json.loads(card_bytes(2, 0)), "supportedInterfaces": [interface], "signatures": []}
    )
    options = options_for(registry)
    trust = trusting("agent-2.test")
    assert fetch_card(registry.card_url(2, 0), trust, options, origin="https://agent-2.test").origin == "agent-2.test"
