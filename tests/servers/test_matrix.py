"""Every route and method of the SDK's server, and what is beside them, with every kind of credential.

The routes are asked of the application itself. What a good credential gives is what the same agent answers without a
guard: a second server runs it bare.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from a2a_trust.card.operations import METHODS as KNOWN
from a2a_trust.card.operations import Operation
from tests.servers.callers import FOLDER, Callers
from tests.servers.environments import answer_of, python_of
from tests.servers.issuer import Issuer
from tests.servers.serving import ROOT, SERVERS, free_port, serving

pytestmark = pytest.mark.real

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
CARD_PATHS = ["/.well-known/agent-card.json", "/.well-known/agent.json"]
JSON_RPC, REST = "/a2a/jsonrpc", "/a2a/rest"
#: Where the SDK's server takes a tenant from, and where the specification has it.
TENANTS = (f"/acme{REST}/", f"{REST}/v2/")
EXTENDED = ("/extendedAgentCard", "/v1/card", "/agent/authenticatedExtendedCard")
EXTENDED_METHODS = ("GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard")

UNLISTED = [
    "/",
    "/nowhere",
    "/a2a",
    "/a2a/jsonrpc/",
    "/a2a/jsonrpc/x",
    "/a2a/rest",
    "/a2a/rest/",
    "/a2a/rest/v1",
    "/a2a/rest/v2/message:send",
    "/extendedAgentCard",
    "/v1/card",
    "/agent/authenticatedExtendedCard",
    "/.well-known/",
    "/.well-known/jwks.json",
    "/.well-known/agent-card.json/",
    "/.well-known/agent-card.json/x",
    "/.well-known/agent%2Dcard.json",
    "/x/.well-known/agent-card.json",
]


class Answer(NamedTuple):
    status: int
    media_type: str | None
    challenges: list[str]
    body: bytes


class Asked(NamedTuple):
    """What the SDK's server has, by its own word."""

    paths: list[str]
    routes: set[tuple[str, str]]
    """Method and path."""
    calls: dict[str, list[str]]


@pytest.fixture(scope="module")
def served() -> Asked:
    found = answer_of("server-1.3.0", "sdk_routes.py", None, PYTHONPATH=f"{ROOT}:{FOLDER}")
    routes = {
        (method, path.format(id="1", push_id="2", tenant="acme")) for path, of in found["routes"] for method in of
    }
    paths = {path for _, path in routes}
    assert {JSON_RPC, "/a2a/rest/message:send", "/a2a/rest/v1/message:send", *CARD_PATHS} <= paths
    return Asked(sorted(paths), routes, found["calls"])


class Shell(NamedTuple):
    """A guarded agent, and the same agent without a guard, whose card names the place of the guarded one."""

    origin: str
    bare: str


@pytest.fixture(scope="module", params=["protect", "serve"])
def shell(
    request: pytest.FixtureRequest,
    callers: Callers,
    issuer: Issuer,
    hello_worlds: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Shell]:
    """``protect`` in the agent's own process, and ``a2a-sign serve`` in front of the bare one."""
    origin = hello_worlds["uvicorn-h11"]
    if request.param == "serve":
        origin = f"http://127.0.0.1:{free_port()}"
    port = free_port()
    python = str(python_of("server-1.3.0"))
    command = [python, "-m", *SERVERS["uvicorn-h11"]("hello_world:new_agent", port), "--factory"]
    bare = f"http://127.0.0.1:{port}"
    with ExitStack() as stack:
        stack.enter_context(serving(command, bare, callers.settings(origin), FOLDER))
        if request.param == "serve":
            folder = tmp_path_factory.mktemp("serve")
            (folder / "agent.toml").write_text(served_file(origin, bare, callers, issuer))
            served = [str(Path(sys.executable).with_name("a2a-sign")), "serve", "agent.toml"]
            stack.enter_context(serving(served, origin, {}, folder))
        yield Shell(origin, bare)


def served_file(origin: str, bare: str, callers: Callers, issuer: Issuer) -> str:
    """The configuration with the verifiers of the example."""
    keys = f'{{ type = "OpenIdKeys", issuer = "{issuer.url}", fetcher = {{ private_origins = ["{issuer.url}"] }} }}'
    return f"""
card = {{ type = "FromApplication" }}
[upstream]
url = "{bare}"
[listen]
address = "{origin.removeprefix("http://")}"
[rules]
failures = {{ by_credential = "100000/minute", by_peer = "100000/minute" }}
[verifiers.key]
type = "ApiKeyVerifier"
store = {{ type = "SqliteApiKeys", path = "{callers.path}" }}
[verifiers.login]
type = "JwtVerifier"
keys = {keys}
issuer = "{issuer.url}"
audience = "{origin}"
"""


def asked(
    origin: str, requests: Iterable[tuple[str, str]], headers: dict[str, str], body: bytes = b""
) -> dict[tuple[str, str], Answer]:
    """The answers to those methods and paths, over one connection where the server keeps it."""
    answers = {}
    with closing(HTTPConnection(origin.removeprefix("http://"), timeout=30)) as connection:
        for method, path in requests:
            connection.request(method, path, body, {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            try:
                content = response.read()
            except IncompleteRead as broken:  # some streams of the SDK break off when they have no task to tell of
                content = broken.partial
                connection.close()
            challenges = response.headers.get_all("www-authenticate", [])
            answers[method, path] = Answer(response.status, response.headers["content-type"], challenges, content)
    return answers


def everything(served: Asked) -> list[tuple[str, str]]:
    return [(method, path) for path in (*served.paths, *UNLISTED) for method in METHODS]


def is_public(method: str, path: str) -> bool:
    return path in CARD_PATHS and method in ("GET", "HEAD")


KEY = 'ApiKey in="header", name="X-API-Key"'
INVALID, POOR = 'Bearer error="invalid_token"', 'Bearer error="insufficient_scope", scope="read"'
BEARER = 'Bearer scope="read"'

KINDS: list[tuple[str, Callable[[Callers, str], list[dict[str, str]]], int, str]] = [
    ("none", lambda _callers, _origin: [{}], 401, BEARER),
    ("wrong", Callers.wrong, 401, INVALID),
    ("expired", Callers.expired, 401, INVALID),
    ("wrong scope", Callers.poor, 403, POOR),
]


@pytest.mark.parametrize(("kind", "headers", "status", "challenge"), KINDS, ids=[kind[0] for kind in KINDS])
def test_whatever_is_asked_for_is_refused_in_the_words_of_its_binding(
    shell: Shell,
    callers: Callers,
    served: Asked,
    kind: str,
    headers: Callable[[Callers, str], list[dict[str, str]]],
    status: int,
    challenge: str,
) -> None:
    origin = shell.origin
    requests = [request for request in everything(served) if not is_public(*request)]
    for carried in headers(callers, origin):
        for (method, path), answer in asked(origin, requests, carried).items():
            # Without a token, bearers are told which scopes it needs.
            expected = [KEY, challenge if "Authorization" in carried else BEARER]
            assert (answer.status, answer.challenges) == (status, expected), (method, path)
            assert answer.media_type == media_type(path), (method, path)
            assert (answer.body == b"") == (method == "HEAD"), (method, path)
            if answer.body:
                check_body(path, status, json.loads(answer.body))


def media_type(path: str) -> str:
    is_0_3 = path.startswith("/a2a/rest/v1/")
    return "application/json" if path == JSON_RPC or is_0_3 else "application/a2a+json"


def check_body(path: str, status: int, body: Any) -> None:
    error = body["error"]
    assert error["message"] in ("Authentication is required.", "The caller is not allowed to do this.")
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "domain": "a2a-protocol.org"}
    reason, name = {401: ("UNAUTHENTICATED", "UNAUTHENTICATED"), 403: ("UNAUTHORIZED", "PERMISSION_DENIED")}[status]
    if path == JSON_RPC:
        assert body == {"jsonrpc": "2.0", "id": None, "error": error}
        assert (error["code"], error["data"]) == (-31000 - status, [{**info, "reason": reason}])
    else:
        assert (error["code"], error["status"], error["details"]) == (status, name, [{**info, "reason": reason}])


def test_a_good_credential_gives_what_the_agent_answers_without_a_guard(
    shell: Shell, callers: Callers, served: Asked
) -> None:
    origin, bare = shell
    expected = asked(bare, everything(served), {})
    assert {200, 404, 405} <= {answer.status for answer in expected.values()}
    for carried in callers.good(origin):
        for (method, path), answer in asked(origin, everything(served), carried).items():
            if path in CARD_PATHS and method in ("GET", "HEAD"):
                assert answer.status == 200  # from the guard itself
            elif looks_like_a_call(method, path) and not is_declared(method, path, served):
                assert answer.status == 404, (method, path)
            elif is_for_a_tenant(method, path):
                assert answer.status == 403, (method, path)  # nobody said who may use a tenant
            elif path.endswith(EXTENDED) and method in ("GET", "HEAD"):
                assert (answer.status, answer.media_type) == (400, "application/json")  # from the guard: there is none
            else:
                assert answer[:3] == expected[method, path][:3], (method, path)


def looks_like_a_call(method: str, path: str) -> bool:
    if path in ("/", JSON_RPC, f"{JSON_RPC}/"):
        return method not in ("GET", "HEAD")
    return any(name in path for name in ("/tasks", "/message:", *EXTENDED))


def is_declared(method: str, path: str, served: Asked) -> bool:
    """Whether the card has an interface for it: those of the SDK's routes that are below, or the path of JSON-RPC."""
    if path == "/agent/authenticatedExtendedCard":
        return method in ("GET", "HEAD")  # the card has interfaces of 0.3 too
    if not path.startswith((REST, JSON_RPC, f"/acme{REST}")) or path == f"{JSON_RPC}/":
        return False
    method = "GET" if method == "HEAD" else method
    without_tenant = path.replace("/v2/", "/").replace("/v1/", "/")
    is_task = (
        method == "GET" and "/tasks/" in path and "/" not in path.partition("/tasks/")[2]
    )  # "1:cancel" can be a task's name
    return is_task or (method, path) in served.routes or (method, without_tenant) in served.routes


def is_for_a_tenant(method: str, path: str) -> bool:
    """Of what is below /v1, the SDK's server has the list of tasks and every DELETE for a tenant "v1" of 1.0 alone."""
    has_no_0_3 = method == "DELETE" or path == f"{REST}/v1/tasks"
    is_v1 = has_no_0_3 and path.startswith((f"{REST}/v1/tasks", f"{REST}/v1/message:"))
    return method != "OPTIONS" and (is_v1 or path.startswith(TENANTS))


def test_the_card_is_public_whatever_else_comes_with_the_request(shell: Shell, callers: Callers) -> None:
    origin, bare = shell
    requests = [("GET", path) for path in CARD_PATHS]
    # As the members of the card, whose order differs between two processes of the SDK.
    expected = [as_json(answer) for answer in asked(bare, requests, {}).values()]
    assert expected[0][0] == 200
    for carried in ({}, *callers.wrong(origin), *callers.expired(origin), *callers.poor(origin)):
        assert [as_json(answer) for answer in asked(origin, requests, carried).values()] == expected


def as_json(answer: Answer) -> tuple[int, Any]:
    return answer.status, json.loads(answer.body or b"null")


@pytest.mark.parametrize("server", [server for server in SERVERS if server != "uvicorn-h11"])
def test_every_server_refuses_everything_and_shows_the_card(
    hello_worlds: dict[str, str], served: Asked, server: str
) -> None:
    origin = hello_worlds[server]
    requests = [request for request in everything(served) if not is_public(*request)]
    for request, answer in asked(origin, requests, {}).items():
        assert (answer.status, answer.challenges) == (401, [KEY, BEARER]), request
    for answer in asked(origin, [("GET", path) for path in CARD_PATHS], {}).values():
        assert (answer.status, json.loads(answer.body)["name"]) == (200, "Hello World")


@pytest.mark.parametrize("version", ["0.3", "1.0"])
def test_every_method_of_json_rpc_is_refused_and_with_a_credential_is_not(
    shell: Shell, callers: Callers, served: Asked, version: str
) -> None:
    origin, bare = shell
    call, speaks = [("POST", JSON_RPC)], {"A2A-Version": version}
    assert len(served.calls[version]) >= 10
    for method in (*served.calls[version], "no/such/method"):
        body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": {}}).encode()
        for _, headers, status, _ in KINDS:
            for carried in headers(callers, origin):
                answer = asked(origin, call, {**speaks, **carried}, body)["POST", JSON_RPC]
                assert answer.status == status, method
                check_body(JSON_RPC, status, json.loads(answer.body))
        expected = asked(bare, call, speaks, body)["POST", JSON_RPC]
        for carried in callers.good(origin):
            found = asked(origin, call, {**speaks, **carried}, body)["POST", JSON_RPC]
            if method in EXTENDED_METHODS:  # answered by the guard, which says the same
                assert json.loads(found.body)["error"]["code"] == -32004
                assert json.loads(expected.body)["error"]["code"] in (-32004, -32601)
            elif method in KNOWN and KNOWN[method][1] is Operation.CREATE_PUSH_CONFIG:  # the card promises no push
                assert json.loads(found.body)["error"]["code"] == -32003
            else:
                assert found == expected, method
