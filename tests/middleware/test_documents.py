"""Documents that anybody may read: conditional requests, HEAD, browsers."""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from typing import Any

import httpx
import pytest

from a2a_trust.middleware.documents import Document, Receive, Scope, Send, answer
from tests.tables import walk

MODIFIED = 1_700_000_000.75
NOW = MODIFIED + 100
DOCUMENT = Document.of(b'{"name":"x"}', MODIFIED)


def ask(method: str = "GET", headers: dict[str, str] | list[tuple[str, str]] | None = None) -> httpx.Response:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(DOCUMENT, scope, send, now=NOW, max_age=60)

    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as client:
            return await client.request(method, "/card", headers=headers)

    return asyncio.run(request())


def test_a_document_comes_with_its_tag_its_date_and_its_age() -> None:
    response = ask()
    assert (response.status_code, response.content) == (200, DOCUMENT.body)
    assert response.headers["etag"] == DOCUMENT.etag.decode()
    assert response.headers["etag"].startswith('"')  # strong
    assert response.headers["last-modified"] == "Tue, 14 Nov 2023 22:13:20 GMT"
    assert response.headers["cache-control"] == "public, max-age=60"
    assert response.headers["content-type"] == "application/json"
    assert response.headers["access-control-allow-origin"] == "*"
    assert "set-cookie" not in response.headers


def test_head_is_get_without_the_body() -> None:
    get, head = ask(), ask("HEAD")
    assert head.content == b""
    assert head.headers == get.headers
    assert head.headers["content-length"] == str(len(DOCUMENT.body))


def test_one_other_byte_is_another_tag() -> None:
    assert Document.of(DOCUMENT.body[:-1] + b" }", MODIFIED).etag != DOCUMENT.etag


@walk(
    ("headers", "status"),
    [
        ({"If-None-Match": DOCUMENT.etag.decode()}, 304),
        ({"If-None-Match": "W/" + DOCUMENT.etag.decode()}, 304),
        ({"If-None-Match": '"a", ' + DOCUMENT.etag.decode()}, 304),
        ([("If-None-Match", '"a"'), ("If-None-Match", DOCUMENT.etag.decode())], 304),
        ({"If-None-Match": "*"}, 304),
        ({"If-None-Match": '"a"'}, 200),
        ({"If-None-Match": '"a,' + DOCUMENT.etag.decode()[1:]}, 200),
        ({"If-None-Match": DOCUMENT.etag.decode().strip('"')}, 200),
        ({"If-Modified-Since": formatdate(MODIFIED, usegmt=True)}, 304),
        # Whoever has a later one has another: the clock went back, or an older file was put in the place.
        ({"If-Modified-Since": formatdate(MODIFIED + 9, usegmt=True)}, 200),
        ({"If-Modified-Since": formatdate(MODIFIED - 9, usegmt=True)}, 200),
        ({"If-Modified-Since": "yesterday"}, 200),
        ({"If-Modified-Since": "Tue, 99 Nov 99999 22:13:20 GMT"}, 200),
        # The tag alone counts when both came (RFC 9110 13.1.3).
        ({"If-None-Match": '"a"', "If-Modified-Since": formatdate(MODIFIED, usegmt=True)}, 200),
    ],
    ids=str,
)
@walk("method", ["GET", "HEAD"])
def test_who_has_it_already_is_told_so(headers: Any, status: int, method: str) -> None:
    response = ask(method, headers)
    assert response.status_code == status
    assert response.headers["etag"] == DOCUMENT.etag.decode()
    if status == 304:
        assert response.content == b""
        assert "content-length" not in response.headers
        assert response.headers["cache-control"] == "public, max-age=60"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_other_methods_are_not_allowed(method: str) -> None:
    response = ask(method)
    assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert response.content == b""


def test_a_browser_may_ask_with_conditions() -> None:
    headers = {"Origin": "https://page.example", "Access-Control-Request-Method": "GET"}
    response = ask("OPTIONS", headers)
    assert response.status_code == 204
    assert response.headers["access-control-allow-origin"] == "*"
    assert "If-None-Match" in response.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in response.headers
    assert "access-control-allow-origin" not in ask("OPTIONS").headers
