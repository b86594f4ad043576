"""AgentCardSignature: one JWS of a card, and the rules for its headers (A2A 4.4.7 and 8.4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from a2a_trust.errors import MalformedError, UnsignedCardError
from a2a_trust.keys.jws import check_unprotected, read_header
from a2a_trust.strict_json import JSON, JSONObject

__all__ = ["COMPANION", "MAX_SIGNATURES", "Signature", "parse_signature", "signature_entries"]

MAX_SIGNATURES: Final = 16
"""The most signatures that one card may have; each costs a verification."""

COMPANION: Final = "a2a_trust_companion"
"""The protected header member by which a companion names itself; its value is the form that the companion is over.

A companion lets verifiers of that form accept a card whose full signature they cannot check. It protects less than
the full signature, and whoever serves the card can delete the full one, so here a companion never counts.
"""

_TYPES: Final = frozenset({"JOSE", "JOSE+JSON", "JWS", "JWT"})


class Signature(NamedTuple):
    """A signature whose form is right and which nothing has verified yet.

    ``protected`` and ``signature`` are the base64url texts, ``header`` is the decoded protected header.
    """

    protected: str
    signature: str
    header: Mapping[str, Any]
    kid: str
    alg: str
    unprotected: Mapping[str, Any] | None

    @property
    def is_companion(self) -> bool:
        return COMPANION in self.header


def signature_entries(card: JSONObject) -> list[JSON]:
    """The list ``signatures`` of a card; UnsignedCardError when it is absent, null, empty, or not a list."""
    entries = card.get("signatures")
    if type(entries) is not list or not entries:
        raise UnsignedCardError("the card is not signed: it needs a list of signatures that is not empty")
    if len(entries) > MAX_SIGNATURES:
        raise MalformedError(f"card: /signatures: more than {MAX_SIGNATURES} signatures")
    return entries


def parse_signature(entry: JSON) -> Signature:
    """One entry of ``signatures``, or MalformedError: RFC 7515 4 and 7.2.1, A2A 8.4.2."""
    if type(entry) is not dict:
        raise MalformedError("signature: not a JSON object")
    protected, signature, unprotected = entry.get("protected"), entry.get("signature"), entry.get("header")
    if type(protected) is not str or type(signature) is not str:
        raise MalformedError("signature: protected and signature must be strings")
    header = read_header(protected)
    check_unprotected(unprotected, header)
    kid, typ = header.get("kid"), header.get("typ", "JOSE")
    if type(kid) is not str or not kid:
        raise MalformedError("protected header: kid is missing or not a string (A2A 8.4.2)")
    # RFC 7515 4.1.9: a media type, so case does not matter, and "application/" may stand before it.
    if type(typ) is not str or not typ.isascii() or typ.upper().removeprefix("APPLICATION/") not in _TYPES:
        raise MalformedError("protected header: typ must be absent, JOSE, JOSE+JSON, JWS or JWT")
    for name in ("iat", "exp"):
        if name in header and type(header[name]) not in (int, float):
            raise MalformedError(f"protected header: {name} is not a number of seconds")
    return Signature(
        protected=protected,
        signature=signature,
        header=header,
        kid=kid,
        alg=header["alg"],
        unprotected=unprotected,
    )
