"""Base64url as JOSE writes it: no padding, one spelling for every octet string (RFC 7515 2 and appendix C)."""

from __future__ import annotations

import binascii

from a2a_trust.errors import MalformedError


def encode_bytes(octets: bytes) -> bytes:
    """The unpadded base64url text of the octets, in ASCII."""
    # Text has few of the letters that differ between the two alphabets: replacing them beats a translation of all.
    return binascii.b2a_base64(octets, newline=False).rstrip(b"=").replace(b"+", b"-").replace(b"/", b"_")


def encode(octets: bytes) -> str:
    """The unpadded base64url text of the octets."""
    return encode_bytes(octets).decode("ascii")


def decode(text: str, what: str) -> bytes:
    """The octets of an unpadded base64url text (RFC 7515 2).

    Each value has one spelling, so that one signature has one text. MalformedError, whose text begins with ``what``:
    padding, blanks, other letters, or unused bits that are not zero.
    """
    try:
        letters = text.encode("ascii")
        octets = binascii.a2b_base64(letters.replace(b"-", b"+").replace(b"_", b"/") + b"=" * (-len(letters) % 4))
    except (UnicodeEncodeError, binascii.Error):
        octets = letters = b""
    # This also rejects characters that the decoder skips or treats alike: blanks, other letters, "+" and "/".
    if encode_bytes(octets) != letters or len(letters) != len(text):
        raise MalformedError(f"{what} is not canonical base64url without padding")
    return octets
