"""What a guard decides, for tests: the caller, or the error of the refusal."""

from __future__ import annotations

from typing import Any

from a2a_trust.auth.credentials import HeaderLines
from a2a_trust.auth.guard import Guard, Rejected
from a2a_trust.auth.principal import Anonymous, Principal

__all__ = ["admitted", "cached", "refused"]


async def admitted(guard: Guard, scope: Any, now: float) -> Principal | Anonymous:
    """Who is admitted; the error of a refusal is raised."""
    decision = await guard.authenticate(scope, now)
    if isinstance(decision, Rejected):
        raise decision.error
    return decision


async def refused(guard: Guard, scope: Any, now: float) -> Rejected:
    """Why nobody is admitted."""
    decision = await guard.authenticate(scope, now)
    assert isinstance(decision, Rejected)
    return decision


def cached(guard: Guard, scope: Any, now: float) -> Principal | None:
    """What the guard finds at once, for the headers of the scope."""
    return guard.find_cached(HeaderLines(guard.headers).find(scope["headers"]), scope, now)
