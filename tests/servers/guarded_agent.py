"""The plain agent of ``tests/middleware`` behind a card, for a server's own process; its settings are in GUARDED.

Whoever passes gets 200, with the display name of who it was.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any, Final

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.auth.throttle import FailureLimits
from a2a_trust.keys.trust.jwks_cache import JwksCache
from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.protection import protect
from tests.middleware.agent import Agent

AUDIENCE: Final = "https://agent.example"

CARD: Final[dict[str, Any]] = {
    "name": "agent",
    "supportedInterfaces": [
        {"url": "http://agent.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "http://agent.example/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
    ],
    "securitySchemes": {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
        "session": {"apiKeySecurityScheme": {"location": "cookie", "name": "sid"}},
        "url": {"apiKeySecurityScheme": {"location": "query", "name": "key"}},
        "oauth": {"oauth2SecurityScheme": {"flows": {}}},
    },
    "securityRequirements": [{"schemes": {name: {}}} for name in ("key", "session", "url", "oauth")],
    "skills": [],
}


def guarded(settings: dict[str, str]) -> Any:
    store = MemoryApiKeys()
    store.import_key(settings["key"], owner="ann")

    async def keys() -> tuple[bytes, float | None]:
        await asyncio.sleep(float(os.environ.get("KEYS_TAKE_SECONDS", "0")))
        return settings["jwks"].encode(), None

    api_key = ApiKeyVerifier(store)
    token = JwtVerifier(JwksCache(keys), issuer=settings["issuer"], audience=AUDIENCE)
    return protect(
        Agent(),
        card=CARD,
        verifiers={"key": api_key, "session": api_key, "url": api_key, "oauth": token},
        rules=RequestRules(failures=FailureLimits(by_credential="100000/minute", by_peer="100000/minute")),
    )


if "GUARDED" in os.environ:
    app = guarded(json.loads(os.environ["GUARDED"]))
