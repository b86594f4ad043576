"""The credentials that a request of a probe carries: none, wrong ones, and the operator's own.

The rules:

1. Wrong credentials are random and new for each request, with invented user names, so no one is locked out.
2. The operator's credentials come from ``client.answer``, which binds each to its origins. Parts and replicas of them
   are never made: the wrong place gets a random value.

Source: RFC 6750 2, RFC 7519 6, RFC 7617 2.
"""

from __future__ import annotations

import json
import re
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from secrets import token_urlsafe
from typing import Final

from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.card.places import HeaderPlace, key_place
from a2a_trust.card.view import (
    Alternative,
    ApiKeyScheme,
    CardView,
    MutualTlsScheme,
    OAuth2Scheme,
    OpenIdConnectScheme,
    SecurityScheme,
)
from a2a_trust.client.answer import Answer, Credentials, Part, answer_for
from a2a_trust.client.credentials import ApiKey, CredentialValue, http_scheme
from a2a_trust.client.decisions import attachment_of
from a2a_trust.client.flow import run_async
from a2a_trust.client.messages import Attachment, Request
from a2a_trust.errors import TrustError
from a2a_trust.keys import base64url
from a2a_trust.keys.signer import generate_signer, sign_jwt
from a2a_trust.probe.requests import ProbeRequest


class Attempt(Enum):
    """What a request carries, in the words of reports."""

    NOTHING = "no credential"
    WRONG = "a random credential"
    MALFORMED = "a malformed credential"
    ELSEWHERE = "a random credential in another place"
    FORGED = "a token signed by a throw-away key"
    UNSIGNED = "an unsigned token (alg none)"
    EXPIRED = "an expired token of a throw-away key"
    LESS = "a credential that lacks a scope"
    HALF = "one of two credentials"
    GOOD = "the given credential"


#: The wrong ones; the last three are tokens.
_WRONG: Final = (Attempt.WRONG, Attempt.MALFORMED, Attempt.ELSEWHERE, Attempt.FORGED, Attempt.UNSIGNED, Attempt.EXPIRED)
_NO_ONE: Final = ApiKey("none", origins=["https://probe.invalid"])
_WELL_KNOWN: Final = re.compile(r"/\.well-known/[a-z-]+")
_HOUR: Final = 3600


def attempts_for(view: CardView, alternative: Alternative) -> tuple[Attempt, ...]:
    """The attempts with wrong credentials; empty if no request can carry a credential for the alternative."""
    schemes = [part.scheme for part in _parts(view, alternative)]
    attempts = _WRONG if any(map(takes_token, schemes)) else _WRONG[:3]
    return attempts if schemes else ()


def forge(view: CardView, alternative: Alternative, attempt: Attempt, request: ProbeRequest) -> Attachment:
    """A wrong credential for each scheme of the alternative that a request can carry one for."""
    parts, values = _parts(view, alternative), list[CredentialValue]()
    for at, part in enumerate(parts):
        scheme, value = part.scheme, token_urlsafe(32)
        if attempt is Attempt.ELSEWHERE:
            parts[at] = replace(part, place=None if isinstance(scheme, ApiKeyScheme) else HeaderPlace("X-API-Key"))
        if attempt is Attempt.MALFORMED:
            value = "?"
        elif http_scheme(scheme) == "basic":
            value = b64encode(f"probe-{token_urlsafe(9)}:{token_urlsafe(16)}".encode()).decode()
        elif takes_token(scheme) and attempt in _WRONG[3:]:
            value = _token(attempt, issuer_of(scheme), request.url, view)
        values.append(CredentialValue(value))
    return _attach(request, parts, values)


def _parts(view: CardView, alternative: Alternative) -> list[Part]:
    """The places of the alternative's credentials, without certificates and unsafe places."""
    found: list[Part] = []
    for name, scopes in alternative.schemes:
        scheme = view.schemes.get(name)
        with suppress(TrustError):
            place = key_place(scheme) if isinstance(scheme, ApiKeyScheme) else None
            if scheme is not None and not isinstance(scheme, MutualTlsScheme):
                found.append(Part(name=name, scheme=scheme, credential=_NO_ONE, scopes=scopes, place=place))
    return found


def _attach(
    request: ProbeRequest, parts: Sequence[Part], values: list[CredentialValue], origin: str = ""
) -> Attachment:
    plain = Request(method=request.method, url=request.url, headers={}, timeout={})
    return attachment_of(plain, Answer((), tuple(parts)), values, origin)


def takes_token(scheme: SecurityScheme) -> bool:
    """Whether the scheme's credential is a token in ``Authorization: Bearer``."""
    return isinstance(scheme, OAuth2Scheme | OpenIdConnectScheme) or http_scheme(scheme) == "bearer"


def issuer_of(scheme: SecurityScheme) -> str:
    """The issuer that tokens for the scheme name, as well as the card shows it."""
    if isinstance(scheme, OpenIdConnectScheme):
        return _WELL_KNOWN.sub("", scheme.discovery_url)
    urls = [url for flow in getattr(scheme, "flows", ()) for _, url in flow.urls]
    return _WELL_KNOWN.sub("", getattr(scheme, "metadata_url", None) or "/".join("".join(urls[:1]).split("/")[:3]))


def _token(attempt: Attempt, issuer: str, audience: str, view: CardView) -> str:
    now = int(time.time()) - (_HOUR if attempt is Attempt.EXPIRED else 0)
    scopes = sorted({scope for each in view.alternatives for _, wanted in each.schemes for scope in wanted})
    names = {"iss": issuer, "sub": f"probe-{token_urlsafe(9)}", "aud": audience, "client_id": "probe"}
    times = {"iat": now - 60, "exp": now + 300, "jti": token_urlsafe(9)}
    claims = {**names, **times, "scope": " ".join(scopes)[:1024]}
    if attempt is Attempt.UNSIGNED:
        parts = ({"alg": "none", "typ": "at+jwt"}, claims)
        return ".".join([*(base64url.encode(json.dumps(part).encode()) for part in parts), ""])
    signer = generate_signer("ES256")
    return sign_jwt({"alg": signer.alg, "kid": signer.kid, "typ": "at+jwt"}, claims, signer)


@dataclass(frozen=True, slots=True)
class Own:
    """The operator's credentials for one alternative at one origin: complete, or a part of what is needed."""

    attempt: Attempt
    parts: tuple[Part, ...]
    origin: str

    async def attachment(self, request: ProbeRequest, fetcher: Fetcher | None) -> Attachment:
        """TrustError: a credential cannot be obtained."""
        values = [await run_async(part.credential.obtain(part.scopes), fetcher) for part in self.parts]
        return _attach(request, self.parts, values, self.origin)


def own_of(
    view: CardView, alternative: Alternative, given: Credentials, lacking: Credentials, origin: str
) -> Iterator[Own]:
    """The credentials that satisfy the alternative at that origin, if any; then those that must not satisfy it."""
    try:
        parts = answer_for(view, (alternative,), given, origin, is_whole=True).parts
    except TrustError:
        return
    if not parts:  # a client certificate, which no request shows
        return
    yield Own(Attempt.GOOD, parts, origin)
    if len(parts) > 1:
        yield from (Own(Attempt.HALF, (part,), origin) for part in parts)
    for name in {part.name for part in parts} & lacking.keys():
        with suppress(TrustError):
            weaker = answer_for(view, (alternative,), {**given, name: lacking[name]}, origin, is_whole=True)
            yield Own(Attempt.LESS, weaker.parts, origin)
