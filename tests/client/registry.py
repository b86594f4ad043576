"""A curated registry of cards, on FastAPI and uvicorn, which may be hostile: ten agents with five cards each."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import uvicorn
from fastapi import FastAPI, Request
from starlette.responses import Response, StreamingResponse

from a2a_trust import Origins, TrustedKey, TrustStore, generate_signer
from tests.client.agents import card_of, signed

__all__ = ["AGENTS", "REGISTRY_KEY", "TRUST", "Registry", "agent_url", "card_bytes", "serving_registry"]

KEYS: Final = [generate_signer("ES256", kid=f"agent-{number}") for number in range(10)]
REGISTRY_KEY: Final = generate_signer("ES256", kid="registry")
#: Each agent's key is trusted for its own host; the registry's for the registry.
TRUST: Final = TrustStore(
    [
        *[TrustedKey(key=key.public_key, origins=Origins(f"agent-{number}.test")) for number, key in enumerate(KEYS)],
        TrustedKey(key=REGISTRY_KEY.public_key, origins=Origins("127.0.0.1")),
    ]
)
AGENTS: Final = [(number, part) for number in range(10) for part in range(5)]


def agent_url(number: int, part: int) -> str:
    return f"https://agent-{number}.test/{part}"


def card_bytes(number: int, part: int, *, by: Any = None, iat: float = 1_700_000_000, **members: Any) -> bytes:
    """The card of an agent, signed with its key; ``part`` is its skill, and the folder of its interface."""
    interface = {"url": f"{agent_url(number, part)}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    skill = {"id": f"skill-{part}", "name": "Skill", "description": "Does it.", "tags": ["t"]}
    card = card_of(agent_url(number, part), supportedInterfaces=[interface], skills=[skill], **members)
    return signed(card, by=by or KEYS[number], iat=iat)


@dataclass
class Registry:
    url: str
    cards: dict[tuple[int, int], bytes] = field(
        default_factory=lambda: {(number, part): card_bytes(number, part) for number, part in AGENTS}
    )
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def card_url(self, number: int, part: int, ending: str = "") -> str:
        return f"{self.url}/cards/{number}/{part}{ending}"

    def entries(self, skill: str) -> list[dict[str, str]]:
        return [
            {"agent": agent_url(*each), "card": self.card_url(*each)}
            for each, card in self.cards.items()
            if any(each["id"] == skill for each in json.loads(card)["skills"])
        ]

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/agents")
        def agents(skill: str) -> list[dict[str, str]]:
            return self.entries(skill)

        @app.get("/stream")
        def stream(skill: str) -> StreamingResponse:
            lines = (json.dumps(each) + "\n" for each in self.entries(skill))
            return StreamingResponse(lines, media_type="application/x-ndjson")

        @app.get("/cards/{number}/{part}")
        def card(number: int, part: str, request: Request) -> Response:
            self.asked.append((request.url.path, dict(request.headers)))
            document = self.cards[number, int(part.removesuffix(".json"))]
            return Response(document, media_type="application/json")

        return app


@contextmanager
def serving_registry() -> Iterator[Registry]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        registry = Registry(f"http://127.0.0.1:{listener.getsockname()[1]}")
        server = uvicorn.Server(uvicorn.Config(registry.app(), log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield registry
        finally:
            server.should_exit = True
            thread.join()
