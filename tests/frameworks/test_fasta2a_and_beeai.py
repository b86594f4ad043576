"""Agents of fasta2a and BeeAI behind ``protect``, called by their own clients. Their applications make the cards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import httpx
import pytest

from tests.frameworks.parties import FOLDER, Parties, challenged_resource, parties
from tests.servers.environments import answer_of, python_of
from tests.servers.serving import SERVERS, free_port, serving

ENVIRONMENT: Final = "frameworks-2026.11"
SCOPES: Final = {"fasta2a": "sums", "BeeAI": "echoes"}
ANSWERS: Final = {"fasta2a": "four", "BeeAI": "heard 2 + 2"}
CALLERS: Final = ("key", "token", "nothing", "bad key", "key for the other agent", "token for the other agent")


def other(framework: str) -> str:
    return next(each for each in SCOPES if each != framework)


class Seen(NamedTuple):
    origins: dict[str, str]
    of: Parties
    outcomes: dict[tuple[str, str], dict[str, Any]]
    """What came of the calls of each framework's own client, by framework and caller."""


def command(framework: str, port: int) -> list[str]:
    if framework == "BeeAI":  # it serves itself
        return [str(python_of(ENVIRONMENT)), "beeai_agent.py"]
    return [str(python_of(ENVIRONMENT)), "-m", *SERVERS["uvicorn-h11"]("fasta2a_agent:app", port)]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    ports = {framework: free_port() for framework in SCOPES}
    origins = {framework: f"http://127.0.0.1:{port}" for framework, port in ports.items()}
    with parties(tmp_path_factory.mktemp("parties")) as of, ExitStack() as servers:
        for framework, origin in origins.items():
            servers.enter_context(
                serving(command(framework, ports[framework]), origin, of.settings(ORIGIN=origin), FOLDER)
            )
        cases = {}
        for framework, origin in origins.items():
            key, others = of.key(SCOPES[framework]), of.key(SCOPES[other(framework)])
            good = of.issuer.token(audience=origin, scope=SCOPES[framework])
            wrong = of.issuer.token(audience=origins[other(framework)], scope=SCOPES[framework])
            headers = [{"X-API-Key": key}, {"Authorization": f"Bearer {good}"}, {}, {"X-API-Key": "bad"}]
            headers += [{"X-API-Key": others}, {"Authorization": f"Bearer {wrong}"}]
            callers: dict[str, dict[str, Any]] = {
                caller: {"headers": sent} for caller, sent in zip(CALLERS, headers, strict=True)
            }
            callers["verifying"] = {"keys": of.keys, "key": key}
            for caller, case in callers.items():
                cases[framework, caller] = {
                    "program": framework,
                    "url": origin,
                    "fetch_card": framework == "BeeAI",
                    **case,
                }
        fetching = {"program": "fasta2a", "url": origins["fasta2a"], "fetch_card": True}
        cases["fasta2a", "fetching"] = {**fetching, "headers": {"X-API-Key": of.key("sums")}}
        questions = [*cases.values()]
        answers = answer_of(
            ENVIRONMENT, str(FOLDER / "own_clients.py"), questions, **of.settings(BEEAI_LOG_LEVEL="ERROR")
        )
        yield Seen(origins, of, dict(zip(cases, answers, strict=True)))


frameworks = pytest.mark.parametrize("framework", SCOPES)


@frameworks
@pytest.mark.parametrize("caller", ["key", "token", "verifying"])
def test_a_client_with_a_credential_is_answered(seen: Seen, framework: str, caller: str) -> None:
    outcome = seen.outcomes[framework, caller]
    assert outcome.get("answer") == ANSWERS[framework], outcome
    assert ["POST", "/", 200] in outcome["requests"]


@frameworks
@pytest.mark.parametrize(
    ("caller", "status"),
    [("nothing", 401), ("bad key", 401), ("key for the other agent", 403), ("token for the other agent", 401)],
)
def test_other_clients_are_rejected(seen: Seen, framework: str, caller: str, status: int) -> None:
    outcome = seen.outcomes[framework, caller]
    assert outcome["requests"] == [["POST", "/", status]]
    assert str(status) in " ".join(outcome["errors"])


def test_fasta2a_does_not_read_the_requirements_of_cards_of_1_0(seen: Seen) -> None:
    # Its own cards have {"schemes": {"key": []}}. When this fails, its client can fetch our cards.
    outcome = seen.outcomes["fasta2a", "fetching"]
    assert outcome["requests"] == []
    assert "securityRequirements.0.schemes.key" in outcome["errors"][0]
    assert "Input should be a valid list" in outcome["errors"][0]


@frameworks
def test_the_card_is_signed_and_says_what_is_enforced(seen: Seen, framework: str) -> None:
    card = seen.of.fetch(seen.origins[framework]).card
    scope = SCOPES[framework]
    assert card["securitySchemes"].keys() == {"key", "login"}
    if framework == "BeeAI":
        assert (card["name"], card["url"], card["protocolVersion"]) == ("echo", seen.origins["BeeAI"], "0.3.0")
        assert card["security"] == [{"key": [scope]}, {"login": [scope]}]
    else:
        assert (card["name"], card["supportedInterfaces"][0]["url"]) == ("adder", seen.origins["fasta2a"])
        assert card["securityRequirements"] == [{"schemes": {name: {"list": [scope]}}} for name in ("key", "login")]


@frameworks
def test_the_metadata_that_a_challenge_names_is_there(seen: Seen, framework: str) -> None:
    assert challenged_resource(f"{seen.origins[framework]}/") == seen.origins[framework]


def test_fasta2as_own_pages_are_for_callers(seen: Seen) -> None:
    url, key = f"{seen.origins['fasta2a']}/docs", seen.of.key("sums")
    statuses = [httpx.get(url, headers=headers, trust_env=False).status_code for headers in ({}, {"X-API-Key": key})]
    assert statuses == [401, 200]


def test_beeais_health_is_open_and_says_that_its_lifespan_runs(seen: Seen) -> None:
    response = httpx.get(f"{seen.origins['BeeAI']}/health", trust_env=False)
    assert (response.status_code, response.text) == (200, "ok")
