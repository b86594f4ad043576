"""The rules of a probe, and one finding. ``docs/probe.md`` explains cause, proof and fix of each rule."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from a2a_trust.lint.findings import Severity


class ProbeRule(NamedTuple):
    """A rule. ``section`` is the clause that an agent breaks, or "-"."""

    id: str
    severity: Severity
    description: str
    section: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFinding:
    """A fault of an agent.

    - ``rule`` and ``severity``: the stable id of the rule, as in docs/probe.md, and its severity.
    - ``where``: the JSON pointer of the interface or member in the card; "" for the whole agent.
    - ``message``: what was seen. It has no text that the agent sent in an answer.
    - ``proof``: the exchanges that show it, each a request, what it carried, and the answer.
    """

    rule: str
    severity: Severity
    where: str
    message: str
    proof: tuple[str, ...] = ()


_TABLE: Final = """
error | open-operation | Callers without a credential are answered. | A2A 1.0.1 7.3
error | open-extended-card | The extended card is given to callers without a credential. | A2A 1.0.1 13.3
error | wrong-credential-accepted | A random or malformed credential is accepted, also in another place. | A2A 1.0.1 7.3
error | forged-token-accepted | An unsigned token is accepted, or one of a throw-away key. | RFC 8725 3.1
error | scope-not-checked | A credential that lacks a required scope is accepted. | RFC 6750 3.1
error | half-accepted | One of the credentials that a requirement combines is enough. | A2A 1.0.1 4.5.1
error | push-to-loopback | Push notifications to a loopback address are accepted. | A2A 1.0.1 13.2
error | cors-with-credentials | Pages of every site may send the user's own credentials and read answers. | Fetch 3.2.5
warning | credential-rejected | The credential that the operator gave is rejected everywhere. | -
warning | other-rejection | Callers are rejected, but not by the status 401 or 403. | A2A 1.0.1 7.3
warning | no-challenge | An answer with status 401 does not say how to authenticate. | RFC 9110 11.6.1
warning | malformed-challenge | The header WWW-Authenticate cannot be read. | RFC 9110 11.6.1
warning | other-challenge | The challenges do not name the scheme that the card demands. | RFC 9110 11.6.1
warning | error-without-token | A challenge names an error although no token came. | RFC 6750 3.1
note | no-error-code | A challenge does not name the error invalid_token for a wrong token. | RFC 6750 3.1
note | rejection-body | The body of a rejection is not an error in the form of the binding. | A2A 1.0.1 9.5
warning | cached-extended-card | Shared caches may keep the extended card. | RFC 9111 3.5
warning | old-tls | TLS 1.0 or 1.1 is accepted. | RFC 8996
warning | certificate-ends | The certificate of the server is valid for less than 14 days. | -
warning | metadata | A key set or metadata that the card or a challenge names does not fit it. | RFC 8414, RFC 9728
warning | card-not-verified | The signatures of the card do not verify with the given keys. | A2A 1.0.1 8.4
warning | card-problems | The card has errors that lint finds. | A2A 1.0.1 5.7
note | not-asked | An interface was not asked. | --
"""

RULES: Final = MappingProxyType(
    {
        name: ProbeRule(name, Severity(severity), description, section)
        for severity, name, description, section in (row.split(" | ") for row in _TABLE.strip().splitlines())
    }
)
"""Every rule by its id, errors first."""


def finding(rule: str, where: str, *proof: str, message: str = "") -> ProbeFinding:
    """A finding with the severity of its rule, and its description if there is no message."""
    known = RULES[rule]
    message = message or known.description.rstrip(".")
    return ProbeFinding(rule=rule, severity=known.severity, where=where, message=message, proof=proof)
