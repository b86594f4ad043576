"""Agents in four frameworks, each of which reads calls by the framework's own means, at every path and by every method,
and a fuzzer that looks for a call that gets past the rules to one of them.

Run by the interpreter of ``frameworks/``, never imported by a test: ``SEED COUNT`` are its arguments. It prints, for
each agent, how many requests made it do what a rule forbids when nothing protects it, how many reached it through
``protect``, and every one that got past a rule.
"""

# mypy: disable-error-code="import-not-found, import-untyped, misc, no-untyped-call, untyped-decorator, unused-ignore"

import asyncio
import json
import logging
import random
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, Final
from urllib.parse import quote, unquote

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCard, Message, Part, Role
from google.protobuf.json_format import ParseDict

from a2a_trust import ExtendedCard
from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.card.merge import merged_card
from a2a_trust.middleware.options import RequestRules, UnsafeAnyWebhook
from a2a_trust.middleware.protection import protect

RPC, REST = "/a2a/rpc", "/a2a/rest"
METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"]
CARD: Final[dict[str, Any]] = {
    "name": "agent",
    "description": "d",
    "version": "1",
    "supportedInterfaces": [
        {"url": f"http://agent.example{RPC}", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": f"http://agent.example{REST}", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
    ],
    "capabilities": {"extendedAgentCard": True, "streaming": True, "pushNotifications": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [],
    "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
    "securityRequirements": [{"schemes": {"key": {}}}],
}
STORE: Final = MemoryApiKeys()
KEY: Final = STORE.create(owner="eve").text
MARKER: Final = "the application's own extended card"

seen: list[str] = []
"""What the application was asked for since it was last emptied: tenants, and "extended"."""


def take(data: Any, tenants: list[Any]) -> None:
    """Remember what a handler would make of what its framework has read."""
    seen.extend(str(tenant) for tenant in tenants if tenant)
    for each in data if isinstance(data, list) else [data]:
        if not isinstance(each, Mapping):
            continue
        if str(each.get("method", "")).strip().lower() in (
            "getextendedagentcard",
            "agent/getauthenticatedextendedcard",
        ):
            seen.append("extended")
        for params in (each, each.get("params")):
            take_params(params)


def take_params(params: Any) -> None:
    if not isinstance(params, Mapping):
        return
    if params.get("tenant"):
        seen.append(str(params["tenant"]))
    configuration = params.get("configuration")
    for name in ("taskPushNotificationConfig", "task_push_notification_config"):
        push = configuration.get(name) if isinstance(configuration, Mapping) else None
        if isinstance(push, Mapping) and push.get("tenant"):
            seen.append(str(push["tenant"]))


def take_path(path: str) -> None:
    lowered = path.lower().rstrip("/")
    if lowered.endswith(("/extendedagentcard", "/v1/card", "/agent/authenticatedextendedcard")):
        seen.append("extended")
    before = next((path[: path.lower().rfind(word)] for word in ("/message:", "/tasks") if word in path.lower()), "")
    seen.extend(segment for segment in before.split("/") if segment in ("other", "acme"))


# The SDK


class Greeter(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        seen.extend([context.tenant] if context.tenant else [])
        push = context.configuration.task_push_notification_config if context.configuration else None
        seen.extend([push.tenant] if push is not None and push.tenant else [])
        await event_queue.enqueue_event(Message(message_id="2", role=Role.ROLE_AGENT, parts=[Part(text="hi")]))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None: ...


def with_sdk() -> Any:
    """The SDK's routes as they are, and its JSON-RPC at every other path, by every method."""
    from starlette.applications import Starlette
    from starlette.routing import Route

    interfaces = [{**each, "protocolVersion": version} for each in CARD["supportedInterfaces"] for version in NAMES]
    card = {**CARD, "supportedInterfaces": interfaces}
    handler = DefaultRequestHandler(
        agent_executor=Greeter(),
        task_store=InMemoryTaskStore(),
        agent_card=ParseDict(card, AgentCard()),
        extended_agent_card=ParseDict({**card, "description": MARKER}, AgentCard()),
    )
    everywhere = JsonRpcDispatcher(handler, enable_v0_3_compat=True).handle_requests
    return Starlette(
        routes=[
            *create_jsonrpc_routes(handler, rpc_url=RPC, enable_v0_3_compat=True),
            *create_rest_routes(handler, path_prefix=REST, enable_v0_3_compat=True),
            Route("/{path:path}", everywhere, methods=METHODS),
        ]
    )


def with_fastapi() -> Any:
    from fastapi import Body, FastAPI, Request

    app = FastAPI(redirect_slashes=True)

    @app.post(REST + "/message:send")
    @app.post("/{tenant}" + REST + "/message:send")
    @app.post(REST + "/{tenant}/message:send")
    def send(request: Request, tenant: str = "", data: dict[str, Any] = Body()) -> Any:  # noqa: B008
        take(data, [tenant, request.query_params.get("tenant")])
        return {}

    @app.api_route("/{path:path}", methods=METHODS)
    async def everything(request: Request) -> Any:
        take_path(request.url.path)
        tenants = request.query_params.getlist("tenant")
        if "form" in request.headers.get("content-type", ""):
            form = dict(await request.form())
            take({**form, "params": json.loads(str(form.get("params", "{}")))}, tenants)
        else:
            take(await request.json(), tenants)
        return {}

    return app


@cache  # Django has one configuration in a process; its application is wrapped, and not changed
def with_django_rest_framework() -> Any:
    import django
    from django.conf import settings

    settings.configure(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF="urls_of_the_fuzzer",
        SECRET_KEY="x",
        INSTALLED_APPS=["rest_framework"],
        REST_FRAMEWORK={"DEFAULT_AUTHENTICATION_CLASSES": [], "UNAUTHENTICATED_USER": None},
    )
    django.setup()
    from django.core.handlers.asgi import ASGIHandler
    from django.urls import re_path
    from rest_framework.response import Response
    from rest_framework.views import APIView

    class Everything(APIView):
        def answer(self, request: Any) -> Any:
            take_path(request.path)
            data = request.data  # JSON, form or multipart, as the request says
            if hasattr(data, "getlist"):
                params = json.loads(data.get("params", "{}"))
                data = {**{name: data[name] for name in data}, "params": params}
            take(data, request.query_params.getlist("tenant"))
            return Response({})

        get = head = post = put = patch = delete = options = query = answer
        http_method_names = [method.lower() for method in METHODS]  # noqa: RUF012

    urls: Any = type(sys)("urls_of_the_fuzzer")
    urls.urlpatterns = [re_path(r"^.*$", Everything.as_view())]
    sys.modules[urls.__name__] = urls
    return ASGIHandler()


async def with_blacksheep() -> Any:
    from blacksheep import Application, Request, Response, WebSocket
    from blacksheep.server.routing import Router

    router = Router()
    app = Application(router=router)

    async def everything(request: Request) -> Response:
        path = request.url.path.decode()
        take_path(path)
        content_type = (request.headers.get_first(b"content-type") or b"").decode("latin-1")
        query = {name.lower(): value for name, value in request.query.items()}
        if "form" in content_type:
            form = dict(await request.form() or {})
            take({**form, "params": json.loads(str(form.get("params", "{}")))}, query.get("tenant", []))
        else:
            take(json.loads(await request.read() or b"null"), query.get("tenant", []))
        return Response(200)

    async def chat(websocket: WebSocket) -> None:
        await websocket.accept()
        take(json.loads(await websocket.receive_text()), [])

    for method in METHODS:
        router.add(method, "/", everything)
        router.add(method, "/*", everything)
    router.add_ws("/*", chat)
    await app.start()
    return app


# Requests

OPERATIONS: Final = [
    "/message:send", "/message:stream", "/tasks", "/tasks/5", "/tasks/5:cancel", "/tasks/5:subscribe",
    "/extendedAgentCard", "/tasks/5/pushNotificationConfigs", "/tasks/5/pushNotificationConfigs/6", "/v1/card",
    "/v1/tasks/5", "/v1/message:send", "/agent/authenticatedExtendedCard", "/tasks/send", "",
]  # fmt: skip
TYPES: Final = [
    "application/json", "application/a2a+json", "application/json; charset=utf-8", "application/json; charset=utf-16",
    "application/json; charset=cp037", "application/json; charset=utf-7", "text/plain", "text/json",
    "application/x-json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/x",
    "application/vnd.api+json", "",
]  # fmt: skip
NAMES: Final = {
    "1.0": ["SendMessage", "SendStreamingMessage", "GetExtendedAgentCard", "acme/ext"],
    "0.3": ["message/send", "agent/getAuthenticatedExtendedCard", "acme/ext"],
}
MESSAGES: Final = {
    "1.0": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]},
    "0.3": {"messageId": "1", "role": "user", "parts": [{"kind": "text", "text": "hi"}]},
}


def a_request(pick: random.Random) -> dict[str, Any]:
    """One request: a call of some kind, with some of its parts changed."""
    version = pick.choice(["1.0", "0.3"])
    body = a_body(pick, version)
    content_type = pick.choice(TYPES) if pick.random() < 0.25 else TYPES[0]
    return {
        "type": "websocket" if pick.random() < 0.03 else "http",
        "method": a_method(pick),
        "path": a_path(pick),
        "query": pick.choice(
            ["tenant=other", "t%65nant=other", "TENANT=other", "tenant=acme&tenant=other", "tenant=acme"]
        )
        if pick.random() < 0.15
        else "",
        "content_type": content_type,
        "version": version,
        "body": encoded(pick, body, content_type),
    }


def a_method(pick: random.Random) -> str:
    if pick.random() < 0.75:
        return "POST"
    method = pick.choice(METHODS)
    return method.lower() if pick.random() < 0.1 else method


def a_path(pick: random.Random) -> str:
    if pick.random() < 0.4:
        path = RPC
    else:
        parts = [pick.choice([REST, "", "/x"]), pick.choice(OPERATIONS)]
        if pick.random() < 0.4:
            parts.insert(pick.randrange(3), pick.choice(["/other", "/acme", "/v1"]))
        path = "".join(parts) or "/"
    changes: list[Callable[[str], str]] = [
        str.upper, str.title, lambda text: text + "/", lambda text: "/" + text, lambda text: text.replace("/", "//", 1),
        lambda text: "/." + text, lambda text: "/x/.." + text, lambda text: text + ";x=1", lambda text: text + "%0A",
        lambda text: text.replace("a", "%61", 1), lambda text: quote(quote(text[1:], safe=""), safe="/"),
        lambda text: text.replace("/a2a", "", 1), lambda text: text + "%20", lambda text: text.replace("/", "\\", 2),
        lambda text: text + ".json", lambda text: text + "%2F",
    ]  # fmt: skip
    return pick.choice(changes)(path) if pick.random() < 0.25 else path


def a_body(pick: random.Random, version: str) -> Any:
    tenant = pick.choice(["other", "other", "acme", "", None])
    params: dict[str, Any] = {"message": MESSAGES[version]}
    if pick.random() < 0.6:
        name = "Tenant" if pick.random() < 0.1 else "tenant"
        params[name] = pick.choice([[tenant], {"tenant": tenant}]) if pick.random() < 0.1 else tenant
    if pick.random() < 0.3:
        name = pick.choice(["taskPushNotificationConfig", "task_push_notification_config"])
        params["configuration"] = pick.choice(
            [{name: {"tenant": tenant, "url": "http://x"}}, [{name: {"tenant": tenant}}]]
        )
    if pick.random() < 0.3:
        return params
    method = pick.choice(NAMES[version] if pick.random() < 0.9 else [*NAMES["0.3"], *NAMES["1.0"]])
    if pick.random() < 0.1:
        spelled: list[Callable[[str], str]] = [str.lower, str.upper, lambda name: f" {name}", lambda name: f"{name}\n"]
        method = pick.choice(spelled)(method)
    call: Any = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return [call] if pick.random() < 0.05 else call


def encoded(pick: random.Random, value: Any, content_type: str) -> bytes:
    text = json.dumps(value, ensure_ascii=pick.random() < 0.5)
    if isinstance(value, dict) and "form" in content_type:
        fields = {name: each if isinstance(each, str) else json.dumps(each) for name, each in value.items()}
        if "urlencoded" in content_type:
            return "&".join(f"{name}={quote(each)}" for name, each in fields.items()).encode()
        parts = [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{each}\r\n' for name, each in fields.items()]
        return "".join(f"--x\r\n{part}" for part in parts).encode() + b"--x--\r\n"
    changes: list[Callable[[str], str]] = [
        lambda text: text.replace('"method"', '"method":"GetTask","method"', 1),
        lambda text: text.replace('"tenant"', '"tenant":"","tenant"', 1),
        lambda text: text.replace('"params"', '"params":{},"params"', 1),
        lambda text: text.replace("tenant", "ten\\u0061nt"),
        lambda text: text.replace("Get", "\\u0047et"),
        lambda text: text.replace('"', "'"),
        lambda text: text[:-1] + ",}",
        lambda text: text + " {}",
        lambda text: text[:-1] + ',"x":NaN}',
        lambda text: " \n" + text,
    ]
    if pick.random() < 0.2:
        text = pick.choice(changes)(text)
    charset = content_type.partition("charset=")[2] or pick.choice(
        ["utf-8"] * 30 + ["utf-16", "utf-8-sig", "utf-32-le"]
    )
    return text.encode(charset, "replace")


async def came_of(app: Any, request: dict[str, Any]) -> list[str]:
    """What the application was asked for by this request."""
    seen.clear()
    path = unquote(request["path"])
    scope = {
        "type": request["type"],
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request["method"],
        "path": path,
        "raw_path": request["path"].encode(),
        "query_string": request["query"].encode(),
        "root_path": "",
        "headers": [
            (b"host", b"agent.example"),
            (b"content-type", request["content_type"].encode()),
            (b"content-length", b"%d" % len(request["body"])),
            (b"a2a-version", request["version"].encode()),
            (b"x-api-key", KEY.encode()),
        ],
        "client": ("192.0.2.1", 5),
        "server": ("agent.example", 80),
        "scheme": "http",
        "subprotocols": [],
    }
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": request["body"], "more_body": False}]
    if request["type"] == "websocket":
        text = request["body"].decode("latin-1")
        messages = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": text, "bytes": None}]
    answer: list[bytes] = []
    is_done = asyncio.Event()

    async def receive() -> Any:
        if not messages:
            await is_done.wait()
            return {"type": "http.disconnect" if request["type"] == "http" else "websocket.disconnect", "code": 1000}
        return messages.pop(0)

    async def send(message: Any) -> None:
        answer.append(message.get("body") or b"")
        if message["type"] == "http.response.body" and not message.get("more_body"):
            is_done.set()

    with suppress(Exception):  # what breaks gives nothing away
        await asyncio.wait_for(app(scope, receive, send), 60)
    found = {each for each in seen if each}
    if MARKER.encode() in b"".join(answer):
        found.add("extended")
    return sorted(found)


AGENTS: Final[dict[str, Callable[[], Any]]] = {
    "a2a-sdk": with_sdk,
    "FastAPI": with_fastapi,
    "Django REST framework": with_django_rest_framework,
    "BlackSheep": with_blacksheep,
}


async def no_card(caller: Any, tenant: str) -> None:
    """The source of an extended card that nobody has."""


async def fuzzed(make: Callable[[], Any], seed: int, count: int) -> dict[str, Any]:
    async def new() -> Any:
        made = make()
        return await made if isinstance(made, Awaitable) else made

    app = await new()
    any_webhook = RequestRules(webhooks=UnsafeAnyWebhook())
    rules = replace(any_webhook, may_use_tenant=lambda caller, tenant: tenant == "acme", other_paths=[RPC, "/docs"])
    # Of a card that has 0.3 too, /v1 is no tenant: an application without the paths of 0.3 has no tenant of that name.
    guards = {
        "default": (
            protect(
                await new(),
                card=CARD,
                verifiers={"key": ApiKeyVerifier(STORE)},
                extended_card=ExtendedCard(no_card),
                rules=any_webhook,
            ),
            set[str](),
        ),
        "rules": (
            protect(
                await new(),
                card=merged_card(CARD),
                verifiers={"key": ApiKeyVerifier(STORE)},
                extended_card=ExtendedCard(no_card),
                rules=rules,
            ),
            {"acme", "v1"},
        ),
    }
    pick = random.Random(seed)
    forbidden = reached = 0
    leaks: list[Any] = []
    for _ in range(count):
        request = a_request(pick)
        forbidden += bool(set(await came_of(app, request)) - {"acme"})
        for name, (guard, allowed) in guards.items():
            found = await came_of(guard, request)
            reached += bool(found)
            if set(found) - allowed:
                leaks.append([name, found, {**request, "body": request["body"].decode("latin-1")}])
    return {"forbidden": forbidden, "reached": reached, "leaks": leaks}


async def main(seed: int, count: int) -> None:
    found = {name: await fuzzed(make, seed, count) for name, make in AGENTS.items()}
    print(json.dumps(found, indent=1))
    sys.exit(any(each["leaks"] for each in found.values()))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
