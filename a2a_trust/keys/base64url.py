"""Base64url as JOSE writes it: no padding, one spelling for every octet string (RFC 7515 2 and appendix C)."""

from __future__ import annotations

import base64
import binascii

from a2a_trust.errors import MalformedError

__all__ = ["decode", "encode"]


def encode(octets: bytes) -> str:
    """The unpadded base64url text of the octets."""
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode("ascii")


def decode(text: str, what: str) -> bytes:
    """The octets of an unpadded base64url text.

    MalformedError (its text begins with ``what``) for padding, blanks, other letters, and for every spelling but the
    one that ``encode`` gives: bits that no octet uses must be zero, else one signature has many texts.
    """
    try:
        octets = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except (UnicodeEncodeError, binascii.Error):
        octets = None
    if octets is None or encode(octets) != text:
        raise MalformedError(f"{what} is not canonical base64url without padding")
    return octets
