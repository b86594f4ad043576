"""For clients on httpx: prove with every request that the access token is one's own (DPoP, RFC 9449).

One line where the token is fetched, and one where it is used::

    httpx.AsyncClient(auth=DPoPAuth(signer, origins=["https://login.example.com"]))
    httpx.AsyncClient(auth=DPoPAuth(signer, origins=["https://agent.example.com"], token=token))

The rules:

1. Proof and token go to the named origins alone, over https. For any other the request is not sent. This is not so
   where the client follows redirects, which httpx does not do unless told: then it sends proof and body on before this
   class sees the answer, which it refuses (rule 5) too late. Never write follow_redirects=True beside it.
2. Every request has a proof of its own: of its method, of its URL without query and fragment, of this moment, and of
   the token if there is one.
3. What a server gives as its nonce goes into the next proofs for that server, and for no other.
4. A request that is refused for want of a nonce is sent once more, with the nonce that came with the refusal. The
   answer to that is the answer.
5. A redirected answer is not passed on: the proof was for another URL.

Not here: getting a new token when it has expired, which is what a function as ``token`` is for, and proofs for
websockets and gRPC, which are no business of httpx.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from typing import Any, Final, TypeAlias

import httpx

from a2a_trust import strict_json
from a2a_trust.errors import ConfigurationError, MalformedError, TrustError
from a2a_trust.keys import base64url
from a2a_trust.keys.jws import signing_input
from a2a_trust.keys.origins import host_of
from a2a_trust.keys.signer import Signer
from a2a_trust.net.addresses import is_this_machine

__all__ = ["DPoPAuth", "DPoPAuthError", "Token"]

Token: TypeAlias = str | Callable[[], str | Awaitable[str]]

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # token68 (RFC 9110 11.2)
_NONCE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,1024}")  # 1*NQCHAR (RFC 9449 8.1), of a length that is no load
# Two searches: one pattern with something in between would take the square of the header's length.
_SCHEME: Final = re.compile(r"\bdpop\b", re.IGNORECASE)
_ERROR: Final = re.compile(r'\berror *= *"?use_dpop_nonce\b', re.IGNORECASE)


class DPoPAuthError(TrustError, httpx.RequestError):
    """A request was not sent, or its answer is not passed on; the text says why, and what to do."""

    code = "dpop"


class DPoPAuth(httpx.Auth):
    """Proves with every request to ``origins`` that it is by who has the key of ``signer``.

    ``origins`` are scheme, host and port (``https://agent.example.com``): whom the proofs are for, and the token, if
    there is one. ``http://`` is for this machine only. ``token`` is an access token that is bound to the key, or a
    function, asynchronous if you like, that is asked before each request and gives the one that is good now; it is sent
    as ``Authorization: DPoP``. Without ``token`` the proof goes alone, as a token endpoint wants it, and what the
    request has in Authorization stays. ``clock`` gives seconds since the epoch.

    Requests fail with ``DPoPAuthError`` where nothing may be sent, or the answer cannot be used. Threads and tasks may
    share one. It remembers one nonce for each origin; neither its repr nor an error holds a token or a nonce.

    ConfigurationError: an origin that is none; a token that could not stand in a header, also when a function gives it.
    Source: RFC 9449 4 (proofs), 5 (tokens), 7 (resources), 8 and 9 (nonces).
    """

    def __init__(
        self,
        signer: Signer,
        *,
        origins: Iterable[str],
        token: Token | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._signer = signer
        self._origins = _named(origins)
        self._token = token if token is None or callable(token) else _checked(token)
        self._clock = clock
        header = {"typ": "dpop+jwt", "alg": signer.alg, "jwk": dict(signer.public_key.jwk)}
        self._protected = base64url.encode(_json(header))
        #: Origin -> what its server gave last.
        self._nonces: dict[str, str] = {}

    @property
    def jkt(self) -> str:
        """The RFC 7638 SHA-256 thumbprint of the key, as ``dpop_jkt`` and ``cnf.jkt`` have it (RFC 9449 6.1, 10)."""
        return self._signer.public_key.thumbprint

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        origin = self._origin_of(request)
        given = self._token() if callable(self._token) else self._token
        if inspect.isawaitable(given):
            if inspect.iscoroutine(given):
                given.close()  # else Python warns that nobody has waited for it
            raise ConfigurationError("token: an async function is for httpx.AsyncClient; give httpx.Client a plain one")
        flow = self._exchange(request, origin, given)
        sent = next(flow)
        while True:
            response = yield sent
            if self._says_in_body(response):
                response.read()
            try:
                sent = flow.send(response)
            except StopIteration:
                return

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        origin = self._origin_of(request)
        given = self._token() if callable(self._token) else self._token
        flow = self._exchange(request, origin, await given if inspect.isawaitable(given) else given)
        sent = next(flow)
        while True:
            response = yield sent
            if self._says_in_body(response):
                await response.aread()
            try:
                sent = flow.send(response)
            except StopIteration:
                return

    def _exchange(
        self, request: httpx.Request, origin: str, token: str | None
    ) -> Generator[httpx.Request, httpx.Response, None]:
        """The one flow of both clients."""
        if self._token is not None:
            request.headers["Authorization"] = f"DPoP {_checked(token)}"
        request.headers["DPoP"] = self._proof(request, token, self._nonces.get(origin))
        response = yield request
        nonce = self._learned(request, response, origin)
        if nonce is None or not self._wants_nonce(response):
            return
        if not isinstance(request.stream, httpx.ByteStream):
            raise DPoPAuthError(
                "the server wants a nonce in the proof, and the body is a stream, which cannot be sent twice; the "
                "nonce is remembered: send the request again",
                request=request,
            )
        request.headers["DPoP"] = self._proof(request, token, nonce)
        self._learned(request, (yield request), origin)

    def _proof(self, request: httpx.Request, token: str | None, nonce: str | None) -> str:
        url = request.url
        path, _, _ = url.raw_path.partition(b"?")
        claims: dict[str, Any] = {
            "jti": secrets.token_urlsafe(16),
            "htm": request.method,
            "htu": f"{_origin(url)}{path.decode('ascii')}",
            "iat": int(self._clock()),
        }
        if token is not None:
            claims["ath"] = base64url.encode(hashlib.sha256(token.encode("ascii")).digest())
        if nonce is not None:
            claims["nonce"] = nonce
        signed = signing_input(self._protected, _json(claims))
        return f"{signed.decode('ascii')}.{base64url.encode(self._signer.sign(signed))}"

    def _learned(self, request: httpx.Request, response: httpx.Response, origin: str) -> str | None:
        """The nonce that came with the answer, remembered for the next request; None when no usable one came."""
        if any(each.has_redirect_location for each in response.history):
            raise DPoPAuthError(
                f"the answer was redirected, to {_shown(response.url)}, and a proof is for one URL; "
                "use follow_redirects=False, and ask the right URL",
                request=request,
            )
        given = response.headers.get_list("DPoP-Nonce")
        if len(given) != 1 or not _NONCE.fullmatch(given[0]):
            return None
        nonce: str = given[0]
        self._nonces[origin] = nonce
        return nonce

    def _says_in_body(self, response: httpx.Response) -> bool:
        """Whether it may be a token endpoint's refusal, which only the body tells; others stay unread, for streams."""
        return self._token is None and response.status_code == 400

    def _wants_nonce(self, response: httpx.Response) -> bool:
        """Whether the request was refused for want of a nonce."""
        if response.status_code == 401:
            challenges = response.headers.get("WWW-Authenticate", "")
            return bool(_SCHEME.search(challenges) and _ERROR.search(challenges))
        if not self._says_in_body(response):
            return False
        try:
            answer = strict_json.parse(response.content)
        except MalformedError:
            return False
        return type(answer) is dict and answer.get("error") == "use_dpop_nonce"

    def _origin_of(self, request: httpx.Request) -> str:
        """The origin that the request goes to; DPoPAuthError when nothing may be sent there."""
        origin = _origin(request.url)
        if origin not in self._origins:
            raise DPoPAuthError(
                f"nothing was sent to {_shown(request.url)}: proofs and token of this DPoPAuth are for "
                f"{', '.join(sorted(self._origins))}; if they belong there too, add it to origins",
                request=request,
            )
        return origin

    def __repr__(self) -> str:
        return f"DPoPAuth(jkt={self.jkt!r}, origins={sorted(self._origins)!r})"


def _named(origins: Iterable[str]) -> frozenset[str]:
    named = frozenset(map(_origin_named, [origins] if isinstance(origins, str) else origins))
    if isinstance(origins, str) or not named:
        raise ConfigurationError(
            'origins: write a list of those that may have the token, ["https://agent.example.com"]'
        )
    return named


def _origin_named(text: str) -> str:
    try:
        host = host_of(text)  # what two readers could take for two hosts
        url = httpx.URL(text)
        if url.scheme not in ("https", "http") or url.raw_path != b"/" or text.endswith(("/", "?", "#")):
            raise ValueError
    except (MalformedError, ValueError, httpx.InvalidURL):
        raise ConfigurationError(
            f"origins: {ascii(text)[:80]}: write scheme, host and port alone, https://agent.example.com"
        ) from None
    if url.scheme == "http" and not is_this_machine(host):
        raise ConfigurationError(f"origins: {text!r}: http is for this machine only; write https://…")
    return _origin(url)


def _origin(url: httpx.URL) -> str:
    """Scheme, host and port in the one spelling that httpx gives them."""
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def _shown(url: httpx.URL) -> str:
    """The URL's origin for an error: the rest may hold secrets."""
    return ascii(_origin(url))[1:-1][:300]


def _checked(token: object) -> str:
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ConfigurationError("token: not the text of an access token; give that alone, without DPoP or Bearer")
    return token


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")
