"""The access token of a caller, for handlers that call other agents on the caller's behalf (RFC 8693)."""

from __future__ import annotations

from typing import Final, NoReturn, final


@final
class SubjectToken:
    """The verified access token of a caller, as the ``subject_token`` of a token exchange (RFC 8693 2.1).

    ``issuer`` is the authorization server that issued it, ``subject`` is the subject of the caller's identity. It is
    valid before ``expires_at`` (seconds since the epoch). If the token is bound to a key of the caller
    (``Identity.bound_to``), the authorization server decides whether it exchanges it. Only ``reveal`` gives the text:
    the repr does not have it, and copying and pickling raise TypeError.
    """

    __slots__ = ("_text", "expires_at", "issuer", "subject")

    def __init__(self, text: str, *, issuer: str, subject: str, expires_at: float) -> None:
        self._text: Final = text
        self.issuer: Final = issuer
        self.subject: Final = subject
        self.expires_at: Final = expires_at

    def reveal(self) -> str:
        """The text of the token, a secret. Send it to the authorization server, and do not store or log it."""
        return self._text

    def __repr__(self) -> str:
        return f"SubjectToken(issuer={self.issuer!r}, subject={self.subject!r}, expires_at={self.expires_at!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a SubjectToken is not pickled or copied: it holds an access token; pass on the object itself")
