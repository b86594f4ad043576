"""C8: an old card comes back at another location of the agent, where the client has not seen a newer one.

The attacker answers for folders of the host, from a copy of what the agent's owner once signed. The old card permits a
URL that the owner has retired, or demands less. The client searches folders upwards from the URL of its request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import httpx
import pytest

from a2a_trust import AsyncVerifyingTransport, VerifyingTransport
from a2a_trust.client import UnverifiedCardError
from a2a_trust.errors import CardMemoryUnavailableError, RolledBackCardError
from tests.client.agents import NEW, OLD, card_of, signed, trusting
from tests.client.memories import KINDS, Memory, memory_of

HOST: Final = "agent.test"
ORIGIN: Final = f"https://{HOST}"
RPC: Final = f"{ORIGIN}/team/rpc"
FOLDER: Final = f"/team{NEW}"
NOW: Final = time.time()


def card(age: float, *urls: str) -> bytes:
    """A card of the owner, signed so long ago, with these interfaces."""
    interfaces = [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"} for url in urls or (RPC,)]
    return signed(card_of(ORIGIN, supportedInterfaces=interfaces), iat=int(NOW - age))


LAST, BEFORE = card(10), card(5000)


class Client:
    """A program on httpx. ``start`` is a new process of it: only the memory has what was before."""

    def __init__(self, kind: str, memory: Any) -> None:
        self._kind, self._memory = kind, memory
        self.pages: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.start()

    def start(self) -> None:
        given: Any = (httpx.MockTransport(self._answer), trusting(HOST))
        self._transport: Any
        if self._kind == "sync":
            self._transport = VerifyingTransport(*given, memory=self._memory)
        else:
            self._transport = AsyncVerifyingTransport(*given, memory=self._memory)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.path)
        if request.method == "POST":
            return httpx.Response(200, content=b"{}")
        page = self.pages.get(request.url.path)
        return httpx.Response(404) if page is None else httpx.Response(200, content=page)

    def ask(self, method: str, url: str) -> httpx.Response:
        async def asked() -> httpx.Response:
            return await httpx.AsyncClient(transport=self._transport).request(method, url)

        if self._kind == "async":
            return asyncio.run(asked())
        return httpx.Client(transport=self._transport).request(method, url)

    def rejects(self, method: str, url: str) -> str:
        """The request is not sent, or the card not passed on, as the memory knows a newer card; the reason."""
        sent = self.asked.count(httpx.URL(url).path)
        with pytest.raises(UnverifiedCardError) as caught:
            self.ask(method, url)
        assert method == "GET" or self.asked.count(httpx.URL(url).path) == sent
        error: BaseException | None = caught.value
        while error is not None and not isinstance(error, RolledBackCardError):
            error = error.__cause__
        assert error is not None
        return str(error)


Make = Callable[[Any], Client]


@pytest.fixture(params=["sync", "async"])
def make(request: pytest.FixtureRequest) -> Make:
    return lambda memory: Client(request.param, memory)


@pytest.fixture(params=KINDS)
def memory(request: pytest.FixtureRequest) -> Memory:
    return memory_of(request)


def test_new_at_the_root_then_old_in_the_folder(make: Make, memory: Memory) -> None:
    client = make(memory)
    client.pages = {NEW: LAST}
    assert client.ask("POST", RPC).status_code == 200
    client.start()
    client.pages = {FOLDER: BEFORE, NEW: LAST}
    reason = client.rejects("POST", RPC)
    assert reason.startswith(f"{ORIGIN}/team: the card names {RPC}, as a card at {ORIGIN} did, and may be older ")
    assert reason.endswith(memory._hint("forget", ORIGIN))
    assert client.asked[-1] == FOLDER  # that ended the search
    client.start()
    client.pages = {NEW: LAST}
    assert client.ask("POST", RPC).status_code == 200


def test_new_in_the_folder_then_old_everywhere(make: Make, memory: Memory) -> None:
    client = make(memory)
    client.pages = {FOLDER: LAST}
    assert client.ask("POST", RPC).status_code == 200
    places = [FOLDER, f"/team{OLD}", NEW, OLD]
    for number, place in enumerate(places):  # everywhere; then only where the ones before are missing
        client.start()
        client.pages = dict.fromkeys(places[number:], BEFORE)
        client.rejects("POST", RPC)
        assert client.asked[-1] == place
        client.rejects("GET", ORIGIN + place)


def test_new_by_get_then_old_by_post(make: Make, memory: Memory) -> None:
    client = make(memory)
    client.pages = {NEW: LAST}
    assert client.ask("GET", ORIGIN + NEW).content == LAST
    client.start()
    client.pages = {FOLDER: BEFORE, NEW: BEFORE}
    client.rejects("POST", RPC)
    client.start()
    client.pages = {NEW: BEFORE}
    client.rejects("POST", RPC)


def test_an_old_card_brings_back_no_url_that_the_agent_has_retired(make: Make, memory: Memory) -> None:
    """The new card does not name the URL any more, and the old one is at another location."""
    client = make(memory)
    for page in (BEFORE, card(10, f"{ORIGIN}/v2")):
        client.pages = {NEW: page}
        client.ask("GET", ORIGIN + NEW)
    client.start()
    client.pages = {FOLDER: BEFORE}
    client.rejects("POST", RPC)


@pytest.mark.parametrize("url", [RPC, f"{ORIGIN}/team/other"])
def test_control_the_same_card_in_two_places_and_other_agents_are_not_concerned(
    make: Make, memory: Memory, url: str
) -> None:
    client = make(memory)
    client.pages = {NEW: LAST}
    client.ask("GET", ORIGIN + NEW)
    client.start()
    client.pages = {FOLDER: LAST if url == RPC else card(9000, url)}
    assert client.ask("POST", url).status_code == 200


def test_a_memory_that_is_out_of_reach_ends_the_search(make: Make) -> None:
    class Lost:
        def __len__(self) -> int:
            return 0  # an empty memory is not a missing one

        def admit(self, *_: Any, **__: Any) -> None:
            raise CardMemoryUnavailableError("the disk is gone")

        def expects_signature(self, url: str) -> bool:
            return False

    client = make(Lost())
    client.pages = {FOLDER: LAST, NEW: LAST}
    with pytest.raises(UnverifiedCardError, match="the disk is gone"):
        client.ask("POST", RPC)
    assert client.asked[-1] == FOLDER
