"""The audit trail: who was let in, who was refused and why, and when the agent's card could not be served.

Events are records of the logger ``a2a_trust.audit``. Their text is for people; ``record.audit`` is the same as a dict
of plain values (``AuditEvent``), for whoever ships them. An event that no handler wants costs one look at a number.

=================  =======  =====================================================================================
event              level    when
=================  =======  =====================================================================================
``allowed``        DEBUG    the card lets a request in
``refused``        INFO     a request is refused; ``reason`` is one of ``Reason``
                   WARNING  as that, when ``key-source-unavailable``: callers can do nothing about it
``not-served``     ERROR    the public card proves nothing any more, so callers get 503 instead
=================  =======  =====================================================================================

No event holds a credential, a query or a body. Methods, paths and addresses are texts of callers: they are
escaped, and cut.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypedDict

from a2a_trust.auth.principal import Anonymous, Principal
from a2a_trust.errors import (
    AuthorizationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MissingCredentialsError,
)

__all__ = ["AuditEvent", "Reason", "card_not_served", "is_heard", "reason_of", "request_allowed", "request_refused"]

_log: Final = logging.getLogger("a2a_trust.audit")


_LONGEST: Final = 512


class Reason(StrEnum):
    """Why something was refused: stable words for machines."""

    MISSING_CREDENTIALS = "missing-credentials"
    INVALID_CREDENTIALS = "invalid-credentials"
    INSUFFICIENT_SCOPE = "insufficient-scope"
    KEY_SOURCE_UNAVAILABLE = "key-source-unavailable"
    AMBIGUOUS_REQUEST = "ambiguous-request"
    """Readers could disagree about what the request says."""
    TOO_LARGE = "too-large"
    UNDECLARED_PATH = "undeclared-path"
    """The path is of no interface of the card, and not one that the configuration names."""
    TENANT = "tenant"
    """The caller may not use the tenant that it names."""
    EXTENDED_CARD = "extended-card"
    """The caller may not have the extended card."""
    NETWORK = "network"
    """The card is for other networks than that of the peer, or nothing proves where the peer is."""
    CARD = "card"
    """The card of this server was changed after it was signed, has expired, or its key was revoked."""


class AuditEvent(TypedDict, total=False):
    """What an event says. ``client`` is what the server takes for the peer's address, which a proxy may have written.
    ``caller`` is the caller's ``display_name``; ``schemes`` are those of the card that let it in."""

    event: str
    reason: str
    detail: str
    type: str
    method: str
    path: str
    client: str
    caller: str
    schemes: list[str]


def is_heard() -> bool:
    """Whether anybody wants to hear of requests that were let in."""
    return _log.isEnabledFor(logging.DEBUG)


def request_allowed(scope: Mapping[str, Any], caller: Principal | Anonymous) -> None:
    """Tell that the card lets a request in. Ask ``is_heard`` first: making the event takes longer than the decision."""
    schemes = [name for name, _ in caller.identities] if isinstance(caller, Principal) else []
    event = AuditEvent(event="allowed", **_request(scope), caller=caller.display_name, schemes=schemes)
    _log.debug("allowed %s for %s", _shown(event), caller.display_name, extra={"audit": event})


def request_refused(
    scope: Mapping[str, Any], reason: Reason, detail: str, caller: Principal | Anonymous | None = None
) -> None:
    """Tell that a request is refused. ``detail`` is for operators, and holds no secret."""
    # The fault is the operator's then, who may listen to nothing: Python shows warnings all the same.
    level = logging.WARNING if reason is Reason.KEY_SOURCE_UNAVAILABLE else logging.INFO
    if not _log.isEnabledFor(level):
        return
    detail = _escaped(detail[:_LONGEST])  # a verifier's text is anybody's
    event = AuditEvent(event="refused", reason=reason.value, detail=detail, **_request(scope))
    if caller is not None:
        event["caller"] = caller.display_name
    _log.log(level, "refused %s: %s", _shown(event), detail, extra={"audit": event})


def card_not_served(detail: str) -> None:
    """Tell that callers get 503 instead of the public card."""
    event = AuditEvent(event="not-served", reason=Reason.CARD.value, detail=detail)
    _log.error("the public card is not served: %s", detail, extra={"audit": event})


def reason_of(error: Exception) -> Reason:
    """The word for what the guard raises."""
    return next(reason for kind, reason in _REASONS.items() if isinstance(error, kind))


_REASONS: Final[dict[type[Exception], Reason]] = {
    MissingCredentialsError: Reason.MISSING_CREDENTIALS,
    InvalidCredentialsError: Reason.INVALID_CREDENTIALS,
    AuthorizationError: Reason.INSUFFICIENT_SCOPE,
    KeySourceUnavailableError: Reason.KEY_SOURCE_UNAVAILABLE,
    Exception: Reason.INVALID_CREDENTIALS,  # an AuthenticationError of a verifier of somebody else's
}


def _request(scope: Mapping[str, Any]) -> AuditEvent:
    client = scope.get("client")
    return AuditEvent(
        type=scope["type"],
        method=_escaped(scope.get("method", "GET"))[:32],  # that of a handshake
        path=_escaped(scope["path"][:_LONGEST]),
        client="" if client is None else _escaped(str(client[0])),
    )


def _escaped(text: str) -> str:
    return ascii(text)[1:-1]


def _shown(event: AuditEvent) -> str:
    """Method and path as two words: callers choose both, and must not write the rest of the line."""
    return " ".join(event[name].replace(" ", "\\x20") for name in ("method", "path"))
