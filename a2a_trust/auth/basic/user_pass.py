"""The credential of HTTP Basic (RFC 7617): a user name and a password, in base64."""

from __future__ import annotations

import base64
import re
import unicodedata
from typing import Final, NamedTuple

from a2a_trust.errors import InvalidCredentialsError

LONGEST_USER: Final = 256  # characters
LONGEST_PASSWORD: Final = 1024
"""In bytes of UTF-8; more is rejected before anything is normalized or hashed."""
_LONGEST_TEXT: Final = 4 * -(-(4 * LONGEST_USER + 1 + LONGEST_PASSWORD) // 3)
"""The base64 of the longest names and passwords, of 4 bytes for each character of a name, is not longer."""


class UserPass(NamedTuple):
    """A user name and a password. Its ``repr`` shows neither: people type passwords in the place of names."""

    user: str
    password: str

    def __repr__(self) -> str:
        return "UserPass(…)"


def read_user_pass(credential: str) -> UserPass:
    """The name and the password in the credential of a request, in Unicode Normalization Form C.

    Base64 has one spelling here, and the text is UTF-8. The name ends at the first colon. Not all clients send Form C
    (RFC 7617 2.1), and a password must be the same on every machine. InvalidCredentialsError has no part of it.
    """
    if len(credential) > _LONGEST_TEXT:
        raise InvalidCredentialsError("Basic: the user name or the password is too long")
    text = _decode(credential)
    if text is None:
        raise InvalidCredentialsError("Basic: not the base64 of UTF-8 text, with padding and without stray bits")
    user, colon, password = text.partition(":")
    if not colon or not user:
        raise InvalidCredentialsError("Basic: not a user name, a colon and a password")
    if len(user) > LONGEST_USER or len(password.encode()) > LONGEST_PASSWORD:
        raise InvalidCredentialsError("Basic: the user name or the password is too long")
    if not is_text(text):
        raise InvalidCredentialsError(
            "Basic: the user name or the password has a control character, or too many combining characters in a row"
        )
    return UserPass(normalize(user), normalize(password))


def user_of(credential: str) -> str:
    """The user name, unverified; "" if it cannot be read."""
    try:
        return read_user_pass(credential).user
    except InvalidCredentialsError:
        return ""


def _decode(credential: str) -> str | None:
    """The text, if the credential is its one spelling in base64. It does not raise: such errors hold the text."""
    try:
        octets = base64.b64decode(credential, validate=True)
        return octets.decode() if base64.b64encode(octets) == credential.encode() else None
    except ValueError:
        return None


_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LONG_RUN: Final = re.compile(rb"[^\0]{31}")


def is_text(text: str) -> bool:
    """Whether the text has no control character (RFC 7617 2; and not the other half of Unicode's), and at most 30
    combining characters in a row (UAX 15, 13): to order those takes time with the square of their number."""
    if _CONTROL.search(text):
        return False
    return text.isascii() or not _LONG_RUN.search(bytes(map(unicodedata.combining, text)))


def normalize(text: str) -> str:
    """The text in Normalization Form C, in which names and passwords are compared (RFC 8265 3.4, 4.2)."""
    return unicodedata.normalize("NFC", text)
