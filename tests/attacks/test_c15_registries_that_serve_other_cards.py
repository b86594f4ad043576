"""C15: a registry serves another card than the agent's, for its URL. It is trusted for availability only.

Five ways: signed with the key of another host, an old card, a stripped one, the card of another agent, and one that is
signed with the key of the registry itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import httpx
import pytest

from a2a_trust import Fetcher, Origins, TrustedKey, TrustStore, VerifyingTransport, fetch_card
from a2a_trust.client import ApiKey, FetchOptions, VolatileCardMemory, verifying_client
from a2a_trust.errors import (
    CardVerificationError,
    RolledBackCardError,
    TrustError,
    UntrustedCardError,
)
from tests.client.agents import OWNER
from tests.client.registry import (
    AGENTS,
    KEYS,
    REGISTRY_KEY,
    TRUST,
    Registry,
    agent_url,
    card_bytes,
    serving_registry,
)

BAD: Final = (7, 2)
SECRET: Final = "key-9c04d1"


def stripped() -> bytes:
    card = json.loads(card_bytes(*BAD))
    del card["securityRequirements"]
    return json.dumps(card).encode()


#: What the registry serves, and why it is rejected.
WAYS: Final[dict[str, tuple[Callable[[], bytes], type[TrustError], str]]] = {
    "other host's key": (lambda: card_bytes(*BAD, by=KEYS[6]), UntrustedCardError, "agent-7.test"),
    "old": (lambda: card_bytes(*BAD, iat=1_600_000_000), RolledBackCardError, "older card"),
    "stripped": (stripped, CardVerificationError, "is not signed|not verified|signature"),
    "another agent's card": (lambda: card_bytes(6, 2), CardVerificationError, "agent-7.test"),
    "another agent of the host": (lambda: card_bytes(7, 3), CardVerificationError, "names no interface at"),
    "key of the registry": (lambda: card_bytes(*BAD, by=REGISTRY_KEY), UntrustedCardError, "agent-7.test"),
}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving_registry() as running:
        yield running


def errors_of(error: BaseException | None) -> list[BaseException]:
    return [] if error is None else [error, *errors_of(error.__cause__)]


@pytest.mark.parametrize("way", WAYS)
def test_fetch_card_rejects_the_bad_card_and_no_other(registry: Registry, way: str) -> None:
    bad, kind, text = WAYS[way]
    options = FetchOptions(fetcher=Fetcher(private_origins=[registry.url], timeout=60), memory=VolatileCardMemory())

    def fetch(number: int, part: int) -> Any:
        return fetch_card(registry.card_url(number, part), TRUST, options, origin=agent_url(number, part))

    assert all(fetch(*each).origin == f"agent-{each[0]}.test" for each in AGENTS)
    registry.cards[BAD] = bad()
    with pytest.raises(kind, match=text):
        fetch(*BAD)
    assert all(fetch(*each).origin for each in AGENTS if each != BAD)


@pytest.mark.parametrize("kind", ["transport", "client"])
@pytest.mark.parametrize("way", WAYS)
def test_clients_send_nothing_by_it(registry: Registry, way: str, kind: str) -> None:
    bad, error_class, _ = WAYS[way]
    url, memory = agent_url(*BAD), VolatileCardMemory()
    options: Any = {"trust": TRUST, "memory": memory}
    fetching = FetchOptions(fetcher=Fetcher(private_origins=[registry.url], timeout=60), memory=memory)
    location = f"{url}/rpc" if kind == "transport" else url
    fetch_card(registry.card_url(*BAD), TRUST, fetching, origin=location)  # the newest card was seen before
    registry.cards[BAD] = bad()

    async def call_by_client() -> None:
        credentials = {"key": ApiKey(SECRET, origins=["https://agent-7.test"])}
        client = verifying_client(url, card=registry.card_url(*BAD), credentials=credentials, **options)
        async with client as http:
            await http.post(f"{url}/rpc", json={})

    def call() -> None:
        if kind == "client":
            asyncio.run(call_by_client())
        cards = {f"{url}/rpc": registry.card_url(*BAD)}
        with httpx.Client(transport=VerifyingTransport(httpx.HTTPTransport(), cards=cards, **options)) as http:
            http.post(f"{url}/rpc", json={})

    with pytest.raises(httpx.RequestError) as caught:
        call()
    assert any(isinstance(each, error_class) for each in errors_of(caught.value)), repr(caught.value)
    assert all(SECRET not in str(headers) for _, headers in registry.asked)


def test_a_key_for_all_hosts_of_a_company_does_not_mix_its_agents(registry: Registry) -> None:
    """The signature and the hosts are right: only the URL of the interface says whose card it is."""
    trust = TrustStore(
        [TrustedKey(key=key.public_key, origins=Origins("agent-7.test", "agent-6.test")) for key in KEYS]
    )
    options = FetchOptions(fetcher=Fetcher(private_origins=[registry.url], timeout=60))
    registry.cards[BAD] = card_bytes(6, 2)
    with pytest.raises(
        CardVerificationError, match=r"at https://agent-7\.test/2 or below it, but https://agent-6\.test/2/rpc: it is"
    ):
        fetch_card(registry.card_url(*BAD), trust, options, origin=agent_url(*BAD))


def test_an_old_card_is_old_at_every_place_of_the_registry(registry: Registry) -> None:
    """The memory keeps the agent, so another entry, or another registry, is no new beginning."""
    options = FetchOptions(fetcher=Fetcher(private_origins=[registry.url], timeout=60), memory=VolatileCardMemory())
    fetch_card(registry.card_url(*BAD), TRUST, options, origin=agent_url(*BAD))
    registry.cards[0, 0] = card_bytes(*BAD, iat=1_600_000_000)
    for ending in ("", ".json", "?new=1"):
        with pytest.raises(RolledBackCardError):
            fetch_card(f"{registry.card_url(0, 0)}{ending}", TRUST, options, origin=agent_url(*BAD))


def test_the_registry_is_not_asked_for_keys(registry: Registry) -> None:
    """With the registry as its origin, the card would be one of the registry."""
    options = FetchOptions(fetcher=Fetcher(private_origins=[registry.url], timeout=60))
    registry.cards[BAD] = card_bytes(*BAD, by=OWNER)
    with pytest.raises(UntrustedCardError):
        fetch_card(registry.card_url(*BAD), TRUST, options, origin=agent_url(*BAD))
    assert [path for path, _ in registry.asked] == ["/cards/7/2"]
