"""OAuthClient gets tokens from real authorization servers, and CardAuth calls agents behind ``protect`` with them."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from traceback import TracebackException
from typing import Any, Final, TypeAlias

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from a2a_trust import DPoP, JwtVerifier, VerifiedCard, generate_signer, principal_of, protect, verify_card
from a2a_trust.auth import ServerNonces
from a2a_trust.auth.credentials import FromTls
from a2a_trust.auth.discovery import OAuth2Keys, OpenIdKeys
from a2a_trust.auth.jwt import TokenProfile
from a2a_trust.auth.principal import SubjectToken
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.client import (
    CardAuth,
    ClientCredentials,
    ClientSecret,
    CredentialsError,
    OAuthClient,
    PrivateKeyJwt,
    RefreshToken,
    TlsClientAuth,
    TokenExchange,
)
from a2a_trust.client.certificates import CertificateFiles, client_context
from a2a_trust.client.credentials import Credential
from a2a_trust.client.flow import run, run_async
from a2a_trust.errors import TokenRequestError
from tests.certificates import SERVER, Authority
from tests.client.agents import OWNER_TRUSTED, signed, trusting
from tests.middleware.agent import uvicorn_serving
from tests.real.openid_provider import AUDIENCE, OpenIdProvider
from tests.real.server_process import TokenRequest
from tests.real.token_servers import AuthlibServer, ExchangeServer

pytestmark = pytest.mark.anyio

RESOURCE: Final = f"{AUDIENCE}/ES256"
BACKEND: Final = "https://back.example"
READ: Final = frozenset({"read"})
SIGNER: Final = generate_signer("ES256")

Server: TypeAlias = OpenIdProvider | AuthlibServer | ExchangeServer
Ask: TypeAlias = Callable[[CardAuth, str], Awaitable[httpx.Response]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def server(request: pytest.FixtureRequest) -> OpenIdProvider | AuthlibServer:
    """The one that the test is parametrized with."""
    found: OpenIdProvider | AuthlibServer = request.getfixturevalue(request.param)
    found.token_requests()
    return found


@pytest.fixture(autouse=True)
def none_so_far(request: pytest.FixtureRequest) -> None:
    """Token requests are counted by each test for itself."""
    for name in {"provider", "authlib_server", "exchange_server"} & {*request.fixturenames}:
        request.getfixturevalue(name).token_requests()


# An agent that takes the tokens of one server, and its callers


def verifier_of(server: Server) -> JwtVerifier:
    keys = (OpenIdKeys if isinstance(server, OpenIdProvider) else OAuth2Keys)(server.issuer, server.fetcher())
    if isinstance(server, ExchangeServer):
        return JwtVerifier(keys, issuer=server.issuer, audience=BACKEND, profile=TokenProfile.PLAIN_JWT)
    return JwtVerifier(keys, issuer=server.issuer, audience=AUDIENCE)


def card_of(server: Server, origin: str) -> dict[str, Any]:
    """Each server is named by the card in another way."""
    flow = {"tokenUrl": server.token_url, "scopes": {"read": "Read", "write": "Write"}}
    scheme: dict[str, Any] = {"oauth2SecurityScheme": {"flows": {"clientCredentials": flow}}}
    if isinstance(server, AuthlibServer):
        metadata = f"{server.issuer}/.well-known/oauth-authorization-server"
        scheme = {"oauth2SecurityScheme": {"flows": {}, "oauth2MetadataUrl": metadata}}
    elif isinstance(server, OpenIdProvider):
        scheme = {"openIdConnectSecurityScheme": {"openIdConnectUrl": server.discovery_url}}
    return {
        "name": "agent",
        "description": "Says who calls.",
        "version": "1.0.0",
        "supportedInterfaces": [{"url": f"{origin}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": True},
        "securitySchemes": {"login": scheme},
        "securityRequirements": [{"schemes": {"login": {"list": ["read"]}}}],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
    }


class Calls:
    """An agent's application: it says who calls, and streams until the caller has the first part."""

    def __init__(self) -> None:
        self.first_part_came = asyncio.Event()

    async def answer(self, request: Request) -> Response:
        caller = principal_of(request.scope)
        (_, identity), *_ = caller.identities
        bound = identity.bound_to
        said = {
            "subject": identity.subject,
            "scopes": sorted(identity.scopes),
            "jkt": bound and bound.jkt,
            "x5t": bool(bound and bound.x5t_s256),
        }
        if (await request.json())["method"] == "SendStreamingMessage":
            return StreamingResponse(self._parts(said), media_type="text/event-stream")
        return JSONResponse(said)

    async def _parts(self, said: dict[str, Any]) -> AsyncIterator[str]:
        yield f"data: {json.dumps(said)}\n\n"
        await asyncio.wait_for(self.first_part_came.wait(), 60)
        yield "data: {}\n\n"


class Agent:
    def __init__(self, calls: Calls, card: VerifiedCard, origin: str) -> None:
        self.calls, self.card, self.origin = calls, card, origin


@asynccontextmanager
async def agent(server: Server, *, nonces: bool = False, **tls: Any) -> AsyncIterator[Agent]:
    guarded: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await guarded[0](scope, receive, send)

    http = "a2a_trust.servers.uvicorn:HttpToolsProtocol" if tls else "httptools"
    async with uvicorn_serving(app, http, **tls) as origin:
        if tls:
            origin = origin.replace("http:", "https:")
        card, calls = card_of(server, origin), Calls()
        guarded.append(
            protect(
                Starlette(routes=[Route("/rpc", calls.answer, methods=["POST"])]),
                card=card,
                verifiers={"login": verifier_of(server)},
                url=origin,
                dpop=DPoP(url=origin, nonces=ServerNonces(secrets.token_bytes(32)) if nonces else None),
                client_certificates=FromTls() if tls else None,
            )
        )
        yield Agent(calls, verify_card(signed(card), trusting("127.0.0.1"), origin=origin), origin)


def call(method: str = "SendMessage") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}


async def ask_async(auth: CardAuth, origin: str, **options: Any) -> httpx.Response:
    async with httpx.AsyncClient(auth=auth, **options, timeout=60) as http:
        return await http.post(f"{origin}/rpc", json=call())


async def ask_sync(auth: CardAuth, origin: str, **options: Any) -> httpx.Response:
    def asked() -> httpx.Response:
        with httpx.Client(auth=auth, **options, timeout=60) as http:
            return http.post(f"{origin}/rpc", json=call())

    return await asyncio.to_thread(asked)  # the agent is served by this thread


async def check_calls(running: Agent, credential: Credential, **options: Any) -> dict[str, Any]:
    """Call the agent with both clients; what it says about the caller is the same each time."""
    auth = CardAuth(running.card, {"login": credential}, trust=OWNER_TRUSTED)
    first = await ask_async(auth, running.origin, **options)
    assert first.status_code == 200, first.text
    for again in (ask_sync, ask_async):
        assert (await again(auth, running.origin, **options)).json() == first.json()
    said: dict[str, Any] = first.json()
    return said


# The client, and how it authenticates


def client_of(server: Server, client_id: str, authentication: Any = None, **options: Any) -> OAuthClient:
    return OAuthClient(
        **{
            "issuer": server.issuer,
            "token_endpoint": server.token_url,
            "client_id": client_id,
            "authentication": ClientSecret("secret") if authentication is None else authentication,
            "fetcher": server.fetcher(),
            **options,
        }
    )


def own_token(client: OAuthClient, origin: str = "https://agent.example", **options: Any) -> ClientCredentials:
    return ClientCredentials(client, origins=[origin], **{"allowed_scopes": ["read"], "resource": RESOURCE, **options})


def resource_of(server: Server) -> tuple[str, ...]:
    """What clients ask for; Authlib 1.9 has one audience, and knows no resources."""
    return (RESOURCE,) if isinstance(server, OpenIdProvider) else ()


@pytest.mark.parametrize(
    ("server", "client_id", "authentication"),
    [
        ("provider", "service", ClientSecret("secret")),
        ("provider", "service: &+%", ClientSecret("s:e c+r/e%t&")),
        ("provider", "service-post", ClientSecret("secret", method="client_secret_post")),
        ("authlib_server", "service", ClientSecret("secret")),
        ("authlib_server", "service-post", ClientSecret("secret", method="client_secret_post")),
    ],
    indirect=["server"],
)
async def test_a_client_with_a_secret(
    server: OpenIdProvider | AuthlibServer, client_id: str, authentication: ClientSecret
) -> None:
    client = client_of(server, client_id, authentication)
    resource = resource_of(server)
    method = "client_secret_post" if client_id == "service-post" else "client_secret_basic"
    async with agent(server) as running:
        credential = own_token(client, running.origin, resource=resource)
        said = await check_calls(running, credential)
    assert (said["subject"], said["scopes"]) == (client_id, ["read"])
    assert server.token_requests() == [
        TokenRequest("client_credentials", client_id, method, "read", resource, (), dpop=False, status=200)
    ]


@pytest.mark.parametrize(
    ("server", "alg"),
    [("provider", "ES256"), ("provider", "EdDSA"), ("authlib_server", "ES256")],
    indirect=["server"],
)
async def test_a_client_with_a_key(server: OpenIdProvider | AuthlibServer, alg: str) -> None:
    signer, name = generate_signer(alg), f"key-{alg}"
    keys = {"keys": [signer.public_key.to_jwk()]}
    server.register(name, token_endpoint_auth_method="private_key_jwt", jwks=keys)
    resource = resource_of(server)
    for audience in (None, server.token_url):
        client = client_of(server, name, PrivateKeyJwt(signer, audience=audience))
        async with agent(server) as running:
            said = await check_calls(running, own_token(client, running.origin, resource=resource))
        assert said["subject"] == name
        [came] = server.token_requests()
        assert (came.client, came.method, came.status) == (name, "private_key_jwt", 200)
    stranger = client_of(server, name, PrivateKeyJwt(generate_signer(alg)))
    with pytest.raises(TokenRequestError, match="invalid_client"):
        await run_async(own_token(stranger, resource=resource).obtain(READ))


async def test_a_client_with_a_certificate_at_authlib(authlib_server: AuthlibServer, tmp_path: Path) -> None:
    begin = "-----BEGIN CERTIFICATE-----"
    key, _, chain = authlib_server.certificate.read_text().partition(begin)
    (tmp_path / "own.key").write_text(key)
    (tmp_path / "own.key").chmod(0o600)
    (tmp_path / "own.pem").write_text(begin + chain)
    certificate = x509.load_pem_x509_certificate((begin + chain).encode())
    authlib_server.register(
        "tls",
        token_endpoint_auth_method="tls_client_auth",
        certificate=certificate.fingerprint(hashes.SHA256()).hex(),
    )
    own = CertificateFiles(tmp_path / "own.pem", tmp_path / "own.key", origins=[authlib_server.issuer])
    context = client_context(own, authorities=authlib_server.authority)
    fetcher = Fetcher(ssl_context=context, private_origins=[authlib_server.issuer], timeout=60)
    client = client_of(authlib_server, "tls", TlsClientAuth(), fetcher=fetcher)
    async with agent(authlib_server) as running:
        said = await check_calls(running, own_token(client, running.origin, resource=()))
    assert said["subject"] == "tls"
    assert [(came.client, came.method, came.status) for came in authlib_server.token_requests()] == [
        ("tls", "none", 200)
    ]
    unknown = client_of(authlib_server, "tls", TlsClientAuth())
    with pytest.raises(TokenRequestError, match="invalid_client"):
        await run_async(own_token(unknown, resource=()).obtain(READ))


async def test_a_client_with_a_certificate_and_tokens_that_are_bound_to_it(
    provider: OpenIdProvider, tmp_path: Path
) -> None:
    authority = Authority("Agents' CA")
    chain, key = authority.issue(x509.IPAddress(IPv4Address("127.0.0.1")), usage=SERVER).write(tmp_path, "agent")
    (tmp_path / "clients.pem").write_text(provider.authority_pem)
    (tmp_path / "servers.pem").write_text(provider.authority_pem + authority.pem.decode())
    begin = "-----BEGIN CERTIFICATE-----"
    own_key, _, own_chain = provider.certificate.read_text().partition(begin)
    (tmp_path / "own.key").write_text(own_key)
    (tmp_path / "own.key").chmod(0o600)
    (tmp_path / "own.pem").write_text(begin + own_chain)
    certificate = CertificateFiles(tmp_path / "own.pem", tmp_path / "own.key", origins=[provider.issuer])
    context = client_context(certificate, authorities=tmp_path / "servers.pem")
    fetcher = Fetcher(ssl_context=context, private_origins=[provider.issuer], timeout=60)
    client = client_of(provider, "service-tls", TlsClientAuth(), fetcher=fetcher)
    tls: dict[str, Any] = {"ssl_certfile": chain, "ssl_keyfile": key, "ssl_ca_certs": tmp_path / "clients.pem"}
    async with agent(provider, **tls, ssl_cert_reqs=1) as running:
        credential = own_token(client, running.origin)
        said = await check_calls(running, credential, verify=context)
        assert (said["subject"], said["x5t"]) == ("service-tls", True)
        [came] = provider.token_requests()
        assert (came.client, came.method, came.status) == ("service-tls", "certificate", 200)
        bare = httpx.create_ssl_context()
        bare.load_verify_locations(tmp_path / "servers.pem")
        auth = CardAuth(running.card, {"login": credential}, trust=OWNER_TRUSTED)
        with pytest.raises(httpx.HTTPStatusError, match="answers 401"):
            await ask_async(auth, running.origin, verify=bare)
    unknown = client_of(provider, "service-tls", TlsClientAuth())
    with pytest.raises(TokenRequestError, match="invalid_client"):
        await run_async(own_token(unknown).obtain(READ))


@pytest.mark.parametrize("server", ["provider", "authlib_server"], indirect=True)
async def test_a_wrong_secret_is_refused_and_not_shown(server: OpenIdProvider | AuthlibServer) -> None:
    for method, name in (("client_secret_basic", "service"), ("client_secret_post", "service-post")):
        wrong = ClientSecret("wr0ng-s3cret", method=method)  # type: ignore[arg-type]
        async with agent(server) as running:
            credential = own_token(client_of(server, name, wrong), running.origin, resource=resource_of(server))
            auth = CardAuth(running.card, {"login": credential}, trust=OWNER_TRUSTED)
            for ask in (ask_async, ask_sync):
                with pytest.raises(CredentialsError) as refused:
                    await ask(auth, running.origin)
                cause = refused.value.__cause__
                assert isinstance(cause, TokenRequestError)
                assert cause.error == "invalid_client"
                shown = "".join(TracebackException.from_exception(refused.value, capture_locals=True).format())
                assert "wr0ng" not in shown
        assert [(each.status, each.method) for each in server.token_requests()] == [(401, method)] * 2


# Whose tokens, and for what


async def test_a_resource_that_the_server_does_not_know(provider: OpenIdProvider) -> None:
    client = client_of(provider, "service")
    with pytest.raises(TokenRequestError) as refused:
        await run_async(own_token(client, resource="https://other.example/ES256").obtain(READ))
    assert refused.value.error == "invalid_target"
    [came] = provider.token_requests()
    assert (came.resource, came.status) == (("https://other.example/ES256",), 400)


async def test_a_scope_that_the_server_does_not_grant(authlib_server: AuthlibServer) -> None:
    """Authlib leaves out scopes that a client may not have, and says so (RFC 6749 5.1)."""
    client = client_of(authlib_server, "service")
    credential = own_token(client, resource=(), allowed_scopes=["read", "admin"])
    with pytest.raises(TokenRequestError, match=r"fewer scopes than were requested; missing: admin"):
        await run_async(credential.obtain(frozenset({"read", "admin"})))


@contextmanager
def nonces_required(provider: OpenIdProvider) -> Iterator[None]:
    provider.tell("requireNonce", required=True)
    try:
        yield
    finally:
        provider.tell("requireNonce", required=False)


async def test_tokens_are_bound_to_a_key(provider: OpenIdProvider) -> None:
    for is_wanted in (False, True):
        client = client_of(provider, "service", dpop=SIGNER)
        async with agent(provider, nonces=is_wanted) as running:
            credential = own_token(client, running.origin)
            if is_wanted:
                with nonces_required(provider):
                    said = await check_calls(running, credential)
            else:
                said = await check_calls(running, credential)
        assert said["jkt"] == SIGNER.public_key.thumbprint
        came = provider.token_requests()
        assert [(each.dpop, each.status) for each in came] == [(True, 400)] * is_wanted + [(True, 200)]


async def test_a_key_that_the_server_does_not_take(provider: OpenIdProvider) -> None:
    client = client_of(provider, "service", dpop=generate_signer("EdDSA"))
    with pytest.raises(TokenRequestError) as refused:
        await run_async(own_token(client).obtain(READ))
    assert refused.value.error == "invalid_dpop_proof"


async def test_a_stream_arrives_while_the_agent_writes_it(provider: OpenIdProvider) -> None:
    client = client_of(provider, "service", dpop=SIGNER)
    async with agent(provider, nonces=True) as running:
        auth = CardAuth(running.card, {"login": own_token(client, running.origin)}, trust=OWNER_TRUSTED)
        async with (
            httpx.AsyncClient(auth=auth, timeout=60) as http,
            http.stream("POST", f"{running.origin}/rpc", json=call("SendStreamingMessage")) as answer,
        ):
            lines = answer.aiter_lines()
            assert '"subject": "service"' in await anext(lines)
            running.calls.first_part_came.set()
            assert [line async for line in lines] == ["", "data: {}", ""]


async def everything(*work: Awaitable[Any]) -> list[Any]:
    """What they come to. All of them end before the first error is raised: a thread may wait for a task."""
    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(*work, return_exceptions=True)
    for each in outcomes:
        if isinstance(each, BaseException):
            raise each
    return outcomes


# Refresh tokens


async def test_a_user_who_has_logged_in_elsewhere(provider: OpenIdProvider, authlib_server: AuthlibServer) -> None:
    logins: list[tuple[OpenIdProvider | AuthlibServer, str, str]] = [
        (provider, "rotating", (await provider.login("ES256", client="rotating"))["refresh_token"]),
        (authlib_server, "web", authlib_server.login()["refresh_token"]),
    ]
    for server, name, first in logins:
        server.token_requests()
        kept = [first]
        async with agent(server) as running:
            for _ in range(2):  # the second time as after a restart
                credential = RefreshToken(
                    client_of(server, name),
                    kept[-1],
                    origins=[running.origin],
                    allowed_scopes=["read"],
                    resource=resource_of(server),
                    on_rotation=kept.append,
                )
                for _ in range(2):
                    assert (await check_calls(running, credential))["subject"] == "alice"
                    credential.renew(await run_async(credential.obtain(READ)))
        assert len({*kept}) == 5
        assert [(each.grant, each.status) for each in server.token_requests()] == [("refresh_token", 200)] * 4


async def test_a_refresh_token_is_never_used_twice(provider: OpenIdProvider) -> None:
    """Threads and tasks want tokens of several scopes; the provider revokes the login at the first reuse."""
    text = (await provider.login("ES256", client="rotating"))["refresh_token"]
    provider.token_requests()
    kept: list[str] = []
    credential = RefreshToken(
        client_of(provider, "rotating"),
        text,
        origins=["https://agent.example"],
        allowed_scopes=["read"],
        resource=RESOURCE,
        on_rotation=kept.append,
    )

    def in_thread(scopes: frozenset[str]) -> None:
        for _ in range(3):
            credential.renew(run(credential.obtain(scopes)))

    async def in_task(scopes: frozenset[str]) -> None:
        for _ in range(3):
            credential.renew(await run_async(credential.obtain(scopes)))

    wanted = [READ, frozenset[str]()] * 2
    in_threads = [asyncio.to_thread(in_thread, scopes) for scopes in wanted]
    await everything(*in_threads, *map(in_task, wanted))
    came = provider.token_requests()
    assert {each.status for each in came} == {200}
    assert {each.scope for each in came} == {"read", None}
    assert len({text, *kept}) == len(came) + 1


# Token exchange


async def test_a_token_on_behalf_of_a_user(exchange_server: ExchangeServer) -> None:
    subject = exchange_server.subject_token()
    kept = SubjectToken(subject, issuer=exchange_server.issuer, subject="alice", expires_at=time.time() + 300)
    exchange_server.token_requests()
    client = client_of(exchange_server, "service")

    async def of_request() -> SubjectToken:
        return kept

    async with agent(exchange_server) as running:
        for given in (subject, kept, lambda: kept):
            credential = TokenExchange(
                client, given, origins=[running.origin], allowed_scopes=["read"], audience=BACKEND
            )
            said = await check_calls(running, credential)
            assert (said["subject"], said["scopes"]) == ("alice", ["read"])
        credential = TokenExchange(
            client, of_request, origins=[running.origin], allowed_scopes=["read"], audience=BACKEND
        )
        auth = CardAuth(running.card, {"login": credential}, trust=OWNER_TRUSTED)
        assert (await ask_async(auth, running.origin)).json()["subject"] == "alice"
    [came] = exchange_server.token_requests()  # it is one token of one subject
    assert (came.grant, came.client) == ("urn:ietf:params:oauth:grant-type:token-exchange", "service")
    assert (came.audience, came.scope, came.status) == ((BACKEND,), "read", 200)


async def test_each_subject_has_tokens_of_its_own(exchange_server: ExchangeServer) -> None:
    subjects = [exchange_server.subject_token() for _ in range(3)]
    exchange_server.token_requests()
    current = iter(subjects * 2)

    def of_request() -> str:
        return next(current)

    credential = TokenExchange(
        client_of(exchange_server, "service"),
        of_request,
        origins=["https://back.example"],
        allowed_scopes=["read"],
        resource=f"{BACKEND}/a2a",
    )
    first = [(await run_async(credential.obtain(READ))).text for _ in subjects]
    assert len({*first}) == 3
    assert [(await run_async(credential.obtain(READ))).text for _ in subjects] == first
    assert [each.resource for each in exchange_server.token_requests()] == [(f"{BACKEND}/a2a",)] * 3


@pytest.mark.parametrize(
    ("subject", "audience", "error"),
    [("none", BACKEND, "invalid_request"), ("", "https://other.example", "invalid_target")],
)
async def test_an_exchange_that_is_refused(
    exchange_server: ExchangeServer, subject: str, audience: str, error: str
) -> None:
    credential = TokenExchange(
        client_of(exchange_server, "service"),
        subject or exchange_server.subject_token(),
        origins=["https://back.example"],
        allowed_scopes=["read"],
        audience=audience,
    )
    with pytest.raises(TokenRequestError) as refused:
        await run_async(credential.obtain(READ))
    assert refused.value.error == error


# One request for all who want the same token, and the next one in time


async def test_threads_and_tasks_wait_for_one_request(provider: OpenIdProvider) -> None:
    credential = own_token(client_of(provider, "service"))
    in_threads = [asyncio.to_thread(lambda: run(credential.obtain(READ))) for _ in range(6)]
    in_tasks = [run_async(credential.obtain(READ)) for _ in range(50)]
    values = await everything(*in_threads, *in_tasks)
    assert len({*map(id, values)}) == 1
    assert len(provider.token_requests()) == 1


@pytest.mark.parametrize("server", ["provider", "authlib_server"], indirect=True)
async def test_a_token_is_replaced_before_it_expires(server: OpenIdProvider | AuthlibServer) -> None:
    begun, later = time.time(), [0.0]
    client = client_of(server, "service", clock=lambda: begun + later[0])
    server.tell("setLifetime", seconds=200)
    try:
        async with agent(server) as running:
            credential = own_token(client, running.origin, resource=resource_of(server))
            auth = CardAuth(running.card, {"login": credential}, trust=OWNER_TRUSTED)
            tokens: list[str] = []
            for later[0] in (0.0, 170.0, 185.0, 350.0, 370.0):  # the margin is a tenth of the 200 seconds
                assert (await ask_sync(auth, running.origin)).status_code == 200
                tokens.append((await run_async(credential.obtain(READ))).text)
    finally:
        server.tell("setLifetime", seconds=600)
    assert [tokens.index(each) for each in tokens] == [0, 0, 2, 2, 4]
    assert len(server.token_requests()) == 3
