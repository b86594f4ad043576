"""nginx ends TLS for the gRPC server of an agent (``grpc_pass``): a key or a certificate at one port."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

import grpc
import pytest
from cryptography import x509

from a2a_trust.auth import ApiKeyVerifier
from a2a_trust.certificates import CertificateVerifier, ClientAuthority, FromUri, OnlyIdentities
from a2a_trust.grpc import GrpcGuard
from a2a_trust.proxies import FromProxy, Networks, Nginx
from tests.certificates import SERVER, Authority, Leaf
from tests.conftest import ROOT
from tests.grpc_service import GOOD, STORE, Client, Service, card, guarded, outcome, serving
from tests.servers.serving import free_port
from tests.tiers import missing

pytestmark = pytest.mark.anyio
ANN: Final = "spiffe://a.example/ann"
(SETTINGS,) = re.findall(r"```nginx\n(.*?)```", (ROOT / "docs" / "grpc.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def guard(folder: Path) -> GrpcGuard:
    """For a card that accepts a key or a certificate, which grpcio itself cannot ask for."""
    judge = CertificateVerifier(
        ClientAuthority(
            name="house",
            certificates=folder / "ca.pem",
            identity=FromUri("a.example"),
            allowed=OnlyIdentities({ANN}),
        )
    )
    given = card(
        securitySchemes={**card()["securitySchemes"], "cert": {"mtlsSecurityScheme": {}}},
        securityRequirements=[{"schemes": {"key": {"list": ["read"]}}}, {"schemes": {"cert": {}}}],
    )
    source = FromProxy(Nginx(), peers=Networks("127.0.0.1"))
    return guarded(given, verifiers={"key": ApiKeyVerifier(STORE), "cert": judge}, client_certificates=source)


@asynccontextmanager
async def nginx(folder: Path, front: int, agent: int) -> AsyncIterator[None]:
    """nginx with the settings of the page."""
    text = SETTINGS.replace("listen 443", f"listen 127.0.0.1:{front}").replace("127.0.0.1:50051", f"127.0.0.1:{agent}")
    for file in ("server.pem", "server.key", "ca.pem"):
        text = text.replace(f" {file};", f" {folder}/{file};")
    paths = "".join(f"{each}_temp_path {each}; " for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    head = "user root;\ndaemon off;\npid nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n"
    (folder / "settings").write_text(f"{head}{paths}\n{text}\n}}\n")
    process = await asyncio.create_subprocess_exec("nginx", "-p", str(folder), "-e", "stderr", "-c", "settings")
    try:
        for _ in range(100):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", front)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                break
        yield
    finally:
        process.terminate()
        await process.wait()


def channel_to(port: int, authority: Authority, leaf: Leaf | None) -> grpc.aio.Channel:
    own = (None, None) if leaf is None else (leaf.key_pem, leaf.pem)
    return grpc.aio.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(authority.pem, *own))


async def test_behind_nginx_a_key_or_a_certificate_is_accepted(tmp_path: Path) -> None:
    if shutil.which("nginx") is None:
        missing("nginx", "real-proxies")
    authority, front = Authority(), free_port()
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    authority.issue(x509.DNSName("localhost"), usage=SERVER).write(tmp_path, "server")
    ann = authority.issue(x509.UniformResourceIdentifier(ANN))
    forged = [("x-ssl-client-cert", quote(ann.pem.decode())), ("x-ssl-client-verify", "SUCCESS")]
    strange = Authority("Another CA").issue(x509.UniformResourceIdentifier(ANN))
    service = Service()
    async with serving(guard(tmp_path), service.handler()) as agent, nginx(tmp_path, front, agent.port):
        for leaf, metadata, expected in (
            (None, [("x-api-key", GOOD)], "OK"),
            (ann, [], "OK"),
            (ann, [("x-api-key", GOOD)], "OK"),
            (None, [], "UNAUTHENTICATED"),
            (None, forged, "UNAUTHENTICATED"),
            (None, [*forged, *forged], "UNAUTHENTICATED"),
            (ann, [("x-api-key", "guessed")], "UNAUTHENTICATED"),
            (strange, [], "UNAUTHENTICATED"),
        ):
            async with channel_to(front, authority, leaf) as channel:
                client = Client(channel, front)
                for method in (client.method(), client.method("SendStreamingMessage")):
                    got = await outcome(method, metadata)
                    assert got == expected or (leaf is strange and got != "OK"), (metadata, expected)
        underscores = [("x_ssl_client_cert", "x"), ("x-api-key", GOOD)]  # nginx drops such headers
        async with channel_to(front, authority, None) as channel:
            assert await outcome(Client(channel, front).method(), underscores) == "OK"
            names = {name for name, _ in service.context.invocation_metadata()}
            assert not {name for name in names if "cert" in name or "verify" in name}
