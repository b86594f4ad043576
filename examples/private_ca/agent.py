"""An agent for callers with a certificate of the private authority beside this file.

``docs/mtls.md`` has the commands, from the authority to the first call.
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from a2a_trust import CertificateVerifier, FromTls, principal_of, protect
from a2a_trust.certificates import ClientAuthority, FromUri, OnlyIdentities

CARD = {
    "name": "Invoice Agent",
    "description": "Books invoices.",
    "version": "1.0.0",
    "supportedInterfaces": [{"url": "https://localhost:8443/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [],
    "securitySchemes": {"certificate": {"mtlsSecurityScheme": {}}},
    "securityRequirements": [{"schemes": {"certificate": {"list": []}}}],
}


async def hello(request: Request) -> PlainTextResponse:
    caller = principal_of(request.scope)
    certificate = caller.by_scheme("certificate")
    return PlainTextResponse(f"hello {certificate.subject if certificate else 'stranger'}\n")


callers = CertificateVerifier(
    ClientAuthority(
        name="example",
        certificates="ca.pem",
        crls=["ca.crl"],
        identity=FromUri("example.org"),
        allowed=OnlyIdentities({"spiffe://example.org/agents/invoices"}),
    )
)
app = protect(
    Starlette(routes=[Route("/", hello)]),
    card=CARD,
    verifiers={"certificate": callers},
    client_certificates=FromTls(),
)
