"""Keys and metadata of a protected agent."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import httpx
import pytest

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.dpop import DPoP
from a2a_trust.auth.jwt import IdTokenVerifier, JwtVerifier
from a2a_trust.auth.principal import CredentialKind, Identity, TokenBinding
from a2a_trust.card.view import read_card
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.algorithms import ALG_NAMES
from a2a_trust.keys.jwk import PublicKey, read_jwks
from a2a_trust.keys.signer import generate_signer
from a2a_trust.middleware.documents import JwksEndpoint, ProtectedResource
from tests.auth.test_jwt import EC, Keys
from tests.tables import walk

ONE, OTHER = generate_signer(), generate_signer("EdDSA")


def get(app: Any, **headers: str) -> httpx.Response:
    async def request() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://agent.example") as client:
            return await client.get("/", headers=headers)

    return asyncio.run(request())


def test_the_public_halves_are_served_and_nothing_else() -> None:
    response = get(JwksEndpoint([ONE.public_key, OTHER.public_key], max_age=60))
    assert response.headers["content-type"] == "application/jwk-set+json"
    assert response.headers["cache-control"] == "public, max-age=60"
    assert read_jwks(response.content).keys == (ONE.public_key, OTHER.public_key)
    members = {name for key in response.json()["keys"] for name in key}
    assert members == {"kty", "crv", "x", "y", "kid", "use", "alg"}


def test_a_set_that_changes_has_another_tag_and_date() -> None:
    class Ring:
        def published(self, now: float) -> tuple[PublicKey, ...]:
            return (ONE.public_key,) if now < 1000 else (ONE.public_key, OTHER.public_key)

    now = [500.0]
    app = JwksEndpoint(Ring(), clock=lambda: now[0])
    before = get(app)
    now[0] = 999
    assert get(app, **{"If-None-Match": before.headers["etag"]}).status_code == 304
    now[0] = 1000
    after = get(app, **{"If-None-Match": before.headers["etag"]})
    assert (after.status_code, len(after.json()["keys"])) == (200, 2)
    assert after.headers["last-modified"] == "Thu, 01 Jan 1970 00:16:40 GMT"


def test_a_set_without_keys_is_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match="keys is empty"):
        JwksEndpoint([])


CARD = read_card(
    {
        "name": "Invoice Agent",
        "securitySchemes": {
            "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
            "oauth": {
                "oauth2SecurityScheme": {
                    "flows": {"clientCredentials": {"tokenUrl": "https://as.example/t", "scopes": {"pay": "Pay"}}}
                }
            },
            "sso": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://idp.example/x"}},
            "login": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://login.example/x"}},
        },
        "securityRequirements": [
            {"schemes": {"key": {"list": ["internal"]}}},
            {"schemes": {"oauth": {"list": ["read"]}}},
            {"schemes": {"login": {"list": ["openid"]}}},
        ],
        "skills": [{"id": "s", "securityRequirements": [{"schemes": {"sso": {"list": ["write"]}}}]}],
    }
)
VERIFIERS: dict[str, Any] = {
    "key": ApiKeyVerifier(MemoryApiKeys()),
    "oauth": JwtVerifier(Keys(EC), issuer="https://as.example", audience="https://agent.example/a2a"),
    "sso": JwtVerifier(Keys(EC), issuer="https://idp.example", audience="https://agent.example/a2a"),
    "login": IdTokenVerifier(Keys(EC), issuer="https://login.example", audience="client"),
}


def test_where_tokens_come_from_and_what_they_can_allow() -> None:
    app = ProtectedResource("https://agent.example/a2a/", CARD, VERIFIERS)
    assert app.path == "/.well-known/oauth-protected-resource/a2a"
    assert app.url == "https://agent.example/.well-known/oauth-protected-resource/a2a"
    assert get(app).json() == {
        "resource": "https://agent.example/a2a/",
        "resource_name": "Invoice Agent",
        "bearer_methods_supported": ["header"],
        "authorization_servers": ["https://as.example", "https://idp.example"],
        "scopes_supported": ["pay", "read", "write"],
    }


def test_which_bound_tokens_are_taken_is_told_and_none_are_demanded() -> None:
    verifiers = {"oauth": JwtVerifier(Keys(EC), issuer="https://as.example", audience="a")}
    plain = ProtectedResource("https://agent.example", CARD, verifiers).metadata
    told = ProtectedResource(
        "https://agent.example", CARD, verifiers, dpop=DPoP(url="https://agent.example"), certificate_bound=True
    ).metadata
    assert {name: value for name, value in told.items() if name not in plain} == {
        "dpop_signing_alg_values_supported": list(ALG_NAMES),
        "tls_client_certificate_bound_access_tokens": True,
    }
    # Without any tokens there are no bound ones.
    keys = {"key": ApiKeyVerifier(MemoryApiKeys())}
    assert (
        "tls_client_certificate_bound_access_tokens"
        not in ProtectedResource("https://agent.example", CARD, keys, certificate_bound=True).metadata
    )


@pytest.mark.parametrize("certificate_bound", [False, True])
def test_proofs_are_demanded_of_all_callers_where_nothing_else_binds_a_token(certificate_bound: bool) -> None:
    def verifier(binding: TokenBinding) -> JwtVerifier:
        return JwtVerifier(Keys(EC), issuer="https://as.example", audience="a", binding=binding)

    for bindings in ((TokenBinding.REQUIRED,) * 2, (TokenBinding.REQUIRED, TokenBinding.OPTIONAL)):
        verifiers = dict(zip(("oauth", "login"), map(verifier, bindings), strict=True))
        metadata = ProtectedResource(
            "https://agent.example",
            CARD,
            verifiers,
            dpop=DPoP(url="https://agent.example"),
            certificate_bound=certificate_bound,
        ).metadata
        is_demanded = not certificate_bound and TokenBinding.OPTIONAL not in bindings
        assert metadata.get("dpop_bound_access_tokens_required", False) is is_demanded


class Introspecting:
    """A verifier of somebody else's, which says that it is for access tokens, and of which issuer."""

    kind: Literal[CredentialKind.ACCESS_TOKEN] = CredentialKind.ACCESS_TOKEN
    issuers, binding, metadata_urls = ("https://other.example",), TokenBinding.OPTIONAL, ()

    async def verify(self, credential: str, now: float) -> Identity:
        return Identity(issuer=self.issuers[0], subject=credential)


class Unsaid(Introspecting):
    kind: Any = "token"  # a word of its own, which says nothing to us


def test_a_verifier_of_others_is_named_when_it_says_what_it_is() -> None:
    metadata = ProtectedResource("https://agent.example", CARD, {"oauth": Introspecting()}).metadata
    assert metadata["authorization_servers"] == ["https://other.example"]
    assert "authorization_servers" not in ProtectedResource("https://agent.example", CARD, {"oauth": Unsaid()}).metadata


def test_an_agent_without_tokens_names_no_server() -> None:
    app = ProtectedResource("https://agent.example", CARD, {"key": VERIFIERS["key"]})
    assert app.path == "/.well-known/oauth-protected-resource"
    assert set(get(app).json()) == {"resource", "resource_name", "bearer_methods_supported"}


@walk("resource", ["", "agent.example", "/a2a", "https://", "https://a.example/?q", "https://a.example/#f"])
def test_a_resource_is_a_url(resource: str) -> None:
    with pytest.raises(ConfigurationError, match="resource"):
        ProtectedResource(resource, CARD, {})


@walk(
    "url",
    ["https://agänt.example", 'https://agent.example/a"b', "https://agent.example/a b", "https://a.example\\b", "x"],
)
def test_a_url_that_cannot_stand_in_a_header_does_not_start(url: str) -> None:
    with pytest.raises(ConfigurationError, match="write https://host/path"):
        ProtectedResource(url, CARD, VERIFIERS)
