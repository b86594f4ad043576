"""Credentials that an authorization server issues: for the program itself, for a user, or on behalf of a caller.

``oauth`` requests and caches the tokens. Source: RFC 6749 4.4 and 6, RFC 7523, RFC 8693, RFC 8707.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from heapq import nsmallest
from typing import Any, ClassVar

from a2a_trust.auth.principal import SubjectToken
from a2a_trust.base.net.metadata import SCOPE
from a2a_trust.card.view import SecurityScheme
from a2a_trust.client.credentials import PRINTABLE, Credential, CredentialValue, Secret, check_secret, hide, text_of
from a2a_trust.client.flow import Ask, Flow
from a2a_trust.client.oauth import (
    ACCESS_TYPE,
    EXCHANGE,
    ID_JAG,
    ID_TOKEN_TYPE,
    JWT_BEARER,
    OAuthClient,
    TokenRequest,
    unverified,
)
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
        self.lacks_resource: bool = not (self._resources or audience)

    def mismatch(self, scheme: SecurityScheme, scopes: frozenset[str]) -> str:
        beyond = scopes - self.allowed_scopes
        missing = f"allowed_scopes does not have '{shorten(nsmallest(9, beyond), ' ')}'" if beyond else ""
        return self._client.mismatch(scheme) or missing

    def may_step_up(self, scopes: frozenset[str]) -> frozenset[str]:
        return scopes & self.allowed_scopes

    def renew(self, value: CredentialValue) -> bool:
        self._client.forget(value)
        return True

    def _token(
        self, scopes: frozenset[str], grant_type: str, subject: object = "", **more: Any
    ) -> Flow[CredentialValue]:
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
    ``AsyncClient``. Without it, the new token is only in memory, and lost at the end of the program. If
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
        flight, late = ("refresh", self._subject), {"refresh_token": self._refresh_token}
        return self._token(scopes, "refresh_token", self._subject, flight=flight, late=late, rotated=self._rotate)

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


class _OnBehalf(_Grant):
    """A credential to act for the caller whose token is given as ``subject_token``."""

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
        is_hidden = isinstance(subject_token, SubjectToken | CredentialValue)
        self._subject_token = subject_token if is_hidden else hide(subject_token)
        del subject_token  # tracebacks show locals
        super().__init__(client, origins=origins, allowed_scopes=allowed_scopes, resource=resource, audience=audience)
        check_secret(self._subject_token, type(self).__name__)

    def _subject(self) -> Flow[tuple[CredentialValue, SubjectToken | None]]:
        """The text of the subject token, and the token as the guard verified it; None if only the text is given."""
        given: object = self._subject_token
        if callable(given):
            given = yield Ask(given)
        if isinstance(given, SubjectToken):
            if given.expires_at <= self._client.clock():
                raise TokenRequestError(
                    f"{type(self).__name__}: the caller's token has expired; answer 401, so that the caller sends a "
                    "new one"
                )
            return CredentialValue(given.reveal()), given
        if isinstance(given, str) and PRINTABLE.fullmatch(given):
            given = CredentialValue(given)
        if isinstance(given, CredentialValue):
            return given, None
        del given  # tracebacks show locals
        raise ConfigurationError(
            f"{type(self).__name__}: the function returns neither a SubjectToken nor a text of printable ASCII"
        )


class TokenExchange(_OnBehalf):
    """A token to act on behalf of the caller whose token is exchanged (RFC 8693).

    ``subject_token`` is the result of ``subject_token_of``, or a text, or a function that returns either of them for
    the current request. With a function, one ``TokenExchange`` serves all callers. New tokens are cached for each
    subject token, and never longer than its own lifetime.
    """

    def obtain(self, scopes: frozenset[str]) -> Flow[CredentialValue]:
        subject, verified = yield from self._subject()
        expires_at = math.inf if verified is None else verified.expires_at
        exchanged = {"subject_token": subject, "subject_token_type": ACCESS_TYPE, "requested_token_type": ACCESS_TYPE}
        token = self._token(scopes, EXCHANGE, _digest(subject), parameters=exchanged, expires_at=expires_at)
        return (yield from token)


class IdentityAssertion(_OnBehalf):
    """A token to act on behalf of a caller whose authorization server is not the agent's.

    ``client`` is the program at the agent's authorization server. ``provider`` is the program at the identity provider
    of the caller. For each new token the provider exchanges ``subject_token`` for an assertion (ID-JAG) that only the
    server of ``client`` accepts, and only from this client; that server issues the token for it (RFC 7523). An
    assertion is sent once and is not cached. A new token is, for its subject token, and never longer than that lives.

    ``subject_token`` is the result of ``subject_token_of``, or the text of an ID token, or a function that returns
    either of them for the current request. A result of ``subject_token_of`` also limits the scopes: the new token has
    no scope that the caller's token does not have. ``resource`` (RFC 8707) names the agents that the token is for.

    Source: draft-ietf-oauth-identity-assertion-authz-grant-03.
    """

    def __init__(
        self,
        client: OAuthClient,
        subject_token: SubjectToken | Secret | Callable[[], SubjectToken | Awaitable[SubjectToken]],
        *,
        provider: OAuthClient,
        origins: Iterable[str],
        allowed_scopes: Iterable[str],
        resource: str | Iterable[str] = (),
    ) -> None:
        hidden: Any = subject_token if isinstance(subject_token, SubjectToken) else hide(subject_token)
        del subject_token  # tracebacks show locals
        super().__init__(client, hidden, origins=origins, allowed_scopes=allowed_scopes, resource=resource)
        if not isinstance(provider, OAuthClient):
            raise ConfigurationError(
                "IdentityAssertion: provider is not an OAuthClient; write provider=OAuthClient(…) with this program's "
                "client at the identity provider of its callers"
            )
        self._provider = provider

    def obtain(self, scopes: frozenset[str]) -> Flow[CredentialValue]:
        subject, verified = yield from self._subject()
        provider, at_most, expires_at, kind = self._provider, self.allowed_scopes, math.inf, ID_TOKEN_TYPE
        if verified is not None:
            if verified.issuer != provider.issuer:  # which must not get the tokens of others
                raise TokenRequestError(
                    f"IdentityAssertion: the caller's token is by {verified.issuer!a:.200}, not by the provider "
                    f"{provider.issuer}; use a provider for each issuer of callers"
                )
            at_most, expires_at, kind = at_most & verified.scopes, verified.expires_at, ACCESS_TYPE
        if beyond := scopes - at_most:
            raise TokenRequestError(
                f"IdentityAssertion: the caller's token does not have '{shorten(nsmallest(9, beyond), ' ')}', and a "
                "token on behalf of the caller may not allow more; answer 403, or let callers ask for these scopes"
            )
        # Not only the caller decides: another credential of the client may have another provider and other scopes.
        about = _digest(subject), provider.issuer, provider.token_endpoint, provider.client_id, at_most
        late = {"assertion": partial(self._assertion, subject, kind, scopes, at_most)}
        return (yield from self._token(scopes, JWT_BEARER, about, late=late, expires_at=expires_at, at_most=at_most))

    def _assertion(
        self, subject: CredentialValue, kind: str, scopes: frozenset[str], at_most: frozenset[str]
    ) -> Flow[CredentialValue]:
        exchanged = {"subject_token": subject, "subject_token_type": kind, "requested_token_type": ID_JAG}
        about: Any = {"audience": self._client.issuer, "resources": self._resources, "parameters": exchanged}
        request = TokenRequest(grant_type=EXCHANGE, scopes=scopes, at_most=at_most, **about)
        assertion = yield from self._provider.request_token(request)
        if why := self._flaw(assertion, at_most):
            raise TokenRequestError(
                f"{self._provider.issuer}: the assertion is not sent to {self._client.issuer}: {why}"
            )
        return assertion

    def _flaw(self, assertion: CredentialValue, at_most: frozenset[str]) -> str:
        """Why the assertion is for something else than was requested, so that its recipient could misuse it; "" if it
        is as requested. The recipient verifies its signature and times."""
        header, claims = unverified(assertion)
        if str(header.get("typ")).lower().removeprefix("application/") != "oauth-id-jag+jwt":
            return "it is not a JWT with the typ oauth-id-jag+jwt"
        issuer, client_id, scope = self._client.issuer, self._client.client_id, claims.get("scope", "")
        resource = claims.get("resource", [])
        resources = [resource] if isinstance(resource, str) else resource
        if claims.get("aud") not in (issuer, [issuer]):
            return f"its aud is {claims.get('aud')!a:.200}"
        if claims.get("client_id") != client_id:
            return f"its client_id is {claims.get('client_id')!a:.200}, not {client_id!a}; map it at the provider"
        if not isinstance(scope, str) or not at_most.issuperset(scope.split()):
            return f"its scope {scope!a:.200} is wider than the caller and allowed_scopes allow"
        if self._resources and not (isinstance(resources, list) and all(each in self._resources for each in resources)):
            return f"its resource is {resource!a:.200}"
        return ""


def _digest(value: CredentialValue) -> str:
    return hashlib.sha256(value.text.encode()).hexdigest()
