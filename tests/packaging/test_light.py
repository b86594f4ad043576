"""Each extra brings what is listed here, and nothing else: a new dependency of a dependency is noticed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CORE = {"cffi", "cryptography", "joserfc", "msgspec", "orjson", "platformdirs", "pycparser"}
BROUGHT = {
    "core": set[str](),
    "server": {"anyio", "certifi", "h11", "httpcore", "idna", "starlette", "typing-extensions"},
    "client": {"anyio", "authlib", "certifi", "h11", "httpcore", "httpx", "idna", "typing-extensions"},
    "client-httpx2": {
        *("anyio", "authlib", "certifi", "h11", "httpcore", "httpcore2", "httpx2", "httpx2-jsfetch", "idna"),
        *("truststore", "typing-extensions"),
    },
    "basic": {"argon2-cffi", "argon2-cffi-bindings"},
    "uvicorn": {"click", "h11", "uvicorn"},
    "models": {"annotated-types", "pydantic", "pydantic-core", "typing-extensions", "typing-inspection"},
    "serve": {
        *("annotated-types", "anyio", "certifi", "h11", "h2", "hpack", "httpcore", "hypercorn", "hyperframe", "idna"),
        *("priority", "pydantic", "pydantic-core", "starlette", "typing-extensions", "typing-inspection", "wsproto"),
    },
    "postgres": {"asyncpg"},
    "redis": {"async-timeout", "hiredis", "redis"},
    "otel": {"opentelemetry-api", "typing-extensions"},
    "grpc": {"googleapis-common-protos", "grpcio", "grpcio-status", "protobuf", "typing-extensions"},
    "completion": {"shtab"},
}


@pytest.mark.parametrize("extra", BROUGHT)
def test_an_extra_brings_these_distributions(extra: str) -> None:
    lock = Path(__file__).with_name(f"requirements-{extra}.txt").read_text(encoding="utf-8")
    assert set(re.findall(r"^([a-z0-9-]+)(?:\[.*\])?==", lock, re.MULTILINE)) == CORE | BROUGHT[extra]
