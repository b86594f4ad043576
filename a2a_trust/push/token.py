"""The JWT of a push notification, which the agent signs and the webhook verifies.

- ``typ`` is ``a2a-push+jwt``: a caller chooses ``aud``, so the token must count nowhere else.
- ``iss`` is the agent's URL, ``aud`` exactly the URL that was registered; ``iat`` and ``exp`` are at most 60 seconds
  apart, and ``jti`` is new in each attempt.
- ``taskId`` is the task, ``request_body_sha256`` the digest of the body in hexadecimal digits.

It is in ``Authorization: Bearer`` if the registration asks for a bearer token without giving one, or else in
``A2A-Push-Signature``. Source: A2A 1.0.1 4.3.3 and 13.2, and the page on streaming and asynchronous operations.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final

from a2a_trust.auth.dpop import MAX_JTI
from a2a_trust.auth.jwt import SignedToken
from a2a_trust.auth.token_claims import moments_of
from a2a_trust.base import strict_json
from a2a_trust.base.strict_json import JSON
from a2a_trust.errors import InvalidCredentialsError, InvalidSignatureError, MalformedError
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.jws import verify_signed
from a2a_trust.keys.signer import Signer, sign_jwt
from a2a_trust.keys.trust.origins import host_of

HEADER: Final = "A2A-Push-Signature"
TYPE: Final = "a2a-push+jwt"
LIFETIME: Final = 60
"""The seconds for which a token is valid."""
_SKEW: Final = 5.0

#: The members of a ``StreamResponse`` (1.0), as ProtoJSON reads them. In 0.2 and 0.3 the body itself is a task.
_WRAPPED: Final = ("task", "statusUpdate", "status_update", "artifactUpdate", "artifact_update", "message")


def task_of(body: JSON) -> str:
    """The id of the task that a notification is about, in every spelling of 0.2, 0.3 and 1.0. MalformedError: it has
    none, or several that differ, so two readers could find two tasks."""
    if type(body) is not dict:
        raise MalformedError("push notification: not a JSON object")
    parts = [each for each in (body, *map(body.get, _WRAPPED)) if type(each) is dict]
    found = [each[name] for each in parts for name in ("id", "taskId", "task_id") if each.get(name) is not None]
    if not found or type(found[0]) is not str or not found[0] or any(each != found[0] for each in found):
        raise MalformedError("push notification: it names no task, or several that differ")
    return found[0]


def push_token(signer: Signer, *, issuer: str, url: str, task: str, body: bytes, now: float) -> str:
    """A new token for one delivery of this body to the registered URL."""
    claims = {
        "iss": issuer,
        "aud": url,
        "iat": int(now),
        "exp": int(now) + LIFETIME,
        "jti": secrets.token_urlsafe(16),
        "taskId": task,
        "request_body_sha256": sha256(body).hexdigest(),
    }
    return sign_jwt({"typ": TYPE, "alg": signer.alg, "kid": signer.kid}, claims, signer)


def verify_push_token(
    token: SignedToken, keys: Iterable[PublicKey], *, host: str, url: str, task: str, body: bytes, now: float
) -> tuple[str, float]:
    """The ``jti`` and ``iat`` of a token that one of the keys, which are trusted for the agent's host, has signed for
    this delivery. The caller checks that it was not used before. InvalidCredentialsError, MalformedError."""
    if token.typ != TYPE:
        raise InvalidCredentialsError(f"push token: typ is not {TYPE}")
    for key in keys:
        with suppress(InvalidSignatureError):
            verify_signed(token.header, token.signature, token.signed.encode("ascii"), key)
            break
    else:
        raise InvalidCredentialsError("push token: it is not signed by a key that is trusted for the agent now")
    claims: Any = strict_json.parse(token.payload, what="claims")
    if type(claims) is not dict or type(claims.get("iss")) is not str or host_of(claims["iss"]) != host:
        raise InvalidCredentialsError("push token: iss is not the agent of this registration")
    for name, expected in (("aud", url), ("taskId", task), ("request_body_sha256", sha256(body).hexdigest())):
        if claims.get(name) != expected:
            raise InvalidCredentialsError(f"push token: {name} is of another delivery")
    moments_of(claims, now, _SKEW)
    issued, expires, jti = claims.get("iat"), claims.get("exp"), claims.get("jti")
    if issued is None or expires is None or expires - issued > LIFETIME:
        raise InvalidCredentialsError("push token: iat or exp is missing, or they are too far apart")
    if type(jti) is not str or not 0 < len(jti) <= MAX_JTI:
        raise InvalidCredentialsError("push token: jti is missing or too long")
    return jti, float(issued)
