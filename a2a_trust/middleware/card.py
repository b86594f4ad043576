"""Serves the public card, as the exact bytes that were signed, as long as callers can verify it.

A source gives the current card:

- ``CardSignedHere`` signs the card itself: at start, after half of a signature's lifetime, and when the key changes.
- ``CardFile`` serves a file that a pipeline has signed, byte for byte. It first verifies the file with the keys that
  callers trust, so that a card that was changed later is not served.
- ``FixedCard`` serves a card of the program: one without signatures, or one that is verified with those keys.

When the card has expired or its key was revoked, the answer is 503, with an audit event. When only the file is missing,
half-written or not verified, the last verified card stays, as long as it is still verified, also with an audit event.
To withdraw a card, revoke its key or stop the agent. Source: A2A 8.2, 8.4, 8.6.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import Enum, auto
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable

from a2a_trust.auth.peers import Networks, verified_peer, was_forwarded
from a2a_trust.base import strict_json
from a2a_trust.base.dates import CLOCK_SKEW, date_of
from a2a_trust.base.files.watched import Stamp, Watched, open_regular, reason_of, stamp_of, stamp_of_path
from a2a_trust.base.state_changes import StateKind
from a2a_trust.card.given import GivenCard, read_given
from a2a_trust.errors import CardNotServedError, ConfigurationError, TrustError
from a2a_trust.keys.trust.origins import UnsafeAnyOrigin
from a2a_trust.middleware import audit
from a2a_trust.middleware.documents import (
    ASGIApp,
    Document,
    Receive,
    Scope,
    Send,
    answer,
    json_bytes,
    send_without_body,
)

if TYPE_CHECKING:
    from a2a_trust.keys.signer import Signer
    from a2a_trust.keys.trust.store import TrustSource, TrustStore

_log: Final = logging.getLogger(__name__)

RETRY_AFTER: Final = 60
_PATIENCE: Final = 5.0
"""How long a key that failed to sign is not tried again, in seconds."""
_LOOK_SECONDS: Final = 1.0
"""The shortest time between two checks of a card's file. Verifying 1 MB blocks the event loop for some 20 ms."""
_STEP_BACK: Final = CLOCK_SKEW / 2
"""The seconds by which a card may lie in the future: half of the skew that verifiers accept."""


def card_body(card: GivenCard, *, what: str = "card") -> bytes:
    """The card as it is served: bytes unchanged, a JSON object as compact JSON."""
    given = read_given(card, what=what)
    return given if isinstance(given, bytes) else json_bytes(dict(given))


@runtime_checkable
class CardSource(Protocol):
    """Where the public card comes from."""

    def document(self, now: float) -> Document:
        """The card at the moment ``now`` (seconds since the epoch), or CardNotServedError."""


class SignerSource(Protocol):
    """Knows which key signs now, such as a key ring."""

    def signer(self, now: float) -> Signer: ...


class ServedCard(NamedTuple):
    """A card as it is served, and from when (``iat``) until when (``exp``) its signature is valid."""

    body: bytes
    issued: float
    expires: float

    def is_current(self, now: float) -> bool:
        """Whether no new signature is needed: half of its lifetime is left, and its date is not in the future."""
        renew_at = self.expires if self.expires == inf else (self.issued + self.expires) / 2
        return self.issued - _STEP_BACK <= now < renew_at

    def is_good(self, now: float) -> bool:
        return self.issued - CLOCK_SKEW <= now < self.expires


class CardSigner:
    """Signs the cards of one agent, with one key or with the current key of a key ring.

    ``lifetime``: as in ``CardServing``. ``jku`` is the URL of the key set, for the protected header. ``companion``: as
    for ``sign_card``. The notes of ``sign_card`` are logged at INFO, once for each outcome.
    """

    def __init__(
        self,
        signer: Signer | SignerSource,
        *,
        lifetime: float | timedelta | None = None,
        jku: str | None = None,
        companion: bool | None = None,
    ) -> None:
        from a2a_trust.keys.signer import Signer  # not every agent signs, and the imports take time
        from a2a_trust.signing.sign import lifetime_seconds

        if not (isinstance(signer, Signer) or callable(getattr(signer, "signer", None))):
            raise ConfigurationError(
                f"signer: {type(signer).__name__} is not a signer; write CardServing(signer=load_private_key(path)) "
                "or CardServing(signer=KeyRingFile(path))"
            )
        self._now: Callable[[float], Signer] = (lambda _: signer) if isinstance(signer, Signer) else signer.signer
        self._jku, self._companion = jku, companion
        self._lifetime = None if lifetime is None else lifetime_seconds(lifetime)
        self._logged: tuple[str, ...] = ()

    def kid(self, now: float) -> str:
        return self._now(now).kid

    def sign(self, card: bytes | Mapping[str, Any], now: float) -> ServedCard:
        from a2a_trust.signing.sign import sign_card

        iat = int(now)
        signed = sign_card(
            card, self._now(now), jku=self._jku, iat=iat, lifetime=self._lifetime, companion=self._companion
        )
        if signed.notes != self._logged:
            self._logged = signed.notes
            for note in signed.notes:
                _log.info("the card: %s", note)
        return ServedCard(json_bytes(signed.card), iat, inf if signed.expires is None else signed.expires)


class CardSignedHere:
    """A card that this server signs itself; other signatures in it stay.

    When the clock goes back to before the signature, the card is signed again, because verifiers would reject it.
    """

    def __init__(self, card: GivenCard, signer: CardSigner, *, clock: Callable[[], float] = time.time) -> None:
        self._card, self._signer = read_given(card), signer
        self._kid: str
        self._signed: ServedCard
        self._document: Document
        #: The key that failed to sign, until when it is not tried again (monotonic), and the failure.
        self._failed: tuple[str, float, str] = ("", -inf, "")
        now = clock()
        self._sign(signer.kid(now), now)

    def document(self, now: float) -> Document:
        try:
            kid = self._signer.kid(now)
        except Exception as error:  # noqa: BLE001  a user's source of signers may raise anything
            raise CardNotServedError(
                f"the key that signs now is not known: the signer raised {type(error).__name__}"
            ) from None
        if kid == self._kid and self._signed.is_current(now):
            return self._document
        failed, until, failure = self._failed
        if kid != failed or monotonic() >= until:
            try:
                self._sign(kid, now)
            except Exception as error:  # noqa: BLE001  so may a user's signer, such as a service that is unreachable
                failure = f"it cannot be signed now: the signer raised {type(error).__name__}"
                self._failed = (kid, monotonic() + _PATIENCE, failure)
                _log.error("the public card: %s", failure)
            else:
                return self._document
        if kid != self._kid or not self._signed.is_good(now):
            raise CardNotServedError(failure)
        return self._document  # its signature is still valid, though the next one cannot be made yet

    def _sign(self, kid: str, now: float) -> None:
        self._signed = self._signer.sign(self._card, now)
        self._kid = kid  # not before: the old document belongs to the old key
        self._document = Document.of(self._signed.body, now, self._signed.expires)


class FixedCard:
    """A card that is served as it is, bytes unchanged. If it has signatures, one must be by a key of ``trust``."""

    def __init__(
        self, card: GivenCard, *, trust: TrustSource | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        body = card_body(card)
        parsed = strict_json.parse(body, what="card")
        if type(parsed) is not dict:
            raise ConfigurationError("card: it is not a JSON object; pass the whole Agent Card")
        if parsed.get("signatures") and trust is None:
            raise ConfigurationError(
                "card: it has signatures, and there are no keys to verify them with; pass "
                "card=FixedCard(card, trust=TrustStore([…])) with the keys that its callers trust, or "
                "card=CardFile(path, trust=…); or pass serving=CardServing(signer=…) and the card without signatures"
            )
        now = clock()
        self._document = Document.of(body, now)
        self._proof = None if trust is None else _Proof(self._document, trust, now)

    def document(self, now: float) -> Document:
        return self._document if self._proof is None else self._proof.document(now)


class CardFile:
    """A file with a signed card, served byte for byte.

    ``trust`` has the keys that its callers trust: a ``TrustStore``, a ``TrustFile`` or a ``KeyRingFile``. TrustError,
    now: the file has no valid signature by one of them. With ``reload``, the file is checked once per second. While the
    new file is missing, half-written, larger than 1 MB, not a regular file or not verified, the last verified card
    stays, as long as its own signature is valid and its key is trusted; after that the answer is 503. The audit trail
    has one event when that begins, and one when the file is verified again.
    """

    def __init__(
        self, path: str | Path, *, trust: TrustSource, reload: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        self._path, self._trust, self._clock = Path(path), trust, clock
        self._failure = ""
        self._proof: Callable[[], _Proof]
        if reload:
            self._proof = Watched(
                self._read,
                lambda: stamp_of_path(self._path),
                failures=(TrustError, OSError),
                tell=self._tell,
                every=_LOOK_SECONDS,
            ).value
        else:
            proof, _ = self._read()
            self._proof = lambda: proof

    def document(self, now: float) -> Document:
        proof = self._proof()
        try:
            return proof.document(now)
        except TrustError as error:
            newer = f"; the file now: {self._failure}" if self._failure else ""
            raise CardNotServedError(f"{self._path}: {error}{newer}") from None

    def _read(self) -> tuple[_Proof, Stamp]:
        with open_regular(self._path) as file:
            status = os.fstat(file.fileno())
            body = file.read(strict_json.MAX_BYTES + 1)  # the verifier rejects one that is longer than that
        return _Proof(Document.of(body, status.st_mtime), self._trust, self._clock()), stamp_of(status)

    def _tell(self, failure: Exception | None) -> None:
        had_failed = bool(self._failure)
        self._failure = "" if failure is None else reason_of(failure)
        if failure is None and had_failed:
            audit.log_card(StateKind.CARD_RELOADED, f"{self._path}")
        elif failure is not None and not had_failed:
            audit.log_card(StateKind.CARD_NOT_RELOADED, f"{self._path}: {self._failure}")


class _Proof:
    """A verified card: verified again when the trusted keys change, and valid as long as its signature and its key.

    A card that fails is verified at most once per second, however many callers ask for it.
    """

    def __init__(self, document: Document, trust: TrustSource, now: float) -> None:
        self._trust = trust
        #: When verification failed, with which store, and why.
        self._failed: tuple[float, TrustStore | None, str] = (-inf, None, "")
        self._verify(document, trust.trust_store(), now)

    def document(self, now: float) -> Document:
        store = self._trust.trust_store()
        if store is self._store and self._valid_from <= now < self._document.good_until:
            return self._document
        failed_at, failed_by, why = self._failed
        if store is not failed_by or not 0 <= now - failed_at < _LOOK_SECONDS:
            try:
                self._verify(self._document, store, now)  # another of its signatures may be valid
            except TrustError as error:
                why = str(error) if store is not self._store else f"no signature is valid now; sign it again: {error}"
                self._failed = now, store, why
            else:
                return self._document
        raise CardNotServedError(why)

    def _verify(self, document: Document, store: TrustStore, now: float) -> None:
        from a2a_trust.signing.verify import verify_card

        # For any origin: callers decide for which hosts they trust a key.
        proof = verify_card(document.body, store, origin=UnsafeAnyOrigin(), now=now)
        self._valid_from = proof.valid_from
        self._document = document._replace(good_until=proof.valid_until)
        self._store = store


class PublicCard:
    """An ASGI application that serves the public card, at any path.

    ``max_age`` is how long callers may keep it, in seconds (A2A 8.6.1). ``shared``: the card is for everybody, so
    caches may share it, and pages of other origins may read it.
    """

    def __init__(
        self, source: CardSource, *, max_age: int = 300, shared: bool = True, clock: Callable[[], float] = time.time
    ) -> None:
        if not 0 <= max_age <= 31_536_000:
            raise ConfigurationError(f"max_age: {max_age!r:.40} is not valid; write 0 to 31536000 seconds")
        self._source, self._max_age, self._shared, self._clock = source, max_age, shared, clock
        self._told = ""
        self._ending: Document | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        now = self._clock()
        try:
            document = self._source.document(now)
        except TrustError as error:
            if str(error) != self._told:  # one event, however many callers ask
                self._told = str(error)
                audit.log_card(StateKind.CARD_NOT_SERVED, self._told)
            await send_without_body(send, 503, [(b"retry-after", b"%d" % RETRY_AFTER), (b"cache-control", b"no-store")])
            return
        self._told = ""
        if document.good_until - now < (document.good_until - document.modified) / 4 and document is not self._ending:
            self._ending = document
            audit.log_card(StateKind.CARD_ENDS_SOON, f"it is valid until {date_of(document.good_until)}; sign it again")
        max_age = int(min(self._max_age, max(0.0, document.good_until - now)))
        await answer(document, scope, send, now=now, max_age=max_age, shared=self._shared)


class CardReaders(Enum):
    """Who may read the public card. The third choice is ``Networks``: peers there may read it without a credential.

    For networks, the server must record the socket's peer (``a2a_trust.servers``). A request that came through a proxy
    is rejected, because its peer is the proxy: restrict the card in the proxy instead. Some proxies do not mark
    requests, so never name a network that contains a proxy.
    """

    EVERYBODY = auto()
    """Everybody, as A2A expects."""
    CALLERS = auto()
    """Callers that meet one of the card's requirements; others get 401 with the challenges."""


_NO_PEER: Final = (
    "the server does not record the address of the peer; run the agent with "
    "uvicorn --http a2a_trust.servers.uvicorn:HttpToolsProtocol, or :H11Protocol"
)


def for_networks(app: ASGIApp, networks: Networks, trail: audit.Trail) -> ASGIApp:
    """``app`` for peers in the networks; 403 for all others. Only http."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        peer = verified_peer(scope)
        if peer is None:
            detail = _NO_PEER
        elif was_forwarded(scope):
            detail = "the request came through a proxy, so the peer is the proxy; restrict the card in the proxy"
        elif not networks.covers(peer):
            detail = f"the peer {peer} is outside the networks of CardServing(readers=Networks(…))"
        else:
            await app(scope, receive, send)
            return
        trail.rejected(scope, detail, audit.Decision(audit.Reason.NETWORK, status=403))
        await send_without_body(send, 403, [(b"cache-control", b"no-store")])

    return guarded
