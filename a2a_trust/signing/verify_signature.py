"""Verify the signatures of a card independently: no signature can stop another, whatever their order.

The steps for one signature, in the order of ``verify_signatures`` and ``_verify_by_key``:

1. The entry is well formed, and not a companion: companions never count.
2. Its header names at least one trusted key for the host. Steps 3 to 8 try each of these keys.
3. The key is valid now, and not revoked.
4. The protected ``exp``, ``nbf`` and ``iat`` allow this moment.
5. The ``alg`` of the header is that of the key, and its ``typ`` is not that of a token. Only a2a-python signs with
   ``typ: JWT``, when its caller chooses no ``typ``.
6. The signature is over a form of the card: the form that the mark names, or else any form, the weakest first.
7. The signature covers the whole card. The mark, the trust entry or the signed bytes must show that. A signature of a
   part counts only if the trust entry names an SDK that signs in this form.
8. The key may speak for the hosts of all signed interfaces. An interface in which ``interface_host`` finds no host is
   rejected for every key.

Source: A2A 8.4.3, RFC 7515 5.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final, NamedTuple

from a2a_trust.card.ambiguity import UnambiguousCard
from a2a_trust.card.view import interface_urls
from a2a_trust.dates import date_of
from a2a_trust.errors import FailureReason, InvalidSignatureError, MalformedError, SignatureFailure
from a2a_trust.keys.algorithms import algorithm_of
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.jws import verify_jws
from a2a_trust.keys.trust.origins import Origins, UnsafeAnyOrigin, interface_host
from a2a_trust.keys.trust.store import SigningTool, TrustedKey, TrustStore
from a2a_trust.signing.forms import Form, Projection, pointers_of, project
from a2a_trust.signing.signature import Signature, parse_signature, signature_entries

CLOCK_SKEW: Final = 60.0
"""How far in the future a protected ``iat`` or ``nbf`` may be, in seconds."""


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
    """The protected ``iat``; without one -inf, so that leaving ``iat`` out gives no advantage over other signatures."""

    @property
    def openness(self) -> tuple[bool, int]:
        """How much of the card the signature does not cover; smaller is better."""
        return (not self.is_whole, len(self.projection.dropped))


class _RefusedError(Exception):
    def __init__(self, reason: FailureReason, detail: str) -> None:
        self.reason, self.detail = reason, detail


def verify_signatures(
    served: UnambiguousCard, trust: TrustStore, host: str | None, now: float
) -> tuple[list[VerifiedSignature], tuple[SignatureFailure, ...]]:
    """The signatures that are accepted for this host at this moment, once for each trusted key, and why others do not.

    UnsignedCardError: the card has no signatures. MalformedError: it has too many.
    """
    verified: list[VerifiedSignature] = []
    failures: list[SignatureFailure] = []
    forms = _Forms(served)
    for position, entry in enumerate(signature_entries(served.signatures)):
        kid = None
        try:
            signature = parse_signature(entry)
            kid = signature.kid
            _check_companion(signature)
            candidates = _trusted_keys(signature, trust, host)
            verified += _verify_by_keys(position, signature, candidates, now, forms)
        except MalformedError as error:
            failures.append(_failure(position, kid, FailureReason.MALFORMED, str(error)))
        except _RefusedError as refusal:
            failures.append(_failure(position, kid, refusal.reason, refusal.detail))
    return verified, tuple(failures)


def _verify_by_keys(
    position: int, signature: Signature, candidates: tuple[TrustedKey, ...], now: float, forms: _Forms
) -> list[VerifiedSignature]:
    """The verified signature for each trusted key that made it; _RefusedError if no candidate made it.

    Several parties may have published keys under one kid, so each of these keys is tried.
    """
    verified: list[VerifiedSignature] = []
    refusals: list[tuple[FailureReason, str]] = []  # not the exceptions, whose frames would hold the card
    for trusted in candidates:
        try:
            verified.append(_verify_by_key(position, signature, trusted, now, forms))
        except _RefusedError as refusal:
            refusals.append((refusal.reason, refusal.detail))
    if not verified:
        raise _RefusedError(*min(refusals, key=lambda refusal: _LEAST_TELLING.get(refusal[0], 1)))
    return verified


#: Among several rejections, that of the key that made the signature is reported, not those of other keys of its kid.
_LEAST_TELLING: Final = {FailureReason.PARTIAL: 0, FailureReason.BAD_SIGNATURE: 2}


def _verify_by_key(
    position: int, signature: Signature, trusted: TrustedKey, now: float, forms: _Forms
) -> VerifiedSignature:
    """Steps 3 to 8, with one trusted key; _RefusedError if the signature does not count."""
    _check_validity(trusted, now)
    starts, expires = _check_times(signature, now)
    _check_algorithm(signature, trusted)
    _check_type(signature, trusted)
    signed_forms = forms.signed_by(signature, trusted.key)
    projection, is_whole = _covered(signed_forms, signature.mark, trusted.signer)
    interfaces = forms.interfaces(projection)
    _check_interfaces(interfaces, trusted.origins)
    return VerifiedSignature(
        position=position,
        trusted=trusted,
        projection=projection,
        is_whole=is_whole,
        interfaces=interfaces,
        valid_from=max(trusted.not_before, starts),
        valid_until=min(trusted.not_after, expires),
        issued=signature.header.get("iat", -inf),
    )


def _trusted_keys(signature: Signature, trust: TrustStore, host: str | None) -> tuple[TrustedKey, ...]:
    """The trusted keys that the header names for this host, at least one. ``jku`` is not used."""
    algorithm = algorithm_of(signature.alg)
    if algorithm is None:
        # An unknown algorithm with the kid of a trusted key is an attack; with another kid it is a stranger's.
        if trust.knows(signature.kid):
            raise _RefusedError(
                FailureReason.WRONG_ALGORITHM, "the header's alg is not a signature algorithm for cards"
            )
        raise _RefusedError(FailureReason.UNKNOWN_KEY, "no trusted key has this kid")
    kty = algorithm.kty
    entries = trust.named(signature.kid, kty)
    if not entries:
        raise _RefusedError(FailureReason.UNKNOWN_KEY, f"no trusted {kty} key has this kid")
    if host is not None:
        entries = tuple([entry for entry in entries if entry.origins.covers(host)])
        if not entries:
            raise _RefusedError(FailureReason.WRONG_ORIGIN, f"the key is not trusted for {host}; {_ADD_HOST}")
    return entries


_ADD_HOST: Final = "if it may speak for this host, add the host to the origins of its trust entry"


def _check_companion(signature: Signature) -> None:
    if signature.is_companion:
        raise _RefusedError(
            FailureReason.COMPANION, "a companion, for SDKs that cannot check the full signature; it never counts here"
        )


def _check_validity(trusted: TrustedKey, now: float) -> None:
    if trusted.revoked:
        raise _RefusedError(FailureReason.REVOKED_KEY, "the key is revoked; the publisher must sign with another key")
    if not trusted.not_before <= now < trusted.not_after:
        raise _RefusedError(FailureReason.KEY_NOT_VALID_NOW, f"the key is not valid now: {trusted.state(now)}")


def _check_times(signature: Signature, now: float) -> tuple[float, float]:
    """The period in which the protected header allows the signature: its begin, and its end (exclusive)."""
    header = signature.header
    expires = header.get("exp", inf)
    starts = max(header.get("iat", -inf), header.get("nbf", -inf)) - CLOCK_SKEW
    if now >= expires:
        raise _RefusedError(
            FailureReason.EXPIRED, f"the signature expired at {date_of(expires)}; its publisher must sign again"
        )
    if now < starts:
        raise _RefusedError(FailureReason.NOT_YET_VALID, "the signature begins in the future (protected iat or nbf)")
    return starts, expires


def _check_algorithm(signature: Signature, trusted: TrustedKey) -> None:
    algorithm = algorithm_of(signature.alg)
    if algorithm is None or algorithm.name != trusted.key.alg:
        raise _RefusedError(
            FailureReason.WRONG_ALGORITHM, f"the header's alg is not {trusted.key.alg}, the algorithm of the key"
        )


def _check_type(signature: Signature, trusted: TrustedKey) -> None:
    if signature.is_jwt and (signature.mark is not None or trusted.signer is not SigningTool.A2A_PYTHON):
        raise _RefusedError(
            FailureReason.MALFORMED,
            "the header's typ is JWT: a token whose claims are a card looks like this. If a2a-python signs with the "
            'key, name it in the trust entry: signer = "a2a-python"; else sign with the typ JOSE',
        )


class _Forms:
    """The forms of one card, made on first use."""

    __slots__ = ("_fits", "_made", "_served")

    def __init__(self, served: UnambiguousCard) -> None:
        self._served = served
        self._made: dict[Form, Projection] = {}
        #: Several entries may trust one key; its signature is verified once.
        self._fits: dict[tuple[str, str, str], dict[Form, Projection]] = {}

    def signed_by(self, signature: Signature, key: PublicKey) -> dict[Form, Projection]:
        """The forms of the card that the key signed: that of the mark, or all forms with the bytes of the weakest one.

        The weakest form is tried first. A signer that drops members may have dropped some before the card was served;
        then the served card has exactly the signed bytes, and nothing shows that members are missing.
        """
        asked = (signature.protected, signature.signature, key.thumbprint)
        fits = self._fits.get(asked)
        if fits is None:
            fits = self._fits[asked] = self._fitting(signature, key)
        if not fits:
            raise _RefusedError(
                FailureReason.BAD_SIGNATURE,
                "not a signature by this key over this card"
                + (" in any form" if signature.mark is None else f" in the form {signature.mark}, which it names")
                + "; the card or the signature was changed",
            )
        return fits

    def interfaces(self, projection: Projection) -> list[tuple[str, str]]:
        """JSON pointer and URL of every interface in a form of the card."""
        if projection.payload is self._served.payload:
            return self._served.interfaces
        return interface_urls(projection.members)

    def _fitting(self, signature: Signature, key: PublicKey) -> dict[Form, Projection]:
        forms = _WEAKEST_FIRST if signature.mark is None else (signature.mark,)
        tried: list[bytes] = []
        for form in forms:
            if form is Form.V0_3_PYTHON and not self._served.generation.is_legacy:
                continue
            payload = self._project(form).payload
            if payload in tried:
                continue
            tried.append(payload)
            if _is_by(key, signature, payload):
                return {each: self._project(each) for each in forms if self._project(each).payload == payload}
        return {}

    def _project(self, form: Form) -> Projection:
        made = self._made.get(form)
        if made is None:
            served = self._served
            is_one = form in (Form.SPEC, Form.PRUNED) or (form is Form.PRUNED_LEGACY and served.is_printed_alike)
            if served.payload is not None and (form is Form.SPEC or (served.has_one_form and form is Form.SERVED)):
                dropped = pointers_of(served.dropped)
                made = Projection(form, served.generation, None, served.payload, dropped=dropped)
            elif served.has_one_form and is_one:
                # The card has nothing that any form would drop.
                made = self._project(Form.SERVED).named(form)
            else:
                made = project(served.card, form, generation=served.generation, plain=served.is_plain)
            self._made[form] = made
        return made


#: SERVED before SPEC: they prove the same, and if their bytes are equal, the simpler name is reported.
_WEAKEST_FIRST: Final = (Form.V0_3_PYTHON, Form.PRUNED_LEGACY, Form.PRUNED, Form.SERVED, Form.SPEC)


def _is_by(key: PublicKey, signature: Signature, payload: bytes) -> bool:
    try:
        verify_jws(
            protected=signature.protected,
            payload=payload,
            signature=signature.signature,
            key=key,
            header=signature.unprotected,
        )
    except InvalidSignatureError:
        return False
    return True


_FORMS_OF: Final[Mapping[SigningTool | None, tuple[Form, ...]]] = {
    SigningTool.A2A_PYTHON: (Form.V0_3_PYTHON, Form.PRUNED_LEGACY, Form.PRUNED),
    SigningTool.A2A_JS: (Form.PRUNED,),
}
"""The pruned forms of each SDK, weakest first."""


def _covered(fits: Mapping[Form, Projection], mark: Form | None, signer: SigningTool | None) -> tuple[Projection, bool]:
    """The signed form, and whether it is the whole card; _RefusedError if the trust entry does not allow a part.

    ``fits`` are the forms of the card that the signature fits.
    """
    if mark is not None:
        return fits[mark], True
    full = fits.get(Form.SERVED) or fits.get(Form.SPEC)
    if full is not None and (
        signer is SigningTool.WHOLE or (signer is not SigningTool.A2A_TRUST and full.shows_whole())
    ):
        return full, True
    for form in _FORMS_OF.get(signer, ()):
        if form in fits:
            return fits[form], False
    if full is not None and signer in _FORMS_OF:
        # A newer SDK may know members that are unknown here, and still prune others.
        return full.named(Form.PRUNED), False
    raise _RefusedError(FailureReason.PARTIAL, _why_partial(fits, signer))


def _why_partial(fits: Mapping[Form, Projection], signer: SigningTool | None) -> str:
    if signer is SigningTool.A2A_TRUST:
        return (
            "a valid signature without the mark of a2a-trust, which the trust entry demands: its signer is "
            '"a2a-trust". If another tool signs with the key, name that tool as signer'
        )
    if signer is not None:
        return (
            f"a valid signature in the form {next(iter(fits))}, which {signer}, the signer of the trust entry, does "
            "not use; name the tool that signs with the key as signer"
        )
    return (
        "a valid signature, but nothing shows that it covers the whole card: members that SDKs drop before they sign "
        "may have been removed. To accept this, name the signer in the trust entry: "
        '"a2a-python" or "a2a-js", or "whole" if the owner of the key signs complete cards'
    )


def _check_interfaces(interfaces: list[tuple[str, str]], origins: Origins | UnsafeAnyOrigin) -> None:
    for pointer, url in interfaces:
        try:
            host = interface_host(url)
        except MalformedError as error:
            raise _RefusedError(FailureReason.WRONG_ORIGIN, f"{pointer}: {error}") from None
        if not origins.covers(host):
            raise _RefusedError(
                FailureReason.WRONG_ORIGIN, f"{pointer}: the key is not trusted for the host {host}; {_ADD_HOST}"
            )


def _failure(position: int, kid: str | None, reason: FailureReason, detail: str) -> SignatureFailure:
    shown = None if kid is None else ascii(kid[:64])[1:-1]
    return SignatureFailure(index=position, kid=shown, reason=reason, detail=detail)
