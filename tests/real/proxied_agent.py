"""The agent behind the proxies: one application for each form, in one process, for whoever shows a certificate.

It listens as it should, with the protocol class that records peers; as it should not, with uvicorn's own one, which
believes every forwarded header; and at a unix socket. The settings are in PROXIED.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from typing import Any, Final

import uvicorn

from a2a_trust.auth.certificate.from_proxy import FromProxy, ProxySecret, UnixSocket
from a2a_trust.auth.certificate.identities import AllIssued, FromUri
from a2a_trust.auth.certificate.proxy_forms import Apache, Caddy, Envoy, HAProxy, Nginx
from a2a_trust.auth.certificate.verifier import CertificateVerifier, ClientAuthority
from a2a_trust.auth.credentials import certificates_of
from a2a_trust.auth.peers import Networks
from a2a_trust.middleware.door import CardEnforcementMiddleware
from a2a_trust.servers.uvicorn import H11Protocol, HttpToolsProtocol

CARD: Final[dict[str, Any]] = {
    "name": "agent",
    "supportedInterfaces": [{"url": "https://localhost/", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}],
    "securitySchemes": {"mtls": {"mtlsSecurityScheme": {}}},
    "securityRequirements": [{"schemes": {"mtls": {}}}],
    "skills": [],
}


async def _agent(scope: Any, receive: Any, send: Any) -> None:
    said = {
        "user": scope["user"].display_name,
        "certificate": hashlib.sha256(certificates_of(scope)[0]).hexdigest(),
        "headers": sorted({name.decode("latin-1") for name, _ in scope["headers"]}),
    }
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(said).encode()})


def _applications(settings: dict[str, str]) -> dict[str, Any]:
    proxy = Networks("127.0.0.1")
    sources = {
        "nginx": FromProxy(Nginx(), peers=proxy),
        "nginx-unix": FromProxy(Nginx(), peers=UnixSocket()),
        "nginx-secret": FromProxy(Nginx(), peers=ProxySecret(secret=settings["secret"])),
        "haproxy": FromProxy(HAProxy(), peers=proxy),
        "apache": FromProxy(Apache(), peers=proxy),
        "caddy": FromProxy(Caddy(), peers=proxy),
        "envoy": FromProxy(Envoy(), peers=proxy),
    }
    verifier = CertificateVerifier(
        ClientAuthority(
            name="clients",
            certificates=settings["authority"],
            identity=FromUri("agents.example"),
            allowed=AllIssued(),
        )
    )
    return {
        name: CardEnforcementMiddleware(_agent, card=CARD, verifiers={"mtls": verifier}, client_certificates=source)
        for name, source in sources.items()
    }


def by_first_segment(applications: dict[str, Any]) -> Any:
    async def chosen(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        await applications[scope["path"].split("/")[1] or "nginx-secret"](scope, receive, send)

    return chosen


async def _serve(settings: dict[str, str]) -> None:
    app = by_first_segment(_applications(settings))
    servers = []
    for http, options in (
        (HttpToolsProtocol, {"port": int(settings["port"])}),
        (H11Protocol, {"port": int(settings["h11_port"])}),
        ("h11", {"port": int(settings["plain_port"])}),
        (HttpToolsProtocol, {"uds": settings["socket"]}),
    ):
        config = uvicorn.Config(app, http=http, lifespan="off", log_level="warning", timeout_keep_alive=60, **options)
        servers.append(uvicorn.Server(config).serve())
    await asyncio.gather(*servers)


def application() -> Any:
    """The same for servers that record no peer, and are told what to serve on their command line."""
    return by_first_segment(_applications(json.loads(os.environ["PROXIED"])))


if __name__ == "__main__":
    asyncio.run(_serve(json.loads(os.environ["PROXIED"])))
