"""The audit trail: where a decision about a request becomes an event, for the log and for an observer.

Events are records of the logger ``a2a_trust.audit``. Their text is for people; ``record.audit`` is the same as a dict
of plain values (``AuditEvent``), for programs that ship logs. An event that no handler wants costs next to nothing.

=================  =======  =====================================================================================
event              level    when
=================  =======  =====================================================================================
``allowed``        DEBUG    a request is admitted
``refused``        INFO     a request is rejected; ``reason`` is one of ``Reason``
                   WARNING  the first requests of each kind that are rejected, and all for ``COUNTED`` reasons
``not-served``     ERROR    the public card can no longer be verified, so callers get 503 instead
``not-reloaded``   WARNING  the file of the public card is missing or not verified, so callers get the last verified one
``ends-soon``      WARNING  less than a quarter of the time is left for which the public card is valid
``reloaded``       INFO     the file of the public card is verified again
``store-lost``     WARNING  a database that replicas share cannot be used; what that means is in docs/outages.md
``store-found``    WARNING  it can be used again
=================  =======  =====================================================================================

Python shows warnings where no logging is configured, too. Requests that are rejected cannot fill such a log: the first
three of each kind (reason, scheme, and the detail without what callers choose) are shown, for eight kinds of a reason.
Where INFO is not shown, one event a minute counts all others for a reason. ``COUNTED`` reasons are counted at every
level: the first request for each cause is logged at once, the others as one event a minute with a ``count``.

No event holds a credential, a query or a body. Callers choose methods, paths and addresses, and perhaps their names, so
these are escaped and cut.

An ``Observer`` gets each decision, logged or not, and each change of state.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Final, NamedTuple, Protocol, Self, TypedDict, cast

from a2a_trust.auth.principal import Anonymous, Principal, id_of
from a2a_trust.base.state_changes import StateChange, StateKind, announce, listen
from a2a_trust.card.operations import Binding, Operation
from a2a_trust.errors import (
    AuthorizationError,
    ConfigurationError,
    CrossSiteError,
    InvalidActorsError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MissingCredentialsError,
    TooManyRequestsError,
)

_log: Final = logging.getLogger("a2a_trust.audit")
_own_log: Final = logging.getLogger(__name__)
_LONGEST: Final = 512
_LONGEST_METHOD: Final = 32
_COUNTED_SECONDS: Final = 60
_MAX_CAUSES: Final = 64
_OTHER: Final = "further causes"
_LONGEST_ADDRESS: Final = 128
_FIRST: Final = 3
_MAX_KINDS: Final = 8
_VARIES: Final = re.compile(r"""'[^']*'|"[^"]*"|[0-9]+""")
"""The parts of a detail that a caller chooses, or that differ for each."""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "QUERY"})
_TRACE_HEADERS: Final = frozenset({b"traceparent", b"tracestate"})
_LONGEST_CALLER: Final = 4_096
"""Longer than two names and two issuers as callers have them, because events are matched by it."""


class Reason(StrEnum):
    """Why a request was rejected, or why the card is not served. The words are stable, for machines. ``hint`` says what
    to do; docs/rejections.md has the cause of each."""

    hint: str

    def __new__(cls, word: str, hint: str = "") -> Self:
        reason = str.__new__(cls, word)
        reason._value_, reason.hint = word, hint
        return reason

    MISSING_CREDENTIALS = "missing-credentials", "the caller must send a credential for a scheme of the card"
    INVALID_CREDENTIALS = "invalid-credentials", "the caller must get another credential, or correct the verifier"
    INVALID_ACTORS = "invalid-actors", "if the actor may act, add it to ActorRules(may_act=[...])"
    INSUFFICIENT_SCOPE = "insufficient-scope", "grant the scopes, or correct the card"
    CROSS_SITE = "cross-site", "if the page may call, add its origin to RequestRules(allowed_origins=[...])"
    TOO_MANY_REQUESTS = "too-many-requests", "look for a loop or an attack, or raise the limit"
    KEY_SOURCE_UNAVAILABLE = "key-source-unavailable", "restore what the detail names"
    AMBIGUOUS_REQUEST = "ambiguous-request", "the caller must correct the request"
    TOO_LARGE = "too-large", "if such calls are expected, raise RequestRules(max_body=...)"
    UNDECLARED_PATH = "undeclared-path", "write the option that the detail names, or correct the URL"
    TENANT = "tenant", "if the caller may use the tenant, set or correct RequestRules(may_use_tenant=...)"
    WEBHOOK = "webhook", "if the caller may register the webhook, correct RequestRules(webhooks=Webhooks(...))"
    EXTENDED_CARD = "extended-card", "if the caller may read the extended card, correct may_read"
    NETWORK = "network", "correct CardServing(readers=...) or the server's setup"
    CARD = "card", "sign the card again, or restore its file"


COUNTED: Final = (Reason.KEY_SOURCE_UNAVAILABLE, Reason.TOO_MANY_REQUESTS)
"""The reasons of rejections that are counted at every level, because a flood causes them."""


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


class Decision(NamedTuple):
    """A decision about a request. All values are bounded, except ``path`` and ``trace_context``, which callers choose.

    - ``reason``: why the request is rejected; None if it is admitted.
    - ``schemes``: the schemes of the card that admitted the caller, or whose credential is invalid.
    - ``binding``, ``operation``: as far as they are known, and are of A2A. A rejected body is not read.
    - ``guard_seconds``: how long it took to find or reject the caller, if one was looked for; ``verifier_seconds``: how
      much of that verifiers took.
    - ``agent``: the prefix of the agent, where there are several.

    Only a rejected request has: the ``status`` of its answer; ``is_second``, if a handler rejects what was admitted;
    ``method``, or ``_OTHER``; ``path``, escaped and cut; the headers ``traceparent`` and ``tracestate``.
    """

    reason: Reason | None = None
    schemes: tuple[str, ...] = ()
    binding: Binding | None = None
    operation: Operation | None = None
    guard_seconds: float | None = None
    verifier_seconds: float | None = None
    agent: str = ""
    status: int = 0
    is_second: bool = False
    method: str = ""
    path: str = ""
    trace_context: tuple[tuple[str, str], ...] = ()


class Observer(Protocol):
    """Gets every decision, before the request goes on, and every change of state in the process, in any thread. It must
    return at once. An exception changes no decision; its type is logged once."""

    def on_decision(self, decision: Decision, /) -> None: ...

    def on_change(self, change: StateChange, /) -> None: ...


DECISION: Final = "a2a_trust.decision"
"""The key of the scope under which code behind the guard finds the decision, if there is an observer."""


class Trail:
    """Logs the decisions of a guard, and passes them on to its observer."""

    def __init__(self, observer: Observer | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """ConfigurationError: the observer lacks a method, or one is async."""
        self.observer: Final = observer
        self._agent = ""
        self._repeated = {reason: RepeatedRejections(reason, clock) for reason in Reason}
        self._kinds: dict[Reason, dict[tuple[str, ...], int]] = {reason: {} for reason in Reason}
        self._raised: set[str] = set()
        if observer is None:
            return
        for name in ("on_decision", "on_change"):
            method = getattr(observer, name, None)
            if isinstance(observer, type) or not callable(method) or iscoroutinefunction(method):
                raise ConfigurationError(f"observer: pass an object with the plain (not async) method {name}(value)")
        listen(self)

    def of(self, agent: str) -> Self:
        """The same trail, for one of several agents."""
        own = copy(self)
        own._agent = agent
        return own

    def admitted(self, scope: Any, caller: Principal | Anonymous, known: tuple[Any, Any, Any, Any]) -> None:
        """``known``: binding, operation and the seconds of the decision."""
        identities = caller.identities if isinstance(caller, Principal) else ()
        schemes = (identities[0][0],) if len(identities) == 1 else tuple(name for name, _ in identities)
        if is_heard():  # making the event takes longer than the decision
            event = AuditEvent(event="allowed", **_request(scope), **_caller(caller), schemes=[*schemes])
            _log.debug("allowed %s for %s", _show(event), event["caller"], extra={"audit": event})
        if self.observer is not None:
            scope[DECISION] = decision = Decision(None, schemes, *known, self._agent)
            self._pass_on(self.observer.on_decision, decision)

    def rejected(
        self, scope: Any, detail: str, decision: Decision, caller: Principal | Anonymous | None = None, cause: str = ""
    ) -> None:
        """``detail`` is for operators, and holds no secret. ``cause`` is as for ``RepeatedRejections``."""
        reason = cast("Reason", decision.reason)
        is_first = reason not in COUNTED and self._is_first(reason, decision.schemes, detail)
        if reason in COUNTED:
            self._repeated[reason].log(scope, detail, cause, decision.status)
        elif is_first or _log.isEnabledFor(logging.INFO):
            _log_rejected(scope, detail, decision, caller, is_first=is_first)
        else:
            self._repeated[reason].count()
        if self.observer is not None:
            method = scope.get("method", "GET")  # GET: a handshake
            trace = [(n.decode(), v[:_LONGEST].decode("latin-1")) for n, v in scope["headers"] if n in _TRACE_HEADERS]
            decision = decision._replace(
                schemes=decision.schemes or tuple(name for name, _ in getattr(caller, "identities", ())),
                agent=self._agent,
                is_second=DECISION in scope,
                method=method if method in _METHODS else "_OTHER",
                path=_escape(scope["path"][:_LONGEST]),
                trace_context=tuple(trace),
            )
            self._pass_on(self.observer.on_decision, decision)

    def on_change(self, change: StateChange) -> None:
        if self.observer is not None:
            self._pass_on(self.observer.on_change, change)

    def flush(self) -> None:
        """Log what is counted: the program ends."""
        for repeated in self._repeated.values():
            repeated.flush()

    def _is_first(self, reason: Reason, schemes: tuple[str, ...], detail: str) -> bool:
        """Whether it is one of the first of its kind. Kinds are bounded, because details are not."""
        kinds, kind = self._kinds[reason], (*schemes, _VARIES.sub("", detail[:_LONGEST]))
        count = kinds.get(kind, 0 if len(kinds) < _MAX_KINDS else _FIRST)
        if count < _FIRST:
            kinds[kind] = count + 1
        return count < _FIRST

    def _pass_on(self, method: Callable[[Any], None], value: Decision | StateChange) -> None:
        try:
            method(value)
        except Exception as error:  # noqa: BLE001  of user code; its text may hold anything
            raised = f"{type(error).__name__} for a {type(value).__name__}"
            if raised not in self._raised and len(self._raised) < _MAX_CAUSES:
                self._raised.add(raised)
                _own_log.error("the observer raised %s, which changes no decision", raised[:_LONGEST])


def _log_rejected(
    scope: Any, detail: str, decision: Decision, caller: Principal | Anonymous | None = None, *, is_first: bool = True
) -> None:
    """Log one rejected request; the first of a kind with what to do, for people without a page at hand."""
    level, reason = logging.WARNING if is_first else logging.INFO, cast("Reason", decision.reason)
    if not _log.isEnabledFor(level):
        return
    detail = _escape(detail[:_LONGEST])  # a user's verifier may write any text
    event = AuditEvent(event="refused", reason=reason.value, detail=detail, **_request(scope))
    if caller is not None:
        event.update(_caller(caller))
    named = f", {', '.join(decision.schemes)!a:.128}" if decision.schemes else ""
    advice = f" [{decision.status} {reason}{named}: {reason.hint}]" if is_first else ""
    _log.log(level, "refused %s: %s%s", _show(event), detail, advice, extra={"audit": event})


@dataclass(slots=True)
class _Repeats:
    detail: str
    ends: float
    repeats: int = 0


class RepeatedRejections:
    """Logs rejections for one reason: the first of each cause at once, and each minute how many more came.

    The cause names the source, or the caller that asks too often. At most 64 causes are kept apart, because a user's
    verifier may word each one differently; further causes are counted as one. One instance belongs to one reason, so
    that a flood for one reason does not hide the causes of another. Call ``flush`` at the program's end.
    """

    def __init__(self, reason: Reason, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` gives seconds that never go back."""
        self._reason, self._clock = reason, clock
        #: Not a BoundedCache: each entry that leaves is logged, and a new cause displaces none.
        self._open: dict[str, _Repeats] = {}

    def log(self, scope: Mapping[str, Any], detail: str, cause: str = "", status: int = 503) -> None:
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
        _log_rejected(scope, detail, Decision(self._reason, status=status))
        if self._reason is Reason.TOO_MANY_REQUESTS:
            announce(StateChange(StateKind.THROTTLE_BEGINS, _escape(cause)))

    def count(self) -> None:
        """Count a request that is not logged, whatever its cause."""
        self._close(until=self._clock())
        if "" not in self._open:
            self._begin("", f"the reason is {self._reason}")
        self._open[""].repeats += 1

    def flush(self) -> None:
        self._close(until=float("inf"))
        self._open.clear()

    def _begin(self, cause: str, detail: str) -> None:
        """Log the count after a minute, even if no further request comes."""
        self._open[cause] = repeated = _Repeats(detail, self._clock() + _COUNTED_SECONDS)
        with suppress(RuntimeError):  # no loop: the program ends; ``flush`` logs the count
            loop = asyncio.get_running_loop()
            # In an empty context: the count belongs to no request.
            loop.call_later(_COUNTED_SECONDS, self._close, repeated.ends, context=contextvars.Context())

    def _close(self, until: float) -> None:
        """Log the counts that end by then. After a count another minute begins, since the count was its one event."""
        # Oldest first, so the others have not ended either.
        for cause, repeated in [*self._open.items()]:
            if repeated.ends > until:
                return
            del self._open[cause]
            if repeated.repeats:
                self._log_count(repeated.repeats, _escape(repeated.detail))
                self._begin(cause, repeated.detail)

    def _log_count(self, count: int, detail: str) -> None:
        event = AuditEvent(
            event="refused", reason=self._reason.value, detail=detail, count=count, seconds=_COUNTED_SECONDS
        )
        text = "refused %d more requests in %d seconds: %s"
        _log.warning(text, count, _COUNTED_SECONDS, detail, extra={"audit": event})


_OF_CARDS: Final = {
    StateKind.CARD_NOT_SERVED: (logging.ERROR, "the public card is not served: %s", Reason.CARD),
    StateKind.CARD_NOT_RELOADED: (logging.WARNING, "keeping the previous public card: %s", Reason.CARD),
    StateKind.CARD_ENDS_SOON: (logging.WARNING, "the public card ends soon: %s", Reason.CARD),
    StateKind.CARD_RELOADED: (logging.INFO, "the public card was reloaded: %s", None),
}


def log_card(kind: StateKind, detail: str) -> None:
    """Log and announce a change of the public card. ``detail`` names the file and the problem."""
    (level, text, reason), detail = _OF_CARDS[kind], _escape(detail[:_LONGEST])
    members = {} if reason is None else {"reason": reason.value}
    _log.log(level, text, detail, extra={"audit": {"event": kind.value, **members, "detail": detail}})
    announce(StateChange(kind, detail))


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
