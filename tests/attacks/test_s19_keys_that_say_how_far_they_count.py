"""S19: keys that say of themselves that they are revoked, expired or for one algorithm, and are used all the same.

A2A 8.4.3: ``exp``, ``nbf`` and ``revoked`` of a JWK count wherever the key is used, for cards and for tokens.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from a2a_trust import MalformedError, Origins, TrustedKey, TrustFile, TrustStore
from a2a_trust.auth.jwt import IdTokenVerifier, JwtVerifier
from a2a_trust.errors import (
    CardVerificationError,
    ConfigurationError,
    FailureReason,
    InvalidCredentialsError,
    UntrustedCardError,
)
from a2a_trust.keys import LocalSigner, PublicKey, read_jwks
from a2a_trust.keys.files import read_private_key
from a2a_trust.keys.jwk import private_key_to_jwk, public_key_from_jwk, public_key_from_pem
from a2a_trust.keys.trust.jwks_cache import JwksCache
from tests.attacks.forgery import JSONObject, b64, entry, served, signs
from tests.attacks.verifying import HOST, NOW, refusal, verified
from tests.certificates import Authority
from tests.keys.pss_pem import SHA, parameters, private_pem, public_pem
from tests.tables import walk

REVOKED, NOT_NOW = FailureReason.REVOKED_KEY, FailureReason.KEY_NOT_VALID_NOW


def jwks(*keys: Any) -> bytes:
    return json.dumps({"keys": keys}).encode()


def by_store(jwk: JSONObject, folder: Path) -> TrustStore:
    (key,) = read_jwks(jwks(jwk)).keys
    return TrustStore([TrustedKey(key=key, origins=Origins(HOST))])


def by_file(jwk: JSONObject, folder: Path) -> TrustStore:
    (folder / "keys.json").write_bytes(jwks(jwk))
    return loaded(folder, f'origins = ["{HOST}"]\nkeys = "keys.json"\n')


def by_table(jwk: JSONObject, folder: Path) -> TrustStore:
    members = "".join(f"{name} = {json.dumps(value)}\n" for name, value in jwk.items())
    return loaded(folder, f'origins = ["{HOST}"]\n[trust.jwk]\n{members}')


def loaded(folder: Path, entry: str) -> TrustStore:
    path = folder / "trust.toml"
    path.write_text(f"version = 1\n[[trust]]\n{entry}")
    return TrustFile(path).trust_store()


WAYS = [by_store, by_file, by_table]


@walk("way", WAYS)
@walk(
    ("members", "reason", "match"),
    [
        ({"exp": NOW}, NOT_NOW, "expired on 2027-01-15T08:00:00Z"),
        ({"exp": 1}, NOT_NOW, "expired on 1970-01-01T00:00:01Z"),
        ({"nbf": NOW + 0.5}, NOT_NOW, "not valid before 2027-01-15T08:00:00Z"),
        ({"nbf": NOW - 20, "exp": NOW - 10}, NOT_NOW, "expired on"),
        ({"nbf": NOW + 10, "exp": NOW - 10}, NOT_NOW, "not valid before"),
        ({"revoked": True}, REVOKED, "revoked"),
        ({"revoked": 0}, REVOKED, "revoked"),
        ({"revoked": ""}, REVOKED, "revoked"),
        ({"revoked": "false"}, REVOKED, "revoked"),
        ({"revoked": []}, REVOKED, "revoked"),
        ({"revoked": {"at": 1}}, REVOKED, "revoked"),
        ({"revoked": 1_700_000_000, "exp": NOW - 1}, REVOKED, "revoked"),
    ],
    ids=str,
)
def test_a_key_that_is_over_by_its_own_words_proves_nothing(
    card: JSONObject,
    good: JSONObject,
    owner: LocalSigner,
    tmp_path: Path,
    way: Callable[[JSONObject, Path], TrustStore],
    members: JSONObject,
    reason: FailureReason,
    match: str,
) -> None:
    if way is by_table and isinstance(members.get("revoked"), dict):
        members = {"revoked": [1]}
    trust = way({**owner.public_key.to_jwk(), **members}, tmp_path)
    refusal(UntrustedCardError, served(card, good), trust, reason, match=match)


@walk("way", WAYS)
@walk("members", [{"nbf": NOW, "exp": NOW + 1}, {"nbf": 0, "revoked": False}, {}], ids=str)
def test_control_a_key_that_is_valid_by_its_own_words_proves(
    card: JSONObject,
    good: JSONObject,
    owner: LocalSigner,
    tmp_path: Path,
    way: Callable[[JSONObject, Path], TrustStore],
    members: JSONObject,
) -> None:
    done = verified(served(card, good), way({**owner.public_key.to_jwk(), **members}, tmp_path))
    assert done.card == card
    assert done.valid_until == members.get("exp", math.inf)


@walk(
    ("own", "given", "valid"),
    [
        ({"exp": NOW + 10}, {"not_after": NOW + 20}, (-math.inf, NOW + 10)),
        ({"exp": NOW + 20}, {"not_after": NOW + 10}, (-math.inf, NOW + 10)),
        ({"nbf": NOW - 10}, {"not_before": NOW - 20}, (NOW - 10, math.inf)),
        ({"nbf": NOW - 20}, {"not_before": NOW - 10}, (NOW - 10, math.inf)),
        ({"exp": NOW - 10}, {"not_before": NOW - 5}, (NOW - 5, NOW - 10)),
    ],
)
def test_the_limits_of_key_and_entry_both_hold(
    card: JSONObject,
    good: JSONObject,
    owner: LocalSigner,
    own: JSONObject,
    given: dict[str, float],
    valid: tuple[float, float],
) -> None:
    key = public_key_from_jwk({**owner.public_key.to_jwk(), **own})
    trusted = TrustedKey(key=key, origins=Origins(HOST), **given)  # type: ignore[arg-type]
    assert (trusted.not_before, trusted.not_after) == valid
    assert replace(trusted, origins=Origins("other.example.com")).not_after == valid[1]
    trust = TrustStore([trusted])
    if valid[0] < valid[1]:
        assert verified(served(card, good), trust).valid_until == valid[1]
    else:
        refusal(UntrustedCardError, served(card, good), trust, NOT_NOW)


WRONG: list[Any] = [None, True, False, "1900000000", "", [], {}, -1, NOW * 1000]


@walk("value", WRONG, ids=lambda value: str(value)[:20])
@walk("member", ["exp", "nbf"])
def test_a_limit_of_the_wrong_type_drops_that_key_and_no_other(
    owner: LocalSigner, ed_owner: LocalSigner, member: str, value: Any
) -> None:
    bad = {**owner.public_key.to_jwk(), member: value}
    with pytest.raises(MalformedError, match=f"^JWK: {member} must be a moment"):
        public_key_from_jwk(bad)
    found = read_jwks(jwks(bad, ed_owner.public_key.to_jwk()))
    assert (found.keys, [key.index for key in found.skipped]) == ((ed_owner.public_key,), [0])


@walk("value", [math.nan, math.inf, -math.inf, 10**400, -(10**400)], ids=lambda value: str(value)[:9])
def test_a_limit_that_is_no_number_is_refused(owner: LocalSigner, value: float) -> None:
    for member in ("exp", "nbf"):
        with pytest.raises(MalformedError, match=f"^JWK: {member} must be a moment"):
            public_key_from_jwk({**owner.public_key.to_jwk(), member: value})


def test_the_stricter_of_two_entries_for_one_key_holds(card: JSONObject, good: JSONObject, owner: LocalSigner) -> None:
    """Whoever appends the key once more to a set does not lift its end."""
    key = owner.public_key.to_jwk()
    for limit, reason in (({"exp": NOW - 1}, NOT_NOW), ({"nbf": NOW + 1}, NOT_NOW), ({"revoked": True}, REVOKED)):
        for keys in ([key, {**key, **limit}], [{**key, **limit}, key]):
            trust = TrustStore(TrustedKey(key=each, origins=Origins(HOST)) for each in read_jwks(jwks(*keys)).keys)
            refusal(UntrustedCardError, served(card, good), trust, reason)
    renamed = {**key, "kid": "renamed", "revoked": True}
    trust = TrustStore(TrustedKey(key=each, origins=Origins(HOST)) for each in read_jwks(jwks(key, renamed)).keys)
    refusal(UntrustedCardError, served(card, good), trust, REVOKED)


def test_a_fetched_set_cannot_revoke_the_key_of_somebody_else(
    card: JSONObject, good: JSONObject, owner: LocalSigner
) -> None:
    theirs = public_key_from_jwk({**owner.public_key.to_jwk(), "kid": "evil", "revoked": True})
    mine = TrustedKey(key=owner.public_key, origins=Origins(HOST))
    evil = TrustedKey(key=theirs, origins=Origins("evil.example.net"), source="https://evil.example.net/jwks.json")
    trust = TrustStore([evil, mine])
    assert verified(served(card, good), trust).card == card
    assert trust.revoked.isdisjoint({"owner", owner.public_key.thumbprint, "evil"})
    assert [each.revoked for each in trust.keys] == [True, False]
    # The operator's own file says it for every entry.
    refusal(UntrustedCardError, served(card, good), TrustStore([replace(evil, source=None), mine]), REVOKED)


@pytest.mark.anyio
async def test_the_limit_of_a_fetched_key_counts_as_soon_as_it_is_fetched(tmp_path: Path, owner: LocalSigner) -> None:
    now, published = 0.0, [owner.public_key.to_jwk()]

    class Fetchers:
        def loader(self, url: str, *, configured: bool) -> Any:
            async def load() -> tuple[bytes, float | None]:
                return jwks(*published), 60.0

            return load

    (tmp_path / "trust.toml").write_text(
        f'version = 1\n[[trust]]\norigins = ["{HOST}"]\njwks_url = "https://{HOST}/keys"\n'
    )
    file = TrustFile(tmp_path / "trust.toml", fetcher=Fetchers())  # type: ignore[arg-type]
    file._cache(f"https://{HOST}/keys")._clock = lambda: now
    assert [key.not_after for key in (await file.fetch()).keys] == [math.inf]
    published[0] = {**published[0], "exp": 1}
    now = 1000.0
    assert [key.not_after for key in (await file.fetch()).keys] == [1.0]


# Tokens


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def token(signer: LocalSigner, now: float, kid: str | None, **claims: Any) -> str:
    header = {"alg": signer.alg, "typ": "at+jwt", **({} if kid is None else {"kid": kid})}
    said = {"iss": "https://idp.example", "aud": "agent", "sub": "alice", "exp": now + 600, "iat": now, **claims}
    made = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(said).encode())}"
    return f"{made}.{b64(signs(signer.private_key, signer.alg)(made.encode()))}"


def cache_of(*keys: JSONObject) -> JwksCache:
    async def load() -> tuple[bytes, float | None]:
        return jwks(*keys), None

    return JwksCache(load)


@pytest.mark.anyio
@walk("named", [True, False], ids=["kid", "no kid"])
@walk("members", [{"exp": 1}, {"nbf": 4e9}, {"revoked": True}, {"revoked": "no"}], ids=str)
async def test_no_token_is_accepted_by_a_key_that_is_over(owner: LocalSigner, members: JSONObject, named: bool) -> None:
    now = time.time()
    keys = cache_of({**owner.public_key.to_jwk(), **members})
    judge = JwtVerifier(keys, issuer="https://idp.example", audience="agent")
    with pytest.raises(InvalidCredentialsError, match=r"is valid now"):
        await judge.verify(token(owner, now, "owner" if named else None), now)
    assert await keys.keys()  # it is there; it does not count


@pytest.mark.anyio
async def test_of_keys_without_name_only_the_valid_ones_are_counted(owner: LocalSigner, mallory: LocalSigner) -> None:
    now = time.time()
    keys = cache_of(owner.public_key.to_jwk(), {**mallory.public_key.to_jwk(), "revoked": True})
    judge = JwtVerifier(keys, issuer="https://idp.example", audience="agent")
    assert (await judge.verify(token(owner, now, None), now)).subject == "alice"
    with pytest.raises(InvalidCredentialsError):
        await judge.verify(token(mallory, now, None), now)


class OneKey:
    """A source of keys that does not look at what they say."""

    generation = 1

    def __init__(self, key: PublicKey) -> None:
        self._key = key

    async def key(self, kid: str, kty: str) -> PublicKey:
        return self._key

    async def only_key(self, kty: str) -> PublicKey:
        return self._key


@pytest.mark.anyio
@pytest.mark.parametrize(
    "change", [{"not_after": NOW}, {"not_before": NOW + 1}, {"revoked": True}], ids=["exp", "nbf", "revoked"]
)
async def test_no_verifier_accepts_a_token_by_such_a_key_whatever_its_source(
    owner: LocalSigner, change: dict[str, Any]
) -> None:
    keys = OneKey(replace(owner.public_key, **change))
    access = JwtVerifier(keys, issuer="https://idp.example", audience="agent")
    identity = IdTokenVerifier(keys, issuer="https://idp.example", audience="agent")
    for judge, made in ((access, token(owner, NOW, "owner")), (identity, token(owner, NOW, "owner", typ="ID"))):
        with pytest.raises(InvalidCredentialsError):
            await judge.verify(made, NOW)
    with pytest.raises(InvalidCredentialsError, match="its key is revoked, expired or not valid yet"):
        await access.verify(token(owner, NOW, "owner"), NOW)


@pytest.mark.anyio
async def test_what_a_key_has_verified_is_remembered_no_longer_than_the_key_counts(owner: LocalSigner) -> None:
    judge = JwtVerifier(
        OneKey(replace(owner.public_key, not_after=NOW + 10)), issuer="https://idp.example", audience="agent"
    )
    made = token(owner, NOW, "owner")
    assert (await judge.verify(made, NOW)).subject == "alice"
    assert (await judge.verify(made, NOW + 9)).subject == "alice"
    with pytest.raises(InvalidCredentialsError):
        await judge.verify(made, NOW + 10)


@pytest.mark.anyio
async def test_a_key_that_ends_while_it_is_in_memory_ends(owner: LocalSigner, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, moment = cache_of({**owner.public_key.to_jwk(), "exp": NOW}), NOW - 1
    monkeypatch.setattr(time, "time", lambda: moment)
    assert (await keys.key("owner", "EC")).kid == (await keys.only_key("EC")).kid == "owner"
    moment = NOW
    with pytest.raises(InvalidCredentialsError):
        await keys.key("owner", "EC")
    with pytest.raises(InvalidCredentialsError):
        await keys.only_key("EC")


# One algorithm


@pytest.mark.parametrize("alg", ["RS256", "RS384", "RS512", "PS384"])
def test_a_key_for_rsassa_pss_verifies_nothing_else(
    card: JSONObject, payload: bytes, rsa_owner: LocalSigner, tmp_path: Path, alg: str
) -> None:
    """``cryptography`` forgets what the key is for, and PKCS #1 v1.5 signatures by it would be good."""
    private: Any = rsa_owner.private_key
    made = entry({"alg": alg, "kid": "pss"}, payload, signs(private, alg))
    limits = parameters(SHA[256], SHA[256], 32)
    key = public_key_from_pem(public_pem(private, limits), kid="pss")
    trust = TrustStore([TrustedKey(key=key, origins=Origins(HOST))])
    refusal(CardVerificationError, served(card, made), trust, FailureReason.WRONG_ALGORITHM)
    text = public_pem(private, limits).decode()
    trust = loaded(tmp_path, f'origins = ["{HOST}"]\nkid = "pss"\npem = """\n{text}"""\n')
    refusal(CardVerificationError, served(card, made), trust, FailureReason.WRONG_ALGORITHM)


def test_a_key_for_rsassa_pss_signs_pss(card: JSONObject, payload: bytes, rsa_owner: LocalSigner) -> None:
    private: Any = rsa_owner.private_key
    signer = read_private_key(private_pem(private), kid="pss")
    assert signer.alg == "PS256"
    encrypted = private_pem(private, passphrase="correct horse")  # which hides what the key is for
    with pytest.raises(ConfigurationError, match="does not show the algorithm"):
        read_private_key(encrypted, passphrase="correct horse", kid="pss")
    made = entry({"alg": "PS256", "kid": "pss"}, payload, signer.sign)
    key = public_key_from_pem(public_pem(private), kid="pss")
    trust = TrustStore([TrustedKey(key=key, origins=Origins(HOST))])
    assert verified(served(card, made), trust).key.alg == "PS256"


@pytest.mark.parametrize("alg", ["PS256", "RS512"])
def test_a_key_without_alg_is_for_that_of_its_entry_and_no_other(
    card: JSONObject, payload: bytes, rsa_owner: LocalSigner, tmp_path: Path, alg: str
) -> None:
    bare = {name: value for name, value in rsa_owner.public_key.to_jwk().items() if name != "alg"}
    (tmp_path / "keys.json").write_bytes(jwks(bare, {**rsa_owner.public_key.to_jwk(), "kid": "says RS256"}))
    trust = loaded(tmp_path, f'origins = ["{HOST}"]\nkeys = "keys.json"\nalg = "{alg}"\n')
    assert [(each.key.kid, each.key.alg) for each in trust.keys] == [("rsa-owner", alg)]
    made = entry({"alg": alg, "kid": "rsa-owner"}, payload, signs(rsa_owner.private_key, alg))
    assert verified(served(card, made), trust).card == card
    other = entry({"alg": "RS256", "kid": "rsa-owner"}, payload, signs(rsa_owner.private_key, "RS256"))
    refusal(CardVerificationError, served(card, other), trust, FailureReason.WRONG_ALGORITHM)


# Certificates


def certificate_of(signer: LocalSigner) -> bytes:
    return Authority().issue(key=signer.private_key).der


def with_certificate(key: PublicKey, der: bytes, **members: Any) -> JSONObject:
    return {**key.to_jwk(), "x5c": [base64.b64encode(der).decode()], **members}


@pytest.mark.parametrize("victim", ["owner", "rsa_owner", "ed_owner"])
def test_a_certificate_of_another_key_drops_the_key(
    request: pytest.FixtureRequest, victim: str, mallory: LocalSigner, p384_owner: LocalSigner
) -> None:
    signer: LocalSigner = request.getfixturevalue(victim)
    own, other = certificate_of(signer), certificate_of(mallory)
    sha1, sha256 = b64(hashlib.sha1(own).digest()), b64(hashlib.sha256(own).digest())
    good: list[JSONObject] = [
        {},
        {"x5t": sha1, "x5t#S256": sha256},
        {"x5t": b64(hashlib.sha1(own).hexdigest().upper().encode())},
        {"x5c": [base64.b64encode(each).decode() for each in (own, other)]},
    ]
    for members in good:
        assert public_key_from_jwk(with_certificate(signer.public_key, own, **members)) == signer.public_key
    bad: list[JSONObject] = [
        {"x5c": [base64.b64encode(each).decode() for each in (other, own)]},
        {"x5c": [base64.b64encode(own[:-1]).decode()]},
        {"x5c": [base64.b64encode(own).decode() + "\n"]},
        {"x5c": [b64(own)]},
        {"x5c": [base64.b64encode(own).decode(), 1]},
        {"x5c": [base64.b64encode(own).decode(), "%"]},
        {"x5c": [""]},
        {"x5c": []},
        {"x5c": {}},
        {"x5c": None},
        {"x5c": base64.b64encode(own).decode()},
        {"x5t": b64(hashlib.sha1(other).digest())},
        {"x5t": sha256},
        {"x5t": None},
        {"x5t": [sha1]},
        {"x5t": sha1, "x5t#S256": b64(hashlib.sha256(other).digest())},
        {"x5t#S256": sha1},
        {"x5t#S256": 1},
    ]
    for members in bad:
        jwk = with_certificate(signer.public_key, own, **members)
        with pytest.raises(MalformedError, match=r"^JWK: .*x5"):
            public_key_from_jwk(jwk)
        found = read_jwks(jwks(jwk, p384_owner.public_key.to_jwk()))
        assert (found.keys, [key.index for key in found.skipped]) == ((p384_owner.public_key,), [0])


def test_a_certificate_of_another_key_is_refused_beside_a_private_key(owner: LocalSigner, mallory: LocalSigner) -> None:
    jwk = private_key_to_jwk(owner.private_key, alg="ES256", kid="owner")
    x5c = {"x5c": [base64.b64encode(certificate_of(mallory)).decode()]}
    with pytest.raises(MalformedError, match="x5c is for another key"):
        LocalSigner.from_jwk({**jwk, **x5c})


# Signatures that begin later


def signed(payload: bytes, owner: LocalSigner, **header: Any) -> JSONObject:
    return entry({"alg": "ES256", "kid": "owner", **header}, payload, signs(owner.private_key, "ES256"))


def test_a_signature_is_refused_before_its_nbf(
    card: JSONObject, payload: bytes, owner: LocalSigner, trust: TrustStore
) -> None:
    early = served(card, signed(payload, owner, nbf=NOW + 61, iat=NOW - 100))
    refusal(CardVerificationError, early, trust, FailureReason.NOT_YET_VALID)
    done = verified(early, trust, now=NOW + 1)  # clocks may differ by a minute
    assert (done.valid_from, done.issued) == (NOW + 1, NOW - 100)
    values: list[Any] = [True, "1", None, [], {}]
    for value in values:
        made = served(card, signed(payload, owner, nbf=value))
        refusal(CardVerificationError, made, trust, FailureReason.MALFORMED, match="nbf is not a number")
