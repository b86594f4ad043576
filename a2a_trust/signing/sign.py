"""Sign a card so that every verifier reads the members that were signed.

A card is normalized before it is signed: members that A2A 8.4.1 drops from the canonical form are dropped from the
card, so the served card and the form of the specification are the same. The form that other SDKs sign may still differ,
for example by a requirement without scopes. Then each key signs twice: the full form, and a companion for those SDKs.

A card of 0.1 to 0.3 is signed as it is. Its companion is in the form of a2a-python 0.3, never in the pruned form, which
has neither ``url`` nor ``security``.

To know whether a card has to be signed again, it is signed now, and compared with the result, except for moments and
the bytes of signatures. So every choice of signing counts: keys, algorithms, companions, ``jku``, dropped members.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from typing import Any, Final, Literal, NamedTuple

import orjson

from a2a_trust.base.dates import CLOCK_SKEW, date_of, seconds
from a2a_trust.base.strict_json import JSON, MAX_BYTES, JSONObject
from a2a_trust.base.strict_json.jcs import MAX_SAFE_INTEGER, canonicalize, canonicalize_parsed
from a2a_trust.base.workers import on_all_cores
from a2a_trust.card.ambiguity import Reader, UnambiguousCard, read_quickly
from a2a_trust.card.given import GivenCard, read_given
from a2a_trust.card.schema import LEGACY_MEMBERS, REQUIREMENT_MEMBERS, SCHEME_MEMBERS
from a2a_trust.card.view import interface_urls, read_card, without_signatures
from a2a_trust.errors import (
    ConfigurationError,
    InvalidSignatureError,
    MalformedError,
    SigningError,
    TrustError,
    with_option,
)
from a2a_trust.keys import base64url
from a2a_trust.keys.jws import signing_input, verify_signed
from a2a_trust.keys.signer import LocalSigner, Signer
from a2a_trust.keys.trust.origins import UnsafeAnyOrigin, interface_host, url_of
from a2a_trust.signing.a2a_python import members_unread_in_0_3, rewritten_members
from a2a_trust.signing.forms import Form, Projection, present_members, project, shorten, unprotected_members
from a2a_trust.signing.signature import MAX_SIGNATURES, Signature, content_type, parse_signature

_READERS: Final = {Form.PRUNED: "a2a-python and a2a-js", Form.V0_3_PYTHON: "a2a-python 0.3"}
"""Form of a companion -> the SDKs that it is for."""

_REQUIREMENTS: Final = frozenset({*REQUIREMENT_MEMBERS, "authentication"})


class Arguments(NamedTuple):
    """The names of arguments in notes; the command line writes the names of its options instead."""

    companion: str = "companion=True"
    no_companion: str = "companion=False"
    no_iat: str = "iat=False"
    end: str = "lifetime=…"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedCard:
    """A signed card, and the changes that signing made.

    - ``card``: the signed card, a new dict, with its members in the original order.
    - ``payload``: the bytes that were signed.
    - ``normalized``: JSON pointers of members that were dropped, because the form of the specification drops them.
    - ``companion``: the form of the second signature for other SDKs; None without one.
    - ``withheld_for``: the security members for which no companion was added, because it would leave them open.
    - ``left_open``: JSON pointers of members that the companion does not protect. Those SDKs accept the card even if
      somebody changed these members.
    - ``rejections``: a sentence for each SDK that rejects the signed card, with the reason.
    - ``discarded``: the number of entries of ``signatures`` that were dropped because they are not signatures.
    - ``issued``, ``expires``: ``iat`` and ``exp`` of the new signatures, None without.
    """

    card: JSONObject
    payload: bytes
    normalized: tuple[str, ...]
    companion: Form | None
    left_open: tuple[str, ...]
    rejections: tuple[str, ...]
    withheld_for: tuple[str, ...] = ()
    discarded: int = 0
    issued: float | None = None
    expires: float | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """The changes that signing made, in sentences for people."""
        return self.notes_naming(Arguments())

    def notes_naming(self, arguments: Arguments) -> tuple[str, ...]:
        """As ``notes``, with the names that the caller writes."""
        notes = []
        if self.discarded:
            notes.append(
                f"dropped {self.discarded} of the entries in signatures: a signature is an object with the strings "
                "protected and signature"
            )
        if self.normalized:
            notes.append(f"dropped members that A2A 8.4.1 drops: {shorten(self.normalized)}")
        if self.companion is not None:
            notes.append(
                f"added a companion signature ({self.companion} form) for {_READERS[self.companion]}, which cannot "
                "check the full signature. These SDKs accept the card even after somebody removed members that the "
                f"companion does not protect. {_by_consequence(self.left_open)}. To add no companion, sign with "
                f"{arguments.no_companion}; these SDKs then reject the card"
            )
        notes += self.rejections
        if self.withheld_for:
            notes.append(
                f"to have these SDKs accept the card, sign with {arguments.companion}; or give the card one form, with "
                "a scope in each requirement: a2a-sign lint says how. Give existing keys that scope first, because the "
                "guard demands it"
            )
        if self.issued is None:
            notes.append(
                "signed without iat: clients that remember an earlier iat of this agent reject the card, and other "
                "clients do not detect an older card that is served in its place. To add iat, leave out "
                f"{arguments.no_iat}"
            )
        if self.expires is None:
            notes.append(
                "the signature never expires: clients that have seen no newer card accept this one until its key is "
                f"revoked. To set an end, sign with {arguments.end}"
            )
        return tuple(notes)


def _by_consequence(pointers: tuple[str, ...]) -> str:
    """The pointers for people, requirements first, because without these clients send no credentials."""
    groups: dict[str, list[str]] = {
        "Security requirements (without them clients send no credentials)": [],
        "Security schemes": [],
        "Other members": [],
    }
    requirements, schemes, others = groups.values()
    for pointer in pointers:
        steps = pointer.split("/")
        if steps[1] in _REQUIREMENTS or (steps[1] == "skills" and not _REQUIREMENTS.isdisjoint(steps[3:4])):
            requirements.append(pointer)
        else:
            (schemes if steps[1] in SCHEME_MEMBERS else others).append(pointer)
    return ". ".join(f"{group}: {shorten(tuple(found))}" for group, found in groups.items() if found)


def sign_card(
    card: GivenCard,
    *signers: Signer,
    jku: str | None = None,
    iat: float | datetime | Literal[False] | None = None,
    exp: float | datetime | None = None,
    lifetime: float | timedelta | None = None,
    drop_broken: bool = False,
    companion: bool | None = None,
) -> SignedCard:
    """Sign a card with every signer. Returns a new card; the given card is not changed.

    - ``card``: the card without or with signatures. Earlier signatures with the kids of ``signers`` are replaced, and
      signatures of others stay. Whether an edit has broken these is unknown without their keys.
    - ``jku``: the https URL of the key set, for the protected headers.
    - ``iat``: when the card was signed, an aware datetime or seconds since the epoch. None: now. False leaves it out;
      then clients cannot detect an older card.
    - ``exp``: when the signatures expire, likewise. Or ``lifetime``: how long they are valid, a timedelta or seconds,
      60 or more. Without both they never expire. Our verifier honors ``iat`` and ``exp``; other verifiers may ignore
      them, because ``crit`` does not name them.
    - ``drop_broken``: remove signatures of others that normalizing the card may break; without it they are an error.
    - ``companion``: whether each key also signs the form of SDKs that cannot verify the full form. These SDKs then
      accept the card, and otherwise reject it. None: only where this leaves no security member open.

    1. Check the arguments.
    2. Read the card, and reject it if readers could read it differently.
    3. Drop what the specification's form drops: the rest is signed in full.
    4. Keep the signatures of others.
    5. Choose the form of the companion, for the SDKs that cannot check the full one.
    6. Sign every form with every signer, and verify each signature.
    7. Check that readers find what was signed in the signed card.

    Errors:

    - MalformedError: not a card, or two readers could read it differently.
    - SigningError: the card cannot be signed as asked, or a signer returned a wrong signature.
    - ConfigurationError: an argument is wrong.

    Source: A2A 8.4.2.
    """
    # 1.
    claims = make_claims(signers, time.time(), iat=iat, exp=exp, lifetime=lifetime, jku=jku)
    return sign_with(signers, claims, card, drop_broken=drop_broken, companion=companion)


def sign_cards(
    cards: Iterable[GivenCard],
    *signers: Signer,
    jku: str | None = None,
    iat: float | datetime | Literal[False] | None = None,
    exp: float | datetime | None = None,
    lifetime: float | timedelta | None = None,
    drop_broken: bool = False,
    companion: bool | None = None,
    workers: int | None = None,
) -> Iterator[SignedCard | TrustError]:
    """Sign many cards with the same signers. Yields the signed card, or the error, for each card in order.

    Arguments are as for ``sign_card``, and ``workers`` as for ``verify_cards``. All cards have the ``iat`` of
    this call. Private keys are never sent to another process, because a worker is a fork of this one. A signer that
    keeps a connection (to an HSM or a KMS) is shared by all forks, which few such signers permit: use ``workers=1``
    with them.

    ConfigurationError: an argument is wrong. OSError: a worker process was killed.
    """
    claims = make_claims(signers, time.time(), iat=iat, exp=exp, lifetime=lifetime, jku=jku)

    def sign(card: GivenCard) -> SignedCard | TrustError:
        try:
            return sign_with(signers, claims, card, drop_broken=drop_broken, companion=companion)
        except TrustError as error:
            return error

    return on_all_cores(sign, cards, workers)


def sign_with(
    signers: tuple[Signer, ...], claims: dict[str, Any], card: GivenCard, *, drop_broken: bool, companion: bool | None
) -> SignedCard:
    """Steps 2 to 7 of ``sign_card``, with the claims of ``make_claims``."""
    # 2.
    original = card_to_sign(card, read_quickly)
    signed = sign_unchecked(signers, claims, original, drop_broken=drop_broken, companion=companion)
    # 7.
    _check_result(signed, original)
    return signed


def sign_unchecked(
    signers: tuple[Signer, ...],
    claims: dict[str, Any],
    original: UnambiguousCard,
    *,
    drop_broken: bool,
    companion: bool | None,
) -> SignedCard:
    """Steps 3 to 6 of ``sign_card``: a caller that writes the card as text checks that text."""
    entries, discarded = _read_signatures(original.card)
    # 3.
    full = _full_form(original)
    # 4.
    kept = _keep_others(entries, signers, full.dropped, drop_broken=drop_broken)
    # 5.
    second, rejections, withheld_for = _choose_companion(full, original, is_wanted=companion)
    # 6.
    made = [_sign_form(signer, form, claims) for form in (full, second) if form is not None for signer in signers]
    return SignedCard(
        card=_add_signatures(original.card, full.members, [*kept, *made]),
        payload=full.payload,
        normalized=full.dropped,
        companion=None if second is None else second.form,
        left_open=() if second is None else second.dropped,
        rejections=rejections,
        withheld_for=withheld_for,
        discarded=discarded,
        issued=claims.get("iat"),
        expires=claims.get("exp"),
    )


def _check_signers(signers: tuple[Signer, ...]) -> None:
    if not signers:
        raise ConfigurationError("sign_card: give at least one signer, as in sign_card(card, generate_signer())")
    for signer in signers:
        # isinstance with a protocol takes 7 µs, 4 % of signing a card.
        if type(signer) is not LocalSigner and not isinstance(signer, Signer):
            raise ConfigurationError(
                f"sign_card: {type(signer).__name__} is not a signer; write sign_card(card, signer), with several "
                "signers sign_card(card, *signers), and for a key file load_private_key(path)"
            )
        if (signer.alg, signer.kid) != (signer.public_key.alg, signer.public_key.kid):
            raise ConfigurationError(
                f"sign_card: alg and kid of the signer {signer.kid!a} must be the same as in its public_key"
            )
    if len(signers) == 1:
        return
    if len({signer.kid for signer in signers}) < len(signers):
        raise ConfigurationError("sign_card: two signers have the same kid; give one of them another kid")
    if len({signer.public_key.thumbprint for signer in signers}) < len(signers):
        raise ConfigurationError("sign_card: two signers have the same key, which verifiers count once; leave one out")


def make_claims(
    signers: tuple[Signer, ...],
    now: float,
    *,
    iat: float | datetime | Literal[False] | None,
    exp: float | datetime | None,
    lifetime: float | timedelta | None = None,
    jku: str | None,
) -> dict[str, Any]:
    """The members of every protected header that the caller chooses; ConfigurationError if an argument is wrong."""
    _check_signers(signers)
    if iat is True:
        raise ConfigurationError("sign_card: iat: leave it out for now, or write the moment, or False for no iat")
    begin = float(int(now)) if iat is None or iat is False else seconds(iat)
    times = {} if iat is False else {"iat": begin}
    if lifetime is not None:
        if exp is not None:
            raise ConfigurationError(
                "sign_card: exp and lifetime both say when the signatures expire; give one of them"
            )
        exp = begin + lifetime_seconds(lifetime)
    if exp is not None:
        times["exp"] = seconds(exp)
    if not all(abs(moment) <= MAX_SAFE_INTEGER for moment in times.values()):
        raise ConfigurationError("sign_card: write iat and exp as seconds since the epoch, or as aware datetimes")
    if "exp" in times and times["exp"] <= times.get("iat", 0.0):
        raise ConfigurationError("sign_card: exp must be later than iat")
    for signer in signers:
        if not signer.public_key.is_valid_at(now if iat is None or iat is False else begin):
            raise SigningError(
                f"sign_card: the key {signer.kid!a} is revoked or not valid at the moment of the signature, according "
                "to nbf, exp or revoked in its JWK; sign with another key"
            )
    claims: dict[str, Any] = {name: int(value) if value.is_integer() else value for name, value in times.items()}
    if jku is not None:
        _check_jku(jku)
        claims["jku"] = jku
    return claims


def lifetime_seconds(lifetime: float | timedelta) -> float:
    """How long a signature is valid, in seconds; ConfigurationError if that is too short."""
    value = lifetime.total_seconds() if isinstance(lifetime, timedelta) else lifetime
    if not value >= 60:
        raise ConfigurationError(
            f"lifetime: {lifetime!r:.40} is too short; write 60 seconds or more, or None for signatures without an end"
        )
    return value


def _check_jku(jku: str) -> None:
    try:
        parts = url_of(jku)
    except MalformedError:
        parts = None
    if parts is None or parts.scheme != "https" or parts.fragment:
        text = "jku: write the https URL, without fragment, at which the JWK Set is served"
        raise with_option(ConfigurationError(text), f"--{text}")


def card_to_sign(card: GivenCard, read: Reader) -> UnambiguousCard:
    """A copy of the card in plain JSON types, in its own order; MalformedError if readers could read it differently.

    A merged card with contradicting generations is rejected, too: one signature must not cover two meanings.
    """
    given = read_given(card, what="sign_card: the first argument")
    if not isinstance(given, bytes):
        members = dict(given)
        canonicalize(members)  # rejects values that are not JSON
        given = orjson.dumps(members)
    original = read(given)
    if not original.generation.is_legacy and not LEGACY_MEMBERS.isdisjoint(original.card):
        read_card(original.card)
    return original


def _read_signatures(card: JSONObject) -> tuple[list[JSON], int]:
    """The entries of ``signatures`` that have the shape of a signature, and the number of the others."""
    given = card.get("signatures")
    if given is None:
        return [], 0
    if type(given) is not list:
        raise MalformedError("card: /signatures: it must be a list; remove the member to sign the card")
    entries = [
        entry
        for entry in given
        if type(entry) is dict and type(entry.get("protected")) is type(entry.get("signature")) is str  # A2A 4.4.7
    ]
    canonicalize(entries)  # rejects what is not JSON: signatures of others are served again, too
    return entries, len(given) - len(entries)


def _full_form(original: UnambiguousCard) -> Projection:
    """The form for a full signature: the card without the members that the specification drops.

    A card of 0.1 to 0.3 is signed as it is. SigningError: an interface has a URL that all verifiers reject.
    MalformedError: an integer that readers would round.
    """
    members = without_signatures(original.card)
    form, normalized = Form.SERVED if original.generation.is_legacy else Form.SPEC, tuple[str, ...]()
    if form is Form.SPEC and not original.has_one_form and (original.payload is None or original.dropped):
        members, normalized = present_members(members)
    for pointer, url in original.interfaces if original.payload is not None else interface_urls(members):
        try:
            interface_host(url)
        except MalformedError as error:
            raise SigningError(
                f"{pointer}: {error}. The card was not signed, because verifiers would reject it"
            ) from None
    if original.payload is not None and original.is_plain:
        payload = original.payload
    else:  # an integer beyond 53 bits was read, and must not be signed
        payload = canonicalize_parsed(members, plain=original.is_plain) if original.is_plain else canonicalize(members)
    return Projection(form, original.generation, payload, normalized, _members=members)


def _keep_others(
    entries: list[JSON], signers: tuple[Signer, ...], normalized: tuple[str, ...], *, drop_broken: bool
) -> list[JSON]:
    """The signatures of others. If dropping members may break them, SigningError, or none with ``drop_broken``."""
    kids = {signer.kid for signer in signers}
    others = [entry for entry in entries if (each := _signature_in(entry)) is None or each.kid not in kids]
    if not others or not normalized:
        return others
    if not drop_broken:
        text = (
            f"signing drops these members of the card: {shorten(normalized)}. This may break the signatures of others "
            "in the card. Remove the members and let the others sign again, or remove their signatures with "
        )
        raise with_option(SigningError(f"{text}drop_broken=True"), f"{text}--drop-broken")
    return []


def _signature_in(entry: JSON) -> Signature | None:
    try:
        return parse_signature(entry)
    except MalformedError:
        return None


def _choose_companion(
    full: Projection, original: UnambiguousCard, *, is_wanted: bool | None
) -> tuple[Projection | None, tuple[str, ...], tuple[str, ...]]:
    """The form for the companion (None without one), sentences about SDKs that reject the card, ``withheld_for``."""
    if original.has_one_form and not full.generation.is_legacy:
        return None, (), ()
    form = Form.V0_3_PYTHON if full.generation.is_legacy else Form.PRUNED
    rejections: tuple[str, ...] = ()
    if rewritten := rewritten_members(full.members):
        rejections = (
            f"rejected by a2a-python 1.3: before it verifies, it rewrites members of 0.3 as members of 1.0 "
            f"({shorten(rewritten)}); write the members of 1.0 beside them or in their place",
        )
    unread = next(members_unread_in_0_3(full.members), None) if form is Form.V0_3_PYTHON else None
    simple = original.payload is not None
    companion = project(full.members, form, generation=full.generation, plain=original.is_plain, simple=simple)
    withheld_for = tuple[str, ...]()
    if unread is not None:
        why = (
            f"the card does not fit its models of A2A 0.3 at {shorten((unread,))}, so no companion signature was added"
        )
    elif companion.payload == full.payload:
        return None, rejections, ()
    elif companion.payload == b"{}":
        why = f"the {form} form, which they verify, has no member of the card"
    elif is_wanted is None and (withheld_for := unprotected_members(full.members, companion)):
        why = f"no companion signature was added, because it would not protect {', '.join(withheld_for)}"
    elif is_wanted is None or is_wanted:
        return companion, rejections, ()
    else:
        why = f"signed without a companion signature in the {form} form"
    return None, (*rejections, f"rejected by {_READERS[form]}: {why}"), withheld_for


def _sign_form(signer: Signer, projection: Projection, claims: JSONObject) -> JSONObject:
    """A signature of a form; SigningError if it does not verify."""
    header = {"alg": signer.alg, "kid": signer.kid, "typ": "JOSE", "cty": content_type(projection.form), **claims}
    protected = base64url.encode(orjson.dumps(header, option=orjson.OPT_SORT_KEYS))
    signed = signing_input(protected, projection.payload)
    made = {"protected": protected, "signature": base64url.encode(signer.sign(signed))}
    try:
        read = parse_signature(made)
        verify_signed(read.header, read.signature, signed, signer.public_key)
    except (InvalidSignatureError, MalformedError):
        raise SigningError(
            f"the signer {signer.kid!a} returned a signature that does not verify with its public key; sign() must "
            "return the JOSE form, for ECDSA r || s of fixed length, not DER"
        ) from None
    return made


def _add_signatures(original: JSONObject, members: JSONObject, signatures: list[JSON]) -> JSONObject:
    """The signed card, in the order of the original, which ``members`` has. New ``signatures`` come last."""
    if len(signatures) > MAX_SIGNATURES:
        raise SigningError(
            f"the card would have more than {MAX_SIGNATURES} signatures, which verifiers reject; remove some of them, "
            "or sign with fewer keys"
        )
    signed = {**members, "signatures": signatures}
    return {name: signed[name] for name in original if name in signed} if "signatures" in original else signed


def _check_result(signed: SignedCard, original: UnambiguousCard) -> None:
    """Step 7 of ``sign_card``. The result is read again, unless it is a simple card whose members print ``payload``."""
    document = orjson.dumps(signed.card)
    members = without_signatures(signed.card)
    is_simple = original.payload is not None and original.is_plain and len(document) <= MAX_BYTES
    if not is_simple or canonicalize_parsed(members, plain=original.is_plain) != signed.payload:
        check_served(read_quickly(document), signed)


def check_served(served: UnambiguousCard, signed: SignedCard) -> None:
    """SigningError unless readers of a card find what was signed, and its signatures, which are verified."""
    payload = served.payload
    if payload is None:
        form = Form.SERVED if served.generation.is_legacy else Form.SPEC
        payload = project(served.card, form, generation=served.generation, plain=served.is_plain).payload
    if (payload, served.signatures) != (signed.payload, signed.card["signatures"]):
        raise SigningError("the signed card differs from the card that was given; nothing was signed")


#: The members of an entry that ``sign_card`` makes. Others are not signed, and signing again removes them.
_MEMBERS: Final = frozenset({"protected", "signature"})


def reason_to_sign(
    document: bytes,
    card: JSONObject,
    signed: SignedCard,
    signers: Sequence[Signer],
    *,
    now: float,
    until: float,
    read: Reader = read_quickly,
) -> str | None:
    """The reason for which ``card`` has to be signed again, for people; None if it need not be signed.

    ``document`` is the text of ``card``, and ``signed`` is the result of ``sign_card`` now. Each signature by
    ``signers`` in ``signed`` must be in ``card``, too: by the same key, with the same protected header, over this
    card. Only the moments may differ: ``exp`` must be after ``until`` (seconds since the epoch), and not later than in
    ``signed``, apart from a clock that is slow. All other members, and the signatures of others, must be equal in both.
    """
    if signed.normalized:
        return f"signing drops {shorten(signed.normalized)}"
    old, kept = _split(card.get("signatures"), signers)
    new, others = _split(signed.card["signatures"], signers)
    if len(kept) != len(others) or signed.discarded:
        return "signing removes entries of signatures"
    for wanted in new:
        found = [each for each in old if _without_moments(each) == _without_moments(wanted)]
        if not found:
            return _why_missing(wanted, old)
        if reason := _why_outdated(found[0], wanted, signed, signers, until):
            return reason
    if signed.withheld_for and any(each.is_companion for each in old):
        return (
            f"it has a companion signature that does not protect {', '.join(signed.withheld_for)}; signing removes it, "
            "or keeps it with --companion"
        )
    if len(old) != len(new):
        return f"it has signatures by {', '.join(sorted({each.kid for each in old}))} that signing removes"
    return _why_unverified(read(document), signed.payload, signers, now)


def _why_unverified(served: UnambiguousCard, payload: bytes, signers: Sequence[Signer], now: float) -> str | None:
    """The reason for which readers do not find this ``payload``, signed by each signer; None if they do."""
    from a2a_trust.keys.trust.store import TrustedKey, TrustStore  # takes 4 % of `a2a-sign card.json`, which needs none
    from a2a_trust.signing.verify_signature import verify_signatures

    trust = TrustStore(TrustedKey(key=signer.public_key, origins=UnsafeAnyOrigin()) for signer in signers)
    verified, failures = verify_signatures(served, trust, None, now)
    for signer in signers:
        thumbprint = signer.public_key.thumbprint
        if payload not in [each.projection.payload for each in verified if each.trusted.key.thumbprint == thumbprint]:
            return f"the signed card does not verify: {shorten(map(str, failures), '; ') or 'it was changed'}"
    return None


def _split(entries: JSON, signers: Sequence[Signer]) -> tuple[list[Signature], list[JSON]]:
    """The signatures that name these signers, as they make them, and the other entries."""
    kids, ours, others = {signer.kid for signer in signers}, list[Signature](), list[JSON]()
    for entry in entries if type(entries) is list else ():
        signature = _signature_in(entry)
        if signature is not None and signature.kid in kids and type(entry) is dict and entry.keys() == _MEMBERS:
            ours.append(signature)
        else:
            others.append(entry)
    return ours, others


def _without_moments(signature: Signature) -> tuple[bytes, bool]:
    header: dict[str, Any] = {name: value for name, value in signature.header.items() if name not in ("iat", "exp")}
    return canonicalize(header), "iat" in signature.header


def _why_missing(wanted: Signature, old: list[Signature]) -> str:
    if not any(each.kid == wanted.kid for each in old):
        return f"not signed by {wanted.kid}"
    if wanted.is_companion:
        return f"the companion signature by {wanted.kid} is missing"
    return f"its signature by {wanted.kid} has other settings than the ones asked for now"


def _why_outdated(
    signature: Signature, wanted: Signature, signed: SignedCard, signers: Sequence[Signer], until: float
) -> str | None:
    """The reason for which a signature with the header of the wanted one is not that signature; None if it is."""
    payload = signed.payload
    if signed.companion is not None and wanted.is_companion:
        payload = project(signed.card, signed.companion).payload
    key = next(signer.public_key for signer in signers if signer.kid == signature.kid)
    try:
        verify_signed(signature.header, signature.signature, signing_input(signature.protected, payload), key)
    except (InvalidSignatureError, MalformedError):
        return (
            f"its signature by {signature.kid} is wrong: the card was changed after signing, or the key is another one"
        )
    end = signature.header.get("exp", inf)
    if end <= until:
        return f"its signature by {signature.kid} expires at {date_of(end)}"
    if end > wanted.header.get("exp", inf) + CLOCK_SKEW:
        when = "never expires" if end == inf else f"expires at {date_of(end)}"
        return f"its signature by {signature.kid} {when}, later than asked"
    return None
