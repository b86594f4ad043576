"""M40: a question of a proxy about another request than the one that the agent will read, or that no proxy asks.

The URI is judged as it came: one that readers could understand differently is rejected, so it does not matter what the
proxy makes of it. The real proxies are in tests/real/test_forward_auth.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from a2a_trust.serve import ForwardForm
from tests.serve.test_forward_auth import KEY, PROVEN, SECRET, guard
from tests.tables import walk

CARD_PATH = "/.well-known/agent-card.json"
PATHS = [
    "//rpc", "/./rpc", "/rpc/.", "/a/../rpc", "/%2e%2e/rpc", "/%2E/rpc", "/a%2frpc", "/a%2Frpc", "/a%5crpc", "/rpc;a",
    "/rpc%3ba", "/rpc%00", "/rpc%0a", "/rp\\c", "/rpc%", "/rpc%zz", "http://agent/rpc", "https://agent//rpc", "", "*",
    "?x", "rpc", "/rpc#x", "/rpc x", "/rp\xe9", "/%ff", f"{CARD_PATH}/../../rpc", f"{CARD_PATH}%2f..%2f..%2frpc",
    f"/{CARD_PATH}", f"{CARD_PATH};/rpc", "/rpc/" * 2_000,
]  # fmt: skip
NAMES = {
    ForwardForm.NGINX: ("X-Original-URI", "X-Original-Method"),
    ForwardForm.CADDY: ("X-Forwarded-Uri", "X-Forwarded-Method"),
    ForwardForm.TRAEFIK: ("X-Forwarded-Uri", "X-Forwarded-Method"),
}
OWN = [*KEY.items(), *PROVEN.items()]


def status(form: ForwardForm, uri: str, headers: list[tuple[str, str]], method: str = "POST") -> int:
    """The answer to a question about that URI in the form of the proxy."""
    path, lines = (uri, []) if form is ForwardForm.ENVOY else ("/", [(NAMES[form][0], uri), (NAMES[form][1], method)])
    encoded = [(name.lower().encode(), value.encode("latin-1")) for name, value in (*lines, *headers)]
    raw, _, query = path.encode("latin-1").partition(b"?")
    scope = {"type": "http", "method": method, "path": path.partition("?")[0], "raw_path": raw, "query_string": query}
    scope |= {"headers": encoded, "root_path": "", "scheme": "http", "server": ("guard", 80), "http_version": "1.1"}
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(guard(form)(scope, receive, send))
    return int(sent[0]["status"])


@pytest.mark.parametrize("form", ForwardForm)
def test_a_good_question_is_answered(form: ForwardForm) -> None:
    assert status(form, "/rpc", OWN) == 200
    assert status(form, "/rpc", [*PROVEN.items()]) == 401
    assert status(form, CARD_PATH, [*PROVEN.items()], "GET") == 200


@pytest.mark.parametrize("form", ForwardForm)
@walk("path", PATHS, ids=lambda path: repr(path[:60]))
def test_no_path_that_readers_could_understand_differently_passes(form: ForwardForm, path: str) -> None:
    for headers in (OWN, [*PROVEN.items()]):
        for method in ("POST", "GET"):
            assert status(form, path, headers, method) >= 400


@pytest.mark.parametrize("form", ForwardForm)
def test_only_the_proxy_asks_and_only_about_one_request(form: ForwardForm) -> None:
    uri, method = NAMES.get(form, ("X-Forwarded-Uri", "X-Forwarded-Method"))
    for more in (
        [("X-Proxy-Secret", SECRET)],
        [("X-Proxy-Secret", "y" * 32)],
        [("X_Proxy_Secret", SECRET)],
        [("X-Forwarded-For", "192.0.2.8")],
        [("Host", "a"), ("Host", "b")],
        [("Connection", "X-API-Key")],
        *([[(uri, CARD_PATH)], [(method, "GET")], [(uri.replace("-", "_"), "/rpc")]] if form in NAMES else []),
    ):
        assert status(form, "/rpc", [*OWN, *more]) >= 400, more
    for kept in ([*KEY.items()], [*KEY.items(), ("X-Proxy-Secret", "y" * 32)]):
        assert status(form, "/rpc", kept) == 403


@pytest.mark.parametrize("form", ForwardForm)
def test_the_names_of_another_proxy_ask_nothing(form: ForwardForm) -> None:
    """A client that writes them is not asked about another path."""
    others = {name for each in NAMES.values() for name in each} - {*NAMES.get(form, ())}
    claims = [(name, CARD_PATH if name.endswith(("i", "I")) else "GET") for name in others]
    assert status(form, "/rpc", [*PROVEN.items(), *claims]) == 401
