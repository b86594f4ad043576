"""A program that calls agents with fasta2a's own client. Run in its own environment, never imported by a test."""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

from typing import Any

import httpx
from fasta2a.client import A2AClient

from tests.frameworks.page_client import answer_cases


async def fasta2a(http: httpx.AsyncClient, case: dict[str, Any]) -> str:
    client = A2AClient(case["url"], http_client=http, fetch_card=case.get("fetch_card", False))
    said: Any = {"role": "user", "kind": "message", "message_id": "1", "parts": [{"kind": "text", "text": "hi"}]}
    if case["streaming"]:
        results = [event["result"] async for event in client.stream_message(said)]
        updates = [result["artifact_update"] for result in results if "artifact_update" in result]
        return "".join(update["artifact"]["parts"][0]["text"] for update in updates if update["append"])
    task = (await client.send_message(said))["result"]["task"]
    while task["status"]["state"] in ("submitted", "working"):  # the server answers before it has begun
        task = (await client.get_task(task["id"]))["result"]
    return str(task["artifacts"][0]["parts"][0]["text"])


if __name__ == "__main__":
    answer_cases("pydantic-ai", fasta2a)
