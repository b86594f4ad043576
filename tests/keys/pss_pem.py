"""RSA keys in PEM that are for RSASSA-PSS only, as other tools write them: ``cryptography`` cannot."""

from __future__ import annotations

import base64
import os
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

RSA: Final = bytes.fromhex("06092a864886f70d010101" + "0500")
PSS: Final = bytes.fromhex("06092a864886f70d01010a")
MGF1: Final = bytes.fromhex("06092a864886f70d010108")
SHA1: Final = bytes.fromhex("06052b0e03021a")
SHA: Final = {
    bits: bytes.fromhex(f"0609608648016503040{at}") for bits, at in ((256, "201"), (384, "202"), (512, "203"))
}


def der(tag: int, *contents: bytes) -> bytes:
    content = b"".join(contents)
    octets = (len(content).bit_length() + 7) // 8
    length = bytes([len(content)]) if len(content) < 128 else bytes([0x80 | octets]) + len(content).to_bytes(octets)
    return bytes([tag]) + length + content


def parameters(digest: bytes, mask: bytes, salt: int | None) -> bytes:
    """RSASSA-PSS-params (RFC 4055 3.1)."""
    fields = [der(0xA0, der(0x30, digest)), der(0xA1, der(0x30, MGF1, der(0x30, mask)))]
    if salt is not None:
        fields.append(der(0xA2, der(0x02, bytes([salt]))))
    return der(0x30, *fields)


def pem(label: str, data: bytes) -> bytes:
    return f"-----BEGIN {label}-----\n".encode() + base64.encodebytes(data) + f"-----END {label}-----\n".encode()


def public_pem(key: rsa.RSAPrivateKey, limits: bytes = b"") -> bytes:
    """SubjectPublicKeyInfo; ``limits`` are the parameters of the key."""
    plain = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return pem("PUBLIC KEY", _with_identifier(plain, limits))


def private_pem(key: rsa.RSAPrivateKey, limits: bytes = b"", *, passphrase: str | None = None) -> bytes:
    """PKCS #8, encrypted with AES-256-CBC and PBKDF2 where there is a passphrase."""
    made = _with_identifier(key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()), limits)
    return (
        pem("PRIVATE KEY", made) if passphrase is None else pem("ENCRYPTED PRIVATE KEY", _encrypted(made, passphrase))
    )


def _with_identifier(plain: bytes, limits: bytes) -> bytes:
    before, _, after = plain.partition(der(0x30, RSA))
    begins = 2 + (before[1] & 0x7F if before[1] & 0x80 else 0)  # what stands before the content of the outer SEQUENCE
    return der(0x30, before[begins:], der(0x30, PSS, limits), after)


def _encrypted(data: bytes, passphrase: str) -> bytes:
    salt, iv, rounds = os.urandom(16), os.urandom(16), 2048
    key = PBKDF2HMAC(hashes.SHA256(), 32, salt, rounds).derive(passphrase.encode())
    padding = 16 - len(data) % 16
    encryptor = Cipher(algorithms.AES(key), modes.CBC(iv)).encryptor()
    hidden = encryptor.update(data + bytes([padding]) * padding) + encryptor.finalize()
    prf = der(0x30, bytes.fromhex("06082a864886f70d0209"), der(0x05))
    derivation = der(
        0x30,
        bytes.fromhex("06092a864886f70d01050c"),
        der(0x30, der(0x04, salt), der(0x02, rounds.to_bytes(2)), prf),
    )
    cipher = der(0x30, bytes.fromhex("060960864801650304012a"), der(0x04, iv))
    scheme = der(0x30, bytes.fromhex("06092a864886f70d01050d"), der(0x30, derivation, cipher))
    return der(0x30, scheme, der(0x04, hidden))
