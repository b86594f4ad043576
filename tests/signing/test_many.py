"""Many cards: each as by the function for one card, in order, in whatever process."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from a2a_trust.base.workers import CHUNK
from a2a_trust.errors import ConfigurationError, MalformedError, SigningError, TrustError, UntrustedCardError
from a2a_trust.keys.jwk import PublicKey, public_key_from_jwk
from a2a_trust.keys.signer import LocalSigner, generate_signer
from a2a_trust.keys.trust.origins import OriginFromCard, UnsafeAnyOrigin
from a2a_trust.keys.trust.policy import all_of
from a2a_trust.keys.trust.store import TrustStore
from a2a_trust.signing.sign import SignedCard, sign_card, sign_cards
from a2a_trust.signing.verify import CardVerifier, Coverage, Document, Origin, VerifiedCard, verify_card, verify_cards
from tests.signing.cards import Card
from tests.signing.making import served, trusted
from tests.tables import walk

NOW = 1_800_000_000.0
ALICE, BOB = (generate_signer(kid=name) for name in ("alice", "bob"))
TRUST = TrustStore([trusted(ALICE, "*.agents.example.com", signer=None)])


def card(number: int) -> Card:
    host = f"agent-{number}.agents.example.com"
    return {
        "name": f"Agent {number}",
        "description": "Counts.",
        "supportedInterfaces": [{"url": f"https://{host}/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "version": "1",
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
    }


def given() -> Iterator[tuple[bytes, Origin]]:
    """Cards of all kinds: verified, changed, unsigned, of another host, unreadable; from a few signatures only."""
    signed = sign_card(card(0), ALICE).card
    kinds: list[tuple[bytes, Origin]] = [
        (served(signed), "https://agent-0.agents.example.com"),
        (served(signed), OriginFromCard()),
        (served(signed), UnsafeAnyOrigin()),
        (served({**signed, "version": "2"}), OriginFromCard()),
        (served(card(0)), OriginFromCard()),
        (served(signed), "https://other.example.com"),
        (served(sign_card(card(1), BOB).card), OriginFromCard()),
        (b'{"name": "x", "name": "y"}', OriginFromCard()),
        (b"", "https://agent-0.agents.example.com"),
        (served(signed), "not a host"),
    ]
    for number in range(2 * CHUNK + 7):
        yield kinds[number % len(kinds)]


def one_by_one() -> Iterator[VerifiedCard | TrustError]:
    for document, origin in given():
        try:
            yield verify_card(document, TRUST, origin=origin, now=NOW)
        except TrustError as error:
            yield error


def described(outcome: VerifiedCard | TrustError) -> Any:
    return outcome if isinstance(outcome, VerifiedCard) else (type(outcome), str(outcome), vars(outcome))


@walk("workers", [None, 1, 2, 3])
def test_many_cards_are_verified_as_one_card_is(workers: int | None) -> None:
    outcomes = list(verify_cards(given(), TRUST, now=NOW, workers=workers))
    assert list(map(described, outcomes)) == list(map(described, one_by_one()))
    assert {type(outcome).__name__ for outcome in outcomes} == {
        "VerifiedCard",
        "CardVerificationError",
        "UnsignedCardError",
        "UntrustedCardError",
        "MalformedError",
        "ConfigurationError",
    }


def test_a_program_with_threads_gets_the_same() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        outcomes = list(verify_cards(given(), TRUST, now=NOW, workers=2))
    finally:
        over.set()
        thread.join()
    assert list(map(described, outcomes)) == list(map(described, one_by_one()))


def test_policy_and_coverage_are_those_of_one_card() -> None:
    both = TrustStore([trusted(ALICE, "*.agents.example.com"), trusted(BOB, "*.agents.example.com")])
    once, twice = (served(sign_card(card(0), *signers).card) for signers in ([ALICE], [ALICE, BOB]))
    more = served({**sign_card(card(0), ALICE).card, "new": 1})
    outcomes = verify_cards(
        [(document, OriginFromCard()) for document in (once, twice)], both, policy=all_of("alice", "bob"), now=NOW
    )
    assert [type(outcome).__name__ for outcome in outcomes] == ["PolicyNotMetError", "VerifiedCard"]
    (outcome,) = verify_cards([(more, OriginFromCard())], both, coverage=Coverage.SIGNED_PART_ONLY, now=NOW)
    assert not isinstance(outcome, VerifiedCard)  # the mark says that the whole card is signed


def test_wrong_arguments_are_errors_at_once() -> None:
    with pytest.raises(ConfigurationError, match="second argument"):
        verify_cards([], "trust.toml")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="policy"):
        verify_cards([], TRUST, policy=all_of("nobody"))
    with pytest.raises(ConfigurationError, match="workers"):
        verify_cards([], TRUST, workers=0)
    with pytest.raises(ConfigurationError, match="at least one signer"):
        sign_cards([])
    with pytest.raises(ConfigurationError, match="jku"):
        sign_cards([], ALICE, jku="http://example.com")


@pytest.mark.parametrize("workers", [1, 2])
def test_many_cards_are_signed_as_one_card_is(workers: int) -> None:
    documents = [served(card(number)) for number in range(CHUNK + 20)]
    documents[3] = b'{"name": "x", "name": "y"}'
    documents[5] = served({**card(5), "supportedInterfaces": [{"url": "dns:///x", "protocolBinding": "GRPC"}]})
    outcomes = list(sign_cards(documents, ALICE, BOB, iat=NOW, exp=NOW + 60, workers=workers))
    assert [number for number, outcome in enumerate(outcomes) if not isinstance(outcome, SignedCard)] == [3, 5]
    assert [type(outcomes[number]) for number in (3, 5)] == [MalformedError, SigningError]
    for number, outcome in enumerate(outcomes):
        if isinstance(outcome, SignedCard):
            assert outcome.payload == sign_card(documents[number], ALICE).payload
            verified = verify_card(served(outcome.card), TRUST, origin=OriginFromCard(), now=NOW)
            assert (verified.issued, verified.valid_until) == (NOW, NOW + 60)


def test_a_private_key_stays_where_it_is() -> None:
    """No pipe gets it: a worker is a fork, and a process that cannot be forked signs alone."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        documents = [served(card(number)) for number in range(CHUNK + 1)]
        assert all(isinstance(outcome, SignedCard) for outcome in sign_cards(documents, ALICE, workers=2))
    finally:
        over.set()
        thread.join()
    with pytest.raises(TypeError):
        pickle.dumps(ALICE)


def limited() -> PublicKey:
    return public_key_from_jwk({**BOB.public_key.to_jwk(), "nbf": 5, "exp": 7.5, "revoked": True})


@walk(
    "key",
    [
        ALICE.public_key,
        limited(),
        generate_signer("EdDSA").public_key,
        generate_signer("ES512").public_key,
        LocalSigner(rsa.generate_private_key(65537, 2048), kid="r").public_key,
        LocalSigner(rsa.generate_private_key(65537, 2048), alg="PS384", algorithms=("PS384", "PS512")).public_key,
    ],
    ids=lambda key: f"{key.alg} {key.algorithms}",
)
def test_a_public_key_is_the_same_in_another_process(key: PublicKey) -> None:
    copied = pickle.loads(pickle.dumps(key))
    assert copied == key
    for member in ("alg", "kid", "thumbprint", "jwk", "algorithms", "not_before", "not_after", "revoked"):
        assert getattr(copied, member) == getattr(key, member)
    assert copied.to_pem() == key.to_pem()


def verify_alone(document: Document, origin: Origin) -> VerifiedCard:
    return verify_card(document, TRUST, origin=origin, now=NOW)


def verify_among_others(document: Document, origin: Origin) -> VerifiedCard:
    (outcome,) = verify_cards([(document, origin)], TRUST, now=NOW)
    if isinstance(outcome, TrustError):
        raise outcome
    return outcome


def verify_with_a_cache(document: Document, origin: Origin) -> VerifiedCard:
    verifier = CardVerifier(TRUST, clock=lambda: NOW)
    first = verifier.verify(document, origin=origin)
    assert verifier.verify(document, origin=origin) is first
    return first


VERIFIERS = [verify_alone, verify_among_others, verify_with_a_cache]


@pytest.mark.parametrize("verify", VERIFIERS)
@pytest.mark.parametrize(
    "origin", ["agent-1.agents.example.com", "https://agent-1.agents.example.com/a", OriginFromCard()]
)
def test_every_verifier_takes_the_same_documents_and_origins(
    verify: Callable[[Document, Origin], VerifiedCard], origin: Origin, tmp_path: Path
) -> None:
    document = served(sign_card(card(1), ALICE).card)
    file = tmp_path / "card.json"
    file.write_bytes(document)
    outcomes = [verify(each, origin) for each in (document, file, json.loads(document))]
    assert [each.card for each in outcomes] == [card(1)] * 3


@pytest.mark.parametrize("verify", VERIFIERS)
def test_every_verifier_rejects_the_same_documents(
    verify: Callable[[Document, Origin], VerifiedCard], tmp_path: Path
) -> None:
    document: Any
    for document in ("card.json", bytearray(b"{}"), None, tmp_path / "absent.json", tmp_path):
        with pytest.raises(ConfigurationError, match=r"as a Path or as a dict, and is|cannot be read"):
            verify(document, OriginFromCard())
    (tmp_path / "twice.json").write_text('{"name": "a", "name": "b"}')
    with pytest.raises(MalformedError):
        verify(tmp_path / "twice.json", OriginFromCard())


@pytest.mark.parametrize("verify", VERIFIERS)
def test_every_verifier_rejects_a_card_of_another_host(verify: Callable[[Document, Origin], VerifiedCard]) -> None:
    with pytest.raises(UntrustedCardError):
        verify(served(sign_card(card(1), ALICE).card), "https://elsewhere.example.com")


def test_a_cached_card_from_its_own_host_is_not_one_from_another() -> None:
    verifier, document = CardVerifier(TRUST, clock=lambda: NOW), served(sign_card(card(1), ALICE).card)
    verifier.verify(document, origin=OriginFromCard())
    with pytest.raises(UntrustedCardError):
        verifier.verify(document, origin="https://elsewhere.example.com")
