"""Asks three agents in turn, each with the same key, and writes a document out of what they answer.

Start all of it, where ``a2a-trust[server]``, ``fastapi``, ``uvicorn`` and ``httpx`` are installed::

    python examples/writers/orchestrator.py

It makes a store of keys and a key for itself, starts the three agents, has them write, revokes its key, and is refused.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

HERE = Path(__file__).resolve().parent
WRITERS = ("outline", "document", "summary")
REVOCATION_SECONDS = 2.0  # ApiKeyVerifier(refresh=…)
SIGN = Path(sys.executable).with_name("a2a-sign")


class Orchestrator:
    """Somebody with one key, who knows where the writers are."""

    def __init__(self, urls: Mapping[str, str], key: str) -> None:
        self._urls = urls
        self._http = httpx.Client(headers={"X-API-Key": key}, timeout=10, trust_env=False)

    def write(self, topic: str) -> dict[str, str]:
        """What each writer made of what the one before it had made; httpx.HTTPStatusError when one refuses."""
        written: dict[str, str] = {}
        text = topic
        for name in WRITERS:
            answer = self.ask(name, text).raise_for_status().json()
            text = written[name] = answer["artifacts"][0]["parts"][0]["text"]
        return written

    def ask(self, name: str, text: str) -> httpx.Response:
        request = {"id": name, "message": {"role": "user", "parts": [{"type": "text", "text": text}]}}
        return self._http.post(f"{self._urls[name]}/tasks/send", json=request)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        store = Path(folder) / "keys.db"
        made = api_key("create", "--store", str(store), "--owner", "orchestrator")
        urls = {name: stack.enter_context(started(name, store)) for name in WRITERS}
        orchestrator = Orchestrator(urls, made["key"])
        for name, text in orchestrator.write("agents need identities").items():
            print(f"== {name}\n{text}\n")
        api_key("revoke", "--store", str(store), made["id"])
        time.sleep(REVOCATION_SECONDS)
        answers = {name: orchestrator.ask(name, "one more").status_code for name in WRITERS}
    print(f"{REVOCATION_SECONDS:.0f} seconds after its key is revoked, the orchestrator is answered: {answers}")
    return 0 if set(answers.values()) == {401} else 1


def api_key(action: str, *arguments: str) -> dict[str, Any]:
    """What an operator does with keys, by the command that operators have; its report."""
    done = subprocess.run([SIGN, "api-key", action, "--json", *arguments], stdout=subprocess.PIPE, check=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@contextmanager
def started(name: str, store: Path) -> Iterator[str]:
    """The writer runs while the block does; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(HERE), "--log-level", "warning", "--port", str(port)]
    settings = {**os.environ, "WRITER": name, "WRITER_URL": url, "API_KEYS": str(store)}
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
