"""AgentCardSignature: one JWS of a card, and the rules for its headers (A2A 4.4.7 and 8.4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from a2a_trust.base.strict_json import JSON
from a2a_trust.errors import FailureReason, MalformedError, UnsignedCardError
from a2a_trust.keys.algorithms import Algorithm, algorithm_of
from a2a_trust.keys.jws import cached_if_small, check_unprotected, read_header
from a2a_trust.signing.forms import Form

MAX_SIGNATURES: Final = 16
"""The most signatures that one card may have; each costs a verification."""

_CONTENT_TYPE: Final = "application/json;a2a-form="


def content_type(form: Form) -> str:
    """The form marker: the protected ``cty`` (RFC 7515 4.1.10) of a signature over this form of the card."""
    return _CONTENT_TYPE + form


FORM_MARKERS: Final = MappingProxyType(
    {content_type(form): form for form in (Form.SPEC, Form.SERVED, Form.PRUNED, Form.V0_3_PYTHON)}
)
"""The form markers of ``sign_card``: ``cty`` -> the form that the signature is over.

``spec`` and ``served`` mark a full signature. ``pruned`` and ``v0.3-python`` mark a companion: verifiers of that form
accept the card by it, because they cannot check the full signature. A companion protects less than the full signature,
and the server of the card can delete the full one. So companions never count here.
"""

_TYPES: Final = frozenset({"JOSE", "JOSE+JSON", "JWS", "JWT"})


class RejectedError(Exception):
    """A signature of a card does not count, for this reason."""

    def __init__(self, reason: FailureReason, detail: str) -> None:
        self.reason: Final[FailureReason] = reason
        self.detail: Final[str] = detail


class Signature(NamedTuple):
    """A well-formed signature that is not verified yet.

    ``protected`` and ``signature`` are the base64url texts, ``header`` is the decoded protected header, from which all
    that follows it was read.
    """

    protected: str
    signature: str
    unprotected: Mapping[str, Any] | None
    header: Mapping[str, Any]
    kid: str
    algorithm: Algorithm | None
    """None: ``alg`` is not a signature algorithm for cards."""
    marker: Form | None
    """The form that the form marker names; None without it, as in signatures of other tools."""
    is_companion: bool
    is_jwt: bool
    """Whether this is the header of a JWT, whose claims may be a card by chance or by an attacker's choice."""
    issued: float
    """The protected ``iat``; without one -inf, so that leaving ``iat`` out gives no advantage over other signatures."""
    starts: float
    expires: float
    """The later of ``iat`` and ``nbf``, and ``exp``; without them -inf and inf."""


def signature_entries(entries: JSON) -> list[JSON]:
    """The member ``signatures`` of a card as a list; UnsignedCardError if it is absent, null, empty, or not a list."""
    if type(entries) is not list or not entries:
        raise UnsignedCardError("the card is not signed: it needs a non-empty list of signatures")
    if len(entries) > MAX_SIGNATURES:
        raise MalformedError(f"card: /signatures: more than {MAX_SIGNATURES} signatures")
    return entries


def parse_signature(entry: JSON) -> Signature:
    """Read one entry of ``signatures``. MalformedError. Source: RFC 7515 4 and 7.2.1, A2A 8.4.2."""
    if type(entry) is not dict:
        raise MalformedError("signature: not a JSON object")
    protected, signature, unprotected = entry.get("protected"), entry.get("signature"), entry.get("header")
    if type(protected) is not str or type(signature) is not str:
        raise MalformedError("signature: protected and signature must be strings")
    if unprotected is not None:
        check_unprotected(unprotected, read_header(protected))
    return Signature(protected, signature, unprotected, *_read_protected(protected))


@cached_if_small
def _read_protected(
    protected: str,
) -> tuple[Mapping[str, Any], str, Algorithm | None, Form | None, bool, bool, float, float, float]:
    """What ``Signature`` has of the protected header."""
    header = read_header(protected)
    kid, typ, cty = header.get("kid"), header.get("typ", "JOSE"), header.get("cty")
    if type(kid) is not str or not kid:
        raise MalformedError("protected header: kid is missing or not a string (A2A 8.4.2)")
    # RFC 7515 4.1.9: a media type, so case does not matter, and it may begin with "application/".
    if type(typ) is not str or not typ.isascii() or typ.upper().removeprefix("APPLICATION/") not in _TYPES:
        raise MalformedError("protected header: typ must be absent, JOSE, JOSE+JSON, JWS or JWT")
    for name in ("iat", "nbf", "exp"):
        if name in header and type(header[name]) not in (int, float):
            raise MalformedError(f"protected header: {name} is not a number of seconds")
    marker = FORM_MARKERS.get(cty) if type(cty) is str else None  # every other cty is from another tool
    is_companion, is_jwt = marker is not None and marker.is_lossy, typ.upper().endswith("JWT")
    issued = header.get("iat", -inf)
    starts, expires = max(issued, header.get("nbf", -inf)), header.get("exp", inf)
    return header, kid, algorithm_of(header["alg"]), marker, is_companion, is_jwt, issued, starts, expires
