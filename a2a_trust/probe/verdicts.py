"""The verdict on each requirement at each interface, from the exchanges of a probe.

The rules:

1. An operation is open if the application answers a caller without a credential, or with a wrong one. It is enforced if
   such callers are rejected. If the application answers only callers with the right credential, "not there" and an
   unusual rejection are a rejection, too.
2. An operation that is not there for anyone has no verdict. Everything else is "cannot tell".
3. A requirement is enforced at an interface if no operation is open or unclear, ``SendMessage`` and (where the card has
   streams) ``SendStreamingMessage`` are enforced, a random credential is rejected, and the given credential, if any,
   is admitted somewhere.
4. One open interface opens the agent. An interface that was not asked leaves "cannot tell".

This module only computes values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from a2a_trust.base.net.fetcher import AnyAnswer
from a2a_trust.card.operations import Operation
from a2a_trust.card.view import Alternative, Interface
from a2a_trust.probe.answers import Kind, Reading
from a2a_trust.probe.forgeries import Form
from a2a_trust.probe.requests import PREFLIGHT, UNKNOWN, ProbeRequest
from a2a_trust.probe.rules import ProbeFinding, finding


class Verdict(StrEnum):
    """The verdict on a requirement or an agent."""

    ENFORCED = "enforced"
    NOT_ENFORCED = "not enforced"
    CANNOT_TELL = "cannot tell"
    NOTHING_DEMANDED = "nothing demanded"
    """The card admits callers without a credential."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request, what it carried, for which alternative (None: for all), and its answer; None if there is none."""

    request: ProbeRequest
    form: Form
    alternative: Alternative | None
    answer: AnyAnswer | None = field(repr=False)
    reading: Reading

    @property
    def is_open(self) -> bool:
        """Whether it shows that the agent does not enforce its card. Rule 1."""
        is_bad = self.form is not Form.GOOD and self.request.operation not in (UNKNOWN, PREFLIGHT)
        return is_bad and self.reading.kind is Kind.ANSWERED

    def is_rejection(self, admitted: Mapping[ProbeRequest, Kind]) -> bool:
        """Whether the agent rejects the caller; ``admitted`` has what it answers with the right credential. Rule 1."""
        kind, right = self.reading.kind, admitted.get(self.request)
        is_unusual = kind in (Kind.DENIED, Kind.ABSENT) and right in (Kind.ANSWERED, Kind.ABSENT) and kind is not right
        return kind is Kind.REJECTED or is_unusual

    def __str__(self) -> str:
        return f"{self.request.operation} with {self.form.value}: {self.reading.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The verdict on one requirement at one interface, why, and the exchanges that prove it, as texts."""

    interface: Interface
    requirement: str
    verdict: Verdict
    reason: str
    proof: tuple[str, ...] = ()


_RULES: Final = {
    **dict.fromkeys((Form.WRONG, Form.MALFORMED, Form.ELSEWHERE), "wrong-credential-accepted"),
    **dict.fromkeys((Form.FORGED, Form.UNSIGNED, Form.EXPIRED), "forged-token-accepted"),
    Form.NOTHING: "open-operation",
    Form.LESS: "scope-not-checked",
    Form.HALF: "half-accepted",
}
_SHOWN: Final = 4


def row_of(
    interface: Interface, alternative: Alternative, exchanges: Sequence[Exchange], needed: Collection[Operation]
) -> Row:
    """The verdict on a requirement; ``needed`` are the operations that must be enforced. Rule 3."""
    own = [each for each in exchanges if each.alternative in (None, alternative)]
    good = [each for each in own if each.form is Form.GOOD]
    admitted = {each.request: each.reading.kind for each in exchanges if each.form is Form.GOOD}
    opened = [each for each in own if each.is_open]
    bad = [each for each in own if each.form is not Form.GOOD and not each.request.is_other]
    rejected = [each for each in bad if each.is_rejection(admitted)]
    others = [each for each in bad if each not in rejected and each.request.operation != UNKNOWN]
    unclear = [each for each in others if each.reading.kind is not Kind.ABSENT]
    proved = {each.request.operation for each in rejected if each.form is Form.NOTHING}
    missing = [operation.value for operation in needed if operation not in proved]
    verdict, proof = Verdict.CANNOT_TELL, [*rejected[:1], *good[:1]]
    if opened:
        control = [each for each in exchanges if each.request is opened[0].request and each is not opened[0]]
        verdict, proof = Verdict.NOT_ENFORCED, [opened[0], *control[:1]]
        reason = f"{_operations(each for each in opened if each.form is opened[0].form)}: {opened[0].form.value}"
    elif missing:
        reason, proof = f"{_listed(missing)}: cannot tell", [each for each in bad if each.request.operation in missing]
    elif unclear:
        reason, proof = f"{_operations(unclear)}: unclear", unclear
    elif all(each.form is Form.NOTHING for each in rejected):
        reason = "no wrong credential was rejected"
    elif good and all(each.reading.kind not in (Kind.ANSWERED, Kind.ABSENT) for each in good):
        reason = "the given credential is rejected, too"
    else:
        answered = [each for each in good if each.reading.kind is Kind.ANSWERED]
        proof = [rejected[0], *(answered or [each for each in rejected if each.form is not Form.NOTHING])]
        verdict, reason = Verdict.ENFORCED, "callers without the credential are rejected"
    schemes = [f"{name} ({' '.join(sorted(scopes))})" if scopes else name for name, scopes in alternative.schemes]
    return Row(
        interface=interface,
        requirement=" and ".join(schemes),
        verdict=verdict,
        reason=reason,
        proof=tuple(map(str, proof[:2])),
    )


def _operations(exchanges: Iterable[Exchange]) -> str:
    return _listed(each.request.operation for each in exchanges)


def _listed(names: Iterable[str]) -> str:
    """The names once each, and how many more there are."""
    once = [*dict.fromkeys(map(str, names))]
    return ", ".join(once[:_SHOWN]) + (f" and {len(once) - _SHOWN} more" if len(once) > _SHOWN else "")


def findings_of(interface: Interface, exchanges: Sequence[Exchange]) -> Iterator[ProbeFinding]:
    """One finding for each rule by which an interface is open."""
    opened: dict[str, list[Exchange]] = {}
    for each in exchanges:
        if each.is_open:
            is_card = each.request.operation == Operation.GET_EXTENDED_CARD and each.form is Form.NOTHING
            rule = "open-extended-card" if is_card else _RULES[each.form]
            opened.setdefault(rule, []).append(each)
    good = [each for each in exchanges if each.form is Form.GOOD]
    for rule, those in opened.items():
        forms = ", ".join(dict.fromkeys(each.form.value for each in those))
        control = [each for each in good if each.request is those[0].request]
        proof = map(str, [*those[:_SHOWN], *control])
        yield finding(rule, interface.pointer, *proof, message=f"{_operations(those)}: answered with {forms}")
    if good and all(each.reading.kind is Kind.REJECTED for each in good):
        yield finding("credential-rejected", interface.pointer, str(good[0]))


def of_agent(rows: Sequence[Row]) -> Verdict:
    """The verdict on the whole agent. Rule 4."""
    verdicts = {each.verdict for each in rows} or {Verdict.CANNOT_TELL}
    worst = (Verdict.NOT_ENFORCED, Verdict.CANNOT_TELL, Verdict.NOTHING_DEMANDED, Verdict.ENFORCED)
    return next(each for each in worst if each in verdicts)
