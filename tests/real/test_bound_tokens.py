"""Tokens that a certified OpenID provider has bound to keys are worth nothing without them, under real servers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from hypercorn.asyncio import serve
from hypercorn.config import Config
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from a2a_trust import DPoP, JwtVerifier, generate_signer, principal_of, protect, verify_card
from a2a_trust.auth import ServerNonces
from a2a_trust.auth.credentials import FromTls
from a2a_trust.auth.discovery import OpenIdKeys
from a2a_trust.client import (
    BearerToken,
    CardAuth,
    ClientCredentials,
    ClientSecret,
    CredentialsRejectedError,
    OAuthClient,
)
from a2a_trust.client.credentials import Credential
from a2a_trust.client.flow import run_async
from a2a_trust.keys import LocalSigner, base64url
from tests.certificates import SERVER, Authority, Leaf
from tests.client.agents import OWNER_TRUSTED, signed, trusting
from tests.middleware.agent import CALL, uvicorn_serving
from tests.real.openid_provider import AUDIENCE, OpenIdProvider

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


SIGNER = generate_signer("ES256")


@asynccontextmanager
async def hypercorn_serving(app: Any) -> AsyncIterator[str]:
    """A real hypercorn on this machine: its origin."""
    listener = socket.create_server(("127.0.0.1", 0))
    origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = Config()
    config.keep_alive_timeout = 60
    config.bind, config.errorlog = [f"fd://{listener.detach()}"], None  # the server closes it
    ended = asyncio.Event()
    serving = asyncio.create_task(serve(app, config, shutdown_trigger=ended.wait))
    try:
        yield origin
    finally:
        ended.set()
        await serving


def served(server: str, app: Any) -> AbstractAsyncContextManager[str]:
    return hypercorn_serving(app) if server == "hypercorn" else uvicorn_serving(app, server)


def card_of(provider: OpenIdProvider, origin: str) -> dict[str, Any]:
    return {
        "name": "agent",
        "supportedInterfaces": [
            {"url": f"{origin}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        ],
        "securitySchemes": {"login": {"openIdConnectSecurityScheme": {"openIdConnectUrl": provider.discovery_url}}},
        "securityRequirements": [{"schemes": {"login": {"list": ["read"]}}}],
        "skills": [],
    }


async def who(request: Request) -> JSONResponse:
    caller = principal_of(request.scope)
    (_, identity), *_ = caller.identities
    return JSONResponse({"subject": identity.subject, "jkt": identity.bound_to and identity.bound_to.jkt})


@asynccontextmanager
async def agent(provider: OpenIdProvider, server: str, nonces: ServerNonces | None = None) -> AsyncIterator[str]:
    """The origin of an agent that takes the provider's tokens, with proofs for its own URL."""
    guarded: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await guarded[0](scope, receive, send)

    async with served(server, app) as origin:
        keys = OpenIdKeys(provider.issuer, provider.fetcher())
        inner = Starlette(routes=[Route(path, who, methods=["POST", "PUT"]) for path in ("/rpc", "/who", "/other")])
        guarded.append(
            protect(
                inner,
                card=card_of(provider, origin),
                verifiers={"login": JwtVerifier(keys, issuer=provider.issuer, audience=AUDIENCE)},
                url=origin,
                dpop=DPoP(url=origin, nonces=nonces),
            )
        )
        yield origin


async def token_of(provider: OpenIdProvider, signer: LocalSigner = SIGNER) -> str:
    """A token that the provider has bound to the key."""
    return (await run_async(credential_by(provider, AUDIENCE, signer).obtain(frozenset({"read"})))).text


def credential_by(provider: OpenIdProvider, origin: str, signer: LocalSigner = SIGNER) -> ClientCredentials:
    client = OAuthClient(
        issuer=provider.issuer,
        token_endpoint=provider.token_url,
        client_id="service",
        authentication=ClientSecret("secret"),
        dpop=signer,
        fetcher=provider.fetcher(),
    )
    return ClientCredentials(client, origins=[origin], allowed_scopes=["read"], resource=f"{AUDIENCE}/ES256")


def auth_with(credential: Credential, provider: OpenIdProvider, origin: str) -> CardAuth:
    card = verify_card(signed(card_of(provider, origin)), trusting("127.0.0.1"), origin=origin)
    return CardAuth(card, {"login": credential}, trust=OWNER_TRUSTED)


async def given_to(http: httpx.AsyncClient, provider: OpenIdProvider, client: bytes) -> str:
    form = {"grant_type": "client_credentials", "resource": f"{AUDIENCE}/ES256", "scope": "read"}
    basic = {"Authorization": f"Basic {base64.b64encode(client).decode()}"}
    answer = await http.post(f"{provider.issuer}/token", headers=basic, data=form)
    token: str = answer.raise_for_status().json()["access_token"]
    return token


def proof(token: str, url: str, signer: LocalSigner = SIGNER, method: str = "POST") -> str:
    header = {"typ": "dpop+jwt", "alg": signer.alg, "jwk": dict(signer.public_key.jwk)}
    claims = {
        "jti": secrets.token_urlsafe(12),
        "htm": method,
        "htu": url,
        "iat": int(time.time()),
        "ath": base64url.encode(hashlib.sha256(token.encode()).digest()),
    }
    signed = ".".join(base64url.encode(json.dumps(part).encode()) for part in (header, claims))
    return f"{signed}.{base64url.encode(signer.sign(signed.encode()))}"


def code_of(answer: httpx.Response) -> str:
    """What the challenges say is wrong."""
    assert answer.status_code == 401
    return answer.headers["www-authenticate"].partition('error="')[2].partition('"')[0]


@pytest.mark.parametrize("server", ["httptools", "h11", "hypercorn"])
async def test_a_bound_token_is_good_with_a_proof_for_this_request_and_else_for_nothing(
    provider: OpenIdProvider, server: str
) -> None:
    token = await token_of(provider)
    async with agent(provider, server) as origin, httpx.AsyncClient(timeout=60) as http:
        rpc, other = f"{origin}/who", f"{origin}/other"
        for _ in range(2):  # the second time the token is remembered
            good = proof(token, rpc)
            dpop = {"Authorization": f"DPoP {token}"}
            answer = await http.post(rpc, headers={**dpop, "DPoP": good})
            assert (answer.status_code, answer.json()) == (
                200,
                {"subject": "service", "jkt": SIGNER.public_key.thumbprint},
            )
            wrong = {
                "replayed": (http.post(rpc, headers={**dpop, "DPoP": good}), "invalid_dpop_proof"),
                "another URL": (http.post(other, headers={**dpop, "DPoP": proof(token, rpc)}), "invalid_dpop_proof"),
                "another method": (http.put(rpc, headers={**dpop, "DPoP": proof(token, rpc)}), "invalid_dpop_proof"),
                "another key": (
                    http.post(rpc, headers={**dpop, "DPoP": proof(token, rpc, generate_signer("ES256"))}),
                    "invalid_token",
                ),
                "another host": (
                    http.post(
                        rpc,
                        headers={**dpop, "DPoP": proof(token, "http://evil.example/who"), "Host": "evil.example"},
                    ),
                    "invalid_dpop_proof",
                ),
                "without proof": (http.post(rpc, headers=dpop), "invalid_dpop_proof"),
                "as bearer": (http.post(rpc, headers={"Authorization": f"Bearer {token}"}), "invalid_token"),
                "as bearer, with proof": (
                    http.post(rpc, headers={"Authorization": f"Bearer {token}", "DPoP": proof(token, rpc)}),
                    "invalid_token",
                ),
            }
            for what, (asked, code) in wrong.items():
                assert (what, code_of(await asked)) == (what, code)
        twice = [*dpop.items(), ("DPoP", proof(token, rpc)), ("DPoP", proof(token, rpc))]
        assert code_of(await http.post(rpc, headers=twice)) == "invalid_dpop_proof"
        # what the query says is no part of what is verified (RFC 9449 4.2)
        answer = await http.post(f"{rpc}?a=b", headers={**dpop, "DPoP": proof(token, rpc)})
        assert answer.status_code == 200
        plain = await provider.access_token("ES256")
        assert (await http.post(rpc, headers={"Authorization": f"Bearer {plain}"})).json()["jkt"] is None
        as_dpop = {"Authorization": f"DPoP {plain}", "DPoP": proof(plain, rpc)}
        assert code_of(await http.post(rpc, headers=as_dpop)) == "invalid_token"


@pytest.mark.parametrize("holds_token", [True, False], ids=["BearerToken", "ClientCredentials"])
async def test_our_client_calls_our_agent_with_the_providers_token_and_finds_its_nonces(
    provider: OpenIdProvider, holds_token: bool
) -> None:
    token = await token_of(provider)
    async with agent(provider, "h11", ServerNonces(secrets.token_bytes(32))) as origin:
        credential = (
            BearerToken(token, origins=[origin], dpop=SIGNER) if holds_token else credential_by(provider, origin)
        )
        async with httpx.AsyncClient(auth=auth_with(credential, provider, origin), timeout=60) as http:
            first = await http.post(f"{origin}/rpc", json=CALL)
            assert (first.status_code, [code_of(each) for each in first.history]) == (200, ["use_dpop_nonce"])
            for _ in range(3):
                answer = await http.post(f"{origin}/rpc", json=CALL)
                assert (answer.status_code, answer.history) == (200, [])
                assert answer.json() == {"subject": "service", "jkt": SIGNER.public_key.thumbprint}
        thief = BearerToken(token, origins=[origin], dpop=generate_signer("ES256"))
        async with httpx.AsyncClient(auth=auth_with(thief, provider, origin), timeout=60) as http:
            with pytest.raises(CredentialsRejectedError) as raised:
                await http.post(f"{origin}/rpc", json=CALL)
            assert code_of(raised.value.response) == "invalid_token"
        async with httpx.AsyncClient(timeout=60) as http:
            metadata = (await http.get(f"{origin}/.well-known/oauth-protected-resource")).json()
            assert "ES256" in metadata["dpop_signing_alg_values_supported"]


def tls_of(trusted: bytes, folder: Path, leaf: Leaf | None = None) -> ssl.SSLContext:
    """What a client speaks TLS with: whom it trusts, and the certificate that it shows."""
    context = ssl.create_default_context(cadata=trusted.decode("ascii"))
    return context if leaf is None else leaf.load_into(context, folder)


async def test_a_token_that_is_bound_to_a_certificate_is_good_on_its_connections_alone(
    provider: OpenIdProvider, tmp_path: Path
) -> None:
    # Of another name than the provider's own authority: Node 20 ends connections over a namesake's signature.
    authority = Authority("Clients' CA")
    clients, others = authority.issue(subject="client"), authority.issue(subject="client")
    address = x509.IPAddress(IPv4Address("127.0.0.1"))
    chain, key = authority.issue(address, usage=SERVER).write(tmp_path, "agent")
    (tmp_path / "authority.pem").write_bytes(authority.pem)
    (providers,) = provider.tls.get_ca_certs(binary_form=True)
    at_provider = tls_of(ssl.DER_cert_to_PEM_cert(providers).encode(), tmp_path, clients)
    async with httpx.AsyncClient(verify=at_provider, timeout=60) as http:
        token = await given_to(http, provider, b"bound-service:secret")
    keys = OpenIdKeys(provider.issuer, provider.fetcher())
    app = protect(
        Starlette(routes=[Route("/who", who, methods=["POST"])]),
        card=card_of(provider, AUDIENCE),
        verifiers={"login": JwtVerifier(keys, issuer=provider.issuer, audience=AUDIENCE)},
        url=AUDIENCE,
        client_certificates=FromTls(),
    )
    tls: dict[str, Any] = {
        "ssl_certfile": chain,
        "ssl_keyfile": key,
        "ssl_ca_certs": tmp_path / "authority.pem",
        "ssl_cert_reqs": ssl.CERT_OPTIONAL,
    }
    async with uvicorn_serving(app, "a2a_trust.servers.uvicorn:HttpToolsProtocol", **tls) as origin:
        url = f"{origin.replace('http:', 'https:')}/who"

        async def ask(leaf: Leaf | None, credential: str) -> httpx.Response:
            async with httpx.AsyncClient(verify=tls_of(authority.pem, tmp_path, leaf), timeout=60) as http:
                return await http.post(url, headers={"Authorization": f"Bearer {credential}"})

        for _ in range(2):  # the second time the token is remembered
            assert (await ask(clients, token)).json() == {"subject": "bound-service", "jkt": None}
            assert code_of(await ask(None, token)) == "invalid_token"
            assert code_of(await ask(others, token)) == "invalid_token"
        async with httpx.AsyncClient(verify=tls_of(authority.pem, tmp_path), timeout=60) as http:
            metadata = await http.get(url.replace("/who", "/.well-known/oauth-protected-resource"))
        assert metadata.json()["tls_client_certificate_bound_access_tokens"] is True
        plain = await provider.access_token("ES256")
        assert (await ask(None, plain)).status_code == (await ask(others, plain)).status_code == 200
