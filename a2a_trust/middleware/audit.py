"""The audit trail: who was admitted, who was rejected and why, and when the agent's card could not be served.

Events are records of the logger ``a2a_trust.audit``. Their text is for people; ``record.audit`` is the same as a dict
of plain values (``AuditEvent``), for whoever ships them. An event that no handler wants costs one look at a number.

=================  =======  =====================================================================================
event              level    when
=================  =======  =====================================================================================
``allowed``        DEBUG    the card lets a request in
``refused``        INFO     a request is refused; ``reason`` is one of ``Reason``
                   WARNING  as that, when ``key-source-unavailable``: callers can do nothing about it. While one
                            outage lasts, it is one event, and then one with a ``count`` in each minute. So it
                            is with ``too-many-requests``, for each peer or key
``not-served``     ERROR    the public card proves nothing any more, so callers get 503 instead
``not-reloaded``   WARNING  the file of the public card is missing or not verified, so callers get the last good card
``reloaded``       INFO     the file of the public card is good again
=================  =======  =====================================================================================

No event holds a credential, a query or a body. Methods, paths and addresses are texts of callers: they are
escaped, and cut.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypedDict

from a2a_trust.auth.principal import Anonymous, Principal
from a2a_trust.errors import (
    AuthorizationError,
    CrossSiteError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MissingCredentialsError,
    TooManyRequestsError,
)

__all__ = [
    "AuditEvent",
    "Reason",
    "RepeatedRefusals",
    "card_not_reloaded",
    "card_not_served",
    "card_reloaded",
    "is_heard",
    "reason_of",
    "request_allowed",
    "request_refused",
]

_log: Final = logging.getLogger("a2a_trust.audit")


_LONGEST: Final = 512


class Reason(StrEnum):
    """Why something was refused: stable words for machines."""

    MISSING_CREDENTIALS = "missing-credentials"
    INVALID_CREDENTIALS = "invalid-credentials"
    INSUFFICIENT_SCOPE = "insufficient-scope"
    CROSS_SITE = "cross-site"
    """A page of another site makes the caller's browser ask."""
    TOO_MANY_REQUESTS = "too-many-requests"
    """The caller asks more often than one caller may, or one peer has failed too often."""
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
    """The card of this server was changed after it was signed, has expired, its key was revoked, or its file cannot be
    read."""


class AuditEvent(TypedDict, total=False):
    """What an event says. ``client`` is what the server takes for the peer's address, which a proxy may have written.
    ``caller`` is the caller's ``display_name``; ``schemes`` are those of the card that admitted it. An event with a
    ``count`` stands for so many refusals, for one ``reason`` and ``detail``, in the last ``seconds``."""

    event: str
    reason: str
    detail: str
    type: str
    method: str
    path: str
    client: str
    caller: str
    schemes: list[str]
    count: int
    seconds: int


def is_heard() -> bool:
    """Whether anybody wants to hear of requests that were admitted."""
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
    level = _level(reason)
    if not _log.isEnabledFor(level):
        return
    detail = _escaped(detail[:_LONGEST])  # a verifier's text is anybody's
    event = AuditEvent(event="refused", reason=reason.value, detail=detail, **_request(scope))
    if caller is not None:
        event["caller"] = caller.display_name
    _log.log(level, "refused %s: %s", _shown(event), detail, extra={"audit": event})


def _level(reason: Reason) -> int:
    # The fault is the operator's then, who may listen to nothing: Python shows warnings all the same.
    return logging.WARNING if reason is Reason.KEY_SOURCE_UNAVAILABLE else logging.INFO


_COUNTED_SECONDS: Final = 60
_MAX_CAUSES: Final = 64
_OTHER: Final = "further causes"


@dataclass(slots=True)
class _Repeats:
    ends: float
    repeats: int = 0


class RepeatedRefusals:
    """Tells of refusals for one reason: of each cause at once, and then in each minute how many more came.

    Anybody can send as many tokens as they like whose issuer is down, or as many guesses, and an outage lasts: the log
    must not be flooded by any of them. The cause is the ``detail``, which names the source, or who asks too often. At
    most 64 causes are kept apart in a minute (the words may be those of a user's verifier, and differ each time); those
    beyond are counted as one.

    Why this is a class: it counts. One belongs to one guard and reason, since a flood for the one must not hide the
    causes of the other; ``flush`` is for the end of the program.
    """

    def __init__(self, reason: Reason, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` gives seconds that never run backwards."""
        self._reason, self._clock = reason, clock
        #: Not a BoundedCache: what leaves here is told, and a new cause drives none out.
        self._open: dict[str, _Repeats] = {}

    def refused(self, scope: Mapping[str, Any], detail: str) -> None:
        """Tell that a request is refused, or count it if that was told of the same cause within a minute."""
        now = self._clock()
        self._close(until=now)
        cause = detail[:_LONGEST]
        if cause not in self._open and len(self._open) >= _MAX_CAUSES:
            cause = _OTHER
        repeated = self._open.get(cause)
        if repeated is not None:
            repeated.repeats += 1
            return
        self._open[cause] = repeated = _Repeats(now + _COUNTED_SECONDS)
        request_refused(scope, self._reason, detail)
        self._close_later(repeated)

    def flush(self) -> None:
        """Tell of everything that was counted and not told yet."""
        self._close(until=float("inf"))

    def _close(self, until: float) -> None:
        # Oldest first, so the others have not ended either.
        for cause, repeated in [*self._open.items()]:
            if repeated.ends > until:
                return
            repeats = self._open.pop(cause).repeats
            if repeats:
                _requests_refused(self._reason, cause, repeats)

    def _close_later(self, repeated: _Repeats) -> None:
        """So that the count is told, too, when nothing comes any more."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # another kind of event loop: the next refusal, or the end, tells
            return
        # In a context of its own: the count is nobody's request.
        loop.call_later(_COUNTED_SECONDS, self._close, repeated.ends, context=contextvars.Context())


def _requests_refused(reason: Reason, cause: str, count: int) -> None:
    detail, seconds = _escaped(cause), _COUNTED_SECONDS
    event = AuditEvent(event="refused", reason=reason.value, detail=detail, count=count, seconds=seconds)
    text = "refused %d more requests in %d seconds: %s"
    _log.log(_level(reason), text, count, seconds, detail, extra={"audit": event})


def card_not_served(detail: str) -> None:
    """Tell that callers get 503 instead of the public card."""
    event = AuditEvent(event="not-served", reason=Reason.CARD.value, detail=detail)
    _log.error("the public card is not served: %s", detail, extra={"audit": event})


def card_not_reloaded(detail: str) -> None:
    """Tell that callers go on getting the last good card. ``detail`` names the file, and says what is wrong with it."""
    detail = _escaped(detail[:_LONGEST])
    event = AuditEvent(event="not-reloaded", reason=Reason.CARD.value, detail=detail)
    _log.warning("the last good public card stays: %s", detail, extra={"audit": event})


def card_reloaded(detail: str) -> None:
    """Tell that callers get the card in the file again."""
    detail = _escaped(detail[:_LONGEST])
    event = AuditEvent(event="reloaded", detail=detail)
    _log.info("the public card was read again: %s", detail, extra={"audit": event})


def reason_of(error: Exception) -> Reason:
    """The word for what the guard raises."""
    return next(reason for kind, reason in _REASONS.items() if isinstance(error, kind))


_REASONS: Final[dict[type[Exception], Reason]] = {
    MissingCredentialsError: Reason.MISSING_CREDENTIALS,
    InvalidCredentialsError: Reason.INVALID_CREDENTIALS,
    CrossSiteError: Reason.CROSS_SITE,  # before what it derives from
    AuthorizationError: Reason.INSUFFICIENT_SCOPE,
    TooManyRequestsError: Reason.TOO_MANY_REQUESTS,
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
