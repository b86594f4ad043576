"""M39: a request that the reverse proxy and the agent behind it read differently, or that names its own caller.

Either it is rejected before the agent sees it, or the agent sees exactly one request, with the proxy's reading.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from a2a_trust.auth import SqliteApiKeys
from a2a_trust.serve import ServedAgent
from tests.serve.served import SERVERS, exchange, serving, upstream, write

PATHS = [
    b"//page", b"/./page", b"/../page", b"/a/../page", b"/page/.", b"/page/..", b"/%2e%2e/page", b"/%2E/page",
    b"/a%2fpage", b"/a%5cpage", b"/page;a=1", b"/page%3ba", b"/page%00", b"/page%0a", b"/pa\\ge", b"/page%",
    b"/page%zz", b"*", b"page", b"/pag\xc3\xa9", b"/%ff", b"/page%7f",
]  # fmt: skip
#: The lines of a request; KEY stands for the credential. None of them may reach the agent.
REQUESTS = {
    "two hosts": b"GET /page HTTP/1.1\r\nHost: a\r\nHost: b\r\nKEY\r\n\r\n",
    "length and chunks": b"POST /page HTTP/1.1\r\nHost: a\r\nKEY\r\nContent-Length: 6\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nX",
    "two lengths": b"POST /page HTTP/1.1\r\nHost: a\r\nKEY\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a list of lengths": b"POST /page HTTP/1.1\r\nHost: a\r\nKEY\r\nContent-Length: 2, 3\r\n\r\nab",
    "a negative length": b"POST /page HTTP/1.1\r\nHost: a\r\nKEY\r\nContent-Length: -1\r\n\r\nab",
    "a signed length": b"POST /page HTTP/1.1\r\nHost: a\r\nKEY\r\nContent-Length: +2\r\n\r\nab",
    "odd coding": b"POST /page HTTP/1.1\r\nHost: a\r\nKEY\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "NUL": b"GET /page HTTP/1.1\r\nHost: a\r\nKEY\r\nX-A: a\0b\r\n\r\n",
    "a blank before the colon": b"GET /page HTTP/1.1\r\nHost: a\r\nKEY\r\nX-A : b\r\n\r\n",
    "connect": b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\nKEY\r\n\r\n",
    "trace": b"TRACE /page HTTP/1.1\r\nHost: a\r\nKEY\r\n\r\n",
    "header that Connection removes": b"GET /page HTTP/1.1\r\nHost: a\r\nKEY\r\nConnection: X-API-Key\r\n\r\n",
    "version that Connection removes": b"GET /page HTTP/1.1\r\nHost: a\r\nKEY\r\nConnection: A2A-Version\r\n\r\n",
}  # fmt: skip


@pytest.fixture
def key(tmp_path: Path) -> bytes:
    return b"X-API-Key: " + SqliteApiKeys(tmp_path / "keys.db", create=True).create(owner="ann").text.encode()


@pytest.mark.parametrize("server", SERVERS)
def test_no_ambiguous_request_reaches_the_agent(server: str, tmp_path: Path, key: bytes) -> None:
    async def test() -> None:
        async with upstream() as agent, serving(ServedAgent(write(tmp_path, agent.port)), server) as url:
            for path in PATHS:
                request = b"GET %b HTTP/1.1\r\nHost: a\r\n%b\r\nConnection: close\r\n\r\n" % (path, key)
                answer = await exchange(url, request)
                assert not answer or 400 <= int(answer[9:12]) <= 501, (path, answer)
                assert agent.heads == [], path
            for name, request in REQUESTS.items():
                answer = await exchange(url, request.replace(b"KEY", key))
                assert not answer or 400 <= int(answer[9:12]) <= 501, (name, answer)
                assert agent.heads == [], name
            for start in (b"GET http://a/page", b"get /page"):  # some servers write these in the one clear form
                answer = await exchange(
                    url, b"%b HTTP/1.1\r\nHost: a\r\n%b\r\nConnection: close\r\n\r\n" % (start, key)
                )
                assert answer.startswith(b"HTTP/1.1 400") or agent.heads.pop().startswith(b"GET /page HTTP/1.1\r\n")
            for lines in (  # line feeds alone, and a line that is folded
                b"GET /page HTTP/1.1\nHost: a\nKEY\n\n",
                b"GET /page HTTP/1.1\r\nHost: a\r\nKEY\r\nX-A: b\r\n c\r\n\r\n",
            ):
                answer = await exchange(url, lines.replace(b"KEY", key))
                head = agent.heads.pop() if answer.startswith(b"HTTP/1.1 200") else b""
                assert agent.heads == []
                assert b"\n" not in head.replace(b"\r\n", b"")
                assert b"\r\n " not in head
            good = b"GET /page HTTP/1.1\r\nHost: a\r\n%b\r\nConnection: close\r\n\r\n" % key
            assert (await exchange(url, good)).startswith(b"HTTP/1.1 200")
            assert len(agent.heads) == 1

    asyncio.run(test())


FORGED = (
    b"A2A-Caller-Id", b"a2a-caller-id", b"A2A_Caller_Id", b"A2A-Caller_Token", b"a2a_caller_scopes", b"A2A-CALLER-X",
    b"X-Forwarded-For", b"X_Forwarded_Proto", b"Forwarded", b"X-Real-IP", b"Proxy-Authorization",
    b"X-Forwarded-User", b"Remote-User", b"X_Remote_User", b"X-Auth-Request-Email", b"Client-Cert",
    b"SSL-Client-Verify", b"X-Ms-Client-Principal",
)  # fmt: skip


@pytest.mark.parametrize("server", SERVERS)
def test_no_caller_names_itself(server: str, tmp_path: Path, key: bytes) -> None:
    async def test() -> None:
        async with upstream() as agent, serving(ServedAgent(write(tmp_path, agent.port)), server) as url:
            forged = b"".join(b"%b: root\r\n%b: root\r\n" % (name, name) for name in FORGED)
            request = b"GET /page?x=1 HTTP/1.1\r\nHost: a\r\n%b%b\r\nUpgrade: x\r\nConnection: close\r\n\r\n"
            answer = await exchange(url, request % (forged, key))
            (head,) = agent.heads
            assert answer.startswith(b"HTTP/1.1 200")
            assert b"root" not in head
            assert b"upgrade" not in head.lower()
            assert head.lower().count(b"a2a-caller-id: ann@api-keys\r\n") == 1
            assert key not in head

    asyncio.run(test())
