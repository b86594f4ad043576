"""The token endpoints that the tests of OAuth clients use: what they give, and what they reject."""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import httpx
import pytest
from cryptography.hazmat.primitives.hashes import SHA256

from a2a_trust import generate_signer
from a2a_trust.auth.discovery import OAuth2Keys
from a2a_trust.auth.jwt import JwtVerifier, TokenProfile
from a2a_trust.keys import LocalSigner, base64url
from a2a_trust.keys.jwk import public_key_from_object
from tests.certificates import Authority
from tests.real.openid_provider import AUDIENCE, OpenIdProvider, sign_jwt
from tests.real.server_process import TokenRequest
from tests.real.token_servers import AuthlibServer, ExchangeServer

pytestmark = pytest.mark.anyio

RESOURCE = f"{AUDIENCE}/ES256"
BACKEND = "https://back.example"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"

Server = OpenIdProvider | AuthlibServer | ExchangeServer


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def post(
    server: Server,
    form: dict[str, str],
    *,
    secret: tuple[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> httpx.Response:
    with httpx.Client(verify=tls or server.tls, auth=secret, timeout=60) as http:
        return http.post(server.token_url, data=form)


def given(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    tokens: dict[str, Any] = answer.json()
    return tokens


def claims_of(token: str) -> dict[str, Any]:
    claims: dict[str, Any] = json.loads(base64url.decode(token.split(".")[1], "claims"))
    return claims


def refused(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]


def assertion(server: Server, client: str, signer: LocalSigner) -> dict[str, str]:
    """Authentication by a signed JWT (RFC 7523 3)."""
    now = int(time.time())
    claims = {"iss": client, "sub": client, "aud": server.issuer, "iat": now, "exp": now + 60}
    return {
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": sign_jwt(signer, {"kid": signer.public_key.kid}, {**claims, "jti": secrets.token_hex(8)}),
    }


def credentials(server: Server, **more: str) -> dict[str, str]:
    resource = {"resource": RESOURCE} if isinstance(server, OpenIdProvider) else {}  # Authlib 1.9 has one audience
    return {"grant_type": "client_credentials", "scope": "read", **resource, **more}


def exchange(server: ExchangeServer, **more: str) -> dict[str, str]:
    subject = {"subject_token": server.subject_token(), "subject_token_type": ACCESS_TOKEN}
    server.token_requests()
    return {"grant_type": EXCHANGE, **subject, **more}


@pytest.fixture(params=["provider", "authlib_server"])
def server(request: pytest.FixtureRequest) -> OpenIdProvider | AuthlibServer:
    chosen: OpenIdProvider | AuthlibServer = request.getfixturevalue(request.param)
    chosen.token_requests()  # of other tests
    return chosen


# Client credentials


async def test_a_secret_gets_a_token_and_a_wrong_one_401(server: OpenIdProvider | AuthlibServer) -> None:
    token = given(post(server, credentials(server), secret=("service", "secret")))["access_token"]
    verifier = JwtVerifier(OAuth2Keys(server.issuer, server.fetcher()), issuer=server.issuer, audience=AUDIENCE)
    assert (await verifier.verify(token, time.time())).subject == "service"
    assert refused(post(server, credentials(server), secret=("service", "wrong"))) == (401, "invalid_client")
    resource = (RESOURCE,) if isinstance(server, OpenIdProvider) else ()
    came = TokenRequest("client_credentials", "service", "client_secret_basic", "read", resource, (), False, 200)
    assert server.token_requests()[:1] == [came]
    assert server.token_requests() == []


def test_a_secret_in_the_form(server: OpenIdProvider | AuthlibServer) -> None:
    form = credentials(server, client_id="service-post", client_secret="secret")
    assert claims_of(given(post(server, form))["access_token"])["sub"] == "service-post"
    assert refused(post(server, {**form, "client_secret": "wrong"})) == (401, "invalid_client")
    assert [(each.client, each.method, each.status) for each in server.token_requests()] == [
        ("service-post", "client_secret_post", 200),
        ("service-post", "client_secret_post", 401),
    ]


@pytest.mark.parametrize(
    ("server", "alg"),
    [("provider", "ES256"), ("provider", "EdDSA"), ("authlib_server", "ES256")],  # EdDSA is off in joserfc
    indirect=["server"],
)
def test_a_signed_assertion(server: OpenIdProvider | AuthlibServer, alg: str) -> None:
    signer, client = generate_signer(alg), f"service-{alg}"
    keys = {"keys": [signer.public_key.to_jwk()]}
    server.register(client, token_endpoint_auth_method="private_key_jwt", jwks=keys)
    form = {**credentials(server), **assertion(server, client, signer)}
    assert claims_of(given(post(server, form))["access_token"])["sub"] == client
    assert post(server, form).json()["error"] == "invalid_client"  # its jti was seen
    form.update(assertion(server, client, generate_signer(alg)))
    assert post(server, form).json()["error"] == "invalid_client"
    assert {(each.client, each.method) for each in server.token_requests()} == {(client, "private_key_jwt")}


def test_a_secret_is_form_encoded_before_it_is_basic(provider: OpenIdProvider) -> None:
    """RFC 6749 2.3.1; without the encoding it is another secret."""
    client, secret = "service: &+%", "s:e c+r/e%t&"
    encoded = quote_plus(client), quote_plus(secret)
    assert claims_of(given(post(provider, credentials(provider), secret=encoded))["access_token"])["sub"] == client
    assert post(provider, credentials(provider), secret=(client, secret)).status_code in (400, 401)


def test_a_certificate_of_the_authority(provider: OpenIdProvider) -> None:
    form = credentials(provider, client_id="service-tls")
    provider.token_requests()
    token = given(post(provider, form, tls=provider.tls_with_certificate))["access_token"]
    assert set(claims_of(token)["cnf"]) == {"x5t#S256"}
    assert refused(post(provider, form)) == (401, "invalid_client")
    assert [each.method for each in provider.token_requests()] == ["certificate", "none"]


def test_a_registered_certificate_of_an_unknown_authority(provider: OpenIdProvider, tmp_path: Path) -> None:
    leaf = Authority("unknown").issue(subject="client")
    tls = leaf.load_into(httpx.create_ssl_context(), tmp_path)
    tls.load_verify_locations(cadata=provider.authority_pem)
    jwk = {**public_key_from_object(leaf.key).to_jwk(), "x5c": [base64.b64encode(leaf.der).decode()]}
    metadata = {"token_endpoint_auth_method": "self_signed_tls_client_auth", "jwks": {"keys": [jwk]}}
    provider.register("service-self-signed", **metadata, tls_client_certificate_bound_access_tokens=True)
    form = credentials(provider, client_id="service-self-signed")
    token = given(post(provider, form, tls=tls))["access_token"]
    thumbprint = base64url.encode(leaf.certificate.fingerprint(SHA256()))
    assert claims_of(token)["cnf"] == {"x5t#S256": thumbprint}
    assert refused(post(provider, form, tls=provider.tls_with_certificate)) == (401, "invalid_client")


def test_a_resource_that_the_provider_does_not_know(provider: OpenIdProvider) -> None:
    form = credentials(provider, resource="https://other.example/ES256")
    assert refused(post(provider, form, secret=("service", "secret"))) == (400, "invalid_target")


def test_tokens_of_a_short_life(server: OpenIdProvider | AuthlibServer) -> None:
    for seconds in (2, 600):
        server.tell("setLifetime", seconds=seconds)
        tokens = given(post(server, credentials(server), secret=("service", "secret")))
        claims = claims_of(tokens["access_token"])
        assert (tokens["expires_in"], claims["exp"] - claims["iat"]) == (seconds, seconds)


# Refresh tokens


async def test_refresh_tokens_of_the_provider(provider: OpenIdProvider) -> None:
    for client, rotates in (("rotating", True), ("web-ES256", False)):
        tokens = await provider.login("ES256", client=client)
        form = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"], "resource": RESOURCE}
        fresh = given(post(provider, form, secret=(client, "secret")))
        assert claims_of(fresh["access_token"])["sub"] == "alice"
        assert (fresh["refresh_token"] != tokens["refresh_token"]) is rotates
        assert (post(provider, form, secret=(client, "secret")).status_code == 400) is rotates


def test_refresh_tokens_of_authlib(authlib_server: AuthlibServer) -> None:
    first = authlib_server.login()
    form = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"]}
    second = given(post(authlib_server, form, secret=("web", "secret")))
    assert claims_of(second["access_token"])["sub"] == "alice"
    assert refused(post(authlib_server, form, secret=("web", "secret"))) == (400, "invalid_grant")
    given(post(authlib_server, {**form, "refresh_token": second["refresh_token"]}, secret=("web", "secret")))


# Token exchange


@pytest.mark.parametrize(
    ("asked", "audiences", "scope"),
    [
        ({"audience": BACKEND}, [BACKEND], {"read", "write"}),
        ({"audience": BACKEND, "scope": "read"}, [BACKEND], {"read"}),
        ({"resource": f"{BACKEND}/a2a"}, [f"{BACKEND}/a2a"], {"read", "write"}),
        ({"audience": BACKEND, "resource": f"{BACKEND}/a2a"}, [BACKEND, f"{BACKEND}/a2a"], {"read", "write"}),
    ],
)
async def test_a_token_of_a_user_for_another_audience(
    exchange_server: ExchangeServer, asked: dict[str, str], audiences: list[str], scope: set[str]
) -> None:
    answer = given(post(exchange_server, exchange(exchange_server, **asked), secret=("service", "secret")))
    assert (answer["issued_token_type"], answer["token_type"]) == (ACCESS_TOKEN, "Bearer")
    claims = claims_of(answer["access_token"])
    assert (claims["client_id"], claims["aud"]) == ("service", audiences)
    assert claims["exp"] - claims["iat"] == 600
    assert 500 < answer["expires_in"] <= 600  # what is left to the token of the user
    keys = OAuth2Keys(exchange_server.issuer, exchange_server.fetcher())
    verifier = JwtVerifier(keys, issuer=exchange_server.issuer, audience=audiences[0], profile=TokenProfile.PLAIN_JWT)
    identity = await verifier.verify(answer["access_token"], time.time())
    assert (identity.subject, {*identity.scopes}) == ("alice", scope)
    (came,) = exchange_server.token_requests()
    assert (came.grant, came.client, came.method) == (EXCHANGE, "service", "client_secret_basic")
    assert [*came.audience, *came.resource] == audiences


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"audience": "https://other.example"}, "invalid_target"),
        ({"resource": "https://other.example"}, "invalid_target"),
        ({"scope": "admin"}, "invalid_scope"),
        ({"subject_token": "none"}, "invalid_request"),
        ({"subject_token_type": "urn:ietf:params:oauth:token-type:id_token"}, "invalid_request"),
    ],
)
def test_an_exchange_that_is_refused(exchange_server: ExchangeServer, asked: dict[str, str], error: str) -> None:
    form = exchange(exchange_server, **asked)
    assert refused(post(exchange_server, form, secret=("service", "secret"))) == (400, error)


def test_who_may_exchange(exchange_server: ExchangeServer) -> None:
    form = exchange(exchange_server)
    assert refused(post(exchange_server, form, secret=("service", "wrong"))) == (401, "invalid_client")
    assert refused(post(exchange_server, form, secret=("front", "secret"))) == (400, "invalid_request")
