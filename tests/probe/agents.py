"""Agents of A2A 1.0 on both bindings that enforce their cards as a test tells them to, each on a real server."""

from __future__ import annotations

import json
import re
import socket
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from a2a_trust import Fetcher
from a2a_trust.client import ApiKey
from a2a_trust.probe import ProbeOptions, ProbeReport, probe_agent
from a2a_trust.testing import TokenIssuer

__all__ = [
    "API_KEY",
    "ISSUER",
    "KEY",
    "LOGIN",
    "Agent",
    "Asked",
    "Reply",
    "by_key",
    "by_token",
    "card_of",
    "serving",
]

KEY: Final = "the-key-of-the-operator"
API_KEY: Final = {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}
ISSUER: Final = TokenIssuer("https://idp.test")
LOGIN: Final = {
    "openIdConnectSecurityScheme": {"openIdConnectUrl": "https://idp.test/.well-known/openid-configuration"}
}
ROUTES: Final = {
    r"POST /message:send": "SendMessage",
    r"POST /message:stream": "SendStreamingMessage",
    r"GET /tasks": "ListTasks",
    r"GET /tasks/[^/:]+": "GetTask",
    r"POST /tasks/[^/:]+:cancel": "CancelTask",
    r"GET /tasks/[^/:]+:subscribe": "SubscribeToTask",
    r"GET /tasks/[^/:]+/pushNotificationConfigs": "ListTaskPushNotificationConfigs",
    r"POST /tasks/[^/:]+/pushNotificationConfigs": "CreateTaskPushNotificationConfig",
    r"GET /tasks/[^/:]+/pushNotificationConfigs/[^/]+": "GetTaskPushNotificationConfig",
    r"GET /extendedAgentCard": "GetExtendedAgentCard",
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request: its operation, "" for none of A2A, and its binding, ``rpc`` or ``rest``."""

    method: str
    path: str
    headers: dict[str, str]
    operation: str = ""
    binding: str = "rpc"
    params: dict[str, Any] = field(default_factory=dict)

    def token(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    def claims(self) -> dict[str, Any]:
        """The claims of the token, which nobody has verified; KeyError: it is no token."""
        parts = self.token().split(".")
        if len(parts) != 3:
            raise KeyError("no token")
        claims: dict[str, Any] = json.loads(urlsafe_b64decode(parts[1] + "=="))
        header: dict[str, Any] = json.loads(urlsafe_b64decode(parts[0] + "=="))
        return {**claims, "alg": header["alg"], "is signed": bool(parts[2])}


@dataclass(frozen=True, kw_only=True)
class Reply:
    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


Guard = Callable[[Asked], Reply | None]
"""The rejection of a request; None admits it."""


def rejection(asked: Asked, status: int = 401, challenge: str = 'ApiKey in="header", name="X-API-Key"') -> Reply:
    error = {"code": -31401, "message": "Authentication is required."}
    body: Any = {"jsonrpc": "2.0", "id": None, "error": error}
    if asked.binding == "rest":
        body = {"error": {"code": status, "status": "UNAUTHENTICATED", "message": error["message"]}}
    return Reply(status=status, body=body, headers={"WWW-Authenticate": challenge} if challenge else {})


def by_key(asked: Asked) -> Reply | None:
    """As it should be."""
    return None if asked.headers.get("x-api-key") == KEY else rejection(asked)


def by_token(accepts: Callable[[dict[str, Any]], bool]) -> Guard:
    """A guard that accepts tokens with such claims, and ``KEY`` as a token."""

    def guard(asked: Asked) -> Reply | None:
        try:
            accepted = asked.token() == KEY or accepts(asked.claims())
        except (KeyError, ValueError):
            accepted = False
        said = ', error="invalid_token"' if asked.token() else ""
        return None if accepted else rejection(asked, challenge=f'Bearer realm="a2a"{said}')

    return guard


def card_of(origin: str, **members: Any) -> dict[str, Any]:
    return {
        "name": "Ledger",
        "description": "Books invoices.",
        "version": "1.0.0",
        "supportedInterfaces": [
            {"url": f"{origin}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": f"{origin}/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
        ],
        "capabilities": {"streaming": True, "extendedAgentCard": True},
        "securitySchemes": {"key": API_KEY},
        "securityRequirements": [{"schemes": {"key": {}}}],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "ask", "name": "Ask", "description": "Answers.", "tags": ["ledger"]}],
        **members,
    }


@dataclass
class Agent:
    """An agent behind a guard. ``card`` are members of its card; ``answers`` replace what it answers, by operation.

    ``pages`` are further replies, by path; ``asked`` is every request.
    """

    guard: Guard = by_key
    card: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Callable[[Asked], Reply]] = field(default_factory=dict)
    pages: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    url: str = ""
    asked: list[Asked] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        return card_of(self.url, **self.card)

    async def __call__(self, request: Request) -> Response:
        path = request.url.path
        if path in self.pages:
            page = self.pages[path]
            reply = page if isinstance(page, Reply) else Reply(body=page)
        elif path == "/.well-known/agent-card.json":
            reply = Reply(body=self.document())
        else:
            asked = await _read(request)
            self.asked.append(asked)
            reply = self.guard(asked) or self.answer(asked)
        body = reply.body if isinstance(reply.body, bytes | type(None)) else json.dumps(reply.body).encode()
        headers = {"content-type": "application/json", **self.headers, **reply.headers}
        return Response(body, reply.status, headers)

    def answer(self, asked: Asked) -> Reply:
        """What the application answers."""
        if asked.operation in self.answers:
            return self.answers[asked.operation](asked)
        if asked.method == "OPTIONS":
            return Reply(status=405, body={})
        if not asked.operation:
            return Reply(status=404, body={"detail": "Not Found"})
        if asked.operation == "ListTasks":
            return result(asked, {"tasks": []})
        if asked.operation == "GetExtendedAgentCard":
            reply = result(asked, {**self.document(), "description": "For known callers."})
            return replace(reply, headers={"Cache-Control": "private, no-store"})
        if "Push" in asked.operation:
            return error(asked, -32003, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED", "not supported")
        if asked.operation in ("SendMessage", "SendStreamingMessage"):
            return error(asked, -32602, 400, "INVALID_PARAMS", "params.message: Field required")
        if asked.operation in ROUTES.values():
            return error(asked, -32001, 404, "TASK_NOT_FOUND", "Task not found")
        return error(asked, -32601, 404, "METHOD_NOT_FOUND", "Method not found")


def result(asked: Asked, value: Any) -> Reply:
    return Reply(body=value if asked.binding == "rest" else {"jsonrpc": "2.0", "id": "probe", "result": value})


def error(asked: Asked, code: int, status: int, reason: str, message: str) -> Reply:
    if asked.binding == "rpc":
        body = {"jsonrpc": "2.0", "id": "probe", "error": {"code": code, "message": message}}
        return Reply(body=body)
    details = [{"reason": reason}]
    return Reply(status=status, body={"error": {"code": status, "message": message, "details": details}})


async def _read(request: Request) -> Asked:
    headers = {name.lower(): value for name, value in request.headers.items()}
    path, body = request.url.path, await request.body()
    asked = Asked(method=request.method, path=path, headers=headers)
    if path == "/rpc" and body:
        call = json.loads(body)
        return replace(asked, operation=call["method"], params=call["params"])
    if path.startswith("/rest"):
        below = f"{request.method} {path.removeprefix('/rest')}"
        names = [name for pattern, name in ROUTES.items() if re.fullmatch(pattern, below)]
        params = json.loads(body) if body else {}
        return replace(asked, binding="rest", operation=names[0] if names else "", params=params)
    return asked


@dataclass(frozen=True)
class Served:
    agent: Agent
    url: str

    def probe(self, key: str | None = None, **options: Any) -> ProbeReport:
        """The report, with that key if it is given."""
        credentials = {} if key is None else {"key": ApiKey(key, origins=[self.url])}
        settings = {"credentials": credentials, "fetcher": Fetcher(private_origins=[self.url], timeout=60), **options}
        return probe_agent(self.url, ProbeOptions(**settings))


@contextmanager
def serving(agent: Agent | None = None, **members: Any) -> Iterator[Served]:
    """The agent, or one of these members, answers while the block runs."""
    agent = Agent(**members) if agent is None else agent
    listener = socket.create_server(("127.0.0.1", 0))
    agent.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    methods = ["GET", "POST", "OPTIONS", "DELETE"]
    app = Starlette(routes=[Route("/{path:path}", agent.__call__, methods=methods)])
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
    thread = Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield Served(agent, agent.url)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
