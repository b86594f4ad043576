"""The outcome of a verification as plain JSON types, for reports."""

from __future__ import annotations

import math
from typing import Any

from a2a_trust.base.dates import date_of
from a2a_trust.base.strict_json import JSONObject
from a2a_trust.errors import CardVerificationError, SignatureFailure, TrustError, UncoveredFieldsError
from a2a_trust.signing.verify import VerifiedCard


def report_of_verified(verified: VerifiedCard) -> JSONObject:
    """The members of a report on a verified card, without the card, as plain JSON types."""
    return {
        "kid": verified.key.kid,
        "alg": verified.key.alg,
        "thumbprint": verified.key.thumbprint,
        "form": verified.form,
        "origin": verified.origin,
        "on_first_use": verified.on_first_use,
        "valid_until": None if verified.valid_until == math.inf else date_of(verified.valid_until),
        "dropped": list(verified.dropped),
        "unverified": list(verified.unverified),
        "warnings": list(verified.warnings),
        "ignored": [_signature(failure) for failure in verified.ignored],
    }


def report_of_error(error: TrustError, message: str) -> dict[str, Any]:
    """The members of a report on a card that is not verified, as plain JSON types."""
    report: dict[str, Any] = {"code": error.code, "message": message}
    if isinstance(error, CardVerificationError):
        report |= {"message": error.message, "failures": [_signature(failure) for failure in error.failures]}
    if isinstance(error, UncoveredFieldsError):
        report["pointers"] = list(error.pointers)
    return report


def _signature(failure: SignatureFailure) -> dict[str, Any]:
    return {"index": failure.index, "kid": failure.kid, "reason": failure.reason, "detail": failure.detail}
