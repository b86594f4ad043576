"""Base64url as JOSE writes it: no padding, one spelling for every octet string (RFC 7515 2 and appendix C)."""

from __future__ import annotations

import binascii
from typing import Final

from a2a_trust.errors import MalformedError

#: From base64url to base64. Padding and characters of base64 become one that neither alphabet has.
_TO_BASE64: Final = bytes.maketrans(b"-_+/=", b"+/!!!")
#: By the number of characters in the last group: its padding, and the last characters whose unused bits are zero.
_LAST_GROUP: Final = (
    (b"", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
    (b"", ""),
    (b"==", "AQgw"),
    (b"=", "AEIMQUYcgkosw048"),
)


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
    padding, last = _LAST_GROUP[len(text) % 4]
    try:
        if text[-1:] in last:
            # The strict mode rejects what the decoder otherwise skips: blanks and other characters.
            return binascii.a2b_base64(text.encode("ascii").translate(_TO_BASE64) + padding, strict_mode=True)
    except (UnicodeEncodeError, binascii.Error):
        pass
    raise MalformedError(f"{what} is not canonical base64url without padding")
