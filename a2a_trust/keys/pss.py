"""RSA keys in PEM for RSASSA-PSS only: read the object identifier and the parameters, which ``cryptography`` drops.

``cryptography`` loads such a key like any other RSA key, which would then sign RS256. So this module reads the PEM
again: the AlgorithmIdentifier is the first SEQUENCE in SubjectPublicKeyInfo and PKCS #8. In an encrypted PKCS #8 it is
encrypted, too. Source: RFC 4055 1.2 and 3.1, RFC 5208, RFC 8018 6.2, RFC 7914 7.
"""

from __future__ import annotations

import base64
import re
from typing import Final, NamedTuple

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from a2a_trust.errors import MalformedError

__all__ = ["pss_algorithms"]

_BLOCK: Final = re.compile(
    rb"-----BEGIN (ENCRYPTED PRIVATE KEY|PRIVATE KEY|PUBLIC KEY)-----(.*?)-----END \1-----", re.DOTALL
)
_SEQUENCE: Final = 0x30
_HASH, _MASK, _SALT, _TRAILER = 0xA0, 0xA1, 0xA2, 0xA3

_RSASSA_PSS: Final = bytes.fromhex("2a864886f70d01010a")
_MGF1: Final = bytes.fromhex("2a864886f70d010108")
_DIGESTS: Final = {
    bytes.fromhex("608648016503040201"): ("PS256", 32),
    bytes.fromhex("608648016503040202"): ("PS384", 48),
    bytes.fromhex("608648016503040203"): ("PS512", 64),
}
_PBES2: Final = bytes.fromhex("2a864886f70d01050d")
_PBKDF2: Final = bytes.fromhex("2a864886f70d01050c")
_SCRYPT: Final = bytes.fromhex("2b06010401da47040b")
_HMAC: Final = {
    bytes.fromhex("2a864886f70d0207"): hashes.SHA1(),  # noqa: S303  the default of RFC 8018, and only to read a file
    bytes.fromhex("2a864886f70d0208"): hashes.SHA224(),
    bytes.fromhex("2a864886f70d0209"): hashes.SHA256(),
    bytes.fromhex("2a864886f70d020a"): hashes.SHA384(),
    bytes.fromhex("2a864886f70d020b"): hashes.SHA512(),
}
_AES_CBC_OCTETS: Final = {
    bytes.fromhex("60864801650304" + end): octets for end, octets in (("0102", 16), ("0116", 24), ("012a", 32))
}


class _Element(NamedTuple):
    tag: int
    content: bytes


def pss_algorithms(pem: bytes, passphrase: str | None = None) -> tuple[str, ...]:
    """The algorithms to which an RSA key in PEM is limited, the usual one first; empty without a limit.

    The passphrase opens an encrypted PKCS #8. MalformedError: several keys, parameters that no PS algorithm has, or an
    encryption other than AES-CBC with PBKDF2 or scrypt, which hides the limit.
    """
    blocks = _BLOCK.findall(pem)
    if not blocks:
        return ()  # PKCS #1: always without a limit
    if len(blocks) > 1:
        raise MalformedError("PEM: it holds several keys; put each key into a separate file")
    label, text = blocks[0]
    try:
        der = base64.b64decode(b"".join(text.split()), validate=True)
        if label.startswith(b"ENCRYPTED"):
            der = _decrypted(der, (passphrase or "").encode())
        (key,) = _elements(der)
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


def _decrypted(der: bytes, passphrase: bytes) -> bytes:
    """The PKCS #8 within an encrypted one, which ``cryptography`` has opened with this passphrase: secret."""
    (outer,) = _elements(der)
    identifier, encrypted = _elements(outer.content)
    scheme, parameters = _elements(identifier.content)[:2]
    unseen = MalformedError(
        "PEM: its encryption is neither AES-CBC with PBKDF2 nor with scrypt; convert a copy with: "
        "openssl pkcs8 -topk8 -v2 aes256 -in FILE -out NEW"
    )
    if scheme.content != _PBES2:
        raise unseen
    derivation, cipher = (_elements(each.content) for each in _elements(parameters.content))
    octets = _AES_CBC_OCTETS.get(cipher[0].content)
    if octets is None or derivation[0].content not in (_PBKDF2, _SCRYPT):
        raise unseen
    salt, *costs = _elements(derivation[1].content)
    numbers = [int.from_bytes(each.content, "big") for each in costs if each.tag != _SEQUENCE]
    if derivation[0].content == _SCRYPT:
        key = Scrypt(salt=salt.content, length=octets, n=numbers[0], r=numbers[1], p=numbers[2]).derive(passphrase)
    else:
        prf = next((_elements(each.content)[0].content for each in costs if each.tag == _SEQUENCE), next(iter(_HMAC)))
        key = PBKDF2HMAC(_HMAC[prf], octets, salt.content, numbers[0]).derive(passphrase)
    decryptor = Cipher(algorithms.AES(key), modes.CBC(cipher[1].content)).decryptor()
    padded = decryptor.update(encrypted.content) + decryptor.finalize()
    return padded[: -padded[-1]]


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
