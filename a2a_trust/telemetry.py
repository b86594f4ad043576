"""Metrics and span attributes for OpenTelemetry: ``protect(app, …, observer=OpenTelemetryObserver())``.

All labels are bounded: words of this package, of A2A and of the card. Spans follow the semantic conventions for HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from time import time_ns
from typing import Any, Final

from a2a_trust.base.state_changes import StateChange, StateKind
from a2a_trust.middleware.audit import DECISION, Decision

try:
    from opentelemetry import metrics, propagate, trace
except ModuleNotFoundError as _error:
    _error.msg = 'a2a_trust.telemetry needs OpenTelemetry: pip install "./a2a-trust[otel]"'
    raise

_BUCKETS: Final = (1e-5, 2.5e-5, 1e-4, 2.5e-4, 1e-3, 2.5e-3, 0.01, 0.025, 0.1, 0.25, 1, 2.5, 10)
_SERVER_ERROR: Final = 500


class OpenTelemetryObserver:
    """The counters ``a2a_trust.decisions`` and ``a2a_trust.state_changes``, and in seconds the histograms
    ``a2a_trust.guard.duration`` and ``a2a_trust.verifier.duration``. The default providers are the global ones.

    The current span gets the attributes of the decision. Without one, a rejected request gets a server span, because
    instrumentation inside the guard does not see it.
    """

    def __init__(
        self, *, meters: metrics.MeterProvider | None = None, tracers: trace.TracerProvider | None = None
    ) -> None:
        self._tracer = trace.get_tracer("a2a_trust", tracer_provider=tracers)
        meter = metrics.get_meter("a2a_trust", meter_provider=meters)
        self._decisions = meter.create_counter("a2a_trust.decisions", "{request}")
        self._changes = meter.create_counter("a2a_trust.state_changes", "{change}")
        # Else a counter would begin at 1, and alerts on its increase would miss the first change.
        for kind in StateKind:
            self._changes.add(0, {"a2a_trust.change": kind.value})
        self._guard, self._verifiers = (
            meter.create_histogram(f"a2a_trust.{each}.duration", "s", explicit_bucket_boundaries_advisory=_BUCKETS)
            for each in ("guard", "verifier")
        )

    def on_decision(self, decision: Decision) -> None:
        labels = _labels(decision[:4], decision.agent, decision.is_second)
        self._decisions.add(1, labels)
        if decision.guard_seconds is not None:
            self._guard.record(decision.guard_seconds, labels)
        if decision.verifier_seconds:
            self._verifiers.record(decision.verifier_seconds, labels)
        span = trace.get_current_span()
        if span is not trace.INVALID_SPAN:
            span.set_attributes(labels)
        elif decision.reason is not None and not decision.is_second:
            self._make_span(decision, labels)

    def on_change(self, change: StateChange) -> None:
        self._changes.add(1, {"a2a_trust.change": change.kind.value})

    def mark_span(self, span: trace.Span, scope: Mapping[str, Any]) -> None:
        """Write the decision into a span inside the guard, as the ``server_request_hook`` of an instrumentation."""
        decision = scope.get(DECISION)
        if isinstance(decision, Decision):
            span.set_attributes(_labels(decision[:4], decision.agent))

    def _make_span(self, decision: Decision, labels: Mapping[str, str]) -> None:
        seen = {"http.request.method": decision.method, "url.path": decision.path}
        span = self._tracer.start_span(
            "HTTP" if decision.method == "_OTHER" else decision.method,
            context=propagate.extract(dict(decision.trace_context)),
            kind=trace.SpanKind.SERVER,
            attributes={**seen, "http.response.status_code": decision.status, **labels},
            start_time=time_ns() - int((decision.guard_seconds or 0) * 1e9),
        )
        if decision.status >= _SERVER_ERROR:
            span.set_status(trace.StatusCode.ERROR)
        span.end()


@lru_cache(maxsize=4096)
def _labels(first: tuple[Any, ...], agent: str, is_second: bool = False) -> dict[str, str]:
    reason, schemes, binding, operation = first
    rejected = "rejected-by-handler" if is_second else "rejected"
    labels = {
        "a2a_trust.outcome": "admitted" if reason is None else rejected,
        "error.type": reason,
        "a2a_trust.schemes": ",".join(schemes),
        "a2a_trust.binding": binding,
        "a2a_trust.operation": operation or "other",
        "a2a_trust.agent": agent,
    }
    return {name: str(value) for name, value in labels.items() if value}
