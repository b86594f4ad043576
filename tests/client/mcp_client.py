"""A program that uses the client of the MCP SDK, which is on httpx2, with one line of ours; and the agent for it.

The agent is an MCP server behind ``protect``, whose card names its URL. The program reads cases as JSON from its input,
and writes what came of each.

Run by the interpreter of an environment with the MCP SDK, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import uvicorn
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer

from a2a_trust import ApiKeyVerifier, Origins, TrustedKey, TrustStore, generate_signer, protect
from a2a_trust.auth import MemoryApiKeys
from a2a_trust.client import ApiKey
from a2a_trust.client.httpx2 import verifying_client
from a2a_trust.middleware import CardServing

OWNER, OTHER = generate_signer("ES256", kid="owner"), generate_signer("ES256", kid="other")


def agent(url: str, keys: MemoryApiKeys) -> Any:
    server = MCPServer("ledger")

    def book(text: str) -> str:
        return f"booked {text}"

    server.add_tool(book)
    card = {
        "name": "Ledger",
        "description": "Books invoices.",
        "version": "1.0.0",
        "supportedInterfaces": [{"url": f"{url}/mcp", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "book", "name": "Book", "description": "Books an invoice.", "tags": ["ledger"]}],
        "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
        "securityRequirements": [{"schemes": {"key": {}}}],
    }
    verifiers = {"key": ApiKeyVerifier(keys)}
    return protect(server.streamable_http_app(), card=card, verifiers=verifiers, serving=CardServing(signer=OWNER))


async def program(http: httpx2.AsyncClient, url: str) -> str:
    """The program as it was before."""
    async with (
        streamable_http_client(f"{url}/mcp", http_client=http) as streams,
        ClientSession(*streams[:2]) as session,
    ):
        await session.initialize()
        result = await session.call_tool("book", {"text": "invoice 1"})
        return str(result.content[0].text)


def leaves(error: BaseException) -> Iterator[BaseException]:
    for each in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        yield from leaves(each)
    if not isinstance(error, BaseExceptionGroup):
        yield error


async def run(case: dict[str, Any], url: str, secret: str) -> dict[str, Any]:
    trusted = OWNER if case["trusted"] else OTHER
    trust = TrustStore([TrustedKey(key=trusted.public_key, origins=Origins("127.0.0.1"))])
    credentials = {"key": ApiKey(secret if case["known"] else "another-key", origins=[url])}
    try:
        async with verifying_client(url, trust=trust, credentials=credentials) as http:  # the one line
            return {"answer": await program(http, url), "errors": []}
    except Exception as error:  # noqa: BLE001  the SDK has groups of them
        return {"answer": None, "errors": [type(each).__name__ for each in leaves(error)]}


def main() -> None:
    keys = MemoryApiKeys()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(agent(url, keys), log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            secret = keys.create(owner="ann").text
            outcomes = [asyncio.run(run(case, url, secret)) for case in json.load(sys.stdin)]
        finally:
            server.should_exit = True
            thread.join()
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
