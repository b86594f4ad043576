"""docs/cards.md is true: its Python runs, and everything is served where its table says, to whom it says."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from a2a_trust import SqliteApiKeys, generate_signer
from a2a_trust.keys import KeyRing
from a2a_trust.keys.ring_file import save_key_ring
from tests.serving_cards.agent_card import public_card

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "cards.md").read_text(encoding="utf-8")
CODE, CALLS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
(PRINTED,) = re.findall(r"```text\n(.*?)```", GUIDE, re.DOTALL)
PLACES = [
    (place, who == "everybody")
    for places, who in re.findall(r"^\| [a-z].* \| (.*`.*) \| (.*) \|$", GUIDE, re.MULTILINE)
    for place in re.findall(r"`(.*?)`", places)
    if place != "url"
]


def ask(app: Any, place: str, headers: dict[str, str]) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="https://agent.example.com") as http:
            if "/" in place.removeprefix("agent/get"):
                return await http.get(place.removeprefix("GET ").replace("…", "/a2a/rest"), headers=headers)
            return await http.post(
                "/a2a/jsonrpc", headers=headers, json={"jsonrpc": "2.0", "id": 1, "method": place, "params": {}}
            )

    return asyncio.run(send())


def test_everything_is_where_the_guide_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteApiKeys("keys.db", create=True)
    good = {"X-API-Key": store.create(owner="ann", scopes=["read", "cards:read"]).text}
    poor = {"X-API-Key": store.create(owner="bob", scopes=["read"]).text}
    save_key_ring(Path("ring.json"), KeyRing.begin(generate_signer(), time.time()))
    names = {"agent": Starlette(), "card": public_card("https://agent.example.com")}
    exec(compile(CODE, "docs/cards.md", "exec"), names)
    exec(compile(CALLS, "docs/cards.md", "exec"), {**names, "key": good["X-API-Key"]})
    assert capsys.readouterr().out == PRINTED
    assert len(PLACES) == 9
    for place, is_public in PLACES:
        statuses = [ask(names["app"], place, headers).status_code for headers in ({}, poor, good)]
        assert statuses == ([200, 200, 200] if is_public else [401, 403, 200]), place
        if not is_public:
            assert "Books invoices for " in ask(names["app"], place, good).text
