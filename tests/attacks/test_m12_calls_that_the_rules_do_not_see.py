"""M12: a call in another dress gets past the rules for tenants and for the extended card.

Seen here: a method in lower case, PUT, PATCH, QUERY and GET with a body, charsets that are not UTF-8, forms, JSON that
only lenient readers read, JSON-RPC at paths that look like REST, nested tenants, routes that the card does not name,
and websockets. Each works against the application alone: the SDK's own routes, with every leniency around them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.requests import Request

from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.protection import protect
from tests.middleware.agent import CALL, CARD, KEY, verifiers
from tests.middleware.test_rules import GOOD, Behind, Server, ask, guarded
from tests.servers.environments import answer_of
from tests.servers.serving import ROOT

SCRIPT = Path(__file__).resolve().parent / "sdk_without_manners.py"
JSON = {"Content-Type": "application/json", "A2A-Version": "1.0"}
MESSAGE = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
RPC, REST = "/a2a/rpc", "/a2a/rest"
EXTENDED = '{"jsonrpc":"2.0","id":1,"method":"GetExtendedAgentCard"}'
OTHER = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"tenant": "other", "message": MESSAGE}}
)
NESTED = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "SendMessage",
        "params": {"message": MESSAGE, "configuration": {"taskPushNotificationConfig": {"tenant": "other"}}},
    }
)


def request(what: str, method: str, path: str, body: str | bytes = "", **headers: str) -> dict[str, Any]:
    text = body if isinstance(body, str) else body.decode("latin-1")
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"what": what, "method": method, "path": path, "headers": {**JSON, **given}, "body": text}


def dressed(call: str) -> Iterator[dict[str, Any]]:
    """A call of JSON-RPC in every dress, at the path of its interface."""
    for method in ("PUT", "PATCH", "QUERY", "DELETE", "GET", "HEAD", "OPTIONS", "post", "Post", "PROPFIND"):
        yield request(f"by {method}", method, RPC, call)
    for charset in ("cp037", "utf-7", "utf-16", "utf-32", "cp1026"):
        said = f"application/json; charset={charset}"
        yield request(f"in {charset}", "POST", RPC, call.encode(charset), Content_Type=said)
        yield request(f"in {charset}, unsaid", "POST", RPC, call.encode(charset))
    yield request("with a mark", "POST", RPC, b"\xef\xbb\xbf" + call.encode())
    form = f"json={call}"
    yield request("in a form", "POST", RPC, form, Content_Type="application/x-www-form-urlencoded")
    part = f'--x\r\nContent-Disposition: form-data; name="json"\r\n\r\n{call}\r\n--x--'
    yield request("in a multipart form", "POST", RPC, part, Content_Type="multipart/form-data; boundary=x")
    for media_type in ("text/plain", "application/xml", "", "application/json;charset=utf-8;charset=utf-7"):
        yield request(f"as {media_type!r}", "POST", RPC, call, Content_Type=media_type)
    yield request("in single quotes", "POST", RPC, call.replace('"', "'"))
    yield request("with a comment", "POST", RPC, call.replace("{", "/* */{", 1))
    yield request("with a trailing comma", "POST", RPC, call[:-1] + ",}")
    yield request("in a batch", "POST", RPC, f"[{call}]")
    yield request("its method twice", "POST", RPC, call.replace('"method"', '"method":"GetTask","method"'))
    yield request("its method in capitals", "POST", RPC, call.replace("SendMessage", "SENDMESSAGE").upper())
    yield request("in capitals", "POST", RPC, call.replace('"method"', '"METHOD"'))
    for path in ("/", "/rpc", "/a2a/rpc/", "/A2A/RPC", "//a2a/rpc", "/a2a/rpc;x", "/a2a/./rpc", "/x/../a2a/rpc"):
        yield request(f"at {path}", "POST", path, call)
    for path in (f"{REST}/message:send", f"{REST}/tasks/5:cancel", f"{REST}/tasks/5", "/tasks/5", "/message:send"):
        yield request(f"at {path}", "POST", path, call)
    for path in ("/a2a/rpc/", "/A2A/RPC", "/x/a2a/rpc"):  # as what the guard once called the handshake of a websocket
        yield request(f"by the method WEBSOCKET at {path}", "WEBSOCKET", path, call)
    for method in ("GET", "HEAD"):
        yield request(f"by {method} behind a prefix", method, "/x/a2a/rpc", call)
    yield {**request("over a websocket", "GET", RPC, call), "type": "websocket"}
    yield {**request("over a websocket at REST", "GET", f"{REST}/message:stream", call), "type": "websocket"}


def cards() -> Iterator[dict[str, Any]]:
    yield from dressed(EXTENDED)
    yield request("plainly", "POST", RPC, EXTENDED)
    for name in ("getextendedagentcard", "GETEXTENDEDAGENTCARD", " GetExtendedAgentCard ", "GetExtendedAgentCard\\n"):
        yield request(f"as {name!r}", "POST", RPC, EXTENDED.replace("GetExtendedAgentCard", name))
    for path in (
        f"{REST}/extendedAgentCard",
        "/extendedAgentCard",
        f"{REST}/v1/card",
        "/v1/card",
        "/acme/extendedAgentCard",
    ):
        version = "0.3" if path.endswith("card") else "1.0"
        for method in ("GET", "get", "HEAD"):
            yield request(f"{method} {path}", method, path, A2A_Version=version)


def tenants() -> Iterator[dict[str, Any]]:
    yield from dressed(OTHER)
    yield request("plainly", "POST", RPC, OTHER)
    twice = OTHER.replace('"tenant": "other"', '"tenant": "other", "tenant": ""')
    yield request("twice", "POST", RPC, twice)
    in_utf_7 = OTHER.replace('"tenant"', '"+AHQ-enant"')  # strict JSON in UTF-8 too, with another name
    yield request("in UTF-7 that is UTF-8", "POST", RPC, in_utf_7, Content_Type="application/json; charset=utf-7")
    yield request("nested", "POST", RPC, NESTED)
    yield request(
        "nested, as protobuf",
        "POST",
        RPC,
        NESTED.replace("taskPushNotificationConfig", "task_push_notification_config"),
    )
    yield request("nested, in REST", "POST", f"{REST}/message:send", json.dumps(json.loads(NESTED)["params"]))
    yield request("in REST", "POST", f"{REST}/message:send", json.dumps({"tenant": "other", "message": MESSAGE}))
    yield request("of an extension", "POST", RPC, OTHER.replace("SendMessage", "acme/extension"))
    body = json.dumps({"message": MESSAGE})
    for path in (f"{REST}/other/message:send", f"/other{REST}/message:send", "/other/message:send"):
        yield request(f"at {path}", "POST", path, body)
        yield request(f"by post at {path}", "post", path, body)
    for path in (f"{REST}/other/tasks/5", f"/other{REST}/tasks/5", f"{REST}/tasks?tenant=other", "/other/tasks"):
        yield request(f"at {path}", "GET", path)
    for query in ("?tenant=other", "?t%65nant=other", "?Tenant=other", "?tenant=acme&tenant=other"):
        plain = OTHER.replace('"tenant": "other", ', "")
        yield request(f"in the query {query}", "POST", RPC + query, plain)


CARDS, TENANTS = list(cards()), list(tenants())
UNLISTED = [  # where an application has routes that the card does not name
    request("elsewhere", "POST", "/elsewhere", EXTENDED),
    request("elsewhere, of a tenant", "POST", "/elsewhere", OTHER),
    {**request("elsewhere, over a websocket", "GET", "/elsewhere", EXTENDED), "type": "websocket"},
    request("by GET elsewhere", "GET", "/elsewhere", EXTENDED),
]


@pytest.fixture(scope="module")
def found() -> Any:
    """By protection, what came of every request."""
    return answer_of("server-1.3.0", str(SCRIPT), [*CARDS, *TENANTS, *UNLISTED], PYTHONPATH=str(ROOT))


def leaks(outcomes: list[Any], requests: list[Any]) -> list[tuple[str, str]]:
    return [
        (asked["what"], asked["path"])
        for asked, came in zip(requests, outcomes, strict=True)
        if came["gives_card"] or "other" in came["tenants"]
    ]


@pytest.mark.real
def test_the_application_alone_gives_all_of_it_away(found: Any) -> None:
    ways = {what for what, _ in leaks(found["bare"], [*CARDS, *TENANTS, *UNLISTED])}
    assert {
        "plainly",
        "by PUT",
        "by PATCH",
        "by QUERY",
        "by GET",
        "by post",
        "in cp037",
        "in utf-7",
        "in a form",
    } <= ways
    assert {"in a multipart form", "in single quotes", "with a comment", "in a batch", "over a websocket"} <= ways
    assert {
        "nested",
        "nested, as protobuf",
        "nested, in REST",
        f"at {REST}/message:send",
        "elsewhere",
        "twice",
        "in UTF-7 that is UTF-8",
    } <= ways
    assert {"as 'getextendedagentcard'", "GET /extendedAgentCard", "at /", "in the query ?Tenant=other"} <= ways


@pytest.mark.real
@pytest.mark.parametrize("protection", ["plain", "default", "rules", "named"])
def test_no_call_that_looks_like_one_of_an_interface_gets_past_the_rules(found: Any, protection: str) -> None:
    asked = [*CARDS, *TENANTS]
    assert leaks(found[protection][: len(asked)], asked) == []


@pytest.mark.real
@pytest.mark.parametrize("protection", ["default", "rules", "named"])
def test_no_other_path_gives_away_what_rules_forbid(found: Any, protection: str) -> None:
    """The card promises an extended card, so a path that nobody has named is nobody's."""
    outcomes = found[protection][len(CARDS) + len(TENANTS) :]
    assert leaks(outcomes, UNLISTED) == []
    assert {came["status"] for came in outcomes} <= {404, None}


# Prefixes that only the application knows, and templates that were meant for pages


@pytest.mark.parametrize(
    "rules",
    [
        RequestRules(),
        RequestRules(served_at={"http://agent.example/rpc": "/rpc"}),
        RequestRules(may_use_tenant=lambda caller, tenant: False, other_paths=["/api/"]),
        RequestRules(may_use_tenant=lambda caller, tenant: False, other_paths=["/api/{page}"]),
    ],
    ids=["no rules", "served_at", "subtree", "template"],
)
def test_a_prefix_that_the_application_takes_off_is_no_way_past_the_rules(rules: RequestRules) -> None:
    """FastAPI sets its own root_path inside of this layer, and then serves ``/api/rpc`` as ``/rpc``."""
    executed: list[str] = []
    agent = FastAPI()
    agent.root_path = "/api"  # as FastAPI(root_path=…) does, which warns

    @agent.post("/rpc")
    async def rpc(request: Request) -> dict[str, str]:
        executed.append((await request.json())["params"]["tenant"])
        return {}

    app = protect(agent, card=CARD, verifiers=verifiers(), rules=rules)
    for path in ("/rpc", "/api/rpc", "/API/rpc", "/api/rpc/", "/x/api/rpc"):
        call = {**CALL, "params": {"tenant": "other"}}
        assert ask(app, "POST", path, json=call, headers=GOOD).status_code in (403, 404), path
    assert executed == []


@pytest.mark.parametrize("entry", ["/{lang}/{page}", "/{page}", "/docs/{page}", "/{a}/{b}/{c}"])
def test_a_template_of_placeholders_admits_no_operation(entry: str) -> None:
    """Whoever names ``/{lang}/{page}`` means pages, and not the routes that the SDK has beside the card's."""
    behind = Behind()
    app = guarded(behind, may_use_tenant=lambda caller, tenant: False, other_paths=[entry])
    for method, path in (
        ("GET", "/v1/card"),
        ("GET", "/extendedAgentCard"),
        ("GET", "/acme/extendedAgentCard"),
        ("GET", "/docs/extendedAgentCard"),
        ("GET", "/docs/acme/extendedAgentCard"),
        ("POST", "/acme/message:send"),
        ("GET", "/acme/tasks"),
        ("POST", "/docs/rpc"),
    ):
        assert ask(app, method, path, headers=GOOD).status_code == 404, path
    assert behind.calls == []
    page = entry.replace("{lang}", "en").replace("{page}", "start")
    if "{" not in page:
        assert ask(app, "GET", page, headers=GOOD).status_code == 299  # control


def test_a_template_with_the_words_of_an_operation_admits_it() -> None:
    app = guarded(Behind(), may_use_tenant=lambda caller, tenant: False, other_paths=["/{tenant}/tasks", "/docs/rpc"])
    assert ask(app, "GET", "/acme/tasks", headers=GOOD).status_code == 299
    assert ask(app, "POST", "/docs/rpc", headers=GOOD).status_code == 299


@pytest.mark.parametrize("path", ["/rpc", "/x/rpc", "/", "/rest/tasks/5"])
@pytest.mark.parametrize("version", ["1.0", "1.1", "2", "3", None])
@pytest.mark.parametrize("sizes", [[0], [5, 0], [0, 5]], ids=["at once", "at the front", "at the end"])
def test_a_call_in_a_body_that_no_header_announces_is_not_seen(
    sizes: list[int], version: str | None, path: str
) -> None:
    """HTTP/1 has no such body, but servers that translate events of a cloud may give one; HTTP/2 has it."""
    behind = Behind()
    body, (first, *_) = json.dumps(CALL).encode(), sizes
    messages = [{"type": "http.request", "body": body[first:], "more_body": False}]
    if len(sizes) > 1:
        messages.insert(0, {"type": "http.request", "body": body[:first], "more_body": True})
    server = Server(messages, method="GET", path=path, headers=[(b"x-api-key", KEY.encode())])
    if version is not None:
        server.scope["http_version"] = version
    server.run(guarded(behind))
    assert not any(behind.bodies)
    reached = version in ("1.0", "1.1")
    assert server.sent[0]["status"] == (299 if reached else 400)


def test_a_body_that_is_announced_or_has_a_coding_is_read_before_the_application_is_asked() -> None:
    for name, value in ((b"content-length", b"5"), (b"transfer-encoding", b"chunked"), (b"Transfer_Encoding", b"x")):
        behind = Behind()
        headers = [(b"x-api-key", KEY.encode()), (name, value)]
        message = {"type": "http.request", "body": b"hello", "more_body": False}
        server = Server([message], method="GET", headers=headers, http_version="1.1")
        server.run(guarded(behind))
        assert (server.sent[0]["status"], behind.bodies) == (400, []), name
