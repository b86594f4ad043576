"""An agent of fasta2a behind ``protect``, called by its own client. Its application makes the card."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import httpx
import pytest

from tests.frameworks.parties import BAD, FOLDER, Parties, callers, challenged_resource, parties
from tests.servers.environments import answer_of, python_of
from tests.servers.serving import SERVERS, free_port, serving

ENVIRONMENT: Final = "frameworks-2026.11"


class Seen(NamedTuple):
    origin: str
    of: Parties
    outcomes: dict[str, dict[str, Any]]
    """What came of the calls of fasta2a's own client, by caller."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    command = [str(python_of(ENVIRONMENT)), "-m", *SERVERS["uvicorn-h11"]("fasta2a_agent:app", port)]
    with parties(tmp_path_factory.mktemp("parties")) as of:
        cases = {caller: {**case, "fetch_card": False} for caller, case in callers(of, origin).items()}
        cases["fetching"] = {**cases["key"], "fetch_card": True}
        with serving(command, origin, of.settings(ORIGIN=origin), FOLDER):
            answers = answer_of(ENVIRONMENT, str(FOLDER / "fasta2a_client.py"), [*cases.values()], **of.settings())
            yield Seen(origin, of, dict(zip(cases, answers, strict=True)))


@pytest.mark.parametrize("caller", ["key", "token", "verifying"])
def test_a_client_with_a_credential_is_answered(seen: Seen, caller: str) -> None:
    outcome = seen.outcomes[caller]
    assert outcome.get("answer") == "four", outcome
    assert ["POST", "/", 200] in outcome["requests"]


@pytest.mark.parametrize("caller", BAD)
def test_other_clients_are_rejected(seen: Seen, caller: str) -> None:
    outcome = seen.outcomes[caller]
    assert outcome["requests"] == [["POST", "/", BAD[caller]]]
    assert str(BAD[caller]) in " ".join(outcome["errors"])


def test_fasta2a_does_not_read_the_requirements_of_cards_of_1_0(seen: Seen) -> None:
    # Its own cards have {"schemes": {"key": []}}. When this fails, its client can fetch our cards.
    outcome = seen.outcomes["fetching"]
    assert outcome["requests"] == []
    assert "securityRequirements.0.schemes.key" in outcome["errors"][0]
    assert "Input should be a valid list" in outcome["errors"][0]


def test_the_card_is_signed_and_says_what_is_enforced(seen: Seen) -> None:
    card = seen.of.fetch(seen.origin).card
    assert card["securitySchemes"].keys() == {"key", "login"}
    assert (card["name"], card["supportedInterfaces"][0]["url"]) == ("adder", seen.origin)
    assert card["securityRequirements"] == [{"schemes": {name: {"list": ["read"]}}} for name in ("key", "login")]


def test_the_metadata_that_a_challenge_names_is_there(seen: Seen) -> None:
    assert challenged_resource(f"{seen.origin}/") == seen.origin


def test_fasta2as_own_pages_are_for_callers(seen: Seen) -> None:
    url, key = f"{seen.origin}/docs", seen.of.key("read")
    statuses = [httpx.get(url, headers=headers, trust_env=False).status_code for headers in ({}, {"X-API-Key": key})]
    assert statuses == [401, 200]
