"""An agent of Google's ADK, made by its ``to_a2a``, which builds the card in the lifespan; behind ``protect``.

``AGENT_URL`` is where the agent is called. Run by a server of ADK's own environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, misc, unused-ignore"

from __future__ import annotations

import os
from urllib.parse import urlsplit

from google.adk.a2a.utils.agent_to_a2a import to_a2a

from a2a_trust import FromApplication, ProtectedAgent, protect, protect_agents
from tests.frameworks.adk_greeter import Greeter
from tests.frameworks.guards import guard, serving

URL = os.environ["AGENT_URL"]
WHERE = urlsplit(URL)
CARD = f"{WHERE.path}/.well-known/agent-card.json"


agent = to_a2a(
    Greeter(name="greeter", description="Greets."), host=WHERE.hostname, port=WHERE.port, rpc_path=WHERE.path.strip("/")
)

if os.environ["BY"] == "protect":
    places = [CARD] if WHERE.path else []
    app = protect(agent, card=FromApplication(CARD), serving=serving(card_paths=places), **guard("read", URL))
else:
    app = protect_agents(
        agent, {WHERE.path: ProtectedAgent(card=FromApplication(), serving=serving(), **guard("read", URL))}
    )
