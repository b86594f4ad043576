"""A protected agent for a server's own process, whose clock and whose card are the test's to change.

Its clock is ahead of the true time by the number of seconds in the file ``OFFSET``. It serves the file ``CARD_FILE``,
which a key of ``RING`` has signed, or signs its cards itself with the key of ``RING``.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Final

from a2a_trust import CardServing
from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.keys.ring_file import KeyRingFile
from a2a_trust.middleware.card import CardFile
from a2a_trust.middleware.extended_card import ExtendedCard
from a2a_trust.middleware.protection import protect
from tests.middleware.agent import Agent

KEY: Final = "k" * 48
CARD: Final[dict[str, Any]] = {
    "name": "agent",
    "description": "An agent.",
    "version": "1",
    "supportedInterfaces": [
        {"url": "http://agent.example/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
    ],
    "capabilities": {"extendedAgentCard": True},
    "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
    "securityRequirements": [{"schemes": {"key": {}}}],
    "skills": [],
}


def clock() -> float:
    return time.time() + float(Path(os.environ["OFFSET"]).read_text())


def agent(ring: KeyRingFile) -> Any:
    keys = MemoryApiKeys()
    keys.import_key(KEY, owner="ann")
    given: dict[str, Any] = {
        "verifiers": {"key": ApiKeyVerifier(keys)},
        "extended_card": ExtendedCard(CARD),
        "clock": clock,
    }
    if os.environ["CARD_FILE"]:
        return protect(Agent(), card=CardFile(os.environ["CARD_FILE"], trust=ring, reload=True, clock=clock), **given)
    return protect(Agent(), card=json.dumps(CARD).encode(), **given, serving=CardServing(signer=ring))


if "RING" in os.environ:
    app = agent(KeyRingFile(os.environ["RING"]))
