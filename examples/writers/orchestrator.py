"""Asks three agents in turn, with the key of the user that it acts for, and writes a document out of their answers.

Start all of it, where ``a2a-trust[server,client]``, ``fastapi`` and ``uvicorn`` are installed::

    python examples/writers/orchestrator.py

It makes a key for the cards and a key for a user, starts the three agents, has them write, with a synchronous and with
an asynchronous client, and revokes the key of the user. The agents then reject it.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import httpx

from a2a_trust import CardAuth, Fetcher, FetchOptions, TrustFile, VerifyingTransport, fetch_card, verifying_client
from a2a_trust.auth import InHeader
from a2a_trust.client import ApiKey, CredentialsRejectedError

HERE = Path(__file__).resolve().parent
WRITERS = ("outline", "document", "summary")
TOPIC = "agents need identities"
REVOCATION_SECONDS = 2.0  # ApiKeyVerifier(refresh=…)
SIGN = Path(sys.executable).with_name("a2a-sign")

user_key: ContextVar[str] = ContextVar("user_key")
"""The key of the user whose request is answered now."""


class Orchestrator:
    """Knows where the writers are, and whose keys sign their cards. It has no key of its own."""

    def __init__(self, urls: Mapping[str, str], trust: TrustFile) -> None:
        self._urls, self._trust = urls, trust
        # A card of 0.1 does not say where the key goes; the operators of the writers do.
        self._keys = {
            name: {"apiKey": ApiKey(user_key.get, origins=[url], place=InHeader("X-API-Key"))}
            for name, url in urls.items()
        }

    def write(self, topic: str) -> dict[str, str]:
        """What each writer made of the text of the one before; CredentialsRejectedError: one rejects the user's key."""
        written: dict[str, str] = {}
        text = topic
        for name, url in self._urls.items():
            card = fetch_card(url, self._trust, FetchOptions(fetcher=Fetcher(private_origins=[url])))
            transport = VerifyingTransport(httpx.HTTPTransport(), self._trust)
            with httpx.Client(transport=transport, auth=CardAuth(card, self._keys[name], trust=self._trust)) as http:
                text = written[name] = text_in(http.post(f"{url}/tasks/send", json=request_for(text)))
        return written

    async def async_write(self, topic: str) -> dict[str, str]:
        """The same on an event loop: one line for an agent."""
        written: dict[str, str] = {}
        text = topic
        for name, url in self._urls.items():
            async with verifying_client(url, trust=self._trust, credentials=self._keys[name]) as http:
                text = written[name] = text_in(await http.post(f"{url}/tasks/send", json=request_for(text)))
        return written


def request_for(text: str) -> dict[str, Any]:
    return {"id": "task", "message": {"role": "user", "parts": [{"type": "text", "text": text}]}}


def text_in(answer: httpx.Response) -> str:
    text: str = answer.raise_for_status().json()["artifacts"][0]["parts"][0]["text"]
    return text


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        store, card_key, trust = (Path(folder, name) for name in ("keys.db", "card.key", "trust.toml"))
        sign("keygen", "-o", str(card_key))
        sign("trust", "add", str(trust), "--origin", "127.0.0.1", "--jwks", str(card_key.with_name("card.jwks.json")))
        made = json.loads(sign("api-key", "create", "--json", "--store", str(store), "--owner", "ann"))
        urls = {name: stack.enter_context(started(name, store, card_key)) for name in WRITERS}
        orchestrator = Orchestrator(urls, TrustFile(trust))
        user_key.set(made["key"])
        written = orchestrator.write(TOPIC)
        for name, text in written.items():
            print(f"== {name}\n{text}\n")
        print(f"the asynchronous client gets the same: {asyncio.run(orchestrator.async_write(TOPIC)) == written}")
        sign("api-key", "revoke", "--store", str(store), made["id"])
        time.sleep(REVOCATION_SECONDS)
        try:
            orchestrator.write("one more")
        except CredentialsRejectedError as error:
            print(f"{REVOCATION_SECONDS:.0f} seconds after the user's key is revoked: {error.response.status_code}")
            return 0
    return 1


def sign(*arguments: str) -> str:
    """The output of the command that operators have for keys."""
    return subprocess.run([SIGN, *arguments], stdout=subprocess.PIPE, check=True, text=True).stdout


@contextmanager
def started(name: str, store: Path, card_key: Path) -> Iterator[str]:
    """The URL of the writer, which runs while the block does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(HERE), "--log-level", "warning", "--port", str(port)]
    settings = {**os.environ, "WRITER": name, "WRITER_URL": url, "API_KEYS": str(store), "CARD_KEY": str(card_key)}
    process = subprocess.Popen([*command, "serve:app"], env=settings)
    try:
        wait_for(f"{url}/.well-known/agent.json", process)
        yield url
    finally:
        process.terminate()
        process.wait(10)


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        try:
            httpx.get(url, trust_env=False)
        except httpx.TransportError:
            if process.poll() is not None:
                raise RuntimeError(f"{url}: the server ended before it answered") from None
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"{url}: no answer within 30 seconds")


if __name__ == "__main__":
    sys.exit(main())
