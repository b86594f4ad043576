"""A program of the a2a-sdk 1.3.0 refuses what is not verified when one line was added to it, and only then."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from a2a_trust import generate_signer, publish_jwks
from tests.base.net.test_fetcher import Authority
from tests.client.agents import NEW, OWNER, Agent, Asked, Page, card_of, serving_agent, signed
from tests.servers.environments import answer_of
from tests.servers.serving import ROOT

SCRIPT = Path(__file__).resolve().parent / "sdk_client_1_3.py"
HOST, OTHER = "127.0.0.1", "localhost"
#: Trusted for OTHER, and by nobody.
NEIGHBOUR, STRANGER = generate_signer("ES256", kid="neighbour"), generate_signer("ES256", kid="stranger")


class Case(NamedTuple):
    """What an agent serves as its card, request by request, and what the program comes to: with the line, without."""

    cards: tuple[str, ...]
    do: str
    guarded: list[Any]
    careless: list[Any]


def refused(why: str, by: str = "AgentCardResolutionError") -> list[str]:
    return [by, "UnverifiedCardError", why]


CASES = {
    "good": Case(("good",), "message", ["hello"], ["hello"]),
    "good, by its URL": Case(("good",), "from_url", ["hello"], ["hello"]),
    "good, twice": Case(("good", "good"), "message", ["hello", "hello"], ["hello", "hello"]),
    "a newer one": Case(("old", "good"), "message", ["hello", "hello"], ["hello", "hello"]),
    "unsigned": Case(("unsigned",), "message", [refused("UnsignedCardError")], ["hello"]),
    "unsigned, by its URL": Case(("unsigned",), "from_url", [refused("UnsignedCardError")], ["hello"]),
    "unsigned after signed": Case(
        ("good", "unsigned"), "message", ["hello", refused("UnsignedCardError")], ["hello", "hello"]
    ),
    "without its requirement": Case(("stripped",), "message", [refused("CardVerificationError")], ["hello"]),
    "without its requirement, companion only": Case(
        ("stripped companion",), "message", [refused("UntrustedCardError")], ["hello"]
    ),
    "rolled back": Case(("good", "old"), "message", ["hello", refused("RolledBackCardError")], ["hello", "hello"]),
    "of another host": Case(("copied",), "message", [refused("UntrustedCardError")], ["hello"]),
    "by a stranger": Case(("stranger",), "message", [refused("UntrustedCardError")], ["hello"]),
    "leading elsewhere": Case(("elsewhere",), "message", [refused("CardVerificationError")], ["hello"]),
    "compressed": Case(("compressed",), "message", [refused("MalformedError")], ["hello"]),
    "extended": Case(("extended",), "extended", ["More."], ["More."]),
    "extended, unsigned": Case(
        ("extended unsigned",), "extended", [refused("UnsignedCardError", "A2AClientError")], ["More."]
    ),
    "extended, wider": Case(
        ("extended wider",), "extended", [refused("CardVerificationError", "A2AClientError")], ["More."]
    ),
    "extended, by REST": Case(("by REST",), "extended", ["More."], ["More."]),
    "extended, unsigned, by REST": Case(
        ("by REST",), "extended", [refused("UnsignedCardError", "A2AClientError")], ["More."]
    ),
    "extended, wider, by REST": Case(
        ("by REST",), "extended", [refused("CardVerificationError", "A2AClientError")], ["More."]
    ),
}


def documents(origin: str, other: str) -> dict[str, bytes]:
    """Cards by their names above; those of the extended ones are the public card beside them."""
    now = time.time()
    card = card_of(origin)
    good = signed(card, iat=now - 10)
    stripped = {**json.loads(good), "securityRequirements": []}
    return {
        "good": good,
        "old": signed({**card, "version": "0.9.0"}, iat=now - 1000),
        "unsigned": json.dumps(card).encode(),
        "stripped": json.dumps(stripped).encode(),
        "stripped companion": json.dumps({**stripped, "signatures": stripped["signatures"][1:]}).encode(),
        "copied": signed(card_of(other), by=NEIGHBOUR, iat=now - 10),
        "stranger": signed(card, by=STRANGER),
        "elsewhere": good.replace(b"/rpc", b"/cpr"),
        "compressed": good,
        "extended": good,
        "extended unsigned": good,
        "extended wider": good,
        "by REST": signed({**card, "supportedInterfaces": card["supportedInterfaces"][1:]}),
    }


def add_case(agent: Agent, index: int, case: Case) -> str:
    """The agent serves the case below a path of its own; its URL."""
    origin, base = agent.origin(HOST), f"/{index}"
    cards = documents(origin, agent.origin(OTHER))
    waiting = list(case.cards)

    def card(asked: Asked) -> Page:
        name = waiting.pop(0)
        return Page(
            body=cards[name], headers={"Content-Encoding": "identity, identity"} if name == "compressed" else {}
        )

    agent.pages[base + NEW] = card
    return origin + base


def answer(asked: Asked) -> Page:
    """What the agent answers to calls: a message, or the extended card that is next."""
    call = json.loads(asked.body)
    if call["method"] == "GetExtendedAgentCard":
        result = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (json.dumps(call["id"]).encode(), EXTENDED.pop(0))
        return Page(body=result)
    said = {"messageId": "2", "role": "ROLE_AGENT", "parts": [{"text": "hello"}]}
    return Page(body=json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": {"message": said}}).encode())


EXTENDED: list[bytes] = []


def extended_cards(origin: str) -> list[bytes]:
    """In the order of the cases."""
    more = card_of(origin, description="More.")
    wider = json.loads(json.dumps(more).replace("login.example.com", "login.evil.example"))
    return [signed(more), json.dumps(more).encode(), signed(wider)]


pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], list[Any]]:
    """What every case comes to, with and without the line; one process of the SDK runs them, one after the other."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    asked = [(name, proof) for proof in (True, False) for name in CASES]
    with serving_agent(authority.server(HOST, OTHER)) as agent:
        for path in ("/rpc", "/cpr"):
            agent.pages[path] = answer
        agent.pages["/rest/extendedAgentCard"] = lambda _: Page(body=EXTENDED.pop(0))
        EXTENDED[:] = extended_cards(agent.origin(HOST)) * 4  # by both bindings, with the line and without
        questions = [
            {
                "url": add_case(agent, index, CASES[name]),
                "do": CASES[name].do,
                "times": len(CASES[name].cards),
                "proof": proof,
                "ca": authority.certificate.public_bytes(Encoding.PEM).decode(),
                "trust": {
                    HOST: publish_jwks([OWNER.public_key]),
                    OTHER: publish_jwks([NEIGHBOUR.public_key]),
                },
            }
            for index, (name, proof) in enumerate(asked)
        ]
        found = answer_of("server-1.3.0", str(SCRIPT), questions, PYTHONPATH=str(ROOT))
    return dict(zip(asked, found, strict=True))


def shown(outcome: list[dict[str, Any]]) -> list[Any]:
    return [each["errors"] or each["answer"] for each in outcome]


@pytest.mark.parametrize("name", CASES)
def test_a_program_with_the_line_uses_verified_cards_alone(
    outcomes: dict[tuple[str, bool], list[Any]], name: str
) -> None:
    assert shown(outcomes[name, True]) == CASES[name].guarded


@pytest.mark.parametrize("name", CASES)
def test_control_the_same_program_without_the_line_takes_them_all(
    outcomes: dict[tuple[str, bool], list[Any]], name: str
) -> None:
    assert shown(outcomes[name, False]) == CASES[name].careless
