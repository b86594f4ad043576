"""Verify and sign many cards, in worker processes on all cores.

Results come in the order of the cards, and only some chunks of cards are in memory. A card that cannot be verified or
signed is one result among the others.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Literal

from a2a_trust.base.workers import on_all_cores
from a2a_trust.card.given import GivenCard
from a2a_trust.errors import TrustError
from a2a_trust.keys.signer import Signer
from a2a_trust.keys.trust.policy import AnyKey, Policy
from a2a_trust.keys.trust.store import TrustSource
from a2a_trust.signing.sign import SignedCard, make_claims, sign_with
from a2a_trust.signing.verify import Coverage, Document, Origin, VerifiedCard, check_arguments, seconds, verify_card


def verify_cards(
    cards: Iterable[tuple[Document, Origin]],
    trust: TrustSource,
    *,
    now: float | datetime | None = None,
    policy: Policy = AnyKey(),  # noqa: B008  frozen and without fields
    coverage: Coverage = Coverage.WHOLE_CARD,
    workers: int | None = None,
) -> Iterator[VerifiedCard | TrustError]:
    """Verify many cards, each for its own origin. Yields the verified card, or the error, for each card in order.

    - ``cards``: pairs of a document and its origin, as ``verify_card`` takes them. They may come from a generator.
    - ``trust``: as it is now. A ``TrustFile`` that changes later changes nothing in this run.
    - ``now``: the moment of all verifications. Default: the time of the call.
    - ``policy``, ``coverage``: as for ``verify_card``.
    - ``workers``: the number of processes. Default: one for each usable core. With 1, or up to 250 cards, all is
      done in this process.

    An error in place of a card is what ``verify_card`` raises. A worker is a fork. On systems without ``fork``, and in
    a program with threads, this process verifies all cards itself.

    ConfigurationError: an argument is wrong. OSError: a worker process was killed.
    """
    store = check_arguments(trust, policy, coverage)
    moment = time.time() if now is None else seconds(now)

    def verify(card: tuple[Document, Origin]) -> VerifiedCard | TrustError:
        document, origin = card
        try:
            return verify_card(document, store, origin=origin, now=moment, policy=policy, coverage=coverage)
        except TrustError as error:
            return error

    return on_all_cores(verify, cards, workers)


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
