"""Base64url in the form of JOSE: no padding, one spelling for every octet string (RFC 7515 2 and appendix C)."""

from __future__ import annotations

import binascii

from a2a_trust.errors import MalformedError

__all__ = ["decode", "encode", "encode_bytes"]


def encode_bytes(octets: bytes) -> bytes:
    """The unpadded base64url text of the octets, in ASCII."""
    # Few letters differ between the two alphabets, so replacing them is faster than translating all.
    return binascii.b2a_base64(octets, newline=False).rstrip(b"=").replace(b"+", b"-").replace(b"/", b"_")


def encode(octets: bytes) -> str:
    """The unpadded base64url text of the octets."""
    return encode_bytes(octets).decode("ascii")


def decode(text: str, what: str) -> bytes:
    """The octets of an unpadded base64url text.

    MalformedError (its text begins with ``what``): padding, blanks, other letters, or any spelling that ``encode`` does
    not produce. Unused bits must be zero; otherwise one signature has many texts.
    """
    try:
        letters = text.encode("ascii")
        octets = binascii.a2b_base64(letters.replace(b"-", b"+").replace(b"_", b"/") + b"=" * (-len(letters) % 4))
    except (UnicodeEncodeError, binascii.Error):
        octets = letters = b""
    # This also rejects characters that the decoder skips or accepts: blanks, other letters, "+" and "/".
    if encode_bytes(octets) != letters or len(letters) != len(text):
        raise MalformedError(f"{what} is not canonical base64url without padding")
    return octets
