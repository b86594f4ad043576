"""A program that calls agents with the a2a-sdk's own client. Run in its own environment, never imported by a test."""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

from typing import Any

import httpx
from a2a.client import ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, SendMessageRequest

from tests.frameworks.page_client import answer_cases


async def sdk(http: httpx.AsyncClient, case: dict[str, Any]) -> str:
    config = ClientConfig(httpx_client=http, streaming=case["streaming"])
    client = await ClientFactory(config).create_from_url(case["url"])
    said = Message(message_id="1", role=Role.ROLE_USER, parts=[Part(text="hi")])
    answer = ""
    async for event in client.send_message(SendMessageRequest(message=said)):
        artifacts = [*event.task.artifacts, event.artifact_update.artifact]
        answer += "".join(part.text for artifact in artifacts for part in artifact.parts)
    return answer


if __name__ == "__main__":
    answer_cases("a2a-sdk", sdk)
