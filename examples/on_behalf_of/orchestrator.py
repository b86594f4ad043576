"""An assistant that asks a calendar and a mailbox on behalf of its caller, by token exchange (RFC 8693).

The caller's token is for the assistant, so it must not travel on, and the other agents would reject it. The assistant
exchanges it for a token of the same user for each agent. One HTTP client for each agent serves all callers: for every
request, ``TokenExchange`` asks ``caller`` whose token to exchange.

Start the three agents, where ``a2a-trust[server,client]``, ``a2a-sdk[http-server]==1.3.0`` and ``uvicorn`` are
installed. ``agents.py`` lists their settings. The assistant has some more: ``CLIENT_ID`` and ``CLIENT_SECRET`` (a file)
by which it logs in to the authorization server, ``AUDIENCE`` what that server calls the assistant in access tokens,
``TRUST`` the trust file for the cards of the other agents, ``ASSISTANT_URL`` where it is called.
"""

from __future__ import annotations

import asyncio
import os
from contextvars import ContextVar
from uuid import uuid4

import httpx
from a2a.client import ClientConfig, ClientFactory
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCard, Message, Part, Role, SendMessageRequest
from a2a.utils.errors import TaskNotCancelableError
from agents import CALENDAR_URL, ISSUER, MAIL_URL, TOKEN_URL, card_of, fetcher, protection
from google.protobuf.json_format import ParseDict
from starlette.applications import Starlette

from a2a_trust import RequestRules, TrustFile, protect
from a2a_trust.auth import SubjectToken
from a2a_trust.client import ClientSecret, OAuthClient, SecretFile, TokenExchange, verifying_client
from a2a_trust.middleware import subject_token_of

URL = os.environ.get("ASSISTANT_URL", "http://127.0.0.1:8100")

#: The token of the caller whose request this is. Every task of asyncio has its own.
caller: ContextVar[SubjectToken] = ContextVar("caller")

trust = TrustFile(os.environ.get("TRUST", "trust.toml"))
login = OAuthClient(
    issuer=ISSUER,
    token_endpoint=TOKEN_URL,
    client_id=os.environ.get("CLIENT_ID", "assistant"),
    authentication=ClientSecret(SecretFile(os.environ["CLIENT_SECRET"])),
    fetcher=fetcher,
)


def client_of(url: str, resource: str) -> httpx.AsyncClient:
    """The one client for that agent, whoever calls the assistant."""
    token = TokenExchange(login, caller.get, origins=[url], allowed_scopes=["read"], resource=resource)
    return verifying_client(url, trust=trust, credentials={"login": token})


clients = {
    CALENDAR_URL: client_of(CALENDAR_URL, "https://calendar.example"),
    MAIL_URL: client_of(MAIL_URL, "https://mail.example"),
}


async def ask(url: str, text: str) -> str:
    """What that agent answers to the caller."""
    config = ClientConfig(httpx_client=clients[url], streaming=False)
    client = await ClientFactory(config).create_from_url(url)
    said = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)])
    answers = [event.message async for event in client.send_message(SendMessageRequest(message=said))]
    return "".join(part.text for answer in answers for part in answer.parts)


class Assistant(AgentExecutor):
    """Asks both agents at once."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        caller.set(subject_token_of(context))
        answers = await asyncio.gather(*[ask(url, context.get_user_input()) for url in clients])
        parts = [Part(text=answer) for answer in answers]
        await event_queue.enqueue_event(Message(message_id=str(uuid4()), role=Role.ROLE_AGENT, parts=parts))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:  # noqa: ARG002
        raise TaskNotCancelableError("it answers at once")


card = card_of("assistant", "Reads your calendar and your mail.", URL)
handler = DefaultRequestHandler(
    agent_executor=Assistant(), task_store=InMemoryTaskStore(), agent_card=ParseDict(card, AgentCard())
)
app = protect(
    Starlette(routes=create_jsonrpc_routes(handler, rpc_url="/rpc")),
    card=card,
    url=URL,
    rules=RequestRules(keep_subject_token=True),
    **protection(os.environ.get("AUDIENCE", URL)),
)
