"""The agent, as each of the replicas runs it: ``run.py`` starts three.

It holds no private key: a job signs the card. All that replicas share is in PostgreSQL and Redis.
"""

from __future__ import annotations

import json
import logging
import os
from uuid import uuid4

from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import start_http_server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from a2a_trust import ApiKeyVerifier, CardFile, DPoP, Fetcher, JwtVerifier, OpenIdKeys, RequestRules, TrustFile, protect
from a2a_trust.auth import FailureLimits, PostgresApiKeys, RedisCounters, RedisProofMemory, TokenBinding
from a2a_trust.middleware import principal_of
from a2a_trust.telemetry import OpenTelemetryObserver

URL, ISSUER = os.environ["AGENT_URL"], os.environ["ISSUER"]
DATABASE, REDIS = os.environ["AGENT_DATABASE"], os.environ["AGENT_REDIS"]
NAME = os.environ["REPLICA"]


class AsJson(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps({"time": record.created, **record.__dict__["audit"]})


handler = logging.FileHandler(f"logs/audit-{NAME}.jsonl")
handler.setFormatter(AsJson())
audit = logging.getLogger("a2a_trust.audit")
audit.addHandler(handler)
audit.setLevel(logging.DEBUG)  # admitted requests, too
audit.propagate = False

# The metrics have a port of their own, so that callers cannot read them.
metrics.set_meter_provider(MeterProvider([PrometheusMetricReader()]))
start_http_server(int(os.environ["METRICS_PORT"]), addr="127.0.0.1")


async def rpc(request: Request) -> JSONResponse:
    """Your agent; this one says who called which replica."""
    text = f"{principal_of(request).label}, by replica {NAME}"
    message = {"messageId": str(uuid4()), "role": "ROLE_AGENT", "parts": [{"text": text}]}
    return JSONResponse({"jsonrpc": "2.0", "id": (await request.json())["id"], "result": {"message": message}})


app = protect(
    Starlette(routes=[Route("/rpc", rpc, methods=["POST"])]),
    card=CardFile("agent/card.json", trust=TrustFile("agent/trust.toml"), reload=True),
    url=URL,
    verifiers={
        # If PostgreSQL cannot be asked, a key that was valid stays valid for ten seconds.
        "key": ApiKeyVerifier(PostgresApiKeys(DATABASE), stale_if_error=10),
        "login": JwtVerifier(
            OpenIdKeys(ISSUER, Fetcher(private_origins=[ISSUER])),
            issuer=ISSUER,
            audience=URL,
            binding=TokenBinding.REQUIRED,  # a stolen token is useless
        ),
    },
    rules=RequestRules(readiness_path="/readyz", failures=FailureLimits(shared=RedisCounters(REDIS))),
    # After a loss of Redis, proofs are rejected for the window and 20 seconds. The clocks of callers are synchronized.
    dpop=DPoP(url=URL, window=10, memory=RedisProofMemory(REDIS)),
    observer=OpenTelemetryObserver(),
)
