"""A program that uses the client of a2a-sdk 1.3.0, with and without one line of ours.

It reads cases as JSON from its input and writes what came of each.

Run by the interpreter of that SDK's own environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from typing import Any

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import GetExtendedAgentCardRequest, Message, Part, Role, SendMessageRequest

from a2a_trust import AsyncVerifyingTransport, Origins, TrustedKey, TrustStore
from a2a_trust.client.memory import VolatileCardMemory
from a2a_trust.keys import read_jwks


async def program(http: httpx.AsyncClient, url: str, do: str) -> str:
    """The program as it was before: what the agent says, or what is in its extended card."""
    config = ClientConfig(httpx_client=http, streaming=False, supported_protocol_bindings=["JSONRPC", "HTTP+JSON"])
    if do == "from_url":
        client = await ClientFactory(config).create_from_url(url)
    else:
        client = ClientFactory(config).create(await A2ACardResolver(http, url).get_agent_card())
    if do == "extended":
        extended = await client.get_extended_agent_card(GetExtendedAgentCardRequest())
        return str(extended.description)
    said = Message(message_id="1", role=Role.ROLE_USER, parts=[Part(text="hi")])
    return "".join(
        [event.message.parts[0].text async for event in client.send_message(SendMessageRequest(message=said))]
    )


async def run(case: dict[str, Any]) -> list[dict[str, Any]]:
    transport: httpx.AsyncBaseTransport = httpx.AsyncHTTPTransport(verify=ssl.create_default_context(cadata=case["ca"]))
    if case["proof"]:
        trust = TrustStore(
            TrustedKey(key=key, origins=Origins(host))
            for host, keys in case["trust"].items()
            for key in read_jwks(json.dumps(keys).encode()).keys
        )
        transport = AsyncVerifyingTransport(transport, trust, memory=VolatileCardMemory())  # the one line
    outcomes: list[dict[str, Any]] = []
    async with httpx.AsyncClient(transport=transport) as http:
        for _ in range(case["times"]):
            try:
                outcomes.append({"answer": await program(http, case["url"], case["do"]), "errors": []})
            except A2AClientError as error:
                chain: list[str] = []
                link: BaseException | None = error
                while link is not None:
                    chain.append(type(link).__name__)
                    link = link.__cause__
                outcomes.append({"answer": None, "errors": chain})
    return outcomes


async def main() -> None:
    print(json.dumps([await run(case) for case in json.load(sys.stdin)]))


if __name__ == "__main__":
    asyncio.run(main())
