"""Credentials that an authorization server issues: for the program itself, for a user, or on behalf of a caller.

``oauth`` requests and caches the tokens. Source: RFC 6749 4.4 and 6, RFC 8693, RFC 8707.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Awaitable, Callable, Iterable
from heapq import nsmallest
from typing import Any, ClassVar

from a2a_trust.auth.principal import SubjectToken
from a2a_trust.base.net.metadata import SCOPE
from a2a_trust.card.view import SecurityScheme
from a2a_trust.client.credentials import PRINTABLE, Credential, CredentialValue, Secret, check_secret, hide, text_of
from a2a_trust.client.flow import Ask, Flow
from a2a_trust.client.oauth import ACCESS_TYPE, EXCHANGE, OAuthClient, TokenRequest
from a2a_trust.errors import ConfigurationError, TokenRequestError
from a2a_trust.signing.forms import shorten


class _Grant(Credential):
    """A credential that an authorization server issues."""

    def __init__(
        self,
        client: OAuthClient,
        *,
        origins: Iterable[str],
        allowed_scopes: Iterable[str],
        resource: str | Iterable[str] = (),
        audience: str = "",
    ) -> None:
        super().__init__(origins)
        if not isinstance(client, OAuthClient):
            raise ConfigurationError(
                f"{type(self).__name__}: the first argument is not an OAuthClient; write "
                f"{type(self).__name__}(OAuthClient(…), …)"
            )
        self._client = client
        self.allowed_scopes: frozenset[str] = frozenset(allowed_scopes)
        if isinstance(allowed_scopes, str) or not all(map(SCOPE.fullmatch, self.allowed_scopes)):
            raise ConfigurationError('allowed_scopes: write a list of scopes, ["read", "write"]; [] allows no scope')
        self._resources = (resource,) if isinstance(resource, str) else tuple(resource)
        self._audience = audience
        self.lacks_resource = not (self._resources or audience)

    def mismatch(self, scheme: SecurityScheme, scopes: frozenset[str]) -> str:
        beyond = scopes - self.allowed_scopes
        missing = f"allowed_scopes does not have '{shorten(nsmallest(9, beyond), ' ')}'" if beyond else ""
        return self._client.mismatch(scheme) or missing

    def may_step_up(self, scopes: frozenset[str]) -> frozenset[str]:
        return scopes & self.allowed_scopes

    def renew(self, value: CredentialValue) -> bool:
        self._client.forget(value)
        return True

    def _token(self, scopes: frozenset[str], grant_type: str, subject: str = "", **more: Any) -> Flow[CredentialValue]:
        key = type(self), subject, self._audience, self._resources, scopes
        asked = {"grant_type": grant_type, "audience": self._audience, "resources": self._resources, "scopes": scopes}
        return self._client.token(TokenRequest(key=key, **{"flight": key, **asked, **more}))


class ClientCredentials(_Grant):
    """A token for the program itself (RFC 6749 4.4), for agents at ``origins``.

    ``allowed_scopes`` are the only scopes that a card can make the program request. ``resource`` (RFC 8707) names the
    agents that the token is for, so that an agent cannot use it at another one; some servers expect ``audience``.
    """

    def obtain(self, scopes: frozenset[str]) -> Flow[CredentialValue]:
        return self._token(scopes, "client_credentials")


class RefreshToken(_Grant):
    """Tokens for a user who has logged in elsewhere (RFC 6749 6).

    Servers rotate refresh tokens. ``on_rotation`` gets each new one: store it for the next start. It may be async for
    ``httpx.AsyncClient``. Without it, the new token is only in memory, and lost at the end of the program. If
    ``refresh_token`` is a function or a file, and its text changes, the new text is used.
    """

    def __init__(
        self,
        client: OAuthClient,
        refresh_token: Secret,
        *,
        origins: Iterable[str],
        allowed_scopes: Iterable[str],
        resource: str | Iterable[str] = (),
        audience: str = "",
        on_rotation: Callable[[str], object] | None = None,
    ) -> None:
        self._given = hide(refresh_token)
        del refresh_token  # tracebacks show locals
        super().__init__(client, origins=origins, allowed_scopes=allowed_scopes, resource=resource, audience=audience)
        check_secret(self._given, "RefreshToken")
        self._on_rotation = on_rotation
        self._subject = secrets.token_hex(16)  # keeps the tokens of logins apart
        self._current: CredentialValue | None = None
        self._digest = ""  # of the given token that ``_current`` continues

    def obtain(self, scopes: frozenset[str]) -> Flow[CredentialValue]:
        # One flight for all scopes: a refresh token that is used twice looks stolen to the server (RFC 9700 4.14.2).
        flight, login = ("refresh", self._subject), {"refresh_token": self._refresh_token, "rotated": self._rotate}
        return self._token(scopes, "refresh_token", self._subject, flight=flight, **login)

    def _refresh_token(self) -> Flow[CredentialValue]:
        given = CredentialValue((yield from text_of(self._given, "RefreshToken")))
        if self._current is None or _digest(given) != self._digest:
            self._current, self._digest = given, _digest(given)
        return self._current

    def _rotate(self, value: CredentialValue) -> Flow[None]:
        self._current = value
        keep = self._on_rotation
        if keep is not None:
            yield Ask(lambda: keep(value.text))


class TokenExchange(_Grant):
    """A token to act on behalf of the caller whose token is exchanged (RFC 8693).

    ``subject_token`` is the result of ``subject_token_of``, or a text, or a function that returns either of them for
    the current request. With a function, one ``TokenExchange`` serves all callers. New tokens are cached for each
    subject token, and never longer than its own lifetime.
    """

    depends_on_request: ClassVar[bool] = True

    def __init__(
        self,
        client: OAuthClient,
        subject_token: SubjectToken | Secret | Callable[[], SubjectToken | Awaitable[SubjectToken]],
        *,
        origins: Iterable[str],
        allowed_scopes: Iterable[str],
        resource: str | Iterable[str] = (),
        audience: str = "",
    ) -> None:
        self._subject_token = subject_token if isinstance(subject_token, SubjectToken) else hide(subject_token)
        del subject_token  # tracebacks show locals
        super().__init__(client, origins=origins, allowed_scopes=allowed_scopes, resource=resource, audience=audience)
        check_secret(self._subject_token, "TokenExchange")

    def obtain(self, scopes: frozenset[str]) -> Flow[CredentialValue]:
        subject, expires_at = yield from self._subject()
        if expires_at <= self._client.clock():
            raise TokenRequestError(
                "TokenExchange: the caller's token has expired; answer 401, so that the caller sends a new one"
            )
        exchanged = {"subject_token": subject, "subject_token_type": ACCESS_TYPE, "requested_token_type": ACCESS_TYPE}
        token = self._token(scopes, EXCHANGE, _digest(subject), parameters=exchanged, expires_at=expires_at)
        return (yield from token)

    def _subject(self) -> Flow[tuple[CredentialValue, float]]:
        given: object = self._subject_token
        if isinstance(given, CredentialValue):
            return given, math.inf
        if callable(given):
            given = yield Ask(given)
        if isinstance(given, SubjectToken):
            return CredentialValue(given.reveal()), given.expires_at
        if isinstance(given, str) and PRINTABLE.fullmatch(given):
            return CredentialValue(given), math.inf
        del given  # tracebacks show locals
        raise ConfigurationError(
            "TokenExchange: the function returns neither a SubjectToken nor a text of printable ASCII"
        )


def _digest(value: CredentialValue) -> str:
    return hashlib.sha256(value.text.encode()).hexdigest()
