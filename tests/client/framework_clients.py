"""Programs that use the clients of fasta2a and BeeAI framework, which fetch the card outside the client they are given.

It reads cases as JSON from its input and writes what came of each.

Run by the interpreter of their own environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
from typing import Any

import httpx
from beeai_framework.adapters.a2a.agents import A2AAgent
from beeai_framework.memory import UnconstrainedMemory
from fasta2a.client import A2AClient

from a2a_trust import AsyncVerifyingTransport, Origins, TrustedKey, TrustStore
from a2a_trust.client import UnsafePassAnything
from a2a_trust.keys import read_jwks


async def fasta2a(http: httpx.AsyncClient, url: str) -> str:
    client = A2AClient(url, http_client=http, fetch_card=True)
    said: Any = {"role": "user", "kind": "message", "message_id": "1", "parts": [{"kind": "text", "text": "hi"}]}
    answer: Any = await client.send_message(said)
    return str(answer["result"]["message"]["parts"][0]["text"])


async def beeai(http: httpx.AsyncClient, url: str) -> str:
    agent = A2AAgent(url=url, memory=UnconstrainedMemory())
    return str((await agent.run("hi", httpx_client=http)).last_message.text)


PROGRAMS = {"fasta2a": fasta2a, "BeeAI": beeai}


async def run(case: dict[str, Any]) -> dict[str, Any]:
    keys = read_jwks(json.dumps(case["keys"]).encode()).keys
    trust = TrustStore(TrustedKey(key=key, origins=Origins(case["host"])) for key in keys)
    tls = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    transport = AsyncVerifyingTransport(
        httpx.AsyncHTTPTransport(verify=tls), trust, also=() if case["strict"] else UnsafePassAnything()
    )
    async with httpx.AsyncClient(transport=transport, headers={"X-API-Key": "secret-key"}) as http:
        try:
            return {"answer": await PROGRAMS[case["program"]](http, case["url"]), "errors": []}
        except Exception as error:  # noqa: BLE001  each framework has its own
            chain: list[str] = []
            link: BaseException | None = error
            while link is not None:
                chain.append(type(link).__name__)
                link = link.__cause__
            return {"answer": None, "errors": chain}


async def main() -> None:
    print(json.dumps([await run(case) for case in json.load(sys.stdin)]))


if __name__ == "__main__":
    asyncio.run(main())
