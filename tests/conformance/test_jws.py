"""JWS of the RFCs and of Wycheproof, all through the one function that checks a JWS.

The adapter splits what those files hold into the parts that cards carry. Every row has its own verdict, except those
that our rules refuse although RFC 7515 allows them: each is listed by its id, with the rule.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from a2a_trust.errors import InvalidSignatureError, MalformedError, TrustError
from a2a_trust.keys import base64url
from a2a_trust.keys.algorithms import algorithm_of
from a2a_trust.keys.jwk import PublicKey, public_key_from_jwk, read_jwks
from a2a_trust.keys.jws import read_header
from tests.conformance.conftest import Row, Rows
from tests.jws import verify_jws
from tests.tables import walk

HMAC = "HMAC: whoever can verify can sign, so symmetric keys are refused"
UNPROTECTED = "alg, kid and crit count only from the protected header"

#: RFC rows that are valid and refused.
RFC_REFUSED = {
    "cookbook/jws/4_4.hmac-sha2_integrity_protection.json/compact": HMAC,
    "cookbook/jws/4_4.hmac-sha2_integrity_protection.json/json": HMAC,
    "cookbook/jws/4_4.hmac-sha2_integrity_protection.json/json_flat": HMAC,
    "cookbook/jws/4_5.signature_with_detached_content.json/compact": HMAC,
    "cookbook/jws/4_5.signature_with_detached_content.json/json": HMAC,
    "cookbook/jws/4_5.signature_with_detached_content.json/json_flat": HMAC,
    "cookbook/jws/4_6.protecting_specific_header_fields.json/json": HMAC,
    "cookbook/jws/4_6.protecting_specific_header_fields.json/json_flat": HMAC,
    "cookbook/jws/4_8.multiple_signatures.json/json": UNPROTECTED,
    "rfc7515/A.1": HMAC,
    "rfc7515/A.6": UNPROTECTED,
    "rfc7515/A.7": UNPROTECTED,
    "rfc7797/0/compact": HMAC,
    "rfc7797/0/flattened_json": HMAC,
}

#: RFC rows on which verifiers may differ: all refused here, for HMAC, for `b64`, or for want of a protected header.
RFC_OPEN = {
    "cookbook/jws/4_7.protecting_content_only.json/json",
    "cookbook/jws/4_7.protecting_content_only.json/json_flat",
    "cookbook/rfc7797/hmac-sha2_b64_false.json/compact",
    "cookbook/rfc7797/hmac-sha2_b64_false.json/json",
    "cookbook/rfc7797/hmac-sha2_b64_false.json/json_flat",
    "rfc7797/1/compact",
    "rfc7797/1/flattened_json",
    "rfc7797/2/compact",
    "rfc7797/2/flattened_json",
    "rfc7797/3/compact",
    "rfc7797/3/flattened_json",
}

#: Wycheproof rows that are valid by `strict` and refused: all for HMAC.
WYCHEPROOF_REFUSED = {
    *(f"json_web_signature/{number}" for number in (1, 348, 352, 357, 358, 359, 367, 370, 376, 377)),
    *(f"json_web_key/{number}" for number in (2, 13, 14, 15)),
    *(f"json_web_crypto/{number}" for number in (1, 48)),
}

#: Classes of Wycheproof that break the signature and nothing else: the function itself must find it.
FOUND_BY_THE_SIGNATURE = {
    "ecdsa-special-rs-values": 23,
    "embedded-jwk": 2,
    "rsa-pkcs1-padding-asn1": 213,
    "rsa-pss-modified": 45,
    "wrong-primitive-alg-swap": 10,
    "alg-confusion-hmac-with-public-key": 2,
}


def split(jws: str) -> tuple[str, str, str]:
    """Header, payload and signature of a compact JWS."""
    parts = jws.split(".")
    if len(parts) != 3:
        raise MalformedError("compact JWS: not three parts")
    return parts[0], parts[1], parts[2]


def signatures_of(row: Row) -> tuple[str, list[Row]]:
    """The payload segment of an RFC row, and the members `protected`, `signature` and `header` of each signature."""
    jws = row["jws"]
    if isinstance(jws, str):
        protected, payload, signature = split(jws)
        return payload, [{"protected": protected, "signature": signature}]
    return jws.get("payload", ""), jws.get("signatures", [jws])


def payload_of(row: Row, segment: str) -> bytes:
    return row["payload_utf8"].encode() if row["detached"] else base64url.decode(segment, "payload")


def rfc_key(jwk: Any, alg: str) -> PublicKey:
    # A row of `none` comes with a sound key: the function has to refuse the header, not the adapter the key.
    return public_key_from_jwk(jwk, alg=None if alg == "none" else alg)


def verify_rfc(row: Row) -> None:
    """Every signature of the row, each with the key at its place."""
    segment, signatures = signatures_of(row)
    for signature, jwk, alg in zip(signatures, row["keys"], row["algs"], strict=True):
        verify_jws(
            protected=signature.get("protected", ""),
            payload=payload_of(row, segment),
            signature=signature["signature"],
            key=rfc_key(jwk, alg),
            header=signature.get("header"),
        )


def wycheproof_key(row: Row, protected: str) -> PublicKey:
    """The key of the row; from a set the one that the header names by kid and key type."""
    if not row["key_is_set"]:
        return public_key_from_jwk(row["key"])
    header = read_header(protected)
    algorithm = algorithm_of(header["alg"])
    keys = read_jwks(json.dumps(row["key"]).encode()).keys
    for key in keys:
        if algorithm is not None and key.kid == header.get("kid") and key.kty == algorithm.kty:
            return key
    raise MalformedError("key set: no key of that name")


def verify_wycheproof(row: Row) -> None:
    protected, segment, signature = split(row["jws"])
    verify_jws(
        protected=protected,
        payload=base64url.decode(segment, "payload"),
        signature=signature,
        key=wycheproof_key(row, protected),
    )


def test_jws_of_the_rfcs_have_their_own_verdict_or_a_listed_rule(rows: Rows) -> None:
    verified, refused = set(), {}
    for row in rows("rfc/jws.jsonl"):
        try:
            verify_rfc(row)
        except TrustError:
            refused[row["id"]] = row["expected"]
        else:
            assert row["expected"] == "valid", row["id"]
            verified.add(row["id"])
    assert {name for name, expected in refused.items() if expected == "valid"} == RFC_REFUSED.keys()
    assert {name for name, expected in refused.items() if expected == "either"} == RFC_OPEN
    assert len(verified) == 16


def test_rfc_rows_refused_for_hmac_have_a_symmetric_key(rows: Rows) -> None:
    by_id = {row["id"]: row for row in rows("rfc/jws.jsonl")}
    for name in [name for name, rule in RFC_REFUSED.items() if rule is HMAC]:
        assert [jwk["kty"] for jwk in by_id[name]["keys"]] == ["oct"]
        with pytest.raises(MalformedError, match="symmetric"):
            public_key_from_jwk(by_id[name]["keys"][0])


def test_rfc_rows_refused_for_an_unprotected_kid_verify_without_it(rows: Rows) -> None:
    by_id = {row["id"]: row for row in rows("rfc/jws.jsonl")}
    verified = 0
    for name in [name for name, rule in RFC_REFUSED.items() if rule is UNPROTECTED]:
        row = by_id[name]
        segment, signatures = signatures_of(row)
        for signature, jwk, alg in zip(signatures, row["keys"], row["algs"], strict=True):
            if "protected" not in signature or jwk["kty"] == "oct":
                continue
            parts: dict[str, Any] = {
                "protected": signature["protected"],
                "payload": payload_of(row, segment),
                "signature": signature["signature"],
                "key": rfc_key(jwk, alg),
            }
            assert signature["header"].keys() == {"kid"}
            with pytest.raises(MalformedError, match="must be in the protected header"):
                verify_jws(**parts, header=signature["header"])
            assert verify_jws(**parts)["alg"] == alg
            verified += 1
    assert verified == 4  # two of A.6, one of A.7, the first of 4.8


def test_rfc_rows_with_b64_or_crit_are_refused_by_their_header_alone(rows: Rows) -> None:
    refused = set()
    for row in rows("rfc/jws.jsonl"):
        # An unencoded payload may hold dots: the header is what stands before the first one.
        jws = row["jws"]
        entries = [{"protected": jws.split(".")[0]}] if isinstance(jws, str) else jws.get("signatures", [jws])
        for entry in entries:
            try:
                read_header(entry.get("protected", ""))
            except MalformedError as error:
                if "crit and b64 are rejected" in str(error):
                    refused.add(row["id"])
    invalid = {row["id"] for row in rows("rfc/jws.jsonl") if row["expected"] == "invalid"}
    assert refused - invalid == {name for name in RFC_OPEN if "7797" in name}
    assert refused & invalid == {
        "cookbook/rfc7797/4.2.hmac-sha2_b64_false.json/json",
        "cookbook/rfc7797/4.2.hmac-sha2_b64_false.json/json_flat",
        "rfc7515/E",
    }


def test_rfc_rows_that_verify_do_not_verify_over_another_payload(rows: Rows) -> None:
    changed = 0
    for row in rows("rfc/jws.jsonl"):
        if row["expected"] != "valid" or row["id"] in RFC_REFUSED:
            continue
        segment, (signature,) = signatures_of(row)
        with pytest.raises(InvalidSignatureError):
            verify_jws(
                protected=signature["protected"],
                payload=payload_of(row, segment) + b" ",
                signature=signature["signature"],
                key=rfc_key(row["keys"][0], row["algs"][0]),
            )
        changed += 1
    assert changed == 16


def test_unsecured_jws_are_refused_by_the_function_itself(rows: Rows) -> None:
    unsecured = {row["id"]: row for row in rows("rfc/jws.jsonl") if row["algs"] == ["none"]}
    assert unsecured.keys() == {"rfc7515/A.5", "rfc7515/E", "rfc7519/6.1"}
    with pytest.raises(MalformedError, match="crit and b64"):
        verify_rfc(unsecured.pop("rfc7515/E"))
    for row in unsecured.values():
        with pytest.raises(InvalidSignatureError, match="alg is not"):
            verify_rfc(row)


def test_wycheproof_rows_have_their_strict_verdict_or_a_listed_rule(rows: Rows) -> None:
    refused_although_valid, verified = set(), 0
    for row in rows("wycheproof/jws.jsonl"):
        try:
            verify_wycheproof(row)
        except TrustError:
            if row["strict"] == "valid":
                refused_although_valid.add(row["id"])
        else:
            verified += 1
            assert row["strict"] in ("valid", "either"), row["id"]
    assert refused_although_valid == WYCHEPROOF_REFUSED
    assert verified == 35


def test_wycheproof_rows_that_are_refused_although_valid_have_symmetric_keys(rows: Rows) -> None:
    by_id = {row["id"]: row for row in rows("wycheproof/jws.jsonl")}
    for name in WYCHEPROOF_REFUSED:
        row = by_id[name]
        members = row["key"]["keys"] if row["key_is_set"] else [row["key"]]
        assert {jwk["kty"] for jwk in members} == {"oct"}, name
        with pytest.raises(MalformedError, match="symmetric"):
            verify_wycheproof(row)


@walk("kind", sorted(FOUND_BY_THE_SIGNATURE))
def test_wycheproof_forgeries_are_found_by_the_function_and_not_by_the_key(rows: Rows, kind: str) -> None:
    forged = [row for row in rows("wycheproof/jws.jsonl") if row["class"] == kind]
    assert len(forged) == FOUND_BY_THE_SIGNATURE[kind]
    for row in forged:
        with pytest.raises(InvalidSignatureError):
            verify_wycheproof(row)


def test_wycheproof_base64_malleability_is_found_without_looking_at_the_key(rows: Rows) -> None:
    # The keys of these rows are symmetric and would hide whether the texts were looked at.
    malleable = [row for row in rows("wycheproof/jws.jsonl") if row["class"] == "base64-malleability"]
    read = set()
    for row in malleable:
        try:
            protected, payload, signature = split(row["jws"])
            read_header(protected)
            base64url.decode(payload, "payload")
            base64url.decode(signature, "signature")
        except MalformedError:
            continue
        read.add(row["id"])
    assert read == {row["id"] for row in malleable if row["strict"] == "valid"}
    assert len(malleable) - len(read) == 12
