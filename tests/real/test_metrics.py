"""The files in examples/metrics: Prometheus reads the rules, and its answers to every query are what happened."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2a_trust.auth import SqliteApiKeys
from tests.conftest import ROOT
from tests.servers.serving import free_port, serving
from tests.tiers import missing

FOLDER = ROOT / "examples" / "metrics"
AGENT = """
from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import make_asgi_app
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from a2a_trust import ApiKeyVerifier, RequestRules, SqliteApiKeys, protect
from a2a_trust.auth import FailureLimits
from a2a_trust.telemetry import OpenTelemetryObserver

metrics.set_meter_provider(MeterProvider([PrometheusMetricReader()]))
card = {
    "name": "Metered",
    "supportedInterfaces": [
        {"url": "http://localhost:8000/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
    "securityRequirements": [{"schemes": {"key": {"list": []}}}],
}
agent = protect(
    Starlette(routes=[Route("/page", lambda request: PlainTextResponse("page"))]),
    card=card,
    verifiers={"key": ApiKeyVerifier(SqliteApiKeys("keys.db"))},
    observer=OpenTelemetryObserver(),
    rules=RequestRules(failures=FailureLimits(by_peer="3/minute", by_credential="3/minute")),
)
metered = make_asgi_app()


async def app(scope, receive, send):
    await (metered if scope.get("path") == "/metrics" else agent)(scope, receive, send)
"""


@pytest.fixture(scope="module")
def promtool() -> str:
    return shutil.which("promtool") or missing("prometheus", "real-databases")


def test_the_rules_and_the_settings_are_valid(promtool: str) -> None:
    for kind, file in (("rules", "alerts.yml"), ("config", "prometheus.yml")):
        done = subprocess.run([promtool, "check", kind, FOLDER / file], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def prometheus(folder: Path) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """The agent, and Prometheus that scrapes it, serve: a client of each."""
    port, own = free_port(), free_port()
    (folder / "metered_agent.py").write_text(AGENT)
    settings = (FOLDER / "prometheus.yml").read_text().replace("9464", str(port)).replace("15s", "1s")
    (folder / "prometheus.yml").write_text(settings)
    shutil.copy(FOLDER / "alerts.yml", folder)
    agent = [sys.executable, "-m", "uvicorn", "--port", str(port), "--log-level", "error", "metered_agent:app"]
    command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    command.append(f"--web.listen-address=127.0.0.1:{own}")
    with (
        serving(agent, f"http://127.0.0.1:{port}", {}, folder),
        serving(command, f"http://127.0.0.1:{own}/-/ready", {}, folder),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as calls,
        httpx.Client(base_url=f"http://127.0.0.1:{own}/api/v1", trust_env=False, timeout=60) as queries,
    ):
        yield calls, queries


def results(queries: httpx.Client, query: str) -> list[dict[str, Any]]:
    answer = queries.get("/query", params={"query": query}).json()
    assert answer["status"] == "success", (query, answer)
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


def all_queries() -> list[str]:
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = (FOLDER / "alerts.yml").read_text()
    alerts = re.findall(r"expr: (?:\|\n((?: {10}.*\n)+)|(.*)\n)", rules)
    return shown + [" ".join((block or line).split()) for block, line in alerts]


@pytest.mark.usefixtures("promtool")
def test_every_query_is_answered_with_what_happened(tmp_path: Path) -> None:
    key = SqliteApiKeys(tmp_path / "keys.db", create=True).create(owner="ann").text
    with prometheus(tmp_path) as (calls, queries):

        def call() -> None:
            assert calls.get("/page", headers={"X-API-Key": key}).status_code == 200
            calls.get("/page", headers={"X-API-Key": "wrong"})

        end = time.monotonic() + 600  # only a defect reaches it
        counted = 'sum(rate(a2a_trust_decisions_total{error_type="too-many-requests"}[5m])) > 0'
        throttled = 'a2a_trust_state_changes_total{a2a_trust_change="throttle-begins"} > 0'
        while not (results(queries, counted) and results(queries, throttled)):
            assert time.monotonic() < end
            call()
        assert len(all_queries()) == 13
        for query in all_queries():
            results(queries, query)
        decisions = "sum by (a2a_trust_outcome) (a2a_trust_decisions_total)"
        outcomes = {each["metric"]["a2a_trust_outcome"] for each in results(queries, decisions)}
        assert outcomes == {"admitted", "rejected"}
        quantile = "histogram_quantile(0.99, sum by (le) (a2a_trust_guard_duration_seconds_bucket))"
        assert 0 < float(results(queries, quantile)[0]["value"][1]) < 10
        reasons = {each["metric"].get("error_type") for each in results(queries, "a2a_trust_decisions_total")}
        assert {"invalid-credentials", "too-many-requests"} <= reasons
