"""The client of a2a-sdk 1.3.0 fetches cards: reads cases as JSON from its input, writes what it got in each.

Run by the interpreter of that SDK's own environment, never imported by a test. ``raw`` is what came over the wire and
``seen`` the description in the card that the SDK made of it; ``refused`` and ``seen_refused`` are what its own verifier
says against each of the two.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx
import jwt
from a2a.client import A2ACardResolver, AuthInterceptor, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.auth import InMemoryContextCredentialStore
from a2a.client.card_resolver import parse_agent_card
from a2a.client.errors import A2AClientError
from a2a.types import GetExtendedAgentCardRequest, Message, Part, Role, SendMessageRequest
from a2a.utils.signing import SignatureVerificationError, create_signature_verifier


async def run(case: dict[str, Any]) -> dict[str, Any]:
    last: list[httpx.Response] = []

    async def note(response: httpx.Response) -> None:
        await response.aread()
        last[:] = [response]

    def proof(card: Any) -> str | None:
        keys = {key["kid"]: jwt.PyJWK(key) for key in case["keys"]}
        try:
            create_signature_verifier(lambda kid, _jku: keys[kid], ["ES256"])(card)
        except SignatureVerificationError as error:
            return type(error).__name__
        return None

    def got(card: Any) -> dict[str, Any]:
        raw = last[0].json()
        refused = {"refused": proof(parse_agent_card(raw.get("result", raw))), "seen_refused": proof(card)}
        return {"status": last[0].status_code, "raw": last[0].text, "seen": card.description, **refused}

    headers = {"X-API-Key": case["key"]} if case["key"] else {}
    async with httpx.AsyncClient(timeout=60, event_hooks={"response": [note]}) as http:
        card = await A2ACardResolver(http, case["url"]).get_agent_card(case["path"], {"headers": headers})
        answer: dict[str, Any] = {"public": got(card)}
        chosen = [item for item in card.supported_interfaces if item.protocol_version == case["version"]]
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(chosen)
        credentials = InMemoryContextCredentialStore()
        if case["key"]:
            await credentials.set_credentials("session", "key", case["key"])
        config = ClientConfig(streaming=False, httpx_client=http, supported_protocol_bindings=[case["binding"]])
        client = ClientFactory(config).create(card, [AuthInterceptor(credentials)])
        context = ClientCallContext(state={"sessionId": "session"})
        try:
            extended = await client.get_extended_agent_card(GetExtendedAgentCardRequest(), context=context)
            answer["extended"] = got(extended)
        except A2AClientError:
            answer["extended"] = {"status": last[0].status_code, "raw": last[0].text}
        said = Message(message_id="1", role=Role.ROLE_USER, parts=[Part(text="hi")])
        try:
            async for event in client.send_message(SendMessageRequest(message=said), context=context):
                answer["called"] = event.message.parts[0].text
        except A2AClientError:
            answer["called"] = last[0].status_code
    return answer


async def main() -> None:
    print(json.dumps(await asyncio.gather(*map(run, json.load(sys.stdin)))))


if __name__ == "__main__":
    asyncio.run(main())
