"""Verify and sign many cards, in worker processes on all cores.

Results come in the order of the cards, and only some chunks of cards are in memory. A card that cannot be verified or
signed is one result among the others, and the rest goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Literal, TypeAlias, TypeVar

from a2a_trust.card.given import GivenCard
from a2a_trust.errors import TrustError
from a2a_trust.keys.origins import OriginFromCard, UnsafeAnyOrigin
from a2a_trust.keys.policy import AnyKey, Policy
from a2a_trust.keys.signer import Signer
from a2a_trust.keys.trust import TrustSource, TrustStore
from a2a_trust.signing.sign import SignedCard, checked_claims, sign_with
from a2a_trust.signing.verify import Coverage, VerifiedCard, checked_store, seconds, verify_card
from a2a_trust.workers import Workers, chunks_of

_S = TypeVar("_S")
_C = TypeVar("_C")
_R = TypeVar("_R")

Origin: TypeAlias = str | UnsafeAnyOrigin | OriginFromCard


@dataclass(frozen=True, slots=True)
class _Trust:
    """The arguments of ``verify_card`` that all cards share."""

    store: TrustStore
    now: float
    policy: Policy
    coverage: Coverage


def verify_cards(
    cards: Iterable[tuple[bytes, Origin]],
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

    An error in place of a card is the one that ``verify_card`` raises; it has no ``card``, so it cannot be taken for
    one. On systems without ``fork``, and in a program with threads, a worker starts as a new interpreter, so the
    program needs ``if __name__ == "__main__":``.

    ConfigurationError: an argument is wrong. OSError: a worker process was killed.
    """
    store = checked_store(trust, policy, coverage)
    shared = _Trust(store, time.time() if now is None else seconds(now), policy, coverage)
    return _results(Workers(nullcontext(shared), workers), _verified, cards)


def _verified(trust: _Trust, chunk: list[tuple[bytes, Origin]]) -> list[VerifiedCard | TrustError]:
    verify = partial(verify_card, trust=trust.store, now=trust.now, policy=trust.policy, coverage=trust.coverage)
    return [_or_error(partial(verify, document, origin=origin)) for document, origin in chunk]


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

    The arguments are those of ``sign_card``, and ``workers`` is that of ``verify_cards``. All cards have the ``iat`` of
    this call. Private keys are never sent to another process: a worker is a fork of this one. On systems without
    ``fork``, and in a program with threads, this process signs all cards itself. A signer that keeps a connection (to
    an HSM or a KMS) is shared by all forks, which few such signers permit: use ``workers=1`` with them.

    ConfigurationError: an argument is wrong. OSError: a worker process was killed.
    """
    claims = checked_claims(signers, time.time(), iat=iat, exp=exp, lifetime=lifetime, jku=jku)
    sign = partial(sign_with, signers, claims, drop_broken=drop_broken, companion=companion)
    return _results(Workers(nullcontext(sign), workers, is_picklable=False), _signed, cards)


def _signed(sign: Callable[[GivenCard], SignedCard], chunk: list[GivenCard]) -> list[SignedCard | TrustError]:
    return [_or_error(partial(sign, card)) for card in chunk]


def _or_error(work: Callable[[], _R]) -> _R | TrustError:
    try:
        return work()
    except TrustError as error:
        return error


def _results(workers: Workers[_S], work: Callable[[_S, list[_C]], list[_R]], items: Iterable[_C]) -> Iterator[_R]:
    """The results for single items, of work on chunks of them."""
    with workers:
        for results in workers.map(work, chunks_of(items)):
            yield from results
