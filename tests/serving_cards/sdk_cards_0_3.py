"""The client of a2a-sdk 0.3.26 fetches cards, as ``sdk_cards_1_3.py`` does with that of 1.3.0."""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx
from a2a.client import A2ACardResolver, AuthInterceptor, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.auth import InMemoryContextCredentialStore
from a2a.client.errors import A2AClientError
from a2a.types import Message, Part, Role, TextPart, TransportProtocol


async def run(case: dict[str, Any]) -> dict[str, Any]:
    last: list[httpx.Response] = []

    async def note(response: httpx.Response) -> None:
        await response.aread()
        last[:] = [response]

    def got(card: Any) -> dict[str, Any]:
        return {"status": last[0].status_code, "raw": last[0].text, "seen": card.description}

    headers = {"X-API-Key": case["key"]} if case["key"] else {}
    async with httpx.AsyncClient(timeout=60, event_hooks={"response": [note]}) as http:
        card = await A2ACardResolver(http, case["url"]).get_agent_card(case["path"], {"headers": headers})
        answer: dict[str, Any] = {"public": got(card)}
        credentials = InMemoryContextCredentialStore()
        if case["key"]:
            await credentials.set_credentials("session", "key", case["key"])
        transports = [TransportProtocol(case["binding"])]
        config = ClientConfig(streaming=False, httpx_client=http, supported_transports=transports)
        client = ClientFactory(config).create(card, interceptors=[AuthInterceptor(credentials)])
        # The HTTP+JSON transport of this version never asks its interceptors; its users give headers.
        given = headers if case["binding"] == "HTTP+JSON" else {}
        context = ClientCallContext(state={"sessionId": "session", "http_kwargs": {"headers": given}})
        try:
            answer["extended"] = got(await client.get_card(context=context))
        except A2AClientError:
            answer["extended"] = {"status": last[0].status_code, "raw": last[0].text}
        said = Message(message_id="1", role=Role.user, parts=[Part(root=TextPart(text="hi"))])
        try:
            async for event in client.send_message(said, context=context):
                answer["called"] = event.parts[0].root.text
        except A2AClientError:
            answer["called"] = last[0].status_code
    return answer


async def main() -> None:
    print(json.dumps(await asyncio.gather(*map(run, json.load(sys.stdin)))))


if __name__ == "__main__":
    asyncio.run(main())
