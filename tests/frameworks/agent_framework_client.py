"""A program that calls agents with the client of Microsoft's agent-framework.

Run in its own environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

from typing import Any

import httpx
from agent_framework.a2a import A2AAgent

from a2a_trust import TrustFile, verifying_client
from a2a_trust.client import ApiKey
from tests.frameworks.page_client import answer_cases


async def agent_framework(http: httpx.AsyncClient, case: dict[str, Any]) -> str:
    if case.get("verifying"):
        credentials = {"key": ApiKey(http.headers["X-API-Key"], origins=[case["url"]])}
        http = verifying_client(case["url"], trust=TrustFile("trust.toml"), credentials=credentials)
    agent = A2AAgent(url=case["url"], http_client=http)
    if case["streaming"]:
        return "|".join([update.text async for update in agent.run("hi", stream=True)])
    return str((await agent.run("hi")).text)


if __name__ == "__main__":
    answer_cases("agent-framework", agent_framework)
