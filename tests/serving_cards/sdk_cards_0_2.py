"""The client of a2a-sdk 0.2.16 fetches cards, as ``sdk_cards_1_3.py`` does with that of 1.3.0; it speaks JSON-RPC only.

The extended card is beside the card's URL in this version, and its users give headers to fetch it with.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx
from a2a.client import A2ACardResolver, A2AClient, A2AClientError, ClientCallContext
from a2a.client.auth import AuthInterceptor, InMemoryContextCredentialStore
from a2a.types import MessageSendParams, SendMessageRequest


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
        beside = card.url.rpartition("/")[0]
        try:
            resolver = A2ACardResolver(http, beside)
            answer["extended"] = got(
                await resolver.get_agent_card("/agent/authenticatedExtendedCard", {"headers": headers})
            )
        except A2AClientError:
            answer["extended"] = {"status": last[0].status_code, "raw": last[0].text}
        credentials = InMemoryContextCredentialStore()
        if case["key"]:
            await credentials.set_credentials("session", "key", case["key"])
        client = A2AClient(http, agent_card=card, interceptors=[AuthInterceptor(credentials)])
        context = ClientCallContext(state={"sessionId": "session"})
        said = {"messageId": "1", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
        params = MessageSendParams.model_validate({"message": said})
        try:
            called = await client.send_message(SendMessageRequest(id="1", params=params), context=context)
            answer["called"] = called.root.result.parts[0].root.text
        except A2AClientError:
            answer["called"] = last[0].status_code
    return answer


async def main() -> None:
    print(json.dumps(await asyncio.gather(*map(run, json.load(sys.stdin)))))


if __name__ == "__main__":
    asyncio.run(main())
