"""What a released SDK has of operations: routes, methods of JSON-RPC, and the fields that name a tenant.

Run by the interpreter of the SDK's environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import ast
import importlib.util
import json
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def of_1_3() -> dict[str, Any]:
    from a2a.server.routes import create_rest_routes
    from a2a.server.routes._jsonrpc_schema import METHOD_TYPES
    from a2a.server.routes.jsonrpc_dispatcher import JSONRPC03Adapter
    from a2a.types import a2a_pb2
    from google.api import annotations_pb2

    def routes(of: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
        for route in of:
            for method in getattr(route, "methods", None) or ():
                yield method, prefix + route.path
            if not getattr(route, "methods", None):
                yield from routes(route.routes, prefix + route.path)

    def tenants(message: Any, path: tuple[Any, ...], within: frozenset[str]) -> Iterator[list[Any]]:
        for field in message.fields:
            here = (*path, (field.json_name, field.name))
            if field.name == "tenant":
                yield list(here)
            inner = field.message_type
            if inner is not None and inner.full_name not in within and inner.file is a2a_pb2.DESCRIPTOR:
                yield from tenants(inner, here, within | {inner.full_name})

    def bindings(method: Any) -> Iterator[tuple[str, str]]:
        rule = method.GetOptions().Extensions[annotations_pb2.http]
        for each in (rule, *rule.additional_bindings):
            yield each.WhichOneof("pattern").upper(), getattr(each, each.WhichOneof("pattern"))

    service = a2a_pb2.DESCRIPTOR.services_by_name["A2AService"]
    return {
        "routes": sorted(routes(create_rest_routes(None, enable_v0_3_compat=True))),
        "methods": {"1.0": sorted(METHOD_TYPES), "0.3": sorted(JSONRPC03Adapter.METHOD_TO_MODEL)},
        "bindings": {method.name: sorted(bindings(method)) for method in service.methods},
        "tenants": {
            name: list(tenants(model.DESCRIPTOR, (), frozenset({model.DESCRIPTOR.full_name})))
            for name, model in METHOD_TYPES.items()
        },
    }


def of_0_3() -> dict[str, Any]:
    from a2a.types import A2ARequest

    # Its routes need a framework that this environment has not; they stand in the source as they are.
    folder = Path(importlib.util.find_spec("a2a").origin).parent  # type: ignore[union-attr, arg-type]
    source = ast.parse((folder / "server" / "apps" / "rest" / "rest_adapter.py").read_text(encoding="utf-8"))
    pairs = [
        tuple(part.value for part in node.elts if isinstance(part, ast.Constant))
        for node in ast.walk(source)
        if isinstance(node, ast.Tuple)
    ]
    models = typing.get_args(A2ARequest.model_fields["root"].annotation)
    return {
        "routes": sorted((pair[1], pair[0]) for pair in pairs if len(pair) == 2 and str(pair[0]).startswith("/")),
        "methods": {"0.3": sorted(model.model_fields["method"].default for model in models)},
    }


if __name__ == "__main__":
    print(json.dumps(of_1_3() if json.load(sys.stdin) == "1.3.0" else of_0_3()))
