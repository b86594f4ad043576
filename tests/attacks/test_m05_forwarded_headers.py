"""M5: headers that only a proxy should write say where the request comes from, for which path, by whom.

Seen in oauth2-proxy (CVE-2026-40575, CVE-2025-64484) and fabio (CVE-2025-48865). The servers trust every peer here
(``FORWARDED_ALLOW_IPS=*``), as they are often run in containers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from a2a_trust import CardServing
from a2a_trust.auth.certificate.from_proxy import FromProxy, ProxySecret
from a2a_trust.auth.certificate.proxy_forms import Rfc9440
from a2a_trust.auth.peers import Networks
from a2a_trust.middleware.protection import protect
from a2a_trust.servers.uvicorn import H11Protocol, HttpToolsProtocol
from tests.attacks.test_m06_client_certificates_in_headers import Believes
from tests.middleware.agent import CARD, Agent, uvicorn_serving, verifiers
from tests.middleware.proxies.told import ANN, BOB, TOLD
from tests.servers.guarded_servers import PROXY, SHELLS, GuardedServers, guarded_servers
from tests.tables import walk


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


CARD_PATH = "/.well-known/agent-card.json"


@pytest.fixture(scope="module", params=SHELLS)
def servers(request: pytest.FixtureRequest) -> Iterator[GuardedServers]:
    with guarded_servers(*request.param, FORWARDED_ALLOW_IPS="*") as running:
        yield running


FORWARDED = [
    "X-Forwarded-For: 127.0.0.1",
    "X-Forwarded-For: 10.0.0.1, 127.0.0.1",
    "X-Forwarded-For: unknown, [::1]:80",
    "X-Forwarded-Proto: https",
    "X-Forwarded-Proto: wss",
    f"X-Forwarded-Host: agent.example{CARD_PATH}?",
    "X-Forwarded-Port: 443",
    f"X-Forwarded-Uri: {CARD_PATH}",
    f"X-Forwarded-Path: {CARD_PATH}",
    "X-Forwarded-Prefix: /.well-known",
    "X-Forwarded-Method: GET",
    f"X-Forwarded-Prefix: {CARD_PATH}",
    "X-Script-Name: /rpc",
    "Script-Name: /rpc",
    f"X-Original-URL: {CARD_PATH}",
    f"X-Original-URI: {CARD_PATH}",
    f"X-Rewrite-URL: {CARD_PATH}",
    f"X-Envoy-Original-Path: {CARD_PATH}",
    "X-Original-Method: HEAD",
    "X-HTTP-Method-Override: GET",
    "X-Real-IP: 127.0.0.1",
    "True-Client-IP: 127.0.0.1",
    "CF-Connecting-IP: 127.0.0.1",
    f'Forwarded: for=127.0.0.1;proto=https;host="agent.example{CARD_PATH}"',
    "Forwarded: for=127.0.0.1;by=unix",
    "Via: 1.1 proxy",
    "X-Forwarded-User: ann",
    "X-Forwarded-Email: ann@agent.example",
    "X-Forwarded-Preferred-Username: ann",
    "X-Forwarded-Access-Token: {token}",
    "X-Forwarded-Authorization: Bearer {token}",
    "Proxy-Authorization: Bearer {token}",
    "X-Authenticated-User: ann",
    "X-Auth-Request-User: ann",
    "X-Remote-User: ann",
    "Remote-User: ann",
    "X-Client-Verify: SUCCESS",
    "SSL-Client-Verify: SUCCESS",
    "Client-Cert: :MIIB:",
    "X-Forwarded-Client-Cert: Subject=ann;URI=spiffe://ann",
    "X-Internal: true",
    "X-API_Key: {key}",
    "X_API_KEY: {key}",
    "HTTP_AUTHORIZATION: Bearer {token}",
    "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-For: 127.0.0.1\r\nX-Real-IP: ::1\r\nForwarded: for=_x",
]

CONNECTION = [
    "X-API-Key",
    "Authorization",
    "Cookie",
    "Authorization, X-API-Key",
    "X-Forwarded-For, X-API-Key",
    "x-api-key,authorization , cookie",
]

KEY, TOKEN = "X-API-Key: {key}", "Authorization: Bearer {token}"
WRONG = ["X-API-Key: other", "Authorization: Bearer other"]


def check(servers: GuardedServers, more: str) -> None:
    """Nobody is let in by these lines, and nobody is kept out or taken for another."""
    for carried in ("X-Other: 1", *WRONG):
        for method in ("GET", "POST"):
            answers = servers.answers(f"{carried}\r\n{more}", method=method)
            assert {name for name, (status, _) in answers.items() if status != 401} == set()
    for status, _ in (servers.answers(more, target=CARD_PATH, method="POST")).values():
        assert status == 401
    for status, answer in (servers.answers(more, target=CARD_PATH)).values():
        assert (status, json.loads(answer)["name"]) == (200, "agent")
    if "_" in more.partition(":")[0]:
        return  # beside an alias of itself a credential is refused
    for line, name in ((KEY, "ann@api-keys"), (TOKEN, "ann@https://issuer.example")):
        for status, answer in (servers.answers(f"{servers.lines(line)}\r\n{more}")).values():
            assert status == 200
            assert user(answer) == name


def user(answer: bytes) -> str | None:
    """The display name that the agent saw."""
    name: str | None = json.loads(answer)["user"]
    return name


@walk("lines", FORWARDED)
def test_what_a_proxy_would_write_changes_nothing(servers: GuardedServers, lines: str) -> None:
    check(servers, f"{servers.lines(lines)}\r\nConnection: close")


@walk("names", CONNECTION)
def test_a_connection_header_that_names_credentials_changes_nothing(servers: GuardedServers, names: str) -> None:
    if PROXY in servers.origins:  # the agent behind it must get what the guard has read
        answers = servers.answers(f"{servers.lines(KEY)}\r\nConnection: close, {names}")
        assert answers[PROXY][0] == 400
    else:
        check(servers, f"Connection: close, {names}")


@pytest.mark.parametrize(
    ("credential", "alias"),
    [
        (KEY, "X_API_Key: other"),
        (KEY, "X_Api-Key: {key}"),
        (TOKEN, "AUTHORIZATION: Bearer {token}"),
        (KEY, "x-api_key:"),
    ],
)
def test_an_alias_beside_a_credential_is_refused(servers: GuardedServers, credential: str, alias: str) -> None:
    lines = servers.lines(f"{credential}\r\n{alias}\r\nConnection: close")
    for name, (status, _) in (servers.answers(lines)).items():
        # daphne drops names with an underscore: neither the guard nor the agent can see one there.
        assert status == (200 if name == "daphne" and "_" in alias else 401), name


@pytest.mark.anyio
@walk("protocol", [H11Protocol, HttpToolsProtocol, "h11", "httptools"])
@walk(
    "headers",
    [{}, {"X-Forwarded-For": "10.0.0.1"}, {"Forwarded": "for=10.0.0.1"}, {"X-Real-IP": "10.0.0.1"}],
)
async def test_nobody_writes_himself_into_a_network(protocol: Any, headers: dict[str, str]) -> None:
    inner = Networks("10.0.0.0/8")
    app = protect(Agent(), card=CARD, verifiers=verifiers(), serving=CardServing(readers=inner))
    async with uvicorn_serving(app, protocol, forwarded_allow_ips="*") as origin, httpx.AsyncClient() as http:
        assert (await http.get(f"{origin}{CARD_PATH}", headers=headers)).status_code == 403


@pytest.mark.anyio
@walk("protocol", [H11Protocol, HttpToolsProtocol])
@walk(
    "name",
    [
        "X-Forwarded-For", "X_Forwarded_For", "Forwarded", "Via", "X-Real-IP", "X-Forwarded-Proto", "X-Forwarded-Port",
        "X-Forwarded-Server", "X-Original-Forwarded-For", "CF-Connecting-IP", "CDN-Loop", "True-Client-IP",
        "X-Client-IP", "X-Cluster-Client-IP", "X-Envoy-External-Address", "Fly-Client-IP", "X-Amzn-Trace-Id",
        "Client-IP",
    ],
)  # fmt: skip
async def test_a_proxy_in_a_network_does_not_stand_for_its_clients(protocol: Any, name: str) -> None:
    local = Networks("127.0.0.0/8")
    app = protect(Agent(), card=CARD, verifiers=verifiers(), serving=CardServing(readers=local))
    async with uvicorn_serving(app, protocol) as origin, httpx.AsyncClient() as http:
        assert (await http.get(f"{origin}{CARD_PATH}")).status_code == 200
        assert (await http.get(f"{origin}{CARD_PATH}", headers={name: "203.0.113.9"})).status_code == 403


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", [H11Protocol, HttpToolsProtocol])
@pytest.mark.parametrize("peers", [Networks("127.0.0.1"), ProxySecret(secret="0" * 32)], ids=repr)
async def test_a_connection_header_that_names_the_certificate_changes_nothing(protocol: Any, peers: Any) -> None:
    card = {
        **CARD,
        "securitySchemes": {"mtls": {"mtlsSecurityScheme": {}}},
        "securityRequirements": [{"schemes": {"mtls": {}}}],
    }
    source = FromProxy(Rfc9440(), peers=peers)
    app = protect(Agent(), card=card, verifiers={"mtls": Believes()}, client_certificates=source)
    secret = {"X-Proxy-Secret": "0" * 32}
    told = {**dict(TOLD["rfc9440"].tell((ANN, BOB))), **secret}
    async with uvicorn_serving(app, protocol, forwarded_allow_ips="*") as origin, httpx.AsyncClient() as http:
        for named in ("client-cert", "Client-Cert-Chain, Client-Cert", "x-proxy-secret", "client-cert, x-proxy-secret"):
            connection = {"Connection": f"close, {named}"}
            assert (await http.get(f"{origin}/rest", headers={**told, **connection})).status_code == 200
            assert (await http.get(f"{origin}/rest", headers={**secret, **connection})).status_code == 401
            assert (await http.get(f"{origin}/rest", headers=connection)).status_code == 401
