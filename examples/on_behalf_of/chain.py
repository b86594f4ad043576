"""A chain of three agents that act for one user, and prove it: planner, researcher, archive.

The planner asks the researcher, which asks the archive. Each exchanges the token of its caller for a token of the same
user for the next agent. Planner and researcher have one authorization server (RFC 8693). The archive has another one,
which accepts assertions of the first (ID-JAG). Both are the ``AuthorizationServer`` of ``a2a_trust.testing``: nobody
logs in, so use it for trials only.

Run it where ``a2a-trust[server,client]`` and ``uvicorn`` are installed: ``python examples/on_behalf_of/chain.py``.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from a2a_trust import CardServing, Fetcher, Origins, RequestRules, TrustedKey, TrustStore, generate_signer, protect
from a2a_trust.auth import Actor, SubjectToken
from a2a_trust.client import BearerToken, ClientSecret, IdentityAssertion, OAuthClient, TokenExchange, verifying_client
from a2a_trust.middleware import ActorRules, principal_of, subject_token_of
from a2a_trust.testing import AuthorizationServer

names = ("home", "partner", "planner", "researcher", "archive")
sockets = {name: socket.create_server(("127.0.0.1", 0)) for name in names}
urls = {name: f"http://127.0.0.1:{each.getsockname()[1]}" for name, each in sockets.items()}

passwords = {urls[name]: secrets.token_urlsafe() for name in ("planner", "researcher", "archive")}
home = AuthorizationServer(urls["home"], clients=passwords)
partner = AuthorizationServer(urls["partner"], clients=passwords, trusted=home)

card_key = generate_signer("ES256")
trust = TrustStore([TrustedKey(key=card_key.public_key, origins=Origins("127.0.0.1"))])
fetcher = Fetcher(private_origins=[home.url, partner.url])

#: The token of the caller whose request this is. Every task of asyncio has its own.
caller: ContextVar[SubjectToken] = ContextVar("caller")


def client_at(server: AuthorizationServer, agent: str) -> OAuthClient:
    """The agent as a client of an authorization server."""
    return OAuthClient(
        issuer=server.url,
        token_endpoint=server.token_endpoint,
        client_id=urls[agent],
        authentication=ClientSecret(passwords[urls[agent]]),
        fetcher=fetcher,
    )


def card_of(name: str, server: AuthorizationServer) -> dict[str, Any]:
    """A card that demands a token of the server, with the scope "read"."""
    flow = {"authorizationUrl": f"{server.url}/login", "tokenUrl": server.token_endpoint, "scopes": {"read": "Read."}}
    return {
        "name": name,
        "description": "Says for whom it works.",
        "version": "1.0.0",
        "supportedInterfaces": [{"url": f"{urls[name]}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "read", "name": name, "description": "Reads.", "tags": ["chain"]}],
        "securitySchemes": {"login": {"oauth2SecurityScheme": {"flows": {"authorizationCode": flow}}}},
        "securityRequirements": [{"schemes": {"login": {"list": ["read"]}}}],
    }


def agent(
    name: str, server: AuthorizationServer, actors: ActorRules, following: tuple[str, httpx.AsyncClient] | None
) -> Any:
    """An agent that says who calls it on whose behalf, and asks the next one."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:  # noqa: ARG001
        yield
        if following is not None:
            await following[1].aclose()

    async def rpc(request: Request) -> JSONResponse:
        user = principal_of(request)
        names_of = {url: name for name, url in urls.items()}
        acting = [f", by {names_of[each.subject]}" for each in user.actors]
        lines = [f"{name}: for {user.label}{''.join(acting)}"]
        if following is not None:
            caller.set(subject_token_of(request))
            lines += await ask(*following)
        message = {"messageId": str(uuid4()), "role": "ROLE_AGENT", "parts": [{"text": line} for line in lines]}
        return JSONResponse({"jsonrpc": "2.0", "id": (await request.json())["id"], "result": {"message": message}})

    return protect(
        Starlette(routes=[Route("/rpc", rpc, methods=["POST"])], lifespan=lifespan),
        card=card_of(name, server),
        url=urls[name],
        verifiers={"login": server.verifier(urls[name])},
        serving=CardServing(signer=card_key, lifetime=3600),
        rules=RequestRules(actors=actors, keep_subject_token=following is not None),
    )


async def ask(agent: str, http: httpx.AsyncClient) -> list[str]:
    """What that agent answers, and the agents behind it."""
    said = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": "For whom?"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": said}}
    answer = await http.post(f"{urls[agent]}/rpc", json=call, headers={"A2A-Version": "1.0"})
    return [part["text"] for part in answer.raise_for_status().json()["result"]["message"]["parts"]]


def client_of(agent: str, credential: BearerToken | TokenExchange | IdentityAssertion) -> httpx.AsyncClient:
    """The one client for that agent, whoever calls."""
    return verifying_client(urls[agent], trust=trust, credentials={"login": credential})


def apps() -> dict[str, Any]:
    """The servers and the agents, by name."""
    to_researcher = TokenExchange(
        client_at(home, "planner"),
        caller.get,
        origins=[urls["researcher"]],
        allowed_scopes=["read"],
        resource=urls["researcher"],
    )
    to_archive = IdentityAssertion(
        client_at(partner, "researcher"),
        caller.get,
        provider=client_at(home, "researcher"),
        origins=[urls["archive"]],
        allowed_scopes=["read"],
        resource=urls["archive"],
    )
    planner, researcher = (Actor(issuer=home.url, subject=urls[name]) for name in ("planner", "researcher"))
    return {
        "home": home,
        "partner": partner,
        "planner": agent("planner", home, ActorRules(most=0), ("researcher", client_of("researcher", to_researcher))),
        "researcher": agent(
            "researcher", home, ActorRules(may_act=[planner]), ("archive", client_of("archive", to_archive))
        ),
        "archive": agent("archive", partner, ActorRules(most=2, may_act=[planner, researcher]), None),
    }


async def main() -> None:
    servers = {name: uvicorn.Server(uvicorn.Config(app, log_level="warning")) for name, app in apps().items()}
    running = [asyncio.create_task(each.serve([sockets[name]])) for name, each in servers.items()]
    token = home.token("alice", audience=urls["planner"], scopes=["read"])
    async with client_of("planner", BearerToken(token, origins=[urls["planner"]])) as http:
        print("\n".join(await ask("planner", http)))
    for each in servers.values():
        each.should_exit = True
    await asyncio.gather(*running)


if __name__ == "__main__":
    asyncio.run(main())
