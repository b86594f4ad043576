"""The agent beside this file, with its card enforced: callers without a good key get no further than the card.

Start it, where ``a2a-trust[server]``, ``fastapi`` and ``uvicorn`` are installed, with a store of keys::

    a2a-sign api-key create --store keys.db --owner you
    API_KEYS=keys.db uvicorn --app-dir examples/tasks_agent protected:app
"""

from __future__ import annotations

import os

import agent

from a2a_trust import ApiKeyVerifier, SqliteApiKeys, protect
from a2a_trust.auth import CredentialAt, InHeader

keys = ApiKeyVerifier(SqliteApiKeys(os.environ.get("API_KEYS", "keys.db")))

# A card of 0.1 says that there is a key, and not where; so the place is said here.
app = protect(agent.app, card=agent.CARD, verifiers={"apiKey": CredentialAt(InHeader("X-API-Key"), keys)})
