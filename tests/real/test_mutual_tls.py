"""``mutualTLS AND oauth2`` end to end: the SDK's agent under servers run by their commands, and a provider's tokens."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from cryptography import x509

from a2a_trust import Origins, TrustedKey, TrustStore, generate_signer
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.certificates import CertificateFiles, client_context
from a2a_trust.client import (
    ClientCredentials,
    ClientSecret,
    CredentialsError,
    CredentialsRejectedError,
    OAuthClient,
    verifying_client,
)
from a2a_trust.keys.files import save_private_key
from tests.certificates import SERVER, Authority, Leaf
from tests.real.openid_provider import AUDIENCE, OpenIdProvider
from tests.servers.environments import python_of
from tests.servers.serving import ROOT, _running, free_port

pytestmark = pytest.mark.anyio

APP: Final = "tests.real.demanding_hello_world:app"
SERVERS: Final = {
    "uvicorn-httptools": (
        "uvicorn {app} --http a2a_trust.servers.uvicorn:HttpToolsProtocol --port {port} --log-level warning "
        "--ssl-certfile server.pem --ssl-keyfile server.key --ssl-ca-certs clients.pem --ssl-cert-reqs 1"
    ),
    "uvicorn-h11": (
        "uvicorn {app} --http a2a_trust.servers.uvicorn:H11Protocol --port {port} --log-level warning "
        "--ssl-certfile server.pem --ssl-keyfile server.key --ssl-ca-certs clients.pem --ssl-cert-reqs 1"
    ),
    "hypercorn": (
        "a2a_trust.servers.hypercorn {app} --bind 127.0.0.1:{port} --workers 2 "
        "--certfile server.pem --keyfile server.key --ca-certs clients.pem --verify-mode CERT_OPTIONAL"
    ),
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class World:
    def __init__(self, folder: Path, provider: OpenIdProvider) -> None:
        self.folder = folder
        self.servers, self.clients = Authority("Servers"), Authority("Clients")
        (folder / "servers.pem").write_bytes(self.servers.pem)
        (folder / "clients.pem").write_bytes(self.clients.pem)
        (der,) = provider.tls.get_ca_certs(binary_form=True)
        (folder / "provider.pem").write_text(ssl.DER_cert_to_PEM_cert(der))
        self.servers.issue(x509.DNSName("localhost"), usage=SERVER).write(folder, "server")
        self.ann, self.bob, self.eve = (self.client(name) for name in ("ann", "bob", "eve"))
        self.owner = generate_signer("ES256")
        save_private_key(folder / "card.key", self.owner)
        self.origins = {name: f"https://localhost:{free_port()}" for name in SERVERS}

    def client(self, name: str) -> Leaf:
        leaf = self.clients.issue(x509.UniformResourceIdentifier(f"spiffe://agents.example/{name}"))
        _, key = leaf.write(self.folder, name)
        key.chmod(0o600)
        return leaf

    def tls(self, name: str | None, authorities: str = "servers.pem") -> ssl.SSLContext:
        """What httpx needs to talk to the agent, as that client."""
        if name is None:
            return ssl.create_default_context(cafile=str(self.folder / authorities))
        certificate = CertificateFiles(
            self.folder / f"{name}.pem", self.folder / f"{name}.key", origins=["https://localhost", "https://127.0.0.1"]
        )
        return client_context(certificate, authorities=self.folder / authorities)

    def settings(self, origin: str, provider: OpenIdProvider) -> dict[str, str]:
        return {
            "AGENT_URL": origin,
            "ISSUER": provider.issuer,
            "AUDIENCE": AUDIENCE,
            "SCHEME": "certificate",
            "CARD_KEY": "card.key",
            "CLIENTS": "clients.pem",
            "PROVIDER": "provider.pem",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'examples' / 'sdk_hello_world'}",
        }


@pytest.fixture(scope="module")
def world(provider: OpenIdProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("mutual"), provider)
    python = python_of("server-1.3.0")
    with ExitStack() as stack:
        waiting = []
        for name, command in SERVERS.items():
            origin = made.origins[name]
            words = command.format(app=APP, port=origin.rpartition(":")[2]).split()
            settings = made.settings(origin, provider)
            waiting.append(stack.enter_context(_running([str(python), "-m", *words], settings, made.folder)))
        for wait_for, origin in zip(waiting, made.origins.values(), strict=True):
            wait_for(origin)
        yield made


async def call(world: World, server: str, client: str | None, token: str | None) -> httpx.Response:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(verify=world.tls(client), headers=headers, timeout=60) as http:
        return await greet(http, world.origins[server])


async def greet(http: httpx.AsyncClient, origin: str) -> httpx.Response:
    """SendMessage of A2A 1.0."""
    said = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": "1", "method": "SendMessage", "params": {"message": said}}
    return await http.post(f"{origin}/a2a/jsonrpc", json=body, headers={"A2A-Version": "1.0"})


@pytest.mark.parametrize("server", SERVERS)
async def test_certificate_and_token_are_needed_both(world: World, provider: OpenIdProvider, server: str) -> None:
    token, poor = await provider.access_token("ES256"), await provider.access_token("ES256", scope="write")
    good = await call(world, server, "ann", token)
    assert good.status_code == 200
    assert "Hello World! You said: hi" in good.text
    refused = [
        ("nothing", await call(world, server, None, None), 401),
        ("no certificate", await call(world, server, None, token), 401),
        ("no token", await call(world, server, "ann", None), 401),
        ("nobody's certificate", await call(world, server, "eve", token), 401),
        ("a wrong token", await call(world, server, "ann", f"{token[:-8]}AAAAAAAA"), 401),
        ("a token for less", await call(world, server, "ann", poor), 403),
    ]
    assert [(what, answer.status_code) for what, answer, _ in refused] == [(what, code) for what, _, code in refused]


@pytest.mark.parametrize("server", SERVERS)
async def test_a_token_that_the_provider_bound_to_a_certificate_is_good_with_that_one_alone(
    world: World, provider: OpenIdProvider, server: str
) -> None:
    form = {"grant_type": "client_credentials", "resource": f"{AUDIENCE}/ES256", "scope": "read"}
    async with httpx.AsyncClient(verify=world.tls("ann", "provider.pem"), timeout=60) as http:
        answer = await http.post(f"{provider.issuer}/token", auth=("bound-service", "secret"), data=form)
    token = answer.raise_for_status().json()["access_token"]
    for _ in range(2):  # the second time it is remembered
        assert (await call(world, server, "ann", token)).status_code == 200
        assert (await call(world, server, "bob", token)).status_code == 401
        assert (await call(world, server, None, token)).status_code == 401


def one_line(
    world: World, provider: OpenIdProvider, origin: str, client: str, *, login: str, certified: bool = False
) -> httpx.AsyncClient:
    """A client that shows that certificate to the agent; ``certified``: to the provider, too, which binds the token."""
    certificate = CertificateFiles(
        world.folder / f"{client}.pem", world.folder / f"{client}.key", origins=[origin, provider.issuer]
    )
    tls = client_context(certificate, authorities=world.folder / "provider.pem") if certified else provider.tls
    oauth = OAuthClient(
        issuer=provider.issuer,
        token_endpoint=provider.token_url,
        client_id=login,
        authentication=ClientSecret("secret"),
        fetcher=Fetcher(ssl_context=tls, private_origins=[provider.issuer], timeout=60),
    )
    token = ClientCredentials(oauth, origins=[origin], allowed_scopes=["read"], resource=f"{AUDIENCE}/ES256")
    return verifying_client(
        origin,
        trust=TrustStore([TrustedKey(key=world.owner.public_key, origins=Origins("localhost"))]),
        credentials={"certificate": certificate, "oauth": token},
        authorities=world.folder / "servers.pem",
    )


@pytest.mark.parametrize("server", SERVERS)
async def test_one_client_shows_the_certificate_and_sends_the_token(
    world: World, provider: OpenIdProvider, server: str
) -> None:
    origin = world.origins[server]
    async with one_line(world, provider, origin, "ann", login="service") as http:
        assert "Hello World! You said: hi" in (await greet(http, origin)).text
    for login in ("service", "bound-service"):
        async with one_line(world, provider, origin, "ann", login=login, certified=True) as http:
            assert "Hello World! You said: hi" in (await greet(http, origin)).text
    async with one_line(world, provider, origin, "eve", login="service") as http:
        with pytest.raises(CredentialsRejectedError) as rejected:
            await greet(http, origin)
    assert rejected.value.response.status_code == 401
    assert rejected.value.schemes == ("certificate", "oauth")
    assert rejected.value.resource_metadata == f"{origin}/.well-known/oauth-protected-resource"


async def test_without_a_certificate_nothing_is_sent(world: World, provider: OpenIdProvider) -> None:
    origin = world.origins["hypercorn"]
    provider.token_requests()
    async with verifying_client(
        origin,
        trust=TrustStore([TrustedKey(key=world.owner.public_key, origins=Origins("localhost"))]),
        credentials={},
        authorities=world.folder / "servers.pem",
    ) as http:
        with pytest.raises(CredentialsError, match=r"'certificate' asks for a client certificate: pass .*Certificate"):
            await greet(http, origin)
    assert provider.token_requests() == []
