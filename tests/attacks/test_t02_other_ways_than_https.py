"""T2: a key source that redirects, or that is no https URL at all, leads to whatever the attacker likes.

Seen in CVE-2026-102267 (``file:`` and ``data:`` as the URL of a key set) and GHSA-993g-76c3-p5m4 (redirects).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.errors import FetchError
from tests.base.net.test_fetcher import Authority, Names, answer, fetcher_for, serving
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@walk("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
async def test_a_redirect_is_not_followed(status: str) -> None:
    async with serving(answer(b'"stolen"')) as inside:
        redirect = answer(b"{}", f"Location: http://127.0.0.1:{inside.port}/", status=status)
        async with serving(redirect) as server:
            fetcher = Fetcher(private_origins=[f"http://127.0.0.1:{port}" for port in (server.port, inside.port)])
            with pytest.raises(FetchError, match=r"redirects .* not followed"):
                await fetcher.fetch(f"http://127.0.0.1:{server.port}/", configured=True)
            control = await fetcher.fetch(f"http://127.0.0.1:{inside.port}/", configured=True)
    assert (control.body, inside.connections, server.connections) == (b'"stolen"', 1, 1)


@pytest.mark.parametrize("configured", [True, False])
async def test_files_data_and_other_schemes_are_not_opened(tmp_path: Path, configured: bool) -> None:
    file = tmp_path / "jwks.json"
    file.write_bytes(b'{"keys": []}')
    for url in (
        file.as_uri(),
        f"file://localhost{file}",
        str(file),
        'data:application/json,{"keys":[]}',
        "data://application/json,1",
        "ftp://ftp.example/jwks",
        "gopher://127.0.0.1:70/x",
        "ws://a.example/",
        "//a.example/jwks",
        "javascript:1",
        "",
    ):
        with pytest.raises(FetchError, match=r"write https://host/path"):
            await Fetcher().fetch(url, configured=configured)


async def test_http_needs_an_origin_that_the_operator_named_and_a_url_that_the_operator_wrote() -> None:
    async with serving(answer()) as server:
        url, named = f"http://127.0.0.1:{server.port}/", fetcher_for(server)
        for fetcher, configured in ((Fetcher(), True), (Fetcher(), False), (named, False)):
            with pytest.raises(FetchError, match="only https"):
                await fetcher.fetch(url, configured=configured)
        other_port = Fetcher(private_origins=[f"http://127.0.0.1:{server.port + 1}"])
        with pytest.raises(FetchError, match="only https"):
            await other_port.fetch(url, configured=True)
        assert server.connections == 0
        assert (await named.fetch(url, configured=True)).body == b'{"keys": []}'


async def test_http_does_not_leave_the_machine_by_way_of_a_name() -> None:
    fetcher = Fetcher(private_origins=["http://localhost:80"], resolver=Names(localhost=[["127.0.0.1", "10.0.0.1"]]))
    with pytest.raises(FetchError, match="http is for this machine only"):
        await fetcher.fetch("http://localhost/", configured=True)


async def test_a_server_without_tls_does_not_answer_https(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with serving(answer()) as server:
        origin = f"https://127.0.0.1:{server.port}"
        fetcher = Fetcher(private_origins=[origin], ssl_context=authority.client(), timeout=0.2)
        with pytest.raises(FetchError, match=r"cannot be reached|no complete answer"):
            await fetcher.fetch(f"{origin}/", configured=True)
    assert server.requests == []
