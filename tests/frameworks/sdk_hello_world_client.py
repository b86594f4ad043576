"""The client of a2a-sdk 1.3.0 does what that of the hello world sample does, in each case that its input has.

Run by the interpreter of that SDK's own environment, never imported by a test. A case has the agent's URL, a key or
null, and the JWKs by which the SDK itself verifies both cards: ``refused`` is what it says against each.
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
from a2a.client.errors import A2AClientError
from a2a.types import GetExtendedAgentCardRequest, Message, Part, Role, SendMessageRequest
from a2a.utils.signing import SignatureVerificationError, create_signature_verifier
from google.protobuf.json_format import MessageToDict


def seen(card: Any, keys: list[dict[str, Any]]) -> dict[str, Any]:
    by_kid = {key["kid"]: jwt.PyJWK(key) for key in keys}
    refused = None
    try:
        create_signature_verifier(lambda kid, _jku: by_kid[kid], ["ES256"])(card)
    except SignatureVerificationError as error:
        refused = type(error).__name__
    return {"card": MessageToDict(card), "refused": refused}


async def run(case: dict[str, Any]) -> dict[str, Any]:
    last: list[int] = []

    async def note(response: httpx.Response) -> None:
        last[:] = [response.status_code]

    credentials = InMemoryContextCredentialStore()
    if case["key"]:
        await credentials.set_credentials("session", "key", case["key"])

    def context() -> ClientCallContext:  # a new one for each call: the interceptor leaves its header there
        return ClientCallContext(state={"sessionId": "session"})

    said = SendMessageRequest(message=Message(message_id="1", role=Role.ROLE_USER, parts=[Part(text="hi")]))
    async with httpx.AsyncClient(timeout=60, event_hooks={"response": [note]}) as http:
        card = await A2ACardResolver(http, case["url"]).get_agent_card()
        answer: dict[str, Any] = {"public": seen(card, case["keys"])}

        def client(*, streaming: bool) -> Any:
            config = ClientConfig(streaming=streaming, httpx_client=http)
            return ClientFactory(config).create(card, [AuthInterceptor(credentials)])

        async def events(of: Any) -> list[dict[str, Any]]:
            return [MessageToDict(each) async for each in of.send_message(said, context=context())]

        async def extended_card(of: Any) -> dict[str, Any]:
            return seen(
                await of.get_extended_agent_card(GetExtendedAgentCardRequest(), context=context()), case["keys"]
            )

        # After "extended" the client goes by that card: it finds there which credential the next call needs.
        plain, stream = client(streaming=False), client(streaming=True)
        steps = (("sent", events, plain), ("streamed", events, stream), ("extended", extended_card, plain))
        for name, step, of in (*steps, ("sent by the extended card", events, plain)):
            try:
                answer[name] = await step(of)
            except A2AClientError:
                answer[name] = last[0]
    return answer


async def main() -> None:
    print(json.dumps([await run(case) for case in json.load(sys.stdin)]))


if __name__ == "__main__":
    asyncio.run(main())
