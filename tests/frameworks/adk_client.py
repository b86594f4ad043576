"""A program that calls agents with ADK's own client.

It reads cases as JSON from its input and writes what came of each: the answer or the error, and which requests were
answered how. Run by the interpreter of ADK's environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import asyncio
import json
import logging
import sys
import warnings
from typing import Any

import httpx
from a2a.client import ClientConfig, ClientFactory
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai import types

from tests.frameworks.clients import client_of, noted


async def adk(http: httpx.AsyncClient, url: str, *, streaming: bool) -> str:
    agent = RemoteA2aAgent(
        name="ledger",
        agent_card=f"{url}/.well-known/agent-card.json",
        a2a_client_factory=ClientFactory(ClientConfig(httpx_client=http, streaming=streaming)),
    )
    runner = InMemoryRunner(agent=agent, app_name="program")
    session = await runner.session_service.create_session(app_name="program", user_id="user")
    said = types.Content(role="user", parts=[types.Part(text="hi")])
    texts: list[str] = []
    async for event in runner.run_async(user_id="user", session_id=session.id, new_message=said):
        if event.error_message:
            raise RuntimeError(event.error_message)  # all that ADK shows of an error
        texts += [part.text for part in (event.content and event.content.parts) or [] if part.text]
    return texts[-1]


async def run(case: dict[str, Any]) -> dict[str, Any]:
    async with client_of(case) as http:
        requests = noted(http)
        try:
            return {"answer": await adk(http, case["url"], streaming=case["streaming"]), "requests": requests}
        except Exception as error:  # noqa: BLE001  of any type
            return {"error": str(error), "requests": requests}


async def main() -> None:
    print(json.dumps([await run(case) for case in json.load(sys.stdin)]))


if __name__ == "__main__":
    logging.disable()
    warnings.simplefilter("ignore")
    asyncio.run(main())
