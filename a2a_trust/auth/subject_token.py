"""The access token of a caller, for handlers that call other agents on the caller's behalf (RFC 8693).

No part of a request holds the token. It is kept here, for one object that belongs to one request: the credentials that
the middleware puts into ``scope["auth"]``, and that the a2a-sdk passes on in the state of its call context.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn, final
from weakref import finalize

from a2a_trust.errors import ConfigurationError, MissingCredentialsError

__all__ = ["SubjectToken", "keep_for", "subject_token_of"]


@final
class SubjectToken:
    """The verified access token of a caller, as the ``subject_token`` of a token exchange (RFC 8693 2.1).

    ``issuer`` and ``subject`` are those of its identity. It is good until just before ``expires_at`` (seconds since the
    epoch). A token may be bound to a key of the caller (``Identity.bound_to``): the authorization server decides
    whether it exchanges such a token. Only ``reveal`` gives the text; the repr does not have it, and copies and pickles
    are refused with a TypeError.
    """

    __slots__ = ("_text", "expires_at", "issuer", "subject")

    def __init__(self, text: str, *, issuer: str, subject: str, expires_at: float) -> None:
        self._text: Final = text
        self.issuer: Final = issuer
        self.subject: Final = subject
        self.expires_at: Final = expires_at

    def reveal(self) -> str:
        """The text of the token: secret. Send it to the authorization server, and write it nowhere."""
        return self._text

    def __repr__(self) -> str:
        return f"SubjectToken(issuer={self.issuer!r}, subject={self.subject!r}, expires_at={self.expires_at!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a SubjectToken is not pickled or copied: it holds an access token; pass on the object itself")


_KEPT: Final[dict[int, SubjectToken | None]] = {}
"""The tokens of live requests, by the ``id`` of their credentials; None where the caller has no token.

An ``id`` and not the object: two callers with the same scopes must never be one key, whatever a release of Starlette
says about the equality of credentials. An entry ends with its object, so no other object has that ``id`` meanwhile.
"""


def keep_for(credentials: object, token: SubjectToken | None) -> None:
    """Keep the token of a request for as long as its credentials object lives."""
    _KEPT[id(credentials)] = token
    finalize(credentials, _KEPT.pop, id(credentials), None)


def subject_token_of(context: Any) -> SubjectToken:
    """The access token of the caller whose request this is, with ``RequestRules(keep_subject_token=True)``.

    ``context`` is an ASGI scope, a request or websocket of Starlette or FastAPI, or a ``RequestContext`` or
    ``ServerCallContext`` of the a2a-sdk.

    ConfigurationError: no token is kept for this request, or the request did not come through ``protect``.
    MissingCredentialsError: the caller is anonymous, or proved who it is without an access token.
    """
    credentials = _credentials_of(context)
    try:
        token = _KEPT[id(credentials)]
    except KeyError:
        raise ConfigurationError(
            "subject_token_of: no token is kept for this request; pass rules=RequestRules(keep_subject_token=True) to "
            'protect(app, …), and do not replace scope["auth"]'
        ) from None
    if token is None:
        raise MissingCredentialsError(
            "subject_token_of: this caller has no access token; it is anonymous, or known by another credential"
        )
    return token


def _credentials_of(context: Any) -> object:
    """What the middleware has put into the scope, found by the names that Starlette and the a2a-sdk give it."""
    place = context
    # RequestContext has call_context; requests have scope, and some have a state of their own; ServerCallContext has
    # state.
    for name in ("call_context", "scope", "state"):
        if not isinstance(place, Mapping):
            place = getattr(place, name, place)
    credentials = place.get("auth") if isinstance(place, Mapping) else None
    if credentials is None:
        raise ConfigurationError(
            "subject_token_of: protect() has not authenticated this request, or its path is public; wrap the "
            "application, and pass the request, its scope, or the context that the a2a-sdk gives"
        )
    return credentials
