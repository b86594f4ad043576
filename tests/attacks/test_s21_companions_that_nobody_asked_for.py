"""S21: the server removes the security requirement of a card that its owner signed by default.

The clients are of the released SDKs, which verify the pruned form only. A companion gives them a signature in this
form, which says nothing about a requirement without scopes: it must not be there unless the owner asked for it.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final

import pytest

from a2a_trust import merged_card, sign_card
from a2a_trust.keys import LocalSigner
from a2a_trust.middleware.card import CardSignedHere, CardSigner
from a2a_trust.signing import SignedCard, sign_cards
from tests.attacks.forgery import JSONObject
from tests.attacks.test_s02_companions_that_protect_less import OLD
from tests.attacks.verifying import HOST
from tests.interop.conftest import js_1_3_0, python_0_3_26, python_1_3_0
from tests.interop.sdk_process import SdkProcess
from tests.tables import walk

__all__ = ["js_1_3_0", "python_0_3_26", "python_1_3_0"]

#: The card of README's first lines: an API key, and nothing else that a pruned form drops.
CARD: Final[JSONObject] = {
    "name": "Ledger agent",
    "description": "Books invoices",
    "version": "1.0.0",
    "supportedInterfaces": [{"url": f"https://{HOST}/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "capabilities": {"streaming": True},
    "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
    "securityRequirements": [{"schemes": {"key": {}}}],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "post", "name": "Post", "description": "Posts", "tags": ["ledger"]}],
}
SCOPED: Final = {**CARD, "securityRequirements": [{"schemes": {"key": {"list": ["post"]}}}]}


@pytest.fixture
def sdks(python_1_3_0: SdkProcess, js_1_3_0: SdkProcess, owner: LocalSigner) -> Any:
    """Asks every verifier of 1.0: the names of those that accept the card."""
    readers = {
        "python, plain": (python_1_3_0, "plain"),
        "python": (python_1_3_0, "resolver"),
        "js": (js_1_3_0, "plain"),
    }

    def accepting(card: JSONObject) -> set[str]:
        key, document = owner.public_key.to_jwk(), json.dumps(card)
        return {name for name, (sdk, reader) in readers.items() if sdk.refusal(document, key, reader=reader) is None}

    return accepting


def stripped(signed: SignedCard, *steps: str | int) -> JSONObject:
    """The signed card without one member, with all its signatures."""
    card: JSONObject = json.loads(json.dumps(signed.card))
    holder: Any = card
    for step in steps[:-1]:
        holder = holder[step]
    del holder[steps[-1]]
    return card


@pytest.mark.real
def test_no_sdk_accepts_a_card_signed_by_default_without_its_requirement(sdks: Any, owner: LocalSigner) -> None:
    (in_bulk,) = sign_cards([CARD], owner)
    assert isinstance(in_bulk, SignedCard)
    for signed in (sign_card(CARD, owner), in_bulk):
        assert sdks(stripped(signed, "securityRequirements")) == set()
        assert sdks(signed.card) == set()  # the price, of which the notes tell
        assert signed.withheld_for == ("/securityRequirements",)
        assert signed.notes[0].startswith("rejected by a2a-python and a2a-js: ")


@pytest.mark.real
def test_on_request_the_sdks_accept_it_whole_and_stripped_and_the_note_says_so(sdks: Any, owner: LocalSigner) -> None:
    signed = sign_card(CARD, owner, companion=True)
    assert sdks(signed.card) == {"python, plain", "python", "js"}
    assert sdks(stripped(signed, "securityRequirements")) == {"python, plain", "python", "js"}
    assert "(without them clients send no credentials): /securityRequirements." in signed.notes[0]


@pytest.mark.real
def test_with_a_scope_one_signature_satisfies_all_and_nothing_can_be_removed(sdks: Any, owner: LocalSigner) -> None:
    signed = sign_card(SCOPED, owner)
    assert (signed.companion, signed.withheld_for) == (None, ())
    assert sdks(signed.card) == {"python, plain", "python", "js"}
    assert sdks(stripped(signed, "securityRequirements")) == set()


#: A card, and the security member that its companion would leave open.
OPEN: Final[dict[str, tuple[JSONObject, tuple[str | int, ...]]]] = {
    "a scheme": (
        {**SCOPED, "securitySchemes": {**SCOPED["securitySchemes"], "tls": {"mtlsSecurityScheme": {}}}},
        ("securitySchemes", "tls"),
    ),
    "a factor of a requirement": (
        {**SCOPED, "securityRequirements": [{"schemes": {"key": {"list": ["post"]}, "tls": {}}}]},
        ("securityRequirements", 0, "schemes", "tls"),
    ),
    "the requirement of a skill": (
        {**SCOPED, "skills": [{**SCOPED["skills"][0], "securityRequirements": [{"schemes": {"key": {}}}]}]},
        ("skills", 0, "securityRequirements"),
    ),
    "an allow-list": (
        {**SCOPED, "capabilities": {"extensions": [{"uri": "https://x.example", "params": {"allow": []}}]}},
        ("capabilities", "extensions", 0, "params"),
    ),
    "a member of an interface": (
        {**SCOPED, "supportedInterfaces": [{**SCOPED["supportedInterfaces"][0], "audience": "x"}]},
        ("supportedInterfaces", 0, "audience"),
    ),
    "the url of 0.3": (merged_card(SCOPED), ("url",)),
    "behind a hundred members that mean nothing": (
        {**{f"x-{number}": number for number in range(200)}, **CARD},
        ("securityRequirements",),
    ),
    "the requirement in the spelling of protobuf": (
        {
            **{name: value for name, value in CARD.items() if name != "securityRequirements"},
            "security_requirements": CARD["securityRequirements"],
        },
        ("security_requirements",),
    ),
}


@pytest.mark.real
@walk(("card", "member"), OPEN.values(), ids=OPEN)
def test_no_security_member_is_left_open_by_default(
    sdks: Any, owner: LocalSigner, card: JSONObject, member: tuple[str | int, ...]
) -> None:
    assert sdks(stripped(sign_card(card, owner, companion=True), *member)) != set()  # the attack is real
    signed = sign_card(card, owner)
    assert signed.withheld_for
    assert sdks(stripped(signed, *member)) == set()


@pytest.mark.real
def test_a_companion_that_leaves_other_members_open_is_still_added(sdks: Any, owner: LocalSigner) -> None:
    members: list[JSONObject] = [{"description": ""}, {"skills": []}, {"x-note": 1}]
    for member in members:
        signed = sign_card({**SCOPED, **member}, owner)
        assert (len(signed.card["signatures"]), signed.withheld_for) == (2, ())
        assert sdks(signed.card) == {"python, plain", "python", "js"}
        assert sdks(stripped(signed, "securityRequirements")) == set()


@pytest.mark.parametrize(
    ("security", "skill"), [([{"key": []}], []), ([{"key": ["post"]}], [{"key": []}])], ids=["card", "skill"]
)
def test_a_card_of_0_3_is_signed_likewise(
    python_0_3_26: SdkProcess, owner: LocalSigner, security: Any, skill: Any
) -> None:
    card = {
        **OLD,
        "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}},
        "security": security,
        "skills": [{**OLD["skills"][0], **({"security": skill} if skill else {})}],
    }
    member: tuple[str | int, ...] = ("skills", 0, "security") if skill else ("security",)
    key = owner.public_key.to_jwk()
    asked = sign_card(card, owner, companion=True)
    assert python_0_3_26.refusal(json.dumps(stripped(asked, *member)), key) is None  # the attack is real
    signed = sign_card(card, owner)
    assert python_0_3_26.refusal(json.dumps(stripped(signed, *member)), key) == "InvalidSignaturesError"


def test_what_a2a_python_0_3_reads_alike_without_it_withholds_no_companion(
    python_0_3_26: SdkProcess, owner: LocalSigner
) -> None:
    """It never signs the ``type`` of a scheme, nor its defaults: its models have no other value for these."""
    schemes = {"oauth": OLD["securitySchemes"]["oauth"]}
    signed = sign_card({**OLD, "securitySchemes": schemes, "security": [{"oauth": ["read"]}]}, owner)
    key = owner.public_key.to_jwk()
    assert (len(signed.card["signatures"]), signed.withheld_for) == (2, ())
    assert python_0_3_26.refusal(json.dumps(signed.card), key) is None
    for member in (("security",), ("securitySchemes", "oauth"), ("securitySchemes", "oauth", "openIdConnectUrl")):
        assert python_0_3_26.refusal(json.dumps(stripped(signed, *member)), key) is not None
    other = json.loads(json.dumps(signed.card))
    for changes in ({"protocolVersion": "0.2.6"}, {"preferredTransport": "GRPC"}):
        assert python_0_3_26.refusal(json.dumps({**other, **changes}), key) is not None
    for type_ in ("mutualTLS", "http", "apiKey", "oauth2"):
        other["securitySchemes"]["oauth"]["type"] = type_
        assert python_0_3_26.refusal(json.dumps(other), key) is not None


@pytest.mark.real
def test_a_server_that_signs_its_card_adds_none_either_and_logs_why(
    owner: LocalSigner, sdks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="a2a_trust.middleware.card"):
        served = json.loads(CardSignedHere(CARD, CardSigner(owner)).document(0.0).body)
    assert len(served["signatures"]) == 1
    assert sdks({name: value for name, value in served.items() if name != "securityRequirements"}) == set()
    assert "it would not protect /securityRequirements" in caplog.text
