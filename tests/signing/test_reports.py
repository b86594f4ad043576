"""Reports: every fact about a verified card, and about one that is not, as plain JSON."""

from __future__ import annotations

import json

import pytest

from a2a_trust.errors import CardVerificationError, MalformedError, UncoveredFieldsError
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust.store import SigningTool, TrustStore
from a2a_trust.signing.forms import Form
from a2a_trust.signing.sign import sign_card
from a2a_trust.signing.verify import report_of_error, report_of_verified
from tests.signing.cards import full_card
from tests.signing.making import signed_in, trust_in, trusted, verify

ALICE, BOB = (generate_signer(kid=name) for name in ("alice", "bob"))


def test_a_report_on_a_verified_card() -> None:
    verified = verify(sign_card(full_card(), BOB, ALICE).card, trust_in(ALICE))
    report = report_of_verified(verified)
    (ignored,) = report["ignored"]
    assert report == {
        "kid": "alice",
        "alg": ALICE.public_key.alg,
        "thumbprint": ALICE.public_key.thumbprint,
        "form": "spec",
        "origin": None,
        "on_first_use": False,
        "valid_until": None,
        "dropped": [],
        "unverified": [],
        "warnings": list(verified.warnings),
        "ignored": [{"index": 0, "kid": "bob", "reason": "unknown-key", "detail": ignored["detail"]}],
    }
    assert report["warnings"]
    assert ignored["detail"]
    assert json.loads(json.dumps(report)) == report


def test_a_report_on_a_card_that_is_not_verified() -> None:
    with pytest.raises(CardVerificationError) as caught:
        verify(sign_card(full_card(), BOB).card, trust_in(ALICE))
    report = report_of_error(caught.value, str(caught.value))
    (failure,) = report["failures"]
    assert report == {
        "code": "untrusted",
        "message": caught.value.message,
        "failures": [{"index": 0, "kid": "bob", "reason": "unknown-key", "detail": failure["detail"]}],
    }
    assert failure["detail"]
    assert report_of_error(MalformedError("wrong"), "card: wrong") == {"code": "malformed", "message": "card: wrong"}
    pruned = signed_in({**full_card(), "x": 1}, Form.PRUNED, ALICE)
    with pytest.raises(UncoveredFieldsError) as uncovered:
        verify(pruned, TrustStore([trusted(ALICE, signer=SigningTool.A2A_JS)]))
    report = report_of_error(uncovered.value, str(uncovered.value))
    assert (report["code"], report["pointers"]) == (uncovered.value.code, ["/x"])
    assert json.loads(json.dumps(report)) == report
