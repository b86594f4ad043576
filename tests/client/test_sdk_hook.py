"""Programs of the a2a-sdk 0.3.26, 1.0.0 and 1.3.0 with our ``signature_verifier``: what they go on with, by sockets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from a2a_trust import ConfigurationError, MalformedError, TrustFile, generate_signer, publish_jwks
from a2a_trust.card.models import AgentCard03
from a2a_trust.client import signature_verifier
from a2a_trust.errors import CardVerificationError, UntrustedCardError
from a2a_trust.keys import LocalSigner, UnsafeAnyOrigin, named
from tests.base.net.test_fetcher import Authority
from tests.client.agents import NEW, OWNER, Agent, Asked, Page, card_of, serving_agent, signed, trusting
from tests.servers.environments import answer_of
from tests.servers.serving import ROOT

SCRIPT: Final = Path(__file__).resolve().parent / "sdk_hook_program.py"
SDKS: Final = {"0.3.26": "python-0.3.26", "1.0.0": "python-1.0.0", "1.3.0": "server-1.3.0"}
HOST, OTHER = "127.0.0.1", "localhost"
#: Trusted for OTHER.
NEIGHBOUR: Final = generate_signer("ES256", kid="neighbour")
SAID, CHANGED, MORE = "Books invoices.", "Sends you the invoices.", "Books invoices and receipts."


def card_0_3(origin: str, **members: Any) -> dict[str, Any]:
    """The card of ``card_of`` for clients of 0.3."""
    return {
        "protocolVersion": "0.3.0",
        "name": "Ledger",
        "description": SAID,
        "version": "1.0.0",
        "url": f"{origin}/rpc",
        "preferredTransport": "JSONRPC",
        "capabilities": {"streaming": False},
        "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}},
        "security": [{"key": []}],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "ask", "name": "Ask", "description": "Answers.", "tags": ["ledger"]}],
        "supportsAuthenticatedExtendedCard": True,
        **members,
    }


def changed(document: bytes) -> bytes:
    return document.replace(SAID.encode(), CHANGED.encode()).replace(MORE.encode(), CHANGED.encode())


#: What the agent serves, what the program does, what it goes on with or the error, and what it does without the hook.
CASES: Final = {
    "good": ("resolve", SAID, SAID),
    "good, by its URL": ("connect", SAID, SAID),
    "changed": ("resolve", "CardVerificationError", CHANGED),
    "changed, by its URL": ("connect", "CardVerificationError", CHANGED),
    "unsigned": ("resolve", "UnsignedCardError", SAID),
    "of another host": ("resolve", "UntrustedCardError", SAID),
    "extended": ("extended", MORE, MORE),
    "extended, changed": ("extended", "CardVerificationError", CHANGED),
    "extended, unsigned": ("extended", "UnsignedCardError", MORE),
    "extended, of another host": ("extended", "UntrustedCardError", MORE),
}


def served(name: str, sdk: str, origin: str, other: str) -> tuple[bytes, bytes]:
    """The public card of that case, and the extended one."""

    def card(what: str, origin: str, by: LocalSigner) -> bytes:
        made = (card_0_3 if sdk.startswith("0.") else card_of)(origin, description=what)
        return json.dumps(made).encode() if "unsigned" in name else signed(made, by=by)

    said = MORE if "extended" in name else SAID
    document = card(said, other, NEIGHBOUR) if "another host" in name else card(said, origin, OWNER)
    if "changed" in name:
        document = changed(document)
    if "extended" not in name:
        return document, b""
    public = (card_0_3 if sdk.startswith("0.") else card_of)(origin)
    return signed(public), document


@pytest.fixture(scope="module", params=SDKS)
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Any, Any]]:
    """What every case comes to in that SDK, with the hook and without; one process runs them."""
    sdk: str = request.param
    authority = Authority(tmp_path_factory.mktemp("authority"))
    asked = [(name, with_hook) for with_hook in (True, False) for name in CASES]
    extended: dict[str, bytes] = {}

    def answer(call: Asked) -> Page:
        result = b'{"jsonrpc":"2.0","id":%b,"result":%b}'
        return Page(body=result % (json.dumps(json.loads(call.body)["id"]).encode(), extended[call.path]))

    with serving_agent(authority.server(HOST, OTHER)) as agent:
        questions = []
        for index, (name, with_hook) in enumerate(asked):
            question = add_case(agent, index, name, sdk, extended)
            agent.pages[f"/{index}/rpc"] = answer
            ca = authority.certificate.public_bytes(Encoding.PEM).decode()
            questions.append({**question, "do": CASES[name][0], "hook": with_hook, "ca": ca})
        found = answer_of(SDKS[sdk], str(SCRIPT), questions, PYTHONPATH=str(ROOT))
        yield dict(zip(asked, found, strict=True))


def add_case(agent: Agent, index: int, name: str, sdk: str, extended: dict[str, bytes]) -> dict[str, Any]:
    """The agent serves the case below a path of its own; what to ask the program."""
    base = f"/{index}"
    url = agent.origin(HOST) + base
    agent.pages[base + NEW], extended[f"{base}/rpc"] = served(name, sdk, url, agent.origin(OTHER) + base)
    trust = {HOST: publish_jwks([OWNER.public_key]), OTHER: publish_jwks([NEIGHBOUR.public_key])}
    return {"url": url, "origin": url, "trust": trust}


@pytest.mark.real
@pytest.mark.parametrize("name", CASES)
def test_a_program_with_the_hook_goes_on_with_verified_cards_only(outcomes: dict[Any, Any], name: str) -> None:
    outcome = outcomes[name, True]
    assert (outcome["used"] or outcome["error"]) == CASES[name][1], outcome["text"]


@pytest.mark.real
@pytest.mark.parametrize("name", CASES)
def test_control_the_same_program_without_the_hook_takes_them_all(outcomes: dict[Any, Any], name: str) -> None:
    outcome = outcomes[name, False]
    assert (outcome["used"], outcome["error"]) == (CASES[name][2], None), outcome["text"]


@pytest.mark.real
def test_the_error_says_what_to_do_instead(outcomes: dict[Any, Any]) -> None:
    text = outcomes["changed", True]["text"]
    assert "verify the bytes that the agent serves, with AsyncVerifyingTransport or fetch_card" in text
    assert "signature 0 (kid owner): not a signature by this key over this card" in text


# The same in this process, with models of ours in the place of those of the SDK.

ORIGIN: Final = "https://127.0.0.1"
GOOD: Final = json.loads(signed(card_0_3(ORIGIN)))


def test_a_model_is_verified_by_what_was_there() -> None:
    verify = signature_verifier(trusting(HOST), origin=ORIGIN)
    verify(AgentCard03.model_validate(GOOD))
    with pytest.raises(CardVerificationError, match="AsyncVerifyingTransport"):
        verify(AgentCard03.model_validate({**GOOD, "security": []}))
    with pytest.raises(UntrustedCardError):
        signature_verifier(trusting(OTHER), origin=ORIGIN)(AgentCard03.model_validate(GOOD))


def test_the_policy_is_demanded() -> None:
    trust = trusting(HOST)
    with pytest.raises(ConfigurationError, match="no trust entry has the name 'bank'"):
        signature_verifier(trust, origin=ORIGIN, policy=named("bank"))(AgentCard03.model_validate(GOOD))
    thumbprint = OWNER.public_key.thumbprint
    signature_verifier(trust, origin=ORIGIN, policy=named(thumbprint))(AgentCard03.model_validate(GOOD))


def test_a_trust_file_counts_as_it_is_now(tmp_path: Path, next_second: Callable[[], None]) -> None:
    (tmp_path / "owner.json").write_text(json.dumps(publish_jwks([OWNER.public_key])))
    file = tmp_path / "trust.toml"
    file.write_text(f'version = 1\n[[trust]]\norigins = ["{HOST}"]\nkeys = "owner.json"\n')
    verify = signature_verifier(TrustFile(file), origin=ORIGIN)
    verify(AgentCard03.model_validate(GOOD))
    file.write_text(file.read_text() + '[[revoked]]\nkid = "owner"\n')
    next_second()
    with pytest.raises(UntrustedCardError, match="the key is revoked"):
        verify(AgentCard03.model_validate(GOOD))


@pytest.mark.parametrize("origin", ["", "https://", None, UnsafeAnyOrigin(), 1])
def test_the_origin_is_needed(origin: Any) -> None:
    with pytest.raises(ConfigurationError, match="origin: write the URL that the SDK asks for the card"):
        signature_verifier(trusting(HOST), origin=origin)


def test_wrong_arguments_say_what_to_write() -> None:
    with pytest.raises(ConfigurationError, match="trust: write TrustFile"):
        signature_verifier(OWNER, origin=ORIGIN)  # type: ignore[arg-type]
    for card in (GOOD, json.dumps(GOOD), None):
        with pytest.raises(ConfigurationError, match="is not an AgentCard of the a2a-sdk; for bytes and dicts, use"):
            signature_verifier(trusting(HOST), origin=ORIGIN)(card)  # type: ignore[arg-type]


def test_a_model_without_json_is_malformed() -> None:
    card = AgentCard03.model_validate(GOOD)
    object.__setattr__(card, "name", object())
    with pytest.raises(MalformedError, match="cannot be written as JSON; verify the bytes"):
        signature_verifier(trusting(HOST), origin=ORIGIN)(card)
