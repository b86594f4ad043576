"""N4: a call claims a certificate in its metadata, or a card offers a certificate "or something else" at one port.

Anybody can write metadata. They are believed only from the proxy, which the peer or a secret proves.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from cryptography import x509

from a2a_trust.auth import ApiKeyVerifier
from a2a_trust.certificates import CertificateVerifier, ClientAuthority, FromTls, FromUri, OnlyIdentities
from a2a_trust.errors import ConfigurationError
from a2a_trust.grpc import GrpcGuard
from a2a_trust.proxies import FromProxy, Networks, Nginx, ProxySecret, UnixSocket
from tests.certificates import Authority
from tests.grpc_service import GOOD, STORE, Service, card, guarded, outcome, serving

pytestmark = pytest.mark.anyio
ANN = "spiffe://a.example/ann"
SECRET = "s" * 32


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def house(tmp_path: Path) -> tuple[Callable[..., GrpcGuard], str]:
    """Makes guards for a card that demands key and certificate; and the value of nginx's header for Ann."""
    authority = Authority()
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    leaf = authority.issue(x509.UniformResourceIdentifier(ANN))
    judge = CertificateVerifier(
        ClientAuthority(
            name="house",
            certificates=tmp_path / "ca.pem",
            identity=FromUri("a.example"),
            allowed=OnlyIdentities({ANN}),
        )
    )
    schemes = {**card()["securitySchemes"], "cert": {"mtlsSecurityScheme": {}}}

    def make(source: Any, *alternatives: tuple[str, ...]) -> GrpcGuard:
        demands = [
            {"schemes": {name: {"list": ["read"]} if name == "key" else {} for name in each}}
            for each in alternatives or (("key", "cert"),)
        ]
        given = card(securitySchemes=schemes, securityRequirements=demands)
        verifiers = {"key": ApiKeyVerifier(STORE), "cert": judge}
        return guarded(given, verifiers=verifiers, client_certificates=source)

    return make, quote(leaf.pem.decode())


async def test_a_certificate_in_metadata_counts_only_from_the_proxy(
    house: tuple[Callable[..., GrpcGuard], str], tmp_path: Path
) -> None:
    make, header = house
    ann = [("x-api-key", GOOD), ("x-ssl-client-cert", header), ("x-ssl-client-verify", "SUCCESS")]
    twice = [*ann, ("x-ssl-client-cert", header)]
    secret = [*ann, ("x-proxy-secret", SECRET)]
    unix = f"unix:{tmp_path}/agent.sock"
    proven_by_secret = FromProxy(Nginx(), peers=ProxySecret(secret=SECRET))
    at_socket = FromProxy(Nginx(), peers=UnixSocket())
    for source, metadata, address, expected in (
        (FromProxy(Nginx(), peers=Networks("127.0.0.1")), ann, "127.0.0.1:0", "OK"),
        (FromProxy(Nginx(), peers=Networks("::1")), ann, "[::1]:0", "OK"),
        (FromProxy(Nginx(), peers=Networks("127.0.0.1")), twice, "127.0.0.1:0", "UNAUTHENTICATED"),
        (FromProxy(Nginx(), peers=Networks("127.0.0.1")), ann[:1], "127.0.0.1:0", "UNAUTHENTICATED"),
        (FromProxy(Nginx(), peers=Networks("10.0.0.5")), ann, "127.0.0.1:0", "UNAUTHENTICATED"),
        (proven_by_secret, secret, "127.0.0.1:0", "OK"),
        (proven_by_secret, ann, "127.0.0.1:0", "UNAUTHENTICATED"),
        (at_socket, ann, unix, "OK"),
        (at_socket, ann, "127.0.0.1:0", "UNAUTHENTICATED"),
        (FromTls(), ann, "127.0.0.1:0", "UNAUTHENTICATED"),
    ):
        service = Service()
        async with serving(make(source), service.handler(), address=address) as client:
            assert await outcome(client.method(), metadata) == expected, (source, address)
            binary = [*metadata, ("x-ssl-client-cert-bin", b"x")]
            assert await outcome(client.method(), binary) == "INVALID_ARGUMENT"
        if expected == "OK":
            names = {name for name, _ in service.context.invocation_metadata()}
            assert names == {"user-agent"}


def test_one_port_cannot_ask_for_a_certificate_or_something_else(
    house: tuple[Callable[..., GrpcGuard], str],
) -> None:
    make, _ = house
    with pytest.raises(ConfigurationError, match="two ports, or end TLS in a proxy"):
        make(FromTls(), ("key",), ("cert",))
    make(FromProxy(Nginx(), peers=Networks("10.0.0.5")), ("key",), ("cert",))
    make(FromTls(), ("cert",), ("cert", "key"))
