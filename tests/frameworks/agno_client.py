"""A program that calls agents with Agno's own client.

It reads cases as JSON from its input and writes what came of each: the answer or the error, and which requests were
answered how. Run by the interpreter of Agno's environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from agno.client.a2a import A2AClient
from agno.utils.http import set_default_async_client

from tests.frameworks.clients import client_of, noted


async def said(client: A2AClient, *, streaming: bool) -> str:
    if not streaming:
        return str((await client.send_message("hi")).content)
    events = [event async for event in client.stream_message("hi")]
    return "".join(event.content or "" for event in events if event.is_content)


async def run(case: dict[str, Any]) -> dict[str, Any]:
    async with client_of(case) as http:
        requests = noted(http)
        set_default_async_client(http)
        client = A2AClient(case["url"])
        try:
            card = await client.aget_agent_card()
            name = card.name if card else None
            return {"card": name, "answer": await said(client, streaming=case["streaming"]), "requests": requests}
        except Exception as error:  # noqa: BLE001  of any type
            return {"error": repr(error), "requests": requests}


async def main() -> None:
    print(json.dumps([await run(case) for case in json.load(sys.stdin)]))


if __name__ == "__main__":
    asyncio.run(main())
