"""S5: ``crit`` demands extensions that we do not have, ``b64`` changes what is signed. Both are refused wherever.

Seen in PyJWT (CVE-2026-32597) and Authlib (CVE-2025-59420): unknown critical members were ignored.
"""

from __future__ import annotations

from typing import Any

import pytest

from a2a_trust import MalformedError, TrustStore
from a2a_trust.errors import CardVerificationError, FailureReason
from a2a_trust.keys import LocalSigner
from tests.attacks.forgery import JSONObject, b64, entry, served, signs
from tests.attacks.verifying import refusal, verified
from tests.jws import verify_jws
from tests.tables import walk

BASE: JSONObject = {"alg": "ES256", "kid": "owner", "typ": "JOSE"}

PROTECTED: dict[str, dict[str, Any]] = {
    "unknown extension": {"crit": ["x-unknown"], "x-unknown": 1},
    "extension that is not there": {"crit": ["x-unknown"]},
    "empty list": {"crit": []},
    "not a list": {"crit": "exp", "exp": 1_900_000_000},
    "null": {"crit": None},
    "true": {"crit": True},
    "false": {"crit": False},
    "zero": {"crit": 0},
    "object": {"crit": {}},
    "list of null": {"crit": [None]},
    "list of lists": {"crit": [["exp"]]},
    "list of objects": {"crit": [{}]},
    "member of RFC 7515": {"crit": ["alg"]},
    "what we honor anyway": {"crit": ["exp"], "exp": 1_900_000_000},
    "the same twice": {"crit": ["exp", "exp"], "exp": 1_900_000_000},
    "b64 false, as RFC 7797 has it": {"crit": ["b64"], "b64": False},
    "b64 false, not critical": {"b64": False},
    "b64 true, as RFC 7797 has it": {"crit": ["b64"], "b64": True},
    "b64 true": {"b64": True},
    "b64 null": {"b64": None},
    "b64 false beside another": {"crit": ["x-unknown", "b64"], "b64": False, "x-unknown": 1},
    "only crit, b64 default": {"crit": ["b64"]},
}
UNPROTECTED: dict[str, dict[str, Any]] = {
    "crit": {"crit": ["x-unknown"], "x-unknown": 1},
    "crit empty": {"crit": []},
    "crit null": {"crit": None},
    "b64 false": {"b64": False},
    "b64 true": {"b64": True},
    "crit for b64": {"crit": ["b64"], "b64": False},
}


@walk("members", PROTECTED.values(), ids=PROTECTED)
def test_crit_or_b64_in_a_protected_header_is_refused_although_the_owner_signed_it(
    card: JSONObject, payload: bytes, owner: LocalSigner, trust: TrustStore, members: dict[str, Any]
) -> None:
    made = entry({**BASE, **members}, payload, signs(owner.private_key, "ES256"))
    refusal(CardVerificationError, served(card, made), trust, FailureReason.MALFORMED, match="crit and b64")
    with pytest.raises(MalformedError, match="crit and b64"):
        verify_jws(payload=payload, key=owner.public_key, **made)


@walk("members", UNPROTECTED.values(), ids=UNPROTECTED)
def test_crit_or_b64_in_an_unprotected_header_is_refused(
    card: JSONObject, payload: bytes, owner: LocalSigner, trust: TrustStore, members: dict[str, Any]
) -> None:
    made = entry(BASE, payload, signs(owner.private_key, "ES256"), header=members)
    refusal(CardVerificationError, served(card, made), trust, FailureReason.MALFORMED, match="crit and b64")
    with pytest.raises(MalformedError, match="crit and b64"):
        verify_jws(payload=payload, key=owner.public_key, **made)


def test_a_payload_signed_raw_is_not_taken_for_the_encoded_one(
    card: JSONObject, payload: bytes, owner: LocalSigner, trust: TrustStore
) -> None:
    """RFC 7797: with b64 false the payload is signed as it is, so its owner may have meant other bytes."""
    sign = signs(owner.private_key, "ES256")
    for members, reason in (
        ({}, FailureReason.BAD_SIGNATURE),
        ({"b64": False, "crit": ["b64"]}, FailureReason.MALFORMED),
    ):
        made = entry({**BASE, **members}, payload, sign)
        raw = made["protected"].encode() + b"." + payload
        made["signature"] = b64(sign(raw))
        refusal(CardVerificationError, served(card, made), trust, reason)


def test_control_an_unknown_member_that_is_not_critical_is_ignored(
    card: JSONObject, payload: bytes, owner: LocalSigner, trust: TrustStore
) -> None:
    sign = signs(owner.private_key, "ES256")
    made = entry({**BASE, "x-unknown": 1, "critical": ["x"]}, payload, sign, header={"x-note": "b64"})
    assert verified(served(card, made), trust).card == card
