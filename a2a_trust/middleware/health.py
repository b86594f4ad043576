"""Whether an agent can serve callers now, from what is known: no answer waits for a store, an issuer or a signer.

An agent is ready when its card can be served, and the credentials of at least one alternative of the card can be
verified. So an outage at one issuer does not take an agent with other callers out of service. A store or a key set that
was never used counts as available. A lost one is tried again in the background, so it is found without requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from a2a_trust.auth.guard import Guard
from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.middleware.caller import this_task
from a2a_trust.middleware.card import CardSource
from a2a_trust.middleware.documents import ASGIApp, Receive, Scope, Send, respond


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether every agent of an application can serve callers now.

    ``problems``: why a part is unavailable, also if the agent is ready all the same, by "card" or "scheme 'NAME'"; with
    several agents after "agent '/PREFIX': ". The texts are for operators.
    """

    ready: bool
    problems: Mapping[str, str]


NOT_STARTED: Final = Readiness(ready=False, problems={"card": "it could not be made yet"})


def readiness(app: Any) -> Readiness:
    """The readiness of an application that ``protect`` or ``protect_agents`` returned. Call it in its event loop.

    ConfigurationError: it is not such an application.
    """
    this_task()
    return cast("Readiness", guard_of(app, "readiness").readiness())


def guard_of(app: Any, what: str) -> Any:
    """The guard of ``app``, a ``Door`` or ``Agents``, for the function ``what``; ConfigurationError without one."""
    guard = getattr(type(app), "_a2a_trust_guard", None)
    if guard is None:
        raise ConfigurationError(
            f"{what}: {type(app).__name__} is not protected; pass what protect(…) or protect_agents(…) returned"
        )
    return guard


def readiness_of(guard: Guard, card: CardSource, clock: Callable[[], float]) -> Readiness:
    """The readiness of one agent, by its guard and the source of its card."""
    lost, can_admit = guard.outages()
    problems = {f"scheme {name!a}": why for name, why in lost.items()}
    try:
        card.document(clock())
    except TrustError as error:
        problems["card"] = str(error)
    return Readiness(can_admit and "card" not in problems, problems)


def endpoint_at(path: str | None, known: Callable[[], Readiness]) -> dict[str, ASGIApp]:
    """By its path, the ASGI application that says to everybody whether an agent is ready, and nothing else."""

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
        status, body = (200, b"ready") if known().ready else (503, b"not ready")
        headers = [(b"cache-control", b"no-store"), (b"content-type", b"text/plain")]
        await respond(scope, send, status, [*headers, (b"content-length", b"%d" % len(body))], body)

    return {} if path is None else {path: endpoint}
