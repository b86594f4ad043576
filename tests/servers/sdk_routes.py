"""What the hello world agent serves, asked of its own application: every route, and every method of JSON-RPC.

Run by the interpreter of the agent's environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import hello_world
from a2a.server.routes._jsonrpc_schema import METHOD_TYPES
from a2a.server.routes.jsonrpc_dispatcher import JSONRPC03Adapter


def routes(of: Any, prefix: str) -> Iterator[tuple[str, list[str]]]:
    for route in of:
        if getattr(route, "methods", None):
            yield prefix + route.path, sorted(route.methods)
        else:
            yield from routes(route.routes, prefix + route.path)


if __name__ == "__main__":
    listed = list(routes(hello_world.new_agent().routes, ""))
    calls = {"1.0": sorted(METHOD_TYPES), "0.3": sorted(JSONRPC03Adapter.METHOD_TO_MODEL)}
    print(json.dumps({"routes": listed, "calls": calls}))
