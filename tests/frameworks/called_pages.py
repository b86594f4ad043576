"""The agent of a page in docs/frameworks, called by the framework's own client, and impostors of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple

import httpx

from a2a_trust import Fetcher, FetchOptions, Origins, TrustedKey, TrustStore, VerifiedCard, generate_signer, sign_card
from a2a_trust.client import fetch_extended_card
from a2a_trust.keys import read_jwks
from tests.frameworks.parties import FOLDER, Parties, parties
from tests.servers.environments import answer_of, python_of
from tests.servers.serving import SERVERS, free_port, serving

__all__ = ["GOOD", "IMPOSTORS", "REJECTED", "UNCHANGED", "Case", "Page", "extended_card", "page_of", "post"]

GOOD: Final = {"key": "key:ann@api-keys", "token": "login:ann@{issuer}"}
"""Callers with a good credential, and who they are."""

IMPOSTORS: Final = ("another key", "changed copy")
"""Agents with the card of the good one and their own URL: signed by a key that is not trusted, or with the signatures
of the good one."""

UNCHANGED: Final = "unchanged copy"
"""An agent at another URL with the card of the good one. It is verified, but does not speak for that URL."""

REJECTED: Final = {"nothing": 401, "bad key": 401, "token for another agent": 401, "key without the scope": 403}
"""Callers without a good credential, and what they get."""

_CARDS: Final = ("/.well-known/agent-card.json", "/.well-known/agent.json", "/agent.json", "/a2a/agent.json")


class Case(NamedTuple):
    """A call: by the page's lines with a good key, or by the plain client with the headers of that caller."""

    by: str
    at: str = "agent"
    streaming: bool = False


class Page(NamedTuple):
    url: str
    of: Parties
    outcomes: dict[Case, dict[str, Any]]
    """What came of the calls of the framework's own client."""
    credentials: dict[Case, list[str]]
    """What API keys the impostor of a case got."""

    def name_of(self, caller: str) -> str:
        return GOOD[caller].format(issuer=self.of.issuer.url)

    def errors(self, by: str, at: str = "agent", *, streaming: bool = False) -> str:
        """What went wrong in that case."""
        outcome = self.outcomes[Case(by, at, streaming)]
        assert "errors" in outcome, outcome
        return "\n".join(outcome["errors"])


@contextmanager
def page_of(folder: Path, environment: str, agent: str, client: str, **more: dict[str, Any]) -> Iterator[Page]:
    """The agent serves while the block runs, and the client, a program of this folder, has run all cases.

    ``more`` are cases with a good key, by name, and what the client has to know of them.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(python_of(environment)), "-m", *SERVERS["uvicorn-h11"](f"tests.frameworks.{agent}:app", port)]
    with parties(folder) as of, ExitStack() as stack:
        _trust(folder, of)
        stack.enter_context(serving(command, url, of.settings(AGENT_URL=url), folder))
        good = httpx.get(f"{url}/.well-known/agent-card.json", trust_env=False).json()
        cases, got = _cases(of, url), {}
        cases |= {Case(by): {**cases[Case("key")], **case} for by, case in more.items()}
        for case in [Case(by, at) for by in ("page", "key", *more) for at in (*IMPOSTORS, UNCHANGED)]:
            place, got[case] = stack.enter_context(_impostor(good, url, case.at))
            cases[case] = {**cases[Case(case.by)], "url": place}
        settings = of.settings(FOLDER=str(folder))
        answers = answer_of(environment, str(FOLDER / f"{client}.py"), [*cases.values()], **settings)
        yield Page(url, of, dict(zip(cases, answers, strict=True)), got)


def _trust(folder: Path, of: Parties) -> None:
    (folder / "agents.jwks.json").write_text(json.dumps(of.keys), encoding="utf-8")
    (folder / "trust.toml").write_text(
        'version = 1\n[[trust]]\norigins = ["127.0.0.1"]\nkeys = "agents.jwks.json"\n', encoding="utf-8"
    )


def _cases(of: Parties, url: str) -> dict[Case, dict[str, Any]]:
    key = of.key("read")
    callers = {
        "key": {"X-API-Key": key},
        "token": {"Authorization": f"Bearer {of.issuer.token(audience=url)}"},
        "nothing": {},
        "bad key": {"X-API-Key": "bad"},
        "token for another agent": {"Authorization": f"Bearer {of.issuer.token(audience='https://other.example')}"},
        "key without the scope": {"X-API-Key": of.key("write")},
    }
    cases: dict[Case, dict[str, Any]] = {
        Case(by, streaming=streaming): {"url": url, "headers": headers, "streaming": streaming}
        for by, headers in callers.items()
        for streaming in (False, True)
    }
    by_page = {Case("page"): {"url": url, "key": key}, Case("page with a bad key"): {"url": url, "key": "bad"}}
    return cases | by_page


@contextmanager
def _impostor(good: dict[str, Any], url: str, kind: str) -> Iterator[tuple[str, list[str]]]:
    """Where the impostor is, and the API keys that it gets."""
    keys: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(card if self.path in _CARDS else None)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            self._answer(b"{}")

        def _answer(self, body: bytes | None) -> None:
            keys.extend(self.headers.get_all("X-API-Key", []))
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        place = f"http://127.0.0.1:{server.server_address[1]}"
        own = good if kind == UNCHANGED else json.loads(json.dumps(good).replace(url, place))
        if kind == "another key":
            del own["signatures"]
            own = sign_card(own, generate_signer("ES256")).card
        card = json.dumps(own).encode()
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield place, keys
        finally:
            server.shutdown()
            thread.join()


def extended_card(page: Page, key: str) -> VerifiedCard:
    """The extended card of the agent, for a caller with that key."""
    keys = read_jwks(json.dumps(page.of.keys).encode()).keys
    trust = TrustStore(TrustedKey(key=each, origins=Origins("127.0.0.1")) for each in keys)
    here = FetchOptions(fetcher=Fetcher(private_origins=[page.url]))
    return fetch_extended_card(page.of.fetch(page.url), trust, credentials={"X-API-Key": key}, options=here)


def post(url: str, key: str, body: dict[str, Any]) -> dict[str, Any]:
    """The answer to a call of JSON-RPC, or the first event of a stream."""
    headers = {"X-API-Key": key, "A2A-Version": "1.0"}  # servers of older versions do not read the latter
    response = httpx.post(url, json={"jsonrpc": "2.0", "id": "1", **body}, headers=headers, trust_env=False)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = json.loads(response.text.removeprefix("data: ").partition("\r\n\r\n")[0])
    return answer
