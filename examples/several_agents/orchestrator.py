"""Asks the catalog for a price, and orders. Each agent gets the key that is for it, after its card was verified.

Start it where ``a2a-trust[client]`` is installed, and the shop beside this file runs::

    python examples/several_agents/orchestrator.py lamp

Settings, all from the environment: ``SHOP_URL`` where the shop is called, ``TRUST`` the trust file for its cards,
``CATALOG_KEY`` and ``ORDERS_KEY`` the files with the keys.
"""

from __future__ import annotations

import asyncio
import os
import sys
from uuid import uuid4

import httpx

from a2a_trust import CardAuth, Fetcher, FetchOptions, TrustFile, async_fetch_card, verifying_client
from a2a_trust.client import ApiKey, SecretFile

URL = os.environ.get("SHOP_URL", "http://127.0.0.1:8000")
CATALOG, ORDERS = f"{URL}/catalog", f"{URL}/orders"

trust = TrustFile(os.environ.get("TRUST", "trust.toml"))
catalog_key = ApiKey(SecretFile(os.environ.get("CATALOG_KEY", "catalog.key")), origins=[URL])
orders_key = ApiKey(SecretFile(os.environ.get("ORDERS_KEY", "orders.key")), origins=[URL])


async def ask(http: httpx.AsyncClient, agent: str, text: str) -> str:
    """What that agent answers; HTTPStatusError when it does not admit the caller."""
    message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
    call = {"jsonrpc": "2.0", "id": "1", "method": "SendMessage", "params": {"message": message}}
    answer = await http.post(f"{agent}/rpc", json=call, headers={"A2A-Version": "1.0"})
    parts = answer.raise_for_status().json()["result"]["message"]["parts"]
    return "".join(part["text"] for part in parts)


async def main(goods: str) -> None:
    # One line for an agent: this client fetches and verifies the card, and sends requests to that agent only.
    async with verifying_client(CATALOG, trust=trust, credentials={"key": catalog_key}) as http:
        print("catalog:", await ask(http, CATALOG, goods))

    # The same in two steps, for a program that has a client of its own.
    card = await async_fetch_card(ORDERS, trust, FetchOptions(fetcher=Fetcher(private_origins=[URL])))
    async with httpx.AsyncClient(auth=CardAuth(card, {"key": orders_key}, trust=trust)) as http:
        print("orders:", await ask(http, ORDERS, goods))

    # The key for one agent is of no use at the other.
    for agent, key in ((CATALOG, orders_key), (ORDERS, catalog_key)):
        async with verifying_client(agent, trust=trust, credentials={"key": key}) as http:
            try:
                await ask(http, agent, goods)
            except httpx.HTTPStatusError as rejected:
                print(f"{agent.removeprefix(URL)}: {rejected.response.status_code} for the other key")
            else:
                sys.exit(f"{agent} admits a key that is not for it")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2] or ["lamp"]))
