"""M11: a wrong credential beside an open door, the scopes of one scheme for another's, and rules that nobody enforces.

Found in a review of the rules of evaluation; through the whole middleware.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2a_trust.auth.certificate.from_proxy import FromProxy, ProxySecret, UnixSocket
from a2a_trust.auth.certificate.identities import AllIssued, FromDns
from a2a_trust.auth.certificate.proxy_forms import Nginx
from a2a_trust.auth.certificate.verifier import CertificateVerifier, ClientAuthority
from a2a_trust.auth.credentials import ClientCertificate, FromTls, InQuery
from a2a_trust.auth.guard import Guard
from a2a_trust.auth.guard_config import CredentialAt
from a2a_trust.auth.peers import Networks
from a2a_trust.card.view import read_card
from a2a_trust.errors import ConfigurationError
from a2a_trust.middleware.door import CardEnforcementMiddleware
from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.protection import protect
from a2a_trust.servers.uvicorn import H11Protocol, HttpToolsProtocol
from tests.attacks.test_m06_client_certificates_in_headers import Believes
from tests.auth.test_jwt import claims, token
from tests.certificates import Authority
from tests.middleware.agent import CALL, CARD, KEY, POOR_KEY, Agent, guarded, uvicorn_serving, verifiers
from tests.middleware.proxies.told import ANN, TOLD
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def client(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example")


def bearer(**changes: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(claims(**changes))}"}


OPEN = {**CARD, "securityRequirements": [*CARD["securityRequirements"], {}]}


@walk(
    "carried",
    [
        {"X-API-Key": "wrong"},
        {"X-API-Key": ""},
        {"X_API_Key": KEY},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic YTpi"},
        {"Authorization": ""},
        {"X-API-Key": KEY, "Authorization": "Bearer wrong"},
        bearer(exp=1),
        bearer(aud="other"),
    ],
)
async def test_a_wrong_credential_beside_an_open_door_is_401(carried: dict[str, str]) -> None:
    agent = Agent()
    async with client(guarded(agent, OPEN, allow_anonymous=True)) as http:
        assert (await http.post("/rpc", headers=carried)).status_code == 401
        assert agent.scopes == []
        assert (await http.post("/rpc")).status_code == 200


@pytest.mark.parametrize("carried", [{"X-API-Key": POOR_KEY}, bearer(scope="other")])
async def test_a_known_caller_without_the_scope_is_not_let_in_as_nobody(carried: dict[str, str]) -> None:
    agent = Agent()
    async with client(guarded(agent, OPEN, allow_anonymous=True)) as http:
        assert (await http.post("/rpc", headers=carried)).status_code == 403
    assert agent.scopes == []


async def test_the_scopes_of_one_scheme_never_satisfy_another() -> None:
    both = {**CARD, "securityRequirements": [{"schemes": {"key": {"list": ["read"]}, "oauth": {"list": ["read"]}}}]}
    agent = Agent()
    async with client(guarded(agent, both)) as http:
        for key, scope in ((POOR_KEY, "read write admin"), (KEY, "write"), (POOR_KEY, "")):
            assert (await http.post("/rpc", headers={"X-API-Key": key, **bearer(scope=scope)})).status_code == 403
        for carried in ({"X-API-Key": KEY}, bearer(), {}):
            assert (await http.post("/rpc", headers=carried)).status_code == 401
        assert agent.scopes == []
        assert (await http.post("/rpc", headers={"X-API-Key": KEY, **bearer()})).status_code == 200
    assert agent.scopes[0]["auth"].scopes == ["read"]


def test_skill_rules_cannot_be_skipped_in_silence() -> None:
    for name in ("security", "securityRequirements", "security_requirements"):
        card = {**CARD, "skills": [{"id": "pay", name: [{"key": ["pay"]}]}]}
        with pytest.raises(ConfigurationError, match="'pay', and a request does not say which skill"):
            guarded(Agent(), card)
        guarded(Agent(), card, handlers_check_skills=True)  # it is the statement that lets it start


async def test_handlers_that_check_skills_see_the_scopes_of_each_credential() -> None:
    card = {**CARD, "skills": [{"id": "pay", "securityRequirements": [{"schemes": {"key": {"list": ["pay"]}}}]}]}
    agent = Agent()
    async with client(guarded(agent, card, handlers_check_skills=True)) as http:
        await http.post("/rpc", headers={"X-API-Key": KEY})
    key = agent.scopes[0]["user"].by_scheme("key")
    assert key.scopes == {"read"}


def test_no_door_opens_for_want_of_a_verifier() -> None:
    for missing in ("key", "oauth"):
        given = {name: verifier for name, verifier in verifiers().items() if name != missing}
        with pytest.raises(
            ConfigurationError, match=f"the card demands the scheme '{missing}' and nothing verifies it"
        ):
            guarded(Agent(), verifiers=given)


@walk(
    ("method", "path", "body"),
    [
        ("POST", "/rpc", '{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"tenant":"acme"}}'),
        ("POST", "/rpc", '{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"ten\\u0061nt":"acme"}}'),
        ("POST", "/rpc?tenant=acme", json.dumps(CALL)),
        ("POST", "/rest/acme/message:send", "{}"),
        ("POST", "/acme/rest/message:send", "{}"),
        ("POST", "/rest/message:send", '{"tenant":"acme"}'),
        ("GET", "/rest/acme/tasks", ""),
        ("GET", "/acme/rest/tasks/1", ""),
        ("GET", "/rest/tasks?tenant=acme", ""),
        ("GET", "/rest/acme/extendedAgentCard", ""),
    ],
)
async def test_tenant_rules_cannot_be_skipped(method: str, path: str, body: str) -> None:
    for rule in (None, lambda caller, tenant: tenant != "acme"):
        agent = Agent()
        app = protect(agent, card=CARD, verifiers=verifiers(), rules=RequestRules(may_use_tenant=rule))
        async with client(app) as http:
            assert (await http.request(method, path, content=body)).status_code == 401
            given = {"X-API-Key": KEY, "Content-Type": "application/json"} if body else {"X-API-Key": KEY}
            refused = await http.request(method, path, content=body, headers=given)
            assert refused.status_code == 403
        assert agent.scopes == []


@walk("permission", [None, 1, "refused", "true", object()])
@walk("card", [OPEN, {**CARD, "securityRequirements": []}], ids=["with {}", "none"])
def test_only_the_named_permission_admits_strangers(permission: Any, card: dict[str, Any]) -> None:
    """Seen here: ``anonymous=False`` was taken for the permission."""
    given = verifiers() if card["securityRequirements"] else {}
    with pytest.raises(ConfigurationError, match="allow_anonymous: write True or False"):
        protect(Agent(), card=card, verifiers=given, rules=RequestRules(allow_anonymous=permission))
    for refused in (permission, False):
        with pytest.raises(ConfigurationError, match="everybody may call the agent"):
            Guard(read_card(card), given, allow_anonymous=refused)


@pytest.mark.parametrize(
    "rules",
    [
        RequestRules(may_use_tenant=lambda caller, tenant: False),
        RequestRules(other_paths=["/docs"]),
        RequestRules(max_body=1_000),
    ],
    ids=["may_use_tenant", "other_paths", "max_body"],
)
def test_the_guard_alone_takes_no_rule_that_it_does_not_enforce(rules: RequestRules) -> None:
    """Seen here: it took ``max_body`` and passed bodies of any size on."""
    with pytest.raises(ConfigurationError, match=r"enforced by protect\(app, …\) only"):
        CardEnforcementMiddleware(Agent(), card=CARD, verifiers=verifiers(), rules=rules)
    protect(Agent(), card=CARD, verifiers=verifiers(), rules=rules)


OPTIONS = ["allow_cors_preflight", "hide_credentials", "keep_subject_token", "handlers_check_skills"]


@walk("option", OPTIONS)
@walk("value", ["false", "no", 0, 1, None])
def test_a_word_of_the_environment_is_no_yes(option: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{option}: write True or False"):
        RequestRules(**{option: value})


PROXY = "10.0.0.5"


@walk("protocol", [H11Protocol, HttpToolsProtocol, "h11", "httptools"])
@walk("peers", [Networks(PROXY), UnixSocket(), ProxySecret(secret="0" * 32)], ids=repr)
async def test_a_forged_certificate_where_the_server_believes_every_forwarded_header(protocol: Any, peers: Any) -> None:
    card = {
        **CARD,
        "securitySchemes": {**CARD["securitySchemes"], "mtls": {"mtlsSecurityScheme": {}}},
        "securityRequirements": [{"schemes": {"mtls": {}}}, {"schemes": {"key": {}}}, {}],
    }
    agent = Agent()
    app = guarded(
        agent,
        card,
        verifiers={**verifiers(), "mtls": Believes()},
        client_certificates=FromProxy(Nginx(), peers=peers),
        allow_anonymous=True,
    )
    forged = dict(TOLD["nginx"].tell((ANN,)))
    knows_nobody = isinstance(protocol, str) and not isinstance(peers, ProxySecret)
    async with uvicorn_serving(app, protocol, forwarded_allow_ips="*") as origin, httpx.AsyncClient() as http:
        for more in ({}, {"X-Forwarded-For": PROXY}, {"X-Forwarded-For": f"{PROXY}, 127.0.0.1"}, {"X-API-Key": KEY}):
            answer = await http.post(f"{origin}/rpc", headers={**forged, **more})
            assert answer.status_code == (503 if knows_nobody else 401)
        assert agent.paths == []
        assert (await http.post(f"{origin}/rpc")).status_code == 200


@pytest.mark.parametrize("scheme", ["key", "query", "bearer", "word"])
def test_a_certificate_is_no_password(scheme: str, tmp_path: Path) -> None:
    """Everybody can have its text; who has its key is verified by TLS, and by nothing that a request holds."""
    authorities = tmp_path / "ca.pem"
    authorities.write_bytes(Authority().pem)
    verifier = CertificateVerifier(
        ClientAuthority(name="a", certificates=authorities, identity=FromDns(), allowed=AllIssued())
    )
    schemes = {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Cert"}},
        "query": {"apiKeySecurityScheme": {"location": "query", "name": "cert"}},
        "bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}},
    }
    card: dict[str, Any] = {
        **CARD,
        "securitySchemes": schemes,
        "securityRequirements": [{"schemes": {scheme: {}}}],
    }
    given: Any = verifier
    if scheme == "word":
        card = {"name": "agent", "url": "https://agent.example/", "authentication": {"schemes": ["word"]}}
        given = CredentialAt(InQuery("cert"), verifier)
    with pytest.raises(ConfigurationError, match="is for client certificates, whose keys TLS has proven"):
        protect(Agent(), card=card, verifiers={scheme: given}, client_certificates=FromTls())


def test_a_token_is_no_certificate() -> None:
    card = {
        **CARD,
        "securitySchemes": {"m": {"mtlsSecurityScheme": {}}},
        "securityRequirements": [{"schemes": {"m": {}}}],
    }
    with pytest.raises(ConfigurationError, match="is for tokens, and the card demands client certificates"):
        protect(Agent(), card=card, verifiers={"m": verifiers()["oauth"]}, client_certificates=FromTls())


def test_a_word_of_0_1_that_is_a_certificate_needs_its_source() -> None:
    card = {"name": "agent", "url": "https://agent.example/", "authentication": {"schemes": ["mutualTLS"]}}
    given = {"mutualTLS": CredentialAt(ClientCertificate(), Believes())}
    with pytest.raises(ConfigurationError, match=r"client_certificates=FromTls\(\)"):
        protect(Agent(), card=card, verifiers=given)
