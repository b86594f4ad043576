"""S17: one party cannot satisfy a policy of two parties.

Measured here: a policy named kids, and the operator of one listed key set chose the kids in it. So the bank published
a key of its own under the auditor's kid (of another key type, or selected by ``jku``), and met a policy of bank and
auditor alone.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from a2a_trust import (
    ConfigurationError,
    LocalSigner,
    Origins,
    PolicyNotMetError,
    TrustedKey,
    TrustStore,
    all_of,
    generate_signer,
    n_of,
    sign_card,
)
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.keyset import KeySet
from a2a_trust.keys.policy import Policy
from a2a_trust.keys.trust_file import read_trust
from tests.attacks.forgery import JSONObject, pruned
from tests.attacks.proving import HOST, proven, refusal

BANK_SET, AUDITOR_SET = "https://bank.example/jwks.json", "https://auditor.example/jwks.json"
BANK, BANK_2 = generate_signer(kid="bank"), generate_signer(kid="bank-2")
AUDITOR = generate_signer(kid="auditor")
#: Keys of the bank under the auditor's kid, of the same type and of others.
POSING = [generate_signer(alg, kid="auditor") for alg in ("ES256", "EdDSA", "RS256")]
BOTH = n_of(2, "bank", "auditor")


@pytest.fixture
def card(card: JSONObject) -> JSONObject:
    """Without anything empty, so that every signer signs once."""
    return pruned(card)


def store(bank: list[LocalSigner], auditor: list[PublicKey], *, fetched: bool = True) -> TrustStore:
    """The trust of somebody who listed two key sets, or wrote their keys down."""
    document = read_trust(
        f"""
        version = 1
        [[trust]]
        name = "bank"
        origins = ["{HOST}"]
        jwks_url = "{BANK_SET}"
        [[trust]]
        name = "auditor"
        origins = ["{HOST}"]
        {f'jwks_url = "{AUDITOR_SET}"' if fetched else 'keys = "auditor.json"'}
        """.encode(),
        "trust.toml",
    )
    return document.store(
        {"auditor.json": KeySet(keys=tuple(auditor))},
        {BANK_SET: tuple(signer.public_key for signer in bank), AUDITOR_SET: tuple(auditor)},
    )


def signed(card: JSONObject, *signers: LocalSigner, jku: str | None = None) -> JSONObject:
    for signer in signers:
        card = sign_card(card, signer, jku=jku).card
    return card


@pytest.mark.parametrize("fetched", [True, False])
@pytest.mark.parametrize("posing", POSING, ids=lambda signer: signer.alg)
@pytest.mark.parametrize("jku", [None, BANK_SET, AUDITOR_SET])
def test_a_key_of_the_bank_under_the_auditors_kid_is_the_banks(
    posing: LocalSigner, jku: str | None, fetched: bool, card: JSONObject
) -> None:
    trust = store([BANK, posing], [AUDITOR.public_key], fetched=fetched)
    refusal(PolicyNotMetError, signed(card, BANK, posing, jku=jku), trust, policy=BOTH)
    assert len(proven(signed(card, BANK, AUDITOR, jku=jku), trust, policy=BOTH).keys) == 2  # control


@pytest.mark.parametrize("posing", POSING, ids=lambda signer: signer.alg)
def test_the_auditors_own_key_stays_usable_beside_it(posing: LocalSigner, card: JSONObject) -> None:
    trust = store([BANK, posing], [AUDITOR.public_key])
    assert proven(signed(card, AUDITOR), trust).key == AUDITOR.public_key
    assert proven(signed(card, posing), trust).key == posing.public_key


def test_the_auditors_key_in_the_banks_set_counts_for_one_of_them(card: JSONObject) -> None:
    """Publishing another's key neither doubles it nor takes it away."""
    trust = store([BANK, AUDITOR], [AUDITOR.public_key])
    refusal(PolicyNotMetError, signed(card, AUDITOR), trust, policy=BOTH)
    for order in itertools.permutations([BANK, AUDITOR]):
        assert len(proven(signed(card, *order), trust, policy=BOTH).keys) == 2


def test_two_keys_of_one_entry_are_one_party(card: JSONObject) -> None:
    trust = store([BANK, BANK_2], [AUDITOR.public_key])
    by_two = signed(card, BANK, BANK_2)
    for policy in (BOTH, n_of(2, "bank", BANK_2.public_key.thumbprint), n_of(2, "bank", BANK.public_key.thumbprint)):
        refusal(PolicyNotMetError, by_two, trust, policy=policy)
    thumbprints = (BANK.public_key.thumbprint, BANK_2.public_key.thumbprint)
    assert len(proven(by_two, trust, policy=all_of(*thumbprints)).keys) == 2  # named one by one


def test_one_key_under_two_kids_or_twice_is_one(card: JSONObject) -> None:
    alias = LocalSigner(BANK.private_key, kid="alias")
    trust = TrustStore(
        [
            TrustedKey(key=BANK.public_key, origins=Origins(HOST), name="bank"),
            TrustedKey(key=alias.public_key, origins=Origins(HOST), name="other"),
        ]
    )
    twice = sign_card(signed(card, BANK, alias), BANK, iat=5).card
    refusal(PolicyNotMetError, twice, trust, policy=n_of(2, "bank", "other"))
    refusal(PolicyNotMetError, signed(card, BANK), trust, policy=n_of(2, "bank", "other"))


def test_equal_signatures_of_one_key_do_not_add_up(card: JSONObject) -> None:
    trust = store([BANK], [AUDITOR.public_key])
    made = signed(card, BANK)
    again = {**made, "signatures": made["signatures"] * 3}
    refusal(PolicyNotMetError, again, trust, policy=BOTH)


@pytest.mark.parametrize("policy", [n_of(1, "auditor-1"), all_of("bank", "bank-2")])
def test_a_policy_that_names_a_kid_is_a_mistake(policy: Policy, card: JSONObject) -> None:
    trust = store([BANK, BANK_2], [AUDITOR.public_key])
    with pytest.raises(ConfigurationError, match="never by kid"):
        proven(signed(card, BANK, BANK_2), trust, policy=policy)


@pytest.mark.parametrize(
    ("parties", "what"),
    [
        ('["bank", "auditor-1"]', "no .*trust.* has the name 'auditor-1'"),
        ('["bank", "bank"]', None),
    ],
)
def test_a_trust_file_whose_policy_names_a_kid_does_not_load(parties: str, what: str | None, tmp_path: Path) -> None:
    text = f"""
        version = 1
        [[trust]]
        name = "bank"
        origins = ["{HOST}"]
        jwks_url = "{BANK_SET}"
        [[policy]]
        origins = ["{HOST}"]
        parties = {parties}
        """.encode()
    if what is None:
        assert read_trust(text, "trust.toml").policies[0].policy.count == 1  # one party named twice is one
        return
    with pytest.raises(ConfigurationError, match=what):
        read_trust(text, "trust.toml")


def test_one_name_on_two_entries_does_not_load() -> None:
    entry = f'[[trust]]\nname = "bank"\norigins = ["{HOST}"]\njwks_url = "{BANK_SET}"\n'
    with pytest.raises(ConfigurationError, match="has this name already"):
        read_trust(f"version = 1\n{entry}{entry}".encode(), "trust.toml")
