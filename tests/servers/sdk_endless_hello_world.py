"""The hello world of the examples, which ends streams with their credentials. It revokes the key that a message names
while it answers, and then thinks forever.

Run by a server in the environment of the SDK's server, in the folder of the example, and never imported by a test.
"""

# mypy: disable-error-code="import-not-found, import-untyped, misc, unused-ignore"

from __future__ import annotations

import asyncio
import os
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import hello_world

from a2a_trust import RequestRules, SqliteApiKeys, protect

_SAID: ContextVar[str] = ContextVar("said")
_EXECUTE = hello_world.HelloWorld.execute


async def _execute(executor: Any, context: Any, event_queue: Any) -> None:
    _SAID.set(context.get_user_input())
    await _EXECUTE(executor, context, event_queue)


async def _think(seconds: float) -> None:
    await asyncio.sleep(seconds)  # the event before is on its way
    await asyncio.to_thread(SqliteApiKeys(os.environ["API_KEYS"]).revoke, _SAID.get().removeprefix("revoke "))
    await asyncio.Event().wait()


hello_world.HelloWorld.execute = _execute
hello_world.asyncio = SimpleNamespace(sleep=_think)

app = protect(
    hello_world.new_agent(),
    card=hello_world.card,
    verifiers=hello_world.verifiers,
    rules=RequestRules(end_streams_with_credential=True),
)
