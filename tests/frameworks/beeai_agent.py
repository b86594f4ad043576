"""A runnable of BeeAI, served by its own ``A2AServer.serve()``, behind ``protect``.

``serve()`` hands its application to ``uvicorn.run`` and shows it to nobody, so that is where ``protect`` comes between.
``ORIGIN`` is where it is called. Run in BeeAI's own environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, misc, untyped-decorator, unused-ignore"

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from beeai_framework.adapters.a2a.serve.server import A2AServer
from beeai_framework.backend.message import AssistantMessage
from beeai_framework.emitter import Emitter
from beeai_framework.runnable import Runnable, RunnableOutput, runnable_entry

from a2a_trust import RequestRules
from tests.frameworks.guide import names_for, run_lines

ORIGIN = os.environ["ORIGIN"]


class Echo(Runnable[RunnableOutput]):
    """Answers with what it heard."""

    @property
    def emitter(self) -> Any:
        return Emitter.root().child(namespace=["echo"], creator=self)

    @runnable_entry
    async def run(self, messages: Any, /, **_: Any) -> RunnableOutput:
        return RunnableOutput(output=[AssistantMessage(f"heard {messages[-1].text}")])


if __name__ == "__main__":
    names = {**names_for("echoes", ORIGIN), "uvicorn": uvicorn}
    names["options"]["rules"] = RequestRules(public_paths=["/health"])
    run_lines("BeeAI", names)

    at = urlsplit(ORIGIN)
    server = A2AServer(config={"host": at.hostname, "port": at.port})
    server.register(Echo(), name="echo", url=ORIGIN).serve()
