"""Access tokens from the authorization server that the program names: RFC 6749, 7523, 8693, 8705, 8707, 9449.

They are for the program itself, for a user, or on behalf of a caller. The rules:

1. Secrets and assertions go to the configured token endpoint, through a ``Fetcher``: https, checked addresses, no
   redirects. URLs of a card are compared with the configuration, and never followed.
2. A token is requested with the scopes that a verified card demands, and only if ``allowed_scopes`` has all of them.
3. Tokens are cached by grant, scopes, resource, audience and subject, until shortly before they expire. Threads and
   tasks that need the same token share one request.
4. A server that grants fewer scopes, or a token that is not bound to the key although a proof was sent, is an error.

authlib writes the requests and authenticates the client. Flows that need a browser are not supported.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from heapq import nsmallest
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeAlias
from urllib.parse import quote_plus, urlencode

from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc6749.parameters import prepare_token_request

from a2a_trust.auth.principal import SubjectToken
from a2a_trust.base import strict_json
from a2a_trust.base.cache import BoundedCache
from a2a_trust.base.net.fetcher import Fetcher, FormAnswer, check_fetcher
from a2a_trust.base.net.metadata import SCOPE, EndpointClient, metadata_urls
from a2a_trust.card.view import OAuth2Scheme, OpenIdConnectScheme, SecurityScheme
from a2a_trust.client.credentials import (
    PRINTABLE,
    TOKEN68,
    Credential,
    CredentialValue,
    DPoPProofs,
    Secret,
    SecretFile,
    check_secret,
    hide,
    http_scheme,
    text_of,
    unverified,
)
from a2a_trust.client.flow import Ask, Awaited, Flow, HiddenHeaders, Slot, Slots, ToTheEnd, run_async
from a2a_trust.errors import ConfigurationError, FetchError, MalformedError, TokenRequestError
from a2a_trust.keys.signer import HoldsSecret, Signer, sign_jwt
from a2a_trust.keys.trust.origins import url_of
from a2a_trust.signing.forms import shorten

_MAX_TOKENS: Final = 1024  # cached for one client
_MARGIN_SECONDS: Final = 30.0
_MARGIN_SHARE: Final = 0.1
_UNSTATED_SECONDS: Final = 60.0  # for a token without ``expires_in``, which RFC 6749 5.1 only recommends
_ASSERTION_SECONDS: Final = 60
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_SVID_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-spiffe"
EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
ACCESS_TYPE: Final = "urn:ietf:params:oauth:token-type:access_token"
ID_TOKEN_TYPE: Final = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105  a name
_ISSUED_TYPES: Final = (ACCESS_TYPE, "urn:ietf:params:oauth:token-type:jwt")
_ERRORS: Final = frozenset({
    "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
    "invalid_scope", "invalid_target", "invalid_dpop_proof", "use_dpop_nonce", "access_denied",
    "temporarily_unavailable", "server_error",
})  # fmt: skip


class _Authentication(ABC):
    """How a client authenticates at the endpoints of an authorization server."""

    @abstractmethod
    def authentication_of(self, client: EndpointClient) -> Flow[ClientAuth]:
        """The function that adds the proof to a request."""

    async def authenticated(self, client: EndpointClient, url: str, form: str) -> tuple[HiddenHeaders, bytes]:
        """The headers and the form of a request that proves who the client is, as ``IntrospectionVerifier`` sends."""
        auth = await run_async(self.authentication_of(client))
        _, headers, content = auth.prepare("POST", url, {}, form)
        return HiddenHeaders(headers), content.encode("ascii")


class ClientSecret(HoldsSecret, _Authentication):
    """The client authenticates with a secret (RFC 6749 2.3.1), by ``method`` in a header or in the form."""

    def __init__(
        self, secret: Secret, *, method: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"
    ) -> None:
        self._secret = hide(secret)
        del secret  # tracebacks show locals
        self._method = method
        if method not in ("client_secret_basic", "client_secret_post"):
            raise ConfigurationError(
                f'ClientSecret: method={method!r:.40} is not known; write "client_secret_basic" or "client_secret_post"'
            )
        check_secret(self._secret, "ClientSecret")

    def authentication_of(self, client: EndpointClient) -> Flow[ClientAuth]:
        text = yield from text_of(self._secret, "ClientSecret")
        if self._method == "client_secret_post":
            return ClientAuth(client.client_id, text, self._method)
        # RFC 6749 2.3.1 encodes both, which authlib leaves to its caller.
        return ClientAuth(quote_plus(client.client_id), quote_plus(text), self._method)

    def __repr__(self) -> str:
        return f"ClientSecret(…, method={self._method!r})"


class PrivateKeyJwt(_Authentication):
    """The client authenticates with a signed assertion, ``private_key_jwt`` (RFC 7523 2.2, OpenID Connect Core 9).

    ``audience``: the ``aud`` that the server expects, by default its issuer (RFC 7523bis), or its token endpoint's URL.
    """

    def __init__(self, signer: Signer, *, audience: str | None = None) -> None:
        self._signer, self._audience = signer, audience

    def authentication_of(self, client: EndpointClient) -> Flow[ClientAuth]:
        yield from ()
        now = int(client.clock())
        parties = {"iss": client.client_id, "sub": client.client_id, "aud": self._audience or client.issuer}
        claims = {**parties, "iat": now, "exp": now + _ASSERTION_SECONDS, "jti": secrets.token_urlsafe(16)}
        header = {"typ": "JWT", "alg": self._signer.alg, "kid": self._signer.kid}
        # Made here, where no other secret is: a signer in a cloud may fail.
        assertion = CredentialValue(sign_jwt(header, claims, self._signer))
        return _with_assertion(client, assertion, client_id=client.client_id, client_assertion_type=_ASSERTION_TYPE)

    def __repr__(self) -> str:
        return f"PrivateKeyJwt(kid={self._signer.kid!r})"


class JwtSvid(HoldsSecret, _Authentication):
    """The client authenticates with its JWT-SVID, which an agent of SPIFFE renews in the file (jwt-spiffe).

    The file is read again after a change. The only ``aud`` of the JWT-SVID has to be the issuer of the server, so that
    the server cannot use it elsewhere. ConfigurationError: the file is not readable.
    Source: draft-ietf-oauth-spiffe-client-auth-02.
    """

    def __init__(self, path: Path | str) -> None:
        self._file = SecretFile(path)

    def authentication_of(self, client: EndpointClient) -> Flow[ClientAuth]:
        assertion = CredentialValue((yield from text_of(self._file, "JwtSvid")))
        if why := self._flaw(assertion, client):
            raise TokenRequestError(f"JwtSvid: {self._file!r}: {why}; check the agent that writes the file")
        return _with_assertion(client, assertion, client_assertion_type=_SVID_TYPE)

    def _flaw(self, assertion: CredentialValue, client: EndpointClient) -> str:
        """Why the server would reject the JWT-SVID, or could use it elsewhere; "" if it is as it should be."""
        _, claims = unverified(assertion)
        if not str(claims.get("sub")).startswith("spiffe://"):
            return "it is not a JWT-SVID: a JWT whose sub is a SPIFFE ID"
        if claims.get("aud") not in (client.issuer, [client.issuer]):
            return f"its aud is {claims.get('aud')!a:.200}, and must be only {client.issuer!a}"
        return "" if client.clock() < _seconds_of(claims.get("exp")) else "it has expired"

    def __repr__(self) -> str:
        return f"JwtSvid({self._file!r})"


def _with_assertion(client: EndpointClient, assertion: CredentialValue, **more: str) -> ClientAuth:
    added = CredentialValue(urlencode({**more, "client_assertion": assertion.text}))

    def method(auth: ClientAuth, verb: str, url: str, headers: Any, body: str) -> tuple[str, Any, str]:  # noqa: ARG001
        return url, headers, f"{body}&{added.text}"

    return ClientAuth(client.client_id, None, method)


@dataclass(frozen=True, slots=True)
class TlsClientAuth(_Authentication):
    """The client authenticates with its certificate (RFC 8705 2), and sends only its name in the form.

    The fetcher of the client has the certificate, with the origin of the token endpoint in its ``origins``:
    ``Fetcher(ssl_context=client_context(CertificateFiles(…)))``.
    """

    def authentication_of(self, client: EndpointClient) -> Flow[ClientAuth]:
        yield from ()
        return ClientAuth(client.client_id, None, "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """A request to the token endpoint. The token is cached by ``key``; of requests of one ``flight``, one is
    under way at a time. ``late`` are parameters that are obtained when the request is sent: a refresh token may have
    changed by then, and an assertion is for one request. ``rotated`` gets a new refresh token. A token with scopes that
    are not in ``at_most`` is an error."""

    grant_type: str
    key: tuple[object, ...] = ()
    flight: tuple[object, ...] = ()
    audience: str
    resources: tuple[str, ...]
    scopes: frozenset[str]
    parameters: Mapping[str, str | CredentialValue] = field(default_factory=dict)
    expires_at: float = math.inf
    at_most: frozenset[str] | None = None
    late: Mapping[str, Callable[[], Flow[CredentialValue]]] = field(default_factory=dict)
    rotated: Callable[[CredentialValue], Flow[None]] | None = None


_Issued: TypeAlias = "tuple[CredentialValue, frozenset[str], CredentialValue | None]"
"""An access token, its scopes, and a new refresh token."""


class OAuthClient(HoldsSecret):
    """The program as a client of one authorization server.

    - ``issuer``, ``token_endpoint``: the server's; get them from its operator, not from a card.
    - ``client_id``, ``authentication``: ``ClientSecret``, ``PrivateKeyJwt``, ``JwtSvid`` or ``TlsClientAuth``.
    - ``dpop``: all tokens are bound to this key (RFC 9449).
    - ``fetcher``: has the limits, the private origins, and the client's certificate.
    - ``clock``: gives seconds since the epoch.

    One client serves any number of credentials, threads and event loops. ConfigurationError: an argument is wrong, or
    the fetcher does not permit the URL.
    """

    def __init__(
        self,
        *,
        issuer: str,
        token_endpoint: str,
        client_id: str,
        authentication: ClientSecret | PrivateKeyJwt | JwtSvid | TlsClientAuth,
        dpop: Signer | None = None,
        fetcher: Fetcher | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not isinstance(authentication, _Authentication):
            raise ConfigurationError(
                "authentication: write ClientSecret(…), PrivateKeyJwt(signer), JwtSvid(path) or TlsClientAuth()"
            )
        if not client_id or not client_id.isascii() or not client_id.isprintable():
            raise ConfigurationError(
                "client_id: it is empty, or not printable ASCII; write the client's id at the authorization server"
            )
        self.issuer: Final[str] = issuer
        self.token_endpoint: Final[str] = token_endpoint
        self.client_id: Final[str] = client_id
        self.clock: Final[Callable[[], float]] = clock
        self._authentication = authentication
        check_fetcher(fetcher)
        self._fetcher = Fetcher() if fetcher is None else fetcher
        try:
            self._fetcher.loader(token_endpoint, configured=True)
            self._endpoint = url_of(token_endpoint)
        except (FetchError, MalformedError) as error:
            hint = "; pass fetcher=Fetcher(private_origins=[…])" if "private_origins" in str(error) else ""
            raise ConfigurationError(f"token_endpoint: {error}{hint}") from None
        self._metadata_urls = metadata_urls(issuer)
        self._proofs = None if dpop is None else DPoPProofs(dpop, clock)
        self._tokens = BoundedCache[tuple[object, ...], CredentialValue](max_entries=_MAX_TOKENS)
        self._slots = Slots()

    def mismatch(self, scheme: SecurityScheme) -> str:
        """Why tokens of this client do not satisfy the scheme; "" when they do."""
        urls: set[str] = set()
        if isinstance(scheme, OpenIdConnectScheme):
            metadata: str | None = scheme.discovery_url
        elif isinstance(scheme, OAuth2Scheme):
            metadata = scheme.metadata_url
            urls = {url for flow in scheme.flows for name, url in flow.urls if name in ("tokenUrl", "refreshUrl")}
        else:
            return "" if http_scheme(scheme) == "bearer" else "an access token does not answer it"
        if metadata is not None and metadata not in self._metadata_urls:
            return f"the OAuthClient is for the issuer {self.issuer}"
        if urls and self.token_endpoint not in urls:
            return f"the OAuthClient is for the token endpoint {self.token_endpoint}"
        return "" if urls or metadata else "the card names neither a token endpoint nor metadata; use BearerToken"

    def forget(self, value: CredentialValue) -> None:
        value.until = -math.inf
        self._tokens.remove_where(lambda entry: entry[0] is value)

    def token(self, request: TokenRequest) -> Flow[CredentialValue]:
        """The token, from the cache or the server. TokenRequestError: it gives none. FetchError: it is unreachable."""
        value = self._tokens.get(request.key, self.clock())
        if value is None:
            slot = Slot(self._slots, request.flight)
            # To its end: the server may have used up a refresh token when the one who asks is cancelled.
            value = yield ToTheEnd(self._in_slot(request, slot), slot.end)
        return value

    def _in_slot(self, request: TokenRequest, slot: Slot) -> Flow[CredentialValue]:
        """The token, or the failure, of a flow before this one; or else what the server says."""
        has_waited = yield from slot.wait()
        value = self._tokens.get(request.key, self.clock())
        if value is not None:
            return value
        key, error = slot.failure_before or ((), None)
        if error is not None and key == request.key:
            raise copy(error)
        if not (has_waited or slot.is_first or request.rotated is None):
            raise TokenRequestError(  # to use one refresh token twice would end the login
                "this thread waits for a token that its own event loop is fetching; use AsyncClient there, and "
                "not within a function that this token needs"
            )
        try:
            value = yield from self.request_token(request)
        except (TokenRequestError, FetchError) as error:  # a ConfigurationError may be of one kind of client only
            slot.failure = request.key, copy(error)
            raise
        self._tokens.put(request.key, value, until=value.until)
        return value

    def request_token(self, request: TokenRequest) -> Flow[CredentialValue]:
        """A new token or assertion from the server, which is not cached. Errors as ``token``."""
        now = self.clock()  # before asking: a token is no younger than its request
        value, granted, refresh_token = yield from self._receive_token(request, now)
        if refresh_token is not None and request.rotated is not None:
            yield from request.rotated(refresh_token)
        missing = request.scopes - granted
        if missing:
            raise TokenRequestError(
                f"{self.issuer} granted fewer scopes than were requested; missing: "
                f"{shorten(nsmallest(9, missing), ' ')}; grant them to the client on that server"
            )
        if request.at_most is not None and (beyond := granted - request.at_most):
            raise TokenRequestError(
                f"{self.issuer} granted more scopes than the caller and allowed_scopes allow: "
                f"{shorten(nsmallest(9, beyond), ' ')}; limit the client on that server"
            )
        return value

    def _receive_token(self, request: TokenRequest, now: float) -> Flow[_Issued]:
        answer, has_nonce = yield from self._send(request)
        if has_nonce and _error_of(answer) == "use_dpop_nonce":
            answer, _ = yield from self._send(request)
        if answer.status != 200:
            error = _error_of(answer)
            raise TokenRequestError(
                f"{self.issuer} rejects the token request of the client {self.client_id!a}: "
                f"{error or f'status {answer.status}, without an error of RFC 6749 5.2'}; "
                "the log of that server has the reason",
                error,
            )
        issued = _token_in(answer, request, self._proofs, now)
        if isinstance(issued, str):
            raise TokenRequestError(f"{self.issuer}: the answer of the token endpoint cannot be used: {issued}")
        return issued

    def _send(self, request: TokenRequest) -> Flow[tuple[FormAnswer, bool]]:
        """The answer, and whether it has a nonce for the next proof (RFC 9449 8.2)."""
        posted = yield from self._post(request)
        try:
            answer: FormAnswer = yield posted
        except FetchError as error:
            raise FetchError(f"no token from {self.issuer}: {error}", error.status) from None
        nonce = answer.headers.get("dpop-nonce", "")
        return answer, self._proofs is not None and self._proofs.learn(self._endpoint.origin, [nonce])

    def _post(self, request: TokenRequest) -> Flow[Awaited]:
        given = dict(request.parameters)
        for name, obtain in request.late.items():
            given[name] = yield from obtain()
        auth = yield from self._authentication.authentication_of(self)
        place = self._endpoint.origin, self._endpoint.path or "/"
        proof = {} if self._proofs is None else {"DPoP": self._proofs.proof("POST", *place, None)}
        # From here on nothing is raised: tracebacks show locals.
        parameters = {name: value if isinstance(value, str) else value.text for name, value in given.items()}
        resources = urlencode([("resource", each) for each in request.resources])
        wanted = {"audience": request.audience, "scope": sorted(request.scopes)}  # left out where they are empty
        form = prepare_token_request(request.grant_type, resources, **parameters, **wanted)
        _, headers, form = auth.prepare("POST", self.token_endpoint, {}, form)
        posted = form.encode("ascii")
        return Awaited(partial(self._fetcher.post_form, self.token_endpoint, posted, headers={**headers, **proof}))

    def __repr__(self) -> str:
        return f"OAuthClient(issuer={self.issuer!r}, client_id={self.client_id!r})"


def _members_or_reason(answer: FormAnswer) -> dict[str, Any] | str:
    """The members of the answer that are not null, or why it has none."""
    try:
        members = strict_json.parse(answer.body, what="answer")
    except MalformedError:
        return "it is malformed JSON"
    if type(members) is not dict:
        return "it is not a JSON object"
    return {name: value for name, value in members.items() if value is not None}


def _token_in(answer: FormAnswer, request: TokenRequest, proofs: DPoPProofs | None, now: float) -> _Issued | str:
    """The token (RFC 6749 5.1), or why the answer is not one. Nothing is raised, because tracebacks show locals."""
    members = _members_or_reason(answer)
    if isinstance(members, str):
        return members
    if why := _other_type(members, request, proofs):
        return why
    if not _is_text(members.get("access_token"), TOKEN68):
        return "access_token is not the text of a token"
    if not _is_text(members.get("refresh_token", "none"), PRINTABLE):
        return "refresh_token is not the text of a token"
    scope = members.get("scope")
    if not isinstance(scope, str | None):
        return "scope is not a string"
    seconds = _seconds_of(members.get("expires_in", _UNSTATED_SECONDS))
    if not 0 < seconds < math.inf:
        return "expires_in is not a positive number of seconds"
    until = min(now + seconds - min(_MARGIN_SECONDS, seconds * _MARGIN_SHARE), request.expires_at)
    granted = request.scopes if scope is None else frozenset(scope.split())
    refresh_token = CredentialValue(members["refresh_token"]) if "refresh_token" in members else None
    return CredentialValue(members["access_token"], proofs, until=until), granted, refresh_token


def _other_type(members: Mapping[str, Any], request: TokenRequest, proofs: DPoPProofs | None) -> str:
    """Why the issued token is of another type than was requested; "" if it is of that type."""
    kind, issued = str(members.get("token_type")).lower(), members.get("issued_token_type")
    if request.parameters.get("requested_token_type") == ID_JAG:
        is_one = (kind, issued) == ("n_a", ID_JAG)
        return "" if is_one else "token_type is not N_A, or issued_token_type does not name an ID-JAG"
    if proofs is None and kind != "bearer":
        return "token_type is not bearer"
    if proofs is not None and kind != "dpop":
        return "token_type is not dpop, so the token is not bound to the key: leave dpop out, or enable it there"
    is_right = request.grant_type != EXCHANGE or issued in _ISSUED_TYPES
    return "" if is_right else "issued_token_type does not name an access token (RFC 8693 2.2.1)"


def _is_text(given: object, syntax: re.Pattern[str]) -> bool:
    return type(given) is str and syntax.fullmatch(given) is not None


def _seconds_of(given: object) -> float:
    """0 for what is not a number. Some servers write it as a string."""
    if type(given) is str and given.isascii() and given.isdigit():
        return float(given)
    return float(given) if isinstance(given, int | float) and given is not True else 0.0


def _error_of(answer: FormAnswer) -> str:
    """The error of RFC 6749 5.2 and its extensions; "" for every other text, which may repeat a secret."""
    members = _members_or_reason(answer)
    error = None if isinstance(members, str) else members.get("error")
    return error if type(error) is str and error in _ERRORS else ""


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
