"""``verifying_client`` in one process with the agent: what goes along with which request."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from a2a_trust import ConfigurationError
from a2a_trust.client import (
    ApiKey,
    CredentialsError,
    CredentialsRejectedError,
    UnverifiedCardError,
    VolatileCardMemory,
    sync_verifying_client,
    sync_verifying_clients,
    verifying_client,
    verifying_clients,
)
from a2a_trust.errors import UntrustedCardError
from tests.base.net.test_fetcher import Authority
from tests.client.agents import NEW, Agent, Asked, Page, card_of, serving_agent, signed, trusting

pytestmark = pytest.mark.anyio

KEY: Final = "key-4f1b9d"
#: Where a key may be, and how a request shows it.
PLACES: Final[dict[str, Callable[[Asked], str | None]]] = {
    "header": lambda asked: asked.headers.get("x-api-key"),
    "query": lambda asked: asked.path.partition("?X-API-Key=")[2],
    "cookie": lambda asked: asked.headers.get("cookie", "").removeprefix("X-API-Key="),
}


def demanding(agent: Agent, place: str, **members: Any) -> bytes:
    schemes = {"key": {"apiKeySecurityScheme": {"location": place, "name": "X-API-Key"}}}
    return signed(card_of(here(agent), securitySchemes=schemes, **members))


def here(agent: Agent) -> str:
    return agent.origin("127.0.0.1")


def client_of(agent: Agent, authority: Authority, folder: Path) -> httpx.AsyncClient:
    authorities = folder / "authority.pem"
    authorities.write_bytes(authority.certificate.public_bytes(Encoding.PEM))
    credentials = {"key": ApiKey(KEY, origins=[here(agent)])}
    return verifying_client(here(agent), trust=trusting("127.0.0.1"), credentials=credentials, authorities=authorities)


@pytest.mark.parametrize("place", PLACES)
async def test_the_key_goes_along_with_every_request_but_the_one_for_the_card(
    agent: Agent, authority: Authority, tmp_path: Path, place: str
) -> None:
    extended = demanding(agent, place, description="More.")
    agent.pages.update(
        {
            NEW: demanding(agent, place),
            "/rest/extendedAgentCard": extended,
            "/rpc": Page(body=b'{"jsonrpc":"2.0","id":1,"result":%b}' % extended),
            "/rest/tasks": Page(body=b"{}"),
        }
    )
    async with client_of(agent, authority, tmp_path) as http:
        public = await http.get(f"{here(agent)}{NEW}")
        by_rest = await http.get(f"{here(agent)}/rest/extendedAgentCard")
        call = {"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"}
        by_rpc = await http.post(f"{here(agent)}/rpc", json=call)
        await http.get(f"{here(agent)}/rest/tasks")
    assert public.json()["description"] == "Books invoices."
    assert by_rest.json()["description"] == by_rpc.json()["result"]["description"] == "More."
    shown = [(asked.path.partition("?")[0], PLACES[place](asked) or None) for asked in agent.asked]
    keyed = [("/rest/extendedAgentCard", KEY), ("/rpc", KEY), ("/rest/tasks", KEY)]
    assert shown == [(NEW, None), *keyed]  # the program's card is the client's, too


async def test_requests_at_once_are_all_answered(agent: Agent, authority: Authority, tmp_path: Path) -> None:
    agent.pages.update({NEW: demanding(agent, "header"), "/rpc": Page(body=b"{}")})
    async with client_of(agent, authority, tmp_path) as http:
        answers = await asyncio.gather(*[http.post(f"{here(agent)}/rpc", json={}) for _ in range(20)])
    assert [answer.status_code for answer in answers] == [200] * 20
    assert [PLACES["header"](asked) for asked in agent.asked if asked.path == "/rpc"] == [KEY] * 20


async def test_the_key_does_not_follow_a_redirect(agent: Agent, authority: Authority, tmp_path: Path) -> None:
    with serving_agent(authority.server("127.0.0.1")) as other:
        other.pages.update({"/rpc": Page(body=b"{}"), NEW: signed(card_of(here(other)))})
        agent.pages.update(
            {
                NEW: demanding(agent, "header"),
                "/rpc": Page(status=307, headers={"Location": f"{here(other)}/rpc"}),
            }
        )
        async with client_of(agent, authority, tmp_path) as http:
            answer = await http.post(f"{here(agent)}/rpc", json={}, follow_redirects=True)
        assert answer.status_code == 200
        assert [PLACES["header"](asked) for asked in agent.asked] == [None, KEY]
        assert "/rpc" in other.paths()
        assert not any(KEY in str(asked) for asked in other.asked)


async def test_after_a_401_the_card_is_fetched_again(agent: Agent, authority: Authority, tmp_path: Path) -> None:
    agent.pages.update({NEW: demanding(agent, "header"), "/rpc": lambda asked: Page(status=status_for(asked))})

    def status_for(asked: Asked) -> int:
        return 200 if PLACES["cookie"](asked) == KEY else 401

    async with client_of(agent, authority, tmp_path) as http:
        with pytest.raises(CredentialsRejectedError):
            await http.post(f"{here(agent)}/rpc", json={})
        agent.pages[NEW] = demanding(agent, "cookie")
        assert (await http.post(f"{here(agent)}/rpc", json={})).status_code == 200


async def test_requests_that_begin_at_once_share_one_fetch_of_the_card(
    agent: Agent, authority: Authority, tmp_path: Path
) -> None:
    def card(asked: Asked) -> Page:
        time.sleep(0.2)  # a request that begins later finds the card
        return Page(body=demanding(agent, "header"))

    agent.pages |= {NEW: card, "/rpc": Page(body=b"{}")}
    async with client_of(agent, authority, tmp_path) as http:
        answers = await asyncio.gather(*[http.post(f"{here(agent)}/rpc", json={}) for _ in range(20)])
        assert [each.status_code for each in answers] == [200] * 20
        assert agent.paths().count(NEW) == 1


async def test_who_waits_for_a_card_in_vain_asks_once_more_and_not_in_a_row(
    agent: Agent, authority: Authority, tmp_path: Path
) -> None:
    came, in_vain = [0], threading.Condition()

    def card(asked: Asked) -> Page:
        with in_vain:
            came[0] += 1
            in_vain.notify_all()
            if came[0] > 1:  # one asks for all, and in vain; those who waited ask at once
                assert in_vain.wait_for(lambda: came[0] > 2, 60)
        return Page(status=500)

    agent.pages[NEW] = card
    async with client_of(agent, authority, tmp_path) as http:
        asking = [http.post(f"{here(agent)}/rpc", json={}) for _ in range(8)]
        errors = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(each) for each in errors] == [CredentialsError] * 8
    assert came[0] > 2
    assert "/rpc" not in agent.paths()


async def test_when_the_request_that_fetches_the_card_is_cancelled_the_next_one_fetches_it_for_all(
    agent: Agent, authority: Authority, tmp_path: Path
) -> None:
    came, cancelled = threading.Event(), threading.Event()

    def card(asked: Asked) -> Page:
        came.set()
        assert cancelled.wait(60)
        return Page(body=demanding(agent, "header"))

    agent.pages |= {NEW: card, "/rpc": Page(body=b"{}")}
    async with client_of(agent, authority, tmp_path) as http:
        first, *others = [asyncio.create_task(http.post(f"{here(agent)}/rpc", json={})) for _ in range(8)]
        assert await asyncio.to_thread(came.wait, 60)
        first.cancel()
        await asyncio.wait([first])
        cancelled.set()
        answers = await asyncio.gather(*others)
    assert [each.status_code for each in answers] == [200] * 7
    assert agent.paths().count(NEW) == 2


async def test_a_skill_that_the_card_lacks_stops_requests_and_not_the_card(
    agent: Agent, authority: Authority, tmp_path: Path
) -> None:
    agent.pages |= {NEW: demanding(agent, "header"), "/rpc": Page(body=b"{}")}
    authorities = tmp_path / "authority.pem"
    authorities.write_bytes(authority.certificate.public_bytes(Encoding.PEM))
    async with verifying_client(
        here(agent), trust=trusting("127.0.0.1"), credentials={}, skills=["gone"], authorities=authorities
    ) as http:
        assert (await http.get(f"{here(agent)}{NEW}")).status_code == 200
        with pytest.raises(
            CredentialsError, match="the request is not sent: skills: the card has no skill with the id"
        ):
            await http.post(f"{here(agent)}/rpc", json={})
    assert agent.paths() == [NEW]


async def test_after_a_401_to_a_request_without_credentials_the_card_is_fetched_again(
    agent: Agent, authority: Authority, tmp_path: Path
) -> None:
    agent.pages |= {NEW: demanding(agent, "header"), "/rpc": Page(body=b"{}"), "/other": Page(status=401)}
    authorities = tmp_path / "authority.pem"
    authorities.write_bytes(authority.certificate.public_bytes(Encoding.PEM))
    async with verifying_client(
        here(agent),
        trust=trusting("127.0.0.1"),
        credentials={"key": ApiKey(KEY, origins=[here(agent)])},
        authorities=authorities,
        also=[f"{here(agent)}/other"],
    ) as http:
        assert (await http.post(f"{here(agent)}/other")).status_code == 401
        assert (await http.post(f"{here(agent)}/rpc")).status_code == 200
    assert agent.paths() == [NEW, "/other", NEW, "/rpc"]
    assert [PLACES["header"](asked) for asked in agent.asked] == [None, None, None, KEY]


def bundle_of(authority: Authority, folder: Path) -> Path:
    (folder / "authority.pem").write_bytes(authority.certificate.public_bytes(Encoding.PEM))
    return folder / "authority.pem"


def test_a_program_without_asyncio_has_the_same_client(agent: Agent, authority: Authority, tmp_path: Path) -> None:
    agent.pages.update({NEW: demanding(agent, "header"), "/rpc": Page(body=b"{}")})
    credentials = {"key": ApiKey(KEY, origins=[here(agent)])}
    bundle = bundle_of(authority, tmp_path)
    with sync_verifying_client(
        here(agent), trust=trusting("127.0.0.1"), credentials=credentials, authorities=bundle
    ) as http:
        assert isinstance(http, httpx.Client)
        assert [http.post(f"{here(agent)}/rpc", json={}).status_code for _ in range(2)] == [200, 200]
        assert agent.paths() == [NEW, "/rpc", "/rpc"]
        assert [PLACES["header"](asked) for asked in agent.asked] == [None, KEY, KEY]
        agent.pages["/rpc"] = Page(status=401)
        with pytest.raises(CredentialsRejectedError) as rejected:
            http.post(f"{here(agent)}/rpc", json={})
        assert (rejected.value.schemes, rejected.value.response.status_code) == (("key",), 401)
        with pytest.raises(UnverifiedCardError, match="localhost"):
            http.post(f"{agent.origin('localhost')}/rpc", json={})


def test_a_program_without_asyncio_cannot_give_an_async_function(
    agent: Agent, authority: Authority, tmp_path: Path
) -> None:
    async def key() -> str:
        raise AssertionError("it was called")

    agent.pages.update({NEW: demanding(agent, "header"), "/rpc": Page(body=b"{}")})
    with (
        sync_verifying_client(
            here(agent),
            trust=trusting("127.0.0.1"),
            credentials={"key": ApiKey(key, origins=[here(agent)])},
            authorities=bundle_of(authority, tmp_path),
        ) as http,
        pytest.raises(ConfigurationError, match="an async function is for"),
    ):
        http.post(f"{here(agent)}/rpc", json={})


async def test_several_agents_have_one_memory_and_their_own_keys(
    agent: Agent, authority: Authority, tmp_path: Path
) -> None:
    with serving_agent(authority.server("127.0.0.1")) as other:
        memory = VolatileCardMemory()
        for each in (agent, other):
            each.pages.update({NEW: demanding(each, "header"), "/rpc": Page(body=b"{}")})
        clients = verifying_clients(
            {here(each): {"key": ApiKey(f"{KEY}-{each.port}", origins=[here(each)])} for each in (agent, other)},
            trust=trusting("127.0.0.1"),
            memory=memory,
            authorities=bundle_of(authority, tmp_path),
        )
        assert list(clients) == [here(agent), here(other)]
        for each in (agent, other):
            async with clients[here(each)] as http:
                assert (await http.post(f"{here(each)}/rpc", json={})).status_code == 200
            assert [PLACES["header"](asked) for asked in each.asked] == [None, f"{KEY}-{each.port}"]
        assert sorted(each.location for each in memory.records()) == sorted(map(here, (agent, other)))


def test_the_agents_of_a_program_share_its_trust(agent: Agent, authority: Authority, tmp_path: Path) -> None:
    agent.pages.update({NEW: demanding(agent, "header"), "/rpc": Page(body=b"{}")})
    clients = sync_verifying_clients(
        {here(agent): {"key": ApiKey(KEY, origins=[here(agent)])}},
        trust=trusting("elsewhere.example"),
        authorities=bundle_of(authority, tmp_path),
    )
    with clients[here(agent)] as http, pytest.raises(UnverifiedCardError) as rejected:
        http.post(f"{here(agent)}/rpc", json={})
    assert isinstance(rejected.value.__cause__, UntrustedCardError)
    assert agent.paths() == [NEW]


@pytest.mark.parametrize("clients", [verifying_clients, sync_verifying_clients])
def test_a_wrong_option_of_several_agents_is_said_at_once(clients: Any) -> None:
    with pytest.raises(ConfigurationError, match="agents: write"):
        clients("https://a.example", trust=trusting("a.example"))
    with pytest.raises(TypeError, match="unexpected keyword argument 'memmory'"):
        clients({"https://a.example": {}}, trust=trusting("a.example"), memmory=None)
    with pytest.raises(ConfigurationError, match="credentials"):
        clients({"https://a.example": {"key": "secret-key"}}, trust=trusting("a.example"))
