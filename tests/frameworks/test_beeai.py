"""docs/frameworks/beeai.md is true: its agent and its client run, and BeeAI's own client calls the agent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import httpx
import pytest

from tests.frameworks.guide import block_of
from tests.frameworks.impostors import KINDS, UNCHANGED, impostors
from tests.frameworks.page_programs import prints, run_client
from tests.frameworks.parties import BAD, FOLDER, Parties, callers, challenged_resource, parties
from tests.servers.environments import answer_of, python_of
from tests.servers.serving import SERVERS, free_port, serving

ENVIRONMENT: Final = "beeai-0.1.85"
PAGE: Final = "beeai"
ANN: Final = "ann@api-keys"


class Seen(NamedTuple):
    url: str
    of: Parties
    outcomes: dict[tuple[str, bool], dict[str, Any]]
    """What came of the calls of BeeAI's client, by caller, and whether it asked for a stream."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with parties(tmp_path_factory.mktemp("parties")) as of:
        (of.folder / "agent.py").write_text(block_of(PAGE, 0), encoding="utf-8")
        cases = {
            (caller, streaming): {**case, "streaming": streaming, "context": f"{caller} {streaming}"}
            for caller, case in callers(of, url).items()
            for streaming in (False, True)
        }
        command = [str(python_of(ENVIRONMENT)), "-m", *SERVERS["uvicorn-h11"]("agent:app", port)]
        with serving(command, url, of.settings(AGENT_URL=url), of.folder):
            yield Seen(url, of, dict(zip(cases, called(of, [*cases.values()]), strict=True)))


def called(of: Parties, cases: list[dict[str, Any]]) -> Any:
    """What came of the calls of BeeAI's own client."""
    script = str(FOLDER / "beeai_client.py")
    return answer_of(ENVIRONMENT, script, cases, **of.settings(BEEAI_LOG_LEVEL="ERROR"))


streams = pytest.mark.parametrize("streaming", [False, True])


@streams
@pytest.mark.parametrize(("caller", "name"), [("key", ANN), ("verifying", ANN), ("token", "ann@{issuer}")])
def test_callers_with_a_credential_are_answered_and_known(seen: Seen, caller: str, name: str, streaming: bool) -> None:
    outcome = seen.outcomes[caller, streaming]
    assert outcome.get("answer") == f"{name.format(issuer=seen.of.issuer.url)} said hi", outcome
    assert outcome["requests"][-2:] == [["POST", "/", 200]] * 2  # the extended card, and the message


@streams
@pytest.mark.parametrize("caller", BAD)
def test_other_callers_are_rejected(seen: Seen, caller: str, streaming: bool) -> None:
    outcome = seen.outcomes[caller, streaming]
    assert outcome["requests"] == [["POST", "/", BAD[caller]]]
    assert outcome["errors"][0].startswith("FrameworkError")
    assert f"Client error '{BAD[caller]} " in "".join(outcome["errors"][1:])


def test_the_card_is_signed_and_says_what_is_enforced(seen: Seen) -> None:
    card = seen.of.fetch(seen.url).card
    assert (card["name"], card["url"], card["protocolVersion"]) == ("ledger", seen.url, "0.3.0")
    assert card["security"] == [{"key": ["read"]}, {"login": ["read"]}]
    assert card["securitySchemes"].keys() == {"key", "login"}


def test_the_extended_card_is_signed_and_for_callers(seen: Seen) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "agent/getAuthenticatedExtendedCard"}
    assert httpx.post(seen.url, json=call, trust_env=False, timeout=60).status_code == 401
    extended = seen.of.fetch_extended(seen.url)
    assert extended.card["description"] == "Knows the caller, and says so."
    assert extended.card["security"] == [{"key": ["read"]}, {"login": ["read"]}]


def test_the_metadata_that_a_challenge_names_is_there(seen: Seen) -> None:
    assert challenged_resource(f"{seen.url}/") == seen.url


def test_a_conversation_belongs_to_its_caller(seen: Seen) -> None:
    keys = {owner: {"X-API-Key": seen.of.key("read", owner=owner)} for owner in ("ann", "bob")}
    case = {"url": seen.url, "streaming": False, "context": "one"}
    answers = called(seen.of, [{**case, "headers": keys[owner]} for owner in ("ann", "ann", "bob")])
    assert [each.get("answer") for each in answers] == [
        f"{ANN} said hi",
        f"{ANN} said hi, hi",
        "bob@api-keys said hi",
    ]


def test_the_client_of_the_page_is_answered(seen: Seen) -> None:
    done = run_client(ENVIRONMENT, PAGE, 1, seen.of, seen.url)
    assert (done.returncode, done.stdout.strip()) == (0, f"{ANN} said hello"), done.stderr
    assert prints(PAGE, done.stdout)


@pytest.mark.parametrize("kind", [*KINDS, UNCHANGED])
def test_the_client_of_the_page_sends_nothing_to_an_impostor(seen: Seen, kind: str) -> None:
    with impostors(seen.url) as found:
        done = run_client(ENVIRONMENT, PAGE, 1, seen.of, found[kind].url)
        assert done.returncode == 1
        assert KINDS.get(kind, "") in done.stderr
        assert (found[kind].stolen, found[kind].calls) == ([], [])


@pytest.mark.parametrize("kind", KINDS)
def test_beeai_itself_verifies_nothing(seen: Seen, kind: str) -> None:
    with impostors(seen.url) as found:
        known = callers(seen.of, found[kind].url)
        cases = [{**known[name], "streaming": False, "context": name} for name in ("verifying", "key")]
        verifying, _plain = called(seen.of, cases)
        assert "UnverifiedCardError" in "".join(verifying["errors"])
        assert KINDS[kind] in "".join(verifying["errors"])
        assert found[kind].stolen == [known["key"]["headers"]["X-API-Key"]]
        assert found[kind].calls == ["/"]
