"""P16: A caller registers a webhook so that it gets the credentials of another caller's registration, or a signature
for another webhook."""

from __future__ import annotations

import httpx
import pytest

from a2a_trust import FetchError
from a2a_trust.push import PushTransport, SignedPush
from tests.base.net.test_fetcher import answer, fetcher_for, serving
from tests.push.test_delivery import RING, TASK, Authentication, Config, Store
from tests.push.webhooks import AGENT
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


ANN = Authentication("Bearer", "of Ann")
#: The registrations that are stored, for a delivery with the token "t" to /hook; the body and what comes of it.
STORED: dict[str, list[Config]] = {
    "none": [],
    "another path": [Config("{}/hook/", "t", ANN)],
    "another query": [Config("{}/hook?x", "t", ANN)],
    "another token": [Config("{}/hook", "other", ANN)],
    "no token": [Config("{}/hook", None, ANN)],
    "the same, but for the credentials": [Config("{}/hook", "t", ANN), Config("{}/hook", "t", Authentication())],
    "another spelling": [Config("{}/hook", "t"), Config("{}/x/../hook", "t", ANN)],
    "a URL that no library reads": [Config("http://[", "t", ANN)],
}


@walk("name", [*STORED], ids=str)
async def test_without_one_registration_nothing_is_sent(name: str) -> None:
    async with serving(answer()) as server:
        origin = f"http://127.0.0.1:{server.port}"
        configs = [each._replace(url=each.url.replace("{}", origin)) for each in STORED[name]]
        auth = SignedPush(RING, issuer=AGENT, configs=Store(*configs))
        async with httpx.AsyncClient(transport=PushTransport(fetcher_for(server)), auth=auth) as client:
            headers = {"X-A2A-Notification-Token": "t"}
            with pytest.raises(FetchError, match="different registrations") as caught:
                await client.post(f"{origin}/hook", json=TASK, headers=headers)
            with pytest.raises(FetchError, match="different registrations"):
                await client.post(f"{origin}/hook", json={"id": "another task"}, headers=headers)
        assert server.connections == 0
    assert "Ann" not in str(caught.value)


async def test_a_header_in_credentials_is_not_sent() -> None:
    async with serving(answer()) as server:
        url = f"http://127.0.0.1:{server.port}/hook"
        for credentials in ("a\r\nX-Other: b", "a\nb", "é", "a\x00"):
            auth = SignedPush(RING, issuer=AGENT, configs=Store(Config(url, "", Authentication("Basic", credentials))))
            async with httpx.AsyncClient(transport=PushTransport(fetcher_for(server)), auth=auth) as client:
                with pytest.raises(Exception, match=r"authorization|ascii") as caught:
                    await client.post(url, json=TASK)
            assert "X-Other" not in str(caught.value)
        assert server.connections == 0
