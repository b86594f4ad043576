"""The cards of the agents of this folder, for their own processes and for the tests alike."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["EXTENDED", "GREETING", "JSON_RPC", "MARKER", "REST", "public_card"]

JSON_RPC: Final = "/a2a/jsonrpc"
REST: Final = "/a2a/rest"
GREETING: Final = "Hello!"
MARKER: Final = "the-extended-card-of-the-SDK-itself"
"""Is in the extended card that the SDK's own server would serve, and nowhere else."""

EXTENDED: Final = "For {owner} of {tenant}."
"""What the extended card of each caller has for a description."""


def public_card(url: str) -> dict[str, Any]:
    """The agent's card in 1.0, when it is called at ``url``."""
    interfaces = [
        {"url": url + path, "protocolBinding": binding, "protocolVersion": version}
        for binding, path in (("JSONRPC", JSON_RPC), ("HTTP+JSON", REST))
        for version in ("1.0", "0.3")
    ]
    return {
        "name": "Ledger",
        "description": "Greets every caller that its card allows.",
        "version": "1.0.0",
        "supportedInterfaces": interfaces,
        "capabilities": {"extendedAgentCard": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "greet", "name": "Greet", "description": "Says hello.", "tags": ["hello"]}],
        "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
        "securityRequirements": [{"schemes": {"key": {"list": ["read"]}}}],
    }
