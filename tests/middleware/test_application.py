"""What an application answers by itself: its own card, its own extended card."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import isfunction
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from a2a_trust.auth.principal import Anonymous, Principal
from a2a_trust.base.strict_json import MAX_BYTES
from a2a_trust.card.merge import CardSecurity, merged_card
from a2a_trust.card.operations import Binding
from a2a_trust.card.schema import Generation
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust.origins import Origins
from a2a_trust.keys.trust.store import TrustedKey, TrustStore
from a2a_trust.middleware import application
from a2a_trust.middleware.application import FromApplication, answer_of
from a2a_trust.middleware.calls import Call
from a2a_trust.middleware.documents import json_bytes
from a2a_trust.middleware.extended_card import ExtendedCard, ExtendedCardEndpoint
from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.protection import protect, protect_agents
from a2a_trust.signing.verify import verify_card
from tests.middleware.agent import CARD, KEY, Message, grouped, verifiers
from tests.middleware.several import agent_at, asked, card_of, running
from tests.middleware.test_protection import PATHS, ask
from tests.tables import walk

pytestmark = pytest.mark.anyio

GOOD = {"X-API-Key": KEY}
BARE = {name: value for name, value in CARD.items() if not name.startswith("security")}
SECURITY = CardSecurity(schemes=CARD["securitySchemes"], requirements=CARD["securityRequirements"])
PROMISING: dict[str, Any] = {**CARD, "capabilities": {"extendedAgentCard": True}}
EXTENDED: dict[str, Any] = {**PROMISING, "description": "With prices."}
CALL = {"jsonrpc": "2.0", "id": "x-1", "method": "GetExtendedAgentCard"}
OLD_CALL = {"jsonrpc": "2.0", "id": 7, "method": "agent/getAuthenticatedExtendedCard"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# Its card


class Serving:
    """Starlette with one answer at one path; it keeps the requests that came."""

    def __init__(self, answer: Any, path: str = PATHS[0], **options: Any) -> None:
        self.requests: list[Request] = []

        async def endpoint(request: Request) -> Response:
            self.requests.append(request)
            response = answer(request) if isfunction(answer) else answer
            return response if isinstance(response, Response) else JSONResponse(response)

        self.app = Starlette(routes=[Route(path, endpoint)], **options)


async def failure_of(app: Any) -> str:
    async with running(app) as lifespan:
        return lifespan.failure
    raise AssertionError


def own(serving: Serving, **options: Any) -> Any:
    given = {"card": FromApplication(), **grouped(options)}
    return protect(serving.app, verifiers=verifiers(), **given)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://agent.example", ("https://agent.example/.well-known/agent-card.json", "agent.example", 443)),
        ("http://agent.example", ("http://agent.example/.well-known/agent-card.json", "agent.example", 80)),
    ],
)
async def test_the_application_is_asked_by_the_name_of_its_agents_url(url: str, expected: Any) -> None:
    serving = Serving(CARD)
    async with running(own(serving, url=url)) as lifespan:
        assert lifespan.kinds == ["startup.complete"]
    (request,) = serving.requests
    assert (str(request.url), request.headers["host"], request.scope["server"][1]) == expected
    assert request.method == "GET"
    assert request.headers["accept"] == "application/json"
    assert (await request.body(), request.scope["root_path"]) == (b"", "")


async def test_the_application_is_asked_by_host_and_port() -> None:
    card = {**CARD, "supportedInterfaces": [{**CARD["supportedInterfaces"][0], "url": "http://agent.example:8080/rpc"}]}
    serving = Serving(card)
    async with running(own(serving, url="http://agent.example:8080")):
        (request,) = serving.requests
    assert str(request.url) == f"http://agent.example:8080{PATHS[0]}"
    assert request.scope["server"] == ("agent.example", 8080)


@walk(
    ("url", "told", "prefix", "root"),
    [
        ("https://agent.example/public", "/public", "", "/public"),
        ("https://agent.example/public", "", "", ""),  # a route of its own
        ("https://agent.example/api/billing", "", "/billing", "/api"),
        ("https://agent.example/api/billing/", "", "/billing", "/api"),
        ("https://agent.example/api/billing", "/v2", "/billing", "/v2"),
        ("https://agent.example/billing", "", "/billing", ""),
        (None, "", "/billing", ""),
    ],
)
async def test_the_application_is_asked_below_its_root_path(url: str | None, told: str, prefix: str, root: str) -> None:
    serving = Serving(card_of(urlsplit(url or "http://agent.example/billing").path.rstrip("/")), f"{prefix}{PATHS[0]}")
    agents = {prefix or "/": agent_at(prefix, card=FromApplication(root_path=told), url=url)}
    async with running(protect_agents(serving.app, agents)) as lifespan:
        assert lifespan.kinds == ["startup.complete"]
    scope = serving.requests[0].scope
    assert (scope["root_path"], scope["path"]) == (root, f"{root}{prefix}{PATHS[0]}")
    assert scope["raw_path"] == scope["path"].encode()


async def test_a_card_that_names_a_place_beside_the_url_fails_the_start() -> None:
    app = own(Serving(card_of("/other")), url="https://agent.example/public")
    words = "the application names the interface 'http://agent.example/other/rpc', which is not below url="
    assert words in await failure_of(app)


async def test_a_card_may_name_a_place_at_another_host_that_is_not_guarded_here() -> None:
    elsewhere = {"url": "https://other.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    card = card_of("/public")
    card["supportedInterfaces"].append(elsewhere)
    app = own(
        Serving({**CARD, "supportedInterfaces": card["supportedInterfaces"]}),
        url="https://agent.example/public",
        unguarded=[elsewhere["url"]],
    )
    async with running(app) as lifespan:
        assert lifespan.kinds == ["startup.complete"]


async def test_what_the_application_says_is_served_with_security_and_signed() -> None:
    signer = generate_signer()
    app = own(Serving(BARE), security=SECURITY, signer=signer)
    async with running(app):
        body = (await asked(app, PATHS[0]))[1]["body"]
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("agent.example"))])
    assert verify_card(body, trust, origin="https://agent.example").card == SECURITY.added_to(BARE)


async def test_its_card_is_asked_for_where_it_is() -> None:
    serving = Serving(CARD, "/here/card.json")
    async with running(own(serving, card=FromApplication("/here/card.json"))) as lifespan:
        assert lifespan.kinds == ["startup.complete"]
    assert serving.requests[0].url.path == "/here/card.json"


async def test_agents_are_asked_below_their_prefixes() -> None:
    inner: list[Serving] = [Serving(card_of("/billing")), Serving(card_of("/ops"), "/card.json")]
    outer = Starlette(routes=[Mount("/billing", inner[0].app), Mount("/ops", inner[1].app)])
    app = protect_agents(
        outer,
        {
            "/billing": agent_at("/billing", card=FromApplication(), url="https://agent.example/billing"),
            "/ops": agent_at("/ops", card=FromApplication("/ops/card.json")),
        },
    )
    async with running(app) as lifespan:
        assert lifespan.kinds == ["startup.complete"]
        for prefix in ("/billing", "/ops"):
            assert json.loads((await asked(app, f"{prefix}{PATHS[0]}"))[1]["body"]) == card_of(prefix)
    assert str(inner[0].requests[0].url) == f"https://agent.example/billing{PATHS[0]}"
    assert inner[1].requests[0].url.path == "/ops/card.json"


async def test_handlers_have_the_state_and_the_application() -> None:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Any]]:
        app.state.name = "from the application"
        yield {"description": "from the lifespan"}

    def card(request: Request) -> Any:
        return {**CARD, "name": request.app.state.name, "description": request.state.description}

    app = own(Serving(card, lifespan=lifespan))
    async with running(app):
        found = json.loads((await asked(app, PATHS[0]))[1]["body"])
    assert (found["name"], found["description"]) == ("from the application", "from the lifespan")


async def test_handlers_cannot_change_the_state_of_the_lifespan() -> None:
    def card(request: Request) -> Any:
        request.state.more = 1
        return CARD

    async with running(own(Serving(card))) as lifespan:
        assert lifespan.kinds == ["startup.complete"]
        assert lifespan.state == {}


async def test_below_a_root_path_it_is_asked_there() -> None:
    serving = Serving(CARD)
    app = own(serving)
    assert (await asked(app, f"/api{PATHS[0]}", root_path="/api"))[0]["status"] == 200
    scope = serving.requests[0].scope
    assert (scope["path"], scope["root_path"]) == (f"/api{PATHS[0]}", "/api")


def huge(request: Request) -> Response:
    return Response(b'{"x":"' + b"a" * MAX_BYTES + b'"}', media_type="application/json")


def huge_in_pieces(request: Request) -> Response:
    return StreamingResponse((b"a" * 65_536 for _ in range(20)), media_type="application/json")


@walk(
    ("answer", "words"),
    [
        (
            PlainTextResponse("x", 404),
            "the application answers 404 at '/.well-known/agent-card.json'; if its card has another path",
        ),
        (PlainTextResponse("x", 500), "the application answers 500 at"),
        (JSONResponse(CARD, 201), "the application answers 201 at"),
        (Response(status_code=307, headers={"location": "/"}), "the application answers 307 at"),
        (huge, f"was incomplete, or longer than {MAX_BYTES} bytes"),
        (huge_in_pieces, f"was incomplete, or longer than {MAX_BYTES} bytes"),
        (PlainTextResponse("hello"), "card: "),
        (JSONResponse([]), "card: : a JSON object is needed"),
        (JSONResponse({"status": "starting"}), "it names no interface; add supportedInterfaces"),
        (JSONResponse({**CARD, "supportedInterfaces": []}), "it names no interface; add supportedInterfaces"),
    ],
)
async def test_an_answer_that_is_no_card_fails_the_start(answer: Any, words: str) -> None:
    assert words in await failure_of(own(Serving(answer)))


async def test_one_of_a_megabyte_is_read() -> None:
    body = json_bytes(CARD)
    padded = body + b" " * (MAX_BYTES - len(body))
    async with running(own(Serving(Response(padded, media_type="application/json")))) as lifespan:
        assert lifespan.kinds == ["startup.complete"]


@pytest.mark.parametrize("messages", [[], ["http.response.start"]])
async def test_an_application_that_returns_without_an_answer_fails_the_start(messages: list[str]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert await receive() == {"type": "http.request", "body": b"", "more_body": False}
        for kind in messages:
            await send({"type": kind, "status": 200, "headers": []})

    with pytest.raises(ConfigurationError, match="was incomplete"):
        await application.card_of_application(app, FromApplication("/x"), "", None, {})


async def test_an_application_that_raises_fails_the_start() -> None:
    def card(request: Request) -> Any:
        raise ValueError("secret")

    assert "card: making it failed with ValueError" in await failure_of(own(Serving(card)))


async def test_an_application_that_never_answers_fails_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_trust.middleware.application.ASK_SECONDS", 0.05)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        assert (await receive())["type"] == "http.request"
        await receive()  # never: nobody disconnects
        raise AssertionError

    failure = await failure_of(protect(app, card=FromApplication(), verifiers=verifiers()))
    assert failure == "card: the function or the application did not give it within 0 seconds"


async def test_what_it_does_after_its_answer_is_its_own() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.debug", "info": {}})
        await send({"type": "http.response.body", "body": body[:9], "more_body": True})
        await send({"type": "http.response.body", "body": body[9:]})
        await send({"type": "http.response.body", "body": b"too late"})

    body = json_bytes(CARD)
    assert await application.card_of_application(app, FromApplication("/x"), "", None, {}) == body


@walk("path", ["x", "", "/x?y", "/x#y", "/x y", "/x\n", "/\u00e4", 5])
def test_a_path_is_a_path(path: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"FromApplication: .* is not a path; write FromApplication"):
        FromApplication(path)


# Its extended card


class Answering:
    """An application with one answer, which keeps the requests that came, bodies too."""

    def __init__(self, body: Any, status: int = 200) -> None:
        self.body, self.status = body, status
        self.asked: list[tuple[Any, bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        self.asked.append((scope, (await receive())["body"]))
        body = self.body if isinstance(self.body, bytes) else json_bytes(self.body)
        headers = [(b"content-type", b"application/json"), (b"x-of-app", b"1"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def extended(inner: Any, card: Any = PROMISING, may_read: Any = None, **options: Any) -> Any:
    source = ExtendedCard(FromApplication(), may_read=may_read)
    return protect(inner, card=card, verifiers=verifiers(), extended_card=source, **grouped(options))


def result_of(call: dict[str, Any], card: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": call["id"], "result": card}


def test_its_answer_is_signed_on_every_binding() -> None:
    signer = generate_signer()
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("agent.example"))])
    inner = Answering(EXTENDED)
    app = extended(inner, merged_card(PROMISING), signer=signer)
    rest = ask(app, "GET", "/rest/extendedAgentCard", headers=GOOD)
    assert verify_card(rest.content, trust, origin="https://agent.example").card == EXTENDED
    assert rest.headers["cache-control"] == "private, no-store"
    assert "x-of-app" not in rest.headers
    inner.body = result_of(CALL, EXTENDED)
    rpc = ask(app, "POST", "/rpc", json=CALL, headers=GOOD).json()
    assert rpc["id"] == CALL["id"]
    assert verify_card(json_bytes(rpc["result"]), trust, origin="https://agent.example").card == EXTENDED
    assert json.loads(inner.asked[-1][1]) == CALL
    for path in ("/rest/v1/card", "/agent/authenticatedExtendedCard"):
        inner.body = EXTENDED
        old = ask(app, "GET", path, headers=GOOD)
        assert verify_card(old.content, trust, origin="https://agent.example").card == merged_card(EXTENDED)
    inner.body = result_of(OLD_CALL, EXTENDED)
    old_rpc = ask(app, "POST", "/rpc", json=OLD_CALL, headers=GOOD).json()
    assert (old_rpc["id"], old_rpc["result"]["url"]) == (7, merged_card(EXTENDED)["url"])
    assert verify_card(json_bytes(old_rpc["result"]), trust, origin="https://agent.example").card == merged_card(
        EXTENDED
    )


def test_security_is_added_to_it() -> None:
    bare = {**BARE, "capabilities": {"extendedAgentCard": True}}
    app = extended(Answering(bare), bare, security=SECURITY)
    assert ask(app, "GET", "/rest/extendedAgentCard", headers=GOOD).json() == SECURITY.added_to(bare)
    other = {**bare, "securityRequirements": [{"schemes": {"other": {}}}]}
    app = extended(Answering(other), bare, security=SECURITY)
    assert ask(app, "GET", "/rest/extendedAgentCard", headers=GOOD).status_code == 500


def test_the_application_sees_the_callers_request_and_no_conditions() -> None:
    inner = Answering(EXTENDED)
    headers = {
        **GOOD,
        "Accept-Encoding": "gzip",
        "Range": "bytes=0-1",
        "If-None-Match": "*",
        "If-Range": "x",
        "If-Modified-Since": "Sun, 06 Nov 1994 08:49:37 GMT",
        "X-Mine": "1",
    }
    assert ask(extended(inner), "GET", "/rest/extendedAgentCard?x=1", headers=headers).json() == EXTENDED
    scope = inner.asked[0][0]
    assert (scope["path"], scope["query_string"]) == ("/rest/extendedAgentCard", b"x=1")
    names = {name.decode() for name, _ in scope["headers"]}
    assert "x-mine" in names
    assert not names & {"accept-encoding", "range", "if-none-match", "if-range", "if-modified-since", "x-api-key"}
    assert scope["user"].display_name == "ann@api-keys"


@walk("status", [400, 403, 404, 500, 503])
def test_its_errors_over_http_are_passed_on(status: int) -> None:
    answer = ask(extended(Answering({"no": "card"}, status)), "GET", "/rest/extendedAgentCard", headers=GOOD)
    assert (answer.status_code, answer.json(), answer.headers["x-of-app"]) == (status, {"no": "card"}, "1")


async def test_errors_have_no_body_for_head() -> None:
    head = [(b"x-api-key", KEY.encode())]
    app = extended(Answering({"no": "card"}, 404))
    messages = await asked(app, "/rest/extendedAgentCard", method="HEAD", headers=head)
    assert (messages[0]["status"], messages[1]["body"]) == (404, b"")


@pytest.mark.parametrize(("status", "more"), [(200, {"error": None}), (203, {}), (206, {"error": None})])
def test_no_card_is_passed_on_unsigned(status: int, more: dict[str, Any]) -> None:
    app = extended(Answering({**result_of(CALL, EXTENDED), **more}, status), signer=generate_signer())
    answer = ask(app, "POST", "/rpc", json=CALL, headers=GOOD)
    assert (answer.status_code, "signatures" in answer.json()["result"]) == (200, True)


def test_its_errors_of_json_rpc_are_passed_on() -> None:
    error = {"jsonrpc": "2.0", "id": CALL["id"], "error": {"code": -32007, "message": "none"}}
    app = extended(Answering(error))
    assert ask(app, "POST", "/rpc", json=CALL, headers=GOOD).json() == error


async def test_head_asks_by_get_and_has_no_body() -> None:
    inner = Answering(EXTENDED)
    head = [(b"x-api-key", KEY.encode())]
    messages = await asked(extended(inner), "/rest/extendedAgentCard", method="HEAD", headers=head)
    assert dict(messages[0]["headers"])[b"content-length"] == b"%d" % len(json_bytes(EXTENDED))
    assert messages[1]["body"] == b""
    assert inner.asked[0][0]["method"] == "GET"


@walk(
    ("body", "signs"),
    [
        *product((b"", b"hello", b"[]", b"null", b'{"a":1,"a":2}', b"{" + b" " * MAX_BYTES + b"}"), (True, False)),
        ({**EXTENDED, "securitySchemes": []}, True),
    ],
)
def test_an_answer_that_is_no_card_is_an_error(body: Any, caplog: pytest.LogCaptureFixture, *, signs: bool) -> None:
    caplog.set_level(logging.ERROR, "a2a_trust.middleware.extended_card")
    app = extended(Answering(body), **({"signer": generate_signer()} if signs else {}))
    answer = ask(app, "GET", "/rest/extendedAgentCard", headers=GOOD)
    assert answer.status_code == 500
    assert answer.json()["error"]["details"][0]["reason"] == "INTERNAL_ERROR"
    assert "the extended card cannot be served" in caplog.text


@walk("body", [b"hello", b"[]", EXTENDED, {"jsonrpc": "2.0", "id": 1}, {"result": None}, {"result": []}])
def test_an_answer_of_json_rpc_that_is_no_card_is_an_error(body: Any) -> None:
    answer = ask(extended(Answering(body)), "POST", "/rpc", json=CALL, headers=GOOD)
    assert (answer.json()["id"], answer.json()["error"]["code"]) == (CALL["id"], -32603)


def test_without_an_answer_it_is_an_error() -> None:
    async def silent(scope: Any, receive: Any, send: Any) -> None: ...

    assert ask(extended(silent), "GET", "/rest/extendedAgentCard", headers=GOOD).status_code == 500


def test_may_read_decides_before_the_application_is_asked() -> None:
    asked_for: list[Principal] = []

    def nobody(caller: Principal) -> bool:
        asked_for.append(caller)
        return False

    inner = Answering(EXTENDED)
    app = extended(inner, may_read=nobody)
    assert ask(app, "GET", "/rest/extendedAgentCard", headers=GOOD).status_code == 403
    refused = ask(app, "POST", "/rpc", json=CALL, headers=GOOD).json()
    assert (refused["id"], "error" in refused) == (CALL["id"], True)
    assert ask(app, "GET", "/rest/extendedAgentCard").status_code == 401
    assert (inner.asked, len(asked_for)) == ([], 2)


def test_a_tenant_must_be_allowed_before_the_application_is_asked() -> None:
    inner = Answering(EXTENDED)
    app = extended(inner, rules=RequestRules(may_use_tenant=lambda caller, tenant: tenant == "acme"))
    assert ask(app, "GET", "/rest/acme/extendedAgentCard", headers=GOOD).json() == EXTENDED
    assert ask(app, "GET", "/rest/other/extendedAgentCard", headers=GOOD).status_code == 403
    assert [scope["path"] for scope, _ in inner.asked] == ["/rest/acme/extendedAgentCard"]


def test_the_same_answer_is_signed_once() -> None:
    app = extended(Answering(EXTENDED), signer=generate_signer())
    bodies = {ask(app, "GET", "/rest/extendedAgentCard", headers=GOOD).content for _ in range(3)}
    assert len(bodies) == 1  # ECDSA makes another signature each time


def test_the_application_has_to_be_known_and_the_path_is_the_callers() -> None:
    with pytest.raises(ConfigurationError, match=r"the caller.s request has it; write ExtendedCard\(FromApplication"):
        ExtendedCard(FromApplication("/card"))
    with pytest.raises(ConfigurationError, match=r"FromApplication\(\) is for protect\(app, …\)"):
        ExtendedCardEndpoint(PROMISING, ExtendedCard(FromApplication()))
    with pytest.raises(ConfigurationError, match="does not promise an extended card"):
        extended(Answering(EXTENDED), CARD)


@pytest.mark.parametrize(("card", "status"), [(PROMISING, 401), (CARD, 400)])
async def test_an_anonymous_caller_gets_none(card: dict[str, Any], status: int) -> None:
    inner = Answering(EXTENDED)
    source = ExtendedCard(FromApplication()) if card is PROMISING else None
    endpoint = ExtendedCardEndpoint(card, source, application=inner)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/rest/extendedAgentCard", "query_string": b"", "headers": []}
    await endpoint.answer(Call(Binding.HTTP_JSON, Generation.V1_0, None), Anonymous(), scope, receive, send)
    assert (sent[0]["status"], inner.asked) == (status, [])


async def test_a_caller_that_goes_away_is_told_to_the_application() -> None:
    told = anyio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "http.request"
        assert (await receive())["type"] == "http.disconnect"
        told.set()

    messages: list[Any] = [{"type": "http.request", "body": b"", "more_body": False}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None: ...

    scope = {"type": "http", "method": "GET", "path": "/rest/extendedAgentCard", "query_string": b"", "headers": []}
    scope["headers"] = [(b"x-api-key", KEY.encode())]
    with anyio.fail_after(60):
        await extended(app)(scope, receive, send)
    assert told.is_set()


async def nothing_more() -> Message:
    await anyio.sleep_forever()
    raise AssertionError


async def test_an_extended_card_in_a_file_is_whole_under_servers_that_send_files_themselves(tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text(json.dumps({**PROMISING, "description": "of the file"}))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await FileResponse(tmp_path / "card.json", media_type="application/json")(scope, receive, send)

    scope = {"type": "http", "method": "GET", "headers": [], "extensions": {"http.response.pathsend": {}}}
    answer = await answer_of(app, scope, nothing_more)
    assert answer is not None
    assert json.loads(answer.body)["description"] == "of the file"


async def test_an_answer_without_an_end_is_given_up_at_one_megabyte() -> None:
    sent = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            sent += 1
            await send({"type": "http.response.body", "body": b" " * 100_000, "more_body": True})

    assert await answer_of(app, {"type": "http", "method": "GET", "headers": []}, nothing_more) is None
    assert sent == MAX_BYTES // 100_000 + 1
