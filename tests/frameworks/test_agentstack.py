"""An agent of agentstack behind ``protect``: two interfaces, one of them mounted with a card of its own.

Its calls are those of the a2a-sdk 0.3.24 that it comes with, and as streams: without one, this server and that SDK give
no answer before Python 3.13, protected or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest

from tests.frameworks.parties import FOLDER, Parties, challenged_resource, parties
from tests.servers.environments import answer_of, python_of
from tests.servers.serving import SERVERS, free_port, serving

ENVIRONMENT: Final = "agentstack-0.7.1"
PATHS: Final = {"JSONRPC": "/jsonrpc/", "HTTP+JSON": "/v1/message:stream"}
GOOD: Final = ("key", "token")
BAD: Final = {"nothing": 401, "bad key": 401, "key for another agent": 403, "token for another agent": 401}


class Seen(NamedTuple):
    origin: str
    of: Parties
    outcomes: dict[tuple[str, str], dict[str, Any]]
    """What came of the calls of the SDK's client, by binding and caller."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    command = [str(python_of(ENVIRONMENT)), "-m", *SERVERS["uvicorn-h11"]("agentstack_agent:app", port)]
    with parties(tmp_path_factory.mktemp("parties")) as of:
        good, wrong = (of.issuer.token(audience=url, scope="echoes") for url in (origin, "https://other.example"))
        keys = {"key": of.key("echoes"), "bad key": "bad", "key for another agent": of.key("sums")}
        credentials: dict[str, tuple[dict[str, str], dict[str, str]]] = {
            **{caller: ({"key": key}, {"X-API-Key": key}) for caller, key in keys.items()},
            "token": ({"login": good}, {"Authorization": f"Bearer {good}"}),
            "token for another agent": ({"login": wrong}, {"Authorization": f"Bearer {wrong}"}),
            "nothing": ({}, {}),
        }
        cases = {
            (binding, caller): {
                "url": origin,
                "binding": binding,
                "streaming": True,
                "text": "hi",
                "credentials": of_schemes,
                "headers": headers,
            }
            for binding in PATHS
            for caller, (of_schemes, headers) in credentials.items()
        }
        with serving(command, origin, of.settings(ORIGIN=origin), FOLDER):
            answers = answer_of(ENVIRONMENT, "sdk_client_0_3.py", [*cases.values()])
            yield Seen(origin, of, dict(zip(cases, answers, strict=True)))


bindings = pytest.mark.parametrize("binding", PATHS)


@bindings
@pytest.mark.parametrize("caller", GOOD)
def test_callers_with_a_credential_are_answered(seen: Seen, binding: str, caller: str) -> None:
    outcome = seen.outcomes[binding, caller]
    assert (outcome["error"], outcome["answer"]) == (None, "heard hi")
    assert (outcome["events"][0], outcome["events"][-1]) == ("submitted", "completed")


@bindings
@pytest.mark.parametrize("caller", BAD)
def test_other_callers_are_rejected(seen: Seen, binding: str, caller: str) -> None:
    outcome = seen.outcomes[binding, caller]
    assert (outcome["statuses"], outcome["events"]) == ([BAD[caller]], [])
    assert str(BAD[caller]) in outcome["error"]


@pytest.mark.parametrize("path", ["", "/jsonrpc/.well-known/agent-card.json", "/jsonrpc/.well-known/agent.json"])
def test_the_card_is_signed_and_says_what_is_enforced_wherever_it_is(seen: Seen, path: str) -> None:
    card = seen.of.fetch(f"{seen.origin}{path}").card
    assert (card["name"], card["url"]) == ("echo", f"{seen.origin}/jsonrpc/")
    assert card["security"] == [{"key": ["echoes"]}, {"login": ["echoes"]}]


@bindings
def test_the_metadata_that_a_challenge_names_is_there(seen: Seen, binding: str) -> None:
    assert challenged_resource(f"{seen.origin}{PATHS[binding]}") == seen.origin
