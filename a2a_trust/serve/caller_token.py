"""``A2A-Caller-Token``: the caller of a request, from the proxy to the agent behind it, as a signed JWT.

- ``typ`` is ``a2a-caller+jwt``, so that it counts nowhere else, and no other token counts here.
- ``iss`` is the proxy's URL, ``aud`` the agent; ``iat`` and ``exp`` are at most 60 seconds apart.
- ``sub`` is the ``id`` of the caller, ``scope`` its scopes, ``client_id`` and ``act`` as in access tokens (RFC 9068,
  RFC 8693 4.1), ``identities`` issuer and subject by the card's scheme.

Anonymous callers and public requests have an empty header.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from a2a_trust.auth.jwt import read_token
from a2a_trust.auth.principal import Actor, Anonymous, Principal
from a2a_trust.auth.token_claims import actors_of, moments_of
from a2a_trust.base import strict_json
from a2a_trust.base.cache import BoundedCache
from a2a_trust.errors import InvalidCredentialsError, InvalidSignatureError, MalformedError
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.jws import verify_signed
from a2a_trust.keys.signer import sign_jwt
from a2a_trust.middleware.protection import SigningKeys

HEADER: Final = b"a2a-caller-token"
TYPE: Final = "a2a-caller+jwt"
LIFETIME: Final = 60
"""The seconds for which a token is valid."""

_REUSED: Final = 30
"""For how long the same token is sent again, in seconds: a signature takes longer than the decision."""
_MOST_CALLERS: Final = 4_096
_SKEW: Final = 5.0


class CallerTokens:
    """Signs tokens about callers, with the key ring of the proxy."""

    def __init__(self, keys: SigningKeys, *, issuer: str, audience: str) -> None:
        self._keys, self._issuer, self._audience = keys, issuer, audience
        #: By the caller, which compares whole.
        self._signed = BoundedCache[Any, str](max_entries=_MOST_CALLERS)

    def token(self, caller: Principal, now: float) -> str:
        """The token, which is valid for 30 seconds or more."""
        signer = self._keys.signer(now)
        key = signer.kid, caller.id, caller.scopes, caller.client_id, caller.actors
        token = self._signed.get(key, now)
        if token is None:
            claims = {
                "iss": self._issuer,
                "aud": self._audience,
                "iat": int(now),
                "exp": int(now) + LIFETIME,
                "sub": caller.id,
                "scope": " ".join(sorted(caller.scopes)),
                "identities": {name: {"iss": each.issuer, "sub": each.subject} for name, each in caller.identities},
            }
            if caller.client_id is not None:
                claims["client_id"] = caller.client_id
            actors: dict[str, Any] = {}
            for actor in reversed(caller.actors):  # the current actor is outside
                actors = {"iss": actor.issuer, "sub": actor.subject} | ({"act": actors} if actors else {})
            if actors:
                claims["act"] = actors
            token = sign_jwt({"typ": TYPE, "alg": signer.alg, "kid": signer.kid}, claims, signer)
            self._signed.put(key, token, since=now - 1, until=now + _REUSED)
        return token


def caller_headers(
    caller: Principal | Anonymous | None, tokens: CallerTokens | None, now: float, *, plain: bool
) -> list[tuple[bytes, bytes]]:
    """The headers about the caller, all of them for every request: empty if there is no caller, or an anonymous one."""
    known = caller if isinstance(caller, Principal) else None
    headers = []
    if tokens is not None:
        headers.append((HEADER, b"" if known is None else tokens.token(known, now).encode("ascii")))
    if plain:
        for name, text in (
            (b"a2a-caller-id", known and known.id),
            (b"a2a-caller-scopes", known and " ".join(sorted(map(_escape, known.scopes)))),
            (b"a2a-caller-client", known and _escape(known.client_id or "")),
        ):
            headers.append((name, (text or "").encode("ascii")))
    return headers


@lru_cache(1_024)
def _escape(text: str) -> str:
    return quote(text, safe="!#$&'()*+,-./:;<=>?@[]^_`{|}~")


class VerifiedCaller(NamedTuple):
    """The caller of a request, according to the proxy: ``id`` is the owner of its data."""

    id: str
    scopes: frozenset[str]
    client_id: str | None
    actors: tuple[Actor, ...]
    identities: dict[str, tuple[str, str]]
    """Issuer and subject, by the card's scheme."""


def verify_caller_token(
    token: str, keys: Iterable[PublicKey], *, issuer: str, audience: str, now: float
) -> VerifiedCaller | None:
    """The caller in the header ``A2A-Caller-Token``; None if the header is empty: an anonymous or a public request.

    ``keys`` are the proxy's public keys, as in ``read_jwks(…).keys``; ``issuer`` is its URL, ``audience`` this agent as
    the proxy names it; ``now`` is in seconds since the epoch. InvalidCredentialsError: not from that proxy for this
    agent, or not now; answer 401. A request without the header did not come through the proxy: reject it, too.
    """
    if not token:
        return None
    try:
        read = read_token(token)
        claims = strict_json.parse(read.payload, what="claims")
        if read.typ != TYPE or type(claims) is not dict or (claims.get("iss"), claims.get("aud")) != (issuer, audience):
            raise InvalidCredentialsError("caller token: it is not by this proxy for this agent")
        key = next((each for each in keys if each.kid == read.kid and each.is_valid_at(now)), None)
        if key is None:
            raise InvalidCredentialsError("caller token: its key is unknown, revoked or expired")
        verify_signed(read.header, read.signature, read.signed.encode("ascii"), key)
        _, until = moments_of(claims, now, _SKEW)
        if until is None or until - claims.get("iat", 0) > LIFETIME or type(claims.get("sub")) is not str:
            raise InvalidCredentialsError("caller token: its times or its sub are wrong")
        identities = {name: (each["iss"], each["sub"]) for name, each in claims["identities"].items()}
        scopes, client = frozenset(claims["scope"].split()), claims.get("client_id")
        return VerifiedCaller(claims["sub"], scopes, client, actors_of(claims, issuer), identities)
    except (MalformedError, InvalidSignatureError, KeyError, TypeError, AttributeError) as error:
        raise InvalidCredentialsError(f"caller token: {error}") from None
