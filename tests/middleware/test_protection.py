"""``protect``: documents, guard, tenants and extended card around one application, from one card."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Host, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

from a2a_trust.auth.dpop import DPoP
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.auth.principal import Principal
from a2a_trust.auth.token_claims import SeveralIssuers
from a2a_trust.card.merge import merged_card
from a2a_trust.card.view import CardView, read_card
from a2a_trust.errors import CardNotServedError, ConfigurationError, TrustError
from a2a_trust.keys.jwk import read_jwks
from a2a_trust.keys.ring_file import KeyRingFile, save_key_ring, update_key_ring
from a2a_trust.keys.rotation import KeyRing
from a2a_trust.keys.signer import LocalSigner, generate_signer
from a2a_trust.keys.trust.origins import Origins
from a2a_trust.keys.trust.store import TrustedKey, TrustStore
from a2a_trust.middleware import protection
from a2a_trust.middleware.card import CardFile, FixedCard
from a2a_trust.middleware.documents import Document, json_bytes
from a2a_trust.middleware.door import CardEnforcementMiddleware
from a2a_trust.middleware.extended_card import ExtendedCard
from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.protection import protect
from a2a_trust.signing.sign import sign_card
from a2a_trust.signing.verify import verify_card
from tests.auth.test_jwt import EC, Keys
from tests.middleware.agent import CALL, CARD, KEY, POOR_KEY, grouped, verifiers
from tests.tables import walk

URL = "https://agent.example"
GOOD = {"X-API-Key": KEY}
PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
PROMISING: dict[str, Any] = {**CARD, "capabilities": {"extendedAgentCard": True}}
NOW = 1_900_000_000.0


async def hello(request: Any) -> PlainTextResponse:
    return PlainTextResponse("the application")


def application() -> Starlette:
    everything = [Route(path, hello, methods=["GET", "HEAD", "POST", "OPTIONS"]) for path in ("/", "/{rest:path}")]
    return Starlette(routes=everything)


def ask(app: Any, method: str, path: str, **request: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://agent.example") as http:
            return await http.request(method, path, **request)

    return asyncio.run(send())


def guarded(card: Any = CARD, **options: Any) -> Any:
    return protect(application(), card=card, verifiers=verifiers(), **grouped(options))


def verified(body: bytes, signer: LocalSigner, now: float = NOW) -> dict[str, Any]:
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("agent.example"))])
    return verify_card(body, trust, origin=URL, now=now).card


@pytest.mark.parametrize("path", PATHS)
def test_the_card_that_is_enforced_is_the_card_that_is_served(path: str) -> None:
    body = json.dumps(CARD, indent=1).encode()
    app = guarded(body)
    response = ask(app, "GET", path)
    assert (response.status_code, response.content) == (200, body)
    assert ask(app, "GET", path, headers={"If-None-Match": response.headers["etag"]}).status_code == 304
    assert ask(app, "HEAD", path).headers["content-length"] == str(len(body))


@pytest.mark.parametrize("path", PATHS)
def test_only_reading_it_is_public(path: str) -> None:
    app = guarded()
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(app, method, path).status_code == 401
    preflight = {"Origin": "https://page.example", "Access-Control-Request-Method": "GET"}
    assert ask(app, "OPTIONS", path, headers=preflight).status_code == 204
    assert ask(app, "OPTIONS", "/rpc", headers=preflight).status_code == 401
    for other in (f"{path}/", f"/{path}", path.upper(), path.replace(".", "%2e"), f"{path};x", f"{path}%20"):
        assert ask(app, "GET", other).status_code == 401, other


def test_everything_else_meets_the_guard() -> None:
    app = guarded()
    assert ask(app, "POST", "/rpc").status_code == 401
    assert ask(app, "POST", "/rpc", headers={"X-API-Key": POOR_KEY}).status_code == 403
    assert ask(app, "POST", "/rpc", json=CALL, headers=GOOD).text == "the application"


def test_a_key_signs_the_card_and_is_published() -> None:
    signer = generate_signer()
    app = guarded(url=URL, signer=signer, lifetime=3600, clock=lambda: NOW)
    body = ask(app, "GET", PATHS[0]).content
    assert verified(body, signer) == CARD
    with pytest.raises(TrustError):
        verified(body, signer, NOW + 3600)
    header = json.loads(body)["signatures"][0]["protected"]
    assert b"https://agent.example/.well-known/jwks.json" in __import__("base64").urlsafe_b64decode(header + "==")
    jwks = ask(app, "GET", "/.well-known/jwks.json")
    assert read_jwks(jwks.content).keys == (signer.public_key,)


@pytest.mark.parametrize(("companion", "signatures"), [(None, 1), (True, 2), (False, 1)])
def test_a_companion_that_leaves_the_requirements_open_is_added_on_request(
    companion: bool | None, signatures: int
) -> None:
    card = {**CARD, "securityRequirements": [*CARD["securityRequirements"], {"schemes": {"key": {}}}]}
    app = guarded(card, signer=generate_signer(), companion=companion, clock=lambda: NOW)
    assert len(ask(app, "GET", PATHS[0]).json()["signatures"]) == signatures


def test_challenges_name_the_metadata_and_the_metadata_names_the_issuer() -> None:
    app = guarded(url=f"{URL}/a2a", clock=lambda: NOW)
    challenges = ask(app, "POST", "/rpc").headers.get_list("www-authenticate")
    where = f"{URL}/.well-known/oauth-protected-resource/a2a"
    assert f'Bearer scope="read", resource_metadata="{where}"' in challenges
    metadata = ask(app, "GET", "/.well-known/oauth-protected-resource/a2a").json()
    assert metadata["resource"] == f"{URL}/a2a"
    assert metadata["authorization_servers"] == ["https://issuer.example"]
    assert metadata["scopes_supported"] == ["read"]
    wrong = ask(app, "POST", "/rpc", headers={"Authorization": "Bearer x"}).headers.get_list("www-authenticate")
    assert f'Bearer error="invalid_token", resource_metadata="{where}"' in wrong


def test_the_host_of_a_request_changes_nothing_that_is_served() -> None:
    app = guarded(url=URL, signer=generate_signer(), clock=lambda: NOW)
    for path in (*PATHS, "/.well-known/jwks.json", "/.well-known/oauth-protected-resource"):
        usual = ask(app, "GET", path)
        poisoned = ask(app, "GET", path, headers={"Host": "evil.example", "X-Forwarded-Host": "evil.example"})
        assert poisoned.content == usual.content
        assert b"evil" not in poisoned.content


def test_a_ring_rotates_under_a_polling_client(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    now = [NOW]
    save_key_ring(path, KeyRing.begin(generate_signer(), now[0]))
    app = guarded(url=URL, signer=KeyRingFile(path), clock=lambda: now[0])
    first = ask(app, "GET", PATHS[0])
    update_key_ring(path, lambda ring: ring.rotate(now[0], overlap=600))
    assert len(ask(app, "GET", "/.well-known/jwks.json").json()["keys"]) == 2
    poll = {"If-None-Match": first.headers["etag"]}
    assert ask(app, "GET", PATHS[0], headers=poll).status_code == 304
    now[0] += 601
    second = ask(app, "GET", PATHS[0], headers=poll)
    assert second.status_code == 200
    keys = read_jwks(ask(app, "GET", "/.well-known/jwks.json").content).keys
    trust = TrustStore(TrustedKey(key=key, origins=Origins("agent.example")) for key in keys)
    for body in (first.content, second.content):
        assert verify_card(body, trust, origin=URL, now=now[0]).card == CARD
    assert json.loads(first.content)["signatures"] != json.loads(second.content)["signatures"]


def test_a_file_that_comes_to_say_other_rules_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_trust.middleware.card._LOOK_SECONDS", 0.0)
    signer = generate_signer()
    path = tmp_path / "card.json"
    path.write_text(json.dumps(sign_card(CARD, signer).card))
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("agent.example"))])
    app = guarded(CardFile(path, trust=trust, reload=True))
    assert ask(app, "GET", PATHS[0]).status_code == 200
    path.write_text(json.dumps(sign_card({**CARD, "description": "Better."}, signer).card))
    assert ask(app, "GET", PATHS[0]).json()["description"] == "Better."
    stricter = {**CARD, "securityRequirements": CARD["securityRequirements"][:1]}
    path.write_text(json.dumps(sign_card(stricter, signer).card))
    assert ask(app, "GET", PATHS[0]).status_code == 503
    assert ask(app, "POST", "/rpc", json=CALL, headers=GOOD).status_code == 200


def test_a_signed_card_needs_keys_that_prove_it() -> None:
    signer = generate_signer()
    card = sign_card(CARD, signer).card
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("agent.example"))])
    with pytest.raises(ConfigurationError, match=r"FixedCard\(card, trust="):
        guarded(card)
    assert ask(guarded(FixedCard(card, trust=trust)), "GET", PATHS[0]).json() == card
    with pytest.raises(TrustError):
        guarded(FixedCard({**card, "name": "other"}, trust=trust))


def test_the_arguments_are_checked() -> None:
    for options in ({"lifetime": 3600}, {"companion": True}, {"companion": False}):
        with pytest.raises(ConfigurationError, match="there is no signer"):
            guarded(**options)
    with pytest.raises(ConfigurationError, match="the signer of serving= would not sign"):
        guarded(FixedCard(CARD), signer=generate_signer())
    with pytest.raises(ConfigurationError, match="resource"):
        guarded(url="agent.example")
    with pytest.raises(ConfigurationError, match="does not promise an extended card"):
        guarded(extended_card=ExtendedCard(CARD))


def test_the_extended_card_is_for_callers_whom_the_card_lets_in() -> None:
    async def provider(principal: Principal, tenant: str) -> dict[str, Any]:
        return {**PROMISING, "description": f"For {principal.identities[0][1].subject}, {tenant or 'no tenant'}."}

    rules = RequestRules(may_use_tenant=lambda caller, tenant: tenant == "acme")
    app = guarded(merged_card(PROMISING), extended_card=ExtendedCard(provider), rules=rules)
    for path in ("/rest/extendedAgentCard", "/rest/v1/card", "/agent/authenticatedExtendedCard"):
        assert ask(app, "GET", path).status_code == 401
        assert ask(app, "GET", path, headers=GOOD).json()["description"] == "For ann, no tenant."
    assert ask(app, "GET", "/rest/acme/extendedAgentCard", headers=GOOD).json()["description"] == "For ann, acme."
    assert ask(app, "GET", "/rest/other/extendedAgentCard", headers=GOOD).status_code == 403
    call = {"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"}
    assert ask(app, "POST", "/rpc", json=call).status_code == 401
    assert ask(app, "POST", "/rpc", json=call, headers=GOOD).json()["result"]["description"] == "For ann, no tenant."


def test_without_one_the_applications_own_is_not_reached_either() -> None:
    app = protect(application(), card={"name": "open"}, verifiers={}, rules=RequestRules(allow_anonymous=True))
    assert ask(app, "GET", "/").text == "the application"
    for path in ("/extendedAgentCard", "/v1/card", "/agent/authenticatedExtendedCard", "/acme/extendedAgentCard"):
        response = ask(app, "GET", path)
        assert response.status_code == 404
        assert response.text != "the application"


def test_a_mounted_agent_serves_its_documents_below_its_mount() -> None:
    inner = guarded(url=f"{URL}/team", signer=generate_signer(), clock=lambda: NOW)
    app = Starlette(routes=[Mount("/team", app=inner)])
    for path in (*PATHS, "/.well-known/jwks.json"):
        assert ask(app, "GET", f"/team{path}").status_code == 200
    assert ask(app, "GET", "/team/x").status_code == 401


def test_credentials_are_hidden_wherever_they_travel() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)
        await PlainTextResponse("x")(scope, receive, send)

    schemes = {
        "query": {"apiKeySecurityScheme": {"location": "query", "name": "key"}},
        "cookie": {"apiKeySecurityScheme": {"location": "cookie", "name": "sid"}},
    }
    requirements: list[Any] = [{"schemes": {"query": {"list": []}}}, {"schemes": {"cookie": {"list": []}}}]
    card = {"name": "x", "securitySchemes": schemes, "securityRequirements": requirements}
    key = verifiers()["key"]
    shy = protect(app, card=card, verifiers={"query": key, "cookie": key})
    assert ask(shy, "GET", f"/?a=1&k%65y={KEY}&b=2&keys=3").status_code == 200
    assert seen[0]["query_string"] == b"a=1&b=2&keys=3"
    assert ask(shy, "GET", "/", headers={"Cookie": f"sid={KEY}; a=1"}).status_code == 200
    assert dict(seen[1]["headers"])[b"cookie"] == b"a=1"
    assert KEY.encode() not in repr(seen[1]["headers"]).encode()


@pytest.mark.parametrize("card", ["card.json", None, 1, []])
def test_what_is_no_card_does_not_start(card: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"card: .* is not a card; write .* Path\('card.json'\)"):
        guarded(card)


@walk(
    ("options", "words"),
    [
        ({"url": "https://other.example"}, "url: .* has another host than the card's interface"),
        ({"url": "https://agent.example:8443"}, "url: .* has another host than the card's interface"),
        ({"url": URL, "dpop": DPoP(url="https://other.example")}, r"has another origin than DPoP\(url="),
        ({"url": URL, "dpop": DPoP(url="http://agent.example")}, r"has another origin than DPoP\(url="),
        ({"public_paths": "/healthz"}, r"public_paths: write a list, even of one: public_paths=\['/healthz'\]"),
        ({"unguarded": "http://agent.example/rpc"}, r"unguarded: write a list, even of one: unguarded=\['http"),
        ({"public_paths": ["/team/.well-known/agent-card.json"]}, "ends like the path of a card"),
        ({"public_paths": ["/Agent.JSON"]}, "ends like the path of a card"),
        ({"public_paths": ["/team/v1/card"]}, "is an operation of A2A"),
    ],
)
def test_what_was_meant_otherwise_does_not_start(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        guarded(**options)


def test_the_host_of_the_url_may_be_written_differently() -> None:
    guarded(url="https://AGENT.example:443/team", dpop=DPoP(url="https://agent.example"))
    elsewhere = [interface["url"] for interface in CARD["supportedInterfaces"]]
    guarded(url="https://other.example", unguarded=elsewhere)


@pytest.mark.parametrize("app", [None, "main:app", 5])
def test_what_is_no_application_is_not_protected(app: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"app: .* is not an ASGI application"):
        protect(app, card=CARD, verifiers=verifiers())
    with pytest.raises(ConfigurationError, match=r"app: .* is not an ASGI application"):
        CardEnforcementMiddleware(app, card=CARD, verifiers=verifiers())


@pytest.mark.parametrize("rule", [True, False, "acme"])
def test_a_rule_is_a_function(rule: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"may_use_tenant: write a function .* may_use_tenant=lambda"):
        RequestRules(may_use_tenant=rule)
    with pytest.raises(ConfigurationError, match="may_read: write a function"):
        ExtendedCard(PROMISING, may_read=rule)
    with pytest.raises(ConfigurationError, match=r"other_paths: write a list, even of one: other_paths=\['/docs'\]"):
        RequestRules(other_paths="/docs")


def test_a_card_that_says_other_rules_is_not_served_and_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Source:
        def __init__(self) -> None:
            self.served = Document.of(json_bytes(CARD), NOW)

        def document(self, now: float) -> Document:
            return self.served

    source, read = Source(), []
    enforced = protection._AsEnforced(source, read_card(CARD))

    def counted(card: Any) -> CardView:
        read.append(card)
        return read_card(card)

    monkeypatch.setattr(protection, "read_card", counted)
    assert enforced.document(NOW) is enforced.document(NOW) is source.served
    source.served = Document.of(json_bytes({**CARD, "securityRequirements": [{"schemes": {}}]}), NOW)
    for _ in range(3):
        with pytest.raises(CardNotServedError, match="its rules differ from those that are enforced"):
            enforced.document(NOW)
    assert len(read) == 2


# URLs that nobody can call


@walk(
    ("url", "interface", "places"),
    [
        ("http://0.0.0.0:8000", "http://0.0.0.0:8000/rpc", ["url", "the card's interface"]),
        (None, "http://[::]:8000/rpc", ["the card's interface"]),
        (None, "http://[0:0::0]:8000/rpc", ["the card's interface"]),
        (None, "http://0.0.0.1/rpc", []),
        ("http://localhost:8000", "http://localhost:8000/rpc", []),
    ],
)
def test_an_address_to_listen_at_is_warned_of(
    url: str | None, interface: str, places: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    interfaces = [{"url": interface, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
    protect(application(), card={**CARD, "supportedInterfaces": interfaces}, verifiers=verifiers(), url=url)
    said = [record.getMessage() for record in caplog.records if record.name == "a2a_trust.middleware.protection"]
    assert [each.partition(": ")[0] for each in said] == places
    assert all("write the name that callers use" in each for each in said)


@pytest.mark.parametrize(
    ("url", "warnings"), [("https://agent.example", 0), ("https://agent.example/a2a", 1), (None, 0)]
)
def test_a_url_that_is_no_audience_is_warned_of(
    url: str | None, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    another = JwtVerifier(Keys(EC), issuer="https://another.example", audience="https://agent.example")
    issuers = SeveralIssuers([verifiers()["oauth"], another])
    for oauth in (verifiers()["oauth"], issuers):
        protect(application(), card=CARD, verifiers={**verifiers(), "oauth": oauth}, url=url)
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 2 * warnings
    assert all("accepts only those for 'https://agent.example'" in each for each in said)


class Other:
    """An application of another framework, which has its own ``routes``."""

    def routes(self) -> None: ...

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...


def fastapi() -> FastAPI:
    app = FastAPI()

    @app.post("/rpc")
    @app.get("/tasks/{number:int}/parts/{part}")
    @app.get("/files/{rest:path}")
    async def serve() -> dict[str, Any]:
        return {}

    app.mount("/assets", StaticFiles(directory="docs"))
    app.mount("/other", Other())
    app.mount("/admin", Starlette(routes=[Route("/users", lambda _: Response()), Host("x.example", Starlette())]))
    app.router.routes.append(WebSocketRoute("/chat", lambda _: Response()))
    return app


HIDDEN = ["/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc", "/files/", "/tasks/{number}/parts/{part}"]
HIDDEN += ["/assets/", "/other/", "/admin/users", "/chat", "/late"]


async def started(app: Any) -> None:
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        assert message["type"].endswith("complete")

    await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)


@pytest.mark.parametrize(
    ("rules", "hidden"),
    [
        ({}, []),
        ({"may_use_tenant": lambda caller, tenant: True}, HIDDEN),
        ({"may_use_tenant": lambda caller, tenant: True, "other_paths": HIDDEN}, []),
        ({"may_use_tenant": lambda caller, tenant: True, "other_paths": HIDDEN[1:], "public_paths": HIDDEN[:1]}, []),
    ],
)
def test_routes_that_nobody_reaches_are_listed_at_start(
    rules: dict[str, Any], hidden: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    app = protect(fastapi(), card=CARD, verifiers=verifiers(), rules=RequestRules(**rules))
    app.router.routes.append(Route("/late", lambda _: Response()))
    asyncio.run(started(app))
    said = [record.getMessage() for record in caplog.records if "no request reaches" in record.getMessage()]
    assert [each.partition("other_paths=")[2] for each in said] == ([f"{hidden!r})"] if hidden else [])


def test_a_list_of_many_hidden_routes_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    app = Starlette(routes=[Route(f"/{number}", lambda _: Response()) for number in range(50)])
    rules = RequestRules(may_use_tenant=lambda caller, tenant: True)
    asyncio.run(started(protect(app, card=CARD, verifiers=verifiers(), rules=rules)))
    (said,) = [record.getMessage() for record in caplog.records if "no request reaches" in record.getMessage()]
    assert said.endswith("'/19']), and 30 more")


def test_an_interface_elsewhere_that_readers_differ_about_is_no_reason_to_fail() -> None:
    url = "http://[::1"
    interfaces = [*CARD["supportedInterfaces"], {"url": url, "protocolBinding": "GRPC", "protocolVersion": "1.0"}]
    app = protect(
        application(),
        card={**CARD, "supportedInterfaces": interfaces},
        verifiers=verifiers(),
        rules=RequestRules(unguarded=[url]),
    )
    assert ask(app, "POST", "/rpc", json=CALL).status_code == 401
