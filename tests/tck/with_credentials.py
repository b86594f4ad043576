"""A pytest plug-in for the conformance kit, which sends no credentials: adds them to its requests to the agent.

Runs in the kit's environment. All requests of the kit go through ``httpx.Client.send``; those to other origins, such as
its own receiver of notifications, stay as they are.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import json
import os
from typing import Any, Final

import httpx
import pytest

_SETTINGS: Final[dict[str, Any]] = json.loads(os.environ["CREDENTIALS"])


@pytest.fixture(scope="session", autouse=True)
def credentials() -> Any:
    agent = httpx.URL(_SETTINGS["url"])
    send = httpx.Client.send

    def send_with_credentials(self: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        if (request.url.host, request.url.port) == (agent.host, agent.port):
            request.headers.update(_SETTINGS["headers"])
        return send(self, request, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx.Client, "send", send_with_credentials)
        yield
