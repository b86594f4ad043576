"""docs/protect.md is true: its Python and its commands run, and every cause that it names stops an agent."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
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
from a2a_trust.middleware.audit import AuditEvent, Reason
from a2a_trust.middleware.extended_card import ExtendedCard
from tests.attacks.test_m06_client_certificates_in_headers import Believes
from tests.examples.waiting import until
from tests.middleware.agent import grouped
from tests.servers.issuer import issuing

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "protect.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
(
    FIRST,
    RULES,
    BROWSERS,
    PASSWORDS,
    DIRECTORY,
    OWN,
    HANDLER,
    ACTING,
    SKILLS,
    REJECTING,
    STREAMS,
    KEEPING,
    FAILURES,
    GUESSED,
    TOGETHER,
    AUDIT,
) = BLOCKS
COMMANDS, COMMANDS_OF_MANY, PASSWORD_COMMANDS = re.findall(r"```console\n(.*?)```", GUIDE, re.DOTALL)

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


def test_rules_name_the_tenants_and_the_paths_that_are_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = SqliteApiKeys(tmp_path / "keys.db", create=True).create(owner="ann", scopes=["tenant:acme"]).text
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"agent": Starlette(routes=[Route("/{path:path}", hello)]), "card": CARD}
    exec(FIRST.partition("app = ")[0], names)
    exec(RULES, names)
    found = [
        ask(names["app"], path, **{"X-API-Key": key}).status_code for path in ("/docs", "/threads/1", "/invoices/7")
    ]
    assert found == [200, 200, 200]
    assert [ask(names["app"], path, **{"X-API-Key": key}).status_code for path in ("/x", "/tasks/1")] == [404, 404]


def test_wrong_keys_are_limited_as_the_rules_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = SqliteApiKeys(tmp_path / "keys.db", create=True).create(owner="ann").text
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"agent": Starlette(routes=[Route("/", hello)]), "card": CARD}
    exec(FIRST.partition("app = ")[0], names)
    exec(FAILURES, names)
    statuses = [ask(names["app"], "/", **{"X-API-Key": f"{key[:16]}_{number:038}"}).status_code for number in range(8)]
    assert statuses == [401] * 5 + [429] * 3
    assert ask(names["app"], "/", **{"X-API-Key": key}).status_code == 200


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


def test_a_page_of_an_allowed_origin_calls_with_a_cookie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = SqliteApiKeys(tmp_path / "keys.db", create=True).create(owner="ann").text
    monkeypatch.chdir(tmp_path)
    cookie = {"key": {"apiKeySecurityScheme": {"location": "cookie", "name": "sid"}}}
    card = {**CARD, "securitySchemes": cookie}
    names: dict[str, Any] = {"agent": Starlette(routes=[Route("/", hello)]), "card": card}
    exec(FIRST.partition("app = ")[0] + RULES.partition("app = ")[0] + BROWSERS, names)
    origins = (HERE, "https://app.example.com", "https://evil.example")
    assert [ask(names["app"], "/", cookie=f"sid={key}", origin=origin).status_code for origin in origins] == [
        200,
        200,
        403,
    ]


def test_a_handler_knows_its_caller_and_what_the_key_allows() -> None:
    keys = MemoryApiKeys()
    may = keys.create(owner="ann", scopes=["invoices:write"]).text
    may_not = keys.create(owner="bob").text
    names: dict[str, Any] = {}
    exec(HANDLER, names)
    agent = Starlette(routes=[Route("/", names["handler"])])
    app = protect(agent, card=CARD, verifiers={"key": ApiKeyVerifier(keys)})
    assert ask(app, "/", **{"X-API-Key": may}).json()["booked for"] == "ann@api-keys"
    assert ask(app, "/", **{"X-API-Key": may_not}).status_code == 403


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


def test_a_stream_ends_with_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = SqliteApiKeys(tmp_path / "keys.db", create=True)
    issued = keys.create(owner="ann")
    monkeypatch.chdir(tmp_path)

    async def events() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        await asyncio.to_thread(keys.revoke, issued.record.key_id)
        await asyncio.Event().wait()

    async def stream(request: Any) -> StreamingResponse:
        return StreamingResponse(events(), media_type="text/event-stream")

    names: dict[str, Any] = {"agent": Starlette(), "card": EITHER}
    exec(FIRST, names)
    names |= {"agent": Starlette(), "card": CARD}
    exec(RULES, names)
    names |= {"agent": Starlette(routes=[Route("/", stream)])}
    exec(STREAMS, names)
    answer = ask(names["app"], "/", **{"X-API-Key": issued.text})
    assert answer.text.startswith("data: 1\n\nevent: error\ndata: {")


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


def test_the_audit_trail_is_json_and_names_every_reason(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("a2a_trust.audit")
    try:
        exec(AUDIT, {})
        ask(protect(Starlette(), card=CARD, **KEYED), "/rpc")
    finally:
        log.handlers.clear()
        log.setLevel(logging.NOTSET)
        log.propagate = True
    event = json.loads(capsys.readouterr().err)
    assert (event["event"], event["reason"], event["path"]) == ("refused", "missing-credentials", "/rpc")
    assert all(f"`{reason}`" in GUIDE for reason in Reason)
    assert all(f"`{member}`" in GUIDE for member in AuditEvent.__optional_keys__)


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    key_id = "a2a_3kTMd9QxL0aB"
    for line in COMMANDS.splitlines():
        command = line.removeprefix("$ a2a-sign ").replace("a2a_3kTMd9QxL0aB", key_id)
        assert main(command.split()) == 0, command
        printed = capsys.readouterr().out
        if " create " in command:
            key_id = printed.rpartition("_")[0]
    old, new = SqliteApiKeys(tmp_path / "keys.db").records()
    assert old.key_id == key_id
    assert old.replaced_by == new.key_id
    assert old.revoked is not None
    assert new.owner == "ann"
    assert new.scopes == {"invoices:read"}


def test_the_commands_for_many_teams_run(tmp_path: Path) -> None:
    (tmp_path / "teams.txt").write_text("team-a\nteam-b\nteam-c\n")
    create, *others = COMMANDS_OF_MANY.replace("$ ", "").splitlines()

    def shell(line: str) -> str:
        """The output of the line; nothing but a2a-sign is in its pipe."""
        output = ""
        for command in line.split(" | "):
            program = [str(Path(sys.executable).with_name("a2a-sign")), *command.split()[1:]]
            done = subprocess.run(program, input=output, cwd=tmp_path, check=True, stdout=-1, text=True, timeout=60)
            output = done.stdout
        return output

    assert "made 3 keys" in shell(create)
    with closing(sqlite3.connect(tmp_path / "keys.db", isolation_level=None)) as hand:
        hand.execute("UPDATE api_key SET created = 1 WHERE owner = 'team-b'")
    assert [len(shell(line).splitlines()) for line in others] == [1, 2, 2]
    valid = [each.owner for each in SqliteApiKeys(tmp_path / "keys.db").records() if each.revoked is None]
    assert valid == ["team-c"]


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
            "names a scheme that the card does not declare",
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
            "such as `Host` or `Cookie`",
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
            "whose `openIdConnectUrl` is not of the verifier's issuer",
            {**EITHER, "securityRequirements": demanding("login")},
            login("https://other.example.com"),
            {**EITHER, "securityRequirements": demanding("login")},
            login(ISSUER),
        ),
        (
            "for another kind of credential",
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
        ("nobody gives", PROMISING, KEYED, PROMISING, {**KEYED, "extended_card": ExtendedCard(PROMISING)}),
        (
            "`keep_subject_token=True` without a verifier for access tokens",
            CARD,
            {**KEYED, "keep_subject_token": True},
            CARD,
            KEYED,
        ),
        ("ends like the path of a card", CARD, {**KEYED, "public_paths": ["/a/agent-card.json"]}, CARD, KEYED),
        (
            "one string where a list belongs",
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
    assert cause in GUIDE
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
        assert f"{name}`" in GUIDE
        assert ask(app, f"/.well-known/{name}").status_code == 200
    for path in ("/", "/rpc", "/healthz", "/.well-known/other", "/.well-known/agent.json/"):
        assert ask(app, path).status_code == 401
