"""What is attacked: one realistic card, its owner's keys, and the keys of those who want to change it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from a2a_trust import Origins, TrustedKey, TrustStore, generate_signer, sign_card
from a2a_trust.keys import LocalSigner, SigningTool
from tests.attacks.calling import EVIL, VICTIM, Ask, Servers, asking
from tests.attacks.forgery import JSONObject, canonical, entry, pruned, signs, without_signatures
from tests.attacks.verifying import HOST
from tests.base.net.test_fetcher import Authority
from tests.cheap_hashes import cheap_hashes
from tests.client.agents import Page, serving_agent

__all__ = ["cheap_hashes"]

#: Every member that a pruned form drops is somewhere in it: requirements without scopes, a mutual TLS scheme without
#: description, an empty allow-list.
_CARD: JSONObject = {
    "name": "Ledger agent",
    "description": "Books invoices and answers questions about them – for people in the finance department.",
    "version": "2.3.1",
    "supportedInterfaces": [
        {"url": f"https://{HOST}/a2a/v1", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": f"{HOST}:8443", "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": "finance"},
    ],
    "provider": {"url": "https://www.example.com", "organization": "Example Finance"},
    "capabilities": {
        "streaming": True,
        "pushNotifications": False,
        "extensions": [
            {"uri": "https://example.com/ext/limits", "required": True, "params": {"allowed": [], "level": 3}},
        ],
    },
    "securitySchemes": {
        "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}},
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
        "mtls": {"mtlsSecurityScheme": {}},
        "oauth": {
            "oauth2SecurityScheme": {
                "flows": {
                    "clientCredentials": {
                        "tokenUrl": "https://login.example.com/token",
                        "scopes": {"read": "Read the ledger", "write": "Write to the ledger"},
                    }
                }
            }
        },
    },
    "securityRequirements": [
        {"schemes": {"oauth": {"list": ["read"]}, "mtls": {}}},
        {"schemes": {"bearer": {}, "key": {}}},
        {"schemes": {"mtls": {}}},
    ],
    "defaultInputModes": ["text/plain", "application/json"],
    "defaultOutputModes": ["application/json"],
    "skills": [
        {
            "id": "post",
            "name": "Post an invoice",
            "description": "Writes one invoice to the ledger.",
            "tags": ["ledger", "write"],
            "examples": ["Post invoice 4711"],
            "securityRequirements": [{"schemes": {"mtls": {}}}],
        },
        {"id": "ask", "name": "Ask", "description": "Answers questions.", "tags": ["ledger"]},
    ],
}


@pytest.fixture(autouse=True)
def _cheap(cheap_hashes: None) -> None:
    """What hashes cost is counted here: tests/auth/basic makes real ones."""


@pytest.fixture
def card() -> JSONObject:
    """The owner's card without signatures: yours to change."""
    return copy.deepcopy(_CARD)


@pytest.fixture(scope="session")
def owner() -> LocalSigner:
    """The key that is trusted for HOST."""
    return generate_signer("ES256", kid="owner")


@pytest.fixture(scope="session")
def rsa_owner() -> LocalSigner:
    return generate_signer("RS256", kid="rsa-owner", rsa_bits=2048)


@pytest.fixture(scope="session")
def ed_owner() -> LocalSigner:
    return generate_signer("EdDSA", kid="ed-owner")


@pytest.fixture(scope="session")
def p384_owner() -> LocalSigner:
    return generate_signer("ES384", kid="p384-owner")


@pytest.fixture(scope="session")
def mallory() -> LocalSigner:
    """A key that nobody trusts."""
    return generate_signer("ES256", kid="mallory")


@pytest.fixture(scope="session")
def trust(owner: LocalSigner, rsa_owner: LocalSigner, ed_owner: LocalSigner, p384_owner: LocalSigner) -> TrustStore:
    """All the owner's keys, for the owner's host; of none is it said which tool signs with it.

    The party of the kid ``owner`` is named ``party-owner``: a policy that means the kid names nothing.
    """
    signers = (owner, rsa_owner, ed_owner, p384_owner)
    return TrustStore(
        TrustedKey(key=signer.public_key, origins=Origins(HOST), name=f"party-{signer.kid}") for signer in signers
    )


@pytest.fixture(scope="session")
def sdk_trust(owner: LocalSigner) -> TrustStore:
    """The owner's key, of which it is said that a2a-python signs with it: in every pruned form there is."""
    return TrustStore([TrustedKey(key=owner.public_key, origins=Origins(HOST), signer=SigningTool.A2A_PYTHON)])


@pytest.fixture(scope="session")
def whole_trust(owner: LocalSigner) -> TrustStore:
    """The owner's key, of which it is said that its tool signs complete cards."""
    return TrustStore([TrustedKey(key=owner.public_key, origins=Origins(HOST), signer=SigningTool.WHOLE)])


@pytest.fixture
def payload(card: JSONObject) -> bytes:
    """What the owner signs: the card has nothing that the form ``served`` and the form ``spec`` print differently."""
    return canonical(card)


@pytest.fixture
def good(payload: bytes, owner: LocalSigner) -> JSONObject:
    """A signature by the owner, made by hand."""
    return entry({"alg": "ES256", "kid": "owner", "typ": "JOSE"}, payload, signs(owner.private_key, "ES256"))


@pytest.fixture(scope="session")
def signed_card(owner: LocalSigner) -> JSONObject:
    """The card as ``sign_card`` signs it: the full signature, and the companion for other SDKs."""
    signed = sign_card(_CARD, owner, companion=True).card
    assert [len(signed["signatures"]), without_signatures(signed)] == [2, _CARD]
    return signed


@pytest.fixture(scope="session")
def sdk_payload() -> bytes:
    """What an SDK that prunes signs of the card."""
    return canonical(pruned(_CARD))


@pytest.fixture(scope="session")
def sdk_signature(sdk_payload: bytes, owner: LocalSigner) -> JSONObject:
    """The one signature that such an SDK makes."""
    return entry({"alg": "ES256", "kid": "owner", "typ": "JOSE"}, sdk_payload, signs(owner.private_key, "ES256"))


@pytest.fixture(scope="session")
def tls_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def servers(tls_authority: Authority) -> Iterator[Servers]:
    """The victim's agent and authorization server, and the attacker's server, which answers to everything."""
    tls = tls_authority.server(VICTIM, EVIL)
    with serving_agent(tls) as agent, serving_agent(tls) as thief, serving_agent(tls) as login:
        agent.pages["/rpc"] = thief.pages["/rpc"] = thief.pages["/steal"] = Page(body=b"{}")
        yield Servers(agent, thief, login, tls_authority)


@pytest.fixture
def bundle(tls_authority: Authority, tmp_path: Path) -> Path:
    """A file with the authority of the servers, for ``authorities=``."""
    path = tmp_path / "authorities.pem"
    path.write_bytes(tls_authority.certificate.public_bytes(Encoding.PEM))
    return path


@pytest.fixture(params=["sync", "async"])
def asks(request: pytest.FixtureRequest, tls_authority: Authority) -> Ask:
    return asking(request.param, tls_authority)
