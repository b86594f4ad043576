"""An agent that tells who calls it, by which certificate, and at ``/peer`` from where, for a server's own process.

AUTHORITY is the file of the certificates that are trusted for clients.
"""

from __future__ import annotations

import json
import os
from typing import Any, Final

import uvicorn

from a2a_trust import CertificateVerifier, FromTls, RequestRules, principal_of, protect
from a2a_trust.auth.peers import verified_peer
from a2a_trust.certificates import AllIssued, ClientAuthority, FromUri

CARD: Final[dict[str, Any]] = {
    "name": "agent",
    "supportedInterfaces": [{"url": "https://localhost/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "securitySchemes": {"mtls": {"mtlsSecurityScheme": {}}},
    "securityRequirements": [{"schemes": {"mtls": {}}}],
    "skills": [],
}


async def tell(scope: Any, receive: Any, send: Any) -> None:
    said = {
        "caller": None if scope["path"] == "/peer" else principal_of(scope).display_name,
        "peer": str(verified_peer(scope)),
        "client": scope["client"][0],
        "server": uvicorn.__version__,
    }
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": json.dumps(said)})
        await send({"type": "websocket.close", "code": 1000})
        return
    while (await receive()).get("more_body"):
        pass
    said["headers"] = [name.decode() for name, _ in scope["headers"]]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(said).encode()})


def certified(authority: str) -> Any:
    partners = ClientAuthority(
        name="partners", certificates=authority, identity=FromUri("example.org"), allowed=AllIssued()
    )
    return protect(
        tell,
        card=CARD,
        verifiers={"mtls": CertificateVerifier(partners)},
        client_certificates=FromTls(),
        rules=RequestRules(public_paths=["/peer"]),
    )


if "AUTHORITY" in os.environ:
    app = certified(os.environ["AUTHORITY"])
