"""An agent of Google's ADK behind ``protect``: its card, which does not exist before the application has started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import pytest

from tests.frameworks.parties import FOLDER, Parties, challenged_resource, parties
from tests.servers.environments import answer_of, python_of
from tests.servers.serving import SERVERS, free_port, serving

ENVIRONMENT: Final = "google-adk-2.13.0"
ANSWER: Final = "hello from greeter"


class SetUp(NamedTuple):
    """Where the agent is, and which function is around it."""

    path: str
    by: str


SET_UPS: Final = [SetUp("", "protect"), SetUp("/analysis", "protect"), SetUp("/analysis", "protect_agents")]


class Seen(NamedTuple):
    path: str
    url: str
    of: Parties
    outcomes: dict[str, dict[str, Any]]
    """What came of the calls of ADK's own client, by caller."""


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[SetUp, Seen]]:
    with parties(tmp_path_factory.mktemp("parties")) as of, ExitStack() as stack:
        urls: dict[SetUp, str] = {}
        for set_up in SET_UPS:
            port = free_port()
            origin = f"http://127.0.0.1:{port}"
            urls[set_up] = f"{origin}{set_up.path}"
            settings = of.settings(AGENT_URL=urls[set_up], BY=set_up.by)
            command = [str(python_of(ENVIRONMENT)), "-m", *SERVERS["uvicorn-h11"]("adk_agent:app", port)]
            stack.enter_context(serving(command, origin, settings, FOLDER))
        cases = {(set_up, name): case for set_up, url in urls.items() for name, case in callers(of, url).items()}
        answers = answer_of(ENVIRONMENT, str(FOLDER / "adk_client.py"), [*cases.values()], **of.settings())
        seen = {set_up: Seen(set_up.path, url, of, {}) for set_up, url in urls.items()}
        for (set_up, name), answer in zip(cases, answers, strict=True):
            seen[set_up].outcomes[name] = answer
        yield seen


def callers(of: Parties, url: str) -> dict[str, dict[str, Any]]:
    """Cases for ``adk_client``: everybody who calls the agent at that URL."""
    good = of.key("read")
    headers = {
        "key": {"X-API-Key": good},
        "token": {"Authorization": f"Bearer {of.issuer.token(audience=url)}"},
        "nothing": {},
        "unknown key": {"X-API-Key": good[:-1] + ("x" if good[-1] != "x" else "y")},
        "key without the scope": {"X-API-Key": of.key("other")},
        "token for another agent": {"Authorization": f"Bearer {of.issuer.token(audience='http://127.0.0.1:1')}"},
    }
    cases: dict[str, dict[str, Any]] = {name: {"url": url, "headers": each} for name, each in headers.items()}
    return {**cases, "verifying": {"url": url, "keys": of.keys, "key": good}}


@pytest.fixture(params=SET_UPS, ids=lambda each: f"{each.by} {each.path or '/'}")
def seen(request: pytest.FixtureRequest, agents: dict[SetUp, Seen]) -> Seen:
    return agents[request.param]


@pytest.mark.parametrize("caller", ["verifying", "key", "token"])
def test_callers_with_a_credential_are_answered(seen: Seen, caller: str) -> None:
    card, call = f"{seen.path}/.well-known/agent-card.json", seen.path or "/"
    outcome = seen.outcomes[caller]
    assert outcome.get("answer") == ANSWER, outcome
    *reads, sent = outcome["requests"]
    assert sent == ["POST", call, 200]
    assert reads in ([["GET", card, 200]], [["GET", card, 200]] * 2)  # a verifying client reads it for itself, too


@pytest.mark.parametrize(
    ("caller", "status"),
    [("nothing", 401), ("unknown key", 401), ("token for another agent", 401), ("key without the scope", 403)],
)
def test_other_callers_are_rejected(seen: Seen, caller: str, status: int) -> None:
    outcome = seen.outcomes[caller]
    assert outcome["requests"][-1] == ["POST", seen.path or "/", status]
    assert f"HTTP Error {status}" in outcome["error"]


def test_the_card_of_the_application_is_signed_and_says_what_is_enforced(seen: Seen) -> None:
    card = seen.of.fetch(seen.url).card
    assert card["name"] == "greeter"
    assert [each["url"] for each in card["supportedInterfaces"]] == [seen.url]
    assert card["securityRequirements"] == [{"schemes": {name: {"list": ["read"]}}} for name in ("key", "login")]
    assert card["securitySchemes"].keys() == {"key", "login"}


def test_the_metadata_that_a_challenge_names_is_there(seen: Seen) -> None:
    assert challenged_resource(seen.url) == seen.url
