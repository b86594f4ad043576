"""The agent of a page in docs/frameworks, called by the framework's own client, and impostors of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

from tests.frameworks.impostors import impostors
from tests.frameworks.parties import FOLDER, Parties, callers, parties
from tests.servers.environments import answer_of, python_of
from tests.servers.serving import SERVERS, free_port, serving

__all__ = ["GOOD", "Case", "Page", "page_of", "post"]

GOOD: Final = {"key": "ann@api-keys", "token": "ann@{issuer}"}
"""Callers with a good credential, and who they are."""


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
    """What the impostor of a case got."""

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
        stack.enter_context(serving(command, url, of.settings(AGENT_URL=url), folder))
        cases, got = _cases(of, url), {}
        cases |= {Case(by): {**cases[Case("key")], **case} for by, case in more.items()}
        for by in ("page", "key", *more):
            for at, impostor in stack.enter_context(impostors(url)).items():
                cases[Case(by, at)] = {**cases[Case(by)], "url": impostor.url}
                got[Case(by, at)] = impostor.stolen
        settings = of.settings(FOLDER=str(folder))
        answers = answer_of(environment, str(FOLDER / f"{client}.py"), [*cases.values()], **settings)
        yield Page(url, of, dict(zip(cases, answers, strict=True)), got)


def _cases(of: Parties, url: str) -> dict[Case, dict[str, Any]]:
    known = callers(of, url)
    key = known.pop("verifying")["key"]
    cases = {
        Case(by, streaming=streaming): {**case, "streaming": streaming}
        for by, case in known.items()
        for streaming in (False, True)
    }
    by_page = {Case("page"): {"url": url, "key": key}, Case("page with a bad key"): {"url": url, "key": "bad"}}
    return cases | by_page


def post(url: str, key: str, body: dict[str, Any]) -> dict[str, Any]:
    """The answer to a call of JSON-RPC, or the first event of a stream."""
    headers = {"X-API-Key": key, "A2A-Version": "1.0"}  # servers of older versions do not read the latter
    response = httpx.post(url, json={"jsonrpc": "2.0", "id": "1", **body}, headers=headers, trust_env=False, timeout=60)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = json.loads(response.text.removeprefix("data: ").partition("\r\n\r\n")[0])
    return answer
