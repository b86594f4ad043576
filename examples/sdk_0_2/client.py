"""The client of a2a-sdk 0.2.16 calls the agent beside this file. That SDK verifies no signature; its transport does.

Start it, where ``a2a-trust[client]`` and ``a2a-sdk==0.2.16`` are installed, as examples/README.md says. Settings, all
from the environment: ``AGENT_URL`` where the agent is called, ``TRUST`` the trust file for its cards, ``API_KEY`` the
file with the key.
"""

from __future__ import annotations

import asyncio
import os

from a2a.client import A2ACardResolver, A2AClient
from a2a.types import MessageSendParams, SendMessageRequest, SendStreamingMessageRequest

from a2a_trust import TrustFile, verifying_client
from a2a_trust.client import ApiKey, SecretFile

URL = os.environ.get("AGENT_URL", "http://127.0.0.1:9999")


async def main() -> None:
    key = ApiKey(SecretFile(os.environ.get("API_KEY", "you.key")), origins=[URL])
    trust = TrustFile(os.environ.get("TRUST", "trust.toml"))
    said = {"role": "user", "messageId": "1", "parts": [{"kind": "text", "text": "hi"}]}
    params = MessageSendParams.model_validate({"message": said})
    async with verifying_client(URL, trust=trust, credentials={"key": key}) as http:
        cards = A2ACardResolver(http, URL)
        card = await cards.get_agent_card()
        print("public card:", card.description)
        extended = await cards.get_agent_card("/agent/authenticatedExtendedCard")
        print("extended card:", extended.description)
        client = A2AClient(http, agent_card=extended)
        answer = await client.send_message(SendMessageRequest(id="1", params=params))
        print("answer:", answer.root.result.parts[0].root.text)
        async for event in client.send_message_streaming(SendStreamingMessageRequest(id="2", params=params)):
            print("streamed:", event.root.result.parts[0].root.text)


if __name__ == "__main__":
    asyncio.run(main())
