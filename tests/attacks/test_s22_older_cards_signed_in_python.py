"""S22: an older card of the same agent is served. Its owner signed both in Python, and chose nothing.

The client has a card memory. It detects the older card by ``iat``, so every default must write it, as the command does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final

import pytest

from a2a_trust import TrustStore, sign_card
from a2a_trust.client.memory import VolatileCardMemory
from a2a_trust.errors import CardVerificationError, FailureReason, RolledBackCardError
from a2a_trust.keys import LocalSigner
from a2a_trust.signing import SignedCard, sign, sign_cards
from tests.attacks.forgery import JSONObject
from tests.attacks.verifying import NOW, ORIGIN, refusal, verified

DAY: Final = 86_400.0


def signed_one(card: JSONObject, owner: LocalSigner, **options: Any) -> SignedCard:
    return sign_card(card, owner, **options)


def signed_in_bulk(card: JSONObject, owner: LocalSigner, **options: Any) -> SignedCard:
    (made,) = sign_cards([card], owner, workers=1, **options)
    assert isinstance(made, SignedCard)
    return made


@pytest.fixture(params=[signed_one, signed_in_bulk])
def signed_at(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, owner: LocalSigner
) -> Callable[..., bytes]:
    """Signs a card at a moment, by the defaults."""

    def signed(card: JSONObject, moment: float, **options: Any) -> bytes:
        monkeypatch.setattr(sign, "time", SimpleNamespace(time=lambda: moment))
        return json.dumps(request.param(card, owner, **options).card).encode()

    return signed


def test_an_older_card_is_detected_by_its_default_iat(
    signed_at: Callable[..., bytes], card: JSONObject, trust: TrustStore
) -> None:
    memory = VolatileCardMemory()
    old, new = signed_at(card, NOW - 9 * DAY), signed_at({**card, "version": "9.0.0"}, NOW - DAY)
    memory.admit(verified(old, trust), ORIGIN, now=NOW)
    memory.admit(verified(new, trust), ORIGIN, now=NOW)
    for attack in (old, signed_at(card, NOW, iat=False)):  # without iat it may be an old card, too
        with pytest.raises(RolledBackCardError):
            memory.admit(verified(attack, trust), ORIGIN, now=NOW)


@pytest.mark.parametrize("lifetime", [DAY, timedelta(days=1)])
def test_an_old_card_with_a_lifetime_ends_also_for_clients_without_a_memory(
    signed_at: Callable[..., bytes], card: JSONObject, trust: TrustStore, lifetime: Any
) -> None:
    old = signed_at(card, NOW - DAY + 1, lifetime=lifetime)
    verified(old, trust, now=NOW)
    refusal(CardVerificationError, old, trust, FailureReason.EXPIRED, now=NOW + 1)
