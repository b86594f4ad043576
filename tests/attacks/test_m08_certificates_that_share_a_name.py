"""M8: a certificate that says the name of somebody else's, from another authority or in another place, owns nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from a2a_trust import CertificateVerifier, FromTls, principal_of, protect
from a2a_trust.certificates import AllIssued, ClientAuthority, FromDns, FromUri, OnlyIdentities
from tests.certificates import Authority, Leaf

ID = "spiffe://example.org/agents/invoices"
CARD = {
    "name": "Invoice Agent",
    "description": "Books invoices.",
    "version": "1.0.0",
    "supportedInterfaces": [
        {"url": "https://agent.example.com/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "securitySchemes": {"certificate": {"mtlsSecurityScheme": {}}},
    "securityRequirements": [{"schemes": {"certificate": {"list": []}}}],
}


async def owner(request: Request) -> PlainTextResponse:
    return PlainTextResponse(principal_of(request.scope).display_name)


def ask(*authorities: ClientAuthority, shown: Leaf) -> httpx.Response:
    agent = Starlette(routes=[Route("/", owner)])
    verifiers = {"certificate": CertificateVerifier(*authorities)}
    app = protect(agent, card=CARD, verifiers=verifiers, client_certificates=FromTls())
    chain = [each.decode() + "-----END CERTIFICATE-----\n" for each in shown.pem.split(b"-----END CERTIFICATE-----\n")]

    async def over_tls(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "extensions": {"tls": {"client_cert_chain": chain[:-1]}}}, receive, send)

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=over_tls)
        async with httpx.AsyncClient(transport=transport, base_url="https://agent.example.com") as http:
            return await http.get("/")

    return asyncio.run(send())


@pytest.fixture
def authorities(tmp_path: Path) -> tuple[Authority, Authority]:
    ours, theirs = Authority("Ours"), Authority("Ours")
    (tmp_path / "ours.pem").write_bytes(ours.pem)
    (tmp_path / "theirs.pem").write_bytes(theirs.pem)
    return ours, theirs


def trusted(folder: Path, name: str, **options: Any) -> ClientAuthority:
    wanted: dict[str, Any] = {"identity": FromUri("example.org"), "allowed": AllIssued(), **options}
    return ClientAuthority(name=name, certificates=folder / f"{name}.pem", **wanted)


def test_the_same_id_from_another_authority_is_another_owner(
    tmp_path: Path, authorities: tuple[Authority, Authority]
) -> None:
    both = trusted(tmp_path, "ours"), trusted(tmp_path, "theirs")
    names = [ask(*both, shown=each.issue(x509.UniformResourceIdentifier(ID))) for each in authorities]
    assert [name.status_code for name in names] == [200, 200]
    assert names[0].text != names[1].text


def test_an_authority_that_may_not_vouch_for_an_id_lets_nobody_in_by_it(
    tmp_path: Path, authorities: tuple[Authority, Authority]
) -> None:
    ours, theirs = authorities
    only = trusted(tmp_path, "ours", allowed=OnlyIdentities({ID}))
    none = trusted(tmp_path, "theirs", allowed=OnlyIdentities({f"{ID}/theirs"}))
    assert ask(only, none, shown=ours.issue(x509.UniformResourceIdentifier(ID))).status_code == 200
    assert ask(only, none, shown=theirs.issue(x509.UniformResourceIdentifier(ID))).status_code == 401


@pytest.mark.parametrize(
    "names",
    [(), (x509.DNSName("evil.example"),), (x509.DNSName("evil.example"), x509.DNSName("agent.example"))],
    ids=["no name", "another name", "two names"],
)
def test_a_common_name_or_a_second_name_is_not_taken_for_the_host(
    tmp_path: Path, authorities: tuple[Authority, Authority], names: tuple[x509.DNSName, ...]
) -> None:
    ours, _ = authorities
    one = trusted(tmp_path, "ours", identity=FromDns(), allowed=OnlyIdentities({"agent.example"}))
    assert ask(one, shown=ours.issue(x509.DNSName("agent.example"))).status_code == 200
    assert ask(one, shown=ours.issue(*names, subject="agent.example")).status_code == 401
