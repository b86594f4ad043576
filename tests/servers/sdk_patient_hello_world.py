"""The hello world of the examples, with limits of failures that no test reaches: all its callers are one peer.

It thinks for longer where the message asks for that, so that a busy machine has time to look at the task.

Run by a server in the environment of the SDK's server, in the folder of the example, and never imported by a test.
"""

# mypy: disable-error-code="import-not-found, import-untyped, misc, unused-ignore"

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import hello_world

from a2a_trust import RequestRules, protect
from a2a_trust.auth import FailureLimits

_SAID: ContextVar[str] = ContextVar("said")
_EXECUTE = hello_world.HelloWorld.execute


async def _execute(executor: Any, context: Any, event_queue: Any) -> None:
    _SAID.set(context.get_user_input())
    await _EXECUTE(executor, context, event_queue)


async def _think(seconds: float) -> None:
    await asyncio.sleep(5 if _SAID.get() == "think longer" else seconds)


hello_world.HelloWorld.execute = _execute
hello_world.asyncio = SimpleNamespace(sleep=_think)

app = protect(
    hello_world.new_agent(),
    card=hello_world.card,
    verifiers=hello_world.verifiers,
    rules=RequestRules(failures=FailureLimits(by_credential="100000/minute", by_peer="100000/minute")),
)
