"""A real nginx that caches in front of the agent: it keeps the public card, and nobody gets what is another's."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import httpx
import pytest

from tests.servers.serving import free_port, serving
from tests.serving_cards.agent_card import EXTENDED, JSON_RPC, REST
from tests.serving_cards.conftest import AGENTS, Agents
from tests.tables import walk
from tests.tiers import missing

pytestmark = pytest.mark.real

PUBLIC = ("/.well-known/agent-card.json", "/.well-known/agent.json")
EXTENDED_CARDS = (
    ("GET", f"{REST}/extendedAgentCard"),
    ("GET", f"/acme{REST}/extendedAgentCard"),
    ("GET", f"{REST}/v1/card"),
    ("GET", "/agent/authenticatedExtendedCard"),
    ("POST", "GetExtendedAgentCard"),
    ("POST", "agent/getAuthenticatedExtendedCard"),
)


@pytest.fixture(scope="module", params=AGENTS)
def proxy(request: pytest.FixtureRequest, agents: Agents, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The origin of an nginx in front of an agent."""
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    if nginx is None:
        missing("nginx", "real-proxies")
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    text = (Path(__file__).parent / "nginx.conf").read_text(encoding="utf-8")
    text = text.replace("@PORT@", str(port)).replace("@ORIGIN@", agents.origins[request.param])
    (folder / "nginx.conf").write_text(text, encoding="utf-8")
    origin = f"http://127.0.0.1:{port}"
    with serving([nginx, "-p", str(folder), "-e", "stderr", "-c", "nginx.conf"], origin, {}, folder):
        yield origin


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with httpx.Client() as client:
        yield client


def ask(http: httpx.Client, proxy: str, how: tuple[str, str], credential: dict[str, str]) -> httpx.Response:
    method, name = how
    if method == "GET":
        return http.get(proxy + name, headers=credential)
    call = {"jsonrpc": "2.0", "id": 1, "method": name, "params": {}}
    return http.post(proxy + JSON_RPC, headers=credential, json=call)


@walk("path", PUBLIC)
def test_the_public_card_is_kept_and_asked_for_again(http: httpx.Client, proxy: str, path: str) -> None:
    url = proxy + path
    first = http.get(url)
    assert (first.status_code, first.headers["x-cache"]) == (200, "MISS")
    tag = first.headers["etag"]
    assert http.get(url, headers={"X-API-Key": "of somebody"}).content == first.content
    states = set()
    until = time.monotonic() + 20
    while "REVALIDATED" not in states and time.monotonic() < until:
        answer = http.get(url)
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (200, first.content, tag)
        states.add(answer.headers["x-cache"])
        time.sleep(0.05)
    assert states == {"HIT", "REVALIDATED"}  # kept for a second, as the agent said, then asked for by our tag
    unchanged = http.get(url, headers={"If-None-Match": tag})
    assert (unchanged.status_code, unchanged.headers["etag"], unchanged.content) == (304, tag, b"")
    head = http.head(url)
    assert (head.status_code, head.headers["etag"]) == (200, tag)


@walk("how", EXTENDED_CARDS, ids=" ".join)
def test_extended_cards_are_never_kept(http: httpx.Client, proxy: str, agents: Agents, how: tuple[str, str]) -> None:
    tenant = "acme" if "acme" in how[1] else "nobody"
    for order in permutations(("ann", "ben", "eve", None)):
        for owner in order:
            answer = ask(http, proxy, how, agents.credential(owner) if owner else {})
            assert answer.headers["x-cache"] in ("MISS", "BYPASS"), owner
            if owner in ("ann", "ben"):
                card = answer.json()["result"] if how[0] == "POST" else answer.json()
                assert (answer.status_code, card["description"]) == (200, EXTENDED.format(owner=owner, tenant=tenant))
                assert answer.headers["cache-control"] == "private, no-store"
            else:
                assert answer.status_code == (403 if owner else 401)
                assert "For a" not in answer.text


def test_answers_to_callers_with_a_key_are_not_kept(http: httpx.Client, proxy: str, agents: Agents) -> None:
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    headers = {"A2A-Version": "1.0", **agents.credential("ann")}
    for _ in range(2):
        answer = http.post(proxy + JSON_RPC, headers=headers, json=call)
        assert (answer.status_code, answer.headers["x-cache"]) == (200, "MISS")
        assert answer.headers["cache-control"] == "private"
        assert "x-api-key" in answer.headers["vary"].lower()
