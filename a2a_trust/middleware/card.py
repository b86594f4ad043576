"""The public card: served as the exact bytes that were signed, for as long as they prove something.

A source gives the card that counts now:

- ``CardSignedHere`` signs the card itself: when it is made, when half of the signature's life is over, and when another
  key signs from now on.
- ``CardFile`` serves a file that a pipeline has signed, byte for byte. It is verified first, with the keys that its
  callers trust, so that nobody is handed a card that was changed afterwards.
- ``FixedCard`` serves what the program has: a card without signatures, or one that it proves with those keys.

A card is served only while it proves something to its callers. A card that has expired, or whose key was revoked, is
one that its signer has taken back: the answer is 503, with an audit event. A file that is missing, half-written or not
verified takes nothing back: the last good card stays, for as long as it proves something, also with an audit event. To
take a card back, revoke its key, or stop the agent. Source: A2A 8.2, 8.4, 8.6.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from a2a_trust import strict_json
from a2a_trust.card.given import GivenCard, given_card
from a2a_trust.errors import CardNotServedError, ConfigurationError, TrustError
from a2a_trust.files.watched import Stamp, Watched, open_regular, stamp_of, stamp_of_path
from a2a_trust.keys.origins import UnsafeAnyOrigin
from a2a_trust.keys.signer import Signer
from a2a_trust.keys.trust import TrustSource, TrustStore
from a2a_trust.middleware import audit
from a2a_trust.middleware.documents import Document, Receive, Scope, Send, answer, json_bytes, refuse
from a2a_trust.signing.sign import sign_card
from a2a_trust.signing.verify import verify_card
from a2a_trust.signing.verify_signature import CLOCK_SKEW

__all__ = [
    "CardFile",
    "CardSignedHere",
    "CardSigner",
    "CardSource",
    "FixedCard",
    "PublicCard",
    "SignerSource",
    "card_body",
]

_log: Final = logging.getLogger(__name__)

RETRY_AFTER: Final = 60

_PATIENCE: Final = 5.0
"""How long a key that has failed to sign is left alone, in seconds."""

_LOOK_SECONDS: Final = 1.0
"""How often the file of a card is looked at. Verifying 1 MB takes the event loop some 20 milliseconds."""

_STEP_BACK: Final = CLOCK_SKEW / 2
"""By how many seconds a card may be from the future of this clock: half of what verifiers accept, since their own
clocks differ, too."""


def card_body(card: GivenCard, *, what: str = "card") -> bytes:
    """The card as it is served: bytes as they are, a JSON object as compact JSON."""
    given = given_card(card, what=what)
    return given if isinstance(given, bytes) else json_bytes(dict(given))


@runtime_checkable
class CardSource(Protocol):
    """Where the public card comes from."""

    def document(self, now: float) -> Document:
        """The card that counts at the moment ``now`` (seconds since the epoch), or CardNotServedError."""
        ...


class SignerSource(Protocol):
    """Something that knows who signs now, such as a key set that rotates."""

    def signer(self, now: float) -> Signer: ...


class SignedCard(NamedTuple):
    """A card as it is to be served, and from when (``iat``) until when (``exp``) its signature is good."""

    body: bytes
    issued: float
    expires: float

    def is_current(self, now: float) -> bool:
        """Whether no new signature is needed: half of its life is not over, and no clock that ran ahead dated it."""
        renew_at = self.expires if self.expires == inf else (self.issued + self.expires) / 2
        return self.issued - _STEP_BACK <= now < renew_at

    def is_good(self, now: float) -> bool:
        """Whether verifiers accept it."""
        return self.issued - CLOCK_SKEW <= now < self.expires


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
                f"signer: {type(signer).__name__} is not a signer; write CardServing(signer=load_private_key(path)) "
                "or CardServing(signer=KeyRingFile(path))"
            )
        if lifetime is not None and not lifetime >= 60:
            raise ConfigurationError("lifetime: 60 seconds or more, or None for signatures without an end")
        self._signer, self._lifetime, self._jku, self._companion = signer, lifetime, jku, companion
        self._logged: tuple[str, ...] = ()

    def kid(self, now: float) -> str:
        """The name of the key that signs now."""
        return self._now(now).kid

    def sign(self, card: bytes | Mapping[str, Any], now: float) -> SignedCard:
        iat = int(now)
        exp = None if self._lifetime is None else iat + self._lifetime
        signed = sign_card(card, self._now(now), jku=self._jku, iat=iat, exp=exp, companion=self._companion)
        if signed.notes != self._logged:
            self._logged = signed.notes
            for note in signed.notes:
                _log.info("the card: %s", note)
        return SignedCard(json_bytes(signed.card), iat, inf if exp is None else exp)

    def _now(self, now: float) -> Signer:
        return self._signer if isinstance(self._signer, Signer) else self._signer.signer(now)


class CardSignedHere:
    """A card that this server signs itself; the other signatures in it stay.

    When the clock goes back behind the moment at which it was signed, it is signed again: verifiers accept no signature
    that begins in the future.
    """

    def __init__(
        self,
        card: GivenCard,
        signer: CardSigner,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._card, self._signer = given_card(card), signer
        self._kid: str
        self._signed: SignedCard
        self._document: Document
        #: The key that failed to sign, until when it is not asked again (monotonic), and what is told meanwhile.
        self._failed: tuple[str, float, str] = ("", -inf, "")
        now = clock()
        self._sign(signer.kid(now), now)

    def document(self, now: float) -> Document:
        try:
            kid = self._signer.kid(now)
        except Exception as error:  # noqa: BLE001  a source of signers is anybody's
            raise CardNotServedError(f"nobody can tell which key signs now ({type(error).__name__})") from None
        if kid == self._kid and self._signed.is_current(now):
            return self._document
        failed, until, failure = self._failed
        if kid != failed or monotonic() >= until:
            try:
                self._sign(kid, now)
            except Exception as error:  # noqa: BLE001  so is a signer: a service that is out of reach, too
                failure = f"it cannot be signed now ({type(error).__name__})"
                self._failed = (kid, monotonic() + _PATIENCE, failure)
                _log.error("the public card: %s", failure)
            else:
                return self._document
        if kid != self._kid or not self._signed.is_good(now):
            raise CardNotServedError(failure)
        return self._document  # its signature is good, though the next one cannot be made yet

    def _sign(self, kid: str, now: float) -> None:
        self._signed = self._signer.sign(self._card, now)
        self._kid = kid  # not before: what an earlier key has signed counts for that one alone
        self._document = Document.of(self._signed.body, now, self._signed.expires)


class FixedCard:
    """A card as it is: bytes byte for byte. When it has signatures, one of them must be by a key of ``trust``."""

    def __init__(
        self,
        card: GivenCard,
        *,
        trust: TrustSource | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        body = card_body(card)
        parsed = strict_json.parse(body, what="card")
        if type(parsed) is not dict:
            raise ConfigurationError("card: a JSON object is needed")
        if parsed.get("signatures") and trust is None:
            raise ConfigurationError(
                "the card has signatures, and nothing can tell whether they are good: pass "
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

    ``trust`` holds the keys that its callers trust, or is the file with the ring of them: without a good signature by
    one of them the file is a TrustError now. With ``reload`` the file is looked at once per second. While it is
    missing, half-written, larger than 1 MB, not a regular file or not verified (also because its key is revoked, or it
    has expired), the last good card stays, by its own times and keys; one that is no longer verified is 503. The
    audit trail has one event when that begins, and one when the file is good again.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        trust: TrustSource,
        reload: bool = False,
        clock: Callable[[], float] = time.time,
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
            newer = f"; what is in the file now: {self._failure}" if self._failure else ""
            raise CardNotServedError(f"{self._path}: {error}{newer}") from None

    def _read(self) -> tuple[_Proof, Stamp]:
        with open_regular(self._path) as file:
            status = os.fstat(file.fileno())
            body = file.read(strict_json.MAX_BYTES + 1)  # the verifier rejects one that is longer than that
        return _Proof(Document.of(body, status.st_mtime), self._trust, self._clock()), stamp_of(status)

    def _tell(self, failure: Exception | None) -> None:
        had_failed = bool(self._failure)
        self._failure = "" if failure is None else _reason(failure)
        if failure is None and had_failed:
            audit.card_reloaded(f"{self._path}")
        elif failure is not None and not had_failed:
            audit.card_not_reloaded(f"{self._path}: {self._failure}")


def _reason(error: Exception) -> str:
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)


class _Proof:
    """A card and what proves it: verified again when other keys are trusted, and good for as long as they say.

    A card that proves nothing is verified once per second at most, however many callers ask for it.
    """

    def __init__(self, document: Document, trust: TrustSource, now: float) -> None:
        self._trust = trust
        #: When the card was found to prove nothing, by which store, and why.
        self._failed: tuple[float, TrustStore | None, str] = (-inf, None, "")
        self._verify(document, trust.trust_store(), now)

    def document(self, now: float) -> Document:
        """The card, or CardNotServedError."""
        store = self._trust.trust_store()
        if store is self._store and self._valid_from <= now < self._document.good_until:
            return self._document
        failed_at, failed_by, why = self._failed
        if store is not failed_by or not 0 <= now - failed_at < _LOOK_SECONDS:
            try:
                self._verify(self._document, store, now)  # another of its signatures may count
            except TrustError as error:
                why = (
                    str(error) if store is not self._store else f"no signature of it counts now; sign it again: {error}"
                )
                self._failed = now, store, why
            else:
                return self._document
        raise CardNotServedError(why)

    def _verify(self, document: Document, store: TrustStore, now: float) -> None:
        # Of any origin: which hosts a key may speak for, its callers decide.
        proof = verify_card(document.body, store, origin=UnsafeAnyOrigin(), now=now)
        self._valid_from = proof.valid_from
        self._document = document._replace(good_until=proof.valid_until)
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
        except TrustError as error:
            if str(error) != self._told:  # callers who ask again make no further events
                self._told = str(error)
                audit.card_not_served(self._told)
            await refuse(send, 503, [(b"retry-after", b"%d" % RETRY_AFTER), (b"cache-control", b"no-store")])
            return
        self._told = ""
        max_age = int(min(self._max_age, max(0.0, document.good_until - now)))
        await answer(document, scope, send, now=now, max_age=max_age, shared=self._shared)
