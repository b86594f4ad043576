"""A whole JWS with a detached payload, verified by the functions of the package, in the order of its callers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.jws import check_unprotected, read_header, signing_input, verify_signed

__all__ = ["verify_jws"]


def verify_jws(
    *, protected: str, payload: bytes, signature: str, key: PublicKey, header: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    """The protected header of a JWS by ``key`` over ``payload``. ``header`` is the unprotected one."""
    claims = read_header(protected)
    check_unprotected(header, claims)
    verify_signed(claims, signature, signing_input(protected, payload), key)
    return claims
