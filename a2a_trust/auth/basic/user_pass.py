"""The credential of HTTP Basic (RFC 7617): a user name and a password, in base64."""

from __future__ import annotations

import base64
import unicodedata
from typing import Final, NamedTuple

from a2a_trust.errors import InvalidCredentialsError

__all__ = ["LONGEST_PASSWORD", "UserPass", "has_control_characters", "normalized", "read_user_pass", "user_of"]

LONGEST_USER: Final = 256
LONGEST_PASSWORD: Final = 1024
"""In characters; more is rejected before anything is hashed."""
_LONGEST_TEXT: Final = 4 * -(-4 * (LONGEST_USER + 1 + LONGEST_PASSWORD) // 3)
"""The base64 of the longest names and passwords, of 4 bytes for each character, is not longer."""


class UserPass(NamedTuple):
    """A user name and a password. No ``repr`` of it shows either: people type passwords where their names belong."""

    user: str
    password: str

    def __repr__(self) -> str:
        return "UserPass(…)"


def read_user_pass(credential: str) -> UserPass:
    """The name and the password in the credential of a request, in Unicode Normalization Form C.

    Base64 has one spelling here, and the text is UTF-8. The name ends at the first colon. Clients should send that
    form (RFC 7617 2.1), and not all do: a name or a password that is typed on another machine must stay the same.
    InvalidCredentialsError, which holds nothing of it.
    """
    if len(credential) > _LONGEST_TEXT:
        raise InvalidCredentialsError("Basic: the user name or the password is too long")
    text = _decoded(credential)
    if text is None:
        raise InvalidCredentialsError("Basic: not the base64 of UTF-8 text, with padding and without stray bits")
    user, colon, password = text.partition(":")
    if not colon or not user:
        raise InvalidCredentialsError("Basic: not a user name, a colon and a password")
    if len(user) > LONGEST_USER or len(password) > LONGEST_PASSWORD:
        raise InvalidCredentialsError("Basic: the user name or the password is too long")
    if has_control_characters(text):
        raise InvalidCredentialsError("Basic: a control character in the user name or the password")
    return UserPass(normalized(user), normalized(password))


def user_of(credential: str) -> str:
    """The user name, which nobody has verified; "" where the credential has none that can be read."""
    try:
        return read_user_pass(credential).user
    except InvalidCredentialsError:
        return ""


def _decoded(credential: str) -> str | None:
    """The text, if the credential is its one spelling in base64. It does not raise: such errors hold the text."""
    try:
        octets = base64.b64decode(credential, validate=True)
        return octets.decode() if base64.b64encode(octets) == credential.encode() else None
    except ValueError:
        return None


def has_control_characters(text: str) -> bool:
    """Whether the text has one that RFC 7617 2 forbids, or one of the other half of Unicode's."""
    return any(unicodedata.category(char) == "Cc" for char in text)


def normalized(text: str) -> str:
    """The text in Normalization Form C, in which names and passwords are compared (RFC 8265 3.4, 4.2)."""
    return unicodedata.normalize("NFC", text)
