"""What the client of an a2a-sdk gets from an agent in memory; run by the interpreter of that SDK."""

# mypy: disable-error-code="import-not-found, import-untyped, attr-defined, call-arg, unused-ignore"

from __future__ import annotations

import asyncio
import json
from typing import Any

from a2a.client import ClientConfig, ClientFactory
from a2a.types import Message, Part, Role

from a2a_trust.testing import InMemoryAgent

try:
    from a2a.types import TextPart
except ImportError:
    TextPart = None


async def answer(client: Any) -> str:
    if TextPart is not None:  # 0.3
        said = Message(message_id="1", role=Role.user, parts=[Part(root=TextPart(text="hi"))])
        return "".join([event.parts[0].root.text async for event in client.send_message(said)])
    from a2a.types import SendMessageRequest

    said = Message(message_id="1", role=Role.ROLE_USER, parts=[Part(text="hi")])
    events = client.send_message(SendMessageRequest(message=said))
    return "".join([event.message.parts[0].text async for event in events])


async def asked(*, streaming: bool, scope: str) -> str:
    """The answer, or the name of the error."""
    agent = InMemoryAgent(lambda text, caller: f"{caller.label} said {text}", scopes=["read"])
    async with agent.client(agent.key(scope)) as http:
        config = ClientConfig(httpx_client=http, streaming=streaming)
        if TextPart is None:
            client = await ClientFactory(config).create_from_url(agent.url)
        else:
            client = await ClientFactory.connect(agent.url, client_config=config)
        try:
            return await answer(client)
        except Exception as error:  # noqa: BLE001  those of the SDK
            return type(error).__name__


async def main() -> list[str]:
    return [await asked(streaming=streaming, scope=scope) for scope in ("read", "other") for streaming in (False, True)]


print(json.dumps(asyncio.run(main())))
