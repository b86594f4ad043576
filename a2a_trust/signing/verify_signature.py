"""Verify the signatures of a card independently: no signature can stop another, whatever their order.

The steps for one signature, in the order of ``verify_signatures`` and ``_verify_by_key``:

1. The entry is well formed, and not a companion: companions never count.
2. Its header names at least one trusted key for the host. Steps 3 to 8 try each of these keys.
3. The key is valid now, and not revoked.
4. The protected ``exp``, ``nbf`` and ``iat`` allow this moment.
5. The ``alg`` of the header is the key's, and its ``typ`` is not the one of a token. Only a2a-python signs with
   ``typ: JWT``, when its caller chooses no ``typ``.
6. The signature is over a form of the card: the form that its marker names, or else any form.
7. The signature covers the whole card (``coverage``). A signature of a part counts only if the trust entry names an
   SDK that signs in this form.
8. The key is trusted for the hosts of all signed interfaces. An interface in which ``interface_host`` finds no host is
   rejected for every key.

Source: A2A 8.4.3, RFC 7515 5.2.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from a2a_trust.base.dates import CLOCK_SKEW, date_of
from a2a_trust.card.ambiguity import UnambiguousCard
from a2a_trust.errors import FailureReason, MalformedError, SignatureFailure
from a2a_trust.keys.trust.origins import Origins, UnsafeAnyOrigin, interface_host
from a2a_trust.keys.trust.store import SigningTool, TrustedKey, TrustStore
from a2a_trust.signing.coverage import CardForms, find_coverage
from a2a_trust.signing.forms import Projection
from a2a_trust.signing.signature import RejectedError, Signature, parse_signature, signature_entries

_ADD_HOST: Final = "if it should be trusted for this host, add the host to the origins of its trust entry"

#: Lowest first: the rejection of the key that made the signature is reported, not the ones of other keys with its kid.
_RANKS: Final = {FailureReason.PARTIAL: 0, FailureReason.BAD_SIGNATURE: 2}


class VerifiedSignature(NamedTuple):
    """A signature of a card by one trusted key, and the members that it covers."""

    position: int
    """The index of the signature in the card. A signature belongs to one party, even if several keys verify it."""
    trusted: TrustedKey
    projection: Projection
    is_whole: bool
    """Whether it covers the whole card."""
    interfaces: list[tuple[str, str]]
    """Pointer and URL of every signed interface."""
    valid_from: float
    valid_until: float
    issued: float
    """As in ``Signature``."""

    @property
    def openness(self) -> tuple[bool, int]:
        """How much of the card the signature does not cover; smaller is better."""
        return (not self.is_whole, len(self.projection.dropped))


def verify_signatures(
    served: UnambiguousCard, trust: TrustStore, host: str | None, now: float
) -> tuple[list[VerifiedSignature], tuple[SignatureFailure, ...]]:
    """The signatures that are accepted for this host at this moment, once for each trusted key, and why others do not.

    UnsignedCardError: the card has no signatures. MalformedError: it has too many.
    """
    verified: list[VerifiedSignature] = []
    failures: list[SignatureFailure] = []
    forms = CardForms(served)
    for position, entry in enumerate(signature_entries(served.signatures)):
        kid = None
        try:
            signature = parse_signature(entry)
            kid = signature.kid
            if signature.is_companion:
                text = "a companion, for SDKs that cannot check the full signature; it never counts here"
                raise RejectedError(FailureReason.COMPANION, text)
            candidates = _trusted_keys(signature, trust, host)
            verified += _verify_by_keys(position, signature, candidates, now, forms)
        except MalformedError as error:
            failures.append(_failure(position, kid, FailureReason.MALFORMED, str(error)))
        except RejectedError as rejection:
            failures.append(_failure(position, kid, rejection.reason, rejection.detail))
    return verified, tuple(failures)


def _verify_by_keys(
    position: int, signature: Signature, candidates: tuple[TrustedKey, ...], now: float, forms: CardForms
) -> list[VerifiedSignature]:
    """The verified signature for each trusted key that made it; RejectedError if no candidate made it.

    Several parties may have published keys under one kid, so each of these keys is tried.
    """
    verified: list[VerifiedSignature] = []
    rejections: list[tuple[FailureReason, str]] = []  # not the exceptions, whose frames would hold the card
    for trusted in candidates:
        try:
            verified.append(_verify_by_key(position, signature, trusted, now, forms))
        except RejectedError as rejection:
            rejections.append((rejection.reason, rejection.detail))
    if not verified:
        raise RejectedError(*min(rejections, key=lambda rejection: _RANKS.get(rejection[0], 1)))
    return verified


def _verify_by_key(
    position: int, signature: Signature, trusted: TrustedKey, now: float, forms: CardForms
) -> VerifiedSignature:
    """Steps 3 to 8, with one trusted key; RejectedError if the signature does not count."""
    _check_validity(trusted, now)
    starts, expires = _check_times(signature, now)
    _check_header(signature, trusted)
    signed = forms.signed_by(signature, trusted.key, trusted.signer)
    projection, is_whole = find_coverage(signed, forms, signature.marker, trusted.signer)
    interfaces = forms.interfaces(projection)
    _check_interfaces(interfaces, trusted.origins)
    valid_from, valid_until = max(trusted.not_before, starts), min(trusted.not_after, expires)
    return VerifiedSignature(
        position, trusted, projection, is_whole, interfaces, valid_from, valid_until, signature.issued
    )


def _trusted_keys(signature: Signature, trust: TrustStore, host: str | None) -> tuple[TrustedKey, ...]:
    """The trusted keys that the header names for this host, at least one. ``jku`` is not used."""
    if signature.algorithm is None:
        # An unknown algorithm with the kid of a trusted key is an attack; with another kid, the signer is unknown.
        if trust.knows(signature.kid):
            raise RejectedError(
                FailureReason.WRONG_ALGORITHM, "the header's alg is not a signature algorithm for cards"
            )
        raise RejectedError(FailureReason.UNKNOWN_KEY, "no trusted key has this kid")
    kty = signature.algorithm.kty
    entries = trust.named(signature.kid, kty)
    if not entries:
        raise RejectedError(FailureReason.UNKNOWN_KEY, f"no trusted {kty} key has this kid")
    if host is not None:
        entries = tuple([entry for entry in entries if entry.origins.covers(host)])
        if not entries:
            raise RejectedError(FailureReason.WRONG_ORIGIN, f"the key is not trusted for {host}; {_ADD_HOST}")
    return entries


def _check_validity(trusted: TrustedKey, now: float) -> None:
    if trusted.revoked:
        raise RejectedError(FailureReason.REVOKED_KEY, "the key is revoked; the publisher must sign with another key")
    if not trusted.not_before <= now < trusted.not_after:
        raise RejectedError(FailureReason.KEY_NOT_VALID_NOW, f"the key is not valid now: {trusted.state(now)}")


def _check_times(signature: Signature, now: float) -> tuple[float, float]:
    """The period in which the protected header allows the signature: its begin, and its end (exclusive)."""
    starts = signature.starts - CLOCK_SKEW
    if now >= signature.expires:
        raise RejectedError(
            FailureReason.EXPIRED,
            f"the signature expired at {date_of(signature.expires)}; its publisher must sign again",
        )
    if now < starts:
        raise RejectedError(FailureReason.NOT_YET_VALID, "the signature begins in the future (protected iat or nbf)")
    return starts, signature.expires


def _check_header(signature: Signature, trusted: TrustedKey) -> None:
    if signature.algorithm is None or signature.algorithm.name != trusted.key.alg:
        raise RejectedError(
            FailureReason.WRONG_ALGORITHM, f"the header's alg is not {trusted.key.alg}, the algorithm of the key"
        )
    if signature.is_jwt and (signature.marker is not None or trusted.signer is not SigningTool.A2A_PYTHON):
        raise RejectedError(
            FailureReason.MALFORMED,
            "the header's typ is JWT: a token whose claims are a card looks like this. If a2a-python signs with the "
            'key, name it in the trust entry: signer = "a2a-python"; else sign with the typ JOSE',
        )


def _check_interfaces(interfaces: list[tuple[str, str]], origins: Origins | UnsafeAnyOrigin) -> None:
    for pointer, url in interfaces:
        try:
            host = interface_host(url)
        except MalformedError as error:
            raise RejectedError(FailureReason.WRONG_ORIGIN, f"{pointer}: {error}") from None
        if not origins.covers(host):
            text = f"{pointer}: the key is not trusted for the host {host}; {_ADD_HOST}"
            raise RejectedError(FailureReason.WRONG_ORIGIN, text)


def _failure(position: int, kid: str | None, reason: FailureReason, detail: str) -> SignatureFailure:
    shown = None if kid is None else ascii(kid[:64])[1:-1]
    return SignatureFailure(index=position, kid=shown, reason=reason, detail=detail)
