"""What a registry does: many cards, no network, and every refusal counted by a word and not by its text."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from a2a_trust import (
    CardVerificationError,
    CardVerifier,
    ConfigurationError,
    MalformedError,
    Origins,
    TrustedKey,
    TrustStore,
    generate_signer,
    sign_card,
)
from a2a_trust.base.strict_json import MAX_BYTES
from a2a_trust.errors import FailureReason
from a2a_trust.keys import SigningTool, n_of
from a2a_trust.signing import Form
from tests.attacks.recording import events_outside
from tests.signing.cards import Card, full_card
from tests.signing.making import entry, served, signed_in, trusted
from tests.tables import walk

NOW = 1_800_000_000.0
HOST = "agent.example.com"
ALICE, BOB, OLD, GONE, UNKNOWN_TOOL, SDK, STRANGER = (
    generate_signer(kid=name) for name in ("alice", "bob", "old", "gone", "tool", "sdk", "stranger")
)
TRUST = TrustStore(
    [
        trusted(ALICE, HOST),
        trusted(BOB, HOST),
        trusted(OLD, HOST, not_after=NOW - 1),
        trusted(GONE, HOST, revoked=True),
        trusted(UNKNOWN_TOOL, HOST, signer=None),
        TrustedKey(key=SDK.public_key, origins=Origins(HOST), signer=SigningTool.A2A_JS),
    ]
)


def card(**members: Any) -> Card:
    interface = {"url": f"https://{HOST}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    return {**full_card(), "supportedInterfaces": [interface], **members}


def with_header(**header: Any) -> bytes:
    signed = sign_card(card(), ALICE).card
    return served({**signed, "signatures": [{**entry(ALICE, b"{}", **header)}]})


GOOD = served(sign_card(card(), ALICE, BOB).card)
#: A card, the word for its refusal, and the words for its signatures.
REFUSED: dict[str, tuple[bytes, str, list[str]]] = {
    "no JSON": (b"{", "malformed", []),
    "twice the same member": (b'{"name": "a", "name": "b"}', "malformed", []),
    "another encoding": ("\ufeff{}".encode(), "malformed", []),
    "too large": (b" " * (MAX_BYTES + 1), "malformed", []),
    "not read alike by all": (served(card(Name="b")), "malformed", []),
    "no signatures": (served(card()), "unsigned", []),
    "no list of signatures": (served(card(signatures={})), "unsigned", []),
    "unreadable signature": (served(card(signatures=[{}])), "not-verified", ["malformed"]),
    "changed": (
        served({**sign_card(card(), ALICE).card, "name": "Mallory"}), "not-verified", ["bad-signature"],
    ),
    "expired": (served(sign_card(card(), ALICE, exp=int(NOW) - 1).card), "not-verified", ["expired"]),
    "of the future": (served(sign_card(card(), ALICE, iat=int(NOW) + 99).card), "not-verified", ["not-yet-valid"]),
    "another algorithm": (with_header(alg="RS256"), "untrusted", ["unknown-key"]),
    "no algorithm of ours": (with_header(alg="none"), "not-verified", ["wrong-algorithm"]),
    "by a stranger": (served(sign_card(card(), STRANGER).card), "untrusted", ["unknown-key"]),
    "by an unknown tool": (served(signed_in(card(), Form.SERVED, UNKNOWN_TOOL)), "partial", ["partial"]),
    "by a key of the past": (served(sign_card(card(), OLD).card), "untrusted", ["key-not-valid-now"]),
    "by a revoked key": (served(sign_card(card(), GONE).card), "untrusted", ["revoked-key"]),
    "by too few": (served(sign_card(card(), ALICE).card), "policy", []),
}  # fmt: skip


def verifier(**options: Any) -> CardVerifier:
    return CardVerifier(TRUST, clock=lambda: NOW, **options)


def verdict(document: bytes, proves: CardVerifier, origin: str = f"https://{HOST}") -> tuple[str, list[str]]:
    """The words of a refusal, and nothing of its text."""
    with pytest.raises((MalformedError, CardVerificationError)) as error:
        proves.verify(document, origin=origin)
    failures = error.value.failures if isinstance(error.value, CardVerificationError) else ()
    return error.value.code, [failure.reason.value for failure in failures]


@walk("name", REFUSED)
def test_every_refusal_has_a_word(name: str) -> None:
    document, code, reasons = REFUSED[name]
    two = n_of(2, "alice", "bob") if code == "policy" else n_of(1, *(key.key.thumbprint for key in TRUST.keys))
    assert verdict(document, verifier(policy=two)) == (code, reasons)


def test_cards_of_other_hosts_and_those_that_are_not_covered_have_words_too() -> None:
    assert verdict(GOOD, verifier(), "https://evil.example") == ("untrusted", ["wrong-origin", "wrong-origin"])
    open_ended = served(signed_in(card(securityRequirements=[{"schemes": {"bearer": {}}}]), Form.PRUNED, SDK))
    assert verdict(open_ended, verifier()) == ("uncovered", [])
    full = sign_card(card(securityRequirements=[{"schemes": {"bearer": {"list": []}}}]), ALICE, companion=True).card
    assert verdict(served({**full, "signatures": full["signatures"][1:]}), verifier()) == ("untrusted", ["companion"])


def test_every_word_for_a_signature_is_seen_here() -> None:
    seen = {reason for _, _, reasons in REFUSED.values() for reason in reasons}
    assert seen | {"wrong-origin", "companion"} == set(FailureReason)


def test_a_registry_counts_without_network_and_without_reading_english() -> None:
    proves = verifier(policy=n_of(2, "alice", "bob"))
    documents = [document for document, _, _ in REFUSED.values()] + [GOOD] * 5
    counted: Counter[str] = Counter()
    with events_outside() as events:
        for document in documents:
            try:
                proves.verify(document, origin=HOST)
            except (MalformedError, CardVerificationError) as error:
                counted[error.code] += 1
            else:
                counted["ok"] += 1
    assert counted["ok"] == 5
    assert counted["malformed"] == 5
    assert sum(counted.values()) == len(documents)
    assert events == []


def test_an_origin_that_is_none_is_the_registrys_own_mistake() -> None:
    with pytest.raises(ConfigurationError, match=r"^origin: write the URL"):
        verifier().verify(GOOD, origin="not a host")


def test_what_is_not_covered_is_named_by_pointers() -> None:
    document = json.loads(served(signed_in(card(), Form.PRUNED, SDK)))
    with pytest.raises(CardVerificationError) as error:
        verifier().verify(json.dumps({**document, "x": 1}).encode(), origin=HOST)
    assert getattr(error.value, "pointers", None) == ("/x",)
