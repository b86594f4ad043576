"""RSA keys in PEM for RSASSA-PSS only: read the object identifier and the parameters, which ``cryptography`` drops.

``cryptography`` loads such a key like any other RSA key, which would then sign RS256. So this module looks at the PEM
again: the AlgorithmIdentifier is the first SEQUENCE in SubjectPublicKeyInfo and PKCS #8. ``cryptography`` has checked
their DER before. Source: RFC 4055 1.2 and 3.1, RFC 5208.
"""

from __future__ import annotations

import base64
import re
from typing import Final

from a2a_trust.errors import MalformedError

_BLOCK: Final = re.compile(rb"-----BEGIN (PRIVATE KEY|PUBLIC KEY)-----(.*?)-----END \1-----", re.DOTALL)
#: The length of the AlgorithmIdentifier, after the head of the key and the version of PKCS #8.
_KEY: Final = re.compile(rb"\x30(?:[\x00-\x7f]|\x81.|\x82..)(?:\x02\x01[\x00\x01])?\x30([\x00-\x7f])", re.DOTALL)
_RSASSA_PSS: Final = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a"
_SHA2: Final = rb"\x30.\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02([\x01-\x03])(?:\x05\x00)?"
#: A hash, MGF1 with a hash, the length of the salt. A field that is absent has its default, which for a hash is SHA-1.
_PARAMETERS: Final = re.compile(
    rb"\x30.\xa0.%b\xa1.\x30.\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x08%b(?:\xa2.\x02\x01(.))?" % (_SHA2, _SHA2),
    re.DOTALL,
)
_ALGORITHMS: Final = {b"\x01": ("PS256", 32), b"\x02": ("PS384", 48), b"\x03": ("PS512", 64)}
_DEFAULT_SALT: Final = b"\x14"


def pss_algorithms(pem: bytes) -> tuple[str, ...]:
    """The algorithms to which an RSA key in PEM is limited, the default first; empty without a limit.

    MalformedError: several keys, or parameters that no PS algorithm has.
    """
    blocks = _BLOCK.findall(pem)
    if not blocks:
        return ()  # PKCS #1: always without a limit
    if len(blocks) > 1:
        raise MalformedError("PEM: it holds several keys; put each key into a separate file")
    try:
        der = base64.b64decode(b"".join(blocks[0][1].split()), validate=True)
    except ValueError:
        der = b""
    key = _KEY.match(der)
    identifier = b"" if key is None else der[key.end() : key.end() + key[1][0]]
    if key is None or len(identifier) < key[1][0]:
        raise MalformedError("PEM: the algorithms of the key cannot be read")
    if not identifier.startswith(_RSASSA_PSS):
        return ()
    if identifier == _RSASSA_PSS:
        return tuple(name for name, _ in _ALGORITHMS.values())
    found = _PARAMETERS.fullmatch(identifier, len(_RSASSA_PSS))
    name, octets = ("", -1) if found is None else _ALGORITHMS[found[1]]
    if found is None or found[1] != found[2] or (found[3] or _DEFAULT_SALT)[0] > octets:
        raise MalformedError(
            "PEM: this RSA-PSS key requires parameters that no JWS algorithm has (RFC 7518 3.5: one SHA-2 hash for "
            "both, a salt as long as the hash); make a new key"
        )
    return (name,)
