"""Clients of four released SDKs fetch the public and the extended card of three agents, and call them.

Whoever can verify a signature of 1.0 verifies those of the merged card with the keys that the agent serves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from a2a_trust import generate_signer, publish_jwks
from a2a_trust.errors import TrustError
from tests.servers.environments import answer_of, answer_of_node
from tests.serving_cards.agent_card import EXTENDED, GREETING, public_card
from tests.serving_cards.conftest import AGENTS, Agents, verified
from tests.tables import walk

pytestmark = pytest.mark.real

HERE = Path(__file__).resolve().parent
PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")


class Speaker(NamedTuple):
    """One way in which one SDK speaks: ``version`` is that of the protocol."""

    sdk: str
    binding: str
    version: str


SPEAKERS = [
    *(Speaker("python-1.3.0", binding, version) for binding in ("JSONRPC", "HTTP+JSON") for version in ("1.0", "0.3")),
    Speaker("python-0.3.26", "JSONRPC", "0.3"),
    Speaker("python-0.3.26", "HTTP+JSON", "0.3"),
    Speaker("python-0.2.16", "JSONRPC", "0.2"),
    *(Speaker("js-1.3.0", binding, version) for binding in ("JSONRPC", "HTTP+JSON") for version in ("1.0", "0.3")),
]
SCRIPTS = {
    "python-1.3.0": "sdk_cards_1_3.py",
    "python-0.3.26": "sdk_cards_0_3.py",
    "python-0.2.16": "sdk_cards_0_2.py",
    "js-1.3.0": "sdk_cards_js.mjs",
}
VERIFYING = ("python-1.3.0", "js-1.3.0")


class Case(NamedTuple):
    agent: str
    speaker: Speaker
    path: str
    owner: str | None
    trusted: str = "served"


Seen = dict[Case, dict[str, Any]]


@pytest.fixture(scope="module")
def jwks(agents: Agents) -> dict[str, bytes]:
    """The key sets that the agents serve."""
    return {agent: httpx.get(f"{origin}/.well-known/jwks.json").content for agent, origin in agents.origins.items()}


@pytest.fixture(scope="module")
def seen(agents: Agents, jwks: Mapping[str, bytes]) -> Seen:
    """What every client saw in every case; one process of each SDK runs all of its cases."""
    owners = (None, "ann", "ben", "eve")
    cases = [
        Case(agent, speaker, path, owner)
        for agent in AGENTS
        for speaker in SPEAKERS
        for path in PATHS
        for owner in owners
    ]
    cases += [Case("sdk", speaker, PATHS[0], "ann", "stranger") for speaker in SPEAKERS if speaker.sdk in VERIFYING]
    served = {agent: json.loads(body)["keys"] for agent, body in jwks.items()}
    # A stranger's key under the kid of the agent's.
    stranger = publish_jwks([generate_signer("ES256", kid=served["sdk"][0]["kid"]).public_key])["keys"]

    def question(case: Case) -> dict[str, Any]:
        return {
            "url": agents.origins[case.agent],
            "path": case.path,
            "binding": case.speaker.binding,
            "version": case.speaker.version,
            "key": agents.keys[case.owner] if case.owner else None,
            "keys": served[case.agent] if case.trusted == "served" else stranger,
        }

    def answers(sdk: str) -> Seen:
        asked = [case for case in cases if case.speaker.sdk == sdk]
        questions, script = list(map(question, asked)), HERE / SCRIPTS[sdk]
        is_node = script.suffix == ".mjs"
        said = answer_of_node(sdk, script, questions) if is_node else answer_of(sdk, str(script), questions)
        return dict(zip(asked, said, strict=True))

    with ThreadPoolExecutor() as workers:
        return {case: answer for some in workers.map(answers, SCRIPTS) for case, answer in some.items()}


def extended_in(answer: dict[str, Any], speaker: Speaker) -> str:
    """The extended card as it came over the wire, byte for byte."""
    raw: str = answer["extended"]["raw"]
    return (
        raw.partition('"result":')[2].removesuffix("}") if speaker.binding == "JSONRPC" and '"result"' in raw else raw
    )


every_agent = pytest.mark.parametrize("agent", AGENTS)
every_speaker = pytest.mark.parametrize("speaker", SPEAKERS, ids=" ".join)
every_path = pytest.mark.parametrize("path", PATHS)
every_verifier = pytest.mark.parametrize("speaker", [one for one in SPEAKERS if one.sdk in VERIFYING], ids=" ".join)


@every_agent
@every_speaker
@every_path
@walk("owner", [None, "ann", "eve"])
def test_anybody_reads_the_public_card_and_it_is_verified(
    seen: Seen,
    agents: Agents,
    jwks: Mapping[str, bytes],
    agent: str,
    speaker: Speaker,
    path: str,
    owner: str | None,
) -> None:
    public = seen[Case(agent, speaker, path, owner)]["public"]
    assert (public["status"], public["seen"]) == (200, "Greets every caller that its card allows.")
    origin = agents.origins[agent]
    card = verified(public["raw"].encode(), jwks[agent], origin)
    assert card["supportedInterfaces"] == public_card(origin)["supportedInterfaces"]
    assert (card["url"], card["security"]) == (f"{origin}/a2a/jsonrpc", [{"key": ["read"]}])
    if speaker.sdk in VERIFYING:
        assert public["refused"] is None


@every_agent
@every_speaker
@every_path
def test_without_a_credential_the_extended_card_and_calls_are_refused(
    seen: Seen, agent: str, speaker: Speaker, path: str
) -> None:
    answer = seen[Case(agent, speaker, path, None)]
    assert (answer["extended"]["status"], answer["called"]) == (401, 401)
    assert "Ledger" not in answer["extended"]["raw"]


@every_agent
@every_speaker
@every_path
@walk("owner", ["ann", "ben"])
def test_a_caller_reads_the_extended_card_of_its_own_and_it_is_verified(
    seen: Seen,
    agents: Agents,
    jwks: Mapping[str, bytes],
    agent: str,
    speaker: Speaker,
    path: str,
    owner: str,
) -> None:
    answer = seen[Case(agent, speaker, path, owner)]
    extended, own = answer["extended"], EXTENDED.format(owner=owner, tenant="nobody")
    assert (extended["status"], extended["seen"]) == (200, own)
    card = verified(extended_in(answer, speaker).encode(), jwks[agent], agents.origins[agent])
    assert card["description"] == own
    assert ("url" in card) is (speaker.version != "1.0")
    if speaker.sdk in VERIFYING:
        assert extended["refused"] is None
    if speaker.sdk == "python-1.3.0":
        # As 0.3, this SDK makes another card of what it got before it verifies: it has to be given the raw one.
        assert extended["seen_refused"] == (None if speaker.version == "1.0" else "InvalidSignaturesError")


@every_agent
@every_speaker
@every_path
@walk("owner", ["ann", "eve"])
def test_a_caller_is_served(seen: Seen, agent: str, speaker: Speaker, path: str, owner: str) -> None:
    assert seen[Case(agent, speaker, path, owner)]["called"] == GREETING


@every_agent
@every_speaker
@every_path
def test_whoever_may_not_read_the_extended_card_is_refused(seen: Seen, agent: str, speaker: Speaker, path: str) -> None:
    extended = seen[Case(agent, speaker, path, "eve")]["extended"]
    assert extended["status"] == 403
    assert "Ledger" not in extended["raw"]


@every_verifier
def test_a_strangers_key_under_the_same_name_proves_nothing(seen: Seen, agents: Agents, speaker: Speaker) -> None:
    answer = seen[Case("sdk", speaker, PATHS[0], "ann", "stranger")]
    assert [answer[which]["status"] for which in ("public", "extended")] == [200, 200]
    assert None not in [answer[which]["refused"] for which in ("public", "extended")]
    keys = json.dumps(publish_jwks([generate_signer("ES256").public_key])).encode()
    with pytest.raises(TrustError):
        verified(answer["public"]["raw"].encode(), keys, agents.origins["sdk"])
