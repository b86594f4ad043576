"""The webhook of a client: it receives push notifications, and only from the agents that it registered with.

The rules, in this order:

1. A POST, in which each header of this module occurs once.
2. The token, or the credentials, belong to a registration. Only their digests are stored and compared.
3. The body has at most 1 MB and is one JSON object without duplicate members. It names one task: the registered one,
   or, if the task was not known at the registration, the one of the first notification.
4. If the registration demands a signature: one by a key that is trusted *now* for the agent's host, for this body, URL
   and task, made within the last minute (``push.token``). No key or URL in the message is used.
5. The token of a signature was not used before: else 204, and the handler is not called again.
6. The handler is called. If it raises: 500, and a sender that tries again makes a new token: at least once.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from hashlib import sha256
from typing import Any, Final

from a2a_trust.auth.jwt import MAX_TOKEN, read_token
from a2a_trust.auth.proofs.memory import ProofMemory, VolatileProofMemory
from a2a_trust.base import strict_json
from a2a_trust.base.strict_json import MAX_BYTES, JSONObject
from a2a_trust.card.view import read_card
from a2a_trust.client.flow import run_async
from a2a_trust.client.verification import Verification
from a2a_trust.errors import (
    ConfigurationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MalformedError,
    TooManyRequestsError,
    TrustError,
)
from a2a_trust.keys.trust.store import TrustSource
from a2a_trust.middleware.documents import Receive, Scope, Send, send_without_body
from a2a_trust.push.token import HEADER, LIFETIME, task_of, verify_push_token
from a2a_trust.signing.verify import VerifiedCard

_log: Final = logging.getLogger(__name__)

_TOKEN_HEADERS: Final = (b"x-a2a-notification-token", b"a2a-notification-token")
_STATUSES: Final = {MalformedError: 400, TooManyRequestsError: 429, KeySourceUnavailableError: 503}


class PushProof(Enum):
    """The proof that a notification is from the agent. docs/push.md compares what each protects."""

    SIGNED = auto()
    """The token of the registration, and a signature of the agent over this delivery (``SignedPush``)."""
    CREDENTIALS = auto()
    """Credentials of the registration, in ``Authorization``. A reader of them can make notifications."""


@dataclass(frozen=True, slots=True)
class UnsafeTokenOnly:
    """Only the token of the registration, for agents that neither sign nor send credentials. A reader of it can make
    notifications."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushNotification:
    """A notification that the webhook accepted: the host of the agent, the task, and the body as the agent sent it."""

    agent: str
    task: str
    body: JSONObject


@dataclass(slots=True)
class _Registration:
    card: VerifiedCard = field(repr=False)
    agent: str
    task: str | None
    proof: PushProof | UnsafeTokenOnly


class PushReceiver:
    """The webhook, as an ASGI application: serve it at ``url``, and pass agents what ``register`` returns.

    - ``handler``: an async function that is called with each ``PushNotification``. Agents wait about 5 seconds for it.
    - ``url``: the public URL of the webhook, exactly as agents get it. Signatures are for this URL.
    - ``trust``: the trusted keys, as for ``fetch_card``. Each notification asks which keys are trusted.
    - ``memory``: the used tokens; a webhook with several processes needs a shared one, such as ``RedisProofMemory``.
    - ``clock``: gives seconds since the epoch.

    Registrations are in this process only: with ``register(…, secret=…)`` make them again after a restart.
    """

    def __init__(
        self,
        handler: Callable[[PushNotification], Awaitable[None]],
        *,
        url: str,
        trust: TrustSource,
        memory: ProofMemory | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._verification = Verification(trust=trust, clock=clock)
        self._handler, self._url, self._clock = handler, url, clock
        self._memory = VolatileProofMemory() if memory is None else memory
        self._registrations: dict[bytes, _Registration] = {}

    def register(
        self,
        card: VerifiedCard,
        task: str | None = None,
        *,
        proof: PushProof | UnsafeTokenOnly = PushProof.SIGNED,
        secret: str | None = None,
    ) -> dict[str, Any]:
        """Expect notifications of that agent; returns the configuration to register there, with a new secret.

        ``card`` is the verified card of the agent. ``task``: the id of the task; None if the agent chooses it, in a
        registration within the first message. ``secret``: the one of an earlier registration. The result is for
        ``TaskPushNotificationConfig(**…)`` in 1.0, and ``PushNotificationConfig(**…)`` in 0.2 and 0.3.
        """
        if card.origin is None:
            raise ConfigurationError("register: verify the card with its URL as origin=, by keys that have origins")
        secret = secret or secrets.token_urlsafe(32)
        self._registrations[_digest(secret)] = _Registration(card, card.origin, task, proof)
        interfaces = read_card(card.card).interfaces
        is_legacy = bool(interfaces) and interfaces[0].is_legacy
        bearer: dict[str, Any] = {"schemes": ["Bearer"]} if is_legacy else {"scheme": "Bearer"}
        if proof is PushProof.CREDENTIALS:
            return {"url": self._url, "authentication": {**bearer, "credentials": secret}}
        return {"url": self._url, "token": secret, "authentication": bearer}

    def forget(self, secret: str) -> None:
        """End the registration with this token or these credentials: its notifications get 401 from now on."""
        self._registrations.pop(_digest(secret), None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ConfigurationError(f"ASGI scope type {scope['type']!r}: a webhook is served over http only")
        await send_without_body(send, await self._status(scope, receive), [])

    async def _status(self, scope: Scope, receive: Receive) -> int:
        if scope["method"] != "POST":
            return 405
        registered = None
        try:
            token = _only(scope, *_TOKEN_HEADERS)
            registered = self._registrations.get(_digest(token or _bearer(scope)))
            if registered is None or (registered.proof is PushProof.CREDENTIALS) is bool(token):
                raise InvalidCredentialsError("its token, or its credentials, belong to no registration")
            notification = await self._verify(registered, scope, await _body_of(receive))
        except TrustError as error:
            # Unknown senders must not fill the log.
            level = logging.DEBUG if registered is None else logging.WARNING
            _log.log(level, "rejected a push notification: %s", error)
            return _STATUSES.get(type(error), 401)
        if notification is not None:
            try:
                await self._handler(notification)
            except Exception:  # noqa: BLE001  the handler is anybody's
                _log.exception("the handler of push notifications failed")
                return 500
        return 204

    async def _verify(self, registered: _Registration, scope: Scope, body: bytes) -> PushNotification | None:
        """Rules 3 to 5; None: it is the same delivery as before."""
        content: Any = strict_json.parse(body, what="push notification")
        task, now, used = task_of(content), self._clock(), None
        if registered.proof is not PushProof.CREDENTIALS and not isinstance(registered.proof, UnsafeTokenOnly):
            used = await self._verify_signature(registered, scope, task, body, now)
        if registered.task not in (None, task):
            raise InvalidCredentialsError("it is about another task than the registration")
        registered.task = task
        if used is not None:
            agent, (jti, issued) = f"push {registered.agent}", used
            if not await self._memory.first_use(agent, jti, now=now, issued=issued, window=LIFETIME):
                return None
        return PushNotification(agent=registered.agent, task=task, body=content)

    async def _verify_signature(
        self, registered: _Registration, scope: Scope, task: str, body: bytes, now: float
    ) -> tuple[str, float]:
        text, host = _only(scope, HEADER.lower().encode()) or _bearer(scope), registered.agent
        if not text or len(text) > MAX_TOKEN:
            raise InvalidCredentialsError("the signature is missing, or too long")
        token = read_token(text)
        store, _ = await run_async(self._verification.trusted_now(registered.card))
        if registered.card.on_first_use:
            await asyncio.to_thread(registered.card.verified_again, store, now=now)
        named = store.named(token.kid or "", token.kty)
        keys = [each.key for each in named if each.origins.covers(host) and each.state(now) == "trusted"]
        return verify_push_token(token, keys, host=host, url=self._url, task=task, body=body, now=now)


def _only(scope: Scope, *names: bytes) -> str:
    """The value of the header with one of these names; "" without it. InvalidCredentialsError: it occurs twice, so two
    readers could see two values."""
    values = [value for name, value in scope["headers"] if name.lower() in names]
    if len(values) > 1:
        raise InvalidCredentialsError(f"the header {names[0].decode()} occurs more than once")
    return values[0].decode("latin-1").strip() if values else ""


def _bearer(scope: Scope) -> str:
    scheme, _, credentials = _only(scope, b"authorization").partition(" ")
    return credentials.strip() if scheme.lower() == "bearer" else ""


def _digest(secret: str) -> bytes:
    """The key of a registration: how long it is looked for says nothing about the secrets of others."""
    return sha256(secret.encode()).digest()


async def _body_of(receive: Receive) -> bytes:
    """The body, or so much of it that the reader rejects it."""
    body, more = bytearray(), True
    while more and len(body) <= MAX_BYTES:
        message = await receive()
        if message["type"] != "http.request":
            raise MalformedError("push notification: its sender went away")
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body)
