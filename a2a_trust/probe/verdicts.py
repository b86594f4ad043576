"""The verdict on each requirement at each interface, from the exchanges of a probe.

The rules:

1. An operation is open if the application answers a caller without a credential, or with a wrong one. It is enforced if
   such callers are rejected. If the application answers only callers with the right credential, "not there" and an
   unusual rejection are a rejection, too.
2. An operation that is not there for anyone has no verdict. Everything else is "cannot tell", also an error that a
   caller without a credential gets for an operation that does not exist: a firewall may send it for every request.
3. A requirement is enforced at an interface if no operation is open or unclear, ``SendMessage`` and (where the card has
   streams) ``SendStreamingMessage`` are enforced, a random credential is rejected, and the given credential, if any,
   is admitted somewhere.
4. One open interface opens the agent. An interface that was not asked leaves "cannot tell".

This module only computes values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from a2a_trust.base.net.fetcher import AnyAnswer
from a2a_trust.card.operations import Operation
from a2a_trust.card.view import Alternative, Interface
from a2a_trust.probe.answers import RESULT, AnswerKind
from a2a_trust.probe.forgeries import Attempt
from a2a_trust.probe.requests import PREFLIGHT, UNKNOWN, ProbeRequest

SHOWN: Final = 4
"""The number of operations, and of exchanges, in a text."""


class Verdict(StrEnum):
    """The verdict on a requirement or an agent, the worst first."""

    NOT_ENFORCED = "not enforced"
    CANNOT_TELL = "cannot tell"
    NOTHING_DEMANDED = "nothing demanded"
    """The card admits callers without a credential."""
    ENFORCED = "enforced"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exchange:
    """A request, what it carried, for which alternative (None: for all), and its answer; None if there is none.

    ``text`` is the answer for reports. It has no text of the agent.
    """

    request: ProbeRequest
    attempt: Attempt
    alternative: Alternative | None
    answer: AnyAnswer | None = field(repr=False)
    kind: AnswerKind
    text: str

    @property
    def is_open(self) -> bool:
        """Whether the application answers a caller that it must reject."""
        is_bad = self.attempt is not Attempt.GOOD and self.request.operation not in (UNKNOWN, PREFLIGHT)
        return is_bad and self.kind is AnswerKind.ANSWERED

    def is_rejection(self, admitted: Mapping[ProbeRequest, AnswerKind]) -> bool:
        """Whether the agent rejects the caller; ``admitted`` has what it answers with the right credential. Rule 1."""
        kind, right, usable = self.kind, admitted.get(self.request), (AnswerKind.ANSWERED, AnswerKind.ABSENT)
        is_unusual = kind in (AnswerKind.DENIED, AnswerKind.ABSENT) and right in usable and kind is not right
        return kind is AnswerKind.REJECTED or is_unusual

    def __str__(self) -> str:
        return f"{self.request.operation} with {self.attempt.value}: {self.text}"


def discount(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """The exchanges; errors that the agent sends for every request are unclear. Rule 2."""
    unknown = [each for each in exchanges if each.request.operation == UNKNOWN and each.attempt is Attempt.NOTHING]
    same = {_without_meaning(each) for each in unknown if not each.text.endswith(RESULT)}
    alike = {each for each in exchanges if each.kind is AnswerKind.ANSWERED and _without_meaning(each) in same}
    return [replace(each, kind=AnswerKind.UNCLEAR) if each in alike else each for each in exchanges]


def _without_meaning(exchange: Exchange) -> str:
    """Status and code of the answer."""
    return ", ".join(exchange.text.split(", ")[:2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The verdict on one requirement at one interface, why, and the exchanges that prove it, as texts."""

    interface: Interface
    requirement: str
    verdict: Verdict
    reason: str
    proof: tuple[str, ...] = ()


def row_of(
    interface: Interface, alternative: Alternative, exchanges: Sequence[Exchange], needed: Collection[Operation]
) -> Row:
    """The verdict on a requirement; ``needed`` are the operations that must be enforced. Rule 3."""
    own = [each for each in exchanges if each.alternative in (None, alternative)]
    good = [each for each in own if each.attempt is Attempt.GOOD]
    admitted = {each.request: each.kind for each in exchanges if each.attempt is Attempt.GOOD}
    opened = [each for each in own if each.is_open]
    bad = [each for each in own if each.attempt is not Attempt.GOOD and not each.request.is_other]
    rejected = [each for each in bad if each.is_rejection(admitted)]
    others = [each for each in bad if each not in rejected and each.request.operation != UNKNOWN]
    unclear = [each for each in others if each.kind is not AnswerKind.ABSENT]
    proved = {each.request.operation for each in rejected if each.attempt is Attempt.NOTHING}
    missing = [operation.value for operation in needed if operation not in proved]
    verdict, proof = Verdict.CANNOT_TELL, [*rejected[:1], *good[:1]]
    if opened:
        control = [each for each in exchanges if each.request is opened[0].request and each is not opened[0]]
        verdict, proof = Verdict.NOT_ENFORCED, [opened[0], *control[:1]]
        alike = [each for each in opened if each.attempt is opened[0].attempt]
        reason = f"{operations_of(alike)}: {opened[0].attempt.value}"
    elif missing:
        reason, proof = f"{_join(missing)}: cannot tell", [each for each in bad if each.request.operation in missing]
    elif unclear:
        reason, proof = f"{operations_of(unclear)}: unclear", unclear
    elif all(each.attempt is Attempt.NOTHING for each in rejected):
        reason = "no wrong credential was rejected"
    elif good and all(each.kind not in (AnswerKind.ANSWERED, AnswerKind.ABSENT) for each in good):
        reason = "the given credential is rejected, too"
    else:
        answered = [each for each in good if each.kind is AnswerKind.ANSWERED]
        proof = [rejected[0], *(answered or [each for each in rejected if each.attempt is not Attempt.NOTHING])]
        verdict, reason = Verdict.ENFORCED, "callers without the credential are rejected"
    schemes = [f"{name} ({' '.join(sorted(scopes))})" if scopes else name for name, scopes in alternative.schemes]
    requirement, texts = " and ".join(schemes), tuple(map(str, proof[:2]))
    return Row(interface=interface, requirement=requirement, verdict=verdict, reason=reason, proof=texts)


def operations_of(exchanges: Iterable[Exchange]) -> str:
    """The names of the operations, for a text."""
    return _join(each.request.operation for each in exchanges)


def _join(names: Iterable[str]) -> str:
    """The names once each, and how many more there are."""
    once = [*dict.fromkeys(map(str, names))]
    return ", ".join(once[:SHOWN]) + (f" and {len(once) - SHOWN} more" if len(once) > SHOWN else "")
