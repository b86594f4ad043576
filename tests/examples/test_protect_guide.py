"""docs/protect.md and the pages about its parts are true: programs run, and each cause of an error stops an agent."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from a2a_trust import (
    ApiKeyVerifier,
    CardServing,
    ConfigurationError,
    Fetcher,
    FromTls,
    JwtVerifier,
    OpenIdKeys,
    RequestRules,
    SqliteApiKeys,
    generate_signer,
    protect,
)
from a2a_trust.auth import BasicVerifier, CredentialAt, InHeader, MemoryApiKeys
from a2a_trust.cli.main import main
from a2a_trust.errors import InvalidCredentialsError
from a2a_trust.middleware.audit import AuditEvent
from a2a_trust.middleware.extended_card import ExtendedCard
from tests.attacks.test_m06_client_certificates_in_headers import Believes
from tests.docs.pages import PAGES
from tests.docs.sessions import blocks
from tests.examples.waiting import until
from tests.middleware.agent import grouped
from tests.servers.issuer import issuing

_, FIRST = blocks("docs/protect.md", "python")
(PASSWORDS,) = blocks("docs/passwords.md", "python")
OWN, DIRECTORY, GUESSED = blocks("docs/verifiers.md", "python")
HANDLER, ACTING, SKILLS, REJECTING, KEEPING = blocks("docs/callers.md", "python")
_, TOGETHER = blocks("docs/failed-credentials.md", "python")
(PASSWORD_COMMANDS,) = blocks("docs/passwords.md", "console")
STARTUP = PAGES["docs/startup.md"]

ISSUER = "https://login.example.com"
HERE = "https://agent.example.com"
KEY = {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}
LOGIN = {"openIdConnectSecurityScheme": {"openIdConnectUrl": f"{ISSUER}/.well-known/openid-configuration"}}
VERIFIER = ApiKeyVerifier(MemoryApiKeys())
JSON_RPC = {"url": f"{HERE}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
GRPC = {"url": "https://grpc.example.com", "protocolBinding": "GRPC", "protocolVersion": "1.0"}


def demanding(*names: str) -> list[dict[str, Any]]:
    return [{"schemes": {name: {"list": []}}} for name in names]


CARD: dict[str, Any] = {
    "name": "Invoice Agent",
    "description": "Books invoices.",
    "version": "1.0.0",
    "supportedInterfaces": [JSON_RPC],
    "securitySchemes": {"key": KEY},
    "securityRequirements": demanding("key"),
}
EITHER = {**CARD, "securitySchemes": {"key": KEY, "login": LOGIN}, "securityRequirements": demanding("key", "login")}
OF_0_1 = {"name": "Shouter", "url": HERE, "version": "1.0.0", "authentication": {"schemes": ["apiKey"]}}
SKILL = {"id": "pay", "name": "Pay", "description": "Pays.", "tags": [], "securityRequirements": demanding("key")}


async def hello(request: Any) -> PlainTextResponse:
    return PlainTextResponse("hello")


def ask(app: Any, path: str, **headers: str) -> httpx.Response:
    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=HERE) as http:
            return await http.get(path, headers=headers)

    return asyncio.run(send())


def test_the_first_lines_make_an_agent_that_takes_a_key_or_a_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = SqliteApiKeys(tmp_path / "keys.db", create=True).create(owner="ann").text
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"agent": Starlette(routes=[Route("/", hello)]), "card": EITHER}
    exec(FIRST, names)
    refused = ask(names["app"], "/")
    assert refused.status_code == 401
    assert refused.headers.get_list("www-authenticate") == [
        'ApiKey in="header", name="X-API-Key"',
        'Bearer realm="A2A"',
    ]
    assert ask(names["app"], "/", **{"X-API-Key": key}).text == "hello"


@pytest.mark.usefixtures("cheap_hashes")
def test_passwords_are_made_by_the_commands_and_taken_by_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    texts: list[str] = []

    def statuses() -> list[int]:
        return [
            ask(names["app"], "/", authorization=httpx.BasicAuth("ann", text)._auth_header).status_code
            for text in texts
        ]

    for line in re.findall(r"^\$ a2a-sign (.*)$", PASSWORD_COMMANDS, re.MULTILINE):
        assert main(line.split()) == 0
        printed = capsys.readouterr().out
        if line.startswith(("password create", "password rotate")):
            names: dict[str, Any] = {"agent": Starlette(routes=[Route("/", hello)]), "card": CARD, "protect": protect}
            exec(PASSWORDS, names)
            texts.append(printed.strip())
        expected = {"create": [200], "list": [200], "rotate": [401, 200], "revoke": [401, 401]}[line.split()[1]]
        if line.startswith("password revoke"):
            until(lambda: 200 not in statuses())  # within the 2 seconds that the page names
        assert statuses() == expected, line
    challenge = ask(names["app"], "/").headers["www-authenticate"]
    assert challenge == 'Basic realm="A2A", charset="UTF-8"'


def test_a_function_verifies_passwords_that_are_kept_elsewhere() -> None:
    async def known(user: str, password: str) -> Any:
        if password == "down":
            raise OSError
        return SimpleNamespace(name=user.lower()) if password == "right" else None

    names: dict[str, Any] = {"directory": SimpleNamespace(login=known), "BasicVerifier": BasicVerifier}
    exec(DIRECTORY, names)
    card = {**CARD, "securitySchemes": {"key": {"httpAuthSecurityScheme": {"scheme": "Basic"}}}}
    app = protect(Starlette(routes=[Route("/", hello)]), card=card, verifiers={"key": names["verifier"]})
    headers = [httpx.BasicAuth("Ann", password)._auth_header for password in ("right", "wrong", "down")]
    assert [ask(app, "/", authorization=header).status_code for header in headers] == [200, 401, 503]


def test_a_verifier_of_ones_own_stands_beside_one_for_jwts() -> None:
    names: dict[str, Any] = {}
    exec(OWN, names)
    answers: list[Any] = [{"user": "ann", "ends": 1e12}, {"user": "ann", "ends": 1.0}, None]

    async def find(session: str) -> Any:
        if not answers:
            raise OSError
        return answers.pop(0)

    own = names["Sessions"](find)
    card = {**EITHER, "securitySchemes": {"own": {"httpAuthSecurityScheme": {"scheme": "bearer"}}, "login": LOGIN}}
    card["securityRequirements"] = demanding("own", "login")
    agent = Starlette(routes=[Route("/", hello)])
    app = protect(agent, card=card, verifiers={"own": own, **login(ISSUER)["verifiers"]})
    sessions = ("a.b", *(f"session-{number}" for number in range(4)))
    statuses = [ask(app, "/", authorization=f"Bearer {each}").status_code for each in sessions]
    assert statuses == [401, 200, 401, 401, 503]


def test_failures_are_counted_together() -> None:
    names: dict[str, Any] = {"RequestRules": RequestRules}
    exec(TOGETHER, names)
    assert names["rules"].failures.shared is not None


def test_the_failures_of_a_verifier_of_ones_own_are_counted() -> None:
    names: dict[str, Any] = {}
    exec(GUESSED, names)

    class Passphrases(names["Passphrases"]):  # type: ignore[misc, valid-type]
        async def verify(self, credential: str, now: float) -> Any:
            raise InvalidCredentialsError("wrong")

    app = protect(Starlette(routes=[Route("/", hello)]), card=CARD, verifiers={"key": Passphrases()})
    statuses = [ask(app, "/", **{"X-API-Key": f"ann:{number}"}).status_code for number in range(12)]
    assert statuses == [401] * 10 + [429] * 2


def test_a_tool_of_an_executor_knows_for_whom_it_works(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(ACTING, names)

    async def agent(scope: Any, receive: Any, send: Any) -> None:
        context = SimpleNamespace(call_context=SimpleNamespace(state={"auth": scope["auth"]}))
        await asyncio.create_task(names["Executor"]().execute(context, None))
        await PlainTextResponse("")(scope, receive, send)

    keys = MemoryApiKeys()
    app = protect(agent, card=CARD, verifiers={"key": ApiKeyVerifier(keys)})
    assert ask(app, "/", **{"X-API-Key": keys.create(owner="ann").text}).status_code == 200
    assert capsys.readouterr().out == "booked 12 for ann@api-keys\n"


def test_handlers_demand_what_a_skill_demands_and_reject_their_callers() -> None:
    store = MemoryApiKeys()
    ann, bob = (store.create(owner=owner, scopes=scopes).text for owner, scopes in (("ann", ["draw"]), ("bob", [])))
    names: dict[str, Any] = {}
    for block in (HANDLER, SKILLS, REJECTING):
        exec(block, names)
    routes = [Route("/draw", names["draw"]), Route("/tasks/1", names["show"])]
    skill = {**SKILL, "id": "custom-map-generator", "securityRequirements": [{"schemes": {"key": {"list": ["draw"]}}}]}
    rules = RequestRules(handlers_check_skills=True, other_paths=["/tasks/1"])
    card = {**CARD, "skills": [skill]}
    app = protect(Starlette(routes=routes), card=card, verifiers={"key": ApiKeyVerifier(store)}, rules=rules)
    for path in ("/draw", "/tasks/1"):
        assert [ask(app, path, **{"X-API-Key": key}).status_code for key in (ann, bob)] == [200, 403]


def test_an_executor_gets_the_token_of_its_caller(capsys: pytest.CaptureFixture[str]) -> None:
    async def agent(scope: Any, receive: Any, send: Any) -> None:
        await names["Executor"]().execute(Request(scope), None)
        await PlainTextResponse(str(dict(scope["headers"])))(scope, receive, send)

    with issuing() as issuer:
        metadata = f"{issuer.url}/.well-known/openid-configuration"
        schemes = {"login": {"openIdConnectSecurityScheme": {"openIdConnectUrl": metadata}}}
        names: dict[str, Any] = {
            "agent": agent,
            "card": {**CARD, "securitySchemes": schemes, "securityRequirements": demanding("login")},
            "fetcher": Fetcher(private_origins=[issuer.url]),
            "ISSUER": issuer.url,
        }
        exec(KEEPING, names)
        expires = int(time.time()) + 60
        answer = ask(names["app"], "/", authorization=f"Bearer {issuer.token(audience=HERE, exp=expires)}")
    assert (answer.status_code, "authorization" in answer.text) == (200, False)
    assert capsys.readouterr().out == f"ann {expires}.0\n"


def test_the_page_of_the_audit_trail_has_every_member() -> None:
    """Reasons are on docs/rejections.md, which has a test of its own."""
    assert [member for member in AuditEvent.__optional_keys__ if f"`{member}`" not in PAGES["docs/audit.md"]] == []


KEYED: dict[str, Any] = {"verifiers": {"key": VERIFIER}}
OF_CERTIFICATES = Believes()
PROMISING = {**CARD, "capabilities": {"extendedAgentCard": True}}
OPEN = {key: value for key, value in CARD.items() if key != "securityRequirements"}


def login(issuer: str) -> dict[str, Any]:
    return {"verifiers": {"login": JwtVerifier(OpenIdKeys(issuer, Fetcher()), issuer=issuer, audience=HERE)}}


async def asked(user: str, password: str) -> None:
    """Nobody has a password."""


ASKED = BasicVerifier(asked)
WITH_PASSWORD = {**EITHER, "securitySchemes": {"key": {"httpAuthSecurityScheme": {"scheme": "basic"}}, "login": LOGIN}}


@pytest.mark.parametrize(
    ("cause", "card", "options", "fixed_card", "fixed_options"),
    [
        ("has no verifier", CARD, {"verifiers": {}}, CARD, KEYED),
        (
            "an undeclared scheme",
            {**CARD, "securityRequirements": demanding("key", "login")},
            {"verifiers": {"key": VERIFIER}},
            EITHER,
            {"verifiers": {"key": VERIFIER, **login(ISSUER)["verifiers"]}},
        ),
        (
            "HTTP digest",
            {**CARD, "securitySchemes": {"key": {"httpAuthSecurityScheme": {"scheme": "digest"}}}},
            KEYED,
            CARD,
            KEYED,
        ),
        (
            "HTTP basic beside a token",
            {**WITH_PASSWORD, "securityRequirements": [{"schemes": {"key": {"list": []}, "login": {"list": []}}}]},
            {"verifiers": {"key": ASKED, **login(ISSUER)["verifiers"]}},
            WITH_PASSWORD,
            {"verifiers": {"key": ASKED, **login(ISSUER)["verifiers"]}},
        ),
        (
            "mutual TLS",
            {**CARD, "securitySchemes": {"key": {"mtlsSecurityScheme": {}}}},
            {"verifiers": {"key": OF_CERTIFICATES}},
            {**CARD, "securitySchemes": {"key": {"mtlsSecurityScheme": {}}}},
            {"verifiers": {"key": OF_CERTIFICATES}, "client_certificates": FromTls()},
        ),
        ("no requirements", OPEN, {"verifiers": {}}, OPEN, {"verifiers": {}, "allow_anonymous": True}),
        (
            "an empty list",
            {**CARD, "securityRequirements": []},
            {"verifiers": {}},
            {**CARD, "securityRequirements": []},
            {"verifiers": {}, "allow_anonymous": True},
        ),
        (
            "`{}` among them",
            {**CARD, "securityRequirements": [*demanding("key"), {}]},
            KEYED,
            {**CARD, "securityRequirements": [*demanding("key"), {}]},
            {**KEYED, "allow_anonymous": True},
        ),
        (
            "gRPC",
            {**CARD, "supportedInterfaces": [JSON_RPC, GRPC]},
            KEYED,
            {**CARD, "supportedInterfaces": [JSON_RPC, GRPC]},
            {**KEYED, "unguarded": [GRPC["url"]]},
        ),
        (
            "another host",
            {**CARD, "supportedInterfaces": [JSON_RPC, {**JSON_RPC, "url": "https://other.example.com/rpc"}]},
            KEYED,
            {**CARD, "supportedInterfaces": [JSON_RPC, {**JSON_RPC, "url": "https://other.example.com/rpc"}]},
            {**KEYED, "unguarded": ["https://other.example.com/rpc"]},
        ),
        (
            "an interface for a tenant",
            {**CARD, "supportedInterfaces": [{**JSON_RPC, "tenant": "north"}]},
            KEYED,
            {**CARD, "supportedInterfaces": [{**JSON_RPC, "tenant": "north"}]},
            {**KEYED, "rules": RequestRules(may_use_tenant=lambda caller, tenant: False)},
        ),
        (
            "a skill with requirements of its own",
            {**CARD, "skills": [SKILL]},
            KEYED,
            {**CARD, "skills": [SKILL]},
            {**KEYED, "handlers_check_skills": True},
        ),
        (
            "an API key in the header `Host`",
            {**CARD, "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "Host"}}}},
            KEYED,
            CARD,
            KEYED,
        ),
        (
            "a word of a 0.1 card",
            OF_0_1,
            {"verifiers": {"apiKey": VERIFIER}},
            OF_0_1,
            {"verifiers": {"apiKey": CredentialAt(InHeader("X-API-Key"), VERIFIER)}},
        ),
        (
            "a verifier of another kind or issuer",
            {**EITHER, "securityRequirements": demanding("login")},
            login("https://other.example.com"),
            {**EITHER, "securityRequirements": demanding("login")},
            login(ISSUER),
        ),
        (
            "a verifier of another kind",
            EITHER,
            {"verifiers": {"login": VERIFIER, "key": login(ISSUER)["verifiers"]["login"]}},
            EITHER,
            {"verifiers": {"key": VERIFIER, **login(ISSUER)["verifiers"]}},
        ),
        (
            "at another host than the interfaces",
            CARD,
            {**KEYED, "url": "https://a.example"},
            CARD,
            {**KEYED, "url": HERE},
        ),
        (
            "no `extended_card=` is passed",
            PROMISING,
            KEYED,
            PROMISING,
            {**KEYED, "extended_card": ExtendedCard(PROMISING)},
        ),
        (
            "`keep_subject_token=True` without a verifier for access tokens",
            CARD,
            {**KEYED, "keep_subject_token": True},
            CARD,
            KEYED,
        ),
        ("ends like the path of a card", CARD, {**KEYED, "public_paths": ["/a/agent-card.json"]}, CARD, KEYED),
        (
            "a string in place of a list",
            CARD,
            {**KEYED, "public_paths": "/healthz"},
            CARD,
            {**KEYED, "public_paths": ["/healthz"]},
        ),
    ],
)
def test_each_cause_stops_the_agent_and_its_hint_starts_it(
    cause: str,
    card: dict[str, Any],
    options: dict[str, Any],
    fixed_card: dict[str, Any],
    fixed_options: dict[str, Any],
) -> None:
    assert cause in STARTUP
    with pytest.raises(ConfigurationError):
        protect(Starlette(), card=card, **grouped(options))
    assert ask(
        protect(Starlette(), card=fixed_card, **grouped(fixed_options)), "/.well-known/agent-card.json"
    ).is_success


def test_only_the_documents_that_the_guide_names_are_public() -> None:
    signer = generate_signer("ES256", kid="one")
    app = protect(
        Starlette(routes=[Route("/{rest:path}", hello)]),
        card=CARD,
        url=HERE,
        **KEYED,
        serving=CardServing(signer=signer),
    )
    named = ["agent-card.json", "agent.json", "oauth-protected-resource", "jwks.json"]
    for name in named:
        assert f"{name}`" in PAGES["docs/protect.md"]
        assert ask(app, f"/.well-known/{name}").status_code == 200
    for path in ("/", "/rpc", "/healthz", "/.well-known/other", "/.well-known/agent.json/"):
        assert ask(app, path).status_code == 401
