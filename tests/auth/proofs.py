"""DPoP proofs made by hand, good ones and changed ones, and the requests that they are for."""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import Any

from a2a_trust import generate_signer
from a2a_trust.keys import LocalSigner
from tests.auth.test_jwt import NOW, b64, claims, token

CLIENT = generate_signer("ES256")
OTHER = generate_signer("ES256")
BASE = "https://agent.example"


def bound_token(signer: LocalSigner = CLIENT, **changes: Any) -> str:
    """A good access token that is bound to the key."""
    return token(claims(cnf={"jkt": signer.public_key.thumbprint}, **changes))


def ath_of(credential: str) -> str:
    return b64(hashlib.sha256(credential.encode()).digest())


def proof(
    credential: str, signer: LocalSigner = CLIENT, *, header: dict[str, Any] | None = None, **changes: Any
) -> str:
    """A proof that is good for ``POST /rpc`` at NOW, changed; ``...`` takes a claim or a header parameter away."""
    said = {
        "jti": secrets.token_urlsafe(12),
        "htm": "POST",
        "htu": f"{BASE}/rpc",
        "iat": int(NOW),
        "ath": ath_of(credential),
        **changes,
    }
    named = {"typ": "dpop+jwt", "alg": signer.alg, "jwk": dict(signer.public_key.jwk), **(header or {})}
    return sealed(_kept(named), _kept(said), signer)


def sealed(header: object, said: object, signer: LocalSigner = CLIENT) -> str:
    signed = ".".join(b64(part if isinstance(part, bytes) else json.dumps(part).encode()) for part in (header, said))
    return f"{signed}.{b64(signer.sign(signed.encode()))}"


def _kept(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not ...}


def scope_of(
    headers: list[tuple[bytes, bytes]] | None = None, *, method: str = "POST", path: str = "/rpc", **changes: Any
) -> dict[str, Any]:
    """An ASGI scope as servers make it; ``...`` takes a member away."""
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": headers or [],
        **changes,
    }
    return {name: value for name, value in scope.items() if value is not ...}


def by_dpop(credential: str, *proofs: str) -> list[tuple[bytes, bytes]]:
    """The headers of a request with the token as DPoP, and proofs."""
    return [(b"authorization", b"DPoP " + credential.encode()), *[(b"dpop", each.encode()) for each in proofs]]
