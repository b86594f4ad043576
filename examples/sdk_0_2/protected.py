"""The agent beside this file behind its cards. Both come from the application, and say that callers need an API key.

Start it, where ``a2a-trust[server]``, ``a2a-sdk==0.2.16`` and ``uvicorn`` are installed, as examples/README.md says.
Settings, all from the environment: ``API_KEYS`` a store made by ``a2a-sign api-key create``, ``CARD_KEY`` the key that
signs the cards, ``AGENT_URL`` where the agent is called.
"""

from __future__ import annotations

import os

import agent

from a2a_trust import (
    ApiKeyVerifier,
    CardSecurity,
    CardServing,
    ExtendedCard,
    FromApplication,
    SqliteApiKeys,
    load_private_key,
    protect,
)

app = protect(
    agent.app,
    card=FromApplication("/.well-known/agent.json"),  # where a2a-sdk 0.2 has it
    url=agent.URL,
    security=CardSecurity(
        schemes={"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
        requirements=[{"schemes": {"key": {"list": []}}}],
    ),
    verifiers={"key": ApiKeyVerifier(SqliteApiKeys(os.environ.get("API_KEYS", "keys.db")))},
    serving=CardServing(signer=load_private_key(os.environ.get("CARD_KEY", "card.key")), lifetime=3600),
    extended_card=ExtendedCard(FromApplication()),
)
