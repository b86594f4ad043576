"""The agents of this folder under a real server each, and who calls them."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from a2a_trust import generate_signer
from a2a_trust.keys.jwk import read_jwks
from a2a_trust.keys.ring_file import save_key_ring
from a2a_trust.keys.rotation import KeyRing
from a2a_trust.keys.trust.origins import Origins
from a2a_trust.keys.trust.store import TrustedKey, TrustStore
from a2a_trust.signing.verify import verify_card
from tests.servers.environments import python_of
from tests.servers.serving import SERVERS, free_port, serving
from tests.serving_cards.agent_card import JSON_RPC, REST

SCOPES = {"ann": ["read", "extended"], "ben": ["read", "extended"], "eve": ["read"]}
AGENTS = ("sdk", "starlette", "fastapi")


class Agents(NamedTuple):
    """``origins`` by the agents' names, ``keys`` by their owners. eve may not read the extended card."""

    origins: dict[str, str]
    keys: dict[str, str]
    ring: Path

    def credential(self, owner: str) -> dict[str, str]:
        return {"X-API-Key": self.keys[owner]}


@contextmanager
def agents_serving(folder: Path, **prefixes: str) -> Iterator[Agents]:
    """Agents by their names in ``agents``, each named by its card below a prefix that no request has.

    One whose name ends in ``_root`` is told of the prefix, and runs under the other HTTP parser.
    """
    ring = folder / "ring"
    save_key_ring(ring, KeyRing.begin(generate_signer("ES256"), time.time()))
    keys = {owner: secrets.token_hex(24) for owner in SCOPES}
    python, ports = python_of("server-1.3.0"), {name: free_port() for name in prefixes}
    origins = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}

    def start(name: str) -> None:
        settings_url = origins[name] + prefixes[name]
        settings = {
            "url": settings_url,
            "ring": str(ring),
            "keys": {owner: (key, SCOPES[owner]) for owner, key in keys.items()},
            "max_age": 1,
            # A proxy that says nothing leaves it to the agent's configuration.
            "served_at": {} if name.endswith("_root") else {settings_url + path: path for path in (JSON_RPC, REST)},
        }
        app, _, how = name.partition("_")
        server = SERVERS["uvicorn-httptools" if how == "root" else "uvicorn-h11"](f"agents:{app}", ports[name])
        command = [str(python), "-m", *server, *(["--root-path", prefixes[name]] if how == "root" else [])]
        stack.enter_context(serving(command, origins[name], {"AGENT": json.dumps(settings)}, Path(__file__).parent))

    with ExitStack() as stack:
        with ThreadPoolExecutor() as pool:
            list(pool.map(start, prefixes))
        yield Agents(origins, keys, ring)


def verified(card: bytes, jwks: bytes, origin: str) -> dict[str, Any]:
    """The card, as far as a key of that key set proves it; a TrustError when none does."""
    trust = TrustStore(TrustedKey(key=key, origins=Origins("127.0.0.1")) for key in read_jwks(jwks).keys)
    return verify_card(card, trust, origin=origin, now=time.time()).card


@pytest.fixture(scope="package")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    with agents_serving(tmp_path_factory.mktemp("agents"), **dict.fromkeys(AGENTS, "")) as running:
        yield running
