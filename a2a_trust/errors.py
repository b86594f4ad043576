"""Every exception of a2a_trust, in one tree, branched by who is to blame.

::

    TrustError                       never raised itself
    ├── ConfigurationError           wrong use, at start-up; the text says what to write instead; a ValueError too
    │   └── PassphraseNeededError    in ``keys``: the private key is encrypted, and no passphrase was given
    ├── MalformedError               bytes from outside that are not understood (card, JWK, key file, header)
    ├── InvalidSignatureError        one JWS is well formed, and not by this key over these bytes
    ├── SigningError                 a card cannot be signed as asked; nothing was changed
    ├── CardVerificationError        the card is not verified; ``failures`` says why, signature by signature
    │   ├── UnsignedCardError        there is no list of signatures, or it is empty
    │   ├── UntrustedCardError       signatures, but none by a key that is trusted for this card now
    │   │   └── PolicyNotMetError    verified, but not by as many parties as the policy demands
    │   ├── UncoveredFieldsError     a good signature that does not cover members of the served card: ``pointers``
    │   ├── PartialSignatureError    a good signature, and nothing shows that its signer dropped no members
    │   └── CardMemoryError          verified, and refused for what is remembered of its origin
    │       ├── RolledBackCardError  signed before a card that was seen from there
    │       └── PinnedKeyError       by another key than before, and only its own origin vouches for it
    ├── FetchError                   a document could not be fetched: address, status, size, time
    ├── TokenRequestError            an authorization server gives no token that can be used; ``error`` says why
    ├── CredentialsError             in ``client``: nothing fits what the card demands; an ``httpx.RequestError`` too
    ├── CredentialsRejectedError     in ``client``: an agent rejects them; an ``httpx.HTTPStatusError`` too
    ├── UnverifiedCardError          in ``client``: a request or a card did not pass; an ``httpx.RequestError`` too
    ├── AuthenticationError          401: the credential is missing or invalid
    │   ├── MissingCredentialsError  no credential came for any scheme, or no access token for ``subject_token_of``
    │   └── InvalidCredentialsError  a credential came and is not good
    │       └── UnrecognizedCredentialsError  it is of another kind or issuer than this verifier is for
    ├── AuthorizationError           403: the caller is known and may not; ``scopes`` would be needed
    │   └── CrossSiteError           a page of another site makes the caller's browser ask
    ├── TooManyRequestsError         429: one caller asks, or one peer fails, more often than one may
    ├── TemporarilyUnavailableError  the same request may succeed later
    │   ├── KeySourceUnavailableError   503: the source that could verify the credential is unreachable
    │   └── CardMemoryUnavailableError  what is remembered cannot be read or written now, so no card is admitted
    └── CardNotServedError           503: our own card proves nothing now, so it must not be handed out

Nothing in this package that verifies returns a bool: it raises one of these, or returns the verified value. Each class
has a ``code``, a stable word for machines; those below CardVerificationError also ``failures``, with a word for each.
Its facts are set once, when it is made. No text holds a secret or a passphrase. Of an unverified document the texts
repeat only the names of members and keys, cut short and escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, TypeVar

__all__ = [
    "AuthenticationError",
    "AuthorizationError",
    "CardMemoryError",
    "CardMemoryUnavailableError",
    "CardNotServedError",
    "CardVerificationError",
    "ConfigurationError",
    "CrossSiteError",
    "FailureReason",
    "FetchError",
    "InvalidCredentialsError",
    "InvalidSignatureError",
    "KeySourceUnavailableError",
    "MalformedError",
    "MissingCredentialsError",
    "PartialSignatureError",
    "PinnedKeyError",
    "PolicyNotMetError",
    "RolledBackCardError",
    "SignatureFailure",
    "SigningError",
    "TemporarilyUnavailableError",
    "TokenRequestError",
    "TooManyRequestsError",
    "TrustError",
    "UncoveredFieldsError",
    "UnrecognizedCredentialsError",
    "UnsignedCardError",
    "UntrustedCardError",
]


class TrustError(Exception):
    """The base of everything that this package raises on purpose; never raised itself."""

    code: ClassVar[str] = "error"
    """What happened, in a stable word for machines: every class has its own."""

    on_command_line: str = ""
    """The text with options of ``a2a-sign`` in place of arguments; empty where the two do not differ."""

    def __setattr__(self, name: str, value: object) -> None:
        """AttributeError for a fact that is set; the interpreter and ``add_note`` go on setting theirs."""
        if name in ("args", "code") or (name in self.__dict__ and not name.startswith("_")):
            raise AttributeError(f"{name}: the facts of an exception cannot be changed")
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return _copied, (type(self), self.args, self.__dict__)


def _copied(kind: type[TrustError], args: tuple[Any, ...], facts: dict[str, Any]) -> TrustError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class ConfigurationError(TrustError, ValueError):
    """The program or its operator asked for something wrong; the text says what to write instead."""

    code = "configuration"


class MalformedError(TrustError):
    """Bytes from outside were not understood, so nothing about them was decided.

    When it is about one member of a card, ``pointer`` names it (RFC 6901, whole) and ``reason`` says what is wrong.
    """

    code = "malformed"

    def __init__(self, message: str, pointer: str | None = None, reason: str = "") -> None:
        self.pointer: str | None = pointer
        self.reason: str = reason
        super().__init__(message)


class InvalidSignatureError(TrustError):
    """One JWS is well formed, and its signature is not by the given key over the given bytes."""

    code = "invalid-signature"


class SigningError(TrustError):
    """A card cannot be signed as asked. The card that was given is unchanged."""

    code = "signing"


_E = TypeVar("_E", bound=TrustError)


def with_option(error: _E, on_command_line: str) -> _E:
    """The error, with another text for the command line: it names options there, and arguments in programs."""
    error.on_command_line = on_command_line
    return error


class FailureReason(StrEnum):
    """Why one signature of a card does not count: stable words for machines."""

    MALFORMED = "malformed"
    """The entry or its protected header is not what RFC 7515 and A2A 8.4.2 demand."""
    UNKNOWN_KEY = "unknown-key"
    """No trusted key has this ``kid`` and the key type of this ``alg``."""
    WRONG_ORIGIN = "wrong-origin"
    """The key is trusted, but not for the host of this card or of one of its interfaces."""
    WRONG_ALGORITHM = "wrong-algorithm"
    """The header's ``alg`` is not the one that the trusted key is for."""
    REVOKED_KEY = "revoked-key"
    KEY_NOT_VALID_NOW = "key-not-valid-now"
    """The moment of verification lies outside the trusted key's validity."""
    EXPIRED = "expired"
    """The protected ``exp`` of the signature has passed."""
    NOT_YET_VALID = "not-yet-valid"
    """The protected ``iat`` or ``nbf`` of the signature lies in the future."""
    COMPANION = "companion"
    """The signature says of itself that it is a companion; those never count here."""
    PARTIAL = "partial"
    """The signature is good, but nothing shows that it covers the whole card, and its trust entry demands that."""
    BAD_SIGNATURE = "bad-signature"
    """The key is trusted, and the signature is not over this card in any form."""


#: Reasons that blame the trust that was given, not the signature.
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
    """One signature of a card that does not count, and why.

    ``index`` is its place in ``signatures``, from 0. ``kid`` is what its header claimed: unverified, cut to
    64 characters and escaped to printable ASCII, or None when there was no readable header.
    """

    index: int
    kid: str | None
    reason: FailureReason
    detail: str

    def __str__(self) -> str:
        name = "no kid" if self.kid is None else f"kid {self.kid}"
        return f"signature {self.index} ({name}): {self.detail}"


class CardVerificationError(TrustError):
    """No sufficient proof of the card; ``failures`` lists every signature that does not count, and why."""

    code = "not-verified"

    def __init__(self, message: str, failures: tuple[SignatureFailure, ...] = ()) -> None:
        self.message = message
        self.failures = failures
        super().__init__("\n  ".join([message, *map(str, failures)]))


class UnsignedCardError(CardVerificationError):
    """The card has no signatures: the member is absent, null, empty, or not a list."""

    code = "unsigned"


class UntrustedCardError(CardVerificationError):
    """The card is signed, but by nobody who is trusted for it now."""

    code = "untrusted"


class PolicyNotMetError(UntrustedCardError):
    """Fewer parties than the policy demands have signed the card, and at least one trusted key has."""

    code = "policy"


class UncoveredFieldsError(CardVerificationError):
    """A good signature leaves members of the served card open; ``pointers`` names them (RFC 6901).

    The first 100 are named, each by at most 512 characters: a stranger's card must not fill the memory.
    """

    code = "uncovered"

    def __init__(self, message: str, pointers: tuple[str, ...], failures: tuple[SignatureFailure, ...] = ()) -> None:
        self.pointers = pointers
        super().__init__(message, failures)


class PartialSignatureError(CardVerificationError):
    """A trusted key signed the card, and nothing shows that the signature covers the whole card.

    SDKs drop members before they sign. Whoever serves such a card can remove those members, and nothing shows it.
    """

    code = "partial"


class CardMemoryError(CardVerificationError):
    """The card is verified, and rejected for what is remembered of ``location``: origin, and path before the
    well-known name."""

    code = "memory"

    def __init__(self, message: str, location: str) -> None:
        self.location = location
        super().__init__(message)


class RolledBackCardError(CardMemoryError):
    """The card was signed before one that came from there earlier: at ``issued``, that one at ``remembered``.

    Both are the protected ``iat``, in seconds since the epoch; None: the card does not say when it was signed.
    """

    code = "rolled-back"

    def __init__(self, message: str, location: str, *, issued: float | None, remembered: float) -> None:
        self.issued: float | None = issued
        self.remembered: float = remembered
        super().__init__(message, location)


class PinnedKeyError(CardMemoryError):
    """The card is signed by another key than before, and only its own origin vouches for that key.

    ``presented`` and ``pinned`` are RFC 7638 thumbprints: of the keys that signed now, and of those remembered for the
    location or, if it is new, from first use for its host.
    """

    code = "pinned-key"

    def __init__(self, message: str, location: str, *, presented: frozenset[str], pinned: frozenset[str]) -> None:
        self.presented: frozenset[str] = presented
        self.pinned: frozenset[str] = pinned
        super().__init__(message, location)


class TemporarilyUnavailableError(TrustError):
    """Something that the decision needs is unreachable now: the same request may succeed later."""

    code = "unavailable"


class CardMemoryUnavailableError(TemporarilyUnavailableError):
    """The memory of earlier cards cannot be read or written now: the card may be right, and is not let through."""

    code = "memory-unavailable"


def verification_error(message: str, failures: tuple[SignatureFailure, ...]) -> CardVerificationError:
    """The error for a card without sufficient proof: untrusted when no signature was found to be wrong."""
    reasons = {failure.reason for failure in failures}
    if FailureReason.PARTIAL in reasons:
        return PartialSignatureError(message, failures)
    blameless = reasons <= _TRUST_REASONS | {FailureReason.MALFORMED} and bool(reasons & _TRUST_REASONS)
    return (UntrustedCardError if blameless else CardVerificationError)(message, failures)


class FetchError(TrustError):
    """A document could not be fetched: its address is refused, or the answer is too late, too large or not good.

    ``status`` is that of the HTTP answer that is refused; None when no answer came.
    """

    code = "fetch"

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class TokenRequestError(TrustError):
    """An authorization server rejects a token request, or its answer cannot be used.

    ``error`` is that of RFC 6749 5.2 and its extensions (``invalid_client``); "" without one.
    """

    code = "token-request"

    def __init__(self, message: str, error: str = "") -> None:
        self.error = error
        super().__init__(message)


class AuthenticationError(TrustError):
    """The request proves nobody. Its text goes to the log; callers get a fixed one."""

    code = "authentication"


class MissingCredentialsError(AuthenticationError):
    """The request carries no credential for any scheme that would admit it, or not the one that a handler asks for."""

    code = "missing-credentials"


class InvalidCredentialsError(AuthenticationError):
    """The request carries a credential that is not good: wrong, expired, revoked, or not for us."""

    code = "invalid-credentials"

    def __init__(self, message: str, *, oauth_error: str = "invalid_token") -> None:
        """``oauth_error`` is what the caller is told, where the credential is a token (RFC 6750 3.1, RFC 9449 7.1)."""
        self.oauth_error = oauth_error
        super().__init__(message)


class UnrecognizedCredentialsError(InvalidCredentialsError):
    """The credential is not of the kind, or not of the issuer, that a verifier is for. Another verifier may know it;
    where none does, it is an invalid credential. Nothing was fetched to find that out."""

    code = "unrecognized-credentials"


class AuthorizationError(TrustError):
    """The caller is known and may not; ``scopes`` are those that would be needed, in order of their names.

    ``by_scheme`` has those of every scheme, by its name in the card, whose credential lacks some.
    """

    code = "insufficient-scope"

    def __init__(
        self, message: str, scopes: tuple[str, ...] = (), by_scheme: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        self.scopes = scopes
        self.by_scheme: Mapping[str, tuple[str, ...]] = by_scheme or {}
        super().__init__(message)


class CrossSiteError(AuthorizationError):
    """A page of another site makes the caller's browser ask for this, with a credential that browsers attach."""

    code = "cross-site"


class TooManyRequestsError(TrustError):
    """One caller asks more often than there is room for from one caller, or one peer fails too often. Others are not
    refused. ``retry_after``: in so many seconds the same request may succeed."""

    code = "too-many-requests"

    def __init__(self, message: str, *, retry_after: int = 5) -> None:
        self.retry_after: int = retry_after
        super().__init__(message)


class KeySourceUnavailableError(TemporarilyUnavailableError):
    """The source that a credential is verified with is unreachable now: the credential may be good."""

    code = "key-source-unavailable"


class CardNotServedError(TrustError):
    """The card of this server was changed after it was signed, has expired, or was signed by a revoked key."""

    code = "card-not-served"
