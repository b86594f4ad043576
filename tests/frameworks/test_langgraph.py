"""docs/frameworks/langgraph.md is true: its files make two assistants that are served, and its client calls one.

``langgraph dev`` starts the server. LangGraph has no client for A2A; the other calls are those of a plain HTTP client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid5

import httpx
import pytest

from tests.frameworks.guide import block_of
from tests.frameworks.impostors import KINDS, UNCHANGED, impostors
from tests.frameworks.page_programs import prints, run_client
from tests.frameworks.parties import Parties, challenged_resource, parties
from tests.servers.environments import python_of
from tests.servers.serving import free_port, serving

ENVIRONMENT: Final = "langgraph-0.16.7"
PAGE: Final = "langgraph"
FILES: Final = ("graphs.py", "guarded.py", "owners.py")
CLIENT: Final = len(FILES)
ANN: Final = "ann@api-keys"
PATHS: Final = {
    name: f"/a2a/{uuid5(UUID('6ba7b821-9dad-11d1-80b4-00c04fd430c8'), name)}" for name in ("billing", "support")
}
SEND: Final = {"0.3": "message/send", "1.0": "SendMessage"}
STREAM: Final = {"0.3": "message/stream", "1.0": "SendStreamingMessage"}
TASK_NOT_FOUND: Final = -32001
TASK_NOT_CANCELABLE: Final = -32002  # it is done
UNSUPPORTED_OPERATION: Final = -32004
BAD: Final = {"nothing": 401, "bad key": 401, "key for the other assistant": 403, "token for the other assistant": 401}


def other(name: str) -> str:
    return next(each for each in PATHS if each != name)


class Server(NamedTuple):
    origin: str
    of: Parties

    def url(self, name: str) -> str:
        return f"{self.origin}{PATHS[name]}"

    def sent_by(self, caller: str, name: str) -> dict[str, str]:
        """The headers of a caller of that assistant."""
        meant = other(name) if caller.endswith("for the other assistant") else name
        if caller == "bad key":
            return {"X-API-Key": "bad"}
        if caller.startswith("key"):
            return {"X-API-Key": self.of.key(meant)}
        if caller.startswith("token"):
            token = self.of.issuer.token(audience=self.url(meant), scope=" ".join(PATHS))
            return {"Authorization": f"Bearer {token}"}
        return {}

    def send(self, name: str, method: str, headers: Mapping[str, str], **more: str) -> httpx.Response:
        """Send a message, in the words of the method's generation."""
        text: dict[str, Any] = {"text": "2 + 2"} if method[0].isupper() else {"kind": "text", "text": "2 + 2"}
        role = "ROLE_USER" if method[0].isupper() else "user"
        return self.call(name, method, {"message": {"messageId": "1", "role": role, "parts": [text], **more}}, headers)

    def call(self, name: str, method: str, params: dict[str, Any], headers: Mapping[str, str]) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        accepted = {"Accept": "application/json, text/event-stream"}
        return httpx.post(self.url(name), json=body, headers={**accepted, **headers}, timeout=60, trust_env=False)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    command = [str(python_of(ENVIRONMENT)), "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload"]
    quiet = {"LANGSMITH_TRACING": "false", "LANGGRAPH_NO_VERSION_CHECK": "true", "LANGGRAPH_CLI_NO_ANALYTICS": "1"}
    with parties(tmp_path_factory.mktemp("parties")) as of:
        (of.folder / "langgraph.json").write_text(block_of(PAGE, 0, "json"), encoding="utf-8")
        for block, file in enumerate(FILES):
            (of.folder / file).write_text(block_of(PAGE, block), encoding="utf-8")
        settings = of.settings(SERVER_URL=origin, HOME=str(of.folder), **quiet)
        with serving([*command, "--port", str(port)], f"{origin}/ok", settings, of.folder):
            yield Server(origin, of)


assistants = pytest.mark.parametrize("name", PATHS)


@assistants
@pytest.mark.parametrize(("caller", "version"), [("key", "1.0"), ("token", "0.3")])
def test_callers_with_a_credential_for_the_assistant_are_answered_and_known(
    server: Server, caller: str, version: str, name: str
) -> None:
    response = server.send(name, SEND[version], server.sent_by(caller, name))
    assert response.status_code == 200, response.text
    result = response.json()["result"]
    task = result["task"] if version == "1.0" else result
    user = f"ann@{server.of.issuer.url}" if caller == "token" else ANN
    assert task["artifacts"][0]["parts"][0]["text"] == f"{user} said 2 + 2"


@assistants
def test_an_assistant_streams_its_answer(server: Server, name: str) -> None:
    response = server.send(name, STREAM["1.0"], server.sent_by("key", name))
    assert (response.status_code, response.headers["Content-Type"].partition(";")[0]) == (200, "text/event-stream")
    assert f"{ANN} said 2 + 2" in response.text


@assistants
@pytest.mark.parametrize("version", SEND)
@pytest.mark.parametrize("caller", BAD)
def test_other_callers_are_rejected(server: Server, caller: str, version: str, name: str) -> None:
    for method in (SEND[version], STREAM[version]):
        assert server.send(name, method, server.sent_by(caller, name)).status_code == BAD[caller]


@assistants
@pytest.mark.parametrize("at", ["", "/.well-known/agent-card.json", "/.well-known/agent.json", "?"])
def test_each_assistant_has_a_signed_card_that_says_what_is_enforced(server: Server, at: str, name: str) -> None:
    url = f"{server.url(name)}{at}"
    if at == "?":
        url = f"{server.origin}/.well-known/agent-card.json?assistant_id={PATHS[name].removeprefix('/a2a/')}"
    card = server.of.fetch(url).card
    assert (card["name"], card["supportedInterfaces"][0]["url"], card["url"]) == (name, *[server.url(name)] * 2)
    assert card["securityRequirements"] == [{"schemes": {scheme: {"list": [name]}}} for scheme in ("key", "login")]
    assert card["security"] == [{"key": [name]}, {"login": [name]}]


@assistants
def test_langgraphs_own_card_without_a_signature_is_not_served(server: Server, name: str) -> None:
    for headers, status in (({}, 401), (server.sent_by("key", name), 404)):
        assert httpx.get(server.url(name), headers=headers, trust_env=False, timeout=60).status_code == status


@assistants
def test_the_metadata_that_a_challenge_names_is_there(server: Server, name: str) -> None:
    assert challenged_resource(server.url(name)) == server.url(name)


def test_a_task_and_its_context_belong_to_their_caller(server: Server) -> None:
    ann, bob = ({"X-API-Key": server.of.key("billing", owner=owner)} for owner in ("ann", "bob"))
    task = server.send("billing", "SendMessage", ann).json()["result"]["task"]

    def errors(method: str, headers: dict[str, str]) -> Any:
        return server.call("billing", method, {"id": task["id"]}, headers).json().get("error", {}).get("code")

    assert (errors("GetTask", ann), errors("GetTask", bob)) == (None, TASK_NOT_FOUND)
    assert (errors("CancelTask", ann), errors("CancelTask", bob)) == (TASK_NOT_CANCELABLE, TASK_NOT_FOUND)
    found = [server.call("billing", "ListTasks", {}, headers).json()["result"]["tasks"] for headers in (ann, bob)]
    assert task["id"] in [each["id"] for each in found[0]]
    assert found[1] == []
    answers = [
        server.send("billing", "SendMessage", headers, contextId=task["contextId"]).json() for headers in (ann, bob)
    ]
    assert answers[0]["result"]["task"]["contextId"] == task["contextId"]
    assert "not found" in answers[1]["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", PATHS["billing"].upper().replace("A2A", "a2a")),  # LangGraph takes it for the same assistant
        ("GET", "/.well-known/agent-card.json"),
        ("GET", "/.well-known/agent-card.json?assistant_id=unknown"),
        ("POST", "/assistants/search"),  # the same assistants, by LangGraph's own interface
        ("POST", "/runs/wait"),
        ("POST", "/threads"),
        ("GET", "/noauth/assistants/search"),
        ("GET", "/openapi.json"),
        ("GET", "/"),
    ],
)
def test_what_belongs_to_no_assistant_is_not_there_whoever_asks(server: Server, method: str, path: str) -> None:
    for headers in ({}, {"X-API-Key": server.of.key(*PATHS)}):
        assert httpx.request(method, server.origin + path, headers=headers, trust_env=False).status_code == 404


def test_paths_that_are_named_are_open(server: Server) -> None:
    response = httpx.get(f"{server.origin}/ok", trust_env=False, timeout=60)
    assert (response.status_code, response.json()["ok"]) == (200, True)


@assistants
def test_the_extended_card_is_for_callers_and_there_is_none(server: Server, name: str) -> None:
    keys: list[dict[str, str]] = [{}, server.sent_by("key", name)]
    answers = [server.call(name, "GetExtendedAgentCard", {}, headers) for headers in keys]
    assert [answer.status_code for answer in answers] == [401, 200]
    assert answers[1].json()["error"]["code"] == UNSUPPORTED_OPERATION


@assistants
def test_the_client_of_the_page_is_answered(server: Server, name: str) -> None:
    done = run_client(ENVIRONMENT, PAGE, CLIENT, server.of, server.url(name), name)
    assert (done.returncode, done.stdout.strip()) == (0, f"{ANN} said hello"), done.stderr
    assert prints(PAGE, done.stdout)


@pytest.mark.parametrize("kind", [*KINDS, UNCHANGED])
def test_the_client_of_the_page_sends_nothing_to_an_impostor(server: Server, kind: str) -> None:
    with impostors(server.url("billing")) as found:
        done = run_client(ENVIRONMENT, PAGE, CLIENT, server.of, found[kind].url, "billing")
        assert done.returncode == 1
        assert "UnverifiedCardError" in done.stderr
        assert KINDS.get(kind, "") in done.stderr
        assert (found[kind].stolen, found[kind].calls) == ([], [])
