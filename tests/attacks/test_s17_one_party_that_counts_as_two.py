"""S17: one party cannot satisfy a policy of two parties.

Measured here: a policy named kids, and the operator of one listed key set chose the kids in it. So the bank published
a key of its own under the auditor's kid (of another key type, or selected by ``jku``), and met a policy of bank and
auditor alone.
"""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from a2a_trust import ConfigurationError, Origins, TrustedKey, TrustStore, generate_signer, sign_card
from a2a_trust.errors import PolicyNotMetError, UncoveredFieldsError
from a2a_trust.keys import LocalSigner, SigningTool, all_of, n_of
from a2a_trust.keys.jwk import KeySet, PublicKey, public_key_from_object
from a2a_trust.keys.trust.file import read_trust
from a2a_trust.keys.trust.policy import Policy
from a2a_trust.signing import Coverage
from a2a_trust.signing.forms import Form, project
from tests.attacks.forgery import JSONObject, b64, canonical, entry, pruned, served, signs, unb64
from tests.attacks.verifying import HOST, refusal, verified
from tests.tables import walk

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


@walk("fetched", [True, False])
@walk("posing", POSING, ids=lambda signer: signer.alg)
@walk("jku", [None, BANK_SET, AUDITOR_SET])
def test_a_key_of_the_bank_under_the_auditors_kid_is_the_banks(
    posing: LocalSigner, jku: str | None, fetched: bool, card: JSONObject
) -> None:
    trust = store([BANK, posing], [AUDITOR.public_key], fetched=fetched)
    refusal(PolicyNotMetError, signed(card, BANK, posing, jku=jku), trust, policy=BOTH)
    assert len(verified(signed(card, BANK, AUDITOR, jku=jku), trust, policy=BOTH).keys) == 2  # control


@pytest.mark.parametrize("posing", POSING, ids=lambda signer: signer.alg)
def test_the_auditors_own_key_stays_usable_beside_it(posing: LocalSigner, card: JSONObject) -> None:
    trust = store([BANK, posing], [AUDITOR.public_key])
    assert verified(signed(card, AUDITOR), trust).key == AUDITOR.public_key
    assert verified(signed(card, posing), trust).key == posing.public_key


def test_the_auditors_key_in_the_banks_set_counts_for_one_of_them(card: JSONObject) -> None:
    """Publishing another's key neither doubles it nor takes it away."""
    trust = store([BANK, AUDITOR], [AUDITOR.public_key])
    refusal(PolicyNotMetError, signed(card, AUDITOR), trust, policy=BOTH)
    for order in itertools.permutations([BANK, AUDITOR]):
        assert len(verified(signed(card, *order), trust, policy=BOTH).keys) == 2


def test_two_keys_of_one_entry_are_one_party(card: JSONObject) -> None:
    trust = store([BANK, BANK_2], [AUDITOR.public_key])
    by_two = signed(card, BANK, BANK_2)
    for policy in (BOTH, n_of(2, "bank", BANK_2.public_key.thumbprint), n_of(2, "bank", BANK.public_key.thumbprint)):
        refusal(PolicyNotMetError, by_two, trust, policy=policy)
    thumbprints = (BANK.public_key.thumbprint, BANK_2.public_key.thumbprint)
    assert len(verified(by_two, trust, policy=all_of(*thumbprints)).keys) == 2  # named one by one


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
        verified(signed(card, BANK, BANK_2), trust, policy=policy)


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


# What is verified is what all of them signed


def by_hand(signer: LocalSigner, payload: bytes, iat: int) -> JSONObject:
    header = {"alg": signer.alg, "kid": signer.kid, "iat": iat}
    return entry(header, payload, signs(signer.private_key, signer.alg))


def two_sdks() -> TrustStore:
    return TrustStore(
        TrustedKey(key=signer.public_key, origins=Origins(*hosts), name=name, signer=SigningTool.A2A_PYTHON)
        for signer, name, hosts in ((BANK, "bank", (HOST, "evil.example.net")), (AUDITOR, "auditor", (HOST,)))
    )


@pytest.mark.parametrize("count", [3, 120])
@pytest.mark.parametrize("latest", ["bank", "auditor"])
def test_members_that_one_party_signed_alone_are_not_verified_by_two(count: int, latest: str, card: JSONObject) -> None:
    """Both leave out more members than are named: how many are named must not decide which proof is the weaker."""
    skill = {"id": "s", "name": "n", "description": "d", "tags": ["t"], "examples": []}
    honest = {**card, "skills": [{**skill, "id": str(number)} for number in range(count)]}
    changed = {**honest, "url": "https://evil.example.net/rpc", "preferredTransport": "JSONRPC"}
    iat = {"bank": 5, "auditor": 5, latest: 9}
    for form in (Form.SERVED, Form.SPEC):
        entries = [
            by_hand(BANK, project(changed, form).payload, iat["bank"]),
            by_hand(AUDITOR, project(honest, Form.PRUNED).payload, iat["auditor"]),
        ]
        for order in itertools.permutations(entries):
            document = served(changed, *order)
            with pytest.raises(UncoveredFieldsError):
                verified(document, two_sdks(), policy=BOTH)
            part = verified(document, two_sdks(), policy=BOTH, coverage=Coverage.SIGNED_PART_ONLY)
            assert part.card == project(honest, Form.PRUNED).members
            assert part.unverified


def test_two_forms_that_do_not_contain_each_other_prove_nothing_together() -> None:
    legacy: JSONObject = {
        "name": "a",
        "url": f"https://{HOST}/rpc",
        "preferredTransport": "GRPC",
        "security": [{"x": ["s"]}],
        "capabilities": {"streaming": True, "extendedAgentCard": True},
        "securityRequirements": [{"schemes": {"x": {"list": ["only-the-bank"]}}}],
    }
    document = served(
        legacy,
        by_hand(BANK, project(legacy, Form.PRUNED).payload, 1),
        by_hand(AUDITOR, project(legacy, Form.V0_3_PYTHON).payload, 1),
    )
    with pytest.raises(PolicyNotMetError, match="different parts of this card"):
        verified(document, two_sdks(), policy=BOTH, coverage=Coverage.SIGNED_PART_ONLY)


def _second_key(signer: LocalSigner, signed: JSONObject) -> PublicKey:
    """Another P-256 key under which the signature verifies: r, s and the hash determine two of them (SEC 1 4.1.6)."""
    p, n = 2**256 - 2**224 + 2**192 + 2**96 - 1, 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    b = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
    g = (
        0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
        0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
    )

    def add(one: tuple[int, int] | None, two: tuple[int, int] | None) -> tuple[int, int] | None:
        if one is None or two is None:
            return two if one is None else one
        if one[0] == two[0] and (one[1] + two[1]) % p == 0:
            return None
        top, bottom = (3 * one[0] ** 2 - 3, 2 * one[1]) if one == two else (two[1] - one[1], two[0] - one[0])
        slope = top * pow(bottom, -1, p) % p
        x = (slope**2 - one[0] - two[0]) % p
        return x, (slope * (one[0] - x) - one[1]) % p

    def times(count: int, point: tuple[int, int]) -> tuple[int, int] | None:
        total, step = None, point
        while count:
            total = add(total, step) if count & 1 else total
            count, doubled = count >> 1, add(step, step)
            step = doubled or step
        return total

    payload = canonical({name: value for name, value in signed.items() if name != "signatures"})
    (made,) = signed["signatures"]
    octets = unb64(made["signature"])
    r, s = int.from_bytes(octets[:32], "big"), int.from_bytes(octets[32:], "big")
    digest = hashlib.sha256(made["protected"].encode() + b"." + b64(payload).encode()).digest()
    y = pow(r**3 - 3 * r + b, (p + 1) // 4, p)
    inverse = pow(r, -1, n)
    for point in ((r, y), (r, p - y)):
        found = add(times(s * inverse % n, point), times(-int.from_bytes(digest, "big") * inverse % n, g))
        assert found is not None
        key = ec.EllipticCurvePublicNumbers(*found, ec.SECP256R1()).public_key()
        public = public_key_from_object(key, kid=signer.kid)
        if public.thumbprint != signer.public_key.thumbprint:
            return public
    raise AssertionError


def test_one_signature_that_two_keys_verify_is_one(card: JSONObject) -> None:
    """From the auditor's signature the bank computes another key of it, and publishes that under the auditor's kid."""
    made = signed(card, AUDITOR)
    trust = TrustStore(
        [
            TrustedKey(key=AUDITOR.public_key, origins=Origins(HOST), name="auditor"),
            TrustedKey(key=_second_key(AUDITOR, made), origins=Origins(HOST), name="bank", source=BANK_SET),
            TrustedKey(key=BANK.public_key, origins=Origins(HOST), name="bank", source=BANK_SET),
        ]
    )
    for party in ("auditor", "bank"):
        assert verified(made, trust, policy=n_of(1, party)).keys  # control: it verifies under both
    refusal(PolicyNotMetError, made, trust, policy=BOTH)
    assert len(verified(signed(made, BANK), trust, policy=BOTH).keys) == 2
