"""Channels to the gRPC interface of a verified card: where they lead, and which credentials calls have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from a2a_trust import TrustStore, VerifiedCard, generate_signer, sign_card, verify_card
from a2a_trust.client import ApiKey, BearerToken
from a2a_trust.client.grpc import grpc_channel
from a2a_trust.errors import CardVerificationError, ConfigurationError, MissingCredentialsError, TrustError
from a2a_trust.keys import Origins, TrustedKey
from tests.grpc_service import GOOD, POOR, Client, Service, card, guarded, outcome, request, serving

pytestmark = pytest.mark.anyio
SIGNER = generate_signer()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Trust:
    """Keys that can be revoked."""

    def __init__(self) -> None:
        self.is_revoked = False

    def trust_store(self) -> TrustStore:
        hosts = Origins("127.0.0.1", "localhost", "agent.example")
        return TrustStore([TrustedKey(key=SIGNER.public_key, origins=hosts, revoked=self.is_revoked)])


def verified(*urls: str, host: str = "127.0.0.1") -> VerifiedCard:
    named = [{"url": url, "protocolBinding": "GRPC", "protocolVersion": "1.0"} for url in urls]
    other = {"url": f"https://{host}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    signed = sign_card(card(supportedInterfaces=[other, *named]), SIGNER)
    return verify_card(signed.card, Trust(), origin=f"https://{host}")


class Keys:
    """Gives one key after the other."""

    def __init__(self, *keys: str) -> None:
        self.keys, self.asked = keys, 0

    def __call__(self) -> str:
        self.asked += 1
        return self.keys[min(self.asked, len(self.keys)) - 1]


async def call(name: str, given: VerifiedCard, key: Any, port: int, trust: Any = None) -> str:
    origin = f"http://127.0.0.1:{port}"
    async with grpc_channel(given, {"key": ApiKey(key, origins=[origin])}, trust=trust or Trust()) as channel:
        return await outcome(Client(channel, port).method(name))


@pytest.fixture
async def agent() -> AsyncIterator[tuple[Service, Client]]:
    service = Service()
    async with serving(guarded(), service.handler()) as client:
        yield service, client


@pytest.mark.parametrize("name", ["SendMessage", "SendStreamingMessage"])
async def test_a_call_has_the_credential_that_is_renewed_once(agent: tuple[Service, Client], name: str) -> None:
    service, client = agent
    given = verified(f"http://127.0.0.1:{client.port}/a2a/grpc")
    for keys, expected, asked in (
        ((GOOD,), "OK", 1),
        (("wrong", GOOD), "OK", 2),
        (("wrong", "wrong"), "UNAUTHENTICATED", 2),
        (("wrong", "wronger", GOOD), "UNAUTHENTICATED", 2),
        ((POOR,), "PERMISSION_DENIED", 1),
    ):
        key = Keys(*keys)
        assert await call(name, given, key, client.port) == expected
        assert key.asked == asked
    assert service.calls == 2
    assert await call(name, given, "wrong", client.port) == "UNAUTHENTICATED"


@pytest.mark.parametrize("url", ["grpc://127.0.0.1:{}", "127.0.0.1:{}", "http://127.0.0.1:{}"])
async def test_every_form_of_a_url_leads_to_its_target(agent: tuple[Service, Client], url: str) -> None:
    given = verified("https://agent.example/a2a", url.format(agent[1].port), host="127.0.0.1")
    origin = f"http://127.0.0.1:{agent[1].port}"
    named = url.format(agent[1].port)
    async with grpc_channel(given, {"key": ApiKey(GOOD, origins=[origin])}, named, trust=Trust()) as channel:
        assert await outcome(Client(channel, 0).method()) == "OK"


async def test_no_call_is_sent_without_a_whole_alternative(agent: tuple[Service, Client]) -> None:
    given = verified(f"http://127.0.0.1:{agent[1].port}")
    elsewhere = {"key": ApiKey(GOOD, origins=["https://other.example"])}
    for credentials in ({}, elsewhere):
        async with grpc_channel(given, credentials, trust=Trust()) as channel:
            for name in ("SendMessage", "SendStreamingMessage"):
                with pytest.raises(MissingCredentialsError):
                    await outcome(Client(channel, 0).method(name))
    assert agent[0].calls == 0


async def test_the_key_of_the_program_is_replaced_in_metadata(agent: tuple[Service, Client]) -> None:
    given = verified(f"http://127.0.0.1:{agent[1].port}")
    origins = [f"http://127.0.0.1:{agent[1].port}"]
    async with grpc_channel(given, {"key": ApiKey(GOOD, origins=origins)}, trust=Trust()) as channel:
        assert await outcome(Client(channel, 0).method(), [("x-api-key", "other"), ("x-trace", "1")]) == "OK"
    assert ("x-trace", "1") in {(each[0], each[1]) for each in agent[0].context.invocation_metadata()}


async def test_a_channel_ends_with_the_verification(agent: tuple[Service, Client]) -> None:
    given, trust = verified(f"http://127.0.0.1:{agent[1].port}"), Trust()
    origins = [f"http://127.0.0.1:{agent[1].port}"]
    key = Keys(GOOD)
    async with grpc_channel(given, {"key": ApiKey(key, origins=origins)}, trust=trust) as channel:
        assert await outcome(Client(channel, 0).method()) == "OK"
        trust.is_revoked = True
        for name in ("SendMessage", "SendStreamingMessage"):
            with pytest.raises(TrustError):
                await outcome(Client(channel, 0).method(name))
    assert (agent[0].calls, key.asked) == (1, 1)


def test_a_url_that_the_card_does_not_name_gets_no_channel() -> None:
    given = verified("https://agent.example:50051", host="agent.example")
    for url in ("https://agent.example:50052", "agent.example:50051", "https://agent.example/rpc"):
        with pytest.raises(CardVerificationError, match="names no interface of gRPC"):
            grpc_channel(given, {}, url, trust=Trust())
    with pytest.raises(CardVerificationError, match="names no interface of gRPC"):
        grpc_channel(verified(), {}, trust=Trust())


@pytest.mark.parametrize("url", ["http://agent.example:50051", "grpc://agent.example:50051"])
def test_plain_text_is_for_this_machine_only(url: str) -> None:
    with pytest.raises(CardVerificationError, match="not encrypted"):
        grpc_channel(verified(url, host="agent.example"), {}, trust=Trust())


def test_wrong_arguments_are_errors() -> None:
    with pytest.raises(ConfigurationError, match="VerifiedCard"):
        grpc_channel(card(), {}, trust=Trust())  # type: ignore[arg-type]


async def test_a_proof_of_dpop_has_no_place(agent: tuple[Service, Client]) -> None:
    named = f"http://127.0.0.1:{agent[1].port}"
    demands = {"securitySchemes": {"key": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}}
    interfaces = [{"url": named, "protocolBinding": "GRPC", "protocolVersion": "1.0"}]
    signed = sign_card(card(supportedInterfaces=interfaces, **demands), SIGNER)
    given = verify_card(signed.card, Trust(), origin="https://127.0.0.1")
    token = BearerToken("token", origins=[named], dpop=generate_signer())
    async with grpc_channel(given, {"key": token}, trust=Trust()) as channel:
        with pytest.raises(ConfigurationError, match="proof of DPoP"):
            await Client(channel, 0).method()(request())


async def test_a_call_in_plain_text_does_not_pass_a_proxy(
    agent: tuple[Service, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC takes the proxy of the environment for every target, also for this machine."""
    seen: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read(4_096))
        writer.close()

    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        given = verified(f"http://127.0.0.1:{agent[1].port}")
        assert await call("SendMessage", given, GOOD, agent[1].port) == "OK"
    assert seen == []
