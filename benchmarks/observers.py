"""What an observer costs: a request with the API of OpenTelemetry alone, and a decision with its SDK."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from time import perf_counter
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from a2a_trust.card.operations import Binding, Operation
from a2a_trust.middleware.audit import Decision
from a2a_trust.telemetry import OpenTelemetryObserver
from benchmarks.guards import protected
from benchmarks.requests import _calling, _taking
from benchmarks.rounds import Contender, Row, Timer
from benchmarks.setting import Setting

__all__ = ["rows"]

_CALLS: Final = 500
_DECISION: Final = Decision(None, ("key",), Binding.JSONRPC, Operation.SEND_MESSAGE, 1.2e-5, 0.0)
_LABELS: Final = {"outcome": "admitted", "schemes": "key", "binding": "JSONRPC", "operation": "SendMessage"}


def rows(setting: Setting) -> Iterator[Row]:
    """In the first row no provider is set, so the API of OpenTelemetry does nothing."""
    contenders = [("no observer", None, None), ("OpenTelemetryObserver, API alone", OpenTelemetryObserver(), 1.28)]
    yield Row(
        title="a request to an empty application, in process, with an observer",
        baseline="no observer",
        contenders=tuple(
            Contender(
                name=name,
                timer=_calling(protected(_taking, observer=observer), b"", "/", method="GET"),
                target=target,
            )
            for name, observer, target in contenders
        ),
        rounds=setting.rounds(60),
        notes=("the target is 3 µs on the machine of docs/benchmarks.md, where protect takes 10.7 µs",),
    )
    meters, tracers = MeterProvider([InMemoryMetricReader()]), TracerProvider()
    meter, tracer = meters.get_meter("bare"), tracers.get_tracer("bare")
    counter, histogram = meter.create_counter("decisions"), meter.create_histogram("duration", "s")

    def bare(_: Any) -> None:
        counter.add(1, _LABELS)
        histogram.record(1.2e-5, _LABELS)
        trace.get_current_span().set_attributes(_LABELS)

    observer = OpenTelemetryObserver(meters=meters, tracers=tracers)
    yield Row(
        title="a decision in a span, with the SDK of OpenTelemetry",
        baseline="the calls of the SDK",
        contenders=(
            Contender(name="the calls of the SDK", timer=_in_span(tracer, bare)),
            Contender(name="OpenTelemetryObserver", timer=_in_span(tracer, observer.on_decision), target=1.3),
        ),
        rounds=setting.rounds(60),
    )


def _in_span(tracer: trace.Tracer, note: Any) -> Timer:
    def timer() -> float:
        with tracer.start_as_current_span("request"):
            start = perf_counter()
            for _ in repeat(None, _CALLS):
                note(_DECISION)
            return (perf_counter() - start) / _CALLS

    return timer
