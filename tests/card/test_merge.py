"""Merged cards: both halves say the same, whatever the 1.0 half says."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from a2a_trust.card.merge import merged_card
from a2a_trust.card.view import read_card
from a2a_trust.errors import MalformedError
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust.origins import Origins
from a2a_trust.keys.trust.store import TrustedKey, TrustStore
from a2a_trust.signing.sign import sign_card
from a2a_trust.signing.verify import verify_card
from tests.tables import walk

FLOWS = {
    "deviceCode": {
        "deviceAuthorizationUrl": "https://idp.example/device",
        "tokenUrl": "https://idp.example/token",
        "scopes": {"read": "Read"},
    }
}
CARD: dict[str, Any] = {
    "name": "Invoice Agent",
    "description": "Reads invoices.",
    "version": "1",
    "supportedInterfaces": [
        {"url": "https://invoice.example.com/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "https://invoice.example.com/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
    ],
    "capabilities": {"streaming": True, "extendedAgentCard": True},
    "securitySchemes": {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key", "description": "A key."}},
        "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}},
        "oauth": {"oauth2SecurityScheme": {"flows": FLOWS, "oauth2MetadataUrl": "https://idp.example/meta"}},
        "sso": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://idp.example/.well-known/openid"}},
        "mtls": {"mtlsSecurityScheme": {}},
    },
    "securityRequirements": [
        {"schemes": {"key": {"list": []}, "mtls": {}}},
        {"schemes": {"oauth": {"list": ["write", "read"]}}},
    ],
    "skills": [
        {"id": "a", "name": "a", "description": "a", "tags": []},
        {
            "id": "b",
            "name": "b",
            "description": "b",
            "tags": [],
            "securityRequirements": [{"schemes": {"sso": {"list": ["openid"]}}}],
        },
    ],
}


def test_what_clients_of_0_3_read() -> None:
    before = copy.deepcopy(CARD)
    merged = merged_card(CARD)
    assert before == CARD
    assert merged["url"] == "https://invoice.example.com/rpc"
    assert (merged["preferredTransport"], merged["protocolVersion"]) == ("JSONRPC", "0.3.0")
    assert merged["additionalInterfaces"] == [
        {"url": "https://invoice.example.com/rpc", "transport": "JSONRPC"},
        {"url": "https://invoice.example.com/rest", "transport": "HTTP+JSON"},
    ]
    assert merged["supportsAuthenticatedExtendedCard"] is True
    assert merged["security"] == [{"key": [], "mtls": []}, {"oauth": ["read", "write"]}]
    assert merged["skills"][1]["security"] == [{"sso": ["openid"]}]
    assert "security" not in merged["skills"][0]
    flat = {
        name: {member: value for member, value in scheme.items() if not member.endswith("SecurityScheme")}
        for name, scheme in merged["securitySchemes"].items()
    }
    assert flat == {
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "A key."},
        "bearer": {"type": "http", "scheme": "Bearer", "bearerFormat": "JWT"},
        "oauth": {"type": "oauth2", "flows": FLOWS, "oauth2MetadataUrl": "https://idp.example/meta"},
        "sso": {"type": "openIdConnect", "openIdConnectUrl": "https://idp.example/.well-known/openid"},
        "mtls": {"type": "mutualTLS"},
    }


def test_what_clients_of_1_0_read_stays() -> None:
    merged = merged_card(json.dumps(CARD).encode())
    assert {name: merged[name] for name in CARD if name not in ("securitySchemes", "skills")} == {
        name: value for name, value in CARD.items() if name not in ("securitySchemes", "skills")
    }
    for name, scheme in CARD["securitySchemes"].items():
        assert scheme.items() <= merged["securitySchemes"][name].items()
    view, other = read_card(CARD), read_card(merged)
    assert (view.schemes, view.requirements, view.skills) == (other.schemes, other.requirements, other.skills)


def test_interfaces_of_0_3_are_preferred() -> None:
    old = {"url": "https://invoice.example.com/old", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}
    merged = merged_card({**CARD, "supportedInterfaces": [*CARD["supportedInterfaces"], old]})
    assert merged["url"] == old["url"]
    assert merged["additionalInterfaces"] == [{"url": old["url"], "transport": "JSONRPC"}]
    assert len(merged["supportedInterfaces"]) == 3


def test_merging_again_changes_nothing() -> None:
    merged = merged_card(CARD)
    assert merged_card(merged) == merged


def test_a_card_that_says_little_stays_silent() -> None:
    merged = merged_card({"name": "x", "supportedInterfaces": CARD["supportedInterfaces"][:1]})
    assert not {"security", "securitySchemes", "supportsAuthenticatedExtendedCard"} & set(merged)


def test_signatures_are_left_out_and_the_merged_card_is_signed_whole() -> None:
    signer = generate_signer()
    merged = merged_card(sign_card(CARD, signer).card)
    assert "signatures" not in merged
    signed = sign_card(merged, signer).card
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("invoice.example.com"))])
    assert verify_card(
        json.dumps(signed).encode(), trust, origin="https://invoice.example.com", now=2e9
    ).card == json.loads(json.dumps(merged))


@walk(
    "change",
    [
        {"security": []},
        {"security": [{"key": []}]},
        {"supportsAuthenticatedExtendedCard": False},
        {"securitySchemes": {**CARD["securitySchemes"], "mtls": {"mtlsSecurityScheme": {}, "type": "http"}}},
    ],
    ids=str,
)
def test_a_half_that_says_something_else_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(MalformedError):
        merged_card({**CARD, **change})


@walk("card", [{}, b"[]", {"name": "x", "url": "https://a.example"}, {"supportedInterfaces": []}])
def test_only_cards_of_1_0_are_merged(card: Any) -> None:
    with pytest.raises(MalformedError):
        merged_card(card)


def test_every_real_card_of_1_0_is_merged_without_loss(vectors: Path) -> None:
    merged = 0
    for path in sorted((vectors / "cards").rglob("*.json")):
        card = json.loads(path.read_bytes())
        if isinstance(card, dict) and any(
            item.get("protocolBinding") for item in card.get("supportedInterfaces") or ()
        ):
            view, other = read_card(card), read_card(merged_card(card))
            assert (view.schemes, view.requirements, view.skills) == (other.schemes, other.requirements, other.skills)
            merged += 1
    assert merged == 48
