"""Reads DPoP proofs as a server does that trusts nothing, for tests of who sends them."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from a2a_trust.keys.jwk import public_key_from_jwk
from tests.client.agents import Asked
from tests.jws import verify_jws

__all__ = ["Proof", "ath_of", "proof_in"]


@dataclass(frozen=True, kw_only=True)
class Proof:
    """A proof whose signature is by the key in it; ``jkt`` is that key's thumbprint."""

    header: dict[str, Any]
    claims: dict[str, Any]
    jkt: str


def proof_in(asked: Asked) -> Proof:
    """The one proof that the request has."""
    protected, payload, signature = asked.headers["dpop"].split(".")
    header, claims = (json.loads(base64.urlsafe_b64decode(part + "==")) for part in (protected, payload))
    key = public_key_from_jwk(header["jwk"], alg=header["alg"])
    verify_jws(
        protected=protected, payload=json.dumps(claims, separators=(",", ":")).encode(), signature=signature, key=key
    )
    return Proof(header=header, claims=claims, jkt=key.thumbprint)


def ath_of(token: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).rstrip(b"=").decode()
