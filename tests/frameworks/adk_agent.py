"""An agent of Google's ADK, made by its ``to_a2a``, which builds the card in the lifespan; behind ``protect``.

``AGENT_URL`` is where the agent is called. Run by a server of ADK's own environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, misc, unused-ignore"

from __future__ import annotations

import os
from urllib.parse import urlsplit

from google.adk.a2a.utils.agent_to_a2a import to_a2a

from a2a_trust import FromApplication, protect
from tests.frameworks.adk_greeter import Greeter
from tests.frameworks.guards import guard, serving
from tests.frameworks.guide import names_for, run_lines

URL = os.environ["AGENT_URL"]
WHERE = urlsplit(URL)

agent = Greeter(name="greeter", description="Greets.")
host, port = WHERE.hostname, WHERE.port

if WHERE.path and os.environ["BY"] == "protect":  # card_paths instead of a prefix
    app = to_a2a(agent, host=host, port=port, rpc_path=WHERE.path.strip("/"))
    card = f"{WHERE.path}/.well-known/agent-card.json"
    app = protect(app, card=FromApplication(card), serving=serving(card_paths=[card]), **guard("read", URL))
else:
    names = {**names_for("read", URL), "to_a2a": to_a2a, "agent": agent, "host": host, "port": port}
    run_lines("Google ADK", names, block=1 if WHERE.path else 0)
    app = names["app"]
