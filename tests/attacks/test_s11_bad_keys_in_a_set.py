"""S11: a set of keys is the work of strangers: one bad key must not take the good ones along, nor pass for one.

Seen in CVE-2026-102274 and CVE-2026-102275: a malformed key raised out of the whole set, halves that do not belong
together were taken, and of two keys with one name the wrong one was used.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust import MalformedError, Origins, TrustedKey, TrustStore, generate_signer, publish_jwks
from a2a_trust.errors import (
    CardVerificationError,
    ConfigurationError,
    FailureReason,
    PolicyNotMetError,
)
from a2a_trust.keys import LocalSigner, UnsafeAnyOrigin, all_of, n_of, named, read_jwks
from a2a_trust.keys.files import read_private_key
from a2a_trust.keys.jwk import (
    private_key_from_jwk,
    private_key_to_jwk,
    public_key_from_jwk,
    public_key_from_object,
)
from tests.attacks.forgery import JSONObject, b64, entry, served, signs, unb64
from tests.attacks.verifying import HOST, ORIGIN, refusal, verified
from tests.tables import walk

GOOD_X = "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4"  # RFC 7517 A.1
GOOD_Y = "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"
EC: JSONObject = {"kty": "EC", "crv": "P-256", "x": GOOD_X, "y": GOOD_Y, "kid": "bad"}
OKP: JSONObject = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kid": "bad"}
RSA: JSONObject = {"kty": "RSA", "n": b64(b"\xc5" * 256), "e": "AQAB", "kid": "bad"}

BAD: dict[str, Any] = {
    "null": None,
    "true": True,
    "number": 1,
    "string": "EC",
    "empty string": "",
    "list": [],
    "list with a key": [EC],
    "empty object": {},
    "no kty": {"crv": "P-256", "x": GOOD_X, "y": GOOD_Y},
    "kty null": {**EC, "kty": None},
    "kty number": {**EC, "kty": 1},
    "kty list": {**EC, "kty": ["EC"]},
    "kty empty list": {**EC, "kty": []},
    "kty object": {**EC, "kty": {"EC": 1}},
    "kty unknown": {**EC, "kty": "AKP"},
    "crv missing": {"kty": "EC", "x": GOOD_X, "y": GOOD_Y},
    "crv list": {**EC, "crv": ["P-256"]},
    "crv object": {**EC, "crv": {}},
    "crv unknown": {**EC, "crv": "secp256k1"},
    "x missing": {"kty": "EC", "crv": "P-256", "y": GOOD_Y},
    "x number": {**EC, "x": 1},
    "x null": {**EC, "x": None},
    "x list": {**EC, "x": [GOOD_X]},
    "x empty": {**EC, "x": ""},
    "x not base64url": {**EC, "x": "*" * 43},
    "x not ASCII": {**EC, "x": "é" * 43},
    "x padded": {**EC, "x": GOOD_X + "="},
    "x short": {**EC, "x": b64(unb64(GOOD_X)[1:])},
    "x long": {**EC, "x": b64(b"\0" + unb64(GOOD_X))},
    "not on the curve": {**EC, "x": GOOD_Y, "y": GOOD_X},
    "infinity": {**EC, "x": b64(bytes(32)), "y": b64(bytes(32))},
    "beyond the field": {**EC, "x": b64(b"\xff" * 32)},
    "OKP short": {**OKP, "x": b64(bytes(31))},
    "OKP of another curve": {**OKP, "crv": "X25519"},
    "OKP 448": {**OKP, "crv": "Ed448", "x": b64(bytes(57))},
    "n empty": {**RSA, "n": ""},
    "n zero": {**RSA, "n": "AA"},
    "n one": {**RSA, "n": "AQ"},
    "n leading zero": {**RSA, "n": b64(b"\0" + b"\xc5" * 256)},
    "n number": {**RSA, "n": 3233},
    "e empty": {**RSA, "e": ""},
    "e zero": {**RSA, "e": "AA"},
    "e one": {**RSA, "e": "AQ"},
    "e even": {**RSA, "e": b64((65_538).to_bytes(3, "big"))},
    "e larger than n": {**RSA, "e": b64(b"\xff" * 300)},
    "use list": {**EC, "use": ["sig"]},
    "use null": {**EC, "use": None},
    "key_ops string": {**EC, "key_ops": "verify"},
    "key_ops object": {**EC, "key_ops": {"verify": 1}},
    "key_ops nested": {**EC, "key_ops": [["verify"]]},
    "alg number": {**EC, "alg": 256},
    "alg object": {**EC, "alg": {}},
    "kid number": {**EC, "kid": 1},
    "kid list": {**EC, "kid": ["owner"]},
    "kid object": {**EC, "kid": {}},
    "kid empty": {**EC, "kid": ""},
    "private half": {**EC, "d": b64(bytes(31) + b"\1")},
    "private half null": {**EC, "d": None},
    "private factors": {**RSA, "p": "AQ"},
    "other primes": {**RSA, "oth": []},
}


def jwks(*keys: Any) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


@walk("bad", BAD.values(), ids=BAD)
def test_a_malformed_key_is_skipped_and_the_good_one_beside_it_is_read(owner: LocalSigner, bad: Any) -> None:
    good = owner.public_key.to_jwk()
    for keys, index in (([bad, good], 0), ([good, bad], 1)):
        found = read_jwks(jwks(*keys))
        assert found.keys == (owner.public_key,)
        assert [key.index for key in found.skipped] == [index]
    with pytest.raises(MalformedError):
        public_key_from_jwk(bad)


def test_all_bad_keys_at_once_leave_the_good_one(owner: LocalSigner) -> None:
    found = read_jwks(jwks(*BAD.values(), owner.public_key.to_jwk()))
    assert found.keys == (owner.public_key,)
    assert [key.index for key in found.skipped] == list(range(len(BAD)))


@pytest.mark.parametrize("name", ["jwk without x", "jwk numbers"])
def test_the_reason_for_a_skipped_key_does_not_repeat_the_key(name: str) -> None:
    """What was skipped goes to a log, and may have been a private key."""
    secret = b64(b"\x5e" * 32)
    keys = {
        "jwk without x": {"kty": "EC", "crv": "P-256", "y": secret, "d": secret},
        "jwk numbers": {**EC, "x": secret},
    }
    found = read_jwks(jwks(keys[name]))
    assert found.skipped
    assert secret not in repr(found)


@walk(
    "document",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'"keys"',
        b'{"keys":null}',
        b'{"keys":{}}',
        b'{"keys":{"0":{}}}',
        b'{"keys":"EC"}',
        b'{"keys":[],"keys":[]}',
        b'{"keys":[{"kty":"EC","kty":"RSA"}]}',
        b'{"keys":[]} {}',
        b'\xef\xbb\xbf{"keys":[]}',
        '{"keys":[]}'.encode("utf-16"),
        b'{"keys":[{"kty":"\\ud800"}]}',
        b'{"keys":[NaN]}',
    ],
)
def test_what_is_no_set_is_refused_whole(document: bytes) -> None:
    with pytest.raises(MalformedError):
        read_jwks(document)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=6,
)


@given(
    base=st.sampled_from([EC, OKP, RSA]),
    changes=st.dictionaries(
        st.sampled_from(["kty", "crv", "x", "y", "n", "e", "d", "use", "key_ops", "alg", "kid", "k", "p"]),
        json_values | st.sampled_from(["EC", "RSA", "OKP", "P-384", "sig", "enc", "ES256", "AQAB", GOOD_X]),
        min_size=1,
        max_size=3,
    ),
)
def test_whatever_stands_in_a_key_only_that_key_is_skipped(
    owner: LocalSigner, base: JSONObject, changes: JSONObject
) -> None:
    changed = {**base, **changes}
    if changed["kty"] == "oct":
        return
    found = read_jwks(jwks(changed, owner.public_key.to_jwk()))
    assert owner.public_key in found.keys
    assert len(found.keys) + len(found.skipped) == 2


# --- halves that do not belong together ----------------------------------------------------------------------------


@walk("alg", ["ES256", "ES384", "ES512", "EdDSA", "RS256"])
def test_the_public_half_is_not_the_one_of_the_private_half(alg: str) -> None:
    """Whoever signs with such a key publishes a name that is not his, or leaks the private one."""
    one, other = (generate_signer(alg, rsa_bits=2048) for _ in range(2))
    mine, his = (private_key_to_jwk(signer.private_key, alg=alg, kid="x") for signer in (one, other))
    public = [name for name in ("x", "y", "n") if name in mine]
    for names in (public, *[[name] for name in public]):
        mixed = mine | {name: his[name] for name in names}
        with pytest.raises(MalformedError):
            private_key_from_jwk(mixed)
        with pytest.raises(MalformedError):
            read_private_key(json.dumps(mixed).encode())
    swapped = {**mine, "d": his["d"]}
    with pytest.raises(MalformedError):
        private_key_from_jwk(swapped)
    assert private_key_from_jwk(mine)[0].public_key() == one.private_key.public_key()


def test_the_point_is_mirrored(owner: LocalSigner) -> None:
    """(x, −y) is on the curve too, and its private half is another."""
    jwk = private_key_to_jwk(owner.private_key, alg="ES256", kid="x")
    p = 2**256 - 2**224 + 2**192 + 2**96 - 1
    y = int.from_bytes(unb64(jwk["y"]), "big")
    with pytest.raises(MalformedError):
        private_key_from_jwk({**jwk, "y": b64((p - y).to_bytes(32, "big"))})


# --- one name, several keys ----------------------------------------------------------------------------------------


def test_of_keys_with_the_same_kid_and_type_none_is_taken(
    owner: LocalSigner, mallory: LocalSigner, ed_owner: LocalSigner
) -> None:
    own = owner.public_key.to_jwk()
    forged = {**mallory.public_key.to_jwk(), "kid": owner.kid}
    beside = ed_owner.public_key.to_jwk()
    for keys in ([own, forged, beside], [forged, own, beside]):
        found = read_jwks(jwks(*keys))
        assert found.keys == (ed_owner.public_key,)
        assert [key.index for key in found.skipped] == [0, 1]


def test_a_key_without_kid_is_named_by_its_thumbprint_and_can_clash_too(
    owner: LocalSigner, mallory: LocalSigner
) -> None:
    bare = {name: value for name, value in owner.public_key.to_jwk().items() if name != "kid"}
    assert read_jwks(jwks(bare)).keys[0].kid == owner.public_key.thumbprint
    clashing = {**mallory.public_key.to_jwk(), "kid": owner.public_key.thumbprint}
    assert read_jwks(jwks(bare, clashing)).keys == ()


def test_the_same_name_for_another_type_of_key_is_another_name(
    card: JSONObject, payload: bytes, owner: LocalSigner, rsa_owner: LocalSigner
) -> None:
    keys = [{**signer.public_key.to_jwk(), "kid": "shared"} for signer in (owner, rsa_owner)]
    found = read_jwks(jwks(*keys))
    assert [key.kty for key in found.keys] == ["EC", "RSA"]
    trust = TrustStore(TrustedKey(key=key, origins=Origins(HOST)) for key in found.keys)
    for signer in (owner, rsa_owner):
        made = entry({"alg": signer.alg, "kid": "shared"}, payload, signs(signer.private_key, signer.alg))
        assert verified(served(card, made), trust).key.kty == signer.public_key.kty


def test_two_parties_publish_a_key_under_one_kid_and_each_speaks_for_itself(
    card: JSONObject, payload: bytes, owner: LocalSigner, mallory: LocalSigner
) -> None:
    """Neither silences the other, and no kid, and no ``jku`` beside it, makes one of them the other."""
    forged = public_key_from_object(mallory.private_key, kid=owner.kid)
    keys = {"bank": (owner, owner.public_key), "auditor": (mallory, forged)}
    entries = [
        TrustedKey(key=key, origins=Origins(HOST), name=name, source=f"https://{name}.example/jwks.json")
        for name, (_, key) in keys.items()
    ]
    made = {
        (name, jku): entry(
            {"alg": "ES256", "kid": owner.kid, **({"jku": f"https://{jku}.example/jwks.json"} if jku else {})},
            payload,
            signs(signer.private_key, "ES256"),
        )
        for name, (signer, _) in keys.items()
        for jku in (None, "bank", "auditor")
    }
    for trust in (TrustStore(entries), TrustStore(entries[::-1])):
        for (name, jku), signature in made.items():
            document = served(card, signature)
            for origin in (ORIGIN, UnsafeAnyOrigin()):
                result = verified(document, trust, origin=origin, policy=named(name))
                assert (result.key, len(result.keys)) == (keys[name][1], 1)
            (other,) = keys.keys() - {name}
            refusal(PolicyNotMetError, document, trust, policy=named(other))
            both = served(card, signature, made[name, other], made[name, None])
            refusal(PolicyNotMetError, both, trust, policy=all_of("bank", "auditor"))
            met = verified(served(card, signature, made[other, jku]), trust, policy=all_of("bank", "auditor"))
            assert set(met.keys) == {owner.public_key, forged}
    with pytest.raises(ConfigurationError):
        publish_jwks([owner.public_key, forged])


def test_a_name_is_shared_only_where_the_hosts_are(
    card: JSONObject, payload: bytes, owner: LocalSigner, mallory: LocalSigner
) -> None:
    """A key of the same name for another host neither helps nor hinders here."""
    forged = public_key_from_object(mallory.private_key, kid=owner.kid)
    trust = TrustStore(
        [
            TrustedKey(key=forged, origins=Origins("evil.example")),
            TrustedKey(key=owner.public_key, origins=Origins(HOST)),
        ]
    )
    made, other = (
        entry({"alg": "ES256", "kid": owner.kid}, payload, signs(signer.private_key, "ES256"))
        for signer in (owner, mallory)
    )
    assert verified(served(card, made), trust).key == owner.public_key
    refusal(CardVerificationError, served(card, other), trust, FailureReason.BAD_SIGNATURE)


def test_one_key_in_two_entries_is_one_vote(card: JSONObject, payload: bytes, owner: LocalSigner) -> None:
    keys = [public_key_from_object(owner.private_key, kid=kid) for kid in ("kid-1", "kid-2")]
    names = ("a", "b")
    trust = TrustStore(
        [TrustedKey(key=key, origins=Origins(HOST), name=name) for key, name in zip(keys, names, strict=True)],
        names=["c"],
    )
    entries = [entry({"alg": "ES256", "kid": key.kid}, payload, signs(owner.private_key, "ES256")) for key in keys]
    for name in names:  # control
        assert verified(served(card, *entries), trust, policy=named(name)).card == card
    thumbprint = owner.public_key.thumbprint
    for policy in (
        all_of("a", "b"),
        n_of(2, "a", "b", "c"),
        all_of("a", thumbprint),
        n_of(2, "a", "b", thumbprint),
    ):
        refusal(PolicyNotMetError, served(card, *entries), trust, policy=policy)


def test_two_keys_of_one_entry_are_one_vote_unless_each_is_named(
    card: JSONObject, payload: bytes, owner: LocalSigner, rsa_owner: LocalSigner, ed_owner: LocalSigner
) -> None:
    """``all_of("a", "b")`` means that b has signed, however many keys, of one kid or of several, a has."""
    a_ec, a_rsa = (public_key_from_object(signer.private_key, kid="shared") for signer in (owner, rsa_owner))
    b = ed_owner.public_key
    trust = TrustStore(
        [TrustedKey(key=key, origins=Origins(HOST), name="a") for key in (a_ec, a_rsa)]
        + [TrustedKey(key=b, origins=Origins(HOST), name="b")],
        names=["c"],
    )
    made = {
        key.alg: entry({"alg": key.alg, "kid": key.kid}, payload, signs(signer.private_key, key.alg))
        for key, signer in ((a_ec, owner), (a_rsa, rsa_owner), (b, ed_owner))
    }
    both = served(card, made["ES256"], made["EdDSA"])
    assert verified(both, trust, policy=all_of("a", "b")).card == card  # control
    of_one = served(card, made["ES256"], made["RS256"])
    for policy in (all_of("a", "b"), n_of(2, "a", "b", "c"), all_of("a", a_rsa.thumbprint), all_of("a", b.thumbprint)):
        refusal(PolicyNotMetError, of_one, trust, policy=policy)
    assert len(verified(of_one, trust, policy=all_of(a_ec.thumbprint, a_rsa.thumbprint)).keys) == 2


@pytest.mark.parametrize("kid", ["owner", "kid-that-nobody-has", "PARTY-OWNER", "party-owner "])
def test_a_policy_that_names_a_kid_or_nobody_is_an_error_and_no_verdict(
    card: JSONObject, good: JSONObject, trust: TrustStore, kid: str
) -> None:
    for policy in (named(kid), n_of(1, "party-owner", kid)):
        with pytest.raises(ConfigurationError, match="never by kid"):
            verified(served(card, good), trust, policy=policy)


def test_control_a_set_of_good_keys_is_read_whole(
    owner: LocalSigner, rsa_owner: LocalSigner, ed_owner: LocalSigner, p384_owner: LocalSigner
) -> None:
    keys = [signer.public_key for signer in (owner, rsa_owner, ed_owner, p384_owner)]
    found = read_jwks(json.dumps(publish_jwks(keys)).encode())
    assert (found.keys, found.skipped) == (tuple(keys), ())
