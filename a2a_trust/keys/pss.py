"""RSA keys in PEM for RSASSA-PSS only: read the object identifier and the parameters, which ``cryptography`` drops.

``cryptography`` loads such a key like any other RSA key, which would then sign RS256. So this module reads the PEM
again: the AlgorithmIdentifier is the first SEQUENCE in SubjectPublicKeyInfo and PKCS #8. Source: RFC 4055 1.2 and 3.1,
RFC 5208.
"""

from __future__ import annotations

import base64
import re
from typing import Final, NamedTuple

from a2a_trust.errors import MalformedError

_BLOCK: Final = re.compile(rb"-----BEGIN (PRIVATE KEY|PUBLIC KEY)-----(.*?)-----END \1-----", re.DOTALL)
_SEQUENCE: Final = 0x30
_HASH, _MASK, _SALT, _TRAILER = 0xA0, 0xA1, 0xA2, 0xA3

_RSASSA_PSS: Final = bytes.fromhex("2a864886f70d01010a")
_MGF1: Final = bytes.fromhex("2a864886f70d010108")
_DIGESTS: Final = {
    bytes.fromhex("608648016503040201"): ("PS256", 32),
    bytes.fromhex("608648016503040202"): ("PS384", 48),
    bytes.fromhex("608648016503040203"): ("PS512", 64),
}


class _Element(NamedTuple):
    tag: int
    content: bytes


def pss_algorithms(pem: bytes) -> tuple[str, ...]:
    """The algorithms to which an RSA key in PEM is limited, the usual one first; empty without a limit.

    MalformedError: several keys, or parameters that no PS algorithm has.
    """
    blocks = _BLOCK.findall(pem)
    if not blocks:
        return ()  # PKCS #1: always without a limit
    if len(blocks) > 1:
        raise MalformedError("PEM: it holds several keys; put each key into a separate file")
    try:
        (key,) = _elements(base64.b64decode(b"".join(blocks[0][1].split()), validate=True))
        identifier = next(each for each in _elements(key.content) if each.tag == _SEQUENCE)
        algorithm, *parameters = _elements(identifier.content)
        return _fitting(parameters) if algorithm.content == _RSASSA_PSS else ()
    except (ValueError, IndexError, KeyError, StopIteration):
        raise MalformedError("PEM: the algorithms of the key cannot be read") from None


def _fitting(parameters: list[_Element]) -> tuple[str, ...]:
    """RFC 4055 3.1: the PS algorithms that the parameters of a key permit; without parameters all of them."""
    if not parameters:
        return tuple(name for name, _ in _DIGESTS.values())
    fields = {each.tag: _elements(each.content) for each in _elements(parameters[0].content)}
    refused = MalformedError(
        "PEM: this RSA-PSS key requires parameters that no JWS algorithm has (RFC 7518 3.5: one SHA-2 hash for both, a "
        "salt as long as the hash); make a new key"
    )
    # A field that is absent has its default, which is SHA-1.
    if _HASH not in fields or _MASK not in fields or _TRAILER in fields:
        raise refused
    digest = _elements(fields[_HASH][0].content)[0].content
    mask, masked = _elements(fields[_MASK][0].content)[:2]
    name, octets = _DIGESTS.get(digest, ("", -1))
    salt = int.from_bytes(fields[_SALT][0].content, "big") if _SALT in fields else 20  # the shortest that is permitted
    if mask.content != _MGF1 or _elements(masked.content)[0].content != digest or salt > octets:
        raise refused
    return (name,)


def _elements(data: bytes) -> list[_Element]:
    """The DER elements in ``data``, one after the other. ValueError, IndexError: ``data`` is cut short."""
    found, at = [], 0
    while at < len(data):
        tag, length, begins = data[at], data[at + 1], at + 2
        if length & 0x80:
            begins += length & 0x7F
            length = int.from_bytes(data[at + 2 : begins], "big")
        at = begins + length
        if at > len(data):
            raise ValueError("cut short")
        found.append(_Element(tag, data[begins:at]))
    return found
