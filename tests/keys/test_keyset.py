"""Key sets: one bad key does not spoil the others, and one name means one key or none."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys.jwk import (
    MAX_KEYS,
    private_key_to_jwk,
    public_key_from_object,
    publish_jwks,
    read_jwks,
    read_public_keys,
)
from a2a_trust.keys.signer import LocalSigner, generate_signer
from tests.tables import walk

A, B = generate_signer(kid="a"), generate_signer("EdDSA", kid="b")


def jwks(*keys: Any) -> bytes:
    return json.dumps({"keys": keys}).encode()


def test_what_is_published_is_read_back() -> None:
    published = publish_jwks([A.public_key, B.public_key])
    assert published == {"keys": [A.public_key.to_jwk(), B.public_key.to_jwk()]}
    assert published["keys"][0].keys() == {"kty", "crv", "x", "y", "kid", "use", "alg"}
    found = read_jwks(json.dumps(published).encode())
    assert found.keys == (A.public_key, B.public_key)
    assert found.skipped == ()


def test_an_empty_set_has_no_keys() -> None:
    assert read_jwks(jwks()).keys == ()
    assert publish_jwks([]) == {"keys": []}


#: Members of a set that are no usable key, each wrong in another way.
BAD: list[Any] = [
    None,
    1,
    "key",
    [],
    {},
    {"kty": []},
    {"kty": {}},
    {"kty": ["EC"]},
    {"kty": None},
    {"kty": "AKP", "alg": "ML-DSA-44"},
    {**A.public_key.to_jwk(), "use": "enc"},
    {**A.public_key.to_jwk(), "use": []},
    {**A.public_key.to_jwk(), "key_ops": [[], {}]},
    {**A.public_key.to_jwk(), "key_ops": {}},
    {**A.public_key.to_jwk(), "alg": "HS256"},
    {**A.public_key.to_jwk(), "alg": []},
    {**A.public_key.to_jwk(), "crv": []},
    {**A.public_key.to_jwk(), "crv": {"P-256": 1}},
    {**A.public_key.to_jwk(), "x": []},
    {**A.public_key.to_jwk(), "x": "AA"},
    {**A.public_key.to_jwk(), "y": A.public_key.jwk["x"]},
    {**A.public_key.to_jwk(), "kid": []},
    {**A.public_key.to_jwk(), "kid": ""},
    {**B.public_key.to_jwk(), "x": "é"},
    {"kty": "RSA"},
    {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
    {"kty": "RSA", "n": "AQAB", "e": "AQ"},
    private_key_to_jwk(A.private_key, alg="ES256", kid="private"),
]


@walk("bad", BAD, ids=range(len(BAD)))
def test_a_key_that_is_not_understood_is_skipped_and_told(bad: Any) -> None:
    found = read_jwks(jwks(bad, B.public_key.to_jwk()))
    assert found.keys == (B.public_key,)
    (skipped,) = found.skipped
    assert skipped.index == 0
    assert skipped.reason


def test_bad_keys_do_not_hide_the_good_ones_between_them() -> None:
    found = read_jwks(jwks(*BAD[:10], A.public_key.to_jwk(), *BAD[10:], B.public_key.to_jwk()))
    assert found.keys == (A.public_key, B.public_key)
    assert [skipped.index for skipped in found.skipped] == [*range(10), *range(11, len(BAD) + 1)]


def test_the_reason_does_not_hold_the_private_key_that_somebody_published() -> None:
    jwk = private_key_to_jwk(A.private_key, alg="ES256", kid="private")
    found = read_jwks(jwks(jwk))
    assert jwk["d"] not in repr(found)
    assert "private" in found.skipped[0].reason


def test_of_keys_with_the_same_name_and_type_none_is_taken() -> None:
    first, second, third = (generate_signer(kid="same").public_key.to_jwk() for _ in range(3))
    found = read_jwks(jwks(first, B.public_key.to_jwk(), second, third))
    assert found.keys == (B.public_key,)
    assert [(skipped.index, "same kid and type" in skipped.reason) for skipped in found.skipped] == [
        (0, True),
        (2, True),
        (3, True),
    ]


def test_a_key_that_stands_there_twice_is_one_key_with_the_stricter_limits_of_both() -> None:
    key = A.public_key.to_jwk()
    both = read_jwks(jwks({**key, "nbf": 10, "exp": 40}, B.public_key.to_jwk(), {**key, "nbf": 20, "exp": 50}, key))
    assert both.keys == (replace(A.public_key, not_before=20.0, not_after=40.0), B.public_key)
    assert both.skipped == ()
    for keys in ([key, {**key, "revoked": True}], [{**key, "revoked": True}, key]):
        assert read_jwks(jwks(*keys)).keys == (replace(A.public_key, revoked=True),)


def test_a_key_that_is_revoked_under_one_name_is_revoked_under_every_name_of_the_set() -> None:
    key = A.public_key.to_jwk()
    found = read_jwks(jwks({**key, "kid": "new"}, B.public_key.to_jwk(), {**key, "revoked": True, "exp": 1}))
    assert [(each.kid, each.revoked, each.not_after) for each in found.keys] == [
        ("new", True, math.inf),
        ("b", False, math.inf),
        ("a", True, 1.0),
    ]


def test_a_set_says_what_it_revokes_of_its_usable_and_its_skipped_keys() -> None:
    a, b = A.public_key.to_jwk(), B.public_key.to_jwk()
    assert read_jwks(jwks(a, b)).revoked == frozenset()
    found = read_jwks(jwks({**a, "revoked": True}, {**b, "use": "enc", "revoked": 1}))
    assert ([key.kid for key in found.keys], [key.index for key in found.skipped]) == (["a"], [1])
    assert found.revoked == {A.public_key.thumbprint, B.public_key.thumbprint}
    for unknown in ({"kty": "EC", "revoked": True}, {**a, "x": "", "revoked": True}, {"revoked": True}):
        assert read_jwks(jwks(unknown, b)).revoked == frozenset()


def test_a_file_with_one_jwk_is_refused_unless_it_revokes() -> None:
    bad = {**A.public_key.to_jwk(), "use": "enc"}
    with pytest.raises(MalformedError, match='its use is not "sig"'):
        read_public_keys(json.dumps(bad).encode())
    found = read_public_keys(json.dumps({**bad, "revoked": True}).encode())
    assert not found.keys
    assert found.revoked == {A.public_key.thumbprint}


def test_one_name_for_one_rsa_key_with_two_algorithms_names_neither(rsa_key: rsa.RSAPrivateKey) -> None:
    key = public_key_from_object(rsa_key, kid="rsa").to_jwk()
    assert read_jwks(jwks(key, {**key, "alg": "PS256"})).keys == ()
    bare = {name: value for name, value in key.items() if name != "alg"}
    (found,) = read_jwks(jwks(bare, key)).keys
    assert found.algorithms == ("RS256",)


def test_a_bad_key_does_not_take_the_name_of_a_good_one() -> None:
    bad = {**generate_signer("ES384", kid="a").public_key.to_jwk(), "use": "enc"}
    assert read_jwks(jwks(bad, A.public_key.to_jwk())).keys == (A.public_key,)


def test_keys_of_one_name_and_different_types_are_two_keys() -> None:
    ec, okp = generate_signer(kid="shared").public_key, generate_signer("EdDSA", kid="shared").public_key
    assert read_jwks(jwks(ec.to_jwk(), okp.to_jwk())).keys == (ec, okp)


def test_the_same_key_without_a_name_twice_is_one_key() -> None:
    bare = {name: value for name, value in A.public_key.to_jwk().items() if name != "kid"}
    assert read_jwks(jwks(bare)).keys[0].kid == A.public_key.thumbprint
    assert [key.kid for key in read_jwks(jwks(bare, bare)).keys] == [A.public_key.thumbprint]


@walk("place", range(3))
def test_a_set_with_a_symmetric_key_is_refused_whole(place: int) -> None:
    keys: list[Any] = [A.public_key.to_jwk(), B.public_key.to_jwk()]
    keys.insert(place, {"kty": "oct", "k": "AAAA", "kid": "x"})
    with pytest.raises(MalformedError, match="it holds a symmetric key"):
        read_jwks(jwks(*keys))


@walk(
    "document",
    [b"", b"{", b"[]", b"null", b'"keys"', b"{}", b'{"keys":null}', b'{"keys":{}}', b'{"keys":"x"}', b'{"Keys":[]}',
     b'{"keys":[],"keys":[]}', b"\xef\xbb\xbf" + jwks(), b'{"keys":[NaN]}'],
)  # fmt: skip
def test_what_is_no_key_set_is_refused(document: bytes) -> None:
    with pytest.raises(MalformedError, match=r"^JWK Set: "):
        read_jwks(document)


def test_the_number_of_keys_is_bounded_before_any_is_looked_at() -> None:
    assert len(read_jwks(jwks(*[1] * MAX_KEYS)).skipped) == MAX_KEYS
    with pytest.raises(MalformedError, match=f"more than {MAX_KEYS} keys"):
        read_jwks(jwks(*[1] * (MAX_KEYS + 1)))


def test_two_keys_of_one_name_and_type_are_not_published() -> None:
    with pytest.raises(ConfigurationError, match="share kid and type"):
        publish_jwks([A.public_key, generate_signer(kid="a").public_key])
    okp = generate_signer("EdDSA", kid="a").public_key
    assert len(publish_jwks([A.public_key, okp])["keys"]) == 2


def test_one_key_under_two_names_is_published_twice() -> None:
    alias = LocalSigner(A.private_key, kid="alias").public_key
    assert [jwk["kid"] for jwk in publish_jwks([A.public_key, alias])["keys"]] == ["a", "alias"]


@walk(
    "wrong",
    [
        {"exp": "2025-01-01"},
        {"nbf": -1},
        {"use": "enc"},
        {"key_ops": []},
        {"alg": "HS256"},
        {"x5c": ["AAAA"]},
        {"kid": ""},
    ],
)
def test_a_revoked_key_with_a_wrong_member_is_revoked_under_its_other_kids(wrong: dict[str, Any]) -> None:
    jwk = generate_signer().public_key.to_jwk()
    members = [{**jwk, "kid": "old", "revoked": True, **wrong}, {**jwk, "kid": "new"}]
    for order in (members, members[::-1]):
        found = read_jwks(json.dumps({"keys": order}).encode())
        assert [(key.kid, key.revoked) for key in found.keys] == [("new", True)]
        assert len(found.skipped) == 1
