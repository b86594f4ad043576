"""Telemetry with the real SDK and instrumentation of OpenTelemetry: metrics, one server span, and bounded labels."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from opentelemetry import trace
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.instrumentation.starlette import StarletteInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from a2a_trust.base.state_changes import StateChange, StateKind, announce
from a2a_trust.errors import AuthorizationError, KeySourceUnavailableError
from a2a_trust.middleware.caller import reject_caller
from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.protection import protect
from a2a_trust.telemetry import OpenTelemetryObserver
from tests.middleware.agent import CALL, CARD, KEY, Agent, verifiers
from tests.tables import walk

GOOD = {"X-API-Key": KEY}
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENTS = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}
RULES = RequestRules(other_paths=["/items/{id}", "/closed"])


@dataclass
class Collected:
    """The providers of a program, and what reached them."""

    spans: InMemorySpanExporter
    reader: InMemoryMetricReader
    tracers: TracerProvider
    meters: MeterProvider

    def observer(self) -> OpenTelemetryObserver:
        return OpenTelemetryObserver(meters=self.meters, tracers=self.tracers)

    def server_spans(self) -> list[ReadableSpan]:
        return [span for span in self.spans.get_finished_spans() if span.kind is trace.SpanKind.SERVER]

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


def anew() -> Collected:
    spans, reader, tracers = InMemorySpanExporter(), InMemoryMetricReader(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    return Collected(spans, reader, tracers, MeterProvider([reader]))


@pytest.fixture
def collected() -> Collected:
    return anew()


def ask(app: Any, method: str, path: str, **request: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example") as http:
            return await http.request(method, path, **request)

    return asyncio.run(send())


def starlette() -> Starlette:
    async def item(request: Any) -> PlainTextResponse:
        return PlainTextResponse("an item")

    async def closed(request: Any) -> PlainTextResponse:
        reject_caller(request, AuthorizationError("not today"))

    return Starlette(routes=[Route("/items/{id}", item), Route("/closed", closed)])


def fastapi(**options: Any) -> FastAPI:
    app = FastAPI(**options)

    @app.get("/items/{id}")
    async def item(id: str) -> str:
        return id

    @app.get("/closed")
    async def closed(request: Request) -> str:
        reject_caller(request, AuthorizationError("not today"))

    return app


def guarded(app: Any, observer: Any) -> Any:
    return protect(app, card=CARD, verifiers=verifiers(), rules=RULES, observer=observer)


def test_decisions_are_counted_and_measured(collected: Collected) -> None:
    app = guarded(Agent(), collected.observer())
    for headers in ({}, {}, GOOD, GOOD, GOOD):
        ask(app, "POST", "/rpc", json=CALL, headers=headers)
    rejected, admitted = sorted(collected.points("a2a_trust.decisions"), key=lambda point: int(point.value))
    assert (rejected.value, dict(rejected.attributes)) == (
        2,
        {
            "a2a_trust.outcome": "rejected",
            "error.type": "missing-credentials",
            "a2a_trust.binding": "JSONRPC",
            "a2a_trust.operation": "other",
        },
    )
    labels = {
        "a2a_trust.outcome": "admitted",
        "a2a_trust.schemes": "key",
        "a2a_trust.binding": "JSONRPC",
        "a2a_trust.operation": "SendMessage",
    }
    assert (admitted.value, dict(admitted.attributes)) == (3, labels)
    guard = {point.attributes["a2a_trust.outcome"]: point for point in collected.points("a2a_trust.guard.duration")}
    assert (guard["admitted"].count, guard["rejected"].count) == (3, 2)
    assert guard["admitted"].sum > 0
    assert guard["admitted"].explicit_bounds[0] == 1e-5
    (verifier,) = collected.points("a2a_trust.verifier.duration")  # only the first caller was not in a cache
    assert (verifier.count, dict(verifier.attributes)) == (1, labels)


def test_changes_of_state_are_counted_by_their_kind(collected: Collected) -> None:
    """Each counter is there from the start, at 0: alerts on an increase do not see a series that begins at 1."""
    app = guarded(Agent(), collected.observer())
    announce(StateChange(StateKind.STORE_LOST, "API keys in redis://db.example/0: secret detail"))
    points = collected.points("a2a_trust.state_changes")
    assert {point.attributes["a2a_trust.change"]: point.value for point in points} == {
        **dict.fromkeys(map(str, StateKind), 0),
        "store-lost": 1,
    }
    assert {len(point.attributes) for point in points} == {1}
    assert app is not None


def test_a_second_decision_is_counted_apart(collected: Collected) -> None:
    ask(guarded(starlette(), collected.observer()), "GET", "/closed", headers=GOOD)
    assert sorted(point.attributes["a2a_trust.outcome"] for point in collected.points("a2a_trust.decisions")) == [
        "admitted",
        "rejected-by-handler",
    ]


def instrumented(name: str, collected: Collected) -> Any:
    """An application whose tracing is in the place of that name."""
    observer = collected.observer()
    options: dict[str, Any] = {"tracer_provider": collected.tracers, "meter_provider": collected.meters}
    hook: dict[str, Any] = {"server_request_hook": observer.mark_span}
    if name == "nothing":
        return guarded(starlette(), observer)
    if name == "FastAPI itself":
        return guarded(fastapi(telemetry=options), observer)
    if name == "outside":
        return OpenTelemetryMiddleware(guarded(starlette(), observer), **options)
    app: Any = fastapi() if name.startswith("FastAPI") else starlette()
    instrument: Any = FastAPIInstrumentor if name.startswith("FastAPI") else StarletteInstrumentor
    if name.endswith("before"):
        instrument.instrument_app(app, **options, **hook)
        return guarded(app, observer)
    app = guarded(app, observer)
    instrument.instrument_app(app, **options, **hook)
    return app


PLACES = (
    *("nothing", "outside", "FastAPI itself"),
    *("FastAPI, before", "FastAPI, after", "Starlette, before", "Starlette, after"),
)


@walk("place", PLACES)
def test_a_rejected_request_has_one_server_span(place: str) -> None:
    collected = anew()
    assert ask(instrumented(place, collected), "GET", "/items/3", headers=PARENTS).status_code == 401
    (span,) = collected.server_spans()
    attributes = dict(span.attributes or {})
    assert (attributes["error.type"], attributes["a2a_trust.outcome"]) == ("missing-credentials", "rejected")
    assert span.parent is not None
    assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    assert span.status.status_code is trace.StatusCode.UNSET  # as the conventions have it for 4xx
    if place != "outside":
        assert (span.name, attributes["http.request.method"], attributes["url.path"]) == ("GET", "GET", "/items/3")
        assert attributes["http.response.status_code"] == 401
        assert span.end_time is not None
        assert span.start_time is not None
        assert span.end_time > span.start_time


@walk("place", PLACES[1:])
def test_an_admitted_request_keeps_the_span_and_the_route_of_its_instrumentation(place: str) -> None:
    collected = anew()
    assert ask(instrumented(place, collected), "GET", "/items/3", headers={**GOOD, **PARENTS}).status_code == 200
    (span,) = collected.server_spans()
    attributes = dict(span.attributes or {})
    if place != "outside":  # which knows no routes
        assert attributes["http.route"] == "/items/{id}"
    if place != "FastAPI itself":  # which has no hook
        assert (attributes["a2a_trust.outcome"], attributes["a2a_trust.schemes"]) == ("admitted", "key")


@walk("place", PLACES[1:])
def test_a_request_that_a_handler_rejects_has_no_second_server_span(place: str) -> None:
    collected = anew()
    assert ask(instrumented(place, collected), "GET", "/closed", headers=GOOD).status_code == 403
    assert len(collected.server_spans()) == 1


def test_an_outage_is_an_error_of_the_server(collected: Collected) -> None:
    class Down:
        async def verify(self, credential: str, now: float) -> Any:
            raise KeySourceUnavailableError("the issuer is down")

    given = {**verifiers(), "key": Down()}
    app = protect(Agent(), card=CARD, verifiers=given, observer=collected.observer())
    assert ask(app, "POST", "/rpc", headers=GOOD).status_code == 503
    (span,) = collected.server_spans()
    assert span.status.status_code is trace.StatusCode.ERROR


def test_the_global_providers_are_used_by_default() -> None:
    program = """
import asyncio, json
from opentelemetry import metrics, trace
from a2a_trust.telemetry import OpenTelemetryObserver
from a2a_trust.middleware.audit import Decision, Reason
observer = OpenTelemetryObserver()  # before the providers are set, as in a module
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
observer.on_decision(Decision(Reason.CROSS_SITE, method="GET", path="/", status=403))  # with the API alone
reader, spans, tracers = InMemoryMetricReader(), InMemorySpanExporter(), TracerProvider()
tracers.add_span_processor(SimpleSpanProcessor(spans))
metrics.set_meter_provider(MeterProvider([reader]))
trace.set_tracer_provider(tracers)
observer.on_decision(Decision(Reason.CROSS_SITE, method="_OTHER", path="/", status=403))
(span,) = spans.get_finished_spans()
names = [metric.name for each in reader.get_metrics_data().resource_metrics[0].scope_metrics for metric in each.metrics]
print(json.dumps([span.name, names]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["HTTP", ["a2a_trust.decisions"]]


def test_without_opentelemetry_the_error_names_the_extra() -> None:
    program = """
import sys
sys.modules["opentelemetry"] = None
import a2a_trust.telemetry
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        'ModuleNotFoundError: a2a_trust.telemetry needs OpenTelemetry: pip install "./a2a-trust[otel]"'
    )
