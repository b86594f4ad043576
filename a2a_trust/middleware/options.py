"""Options that are easily mistaken: each mistake is an error at start that says what to write."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import iscoroutinefunction
from typing import Any

from a2a_trust.errors import ConfigurationError

__all__ = ["check_app", "check_rule", "listed"]


def listed(name: str, values: Any) -> tuple[str, ...]:
    """The values of an option that takes several; ConfigurationError for a string, whose letters nobody means."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        example = f"[{values!r:.128}]" if isinstance(values, str) else "[…]"
        raise ConfigurationError(f"{name}: write a list, even of one: {name}={example}")
    return tuple(values)


def check_app(app: Any) -> None:
    """Return when it can be an ASGI application."""
    if not callable(app):
        raise ConfigurationError(
            f"app: {type(app).__name__} is not an ASGI application; pass what your server runs, such as Starlette(…), "
            "FastAPI() or the application that the SDK has built"
        )


def check_rule(name: str, rule: Any) -> None:
    """Return when the rule can say no. What ``async def`` returns is something, whatever it comes to."""
    if not callable(rule) or iscoroutinefunction(rule) or iscoroutinefunction(type(rule).__call__):
        raise ConfigurationError(
            f"{name}: write a plain function (def or lambda, not async def) that returns True or False, as in "
            f"{name}={_EXAMPLES[name]}"
        )


_EXAMPLES = {
    "may_use_tenant": 'lambda caller, tenant: f"tenant:{tenant}" in caller.scopes',
    "may_read_extended_card": 'lambda caller: "card" in caller.scopes',
}
