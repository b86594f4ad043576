"""P14: The URL of a webhook leads to a server that the caller cannot reach: by its address, by DNS that changes between
two looks, or by a redirect."""

from __future__ import annotations

import httpx
import pytest

from a2a_trust import Fetcher, FetchError
from a2a_trust.push import PushTransport
from tests.base.net.test_fetcher import Names, answer, fetcher_for, serving
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


INSIDE = [
    "http://hook.example.com/",
    "https://127.0.0.1/",
    "https://localhost/",
    "https://[::1]/",
    "https://10.0.0.1/",
    "https://169.254.169.254/latest/meta-data",
    "https://[::ffff:10.0.0.1]/",
    "https://[2002:7f00:1::]/",
    "https://0x7f000001/",
    "https://user:password@hook.example.com/",
    "https://hook.example.com/../admin",
    "ftp://hook.example.com/",
]


@walk("url", INSIDE, ids=str)
async def test_nothing_is_sent_to_addresses_inside(url: str) -> None:
    names = Names(localhost=[["127.0.0.1"]], hook_example_com=[["127.0.0.1"]])
    async with httpx.AsyncClient(transport=PushTransport(Fetcher(resolver=names, timeout=1.0))) as client:
        with pytest.raises((FetchError, httpx.HTTPError, httpx.InvalidURL)):
            await client.post(url, content=b"{}")


async def test_each_delivery_looks_at_the_address_that_it_connects_to() -> None:
    async with serving(answer()) as server:
        names = Names(hook_example_com=[["93.184.215.14"], ["127.0.0.1"]])
        assert await names.resolve("hook.example.com", 443) == ["93.184.215.14"]  # at the registration
        async with httpx.AsyncClient(transport=PushTransport(Fetcher(resolver=names))) as client:
            with pytest.raises(FetchError, match="not a public one"):
                await client.post(f"https://hook.example.com:{server.port}/", content=b"{}")
        assert server.connections == 0


async def test_no_redirect_is_followed_even_by_a_client_that_follows_them() -> None:
    async with serving(answer()) as inside:
        location = f"Location: http://127.0.0.1:{inside.port}/"
        async with serving(answer(b"", location, status="307 Temporary Redirect")) as hook:
            transport = PushTransport(fetcher_for(hook))
            async with httpx.AsyncClient(transport=transport, follow_redirects=True) as client:
                came = await client.post(f"http://127.0.0.1:{hook.port}/", content=b"{}")
        assert (came.status_code, came.history, inside.connections) == (307, [], 0)


async def test_no_proxy_of_the_environment_sees_a_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(answer()) as proxy, serving(answer()) as hook:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        # mounts of the environment would replace the transport
        async with httpx.AsyncClient(transport=PushTransport(fetcher_for(hook))) as client:
            await client.post(f"http://127.0.0.1:{hook.port}/", content=b"{}")
        assert (proxy.connections, hook.connections) == (0, 1)
