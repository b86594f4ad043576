"""Whose runs and threads are whose: ``auth`` in langgraph.json names this file. The guard has checked who calls."""

# mypy: disable-error-code="import-not-found, untyped-decorator, unused-ignore"

from __future__ import annotations

from typing import Any

from langgraph_sdk import Auth

from a2a_trust import principal_of

auth = Auth()


@auth.authenticate
async def caller(scope: dict[str, Any]) -> dict[str, Any]:
    if "user" not in scope:  # the guard itself, which asks for the card when the server starts
        return {"identity": "guard"}
    principal = principal_of(scope)
    return {"identity": principal.display_name, "permissions": sorted(principal.scopes)}


@auth.on.threads  # runs, too
async def own(ctx: Any, value: dict[str, Any]) -> dict[str, str]:
    value.setdefault("metadata", {})["owner"] = ctx.user.identity
    return {"owner": ctx.user.identity}
