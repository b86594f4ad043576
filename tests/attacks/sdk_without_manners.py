"""An application around the SDK's own routes that takes calls in every way in which some application does: by any
method, at any path, in any charset, in forms, as lenient JSON, over websockets. It tells what it gave away.

Run by the interpreter of the server's environment, never imported by a test. The question is a list of requests; the
answer, for each kind of protection, what came of each of them.
"""

# mypy: disable-error-code="import-not-found, import-untyped, misc, unused-ignore"

from __future__ import annotations

import ast
import asyncio
import json
import logging
import re
import sys
from email.message import Message as Headers
from typing import Any, Final
from urllib.parse import parse_qsl

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_rest_routes
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCard, Message, Part, Role
from google.protobuf.json_format import ParseDict
from starlette.applications import Starlette
from starlette.requests import Request

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.card.merge import merged_card
from a2a_trust.middleware.extended_card import ExtendedCard
from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.protection import protect

MARKER: Final = "the application's own extended card"
CARD: Final[dict[str, Any]] = {
    "name": "agent",
    "description": "d",
    "version": "1",
    "supportedInterfaces": [
        {"url": "http://agent.example/a2a/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "http://agent.example/a2a/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
    ],
    "capabilities": {"extendedAgentCard": True, "streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [],
    "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
    "securityRequirements": [{"schemes": {"key": {}}}],
}
STORE: Final = MemoryApiKeys()
KEY: Final = STORE.create(owner="eve").text


class Greeter(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        await event_queue.enqueue_event(Message(message_id="2", role=Role.ROLE_AGENT, parts=[Part(text="hi")]))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None: ...


class WithoutManners:
    """Reads what it can of a request, remembers the tenants in it, and has the SDK answer for it."""

    def __init__(self) -> None:
        handler = DefaultRequestHandler(
            agent_executor=Greeter(),
            task_store=InMemoryTaskStore(),
            agent_card=ParseDict(CARD, AgentCard()),
            extended_agent_card=ParseDict({**CARD, "description": MARKER}, AgentCard()),
        )
        self.rest = Starlette(routes=create_rest_routes(handler, path_prefix="/a2a/rest", enable_v0_3_compat=True))
        self.elsewhere = Starlette(routes=create_rest_routes(handler, enable_v0_3_compat=True))
        self.json_rpc = JsonRpcDispatcher(handler, enable_v0_3_compat=True)
        self.tenants: set[str] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            given = (await receive()).get("text", "")
            self.take(given)
            if "xtended" in given:
                await send({"type": "websocket.send", "text": MARKER})
            return
        body = b"".join([piece async for piece in Request(scope, receive).stream()])
        content_type = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
        call = lenient(body, content_type)
        self.take(json.dumps(call))
        self.take(body.decode("latin-1"))  # as a reader does that keeps the first of two members
        self.tenants |= {value for name, value in parse_qsl(scope["query_string"].decode()) if name.lower() == "tenant"}
        self.tenants |= {segment for segment in scope["path"].split("/") if segment == "other"}
        body = json.dumps(call).encode() if call is not None else body

        async def again() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        method = scope["method"].upper()
        headers = [line for line in scope["headers"] if line[0] not in (b"content-type", b"content-length")]
        scope = {**scope, "method": method, "headers": [*headers, (b"content-type", b"application/json")]}
        if isinstance(call, dict) and "method" in call:  # at every path, by every method
            call["method"] = {name.lower(): name for name in METHODS}.get(str(call["method"]).strip().lower(), "")
            body = json.dumps(call).encode()
            await (await self.json_rpc.handle_requests(Request(scope, again)))(scope, again, send)
        elif scope["path"].startswith(("/a2a/rest/", "/other/a2a/")):
            await self.rest(scope, again, send)
        else:
            await self.elsewhere(scope, again, send)

    def take(self, text: str) -> None:
        self.tenants |= set(re.findall(r'"tenant"\s*:\s*"(\w+)"', text))


METHODS: Final = ("SendMessage", "GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard")


def lenient(body: bytes, content_type: str) -> Any:
    """What the most forgiving reader makes of a body; None for nothing."""
    headers = Headers()
    headers["content-type"] = content_type
    charset = headers.get_content_charset("utf-8")
    if "form" in content_type:
        body = dict(parse_qsl(body.decode("latin-1"))).get("json", "").encode() or body.partition(b"\r\n\r\n")[2]
        body = body.partition(b"\r\n--")[0]
    for encoding in (charset, "utf-8-sig", json.detect_encoding(body), "latin-1"):
        try:
            text = body.decode(encoding)
        except (LookupError, ValueError):
            continue
        text = re.sub(r"//[^\n]*\n|/\*.*?\*/", "", text)
        for read in (json.loads, ast.literal_eval):
            try:
                found = read(text)
            except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
                continue
            found = found[0] if isinstance(found, list) and found else found
            if isinstance(found, dict):
                return {str(name).lower() if str(name).isupper() else str(name): value for name, value in found.items()}
    return None


async def came_of(app: Any, behind: WithoutManners, request: dict[str, Any]) -> dict[str, Any]:
    behind.tenants.clear()
    body = request["body"].encode("latin-1")
    headers = [(name.lower().encode(), value.encode()) for name, value in request["headers"].items()]
    path, _, query = request["path"].partition("?")
    scope = {
        "type": request.get("type", "http"),
        "method": request["method"],
        "path": path,
        "query_string": query.encode(),
        "headers": [*headers, (b"x-api-key", KEY.encode())],
        "client": ("192.0.2.1", 5),
        "server": ("agent.example", 80),
        "scheme": "http",
        "root_path": "",
    }
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    if scope["type"] == "websocket":
        messages = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": body.decode("latin-1")}]
    sent: list[Any] = []

    async def receive() -> Any:
        if not messages:
            await asyncio.Event().wait()
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    try:
        await asyncio.wait_for(app(scope, receive, send), 10)
    except Exception as error:  # noqa: BLE001  a broken application gives nothing away
        sent.append({"body": repr(error).encode()})
    answer = b"".join(message.get("body") or (message.get("text") or "").encode() for message in sent)
    return {
        "status": next((message["status"] for message in sent if "status" in message), None),
        "gives_card": MARKER.encode() in answer,
        "tenants": sorted(behind.tenants),
    }


async def no_card(caller: Any, tenant: str) -> None:
    """The source of an extended card that nobody has."""


def protected(app: Any, name: str) -> Any:
    if name == "bare":
        return app
    given: dict[str, Any] = {
        "plain": {},
        "default": {},
        "rules": {"rules": RequestRules(may_use_tenant=lambda caller, tenant: tenant == "acme")},
        "named": {
            "rules": RequestRules(
                may_use_tenant=lambda caller, tenant: tenant == "acme", other_paths=["/docs", "/a2a/rpc", "/files/"]
            )
        },
    }[name]
    card = merged_card(CARD) if name == "rules" else CARD
    if name == "plain":  # no rules, and no extended card: other paths need no names
        card = {**CARD, "capabilities": {}}
    given["extended_card"] = None if name == "plain" else ExtendedCard(no_card)
    return protect(app, card=card, verifiers={"key": ApiKeyVerifier(STORE)}, **given)


async def main() -> None:
    requests, found = json.load(sys.stdin), {}
    for name in ("bare", "plain", "default", "rules", "named"):
        behind = WithoutManners()
        app = protected(behind, name)
        found[name] = [await came_of(app, behind, request) for request in requests]
    print(json.dumps(found))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main())
