"""Keys of the RFCs: thumbprints, import, and the way back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from a2a_trust.errors import MalformedError
from a2a_trust.keys.jwk import (
    private_key_from_jwk,
    private_key_to_jwk,
    public_key_from_jwk,
    public_key_from_object,
    public_key_from_pem,
    publish_jwks,
    read_jwks,
)
from tests.conformance.conftest import Row
from tests.tables import walk

ALGORITHMS = {
    "rfc7520/3_1.ec_public_key": "ES512",
    "rfc7520/3_3.rsa_public_key": "RS256",
    "rfc7517/A.1/rsa": "RS256",
}
PRIVATE = {
    "rfc7520/3_2.ec_private_key": "ES512",
    "rfc7520/3_4.rsa_private_key": "RS256",
    "rfc7517/A.2/rsa": "RS256",
}
REFUSED = {
    "rfc7520/3_5.symmetric_key_mac_computation": "symmetric",
    "rfc7520/3_6.symmetric_key_encryption": "symmetric",
    "rfc7517/A.3/oct": "symmetric",
    "rfc7517/A.1/ec": 'its use is not "sig"',
}


def rows_of(vectors: Path, name: str) -> dict[str, Row]:
    return {row["id"]: row for row in json.loads((vectors / "rfc" / name).read_bytes())}


def test_sha256_thumbprints_of_the_rfcs(vectors: Path) -> None:
    rows = [row for row in rows_of(vectors, "thumbprints.json").values() if row["hash"] == "sha256"]
    assert [row["id"] for row in rows] == ["rfc7638/3.1/sha256", "rfc8037/A.3"]
    for row in rows:
        assert public_key_from_jwk(row["jwk"]).thumbprint == row["thumbprint"]


def test_a_thumbprint_does_not_depend_on_names(vectors: Path) -> None:
    row = rows_of(vectors, "thumbprints.json")["rfc7638/3.1/sha256"]
    bare = {name: row["jwk"][name] for name in ("n", "e", "kty")}
    assert public_key_from_jwk(bare).thumbprint == row["thumbprint"]
    assert public_key_from_jwk(bare).kid == row["thumbprint"]
    assert public_key_from_jwk(row["jwk"]).kid == "2011-04-29"


def test_every_jwk_of_the_rfcs_is_in_one_of_the_lists(vectors: Path) -> None:
    listed = {*ALGORITHMS, *PRIVATE, *REFUSED, "rfc7517/A.2/ec"}
    assert rows_of(vectors, "jwks.json").keys() == listed


@walk("name", ALGORITHMS)
def test_public_keys_of_the_rfcs_are_read_and_written_back(vectors: Path, name: str) -> None:
    jwk = rows_of(vectors, "jwks.json")[name]["jwk"]
    key = public_key_from_jwk(jwk)
    assert key.alg == ALGORITHMS[name]
    assert key.to_jwk() == {**jwk, "use": "sig", "alg": key.alg}
    assert read_jwks(json.dumps(publish_jwks([key])).encode()).keys == (key,)
    assert public_key_from_pem(key.to_pem(), alg=key.alg, kid=key.kid) == key


@walk("name", PRIVATE)
def test_private_keys_of_the_rfcs_are_read_and_written_back(vectors: Path, name: str) -> None:
    jwk = rows_of(vectors, "jwks.json")[name]["jwk"]
    key, own = private_key_from_jwk(jwk)
    assert (own.alg, own.kid) == (PRIVATE[name], jwk["kid"])
    assert private_key_to_jwk(key, alg=own.alg, kid=jwk["kid"]) == {**jwk, "use": "sig", "alg": own.alg}
    public = {member: jwk[member] for member in jwk.keys() & {"kty", "kid", "use", "alg", "crv", "x", "y", "n", "e"}}
    assert public_key_from_object(key, kid=own.kid) == public_key_from_jwk(public) == own
    with pytest.raises(MalformedError, match="private"):
        public_key_from_jwk(jwk)


@walk("name", REFUSED)
def test_keys_of_the_rfcs_that_do_not_sign_cards_are_refused(vectors: Path, name: str) -> None:
    with pytest.raises(MalformedError, match=REFUSED[name]):
        public_key_from_jwk(rows_of(vectors, "jwks.json")[name]["jwk"])


def test_a_private_key_for_encryption_is_refused(vectors: Path) -> None:
    with pytest.raises(MalformedError, match='its use is not "sig"'):
        private_key_from_jwk(rows_of(vectors, "jwks.json")["rfc7517/A.2/ec"]["jwk"])
