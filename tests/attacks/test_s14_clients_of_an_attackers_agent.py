"""S14, by sockets: the agent that a client asks is the attacker's, or has become so (rossoctl #429).

It has a good certificate, a key that is rightly trusted for its own host, and whatever the victim has ever served.
Every attack is tried on every way by which a client gets cards.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2a_trust import (
    AsyncVerifyingTransport,
    CardVerificationError,
    Fetcher,
    Origins,
    TrustedKey,
    TrustStore,
    VerifyingTransport,
    async_fetch_card,
    fetch_card,
    generate_signer,
    sign_card,
)
from a2a_trust.client import CardCache, UnverifiedCardError
from a2a_trust.client.memory import VolatileCardMemory
from a2a_trust.client.memory_store import SqliteCardMemory
from a2a_trust.client.verification import FetchOptions
from a2a_trust.errors import (
    CardMemoryError,
    CardMemoryUnavailableError,
    RolledBackCardError,
    UnsignedCardError,
    UntrustedCardError,
)
from tests.base.net.test_fetcher import Authority, Names
from tests.client.agents import NEW, OWNER, Agent, Page, card_of, serving_agent, signed

VICTIM, EVIL = "127.0.0.1", "localhost"
MALLORY = generate_signer("ES256", kid="mallory")
TRUST = TrustStore(
    [
        TrustedKey(key=OWNER.public_key, origins=Origins(VICTIM)),
        TrustedKey(key=MALLORY.public_key, origins=Origins(EVIL)),
    ]
)
Ask = Callable[..., None]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def agent(authority: Authority) -> Iterator[Agent]:
    with serving_agent(authority.server(VICTIM, EVIL)) as running:
        yield running


@pytest.fixture(params=["fetched", "fetched in a loop", "passing", "passing in a loop"])
def ask(request: pytest.FixtureRequest, agent: Agent, authority: Authority) -> Ask:
    """The client asks a host for its card; it raises what the card was refused for."""
    cache = CardCache()

    def fetched(host: str, memory: Any = None) -> None:
        fetcher = Fetcher(
            private_origins=[agent.origin(VICTIM), agent.origin(EVIL)],
            ssl_context=authority.client(),
            resolver=Names(localhost=[["127.0.0.1"]]),
        )
        options: Any = {"fetcher": fetcher, "memory": memory, "cache": cache}
        if "loop" in request.param:
            asyncio.run(async_fetch_card(agent.origin(host), TRUST, options=FetchOptions(**options)))
        else:
            fetch_card(agent.origin(host), TRUST, options=FetchOptions(**options))

    def passing(host: str, memory: Any = None) -> None:
        url, tls = agent.origin(host) + NEW, authority.client()

        async def in_loop() -> None:
            inner = httpx.AsyncHTTPTransport(verify=tls)
            async with httpx.AsyncClient(transport=AsyncVerifyingTransport(inner, TRUST, memory=memory)) as http:
                await http.get(url)

        try:
            if "loop" in request.param:
                asyncio.run(in_loop())
            else:
                transport = VerifyingTransport(httpx.HTTPTransport(verify=tls), TRUST, memory=memory)
                with httpx.Client(transport=transport) as http:
                    http.get(url)
        except UnverifiedCardError as error:
            raise error.__cause__ or error from None

    return passing if "passing" in request.param else fetched


def refused(ask: Ask, error: type[Exception], host: str, memory: Any = None, match: str | None = None) -> None:
    with pytest.raises(error, match=match) as caught:
        ask(host, memory)
    assert type(caught.value) is error


def test_control_each_host_with_its_own_card(agent: Agent, ask: Ask) -> None:
    for host, key in ((VICTIM, OWNER), (EVIL, MALLORY)):
        agent.pages[NEW] = signed(card_of(agent.origin(host)), by=key)
        ask(host, VolatileCardMemory())


def test_the_card_of_one_host_is_served_by_another(agent: Agent, ask: Ask) -> None:
    agent.pages[NEW] = signed(card_of(agent.origin(VICTIM)))
    refused(ask, UntrustedCardError, EVIL)


def test_the_card_of_one_host_is_signed_anew_by_another(agent: Agent, ask: Ask) -> None:
    """With a key that is trusted, for other hosts than those of the interfaces."""
    agent.pages[NEW] = signed(card_of(agent.origin(VICTIM)), by=MALLORY)
    refused(ask, UntrustedCardError, EVIL)
    refused(ask, UntrustedCardError, VICTIM)


def test_both_signatures_on_a_card_of_the_victim_help_the_attacker_nothing(agent: Agent, ask: Ask) -> None:
    document = json.loads(signed(card_of(agent.origin(VICTIM))))
    document["signatures"] += json.loads(signed(card_of(agent.origin(VICTIM)), by=MALLORY))["signatures"]
    agent.pages[NEW] = json.dumps(document).encode()
    refused(ask, UntrustedCardError, EVIL)
    ask(VICTIM)


def test_an_older_card_after_a_newer_one(agent: Agent, ask: Ask) -> None:
    memory, now = VolatileCardMemory(), time.time()
    origin = agent.origin(VICTIM)
    for version, age in (("1.0.0", 200), ("2.0.0", 100)):
        agent.pages[NEW] = signed(card_of(origin, version=version), iat=now - age)
        ask(VICTIM, memory)
    for old in (signed(card_of(origin, version="1.0.0"), iat=now - 200), undated(origin)):
        for headers in ({}, {"Cache-Control": "max-age=9999", "ETag": '"new"'}):
            agent.pages[NEW] = Page(body=old, headers=headers)
            refused(ask, RolledBackCardError, VICTIM, memory)
    agent.pages[NEW] = signed(card_of(origin, version="2.0.0"), iat=now - 100)
    ask(VICTIM, memory)


def undated(origin: str) -> bytes:
    """A card from before its owner wrote ``iat``."""
    return json.dumps(sign_card(card_of(origin), OWNER, iat=False).card).encode()


def test_an_older_card_with_a_newer_signature_that_is_not_good(agent: Agent, ask: Ask) -> None:
    """``iat`` counts only where it was signed: not in an entry of the same kid that proves nothing."""
    memory, now, origin = VolatileCardMemory(), time.time(), agent.origin(VICTIM)
    new = signed(card_of(origin, version="2.0.0"), iat=now - 100)
    agent.pages[NEW] = new
    ask(VICTIM, memory)
    old = json.loads(signed(card_of(origin, version="1.0.0"), iat=now - 200))
    good = old["signatures"]
    for entry in (json.loads(new)["signatures"][0], {**good[0], "header": {"iat": now}}):
        for entries in ([entry, *good], [*good, entry]):
            agent.pages[NEW] = json.dumps({**old, "signatures": entries}).encode()
            refused(ask, RolledBackCardError, VICTIM, memory)


def test_a_card_from_the_future_does_not_lock_out_its_successors(agent: Agent, ask: Ask) -> None:
    memory, now, origin = VolatileCardMemory(), time.time(), agent.origin(VICTIM)
    agent.pages[NEW] = signed(card_of(origin), iat=now + 3600)
    refused(ask, CardVerificationError, VICTIM, memory, "in the future")
    assert memory.records() == ()
    agent.pages[NEW] = signed(card_of(origin), iat=now)
    ask(VICTIM, memory)


def test_an_unsigned_card_after_a_signed_one(agent: Agent, ask: Ask) -> None:
    memory, origin = VolatileCardMemory(), agent.origin(VICTIM)
    for unsigned in (card_of(origin), {**card_of(origin), "signatures": []}, {**card_of(origin), "signatures": None}):
        agent.pages[NEW] = json.dumps(unsigned).encode()
        refused(ask, UnsignedCardError, VICTIM, match="^the card is not signed: ")
    agent.pages[NEW] = signed(card_of(origin))
    ask(VICTIM, memory)
    for unsigned in (card_of(origin), {**card_of(origin), "signatures": []}, {**card_of(origin), "signatures": {}}):
        agent.pages[NEW] = json.dumps(unsigned).encode()
        refused(ask, UnsignedCardError, VICTIM, memory, "may have been removed")


def test_what_the_attacker_serves_at_his_own_host_says_nothing_about_the_victims(agent: Agent, ask: Ask) -> None:
    memory, now = VolatileCardMemory(), time.time()
    agent.pages[NEW] = signed(card_of(agent.origin(EVIL)), by=MALLORY, iat=now)
    ask(EVIL, memory)
    agent.pages[NEW] = signed(card_of(agent.origin(VICTIM)), iat=now - 1000)
    ask(VICTIM, memory)
    assert len(memory.records()) == 2


def test_a_memory_that_is_out_of_order_lets_nothing_through(agent: Agent, ask: Ask, tmp_path: Path) -> None:
    memory = SqliteCardMemory(tmp_path / "cards.db", create=True)
    agent.pages[NEW] = signed(card_of(agent.origin(VICTIM)))
    ask(VICTIM, memory)
    for file in tmp_path.iterdir():
        file.unlink()
    refused(ask, CardMemoryUnavailableError, VICTIM, memory)
    assert not issubclass(CardMemoryUnavailableError, CardMemoryError)
