"""The verifier with a memory: a card that was verified is not verified again while its verification holds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from types import FrameType
from typing import Any

import pytest

from a2a_trust.base.dates import CLOCK_SKEW
from a2a_trust.errors import (
    CardVerificationError,
    ConfigurationError,
    FailureReason,
    MalformedError,
    UncoveredFieldsError,
    UntrustedCardError,
)
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust.policy import all_of
from a2a_trust.keys.trust.store import SigningTool, TrustStore
from a2a_trust.signing.forms import Form
from a2a_trust.signing.sign import sign_card
from a2a_trust.signing.verify import CardVerifier, Coverage, verify_card
from tests.signing.cards import full_card
from tests.signing.making import ANYWHERE, served, signed_in, trust_in, trusted
from tests.tables import walk

NOW = 1_800_000_000.0
ALICE, BOB = (generate_signer(kid=name) for name in ("alice", "bob"))
JS = SigningTool.A2A_JS


class Clock:
    """A clock that stands where it is set."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_a_card_that_was_verified_is_not_verified_again() -> None:
    document = served(sign_card(full_card(), ALICE).card)
    verifier = CardVerifier(trust_in(ALICE), clock=Clock())
    first = verifier.verify(document, origin=ANYWHERE)
    assert verifier.verify(bytes(bytearray(document)), origin=ANYWHERE) is first
    assert first == verify_card(document, trust_in(ALICE), origin=ANYWHERE, now=NOW)
    assert verifier.verify(document + b" ", origin=ANYWHERE) is not first


def test_a_hit_ends_with_the_signature_and_the_key() -> None:
    clock = Clock()
    card = sign_card(full_card(), ALICE, iat=NOW, exp=NOW + 10).card
    verifier = CardVerifier(TrustStore([trusted(ALICE, not_after=NOW + 5)]), clock=clock)
    first = verifier.verify(served(card), origin=ANYWHERE)
    clock.now = NOW + 4.9
    assert verifier.verify(served(card), origin=ANYWHERE) is first
    for moment, reason in (
        (NOW + 5, FailureReason.KEY_NOT_VALID_NOW),
        (NOW - CLOCK_SKEW - 1, FailureReason.NOT_YET_VALID),
        (float("nan"), FailureReason.KEY_NOT_VALID_NOW),
    ):
        clock.now = moment
        with pytest.raises(CardVerificationError) as error:
            verifier.verify(served(card), origin=ANYWHERE)
        assert error.value.failures[0].reason is reason


def test_a_hit_is_for_one_origin_only() -> None:
    document = served(sign_card(full_card(), ALICE).card)
    verifier = CardVerifier(TrustStore([trusted(ALICE, "*.example.com")]), clock=Clock())
    assert verifier.verify(document, origin="https://invoice.example.com").origin == "invoice.example.com"
    assert verifier.verify(document, origin="https://b.example.com").origin == "b.example.com"
    assert verifier.verify(document, origin=ANYWHERE).origin is None
    with pytest.raises(UntrustedCardError):
        verifier.verify(document, origin="https://invoice.example.org")


@walk("origin", [None, "", (), 7])
def test_what_is_no_origin_finds_no_card_that_may_be_from_anywhere(origin: Any) -> None:
    document = served(sign_card(full_card(), ALICE).card)
    verifier = CardVerifier(trust_in(ALICE), clock=Clock())
    verifier.verify(document, origin=ANYWHERE)
    with pytest.raises((ConfigurationError, MalformedError)):
        verifier.verify(document, origin=origin)


def test_changing_what_a_proof_gave_does_not_poison_the_memory() -> None:
    document = served(sign_card(full_card(), ALICE).card)
    verifier = CardVerifier(trust_in(ALICE), clock=Clock())
    card = verifier.verify(document, origin=ANYWHERE).card
    card["supportedInterfaces"][0]["url"] = "https://evil.example"
    assert verifier.verify(document, origin=ANYWHERE).card == full_card()


class AtLine:
    """A tracer that calls ``work`` before one line of ``CardVerifier.verify``, where another thread may come in."""

    def __init__(self, number: int, work: Callable[[], object]) -> None:
        self.left, self.work = number, work

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not CardVerifier.verify.__code__:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                self.work()
        return self


def test_keys_that_change_at_any_line_leave_nothing_remembered_of_a_revoked_one() -> None:
    document, other = (served(sign_card(full_card(), signer).card) for signer in (ALICE, BOB))

    class Changing:
        store = trust_in(ALICE, BOB)

        def trust_store(self) -> TrustStore:
            return self.store

    for number in count(1):
        trust = Changing()
        verifier = CardVerifier(trust, clock=Clock())

        def revoke(trust: Changing = trust, verifier: CardVerifier = verifier) -> None:
            trust.store = trust_in(BOB)
            verifier.verify(other, origin=ANYWHERE)

        tracer, before = AtLine(number, revoke), sys.gettrace()
        sys.settrace(tracer)
        try:
            with suppress(UntrustedCardError):
                verifier.verify(document, origin=ANYWHERE)
        finally:
            sys.settrace(before)
        if tracer.left > 0:
            break
        with pytest.raises(UntrustedCardError):
            verifier.verify(document, origin=ANYWHERE)
    assert number > 5


def test_the_memory_is_bounded_and_forgets_the_oldest() -> None:
    documents = [served(sign_card({**full_card(), "version": str(number)}, ALICE).card) for number in range(4)]
    verifier = CardVerifier(trust_in(ALICE), clock=Clock(), remember=2)
    first, second, third = (verifier.verify(document, origin=ANYWHERE) for document in documents[:3])
    assert verifier.verify(documents[1], origin=ANYWHERE) is second
    assert verifier.verify(documents[2], origin=ANYWHERE) is third
    again = verifier.verify(documents[0], origin=ANYWHERE)
    assert again is not first
    assert again == first
    forgetful = CardVerifier(trust_in(ALICE), clock=Clock(), remember=0)
    one = forgetful.verify(documents[0], origin=ANYWHERE)
    assert forgetful.verify(documents[0], origin=ANYWHERE) is not one


def test_a_memory_of_less_than_nothing_is_a_mistake() -> None:
    for remember in (-1, 1.5):
        with pytest.raises(ConfigurationError, match="must be a number of cards"):
            CardVerifier(trust_in(ALICE), clock=Clock(), remember=remember)  # type: ignore[arg-type]


def test_trust_is_a_store_or_a_file_from_the_start() -> None:
    wrong: list[Any] = ["trust.toml", {}, None]
    for trust in wrong:
        with pytest.raises(ConfigurationError, match="CardVerifier: trust must be TrustFile"):
            CardVerifier(trust)


def test_failures_and_very_large_cards_are_not_remembered() -> None:
    verifier = CardVerifier(trust_in(ALICE), clock=Clock())
    card = served(sign_card(full_card(), ALICE).card)
    for size, is_remembered in ((65_536, True), (65_537, False)):
        document = card.ljust(size)
        first = verifier.verify(document, origin=ANYWHERE)
        assert (verifier.verify(document, origin=ANYWHERE) is first) is is_remembered
    remembered = len(verifier._verified[1])
    with pytest.raises(UntrustedCardError):
        verifier.verify(served(sign_card(full_card(), BOB).card), origin=ANYWHERE)
    assert len(verifier._verified[1]) == remembered == 1


def test_a_verifier_keeps_to_its_policy_and_its_coverage() -> None:
    both = CardVerifier(trust_in(ALICE, BOB), clock=Clock(), policy=all_of("alice", "bob"))
    with pytest.raises(CardVerificationError, match="1 of the 2 parties"):
        both.verify(served(sign_card(full_card(), ALICE).card), origin=ANYWHERE)
    assert len(both.verify(served(sign_card(full_card(), ALICE, BOB).card), origin=ANYWHERE).keys) == 2
    pruned = served(signed_in({**full_card(), "x": 1}, Form.PRUNED, ALICE))
    trust = TrustStore([trusted(ALICE, signer=JS)])
    with pytest.raises(UncoveredFieldsError):
        CardVerifier(trust, clock=Clock()).verify(pruned, origin=ANYWHERE)
    part = CardVerifier(trust, clock=Clock(), coverage=Coverage.SIGNED_PART_ONLY).verify(pruned, origin=ANYWHERE)
    assert part.card == full_card()
