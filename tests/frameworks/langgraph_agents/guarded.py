"""The assistants of LangGraph's server behind ``protect_agents``: ``http.app`` in langgraph.json names this file.

``ORIGIN`` is where the server is called. LangGraph makes the cards, one for each assistant, from the request's host.
"""

from __future__ import annotations

import os
from uuid import UUID, uuid5

from starlette.applications import Starlette
from starlette.middleware import Middleware

from a2a_trust import FromApplication, ProtectedAgent, protect_agents
from tests.frameworks.guards import guard, serving
from tests.frameworks.guide import run_lines

ORIGIN = os.environ["ORIGIN"]
GRAPHS = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")  # the namespace in which LangGraph names the assistant of a graph


def prefix_of(graph: str) -> str:
    return f"/a2a/{uuid5(GRAPHS, graph)}"


def protected(graph: str) -> ProtectedAgent:
    """The assistant of that graph: callers need the scope of its name."""
    return ProtectedAgent(card=FromApplication(), serving=serving(), **guard(graph, f"{ORIGIN}{prefix_of(graph)}"))


AGENTS = {prefix_of(graph): protected(graph) for graph in ("billing", "support")}
names = {"Starlette": Starlette, "Middleware": Middleware, "protect_agents": protect_agents, "protected": AGENTS}
run_lines("LangGraph", names)
app = names["app"]
