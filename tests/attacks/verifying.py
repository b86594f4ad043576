"""How the attacks ask: what verification said, exactly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from a2a_trust import TrustError, TrustStore, VerifiedCard, verify_card
from a2a_trust.errors import CardVerificationError, FailureReason
from a2a_trust.keys import UnsafeAnyOrigin

HOST: Final = "agent.example.com"
ORIGIN: Final = f"https://{HOST}/.well-known/agent-card.json"
NOW: Final = 1_800_000_000.0


def verified(
    document: bytes | Mapping[str, Any],
    trust: TrustStore,
    *,
    origin: str | UnsafeAnyOrigin = ORIGIN,
    now: float = NOW,
    **options: Any,
) -> VerifiedCard:
    """What verification returns: for the attacks whose point is that it stays what it was."""
    return verify_card(document, trust, origin=origin, now=now, **options)


def refusal(
    error_class: type[TrustError],
    document: bytes | Mapping[str, Any],
    trust: TrustStore,
    *reasons: FailureReason,
    match: str | None = None,
    origin: str | UnsafeAnyOrigin = ORIGIN,
    now: float = NOW,
    **options: Any,
) -> TrustError:
    """The refusal: of this very class, with these reasons signature by signature."""
    with pytest.raises(TrustError, match=match) as caught:
        verify_card(document, trust, origin=origin, now=now, **options)
    error = caught.value
    assert type(error) is error_class, repr(error)
    if isinstance(error, CardVerificationError):
        assert tuple(failure.reason for failure in error.failures) == reasons, str(error)
    else:
        assert not reasons
    return error
