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

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from a2a_trust.card.operations import Operation
from a2a_trust.card.view import Alternative, Interface
from a2a_trust.net.fetcher import AnyAnswer
from a2a_trust.probe.answers import Kind, Reading
from a2a_trust.probe.forgeries import Form
from a2a_trust.probe.requests import UNKNOWN, ProbeRequest
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


_RULE_OF: Final = {
    Form.NOTHING: "open-operation",
    Form.WRONG: "wrong-credential-accepted",
    Form.MALFORMED: "wrong-credential-accepted",
    Form.ELSEWHERE: "wrong-credential-accepted",
    Form.FORGED: "forged-token-accepted",
    Form.UNSIGNED: "forged-token-accepted",
    Form.EXPIRED: "forged-token-accepted",
    Form.LESS: "scope-not-checked",
    Form.HALF: "half-accepted",
}
_SHOWN: Final = 4


def name_of(alternative: Alternative) -> str:
    """The schemes and scopes of a requirement, as in ``login (read) and key``."""
    return " and ".join(
        name + (f" ({' '.join(sorted(scopes))})" if scopes else "") for name, scopes in alternative.schemes
    )


def row_of(
    interface: Interface, alternative: Alternative, exchanges: Sequence[Exchange], needed: Collection[Operation]
) -> Row:
    """The verdict on a requirement; ``needed`` are the operations that must be enforced. Rule 3."""
    own = [each for each in exchanges if each.alternative in (None, alternative) and not each.request.is_other_name]
    answered = _answered(exchanges)
    bad = [each for each in own if each.form is not Form.GOOD]
    name = name_of(alternative)

    def row(verdict: Verdict, reason: str, *proof: Exchange) -> Row:
        return Row(interface=interface, requirement=name, verdict=verdict, reason=reason, proof=tuple(map(str, proof)))

    opened = [each for each in exchanges if each in own or each.request.is_other_name]
    opened = [each for each in opened if is_open(each)]
    if opened:
        first = opened[0]
        control = [each for each in exchanges if each.request is first.request and each.form is Form.GOOD]
        return row(Verdict.NOT_ENFORCED, _opened(opened), first, *(control or opened[1:2]))
    rejected = [each for each in bad if _is_rejected(each, answered)]
    unclear = [each for each in bad if not _is_rejected(each, answered) and not _says_nothing(each)]
    good = [each for each in own if each.form is Form.GOOD]
    proved = {each.request.operation for each in rejected if each.form is Form.NOTHING}
    missing = [operation.value for operation in needed if operation not in proved]
    proof = [*rejected[:1], *[each for each in good if each.reading.kind is Kind.ANSWERED][:1]]
    proof += [each for each in rejected if each.form is not Form.NOTHING][: 2 - len(proof)]
    if missing:
        return row(Verdict.CANNOT_TELL, f"{_listed(missing)}: cannot tell", *_first_of(bad, missing))
    if unclear:
        return row(Verdict.CANNOT_TELL, f"{_listed(each.request.operation for each in unclear)}: unclear", *unclear[:2])
    if not any(each.form is not Form.NOTHING for each in rejected):
        return row(Verdict.CANNOT_TELL, "no wrong credential was rejected", *proof)
    if good and not any(each.reading.kind in (Kind.ANSWERED, Kind.ABSENT) for each in good):
        return row(Verdict.CANNOT_TELL, "the given credential is rejected, too", rejected[0], good[0])
    return row(Verdict.ENFORCED, "callers without the credential are rejected", *proof)


def is_open(exchange: Exchange) -> bool:
    """Whether an exchange shows that the agent does not enforce its card."""
    if exchange.form is Form.GOOD or exchange.request.operation == UNKNOWN:
        return False
    return exchange.reading.kind is Kind.ANSWERED


def _answered(exchanges: Iterable[Exchange]) -> set[int]:
    """The requests that the application answers with the given credential."""
    return {id(each.request) for each in exchanges if each.form is Form.GOOD and each.reading.kind is Kind.ANSWERED}


def _is_rejected(exchange: Exchange, answered: Collection[int]) -> bool:
    """Rule 1."""
    if exchange.reading.kind is Kind.REJECTED:
        return True
    return exchange.reading.kind in (Kind.DENIED, Kind.ABSENT) and id(exchange.request) in answered


def _says_nothing(exchange: Exchange) -> bool:
    """Rule 2."""
    return exchange.reading.kind is Kind.ABSENT or exchange.request.operation == UNKNOWN


def _first_of(exchanges: Iterable[Exchange], operations: Collection[str]) -> list[Exchange]:
    return [each for each in exchanges if each.request.operation in operations][:2]


def _opened(opened: Sequence[Exchange]) -> str:
    forms = dict.fromkeys(each.form for each in opened)
    first = next(iter(forms))
    return f"{_listed(each.request.operation for each in opened if each.form is first)} with {first.value}"


def _listed(names: Iterable[str]) -> str:
    """The names once each, and how many more there are."""
    once = list(dict.fromkeys(map(str, names)))
    more = f" and {len(once) - _SHOWN} more" if len(once) > _SHOWN else ""
    return ", ".join(once[:_SHOWN]) + more


def findings_of(interface: Interface, exchanges: Sequence[Exchange]) -> Iterator[ProbeFinding]:
    """What is open at an interface: one finding for each rule."""
    opened: dict[str, list[Exchange]] = {}
    for each in exchanges:
        if is_open(each):
            is_card = each.request.operation == Operation.GET_EXTENDED_CARD and each.form is Form.NOTHING
            rule = "open-extended-card" if is_card else _RULE_OF[each.form]
            opened.setdefault(rule, []).append(each)
    for rule, those in opened.items():
        forms = ", ".join(dict.fromkeys(each.form.value for each in those))
        message = f"{_listed(each.request.operation for each in those)}: answered with {forms}"
        requests = {id(each.request) for each in those}
        good = [each for each in exchanges if each.form is Form.GOOD and id(each.request) in requests]
        yield finding(rule, interface.pointer, message, *map(str, [*those[:_SHOWN], *good[:1]]))
    good = [each for each in exchanges if each.form is Form.GOOD]
    if good and all(each.reading.kind is Kind.REJECTED for each in good):
        yield finding(
            "credential-rejected", interface.pointer, "the given credential is rejected everywhere", str(good[0])
        )


def of_agent(rows: Sequence[Row]) -> Verdict:
    """The verdict on the whole agent. Rule 4."""
    verdicts = [each.verdict for each in rows]
    for verdict in (Verdict.NOT_ENFORCED, Verdict.CANNOT_TELL, Verdict.NOTHING_DEMANDED):
        if verdict in verdicts:
            return verdict
    return Verdict.ENFORCED if verdicts else Verdict.CANNOT_TELL
