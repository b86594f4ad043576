"""A program that calls agents with the client of fasta2a.

It reads cases as JSON from its input and writes what came of each: the answer or the error, and which requests of the
given httpx client were answered how. Run by the interpreter of its environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx
from fasta2a.client import A2AClient

from tests.frameworks.clients import client_of, noted


async def fasta2a(http: httpx.AsyncClient, url: str, *, fetch_card: bool) -> str:
    client = A2AClient(url, http_client=http, fetch_card=fetch_card)
    said: Any = {"role": "user", "kind": "message", "message_id": "1", "parts": [{"kind": "text", "text": "2 + 2"}]}
    task = (await client.send_message(said))["result"]["task"]
    while task["status"]["state"] in ("submitted", "working"):  # this server answers before it has begun
        task = (await client.get_task(task["id"]))["result"]
    return str(task["artifacts"][0]["parts"][0]["text"])


async def run(case: dict[str, Any]) -> dict[str, Any]:
    async with client_of(case) as http:
        requests = noted(http)
        try:
            answer = await fasta2a(http, case["url"], fetch_card=case["fetch_card"])
        except Exception as error:  # noqa: BLE001  each framework has its own
            chain = []
            link: BaseException | None = error
            while link is not None:
                chain.append(repr(link))
                link = link.__cause__
            return {"errors": chain, "requests": requests}
        return {"answer": answer, "requests": requests}


async def main() -> None:
    print(json.dumps([await run(case) for case in json.load(sys.stdin)]))


if __name__ == "__main__":
    asyncio.run(main())
