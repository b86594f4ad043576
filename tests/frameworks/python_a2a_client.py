"""A program that calls agents with python-a2a's own client. Run in its own environment, never imported by a test."""

# mypy: disable-error-code="import-not-found, import-untyped, unused-ignore"

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from python_a2a import A2AClient, Message, MessageRole, TextContent

from tests.frameworks.page_client import answer_cases


async def python_a2a(http: httpx.AsyncClient, case: dict[str, Any]) -> str:
    said = Message(content=TextContent(text="hi"), role=MessageRole.USER)
    headers = dict(case["headers"])
    client = await asyncio.to_thread(A2AClient, case["url"], headers)
    if case["streaming"]:
        return "|".join([str(chunk) async for chunk in client.stream_response(said)])
    answer = (await asyncio.to_thread(client.send_message, said)).content
    return str(answer.message if answer.type == "error" else answer.text)


if __name__ == "__main__":
    answer_cases("python-a2a", python_a2a)
