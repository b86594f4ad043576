"""The main jobs from nothing: sign a real card, verify it, and see every change refused; then protect an agent.

Runs the command ``a2a-sign`` and real servers as a person or a pipeline would, in a temporary folder.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

SAMPLE = Path(__file__).with_name("georoute-agent-card.json")
AGENT = Path(__file__).with_name("tasks_agent")
COMMAND = Path(sys.executable).with_name("a2a-sign")


class Demo:
    """One telling of the story; ``surprises`` counts what did not end as announced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.surprises = 0

    def say(self, text: str) -> None:
        print(f"\n{text}")

    def run(self, *arguments: str, exit_code: int) -> str:
        """Run a2a-sign and show what it says; note when it ends otherwise than with ``exit_code``. Its output."""
        print(f"   $ a2a-sign {' '.join(arguments)}")
        done = subprocess.run([COMMAND, *arguments], cwd=self.folder, capture_output=True, text=True, check=False)
        for line in (done.stdout + done.stderr).splitlines():
            print(f"   {line}")
        if done.returncode != exit_code:
            self.surprises += 1
            print(f"   !! exit code {done.returncode}, expected {exit_code}")
        return done.stdout

    def read(self, name: str) -> dict[str, Any]:
        card: dict[str, Any] = json.loads((self.folder / name).read_text(encoding="utf-8"))
        return card

    def write(self, name: str, card: dict[str, Any]) -> None:
        (self.folder / name).write_text(json.dumps(card, indent=2, ensure_ascii=False), encoding="utf-8")

    def verify(self, name: str, exit_code: int) -> None:
        origin = "https://georoute-agent.example.com"
        self.run("verify", name, "--jwks", "key.jwks.json", "--origin", origin, exit_code=exit_code)

    def tell(self) -> None:
        self.say("1. A signing key, and the key set to publish.")
        self.run("keygen", "-o", "key.pem", exit_code=0)

        self.say("2. The sample card of the A2A specification (8.5): signed in place, then verified for its host.")
        shutil.copy(SAMPLE, self.folder / "card.json")
        self.run("card.json", "--key", "key.pem", exit_code=0)
        self.verify("card.json", exit_code=0)

        self.say("3. One byte of it changed on the way: refused.")
        text = (self.folder / "card.json").read_text(encoding="utf-8")
        (self.folder / "changed.json").write_text(text.replace("a2a/v1", "a2a/v2", 1), encoding="utf-8")
        self.verify("changed.json", exit_code=1)

        self.say(
            "4. The same agent asks for a client certificate too. That requirement has no scopes, so the form that\n"
            "   other SDKs verify leaves it out. a2a-sign signs the full card only, so those SDKs reject it."
        )
        card = self.read("card.json")
        card["securitySchemes"]["certificate"] = {"mtlsSecurityScheme": {}}
        card["securityRequirements"][0]["schemes"]["certificate"] = {}
        self.write("strict.json", card)
        self.run("strict.json", "--key", "key.pem", exit_code=0)
        self.verify("strict.json", exit_code=0)

        self.say("5. The requirement stripped from the signed card: refused.")
        stripped = self.read("strict.json")
        del stripped["securitySchemes"]["certificate"]
        del stripped["securityRequirements"][0]["schemes"]["certificate"]
        self.write("stripped.json", stripped)
        self.verify("stripped.json", exit_code=1)

        self.say(
            "6. With --companion those SDKs accept the card, also after the requirement was stripped. Here a\n"
            "   companion never counts. The full signature deleted, so that only the companion is left: refused."
        )
        self.run("strict.json", "--key", "key.pem", "--companion", exit_code=0)
        stripped["signatures"] = self.read("strict.json")["signatures"][1:]
        self.write("companion.json", stripped)
        self.verify("companion.json", exit_code=4)

        self.say("7. All signatures deleted: refused.")
        del stripped["signatures"]
        self.write("unsigned.json", stripped)
        self.verify("unsigned.json", exit_code=3)

    def tell_of_an_agent(self) -> None:
        self.say("8. An agent whose card has always said that callers need an API key. It answers anybody:")
        with self.serving("agent:app") as url:
            self.call(url, "/tasks/send", status=200, says="HELLO")

        self.say(
            "9. The same agent behind one line, app = protect(app, card=…, verifiers=…), and a key for one caller."
        )
        key = self.run("api-key", "create", "--store", "keys.db", "--owner", "you", exit_code=0).split("\n")[0]
        with self.serving("protected:app") as url:
            self.call(url, "/tasks/send", status=401, says="UNAUTHENTICATED")
            self.call(url, "/tasks/send", key="a2a_guessed", status=401, says="UNAUTHENTICATED")
            self.call(url, "/tasks/send", key=key, status=200, says="HELLO")
            self.call(url, "/.well-known/agent.json", status=200, says="apiKey")
            self.say("10. Its events still come one by one:")
            self.call(url, "/tasks/sendSubscribe", key=key, status=200, says="HELLO", seconds=0.5)

    def call(self, url: str, path: str, *, key: str = "", status: int, says: str, seconds: float = 0) -> None:
        """Ask the agent and show its answer as it comes; note when the status is another, when the answer does not say
        ``says``, and when less than ``seconds`` lie between its beginning and its end."""
        method = "POST" if path.startswith("/tasks/") else "GET"
        body = {"id": "1", "message": {"role": "user", "parts": [{"type": "text", "text": "hello"}]}}
        headers = {"X-API-Key": key} if key else {}
        whose = "no key" if not key else "a guessed key" if key == "a2a_guessed" else "a good key"
        text, moments = "", []
        sent = body if method == "POST" else None
        with httpx.stream(method, url + path, json=sent, headers=headers, timeout=30, trust_env=False) as answer:
            print(f"   {method} {path} with {whose}: {answer.status_code}")
            for line in filter(None, answer.iter_lines()):
                print(f"      {line[:110]}{'…' if len(line) > 110 else ''}", flush=True)
                text += line
                moments.append(time.monotonic())
        if answer.status_code != status or says not in text:
            self.surprises += 1
            print(f"   !! expected {status} and {says!r}")
        elif moments[-1] - moments[0] < seconds:
            self.surprises += 1
            print("   !! the events came all at once")

    @contextmanager
    def serving(self, app: str) -> Iterator[str]:
        """A real server with an application of ``tasks_agent``, while the block runs; its URL."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        command = [sys.executable, "-m", "uvicorn", "--app-dir", str(AGENT), "--port", str(port), app]
        settings = {**os.environ, "API_KEYS": str(self.folder / "keys.db")}
        with (self.folder / "server.log").open("w") as log:
            server = subprocess.Popen(command, env=settings, stdout=log, stderr=log)
            try:
                wait_for(port, server)
                yield f"http://127.0.0.1:{port}"
            finally:
                server.terminate()
                server.wait(10)


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    """Return when the server listens."""
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if server.poll() is not None:
                raise RuntimeError(f"the server ended with exit code {server.returncode}") from None
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the server does not listen after 30 seconds")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        demo = Demo(Path(folder))
        demo.tell()
        demo.tell_of_an_agent()
    print("\nEverything ended as announced." if not demo.surprises else f"\n{demo.surprises} surprises.")
    return 1 if demo.surprises else 0


if __name__ == "__main__":
    sys.exit(main())
