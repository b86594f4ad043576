"""An attacker's workbench: cards and JWS made by hand, with nothing of the package under attack.

Base64url, canonical JSON, pruning and the signatures are made here once more, so that a fault in the package cannot
hide itself in its own tests.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

JSONObject: TypeAlias = dict[str, Any]
Sign: TypeAlias = Callable[[bytes], bytes]

_HASH: Final = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}

LEGACY: Final = (
    "url",
    "preferredTransport",
    "additionalInterfaces",
    "protocolVersion",
    "security",
    "supportsAuthenticatedExtendedCard",
    "authentication",
)


def b64(octets: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(octets).decode().rstrip("=")


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def canonical(value: object) -> bytes:
    """RFC 8785 for what the cards of these tests hold: no fractions, no member names above U+FFFF."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def without_signatures(card: Mapping[str, Any]) -> JSONObject:
    return {name: value for name, value in card.items() if name != "signatures"}


def pruned(card: Mapping[str, Any]) -> JSONObject:
    """The card as a2a-python and a2a-js sign it: no legacy member, nothing empty at any depth."""
    kept = {name: value for name, value in without_signatures(card).items() if name not in LEGACY}
    cleaned: JSONObject = _without_empty(kept)
    return cleaned


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        cleaned = {name: _without_empty(item) for name, item in value.items()}
        return {name: item for name, item in cleaned.items() if not _is_empty(item)}
    if isinstance(value, list):
        return [item for item in map(_without_empty, value) if not _is_empty(item)]
    return value


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)


def signs(key: object, alg: str) -> Sign:
    """The signature of RFC 7518 3 with a private key, also where key and ``alg`` do not belong together."""

    def sign(data: bytes) -> bytes:
        if isinstance(key, ed25519.Ed25519PrivateKey):
            return key.sign(data)
        digest = _HASH[alg[-3:]]
        if isinstance(key, ec.EllipticCurvePrivateKey):
            r, s = decode_dss_signature(key.sign(data, ec.ECDSA(digest)))
            octets = (key.key_size + 7) // 8
            return r.to_bytes(octets, "big") + s.to_bytes(octets, "big")
        assert isinstance(key, rsa.RSAPrivateKey)
        if alg.startswith("PS"):
            return key.sign(data, padding.PSS(padding.MGF1(digest), digest.digest_size), digest)
        return key.sign(data, padding.PKCS1v15(), digest)

    return sign


def entry(
    protected: Mapping[str, Any] | bytes | str, payload: bytes, sign: Sign, *, header: object = None
) -> JSONObject:
    """One member of ``signatures``. ``protected``: a header, the text of one, or its base64url as it shall stand."""
    if isinstance(protected, str):
        text = protected
    else:
        text = b64(protected if isinstance(protected, bytes) else json.dumps(protected).encode())
    made: JSONObject = {"protected": text, "signature": b64(sign(text.encode() + b"." + b64(payload).encode()))}
    if header is not None:
        made["header"] = header
    return made


def served(card: Mapping[str, Any], *entries: object) -> bytes:
    """The card with these signatures, as an attacker serves it."""
    return json.dumps({**without_signatures(card), "signatures": list(entries)}).encode()
