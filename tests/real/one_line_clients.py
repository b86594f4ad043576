"""Programs that use the clients of a2a-sdk, Google's ADK and BeeAI framework, with one line of ours.

It reads cases as JSON from its input and writes what came of each. Run by the interpreters of their own environments,
never imported by a test.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import httpx

from a2a_trust import Fetcher, Origins, TrustedKey, TrustStore
from a2a_trust.client import (
    ApiKey,
    BearerToken,
    ClientCredentials,
    ClientSecret,
    CredentialsRejectedError,
    OAuthClient,
    verifying_client,
)
from a2a_trust.keys import read_jwks


async def sdk(http: httpx.AsyncClient, url: str, *, streaming: bool, binding: str = "JSONRPC") -> str:
    from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
    from a2a.types import Message, Part, Role, SendMessageRequest

    config = ClientConfig(httpx_client=http, streaming=streaming, supported_protocol_bindings=[binding])
    client = ClientFactory(config).create(await A2ACardResolver(http, url).get_agent_card())
    said = Message(message_id="1", role=Role.ROLE_USER, parts=[Part(text="hi")])
    text, kinds = "", []
    async for event in client.send_message(SendMessageRequest(message=said)):
        kinds.append(event.WhichOneof("payload"))
        artifacts = event.task.artifacts if kinds[-1] == "task" else [event.artifact_update.artifact]
        text += "".join(part.text for artifact in artifacts for part in artifact.parts)
    return f"{' '.join(kinds)}: {text}"


async def sdk_cancel(http: httpx.AsyncClient, url: str) -> str:
    """A second request cancels the task while its stream is open."""
    from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
    from a2a.types import CancelTaskRequest, Message, Part, Role, SendMessageRequest, TaskState

    client = ClientFactory(ClientConfig(httpx_client=http)).create(await A2ACardResolver(http, url).get_agent_card())
    said = Message(message_id="1", role=Role.ROLE_USER, parts=[Part(text="hi")])
    async for event in client.send_message(SendMessageRequest(message=said)):
        if event.WhichOneof("payload") == "task":
            cancelled = await client.cancel_task(CancelTaskRequest(id=event.task.id))
            return str(TaskState.Name(cancelled.status.state))
    return "no task"


async def adk(http: httpx.AsyncClient, url: str) -> str:
    from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    agent = RemoteA2aAgent(name="hello", agent_card=f"{url}/.well-known/agent-card.json", httpx_client=http)
    runner = InMemoryRunner(agent=agent, app_name="program")
    session = await runner.session_service.create_session(app_name="program", user_id="user")
    said = types.Content(role="user", parts=[types.Part(text="hi")])
    texts: list[str] = []
    async for event in runner.run_async(user_id="user", session_id=session.id, new_message=said):
        if event.error_message:
            raise RuntimeError(event.error_message)  # all that this framework shows of an error
        texts += [part.text for part in (event.content and event.content.parts) or [] if part.text]
    return texts[-1]


async def beeai(http: httpx.AsyncClient, url: str) -> str:
    from beeai_framework.adapters.a2a.agents import A2AAgent
    from beeai_framework.memory import UnconstrainedMemory

    agent = A2AAgent(url=url, memory=UnconstrainedMemory())
    return str((await agent.run("hi", httpx_client=http)).last_message.text)


PROGRAMS: Final[dict[str, Callable[[httpx.AsyncClient, str], Awaitable[str]]]] = {
    "message": lambda http, url: sdk(http, url, streaming=False),
    "stream": lambda http, url: sdk(http, url, streaming=True),
    "message by REST": lambda http, url: sdk(http, url, streaming=False, binding="HTTP+JSON"),
    "stream by REST": lambda http, url: sdk(http, url, streaming=True, binding="HTTP+JSON"),
    "cancel": sdk_cancel,
    "ADK": adk,
    "BeeAI": beeai,
}


def credentials_of(case: dict[str, Any]) -> dict[str, Any]:
    credentials: dict[str, Any] = {}
    if "key" in case:
        credentials["key"] = ApiKey(case["key"], origins=[case["url"]])
    if "token" in case:
        credentials["oauth"] = BearerToken(case["token"], origins=[case["url"]])
    elif "login" in case:
        tls = ssl.create_default_context(cafile=case["provider_ca"])
        login = OAuthClient(
            issuer=case["issuer"],
            token_endpoint=f"{case['issuer']}/token",
            client_id="service",
            authentication=ClientSecret(case["login"]),
            fetcher=Fetcher(ssl_context=tls, private_origins=[case["issuer"]], timeout=60),
        )
        credentials["oauth"] = ClientCredentials(
            login, origins=[case["url"]], allowed_scopes=case["scopes"], resource=case["resource"]
        )
    return credentials


def links_of(error: BaseException | None) -> list[dict[str, Any]]:
    """The error and its causes, each by its name, text, and what the agent asked for."""
    links: list[dict[str, Any]] = []
    while error is not None:
        link: dict[str, Any] = {"name": type(error).__name__, "text": str(error)}
        if isinstance(error, CredentialsRejectedError):
            link["schemes"], link["scopes"] = error.schemes, error.scopes
            link["metadata"] = error.resource_metadata
        links.append(link)
        error = error.__cause__
    return links


async def run(case: dict[str, Any]) -> dict[str, Any]:
    keys = read_jwks(json.dumps(case["keys"]).encode()).keys
    trust = TrustStore(TrustedKey(key=key, origins=Origins("localhost")) for key in keys)
    http = verifying_client(  # the one line
        case["url"], trust=trust, credentials=credentials_of(case), authorities=case["ca"]
    )
    async with http:
        try:
            return {"answer": await PROGRAMS[case["program"]](http, case["url"]), "errors": []}
        except Exception as error:  # noqa: BLE001  each framework has its own
            return {"answer": None, "errors": links_of(error)}


async def main() -> None:
    print(json.dumps([await run(case) for case in json.load(sys.stdin)]))


if __name__ == "__main__":
    logging.disable()
    asyncio.run(main())
