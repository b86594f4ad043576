"""Delivery: what the transport sends and returns, and which credentials and signature a notification gets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx
import httpx2
import pytest

from a2a_trust import ConfigurationError, Fetcher, FetchError
from a2a_trust.auth.jwt import read_token
from a2a_trust.keys.rotation import KeyRing
from a2a_trust.push import PushTransport, SignedPush
from a2a_trust.push import httpx2 as push_httpx2
from tests.base.net.test_fetcher import Names, Server, answer, serving
from tests.client.agents import OWNER
from tests.push.webhooks import AGENT, NOW
from tests.tables import walk
from tests.waiting import settled, until

pytestmark = pytest.mark.anyio

RING = KeyRing.begin(OWNER, 0.0)
TASK = {"id": "task-1", "kind": "task"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Authentication(NamedTuple):
    """As 1.0 has it, which is never absent."""

    scheme: str = ""
    credentials: str = ""


class OldAuthentication(NamedTuple):
    schemes: list[str]
    credentials: str | None = None


class Config(NamedTuple):
    url: str
    token: str | None = None
    authentication: Any = Authentication()


class Store:
    def __init__(self, *configs: Config) -> None:
        self.configs = configs

    async def get_info(self, task: str) -> list[Config]:
        return [*self.configs] if task == "task-1" else []


class Sent(NamedTuple):
    status: int
    head: str

    def header(self, name: str) -> str:
        lines = [line.partition(": ")[2] for line in self.head.split("\r\n") if line.lower().startswith(f"{name}:")]
        return ", ".join(lines)


async def sent(url: str, server: Server, *configs: Config, token: str = "", library: Any = None, **given: Any) -> Sent:
    transport, signed = (PushTransport, SignedPush) if library is None else (library.PushTransport, library.SignedPush)
    client = (httpx if library is None else httpx2).AsyncClient
    fetcher = Fetcher(private_origins=[f"http://127.0.0.1:{server.port}"], timeout=5.0)
    auth = signed(RING, issuer=AGENT, configs=Store(*configs), clock=lambda: NOW) if configs else None
    headers = {"X-A2A-Notification-Token": token} if token else {}
    async with client(transport=transport(fetcher), auth=auth, **given) as http:
        came = await http.post(url, json=TASK, headers=headers)
    assert came.content == b""
    assert list(came.headers) == []
    return Sent(came.status_code, server.requests[-1].decode())


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving(answer(b"", status="204 No Content", content_type="")) as running:
        yield running


@walk("library", [None, push_httpx2], ids=str)
async def test_a_notification_is_signed_for_the_url_as_it_was_registered(library: Any, server: Server) -> None:
    url = f"http://127.0.0.1:{server.port}/a b/é?x=1"
    came = await sent(url, server, Config(url, "t"), token="t", library=library)
    assert came.status == 204
    assert came.head.startswith("POST /a%20b/%C3%A9?x=1 HTTP/1.1\r\n")
    token = read_token(came.header("a2a-push-signature"))
    claims = json.loads(token.payload)
    assert (claims["aud"], claims["iss"], claims["taskId"], claims["exp"] - claims["iat"]) == (url, AGENT, "task-1", 60)
    assert token.typ == "a2a-push+jwt"
    assert came.header("authorization") == ""
    assert came.header("x-a2a-notification-token") == "t"


AUTHENTICATIONS: list[tuple[Any, str, bool]] = [
    (None, "", True),
    (Authentication(), "", True),
    (Authentication("Bearer", "secret"), "Bearer secret", True),
    (Authentication("Basic", "YTpi"), "Basic YTpi", True),
    (Authentication("", "secret"), "", True),
    (Authentication("Basic"), "", True),
    (Authentication("bearer"), "bearer JWT", False),
    (OldAuthentication(["Bearer"]), "Bearer JWT", False),
    (OldAuthentication(["Basic", "Bearer"]), "Bearer JWT", False),
    (OldAuthentication(["Basic"], "YTpi"), "Basic YTpi", True),
    (OldAuthentication([], "secret"), "", True),
]


@walk(("authentication", "expected", "own"), AUTHENTICATIONS, ids=str)
async def test_credentials_go_as_the_client_registered_them(
    authentication: Any, expected: str, own: bool, server: Server
) -> None:
    url = f"http://127.0.0.1:{server.port}/"
    came = await sent(url, server, Config(url, None, authentication))
    authorization = came.header("authorization")
    assert bool(came.header("a2a-push-signature")) is own
    if not own:
        scheme, _, token = authorization.partition(" ")
        assert json.loads(read_token(token).payload)["aud"] == url
        authorization = f"{scheme} JWT"
    assert authorization == expected


async def test_a_key_ring_and_the_store_are_needed_and_an_async_client() -> None:
    wrong: Any = OWNER
    with pytest.raises(ConfigurationError, match="KeyRingFile"):
        SignedPush(wrong, issuer=AGENT, configs=Store())
    with pytest.raises(ConfigurationError, match="configs=store"):
        SignedPush(RING, issuer=AGENT, configs=wrong)
    signed = SignedPush(RING, issuer=AGENT, configs=Store())
    with httpx.Client(auth=signed) as client, pytest.raises(ConfigurationError, match="AsyncClient"):
        client.post("http://127.0.0.1:9/", json=TASK)


async def test_a_webhook_is_called_by_its_name_and_type() -> None:
    async with serving(answer(b"x" * 1_000_000, "Set-Cookie: a=b", status="202 Accepted")) as server:
        names = Names(localhost=[["127.0.0.1"]])
        fetcher = Fetcher(private_origins=[f"http://localhost:{server.port}"], resolver=names)
        async with httpx.AsyncClient(transport=PushTransport(fetcher)) as client:
            for _ in range(2):
                headers = {"Content-Type": "application/a2a+json"}
                url = f"http://localhost:{server.port}/push"
                came = await client.post(url, content=b"{}", headers=headers)
                assert (came.status_code, came.content) == (202, b"")
        assert names.asked == ["localhost"] * 2
        assert b"application/a2a+json" in server.requests[1]
        assert b"ookie" not in server.requests[1]


async def test_four_deliveries_to_one_host_run_at_once() -> None:
    running, most = 0, 0

    async def slow(writer: asyncio.StreamWriter) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 4:
            await settled()  # a fifth would begin now
        else:
            await until(lambda: most == 4)
        running -= 1
        await answer(b"")(writer)

    async with serving(slow) as server:
        fetcher = Fetcher(private_origins=[f"http://127.0.0.1:{server.port}"])
        async with httpx.AsyncClient(transport=PushTransport(fetcher)) as client:
            await asyncio.gather(*[client.post(f"http://127.0.0.1:{server.port}/", content=b"") for _ in range(12)])
    assert most == 4


async def test_an_error_does_not_show_the_url_or_the_token() -> None:
    async with httpx.AsyncClient(transport=PushTransport()) as client:
        with pytest.raises(FetchError) as caught:
            await client.post(
                "https://127.0.0.1/secret?secret", content=b"", headers={"X-A2A-Notification-Token": "s3"}
            )
    assert "secret" not in str(caught.value)
    assert "s3" not in str(caught.value)
