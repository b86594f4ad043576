"""Every exception of a2a_trust, in one tree, branched by who is to blame.

No function that verifies returns a bool: it returns the verified value, or raises one of these. Each class has a
``code``, a stable word for machines; docs/errors.md draws the tree, and has cause and fix for each. The class
CardVerificationError and those below it also have ``failures``, one for each signature that was rejected. The
attributes of an error cannot be changed. No text contains a secret or a passphrase. From an unverified document a text
repeats only names of members and keys, cut short and escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, TypeVar


class TrustError(Exception):
    """The base of all errors of this package. Never raised itself."""

    code: ClassVar[str] = "error"
    """A stable word for machines. Every class has a different one; docs/errors.md lists them."""

    on_command_line: str = ""
    """The text with options of ``a2a-sign`` in place of arguments. Empty when both texts are the same."""

    def __init_subclass__(cls, *, code: str = "", **others: Any) -> None:
        """``code`` is of this class; without it, the class has the code of its base."""
        super().__init_subclass__(**others)
        cls.code = code or cls.code

    def __setattr__(self, name: str, value: object) -> None:
        """AttributeError for an attribute that is set; the interpreter and ``add_note`` still set theirs."""
        if name in ("args", "code") or (name in self.__dict__ and not name.startswith("_")):
            raise AttributeError(f"{name}: the attributes of an error cannot be changed")
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return _copied, (type(self), self.args, self.__dict__)


def _copied(kind: type[TrustError], args: tuple[Any, ...], facts: dict[str, Any]) -> TrustError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class ConfigurationError(TrustError, ValueError, code="configuration"):
    """The program or its operator asked for something wrong. The text says what to write instead."""


class MalformedError(TrustError, code="malformed"):
    """Bytes from outside are not a valid document, so nothing about them was decided.

    For an error in one member of a card, ``pointer`` names the member (RFC 6901) and ``reason`` says what is wrong.
    """

    def __init__(self, message: str, pointer: str | None = None, reason: str = "") -> None:
        self.pointer: str | None = pointer
        self.reason: str = reason
        super().__init__(message)


class InvalidSignatureError(TrustError, code="invalid-signature"):
    """One JWS is well formed, but its signature was not made by the given key over the given bytes."""


class SigningError(TrustError, code="signing"):
    """A card cannot be signed as asked. The given card is unchanged."""


_E = TypeVar("_E", bound=TrustError)


def with_option(error: _E, on_command_line: str) -> _E:
    """The error, with another text for the command line: it names options there, and arguments in programs."""
    error.on_command_line = on_command_line
    return error


class FailureReason(StrEnum):
    """Why one signature of a card was rejected: stable words for machines."""

    MALFORMED = "malformed"
    """The entry or its protected header does not conform to RFC 7515 and A2A 8.4.2, or belongs to a token."""
    UNKNOWN_KEY = "unknown-key"
    """No trusted key has this ``kid`` and the key type of this ``alg``."""
    WRONG_ORIGIN = "wrong-origin"
    """The key is trusted, but not for the host of this card or of one of its interfaces."""
    WRONG_ALGORITHM = "wrong-algorithm"
    """The header's ``alg`` is not the algorithm of the trusted key."""
    REVOKED_KEY = "revoked-key"
    """The key is revoked."""
    KEY_NOT_VALID_NOW = "key-not-valid-now"
    """The time of verification is outside the validity of the trusted key."""
    EXPIRED = "expired"
    """The protected ``exp`` of the signature has passed."""
    NOT_YET_VALID = "not-yet-valid"
    """The protected ``iat`` or ``nbf`` of the signature lies in the future."""
    COMPANION = "companion"
    """The signature is marked as a companion. Companions are for other SDKs and are never accepted here."""
    PARTIAL = "partial"
    """The signature is valid, but its signer may have dropped members, and the trust entry demands the whole card."""
    BAD_SIGNATURE = "bad-signature"
    """The key is trusted, but the signature is not valid for this card in any form."""


#: Reasons that say something about the given trust, not about the signature.
_TRUST_REASONS = frozenset(
    {
        FailureReason.UNKNOWN_KEY,
        FailureReason.WRONG_ORIGIN,
        FailureReason.REVOKED_KEY,
        FailureReason.KEY_NOT_VALID_NOW,
        FailureReason.COMPANION,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureFailure:
    """One rejected signature of a card, and the reason.

    ``index`` is its position in ``signatures``, from 0. ``kid`` is what its header claims: unverified, cut to
    64 characters and escaped to printable ASCII; None without a readable header.
    """

    index: int
    kid: str | None
    reason: FailureReason
    detail: str

    def __str__(self) -> str:
        name = "no kid" if self.kid is None else f"kid {self.kid}"
        return f"signature {self.index} ({name}): {self.detail}"


class CardVerificationError(TrustError, code="not-verified"):
    """The card is not verified. ``failures`` lists every rejected signature with its reason."""

    def __init__(self, message: str, failures: tuple[SignatureFailure, ...] = ()) -> None:
        self.message = message
        self.failures = failures
        super().__init__("\n  ".join([message, *map(str, failures)]))


class UnsignedCardError(CardVerificationError, code="unsigned"):
    """The card has no signatures: the member is absent, null, empty, or not a list."""


class UntrustedCardError(CardVerificationError, code="untrusted"):
    """The card is signed, but not by a key that is trusted for it now."""


class PolicyNotMetError(UntrustedCardError, code="policy"):
    """At least one trusted key signed the card, but fewer parties than the policy demands."""


class UncoveredFieldsError(CardVerificationError, code="uncovered"):
    """A valid signature does not cover some members of the card. ``pointers`` names them (RFC 6901).

    ``pointers`` has 100 entries of 512 characters at most, so that an untrusted card cannot fill the memory.
    """

    def __init__(self, message: str, pointers: tuple[str, ...], failures: tuple[SignatureFailure, ...] = ()) -> None:
        self.pointers = pointers
        super().__init__(message, failures)


class PartialSignatureError(CardVerificationError, code="partial"):
    """A trusted key signed the card, but nothing shows that the signature covers the whole card.

    Some SDKs drop members before they sign. The server of such a card can remove those members unnoticed.
    """


class CardMemoryError(CardVerificationError, code="memory"):
    """The card is verified, but rejected because of earlier cards. ``location`` is where it came from.

    A location is the origin and the path before the well-known name.
    """

    def __init__(self, message: str, location: str) -> None:
        self.location = location
        super().__init__(message)


class RolledBackCardError(CardMemoryError, code="rolled-back"):
    """The card was signed (``issued``) before a card that came earlier (``remembered``) from there, or from another
    location with one of its interfaces.

    Both are the protected ``iat``, in seconds since the epoch; None when the card does not say when it was signed.
    """

    def __init__(self, message: str, location: str, *, issued: float | None, remembered: float | None) -> None:
        self.issued: float | None = issued
        self.remembered: float | None = remembered
        super().__init__(message, location)


class PinnedKeyError(CardMemoryError, code="pinned-key"):
    """The card is signed by another key than before, and the trust store does not name the new key.

    ``presented`` and ``pinned`` are RFC 7638 thumbprints: of the keys that signed this card, and of the keys that are
    pinned for the location (for a new location: the keys that were trusted on first use for its host).
    """

    def __init__(self, message: str, location: str, *, presented: frozenset[str], pinned: frozenset[str]) -> None:
        self.presented: frozenset[str] = presented
        self.pinned: frozenset[str] = pinned
        super().__init__(message, location)


class TemporarilyUnavailableError(TrustError, code="unavailable"):
    """A service or a file that the decision needs is unavailable now. The same request may succeed later."""


class CardMemoryUnavailableError(TemporarilyUnavailableError, code="memory-unavailable"):
    """The card memory cannot be read or written now, so the card is rejected although it may be valid."""


def verification_error(message: str, failures: tuple[SignatureFailure, ...]) -> CardVerificationError:
    """The error for a card that is not verified: untrusted when no signature was found to be wrong."""
    reasons = {failure.reason for failure in failures}
    if FailureReason.PARTIAL in reasons:
        return PartialSignatureError(message, failures)
    blameless = reasons <= _TRUST_REASONS | {FailureReason.MALFORMED} and bool(reasons & _TRUST_REASONS)
    return (UntrustedCardError if blameless else CardVerificationError)(message, failures)


class FetchError(TrustError, code="fetch"):
    """A document could not be fetched: its address is forbidden, or the response is late, too large or an error.

    ``status`` is the HTTP status of the rejected response; None without a response. ``retry_after`` is the number of
    seconds after which its server wants to be asked again; None if it does not say.
    """

    def __init__(self, message: str, status: int | None = None, retry_after: float | None = None) -> None:
        self.status = status
        self.retry_after = retry_after
        super().__init__(message)


class TokenRequestError(TrustError, code="token-request"):
    """An authorization server rejects a token request, or its response cannot be used.

    ``error`` is the error code of RFC 6749 5.2 and its extensions, such as ``invalid_client``; "" without one.
    """

    def __init__(self, message: str, error: str = "") -> None:
        self.error = error
        super().__init__(message)


class AuthenticationError(TrustError, code="authentication"):
    """The request is not authenticated. The text goes to the log; callers get a fixed text."""


class MissingCredentialsError(AuthenticationError, code="missing-credentials"):
    """The request has no credential for any scheme of the card, or lacks what a handler requires."""


class InvalidCredentialsError(AuthenticationError, code="invalid-credentials"):
    """The request has an invalid credential: wrong, expired, revoked, or for another audience."""

    def __init__(self, message: str, *, oauth_error: str = "invalid_token") -> None:
        """``oauth_error`` is the error code that the caller of a token gets (RFC 6750 3.1, RFC 9449 7.1)."""
        self.oauth_error = oauth_error
        super().__init__(message)


class UnrecognizedCredentialsError(InvalidCredentialsError, code="unrecognized-credentials"):
    """The credential is of another kind or issuer than this verifier is for.

    Another verifier may accept it; without one it is an invalid credential. Nothing was fetched to find that out.
    """


class InvalidActorsError(InvalidCredentialsError, code="invalid-actors"):
    """The actors of a token are malformed, too many, or not accepted here."""


class AuthorizationError(TrustError, code="insufficient-scope"):
    """The caller is known but lacks ``scopes``, which are sorted by name.

    ``by_scheme`` maps each scheme of the card to the scopes that its credential lacks.
    """

    def __init__(
        self, message: str, scopes: tuple[str, ...] = (), by_scheme: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        self.scopes = scopes
        self.by_scheme: Mapping[str, tuple[str, ...]] = by_scheme or {}
        super().__init__(message)


class CrossSiteError(AuthorizationError, code="cross-site"):
    """A page of another site makes the caller's browser send this, with a credential that browsers attach."""


class NoCallerError(TrustError, code="no-caller"):
    """The caller of this code is not certain: it may run for another request, or for none. The text says what to do."""


class TooManyRequestsError(TrustError, code="too-many-requests"):
    """One caller sends too many requests, or one peer sends too many invalid credentials. Others are not affected.

    ``retry_after``: the same request may succeed after this number of seconds. ``cause``: what the audit trail counts
    rejections by; "" for the text.
    """

    def __init__(self, message: str, *, retry_after: int = 5, cause: str = "") -> None:
        self.retry_after: int = retry_after
        self.cause: str = cause
        super().__init__(message)


class KeySourceUnavailableError(TemporarilyUnavailableError, code="key-source-unavailable"):
    """The source that verifies the credential is unreachable now. The credential may be valid.

    ``counts_as_failure``: the source fails for this credential only, so the limits of failed credentials count it.
    """

    def __init__(self, message: str, *, counts_as_failure: bool = False) -> None:
        self.counts_as_failure: bool = counts_as_failure
        super().__init__(message)


class CardNotServedError(TrustError, code="card-not-served"):
    """The agent's own card was changed after it was signed, has expired, or was signed by a revoked key."""
