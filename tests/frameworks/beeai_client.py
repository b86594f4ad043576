"""A program that calls agents with BeeAI's own client.

It reads cases as JSON from its input and writes what came of each: the answer or the errors, each with its causes, and
which requests of the given httpx client were answered how. Run by the interpreter of BeeAI's environment, never
imported by a test.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from beeai_framework.adapters.a2a.agents import A2AAgent
from beeai_framework.memory import UnconstrainedMemory

from tests.frameworks.clients import client_of, noted


async def run(case: dict[str, Any]) -> dict[str, Any]:
    async with client_of(case) as http:
        requests = noted(http)
        agent = A2AAgent(url=case["url"], memory=UnconstrainedMemory())  # it fetches the card by itself
        try:
            said = await agent.run("hi", httpx_client=http, context_id=case["context"], streaming=case["streaming"])
        except Exception as error:  # noqa: BLE001  of any type
            return {"errors": causes(error), "requests": requests}
        return {"answer": said.last_message.text, "requests": requests}


def causes(error: BaseException | None) -> list[str]:
    """The error and its causes: of each the name and the text."""
    chain = []
    while error is not None:
        chain.append(f"{type(error).__name__}: {error}")
        error = error.__cause__
    return chain


async def main() -> None:
    print(json.dumps([await run(case) for case in json.load(sys.stdin)]))


if __name__ == "__main__":
    asyncio.run(main())
