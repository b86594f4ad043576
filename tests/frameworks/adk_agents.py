"""Two agents of Google's ADK in the application of ``adk api_server --a2a``, behind ``protect_agents``.

``ORIGIN`` is where the application is called, ``AGENTS`` the folder with their cards: ``<name>/agent.json``. Run by a
server of ADK's own environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, misc, unused-ignore"

from __future__ import annotations

import os
from pathlib import Path

from google.adk.cli.fast_api import get_fast_api_app
from google.adk.cli.utils.base_agent_loader import BaseAgentLoader

from a2a_trust import FromApplication, ProtectedAgent, protect_agents
from tests.frameworks.adk_greeter import Greeter
from tests.frameworks.guards import guard, serving

ORIGIN = os.environ["ORIGIN"]
AGENTS = Path(os.environ["AGENTS"])


class Loader(BaseAgentLoader):
    """Agents by the names of their folders, without code there."""

    def load_agent(self, agent_name: str) -> Greeter:
        return Greeter(name=agent_name, description="Greets.")

    def list_agents(self) -> list[str]:
        return [folder.name for folder in AGENTS.iterdir()]


app = protect_agents(
    get_fast_api_app(agents_dir=str(AGENTS), agent_loader=Loader(), a2a=True, web=False, use_local_storage=False),
    {
        f"/a2a/{name}": ProtectedAgent(card=FromApplication(), serving=serving(), **guard(name, f"{ORIGIN}/a2a/{name}"))
        for name in Loader().list_agents()
    },
    unguarded_paths=["/health"],
)
