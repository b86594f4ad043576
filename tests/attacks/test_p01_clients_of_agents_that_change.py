"""P1, by sockets: the agent that a client asks gets another key, goes back, or is somebody else from the first time on.

The rules themselves, one by one and without a network, are in the other P1; here they hold for ``fetch_card``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from a2a_trust import (
    CardVerificationError,
    Fetcher,
    SqliteCardMemory,
    TrustStore,
    VerifiedCard,
    async_fetch_card,
    fetch_card,
    generate_signer,
    publish_jwks,
)
from a2a_trust.client import TrustOnFirstUse
from a2a_trust.client.verification import FetchOptions
from a2a_trust.errors import PinnedKeyError, RolledBackCardError, UntrustedCardError
from a2a_trust.keys import LocalSigner
from tests.base.net.test_fetcher import Authority, Names
from tests.client.agents import NEW, OWNER, Agent, Asked, Page, card_of, serving_agent, signed, trusting

HOST = "agent.test"
KEY_SET = "/.well-known/jwks.json"
FIRST, SECOND = generate_signer("ES256", kid="agent"), generate_signer("ES256", kid="agent")
NOBODY = TrustStore([])
Ask = Callable[..., VerifiedCard]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def agent(authority: Authority) -> Iterator[Agent]:
    with serving_agent(authority.server(HOST)) as running:
        yield running


@pytest.fixture
def memory(tmp_path: Path) -> SqliteCardMemory:
    return SqliteCardMemory(tmp_path / "cards.db", create=True)


@pytest.fixture(params=["waits", "in a loop"])
def ask(request: pytest.FixtureRequest, agent: Agent, authority: Authority, memory: SqliteCardMemory) -> Ask:
    """A client with a memory asks the agent for its card, and trusts on first use."""

    def ask(trust: TrustStore = NOBODY) -> VerifiedCard:
        names = Names(agent_test=[["127.0.0.1"]])
        fetcher = Fetcher(private_origins=[agent.origin()], ssl_context=authority.client(), resolver=names)
        options: Any = {"fetcher": fetcher, "memory": memory, "on_first_use": TrustOnFirstUse()}
        if request.param == "waits":
            return fetch_card(agent.origin(), trust, options=FetchOptions(**options))
        return asyncio.run(async_fetch_card(agent.origin(), trust, options=FetchOptions(**options)))

    return ask


def serves(
    agent: Agent, key: LocalSigner, *, age: float = 0, published: LocalSigner | None = None, **card: Any
) -> None:
    """The agent has this key, says so, and has signed its card so long ago."""
    agent.pages = {
        NEW: signed(card_of(agent.origin(), **card), by=key, iat=time.time() - age),
        KEY_SET: json.dumps(publish_jwks([(published or key).public_key])).encode(),
    }


def test_another_key_than_the_first_one_is_refused_and_the_first_one_stays(
    agent: Agent, ask: Ask, memory: SqliteCardMemory
) -> None:
    serves(agent, FIRST, age=100)
    assert ask().on_first_use
    before = memory.records()
    serves(agent, SECOND)
    with pytest.raises(PinnedKeyError) as caught:
        ask()
    assert caught.value.presented == {SECOND.public_key.thumbprint}
    assert memory.records() == before
    serves(agent, FIRST)
    assert ask().key.thumbprint == FIRST.public_key.thumbprint


def test_a_key_that_the_trust_store_names_replaces_a_pin_silently_and_for_good(
    agent: Agent, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    serves(agent, SECOND)  # whoever was there first
    ask()
    caplog.clear()
    serves(agent, OWNER, age=1000)
    assert not ask(trusting(HOST)).on_first_use
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    serves(agent, SECOND)
    with pytest.raises(UntrustedCardError):  # the trust store says something of this host now
        ask(trusting(HOST))
    with pytest.raises(PinnedKeyError):  # and nobody is first once more where it has gone
        ask()


def test_the_first_key_serves_an_older_card_and_then_one_of_the_future(
    agent: Agent, ask: Ask, memory: SqliteCardMemory
) -> None:
    serves(agent, FIRST, age=100)
    ask()
    before = memory.records()
    serves(agent, FIRST, age=200)
    with pytest.raises(RolledBackCardError):
        ask()
    serves(agent, FIRST, age=-3600)
    with pytest.raises(CardVerificationError, match="future"):
        ask()
    assert memory.records() == before
    serves(agent, FIRST, age=99)
    assert ask().issued is not None


def test_a_lower_version_is_let_through_and_told(agent: Agent, ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    serves(agent, FIRST, age=100, version="2.0.0")
    ask()
    caplog.clear()
    serves(agent, FIRST, age=50, version="1.9.0")
    assert ask().card["version"] == "1.9.0"
    assert "the card's version is '1.9.0', and was '2.0.0' before" in caplog.text


def test_nothing_is_written_of_a_card_that_its_published_key_has_not_signed(
    agent: Agent, ask: Ask, memory: SqliteCardMemory
) -> None:
    elsewhere = [{"url": "https://evil.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
    serves(agent, SECOND, published=FIRST)
    with pytest.raises(CardVerificationError):
        ask()
    serves(agent, FIRST, supportedInterfaces=elsewhere)
    with pytest.raises(UntrustedCardError):
        ask()
    serves(agent, FIRST)
    agent.pages[NEW] = signed(card_of(agent.origin()), by=FIRST).replace(b"Ledger", b"Lodger")
    with pytest.raises(CardVerificationError):
        ask()
    assert memory.records() == ()


CLIENT = """
import json, ssl, sys
from pathlib import Path
from a2a_trust import Fetcher, FetchOptions, SqliteCardMemory, TrustStore, fetch_card
from a2a_trust.client import TrustOnFirstUse
from a2a_trust.errors import PinnedKeyError

folder, address, port = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
origins = [f"https://agent-{number}.test:{port}" for number in range(10)]

class Names:
    async def resolve(self, host, port):
        return [address]

fetcher = Fetcher(
    private_origins=origins,
    ssl_context=ssl.create_default_context(cafile=str(folder / "authority.pem")),
    resolver=Names(),
)
memory = SqliteCardMemory(folder / "cards.db", create=True, timeout=50)
print("ready", flush=True)
sys.stdin.readline()
for origin in origins:
    try:
        options = FetchOptions(fetcher=fetcher, memory=memory, on_first_use=TrustOnFirstUse())
        verified = fetch_card(origin, TrustStore([]), options)
    except PinnedKeyError as error:
        print(origin, "refused", *error.pinned)
    else:
        print(origin, "first", verified.key.thumbprint)
"""


def test_of_two_clients_that_are_first_at_once_the_one_who_was_led_astray_agrees_or_is_refused(
    authority: Authority, tmp_path: Path
) -> None:
    """Two processes with one memory: for one the name leads to the agent, for the other to somebody in its place."""
    (tmp_path / "authority.pem").write_bytes(authority.certificate.public_bytes(Encoding.PEM))
    tls = authority.server(*[f"agent-{number}.test" for number in range(10)])
    with serving_agent(tls) as agent, serving_agent(tls, "127.0.0.2", agent.port) as other:
        for served, key in ((agent, FIRST), (other, SECOND)):

            def card(asked: Asked, key: LocalSigner = key) -> Page:
                return Page(body=signed(card_of(f"https://{asked.headers['host']}"), by=key))

            served.pages = {NEW: card, KEY_SET: json.dumps(publish_jwks([key.public_key])).encode()}
        clients = [
            subprocess.Popen(
                [sys.executable, "-c", CLIENT, str(tmp_path), address, str(agent.port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for address in ("127.0.0.1", "127.0.0.2")
        ]
        for client in clients:
            assert client.stdout is not None
            assert client.stdout.readline() == "ready\n"
        for client in clients:
            assert client.stdin is not None
            client.stdin.write("go\n")
            client.stdin.flush()
        outputs = [client.communicate(timeout=60)[0] for client in clients]
    assert [client.returncode for client in clients] == [0, 0]
    told: dict[str, list[list[str]]] = {}
    for line in "".join(outputs).splitlines():
        origin, *rest = line.split()
        told.setdefault(origin, []).append(rest)
    remembered = {
        str(record.location): record.thumbprints for record in SqliteCardMemory(tmp_path / "cards.db").records()
    }
    assert len(told) == len(remembered) == 10
    for origin, both in told.items():
        (first, winner), (refused, pinned) = sorted(both)
        assert (first, refused) == ("first", "refused")
        assert remembered[origin] == {winner} == {pinned}  # they agree
