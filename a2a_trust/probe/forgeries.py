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
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from secrets import token_urlsafe
from typing import Any, Final

from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.card.places import HeaderPlace, key_place
from a2a_trust.card.view import Alternative, ApiKeyScheme, CardView, MutualTlsScheme, SecurityScheme
from a2a_trust.client.answer import Answer, Credentials, Part, answer_for
from a2a_trust.client.credentials import ApiKey, BearerToken, http_scheme
from a2a_trust.client.decisions import attachment_of
from a2a_trust.client.flow import run_async
from a2a_trust.client.messages import Attachment, Request
from a2a_trust.errors import TrustError
from a2a_trust.keys import base64url
from a2a_trust.keys.signer import generate_signer, sign_jwt
from a2a_trust.probe.requests import OTHER_SITE, ProbeRequest


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
_WELL_KNOWN: Final = re.compile(r"/\.well-known/[a-z-]+")
_HOUR: Final = 3600
_ANY_TOKEN: Final = BearerToken("none", origins=[OTHER_SITE])


@dataclass(frozen=True, slots=True)
class Trial:
    """What a request carries, with its credentials, and for which alternative of the card (None: for all)."""

    attempt: Attempt
    alternative: Alternative | None = None
    parts: tuple[Part, ...] = ()
    origin: str = ""

    async def attachment(self, request: ProbeRequest, fetcher: Fetcher | None) -> Attachment:
        """TrustError: a credential cannot be obtained."""
        values = [await run_async(part.credential.obtain(part.scopes), fetcher) for part in self.parts]
        plain = Request(method=request.method, url=request.url, headers={}, timeout={})
        return attachment_of(plain, Answer((), self.parts), values, self.origin)


def wrong_of(view: CardView, alternative: Alternative, url: str) -> list[Trial]:
    """Trials with wrong credentials; none if no request can carry a credential for the alternative. Rule 1."""
    schemes: list[tuple[str, SecurityScheme, Any]] = []
    for name, _ in alternative.schemes:
        scheme = view.schemes.get(name)
        with suppress(TrustError):  # the place is unsafe
            place = key_place(scheme) if isinstance(scheme, ApiKeyScheme) else None
            if scheme is not None and not isinstance(scheme, MutualTlsScheme):
                schemes.append((name, scheme, place))
    trials: list[Trial] = []
    for attempt in _WRONG if any(takes_token(scheme) for _, scheme, _ in schemes) else _WRONG[: 3 * bool(schemes)]:
        parts: list[Part] = []
        for name, scheme, place in schemes:
            other = None if isinstance(scheme, ApiKeyScheme) else HeaderPlace("X-API-Key")
            credential = ApiKey(_wrong_value(scheme, attempt, url, view), origins=[OTHER_SITE])
            at = other if attempt is Attempt.ELSEWHERE else place
            parts.append(Part(name=name, scheme=scheme, credential=credential, scopes=frozenset(), place=at))
        trials.append(Trial(attempt, alternative, tuple(parts)))
    return trials


def _wrong_value(scheme: SecurityScheme, attempt: Attempt, url: str, view: CardView) -> str:
    if attempt is Attempt.MALFORMED:
        return "?"
    if http_scheme(scheme) == "basic":
        return b64encode(f"probe-{token_urlsafe(9)}:{token_urlsafe(16)}".encode()).decode()
    is_token = takes_token(scheme) and attempt in _WRONG[3:]
    return _token(attempt, issuer_of(scheme), url, view) if is_token else token_urlsafe(32)


def takes_token(scheme: SecurityScheme) -> bool:
    """Whether the scheme's credential is a token in ``Authorization: Bearer``."""
    return not _ANY_TOKEN.mismatch(scheme, frozenset())


def issuer_of(scheme: SecurityScheme) -> str:
    """The issuer that tokens for the scheme name, as well as the card shows it."""
    metadata = getattr(scheme, "discovery_url", None) or getattr(scheme, "metadata_url", None)
    urls = [url for flow in getattr(scheme, "flows", ()) for _, url in flow.urls]
    return _WELL_KNOWN.sub("", metadata or "/".join("".join(urls[:1]).split("/")[:3]))


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


def own_of(
    view: CardView, alternative: Alternative, given: Credentials, lacking: Credentials, origin: str
) -> Iterator[Trial]:
    """The credentials that satisfy the alternative at that origin, if any; then those that must not satisfy it."""
    try:
        parts = answer_for(view, (alternative,), given, origin, is_whole=True).parts
    except TrustError:
        return
    if not parts:  # a client certificate, which no request shows
        return
    yield Trial(Attempt.GOOD, alternative, parts, origin)
    if len(parts) > 1:
        yield from (Trial(Attempt.HALF, alternative, (part,), origin) for part in parts)
    for name in {part.name for part in parts} & lacking.keys():
        with suppress(TrustError):
            weaker = answer_for(view, (alternative,), {**given, name: lacking[name]}, origin, is_whole=True)
            yield Trial(Attempt.LESS, alternative, weaker.parts, origin)
