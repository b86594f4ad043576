"""What the reverse proxy passes on, and what becomes of answers: over sockets, under each server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2a_trust.auth import SqliteApiKeys
from a2a_trust.serve import ServedAgent
from tests.serve.served import SERVERS, serving, upstream, write

CALL = {"jsonrpc": "2.0", "id": 7, "method": "GetTask", "params": {"id": "1"}}


@pytest.fixture
def key(tmp_path: Path) -> dict[str, str]:
    return {"X-API-Key": SqliteApiKeys(tmp_path / "keys.db", create=True).create(owner="ann").text}


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


@pytest.mark.parametrize("server", SERVERS)
def test_requests_stay_as_they_came_but_for_what_is_the_proxys(
    server: str, tmp_path: Path, key: dict[str, str]
) -> None:
    async def test() -> None:
        async with (
            upstream() as agent,
            serving(ServedAgent(write(tmp_path, agent.port)), server) as url,
            httpx.AsyncClient(base_url=url, headers=key) as http,
        ):
            forged = {
                "A2A-Caller-Id": "root", "A2A_Caller_Id": "root", "a2a-caller-token": "x", "A2A-Caller-New": "x",
                "X-Forwarded-For": "1.2.3.4", "X_Forwarded_For": "1.2.3.4", "Forwarded": "for=1.2.3.4",
                "X-Real-IP": "1.2.3.4", "Transfer_Encoding": "chunked", "Keep-Alive": "x", "TE": "trailers",
                "Proxy-Authorization": "Basic x", "Connection": "keep-alive, TE", "X-Mine": "y; z",
            }  # fmt: skip
            answer = await http.put("/page?a=%2F&b=+c&a=1", headers=forged, content=b"body")
            assert answer.status_code == 200
            assert len(answer.headers.get_list("date")) == 1
            head = agent.heads[0].decode()
            assert head.startswith("PUT /page?a=%2F&b=+c&a=1 HTTP/1.1\r\n")
            names = [line.partition(":")[0].lower() for line in head.split("\r\n")[1:-2]]
            lines = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:-2] if ": " in line)
            assert not {"x-api-key", "forwarded", "x-real-ip", "transfer_encoding", "te", "keep-alive"} & {*names}
            assert not {"proxy-authorization", "a2a_caller_id", "a2a-caller-token", "a2a-caller-new"} & {*names}
            assert names.count("a2a-caller-id") == names.count("x-forwarded-for") == names.count("host") == 1
            assert (lines["a2a-caller-id"], lines["x-forwarded-for"]) == ("ann@api-keys", "127.0.0.1")
            assert (lines["x-mine"], lines["content-length"]) == ("y; z", "4")
            assert agent.bodies == [b"body"]
            assert key["X-API-Key"] not in head

    run(test())


@pytest.mark.parametrize("server", SERVERS)
def test_bodies_of_every_kind_arrive(server: str, tmp_path: Path, key: dict[str, str]) -> None:
    async def chunks() -> Any:
        for _ in range(3):
            yield b"x" * 40_000

    async def test() -> None:
        async with (
            upstream() as agent,
            serving(ServedAgent(write(tmp_path, agent.port)), server) as url,
            httpx.AsyncClient(base_url=url, headers=key) as http,
        ):
            assert (await http.post("/up", content=chunks())).status_code == 200
            assert (await http.post("/up", content=b"")).status_code == 200
            call = await http.post("/rpc", json=CALL, headers={"A2A-Version": "1.0"})
            assert call.status_code == 200
            assert (await http.head("/page")).content == b""
        assert agent.bodies == [b"x" * 120_000, b"", json.dumps(CALL, separators=(",", ":")).encode(), b""]

    run(test())


ANSWERS = {
    "length": (b"HTTP/1.1 201 Created\r\nX-A: 1\r\nContent-Length: 2\r\n\r\nok", 201, b"ok"),
    "chunked": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, b"ok"),
    "until close": (b"HTTP/1.1 200 OK\r\n\r\nok", 200, b"ok"),
    "both": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, b"ok",
    ),
    "trailers": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-B: 1\r\n\r\n", 200, b"ok"),
    "early": (b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok"),
    "nothing": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "switched": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", 502, None),
    "not http": (b"hello\r\n\r\n", 502, None),
    "closed": (b"", 502, None),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokk", 502, None),
    "split": (b"HTTP/1.1 200 OK\r\nX-A: a\rSet-Cookie: b\r\nContent-Length: 2\r\n\r\nok", 502, None),
}  # fmt: skip


@pytest.mark.parametrize("server", SERVERS)
def test_answers_of_every_kind(server: str, tmp_path: Path, key: dict[str, str]) -> None:
    async def test() -> None:
        async with upstream() as agent, serving(ServedAgent(write(tmp_path, agent.port)), server) as url:
            for name, (answer, status, body) in ANSWERS.items():
                agent.answer = answer
                async with httpx.AsyncClient(base_url=url, headers=key) as http:
                    got = await http.post("/rpc", json=CALL, headers={"A2A-Version": "1.0"})
                assert got.status_code == status, name
                if body is not None:
                    assert got.content == body, name
                    assert "x-b" not in got.headers
                else:
                    error = got.json()
                    assert (error["id"], error["error"]["data"][0]["reason"]) == (7, "UPSTREAM_FAILED"), name

    run(test())


@pytest.mark.parametrize("server", SERVERS)
def test_events_arrive_one_by_one_and_an_end_in_the_middle_is_an_error(
    server: str, tmp_path: Path, key: dict[str, str]
) -> None:
    async def test() -> None:
        async with upstream() as agent, serving(ServedAgent(write(tmp_path, agent.port)), server) as url:
            gate = asyncio.Event()

            async def stream(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
                for number in range(3):
                    writer.write(b"c\r\ndata: %4d\n\n\r\n" % number)
                    await writer.drain()
                    await gate.wait()
                    gate.clear()

            agent.go_on = stream
            events = []
            async with httpx.AsyncClient(base_url=url, headers=key, timeout=60) as http:

                async def read() -> None:
                    async with http.stream("GET", "/page") as answer:
                        async for chunk in answer.aiter_bytes():
                            events.append(chunk)
                            gate.set()  # the next event is sent only now

                with pytest.raises(httpx.RemoteProtocolError):
                    await read()
            assert b"".join(events) == b"data:    0\n\ndata:    1\n\ndata:    2\n\n"
            assert len(events) == 3

    run(test())


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("begins", [False, True])
def test_a_client_that_leaves_ends_the_request_to_the_agent(
    begins: bool, server: str, tmp_path: Path, key: dict[str, str]
) -> None:
    async def test() -> None:
        async with upstream() as agent, serving(ServedAgent(write(tmp_path, agent.port)), server) as url:
            left = asyncio.Event()

            async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                if begins:
                    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
                    await writer.drain()
                assert await reader.read() == b""  # the proxy closes the connection
                left.set()

            agent.go_on = wait
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(b"GET /page HTTP/1.1\r\nHost: a\r\nX-API-Key: %b\r\n\r\n" % key["X-API-Key"].encode())
            await agent.asked.wait()
            if begins:
                await reader.readuntil(b"ok")
            writer.transport.abort()
            async with asyncio.timeout(60):
                await left.wait()

    run(test())


def test_too_many_connections_and_a_silent_agent(tmp_path: Path, key: dict[str, str]) -> None:
    async def test() -> None:
        async with upstream() as agent:
            path = write(tmp_path, agent.port)
            path.write_text(path.read_text().replace("timeout = 60", "timeout = 2\nconnections = 1"))
            async with serving(ServedAgent(path)) as url, httpx.AsyncClient(base_url=url, headers=key) as http:

                async def wait(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
                    await reader.read()

                agent.go_on = wait
                late = asyncio.create_task(http.get("/page", timeout=60))
                await agent.asked.wait()
                busy = await http.get("/page", timeout=60)
                assert (busy.status_code, busy.json()["error"]["status"]) == (503, "UNAVAILABLE")
                assert ((await late).status_code, (await late).json()["error"]["code"]) == (504, 504)

    run(test())


def test_an_idle_connection_that_the_agent_closes_costs_no_request(tmp_path: Path, key: dict[str, str]) -> None:
    async def test() -> None:
        async with upstream() as agent, serving(ServedAgent(write(tmp_path, agent.port))) as url:
            agent.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"  # and closes, without saying so
            async with httpx.AsyncClient(base_url=url, headers=key) as http:
                for _ in range(20):
                    assert (await http.get("/page")).status_code == 200

    run(test())


def test_the_agent_is_down(tmp_path: Path, key: dict[str, str]) -> None:
    async def test() -> None:
        async with (
            serving(ServedAgent(write(tmp_path, 1))) as url,
            httpx.AsyncClient(base_url=url, headers=key) as http,
        ):
            down = await http.get("/page")
            assert (down.status_code, down.json()["error"]["details"][0]["reason"]) == (502, "UPSTREAM_FAILED")
            assert (await http.get("/.well-known/agent-card.json")).status_code == 200
            assert (await http.get("/page", headers={"X-API-Key": "x"})).status_code == 401

    run(test())
