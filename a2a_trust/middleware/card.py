"""The public card: served as the exact bytes that were signed, for as long as they prove something.

A source gives the card that counts now:

- ``CardSignedHere`` signs the card itself: when it is made, when half of the signature's life is over, and when another
  key signs from now on.
- ``CardFile`` serves a file that a pipeline has signed, byte for byte. It is verified first, with the keys that its
  callers trust, so that nobody is handed a card that was changed afterwards.
- ``FixedCard`` serves what the program has: a card without signatures, or one that it proves with those keys.

What cannot be served any more is answered with 503 and an audit event, never with what was there before: a card that
has expired, or whose key was revoked, is one that its signer has taken back. Source: A2A 8.2, 8.4, 8.6.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any, Final, Protocol

from a2a_trust import strict_json
from a2a_trust.errors import CardNotServedError, ConfigurationError, TrustError
from a2a_trust.files.watched import Stamp, stamp_of
from a2a_trust.keys.origins import UnsafeAnyOrigin
from a2a_trust.keys.signer import Signer
from a2a_trust.keys.trust import TrustSource, TrustStore
from a2a_trust.middleware import audit
from a2a_trust.middleware.documents import Document, Receive, Scope, Send, answer, json_bytes, refuse
from a2a_trust.signing.sign import sign_card
from a2a_trust.signing.verify import verify_card

__all__ = ["CardFile", "CardSignedHere", "CardSigner", "CardSource", "FixedCard", "PublicCard", "SignerSource"]

_log: Final = logging.getLogger(__name__)

RETRY_AFTER: Final = 60

_PATIENCE: Final = 5.0
"""How long a key that has failed to sign is left alone, in seconds."""


class CardSource(Protocol):
    """Where the public card comes from."""

    def document(self, now: float) -> Document:
        """The card that counts at the moment ``now`` (seconds since the epoch), or CardNotServedError."""
        ...


class SignerSource(Protocol):
    """Something that knows who signs now, such as a key set that rotates."""

    def signer(self, now: float) -> Signer: ...


class CardSigner:
    """Signs the cards of one agent: with one key, or with whichever key signs at the moment.

    ``lifetime`` is for how many seconds a signature is good (protected ``exp``); None: until the key is revoked.
    ``jku`` is the URL at which the key set is served; it goes into the protected header. ``companion`` is that of
    ``sign_card``. What signing does to a card is logged at INFO, once for each outcome.
    """

    def __init__(
        self,
        signer: Signer | SignerSource,
        *,
        lifetime: float | None = None,
        jku: str | None = None,
        companion: bool = True,
    ) -> None:
        if not (isinstance(signer, Signer) or callable(getattr(signer, "signer", None))):
            raise ConfigurationError(
                f"signer: {type(signer).__name__} is not a signer; write signer=load_private_key(path), or "
                "signer=KeyRingFile(path)"
            )
        if lifetime is not None and not lifetime >= 60:
            raise ConfigurationError("lifetime: 60 seconds or more, or None for signatures without an end")
        self._signer, self._lifetime, self._jku, self._companion = signer, lifetime, jku, companion
        self._logged: tuple[str, ...] = ()

    def kid(self, now: float) -> str:
        """The name of the key that signs now."""
        return self._now(now).kid

    def sign(self, card: bytes | Mapping[str, Any], now: float) -> tuple[bytes, float]:
        """The signed card as it is to be served, and the moment at which the signature ends."""
        iat = int(now)
        exp = None if self._lifetime is None else iat + self._lifetime
        signed = sign_card(card, self._now(now), jku=self._jku, iat=iat, exp=exp, companion=self._companion)
        if signed.notes != self._logged:
            self._logged = signed.notes
            for note in signed.notes:
                _log.info("the card: %s", note)
        return json_bytes(signed.card), inf if exp is None else exp

    def _now(self, now: float) -> Signer:
        return self._signer if isinstance(self._signer, Signer) else self._signer.signer(now)


class CardSignedHere:
    """A card that this server signs itself; the other signatures in it stay."""

    def __init__(
        self,
        card: bytes | Mapping[str, Any],
        signer: CardSigner,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._card, self._signer = card, signer
        self._kid: str
        self._renew_at: float
        self._document: Document
        #: The key that failed to sign, until when it is not asked again, and what is told meanwhile.
        self._failed: tuple[str, float, str] = ("", -inf, "")
        now = clock()
        self._sign(signer.kid(now), now)

    def document(self, now: float) -> Document:
        try:
            kid = self._signer.kid(now)
        except Exception as error:  # noqa: BLE001  a source of signers is anybody's
            raise CardNotServedError(f"nobody can tell which key signs now ({type(error).__name__})") from None
        if kid == self._kid and now < self._renew_at:
            return self._document
        failed, until, failure = self._failed
        if kid != failed or now >= until:
            try:
                self._sign(kid, now)
            except Exception as error:  # noqa: BLE001  so is a signer: a service that is out of reach, too
                failure = f"it cannot be signed now ({type(error).__name__})"
                self._failed = (kid, now + _PATIENCE, failure)
                _log.error("the public card: %s", failure)
            else:
                return self._document
        if kid != self._kid or now >= self._document.good_until:
            raise CardNotServedError(failure)
        return self._document  # its signature is good, though the next one cannot be made yet

    def _sign(self, kid: str, now: float) -> None:
        body, expires = self._signer.sign(self._card, now)
        self._kid = kid  # not before: what an earlier key has signed counts for that one alone
        self._renew_at = expires if expires == inf else (now + expires) / 2
        self._document = Document.of(body, now, expires)


class FixedCard:
    """A card as it is: bytes byte for byte. When it has signatures, one of them must be by a key of ``trust``."""

    def __init__(
        self,
        card: bytes | Mapping[str, Any],
        *,
        trust: TrustSource | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        body = card if isinstance(card, bytes) else json_bytes(dict(card))
        parsed = strict_json.parse(body, what="card")
        if type(parsed) is not dict:
            raise ConfigurationError("card: a JSON object is needed")
        if parsed.get("signatures") and trust is None:
            raise ConfigurationError(
                "the card has signatures, and nothing can tell whether they are good: pass "
                "card=FixedCard(card, trust=TrustStore([…])) with the keys that its callers trust, or "
                "card=CardFile(path, trust=…); or pass signer=… and the card without signatures"
            )
        now = clock()
        self._document = Document.of(body, now)
        self._proof = None if trust is None else _Proof(self._document, trust, now)

    def document(self, now: float) -> Document:
        return self._document if self._proof is None else self._proof.document(now)


class CardFile:
    """A file with a signed card, served byte for byte.

    ``trust`` holds the keys that its callers trust, or is the file with the ring of them: without a good signature by
    one of them the file is a TrustError now, and later a 503. ``reload`` looks at every request whether the file has
    changed.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        trust: TrustSource,
        reload: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path, self._trust, self._reload = Path(path), trust, reload
        self._refused: str | None = None
        self._seen: Stamp | None = None
        self._read(clock())

    def document(self, now: float) -> Document:
        if self._reload and self._changed():
            try:
                self._read(now)
            except (TrustError, OSError) as error:
                self._refused = str(error)
                raise CardNotServedError(f"{self._path}: {error}") from None
        if self._refused is not None:
            raise CardNotServedError(f"{self._path}: {self._refused}")
        try:
            return self._proof.document(now)
        except TrustError as error:
            raise CardNotServedError(f"{self._path}: {error}") from None

    def _changed(self) -> bool:
        try:
            return stamp_of(self._path.stat()) != self._seen
        except OSError as error:
            raise CardNotServedError(f"{self._path}: {error.strerror}") from None

    def _read(self, now: float) -> None:
        self._seen = None  # a read that fails is tried again
        with self._path.open("rb") as file:
            status = os.fstat(file.fileno())
            seen, body = stamp_of(status), file.read()
        self._seen = seen
        self._proof = _Proof(Document.of(body, status.st_mtime), self._trust, now)
        self._refused = None


class _Proof:
    """A card and what proves it: proven anew when other keys are trusted, and good for as long as they say."""

    def __init__(self, document: Document, trust: TrustSource, now: float) -> None:
        self._trust = trust
        self._prove(document, trust.trust_store(), now)

    def document(self, now: float) -> Document:
        """The card, or TrustError."""
        store = self._trust.trust_store()
        if store is not self._store:
            self._prove(self._document, store, now)
        if not self._proven_from <= now < self._document.good_until:
            raise CardNotServedError("its signature has expired; sign it anew")
        return self._document

    def _prove(self, document: Document, store: TrustStore, now: float) -> None:
        # Of any origin: which hosts a key may speak for, its callers decide.
        proof = verify_card(document.body, store, origin=UnsafeAnyOrigin(), now=now)
        self._proven_from = proof.proven_from
        self._document = document._replace(good_until=proof.proven_until)
        self._store = store


class PublicCard:
    """An ASGI application that answers every request for the public card, at whatever path it is mounted.

    ``max_age`` is for how many seconds callers may keep it (A2A 8.6.1). ``shared`` says that everybody gets it: caches
    may keep it for all, and pages of other origins may read it.
    """

    def __init__(
        self,
        source: CardSource,
        *,
        max_age: int = 300,
        shared: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not 0 <= max_age <= 31_536_000:
            raise ConfigurationError("max_age: 0 to 31536000 seconds")
        self._source, self._max_age, self._shared, self._clock = source, max_age, shared, clock
        self._told = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        if scope["type"] != "http":
            raise ConfigurationError(f"ASGI scope type {scope['type']!r}: cards are served over http alone")
        now = self._clock()
        try:
            document = self._source.document(now)
        except (TrustError, ConfigurationError) as error:
            if str(error) != self._told:  # callers who ask again make no further events
                self._told = str(error)
                audit.card_not_served(self._told)
            await refuse(send, 503, [(b"retry-after", b"%d" % RETRY_AFTER), (b"cache-control", b"no-store")])
            return
        self._told = ""
        max_age = int(min(self._max_age, max(0.0, document.good_until - now)))
        await answer(document, scope, send, max_age=max_age, shared=self._shared)
