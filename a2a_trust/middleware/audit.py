"""The audit trail: who was admitted, who was rejected and why, and when the agent's card could not be served.

Events are records of the logger ``a2a_trust.audit``. Their text is for people; ``record.audit`` is the same as a dict
of plain values (``AuditEvent``), for programs that ship logs. An event that no handler wants costs next to nothing.

=================  =======  =====================================================================================
event              level    when
=================  =======  =====================================================================================
``allowed``        DEBUG    the card allows a request
``refused``        INFO     a request is rejected; ``reason`` is one of ``Reason``
                   WARNING  a request is rejected for ``key-source-unavailable`` or ``too-many-requests``, because only
                            the operator can help, or should know of an attack
``not-served``     ERROR    the public card can no longer be verified, so callers get 503 instead
``not-reloaded``   WARNING  the file of the public card is missing or not verified, so callers get the last verified one
``reloaded``       INFO     the file of the public card is verified again
``store-lost``     WARNING  a database that replicas share cannot be used; what that means is in docs/operations.md
``store-found``    WARNING  it can be used again
=================  =======  =====================================================================================

Rejections for ``key-source-unavailable`` and ``too-many-requests`` are counted: the first one for each cause is logged
at once, the others as one event per minute with a ``count``.

No event holds a credential, a query or a body. Callers choose methods, paths and addresses, and perhaps their names, so
these are escaped and cut.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypedDict

from a2a_trust.auth.principal import Anonymous, Principal, id_of
from a2a_trust.errors import (
    AuthorizationError,
    CrossSiteError,
    InvalidActorsError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MissingCredentialsError,
    TooManyRequestsError,
)

_log: Final = logging.getLogger("a2a_trust.audit")
_LONGEST: Final = 512
_LONGEST_METHOD: Final = 32
_COUNTED_SECONDS: Final = 60
_MAX_CAUSES: Final = 64
_OTHER: Final = "further causes"
_LONGEST_ADDRESS: Final = 128
_LONGEST_CALLER: Final = 4_096
"""Longer than two names and two issuers as callers have them, because events are matched by it."""


class Reason(StrEnum):
    """Why a request was rejected, or why the card is not served. The words are stable, for machines."""

    MISSING_CREDENTIALS = "missing-credentials"
    """The request carries no credential that the card asks for; the caller must send one."""
    INVALID_CREDENTIALS = "invalid-credentials"
    """A credential is wrong, expired, revoked or malformed; ``detail`` says why, and the caller must get another."""
    INVALID_ACTORS = "invalid-actors"
    """``act`` of a token is malformed, or it names actors that ``ActorRules`` do not accept; ``detail`` names one. If
    it may act, add it there."""
    INSUFFICIENT_SCOPE = "insufficient-scope"
    """The credentials are valid, but lack scopes or schemes that the card demands; grant them, or correct the card."""
    CROSS_SITE = "cross-site"
    """A page of another site made the caller's browser send the request; if the page may, add it to
    ``allowed_origins``."""
    TOO_MANY_REQUESTS = "too-many-requests"
    """The caller exceeded its limit, or the peer sent too many wrong credentials; look for a loop or an attack, or
    raise the limit."""
    KEY_SOURCE_UNAVAILABLE = "key-source-unavailable"
    """The request cannot be checked now: keys, a store, an issuer or the server's setup are missing, or an async rule
    does not answer in time; restore what ``detail`` names."""
    AMBIGUOUS_REQUEST = "ambiguous-request"
    """The request is malformed, or two readers could understand it differently; the caller must correct it."""
    TOO_LARGE = "too-large"
    """The body is longer than ``max_body``; raise it if such calls are expected."""
    UNDECLARED_PATH = "undeclared-path"
    """No interface of the card has this path or method, and no option names the path; ``detail`` says which option
    would admit it."""
    TENANT = "tenant"
    """``may_use_tenant`` does not allow this caller the tenant, or is not set; set or correct it if it should."""
    EXTENDED_CARD = "extended-card"
    """``may_read`` does not allow this caller the extended card; correct it if it should."""
    NETWORK = "network"
    """The peer is outside the networks that may read the card, or its address is not certain; correct ``readers`` or
    the server's setup."""
    CARD = "card"
    """The public card was changed after it was signed, has expired, its key was revoked, or its file cannot be read;
    sign it again or restore the file."""


COUNTED: Final = (Reason.KEY_SOURCE_UNAVAILABLE, Reason.TOO_MANY_REQUESTS)
"""The reasons of rejections that anybody can cause in any number."""
_LEVELS: Final = dict.fromkeys(COUNTED, logging.WARNING)
"""For the operator, perhaps without any logging configured: Python shows warnings all the same."""


class AuditEvent(TypedDict, total=False):
    """The values of an event.

    ``client`` is the peer's address according to the server; a proxy may have written it. ``caller`` is the caller's
    ``id``; ``schemes`` are the schemes of the card that admitted it. ``client_id`` and ``actors`` come from its
    access token, if it has them; an actor is written like an ``id``. An event with a ``count`` stands for that many
    rejected requests with the same ``reason`` and ``detail``, in the last ``seconds``.
    """

    event: str
    reason: str
    detail: str
    type: str
    method: str
    path: str
    client: str
    caller: str
    client_id: str
    actors: list[str]
    schemes: list[str]
    count: int
    seconds: int


is_heard: Final = partial(_log.isEnabledFor, logging.DEBUG)
"""Whether a handler wants events of admitted requests."""


def log_admitted(scope: Mapping[str, Any], caller: Principal | Anonymous) -> None:
    """Log that a request is admitted. Check ``is_heard`` first: making the event takes longer than the decision."""
    schemes = [name for name, _ in caller.identities] if isinstance(caller, Principal) else []
    event = AuditEvent(event="allowed", **_request(scope), **_caller(caller), schemes=schemes)
    _log.debug("allowed %s for %s", _show(event), event["caller"], extra={"audit": event})


def log_rejected(
    scope: Mapping[str, Any], reason: Reason, detail: str, caller: Principal | Anonymous | None = None
) -> None:
    """Log that a request is rejected. ``detail`` is for operators, and holds no secret."""
    level = _LEVELS.get(reason, logging.INFO)
    if not _log.isEnabledFor(level):
        return
    detail = _escape(detail[:_LONGEST])  # a user's verifier may write any text
    event = AuditEvent(event="refused", reason=reason.value, detail=detail, **_request(scope))
    if caller is not None:
        event.update(_caller(caller))
    _log.log(level, "refused %s: %s", _show(event), detail, extra={"audit": event})


@dataclass(slots=True)
class _Repeats:
    detail: str
    ends: float
    repeats: int = 0


class RepeatedRejections:
    """Logs rejections for one reason: the first of each cause at once, and each minute how many more came.

    The cause names the source, or the caller that asks too often. At most 64 causes are kept apart, because a user's
    verifier may word each one differently; further causes are counted as one. One instance belongs to one guard and
    reason, so that a flood for one reason does not hide the causes of another. Call ``flush`` at the program's end.
    """

    def __init__(self, reason: Reason, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` gives seconds that never go back."""
        self._reason, self._clock = reason, clock
        #: Not a BoundedCache: each entry that leaves is logged, and a new cause displaces none.
        self._open: dict[str, _Repeats] = {}

    def log(self, scope: Mapping[str, Any], detail: str, cause: str = "") -> None:
        """Log or count that a request is rejected. ``cause`` is ``detail`` by default."""
        self._close(until=self._clock())
        cause = (cause or detail)[:_LONGEST]
        if cause not in self._open and len(self._open) >= _MAX_CAUSES:
            cause = _OTHER
        repeated = self._open.get(cause)
        if repeated is not None:
            repeated.repeats += 1
            return
        self._begin(cause, _OTHER if cause is _OTHER else detail[:_LONGEST])
        log_rejected(scope, self._reason, detail)

    def flush(self) -> None:
        self._close(until=float("inf"))
        self._open.clear()

    def _begin(self, cause: str, detail: str) -> None:
        self._open[cause] = repeated = _Repeats(detail, self._clock() + _COUNTED_SECONDS)
        self._close_later(repeated)

    def _close(self, until: float) -> None:
        """Log the counts that end by then. After a count another minute begins, since the count was its one event."""
        # Oldest first, so the others have not ended either.
        for cause, repeated in [*self._open.items()]:
            if repeated.ends > until:
                return
            del self._open[cause]
            if repeated.repeats:
                _log_rejected_many(self._reason, repeated.detail, repeated.repeats)
                self._begin(cause, repeated.detail)

    def _close_later(self, repeated: _Repeats) -> None:
        """Log the count after a minute even if no further request comes."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # the program ends; ``flush`` logs it
            return
        # In an empty context: the count belongs to no request.
        loop.call_later(_COUNTED_SECONDS, self._close, repeated.ends, context=contextvars.Context())


def _log_rejected_many(reason: Reason, detail: str, count: int) -> None:
    detail, seconds = _escape(detail), _COUNTED_SECONDS
    event = AuditEvent(event="refused", reason=reason.value, detail=detail, count=count, seconds=seconds)
    text = "refused %d more requests in %d seconds: %s"
    _log.log(_LEVELS.get(reason, logging.INFO), text, count, seconds, detail, extra={"audit": event})


def log_card_not_served(detail: str) -> None:
    _card(logging.ERROR, "the public card is not served: %s", detail, event="not-served", reason=Reason.CARD.value)


def log_card_not_reloaded(detail: str) -> None:
    """Log that callers still get the last verified card. ``detail`` names the file and the problem."""
    text = "keeping the previous public card: %s"
    _card(logging.WARNING, text, detail, event="not-reloaded", reason=Reason.CARD.value)


def log_card_reloaded(detail: str) -> None:
    _card(logging.INFO, "the public card was reloaded: %s", detail, event="reloaded")


def _card(level: int, text: str, detail: str, **members: str) -> None:
    detail = _escape(detail[:_LONGEST])
    _log.log(level, text, detail, extra={"audit": {**members, "detail": detail}})


def reason_of(error: Exception) -> Reason:
    return next(reason for kind, reason in _REASONS.items() if isinstance(error, kind))


_REASONS: Final[dict[type[Exception], Reason]] = {
    MissingCredentialsError: Reason.MISSING_CREDENTIALS,
    InvalidActorsError: Reason.INVALID_ACTORS,  # before what it derives from
    InvalidCredentialsError: Reason.INVALID_CREDENTIALS,
    CrossSiteError: Reason.CROSS_SITE,  # before what it derives from
    AuthorizationError: Reason.INSUFFICIENT_SCOPE,
    TooManyRequestsError: Reason.TOO_MANY_REQUESTS,
    KeySourceUnavailableError: Reason.KEY_SOURCE_UNAVAILABLE,
    Exception: Reason.INVALID_CREDENTIALS,  # an AuthenticationError of a user's verifier
}


def _request(scope: Mapping[str, Any]) -> AuditEvent:
    client = scope.get("client")
    return AuditEvent(
        type=scope["type"],
        method=_escape(scope.get("method", "GET")[:_LONGEST_METHOD])[:_LONGEST_METHOD],  # GET: a handshake
        path=_escape(scope["path"][:_LONGEST]),
        client="" if client is None else _escape(str(client[0])[:_LONGEST_ADDRESS]),
    )


def _caller(caller: Principal | Anonymous) -> AuditEvent:
    event = AuditEvent(caller=caller.id[:_LONGEST_CALLER])
    if caller.client_id is not None:
        event["client_id"] = _escape(caller.client_id[:_LONGEST])
    if caller.actors:
        event["actors"] = [id_of(actor)[:_LONGEST] for actor in caller.actors]
    return event


def _escape(text: str) -> str:
    return ascii(text)[1:-1]


def _show(event: AuditEvent) -> str:
    """Method and path as two words: callers choose both, and must not write the rest of the line."""
    return " ".join(event[name].replace(" ", "\\x20") for name in ("method", "path"))
