"""A program that uses the client of a2a-sdk 1.3.0, which knows nothing of DPoP, over httpx with ``CardAuth``.

It reads cases as JSON from its input and writes what it saw.

Run by the interpreter of that SDK's own environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import Message, Part, Role, SendMessageRequest

from a2a_trust import Fetcher, FetchOptions, Origins, TrustedKey, TrustStore, async_fetch_card
from a2a_trust.client import BearerToken, CardAuth
from a2a_trust.keys import LocalSigner, read_jwks


async def run(case: dict[str, Any]) -> dict[str, Any]:
    seen: dict[str, Any] = {"statuses": [], "answer": "", "error": None}

    async def note(response: httpx.Response) -> None:
        seen["statuses"].append(response.status_code)

    auth: httpx.Auth | None = None
    headers: dict[str, str] = {}
    if case["carried"] == "proofs":
        keys = read_jwks(json.dumps(case["trusted"]).encode()).keys
        trust = TrustStore(TrustedKey(key=key, origins=Origins("127.0.0.1")) for key in keys)
        options = FetchOptions(fetcher=Fetcher(private_origins=[case["url"]]))
        verified = await async_fetch_card(case["url"], trust, options)
        token = BearerToken(case["token"], origins=[case["url"]], dpop=LocalSigner.from_jwk(case["key"]))
        auth = CardAuth(verified, {"login": token}, trust=trust)
    else:
        headers = {"Authorization": f"{case['carried']} {case['token']}"}
    async with httpx.AsyncClient(auth=auth, headers=headers, timeout=60) as http:
        card = await A2ACardResolver(http, case["url"]).get_agent_card()
        http.event_hooks["response"] = [note]
        config = ClientConfig(
            streaming=case["streaming"], httpx_client=http, supported_protocol_bindings=[case["binding"]]
        )
        client = ClientFactory(config).create(card)
        said = Message(message_id="1", role=Role.ROLE_USER, parts=[Part(text="hi")])
        try:
            async for event in client.send_message(SendMessageRequest(message=said)):
                artifacts = [event.artifact_update.artifact] if event.HasField("artifact_update") else []
                artifacts = [*event.task.artifacts] if event.HasField("task") else artifacts
                seen["answer"] += "".join(part.text for artifact in artifacts for part in artifact.parts)
        except A2AClientError as error:
            seen["error"] = f"{error} {error.__cause__}"
    return seen


async def main() -> None:
    print(json.dumps(await asyncio.gather(*map(run, json.load(sys.stdin)))))


if __name__ == "__main__":
    asyncio.run(main())
