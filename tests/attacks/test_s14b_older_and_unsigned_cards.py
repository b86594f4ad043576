"""S14, the part that needs a memory: an older card after a newer one, an unsigned one after a signed one.

And whose memory it is: what one origin serves says nothing of another. P1 has the rules one by one.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from a2a_trust import CardVerifier, Origins, TrustedKey, TrustStore
from a2a_trust.client.memory import AdmittedCard
from a2a_trust.client.memory_store import SqliteCardMemory
from a2a_trust.client.verification import TrustOnFirstUse
from a2a_trust.errors import PinnedKeyError, RolledBackCardError, UnsignedCardError, UntrustedCardError
from a2a_trust.keys import LocalSigner
from tests.attacks.forgery import JSONObject, canonical, entry, served, signs, without_signatures
from tests.attacks.verifying import HOST, NOW, ORIGIN
from tests.client.memories import KINDS, Memory, memory_of


@pytest.fixture(params=KINDS)
def memory(request: pytest.FixtureRequest) -> Memory:
    return memory_of(request)


def signed(card: JSONObject, signer: LocalSigner, iat: float) -> bytes:
    header = {"alg": signer.alg, "kid": signer.kid, "iat": iat}
    return served(card, entry(header, canonical(card), signs(signer.private_key, signer.alg)))


def seen(memory: Memory, document: bytes, trust: TrustStore, origin: str = ORIGIN, now: float = NOW) -> AdmittedCard:
    """What a client does; its verifier remembers proofs, which lets no older card past the memory."""
    verified = CardVerifier(trust, clock=lambda: now).verify(document, origin=origin)
    return memory.admit(verified, origin, now=now)


def test_an_older_card_after_a_newer_one(
    memory: Memory, card: JSONObject, owner: LocalSigner, trust: TrustStore
) -> None:
    """The old one allowed what the new one forbids, and its signature is as good as ever."""
    old = signed({**card, "securityRequirements": []}, owner, NOW - 2000)
    new = signed(card, owner, NOW - 1000)
    verifier = CardVerifier(trust, clock=lambda: NOW)
    for document in (old, old, new, new):
        verified = verifier.verify(document, origin=ORIGIN)
        memory.admit(verified, ORIGIN, now=NOW)
    verified = verifier.verify(old, origin=ORIGIN)
    with pytest.raises(RolledBackCardError, match="an older card came after a newer one"):
        memory.admit(verified, ORIGIN, now=NOW)


def test_signatures_in_another_order_make_no_card_newer_or_older(
    memory: Memory, card: JSONObject, owner: LocalSigner, ed_owner: LocalSigner, trust: TrustStore
) -> None:
    """Nobody signs their order: a mirror that turns it round must not close the way of the honest card."""
    entries = [
        entry(
            {"alg": signer.alg, "kid": signer.kid, "iat": iat}, canonical(card), signs(signer.private_key, signer.alg)
        )
        for signer, iat in ((owner, NOW - 1000), (ed_owner, NOW - 10))
    ]
    for order in (entries, entries[::-1], entries):
        seen(memory, served(card, *order), trust)
    with pytest.raises(RolledBackCardError):
        seen(memory, served(card, entries[0]), trust)


def test_the_way_back_stays_closed_in_another_process(
    card: JSONObject, owner: LocalSigner, trust: TrustStore, tmp_path: Path
) -> None:
    seen(SqliteCardMemory(tmp_path / "cards.db", create=True), signed(card, owner, NOW - 1000), trust)
    again = SqliteCardMemory(tmp_path / "cards.db")
    with pytest.raises(RolledBackCardError, match=f"a2a-sign memory forget --file .*cards.db https://{HOST}"):
        seen(again, signed(card, owner, NOW - 2000), trust)
    assert again.expects_signature(ORIGIN)


@pytest.mark.parametrize("signatures", ["absent", None, [], {}, ""])
def test_an_unsigned_card_after_a_signed_one(
    memory: Memory, card: JSONObject, owner: LocalSigner, trust: TrustStore, signatures: object
) -> None:
    bare = without_signatures(card) | ({} if signatures == "absent" else {"signatures": signatures})
    document = json.dumps(bare).encode()
    assert not memory.expects_signature(ORIGIN)
    with pytest.raises(UnsignedCardError):
        seen(memory, document, trust)
    assert not memory.expects_signature(ORIGIN)  # an agent that never signed is no attack
    seen(memory, signed(card, owner, NOW - 1000), trust)
    before = memory.records()
    with pytest.raises(UnsignedCardError):
        seen(memory, document, trust)
    for origin in (ORIGIN, HOST, f"https://{HOST.upper()}:443/.well-known/agent.json", f"HTTPS://{HOST}?x"):
        assert memory.expects_signature(origin)
    assert memory.records() == before


def test_the_card_of_another_host_leaves_no_trace_in_the_memory_of_either(
    memory: Memory, card: JSONObject, owner: LocalSigner, mallory: LocalSigner
) -> None:
    trust = TrustStore(
        [
            TrustedKey(key=owner.public_key, origins=Origins(HOST)),
            TrustedKey(key=mallory.public_key, origins=Origins("evil.example")),
        ]
    )
    seen(memory, signed(card, owner, NOW - 1000), trust)
    before = memory.records()
    for document, origin in (
        (signed(card, owner, NOW), "https://evil.example"),
        (signed(card, mallory, NOW), "https://evil.example"),
        (signed(card, mallory, NOW), ORIGIN),
    ):
        with pytest.raises(UntrustedCardError):
            seen(memory, document, trust, origin)
        assert memory.records() == before


def test_two_ports_and_two_schemes_are_two_origins(memory: Memory, card: JSONObject, owner: LocalSigner) -> None:
    """Another service of the same machine: what it serves binds it, and frees nobody else."""
    places = (f"https://{HOST}", f"https://{HOST}:8443", f"http://{HOST}", f"http://{HOST}:8443")
    tofu, nobody = TrustOnFirstUse(), TrustStore(())
    keys = tofu.trust_store([owner.public_key], ORIGIN, nobody)
    for number, place in enumerate(places):
        assert not memory.expects_signature(place)
        card["supportedInterfaces"] = [{**card["supportedInterfaces"][0], "url": f"{place}/rpc"}]
        admitted = seen(memory, signed(card, owner, NOW - number), keys, f"{place}/.well-known/agent-card.json")
        assert (admitted.before, admitted.remembered.location) == (None, place)
    assert [record.location for record in memory.records()] == sorted(places)


def test_another_way_to_write_an_origin_is_no_first_use(
    memory: Memory, card: JSONObject, owner: LocalSigner, mallory: LocalSigner
) -> None:
    tofu, nobody = TrustOnFirstUse(), TrustStore(())
    seen(memory, signed(card, owner, NOW), tofu.trust_store([owner.public_key], ORIGIN, nobody))
    for origin in (
        HOST,
        f"{HOST}:443",
        f"https://{HOST.upper()}",
        f"HTTPS://{HOST}/",
        f"https://{HOST}:443/?b#c",
        f"https://{HOST}:00443",
    ):
        keys = tofu.trust_store([mallory.public_key], origin, nobody)
        with pytest.raises(PinnedKeyError):
            seen(memory, signed(card, mallory, NOW), keys, origin)
