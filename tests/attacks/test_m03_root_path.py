"""M3: a prefix that is stripped in the middle of a segment turns a private path into a public one.

Seen in vllm (#52794). The router decides, and Starlette's is asked here what it sees.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette._utils import get_route_path
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from a2a_trust.middleware import routing as interfaces
from tests.middleware.agent import KEY, Agent, guarded, raw_exchange, uvicorn_serving
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


CARD_PATH = "/.well-known/agent-card.json"
ROOTS = ["", "/", "/a", "/a/", "/a/b", "a", "/.well-known", CARD_PATH, "/rpc", "//"]
PATHS = [
    "",
    "/",
    "/a",
    "/a/",
    "/ab",
    "/a/b",
    "/rpc",
    "/rpc/",
    "/rpcx",
    CARD_PATH,
    f"/a{CARD_PATH}",
    f"/a/{CARD_PATH}",
    f"/ab{CARD_PATH}",
    f"/a/b{CARD_PATH}",
    f"/rpc{CARD_PATH}",
    f"{CARD_PATH}{CARD_PATH}",
    f"/{CARD_PATH}",
]


@walk("root", ROOTS)
@walk("path", PATHS)
def test_the_guard_and_the_router_see_the_same_path(root: str, path: str) -> None:
    scope: dict[str, Any] = {"type": "http", "path": path, "root_path": root}
    assert interfaces.route_path(scope) == get_route_path(scope)


async def card(request: Request) -> PlainTextResponse:
    return PlainTextResponse("card")


async def rpc(request: Request) -> PlainTextResponse:
    return PlainTextResponse("secret")


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_with_the_root_path_of_a_real_server_nothing_private_is_public(http: str) -> None:
    app = Starlette(routes=[Route(CARD_PATH, card), Route("/rpc", rpc), Route("/{rest:path}", rpc)])
    async with uvicorn_serving(guarded(app), http, root_path="/agent") as origin:
        for path, status in (
            (CARD_PATH, 200),
            ("/rpc", 401),
            (f"/rpc{CARD_PATH}", 401),
            (f"s{CARD_PATH}", 401 if http == "h11" else 400),
            (f"/x/..{CARD_PATH}", 401),
            (f"/%2e{CARD_PATH[2:]}", 401),
        ):
            request = f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            found, answer = await raw_exchange(origin, request.encode())
            assert found == status, path
            assert b"secret" not in answer


async def test_a_prefix_that_ends_inside_a_segment_is_not_stripped() -> None:
    agent = Agent()
    transport = httpx.ASGITransport(guarded(agent), root_path="/rpc")
    async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as http:
        for path in (f"/rpcx{CARD_PATH}", f"/rp{CARD_PATH}", f"/RPC{CARD_PATH}"):
            assert (await http.get(path)).status_code == 401, path
        assert agent.scopes == []
        assert (await http.get(f"/rpc{CARD_PATH}")).status_code == 200


@pytest.mark.parametrize("outside", [True, False])
async def test_a_mounted_agent_has_its_card_at_its_own_place(outside: bool) -> None:
    routes = [Route(CARD_PATH, card), Route("/rpc", rpc)]
    inner: Any = Starlette(routes=routes)
    app: Any = Starlette(routes=[Mount("/agents/one", inner if outside else guarded(inner))])
    if outside:
        app = guarded(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example") as http:
        # Around the whole application the card's path is that of the origin, inside a mount that of the mount.
        assert (await http.get(f"/agents/one{CARD_PATH}")).status_code == (401 if outside else 200)
        assert (await http.get("/agents/one/rpc")).status_code == 401
        assert (await http.get("/agents/one/rpc", headers={"X-API-Key": KEY})).text == "secret"
