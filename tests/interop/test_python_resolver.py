"""The cards that a2a-sdk 1.3.0 rewrites before it verifies, and so rejects: the real resolver and our prediction."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from a2a_trust import MalformedError, generate_signer, sign_card
from a2a_trust.card.view import generation_of
from a2a_trust.signing.a2a_python import rewritten_members
from tests.interop.sdk_process import SdkProcess
from tests.signing.cards import Card, full_card

SIGNER: Final = generate_signer("ES256")

_FLOW: Final = {"tokenUrl": "https://id.example.com/token", "scopes": {"read": "Read"}}
_FLAT: Final[list[Card]] = [
    {"type": "http", "scheme": "Bearer"},
    {"type": "http", "scheme": "Bearer", "bearerFormat": ""},
    {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    {"type": "mutualTLS"},
    {"type": "mutualTLS", "description": "A certificate"},
    {"type": "oauth2", "flows": {"clientCredentials": _FLOW}},
    {"type": "oauth2", "flows": {"clientCredentials": _FLOW, "password": _FLOW}},
    {"type": "openIdConnect", "openIdConnectUrl": "https://id.example.com/"},
    {"type": "custom", "scheme": "x"},
    {"type": ""},
]
_WRAPPED: Final[list[Card]] = [
    {},
    {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
    {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
    {"mtlsSecurityScheme": {}},
    {"oauth2SecurityScheme": {"flows": {"clientCredentials": _FLOW}}},
    {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://id.example.com/"}},
]
_GONE: Final = object()


@st.composite
def _merged_cards(draw: st.DrawFn) -> Card:
    """Cards of 1.0 with members of 0.3 beside those of 1.0 or in their place."""

    def put(holder: Card, name: str, *values: Any) -> None:
        value = draw(st.sampled_from([_GONE, *values]))
        holder.pop(name, None)
        if value is not _GONE:
            holder[name] = value

    card = full_card()
    schemes = st.builds(
        lambda flat, wrapped: {**flat, **wrapped}, st.sampled_from([{}, *_FLAT]), st.sampled_from(_WRAPPED)
    )
    card["securitySchemes"] = draw(st.dictionaries(st.sampled_from(["key", "a/b", "~"]), schemes, max_size=2))
    for holder in (card, card["skills"][0]):
        put(holder, "security", [], [{}], [{"key": []}], [{"key": ["read"]}], [{"key": [""]}, {"~": ["x"], "key": []}])
        put(holder, "securityRequirements", [{"schemes": {"key": {"list": ["read"]}}}], [{"schemes": {"key": {}}}])
    put(card["capabilities"], "extendedAgentCard", True, False)
    put(card, "supportsAuthenticatedExtendedCard", True, False)
    put(card, "url", card["supportedInterfaces"][0]["url"])
    put(card, "protocolVersion", "0.3.0")
    return card


@pytest.mark.real
@settings(max_examples=150)
@given(_merged_cards())
def test_a_signed_card_is_rejected_exactly_when_signing_says_that_it_is_rewritten(
    python_1_3_0: SdkProcess, card: Card
) -> None:
    try:
        signed = sign_card(card, SIGNER, companion=True)
    except MalformedError:  # its generations contradict each other
        reject()
    assert not generation_of(card).is_legacy
    key = SIGNER.public_key.to_jwk()
    assert python_1_3_0.refusal(json.dumps(signed.card), key) is None
    refusal = python_1_3_0.refusal(json.dumps(signed.card), key, reader="resolver")
    rewritten = rewritten_members({name: value for name, value in signed.card.items() if name != "signatures"})
    assert (refusal is not None) is bool(rewritten) is bool(signed.rejections)
