"""S13, S2, S14, S16: the a2a-sdk verifies by its hook, and goes on with an object that says something else.

The hook ``signature_verifier`` gets the object that the SDK has made of the card, and cannot give it another one. The
attacker serves what makes this object differ from the card that the owner signed: members that the SDK rewrites,
members that its signers drop, values that have the same canonical form. The released SDK itself reads each card.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from a2a_trust import merged_card, publish_jwks, sign_card
from a2a_trust.keys import LocalSigner, SigningTool
from a2a_trust.keys.jwk import private_key_to_jwk
from tests.attacks.forgery import JSONObject, canonical, entry, pruned, served, signs
from tests.attacks.verifying import HOST
from tests.client.test_sdk_hook import SCRIPT, SDKS
from tests.interop.conftest import python_0_3_26, python_1_3_0
from tests.interop.sdk_process import SdkProcess
from tests.servers.environments import answer_of
from tests.servers.serving import ROOT

pytestmark = pytest.mark.real

__all__ = ["python_0_3_26", "python_1_3_0"]

NEW: Final = ("1.0.0", "1.3.0")
BAD: Final = "CardVerificationError"


@pytest.fixture
def card_0_3() -> JSONObject:
    """A card of 0.3 with everything that its models have, and a number that has neighbours of the same double."""
    return {
        "protocolVersion": "0.3.0",
        "name": "Ledger agent",
        "description": "",
        "version": "2.3.1",
        "url": f"https://{HOST}/a2a",
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": [{"url": f"https://{HOST}/rest", "transport": "HTTP+JSON"}],
        "provider": {"url": "https://www.example.com", "organization": "Example Finance"},
        "iconUrl": None,
        "capabilities": {
            "streaming": False,
            "extensions": [{"uri": "https://example.com/ext", "params": {"limit": 1e16, "none": None, "allowed": []}}],
        },
        "securitySchemes": {
            "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            "mtls": {"type": "mutualTLS"},
        },
        "security": [{"key": [], "mtls": []}],
        "defaultInputModes": [],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "s", "name": "S", "description": "", "tags": [], "security": [{"key": []}]}],
    }


def outcomes(
    sdk: str, owner: LocalSigner, documents: Mapping[str, JSONObject | bytes], **options: Any
) -> dict[str, Any]:
    """What becomes of each document in the SDK with the hook: "used", or the error."""
    trust = {HOST: publish_jwks([owner.public_key])}
    questions = [
        {
            "do": "read",
            "hook": with_hook,
            "document": each.decode() if isinstance(each, bytes) else json.dumps(each),
            "trust": trust,
            "origin": f"https://{HOST}",
            **options,
        }
        for with_hook in (True, False)
        for each in documents.values()
    ]
    found = answer_of(SDKS[sdk], str(SCRIPT), questions, PYTHONPATH=str(ROOT))
    control = found[len(documents) :]
    assert [each["error"] for each in control] == [None] * len(documents), "control: without the hook"
    return {name: each["error"] or "used" for name, each in zip(documents, found, strict=False)}


def changes(card: JSONObject, *paths: tuple[str, Any]) -> JSONObject:
    """A copy with a value for each pointer; ``...`` removes the member."""
    changed = copy.deepcopy(card)
    for pointer, value in paths:
        *steps, last = pointer.split("/")[1:]
        holder: Any = changed
        for step in steps:
            holder = holder[int(step) if isinstance(holder, list) else step]
        if value is ...:
            del holder[int(last) if isinstance(holder, list) else last]
        else:
            holder[int(last) if isinstance(holder, list) else last] = value
    return changed


@pytest.mark.parametrize("sdk", NEW)
def test_good_cards_are_used_with_whatever_is_empty_in_them(sdk: str, card: JSONObject, owner: LocalSigner) -> None:
    """Control: the hook is no mere refusal."""
    empty = changes(
        card,
        ("/description", ""),
        ("/skills/1/tags", []),
        ("/provider/url", ""),
        ("/defaultInputModes", []),
        ("/iconUrl", ""),
        ("/securitySchemes/oauth/oauth2SecurityScheme/flows/clientCredentials/scopes", {}),
        ("/capabilities/extensions/0/params", {"a": 1e300, "b": 0.1, "c": -1, "d": 1e16, "e": None, "f": {}}),
    )
    # As the SDK prints it: without the REQUIRED members that are empty.
    printed = changes(card, ("/description", ...), ("/skills/1/tags", ...), ("/defaultInputModes", ...))
    documents = {"full": card, "empty": empty, "printed": printed, "nothing demanded": pruned(card)}
    signed = {name: sign_card(each, owner).card for name, each in documents.items()}
    assert outcomes(sdk, owner, signed) == dict.fromkeys(documents, "used")
    # What the SDK does not read may stand beside: it is not in the object.
    beside = {**signed["full"], "x-note": 1, "url": "https://evil.example", "security": [], "protocolVersion": "0.3.0"}
    assert outcomes(sdk, owner, {"beside": beside}) == {"beside": "used"}


@pytest.mark.parametrize("sdk", NEW)
def test_an_object_that_says_more_or_less_than_was_signed_is_refused(
    sdk: str, card: JSONObject, owner: LocalSigner
) -> None:
    good = sign_card(card, owner).card
    bare = sign_card(changes(card, ("/securityRequirements", ...), ("/securitySchemes", ...)), owner).card
    plain = sign_card(changes(card, ("/skills/0/securityRequirements", ...)), owner).card
    flat = {"type": "http", "scheme": "Basic"}
    documents = {
        # members that the SDK rewrites as others
        "requirements of 0.3": {**bare, "security": [{"key": ["admin"]}]},
        "a skill's requirements of 0.3": changes(plain, ("/skills/0/security", [{"key": []}])),
        "a scheme of 0.3": changes(bare, ("/securitySchemes", {"key": flat})),
        "a scheme of 0.3 beside that of 1.0": changes(good, ("/securitySchemes/key/type", "http")),
        "an extended card of 0.3": {**good, "supportsAuthenticatedExtendedCard": True},
        "interfaces of 0.3": {**changes(good, ("/supportedInterfaces", ...)), "url": "https://evil.example/"},
        # members that the SDK's own signers drop
        "a requirement less": changes(good, ("/securityRequirements/1", ...)),
        "a factor less": changes(good, ("/securityRequirements/0/schemes/mtls", ...)),
        "nothing demanded": changes(good, ("/securityRequirements", [{}])),
        "anonymous too": changes(good, ("/securityRequirements", [*good["securityRequirements"], {}])),
        "no scheme": changes(good, ("/securitySchemes/mtls", ...)),
        "an empty scheme": changes(good, ("/securitySchemes/mtls", {})),
        "an empty list": changes(good, ("/capabilities/extensions/0/params/allowed", ...)),
        "null for the list": changes(good, ("/capabilities/extensions/0/params/allowed", None)),
        # others, by another spelling too
        "a spelling of protobuf": {**changes(good, ("/securityRequirements", ...)), "security_requirements": []},
        "streaming": changes(good, ("/capabilities/streaming", ...)),
        "not streaming": changes(good, ("/capabilities/streaming", False)),
        "a tenant": changes(good, ("/supportedInterfaces/1/tenant", "")),
        "an icon": {**good, "iconUrl": ""},
        "a login": changes(
            good,
            ("/securitySchemes/oauth/oauth2SecurityScheme/flows/clientCredentials/tokenUrl", "https://evil.example"),
        ),
    }
    assert outcomes(sdk, owner, documents) == dict.fromkeys(documents, BAD)


@pytest.mark.parametrize("sdk", NEW)
def test_a_companion_does_not_count_for_the_stripped_card(sdk: str, card: JSONObject, owner: LocalSigner) -> None:
    full, companion = sign_card(card, owner, companion=True).card["signatures"]
    documents = {
        "companion": served(pruned(card), companion),
        "both": served(pruned(card), full, companion),
        "none": served(card),
    }
    expected = {"companion": "UntrustedCardError", "both": BAD, "none": "UnsignedCardError"}
    assert outcomes(sdk, owner, documents) == expected


@pytest.mark.parametrize("sdk", NEW)
def test_what_an_sdk_signed_in_its_pruned_form_is_refused_also_if_the_trust_entry_names_it(
    sdk: str, card: JSONObject, owner: LocalSigner
) -> None:
    """The SDK would take the absent requirements for none."""
    by_sdk = entry({"alg": "ES256", "kid": "owner"}, canonical(pruned(card)), signs(owner.private_key, "ES256"))
    documents = {
        "stripped": served(pruned(card), by_sdk),
        "genuine": served(card, by_sdk),
    }
    for tool in (None, SigningTool.A2A_TRUST):
        found = outcomes(sdk, owner, documents, signer=tool)
        assert found == dict.fromkeys(documents, "PartialSignatureError"), tool
    found = outcomes(sdk, owner, documents, signer=SigningTool.A2A_PYTHON)
    assert found == dict.fromkeys(documents, "UncoveredFieldsError")
    # Control: a tool that signs the complete card, which puts no mark into its signature.
    whole = entry({"alg": "ES256", "kid": "owner"}, canonical(card), signs(owner.private_key, "ES256"))
    found = outcomes(sdk, owner, {"whole": served(card, whole)}, signer=SigningTool.WHOLE)
    assert found == {"whole": "used"}


@pytest.mark.parametrize("sdk", [*NEW, "0.3.26"])
def test_the_card_of_another_host_is_refused(
    sdk: str, card: JSONObject, card_0_3: JSONObject, owner: LocalSigner
) -> None:
    good = sign_card(card_0_3 if sdk == "0.3.26" else card, owner).card
    assert outcomes(sdk, owner, {"good": good}) == {"good": "used"}
    assert outcomes(sdk, owner, {"good": good}, origin="https://evil.example") == {"good": "UntrustedCardError"}


@pytest.mark.parametrize("sdk", [*NEW, "0.3.26"])
def test_cards_of_which_the_sdk_has_dropped_signed_members_are_refused_though_good(
    sdk: str, card: JSONObject, card_0_3: JSONObject, owner: LocalSigner
) -> None:
    documents = {
        "merged": sign_card(merged_card(card), owner).card,
        "with a member that is unknown": sign_card({**card_0_3, "trustLevel": "gold"}, owner).card,
    }
    if sdk in NEW:  # the models of 0.3 refuse a card of 1.0
        documents["with a member that is unknown"] = sign_card({**card, "trustLevel": "gold"}, owner).card
        documents["of 0.3"] = sign_card(card_0_3, owner).card
    assert outcomes(sdk, owner, documents) == dict.fromkeys(documents, BAD)


@pytest.mark.parametrize("sdk", NEW)
def test_a_number_that_json_does_not_have_is_malformed(sdk: str, card: JSONObject, owner: LocalSigner) -> None:
    document = json.dumps(sign_card(card, owner).card).replace('"level": 3', '"level": NaN').encode()
    assert outcomes(sdk, owner, {"NaN": document}) == {"NaN": "MalformedError"}


def test_an_object_of_0_3_that_says_more_or_less_than_was_signed_is_refused(
    card_0_3: JSONObject, owner: LocalSigner
) -> None:
    good = sign_card(card_0_3, owner).card
    documents = {
        "no requirement": changes(good, ("/security", ...)),
        "nothing demanded": changes(good, ("/security", [])),
        "anonymous too": changes(good, ("/security", [{"key": [], "mtls": []}, {}])),
        "a factor less": changes(good, ("/security/0/mtls", ...)),
        "a skill's requirement less": changes(good, ("/skills/0/security", ...)),
        "no scheme": changes(good, ("/securitySchemes/mtls", ...)),
        "a scheme without its type": changes(good, ("/securitySchemes/mtls/type", ...)),
        "another url": {**good, "url": "https://evil.example"},
        "a default": changes(good, ("/preferredTransport", "GRPC")),
        "an extended card": {**good, "supportsAuthenticatedExtendedCard": True},
        "not streaming": changes(good, ("/capabilities/streaming", ...)),
        "an icon": {**good, "iconUrl": ""},
        # The canonical form of both is that of one double, and the SDK has an integer.
        "a number of the same canonical form": changes(good, ("/capabilities/extensions/0/params/limit", 10**16 + 1)),
        # Its model prints it as null, as it was signed.
        "no number": changes(good, ("/capabilities/extensions/0/params/none", float("nan"))),
    }
    assert outcomes("0.3.26", owner, documents) == dict.fromkeys(documents, BAD)
    control = {"good": good, "beside": {**good, "x-note": 1}}
    assert outcomes("0.3.26", owner, control) == dict.fromkeys(control, "used")


def test_what_the_sdk_of_0_3_signed_is_refused_also_if_the_trust_entry_names_it(
    card_0_3: JSONObject, owner: LocalSigner, python_0_3_26: SdkProcess
) -> None:
    jwk = private_key_to_jwk(owner.private_key, alg=owner.alg, kid=owner.kid)
    card = changes(card_0_3, ("/capabilities/extensions/0/params", {"allowed": [], "limit": 3}))
    by_sdk = json.loads(python_0_3_26.sign(json.dumps(card), jwk) or "")
    for tool, error in ((None, "PartialSignatureError"), (SigningTool.A2A_PYTHON, "UncoveredFieldsError")):
        assert outcomes("0.3.26", owner, {"genuine": by_sdk}, signer=tool) == {"genuine": error}


def test_the_sdks_own_verifier_accepts_the_stripped_card(
    card: JSONObject, owner: LocalSigner, python_1_3_0: SdkProcess
) -> None:
    """Control: it is what the hook of the SDK itself is for."""
    signed = sign_card(card, owner, companion=True).card
    stripped = served(pruned(card), *signed["signatures"])
    assert python_1_3_0.refusal(stripped.decode(), owner.public_key.to_jwk(), reader="resolver") is None
