"""The credentials of a client, each bound to origins.

The rules:

1. A credential names its origins (``https://agent.example.com``). It is sent to no other origin, whatever a card says.
2. It satisfies only security schemes of its kind, at the place that the scheme names.
3. A secret is a value, a function that is called for each request, or a file that is read again after a change.
4. No repr, error or pickle contains a secret.
5. A token that is bound to a key (RFC 9449) goes with a proof for each request: its method, its URL without query and
   fragment, the time, and the token. A nonce from a server is used only in the next proofs for that server.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import secrets
import time
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

from a2a_trust.base import strict_json
from a2a_trust.base.cache import BoundedCache
from a2a_trust.base.files.watched import Stamp, Watched, log_outcome, open_regular, reason_of, stamp_of, stamp_of_path
from a2a_trust.card.places import WORDS_FOR_TOKENS, CookiePlace, HeaderPlace, QueryPlace
from a2a_trust.card.view import ApiKeyScheme, HttpScheme, NamedScheme, OAuth2Scheme, OpenIdConnectScheme, SecurityScheme
from a2a_trust.client.destinations import named_origins
from a2a_trust.client.flow import Ask, Flow
from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys import base64url
from a2a_trust.keys.jws import read_header
from a2a_trust.keys.signer import HoldsSecret, Signer, sign_jwt

_log: Final = getLogger(__name__)

_MAX_BYTES: Final = 65_536
PRINTABLE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")  # a secret, without blanks around it
TOKEN68: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # a token in a header (RFC 9110 11.2)
_NONCE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,1024}")  # 1*NQCHAR (RFC 9449 8.1), of bounded length
_MAX_ORIGINS: Final = 64  # with a cached nonce, for one key
_PLACE: Final = 'InHeader("X-API-Key")'
_FROM_SERVER: Final = "ClientCredentials(OAuthClient(…), origins=[…], allowed_scopes=[…])"


class DPoPProofs:
    """Makes the proofs of one key, and the nonces that servers gave for them, by origin.

    Threads and tasks may share one. ``clock`` gives seconds since the epoch. Source: RFC 9449 4 and 8.
    """

    def __init__(self, signer: Signer, clock: Callable[[], float] = time.time) -> None:
        self._signer = signer
        self._clock = clock
        self._header = {"typ": "dpop+jwt", "alg": signer.alg, "jwk": dict(signer.public_key.jwk)}
        self._nonces = BoundedCache[str, str](max_entries=_MAX_ORIGINS)

    def proof(self, method: str, origin: str, path: str, ath: str | None) -> str:
        """A proof for one request, with the newest nonce of that origin; ``ath`` is the hash of its access token."""
        claims = {"jti": secrets.token_urlsafe(16), "htm": method, "htu": f"{origin}{path}", "iat": int(self._clock())}
        known = {"ath": ath, "nonce": self._nonces.get(origin)}
        claims |= {name: value for name, value in known.items() if value is not None}
        return sign_jwt(self._header, claims, self._signer)

    def learn(self, origin: str, lines: list[str]) -> bool:
        """Cache the nonce in the ``DPoP-Nonce`` lines of an answer; returns whether there was a valid one."""
        nonce = nonce_of(lines)
        if nonce is not None:
            self._nonces.put(origin, nonce)
        return nonce is not None

    def __repr__(self) -> str:
        return f"DPoPProofs(jkt={self._signer.public_key.thumbprint!r})"


def ath_of(token: str) -> str:
    return base64url.encode(hashlib.sha256(token.encode("ascii")).digest())


def nonce_of(lines: list[str]) -> str | None:
    """The nonce in the ``DPoP-Nonce`` lines of an answer; None if there is no valid one."""
    return lines[0] if len(lines) == 1 and _NONCE.fullmatch(lines[0]) else None


class SecretFile(HoldsSecret):
    """A secret in a file: its text, without the line break at its end. The file is read again after a change.

    If the new content cannot be read, the previous secret stays in use, with an error in the log. ConfigurationError:
    the file does not exist, is empty, or is not one line of printable ASCII.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        look, failures = partial(stamp_of_path, self._path), (OSError, MalformedError)
        try:
            self._watched = Watched(self._read, look, failures=failures, tell=log_outcome(_log, self))
        except failures as error:
            raise ConfigurationError(
                f"SecretFile: {self._path}: {reason_of(error)}; name a file that has only the secret, on one line"
            ) from None

    def read(self) -> str:
        return self._watched.value().text

    __call__ = read

    def _read(self) -> tuple[CredentialValue, Stamp]:
        with open_regular(self._path) as file:
            stamp = stamp_of(os.fstat(file.fileno()))
            read = CredentialValue(file.read(_MAX_BYTES + 1).decode("ascii", errors="replace"))
        if len(read.text) > _MAX_BYTES:
            raise MalformedError(f"the file is larger than {_MAX_BYTES} bytes")
        value = CredentialValue(read.text.rstrip("\r\n"))
        if not PRINTABLE.fullmatch(value.text):
            raise MalformedError("the file is empty, or is not a single line of printable ASCII")
        return value, stamp

    def __repr__(self) -> str:
        return f"SecretFile({str(self._path)!r})"


Secret: TypeAlias = str | Callable[[], str | Awaitable[str]] | SecretFile
"""A secret: its text, a function that returns it (asynchronous for ``AsyncClient``), or a file."""


class CredentialValue(HoldsSecret):
    """The text of a credential as a request carries it, with ``proofs`` if every request needs a DPoP proof, too.

    ``password`` is the password that the text encodes, if it does. The value may be used again before ``until``, in
    seconds since the epoch. Its repr is empty, because tracebacks, logs and debuggers show locals; it is no dataclass,
    because writers of JSON write the members of those.
    """

    __slots__ = ("password", "proofs", "text", "until")

    text: str
    proofs: DPoPProofs | None
    until: float
    password: str

    def __init__(
        self, text: str, proofs: DPoPProofs | None = None, *, until: float = -math.inf, password: str = ""
    ) -> None:
        self.text, self.proofs, self.until, self.password = text, proofs, until, password or text

    def is_in(self, text: str) -> bool:
        text = text.lower()
        return self.text.lower() in text or self.password.lower() in text

    def __repr__(self) -> str:
        return "CredentialValue(…)"


HiddenSecret: TypeAlias = CredentialValue | Callable[[], str | Awaitable[str]]
"""A secret from ``hide``: ``vars`` and tracebacks do not show its text."""


def hide(secret: Any) -> HiddenSecret:
    """Every value except a function or a file is hidden, because it may be a text."""
    return secret if callable(secret) else CredentialValue(secret)


class Credential(HoldsSecret, ABC):
    """A credential for one security scheme."""

    depends_on_request: ClassVar[bool] = False
    """Whether another request may need another value."""

    def __init__(self, origins: Iterable[str]) -> None:
        self.origins: Final[frozenset[str]] = named_origins(origins)

    @abstractmethod
    def mismatch(self, scheme: SecurityScheme, scopes: frozenset[str]) -> str:
        """Why this credential does not satisfy the scheme with those scopes; "" when it does."""

    @abstractmethod
    def obtain(self, scopes: frozenset[str]) -> Flow[CredentialValue]:
        """Obtain the value. TrustError: it cannot be obtained."""

    @abstractmethod
    def renew(self, value: CredentialValue) -> bool:
        """Forget a value that was rejected; whether ``obtain`` may give another one."""

    def may_step_up(self, scopes: frozenset[str]) -> frozenset[str] | None:  # noqa: ARG002
        """The scopes that a step-up may request; None: this credential has no step-up."""
        return None

    def __repr__(self) -> str:
        # It works before __init__ has finished: tracebacks show locals.
        return f"{type(self).__name__}(…, origins={sorted(getattr(self, 'origins', ()))!r})"


class _Held(Credential):
    """A credential that the program has; no server issues it."""

    def __init__(self, secret: HiddenSecret, origins: Iterable[str]) -> None:
        super().__init__(origins)
        self._what = type(self).__name__
        check_secret(secret, self._what)
        self._secret = secret
        self._fixed = self._value(secret.text, until=math.inf) if isinstance(secret, CredentialValue) else None

    def _value(self, text: str, *, until: float = -math.inf) -> CredentialValue:
        return CredentialValue(text, until=until)

    def obtain(self, scopes: frozenset[str]) -> Flow[CredentialValue]:  # noqa: ARG002
        return self._fixed or self._value((yield from text_of(self._secret, self._what)))

    def renew(self, value: CredentialValue) -> bool:  # noqa: ARG002
        return self._fixed is None


class ApiKey(_Held):
    """An API key, sent where the card's scheme says: in a header, a query parameter or a cookie.

    ``place`` is only for cards of 0.1, which do not name a place: the same as in ``CredentialAt`` of the server.
    """

    def __init__(
        self, key: Secret, *, origins: Iterable[str], place: HeaderPlace | QueryPlace | CookiePlace | None = None
    ) -> None:
        secret = hide(key)
        del key  # tracebacks show locals
        super().__init__(secret, origins)
        if not isinstance(place, HeaderPlace | QueryPlace | CookiePlace | None):
            raise ConfigurationError(
                'ApiKey: place is not a place; write place=InHeader("X-API-Key"), from a2a_trust.auth'
            )
        self.place: Final[HeaderPlace | QueryPlace | CookiePlace | None] = place

    def mismatch(self, scheme: SecurityScheme, scopes: frozenset[str]) -> str:  # noqa: ARG002
        if isinstance(scheme, NamedScheme) and http_scheme(scheme) not in ("basic", "bearer"):
            return "" if self.place else f"the card does not say where: pass ApiKey(…, place={_PLACE})"
        if not isinstance(scheme, ApiKeyScheme):
            return "an ApiKey does not answer it"
        return "the card says where: leave out place=" if self.place else ""


class BasicCredentials(_Held):
    """A user name and a password for HTTP Basic (RFC 7617). The password is printable ASCII, the user name any text."""

    def __init__(self, username: str, password: Secret, *, origins: Iterable[str]) -> None:
        secret = hide(password)
        del password  # tracebacks show locals
        if ":" in username or not username.isprintable():
            raise ConfigurationError(
                "BasicCredentials: username has a colon or an unprintable character, which HTTP Basic cannot send "
                "(RFC 7617 2); use another user name"
            )
        self._username = username
        super().__init__(secret, origins)

    def _value(self, text: str, *, until: float = -math.inf) -> CredentialValue:
        encoded = b64encode(f"{self._username}:{text}".encode()).decode("ascii")
        return CredentialValue(encoded, until=until, password=text)

    def mismatch(self, scheme: SecurityScheme, scopes: frozenset[str]) -> str:  # noqa: ARG002
        return "" if http_scheme(scheme) == "basic" else "BasicCredentials do not answer it"


class BearerToken(_Held):
    """An access token that the program obtains; its scopes are not checked. ``dpop``: the key that it is bound to."""

    def __init__(self, token: Secret, *, origins: Iterable[str], dpop: Signer | None = None) -> None:
        secret = hide(token)
        del token  # tracebacks show locals
        self._proofs = None if dpop is None else DPoPProofs(dpop)
        super().__init__(secret, origins)

    def _value(self, text: str, *, until: float = -math.inf) -> CredentialValue:
        if not TOKEN68.fullmatch(text):
            del text  # tracebacks show locals
            raise ConfigurationError(
                'BearerToken: the text is not a token; pass only the token, without "Bearer " or "DPoP "'
            )
        return CredentialValue(text, self._proofs, until=until)

    def mismatch(self, scheme: SecurityScheme, scopes: frozenset[str]) -> str:  # noqa: ARG002
        takes_token = isinstance(scheme, OAuth2Scheme | OpenIdConnectScheme) or http_scheme(scheme) == "bearer"
        return "" if takes_token else "a BearerToken does not answer it"


def http_scheme(scheme: SecurityScheme) -> str:
    """The HTTP authentication scheme, also from a 0.1 card; "" for another kind of scheme."""
    if isinstance(scheme, HttpScheme):
        return scheme.scheme
    word = scheme.name.lower() if isinstance(scheme, NamedScheme) else ""
    return "bearer" if word in WORDS_FOR_TOKENS else word


def kind_of(scheme: SecurityScheme) -> tuple[str, str]:
    """The kind of credential that a scheme asks for, and the code that makes one, for an error."""
    match scheme:
        case ApiKeyScheme():
            return f"an API key in the {scheme.location} {_cut(scheme.parameter)}", "ApiKey(…, origins=[…])"
        case OAuth2Scheme():
            urls = [url for flow in scheme.flows for name, url in flow.urls if name == "tokenUrl"]
            where = f" from {', '.join(map(_cut, urls))}" if urls else ""
            return f"an OAuth 2.0 token{where}", _FROM_SERVER
        case OpenIdConnectScheme():
            return f"a token of the OpenID provider of {_cut(scheme.discovery_url)}", _FROM_SERVER
        case HttpScheme() | NamedScheme():
            name = http_scheme(scheme)
            if name == "basic":
                return "HTTP Basic", "BasicCredentials(…, origins=[…])"
            if name == "bearer":
                return "an HTTP bearer token", "BearerToken(…, origins=[…])"
            if name == "apikey":
                text = "an API key, as cards of 0.1 do, which do not say where: ask the agent's operator for its place"
                return text, f"ApiKey(…, origins=[…], place={_PLACE})"
            return f"a scheme that a2a-trust does not know ({_cut(name)})", "another alternative"
    return "a client certificate", "CertificateFiles(…, origins=[…])"


def _cut(text: str) -> str:
    return ascii(text[:80])[1:-1][:80]  # texts of a hostile card may be long


def unverified(token: CredentialValue) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Header and claims of a JWT, for checks before it is sent to a server that verifies it, and for texts; both empty
    if it is not a JWT. Nothing is raised, because tracebacks show locals."""
    protected, _, rest = token.text.partition(".")
    try:
        header = read_header(protected)
        claims = strict_json.parse(base64url.decode(rest.partition(".")[0], "claims"), what="claims")
    except MalformedError:
        return {}, {}
    return (header, claims) if type(claims) is dict else ({}, {})


def check_secret(secret: object, what: str) -> None:
    """ConfigurationError: it is not a secret. So a missing variable of the environment is found at start."""
    if isinstance(secret, CredentialValue):
        if not isinstance(secret.text, str):
            raise ConfigurationError(
                f"{what}: the secret is not a string; write its text, a function that returns it, or SecretFile(path)"
            )
        _check_text(secret.text, what)


def text_of(secret: HiddenSecret, what: str) -> Flow[str]:
    return _check_text(secret.text if isinstance(secret, CredentialValue) else (yield Ask(secret)), what)


def _check_text(given: object, what: str) -> str:
    if isinstance(given, str) and PRINTABLE.fullmatch(given):
        return given
    del given  # tracebacks show locals
    raise ConfigurationError(f"{what}: the secret is not printable ASCII without blanks around it; check its source")
