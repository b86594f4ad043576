"""JWT access tokens and ID tokens: every rule, with tokens made by hand and by another library."""

from __future__ import annotations

import base64
import gc
import hashlib
import hmac
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from joserfc import jwt as joserfc_jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from a2a_trust import generate_signer
from a2a_trust.auth.discovery import OAuth2Keys, OpenIdKeys
from a2a_trust.auth.jwt import MAX_TOKEN, IdTokenVerifier, JwtVerifier, TokenProfile
from a2a_trust.auth.principal import Identity, KeyBinding, TokenBinding
from a2a_trust.auth.token_claims import AccessTokenMark
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.base.strict_json import read_numbers
from a2a_trust.errors import (
    ConfigurationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    UnrecognizedCredentialsError,
)
from a2a_trust.keys import LocalSigner
from a2a_trust.keys.jwk import PublicKey, publish_jwks
from a2a_trust.keys.trust.jwks_cache import JwksCache
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


NOW = 1_800_000_000.0
ISSUER = "https://issuer.example"
AUDIENCE = "https://agent.example"

EC = generate_signer("ES256", kid="ec")
ED = generate_signer("EdDSA", kid="ed")
RSA = generate_signer("RS256", kid="rsa", rsa_bits=2048)
STRANGER = generate_signer("ES256", kid="ec")


class Keys:
    """An issuer's keys, and how often somebody asked for one."""

    def __init__(self, *signers: LocalSigner) -> None:
        self.keys = [signer.public_key for signer in signers]
        self.generation = 1
        self.asked = 0
        self.down = False

    async def key(self, kid: str, kty: str) -> PublicKey:
        return self._one([key for key in self.keys if (key.kid, key.kty) == (kid, kty)])

    async def only_key(self, kty: str) -> PublicKey:
        return self._one([key for key in self.keys if key.kty == kty])

    def _one(self, found: list[PublicKey]) -> PublicKey:
        self.asked += 1
        if self.down:
            raise KeySourceUnavailableError("unreachable")
        if len(found) != 1:
            raise InvalidCredentialsError("no such key")
        return found[0]


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def claims(**changes: Any) -> dict[str, Any]:
    """The claims of a good access token, changed; ``...`` takes one away."""
    good = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "exp": NOW + 600,
        "iat": NOW - 10,
        "jti": "1",
        "client_id": "c",
        "scope": "read write",
    }
    return {name: value for name, value in {**good, **changes}.items() if value is not ...}


def header_of(signer: LocalSigner, **changes: Any) -> dict[str, Any]:
    good = {"alg": signer.alg, "kid": signer.kid, "typ": "at+jwt"}
    return {name: value for name, value in {**good, **changes}.items() if value is not ...}


def token(payload: dict[str, Any] | bytes | None = None, *, signer: LocalSigner = EC, **header: Any) -> str:
    """A token made by hand: claims as a dict or as the very bytes."""
    body = payload if isinstance(payload, bytes) else json.dumps(claims() if payload is None else payload).encode()
    return sealed(json.dumps(header_of(signer, **header)).encode(), body, signer)


def sealed(header: bytes, body: bytes, signer: LocalSigner = EC) -> str:
    signed = f"{b64(header)}.{b64(body)}"
    return f"{signed}.{b64(signer.sign(signed.encode()))}"


def verifier(keys: Keys | None = None, **options: Any) -> JwtVerifier:
    return JwtVerifier(
        Keys(EC, ED, RSA) if keys is None else keys, **{"issuer": ISSUER, "audience": AUDIENCE, **options}
    )


def plain(**options: Any) -> JwtVerifier:
    return verifier(profile=TokenProfile.PLAIN_JWT, **options)


def id_verifier() -> IdTokenVerifier:
    return IdTokenVerifier(Keys(EC), issuer=ISSUER, audience=AUDIENCE)


async def refuses(judge: JwtVerifier, credential: str, match: str, now: float = NOW) -> None:
    """It is refused twice, the second time as the first: nothing is remembered of it."""
    for _ in range(2):
        with pytest.raises(InvalidCredentialsError, match=match):
            await judge.verify(credential, now)


# What is good


@walk("signer", [EC, ED, RSA], ids=["ES256", "EdDSA", "RS256"])
async def test_a_good_token_proves_who_for_what_and_until_when(signer: LocalSigner) -> None:
    identity = await verifier().verify(token(signer=signer), NOW)
    assert identity == Identity(
        issuer=ISSUER, subject="alice", scopes=frozenset({"read", "write"}), expires_at=NOW + 600, client_id="c"
    )
    assert identity.claims == claims()


@walk("signer", [EC, ED, RSA], ids=["ES256", "EdDSA", "RS256"])
async def test_a_token_of_another_library_is_good(signer: LocalSigner) -> None:
    pem = signer.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    kinds: dict[str, Any] = {"ES256": ECKey, "EdDSA": OKPKey, "RS256": RSAKey}
    key = kinds[signer.alg].import_key(pem)
    alg = {"EdDSA": "Ed25519"}.get(signer.alg, signer.alg)  # that library warns of the old name
    made = joserfc_jwt.encode(header_of(signer, alg=alg), claims(), key, algorithms=[alg])
    assert (await verifier().verify(made, NOW)).subject == "alice"


async def test_the_other_name_of_ed25519_is_the_same_algorithm() -> None:
    assert (await verifier().verify(token(signer=ED, alg="Ed25519"), NOW)).subject == "alice"


@walk(
    ("members", "scopes"),
    [
        ({"scope": "a b"}, {"a", "b"}),
        ({"scope": "a  b "}, {"a", "b"}),
        ({"scope": ...}, set()),
        ({"scope": ""}, set()),
        ({"scope": ..., "scp": "a b"}, {"a", "b"}),
        ({"scope": ..., "scp": ["a", "b"]}, {"a", "b"}),
        ({"scope": "a", "scp": ["b"]}, {"a", "b"}),
        ({"scope": ["a", "b"]}, {"a", "b"}),
        ({"scope": ..., "roles": ["a"]}, set()),
    ],
)
async def test_scopes_come_from_scope_and_scp(members: dict[str, Any], scopes: set[str]) -> None:
    assert (await verifier().verify(token(claims(**members)), NOW)).scopes == scopes


@walk("name", ["scope", "scp"])
@walk("value", [1, True, {}, [1], ["a", None], None])
async def test_scopes_of_another_type_are_refused(name: str, value: Any) -> None:
    await refuses(verifier(), token(claims(**{name: value})), f"{name} is neither a string nor a list")


async def test_scopes_come_from_where_the_operator_says() -> None:
    nested = claims(realm_access={"roles": ["admin"]})
    assert (await verifier(scopes_from="realm_access.roles").verify(token(nested), NOW)).scopes == {"admin"}
    judge = verifier(scopes_from=lambda found: found["realm_access"]["roles"])
    assert (await judge.verify(token(nested), NOW)).scopes == {"admin"}
    await refuses(judge, token(), "scopes_from raised KeyError")


async def test_a_function_gets_verified_claims_that_it_cannot_change() -> None:
    got: list[Any] = []

    def scopes_from(found: Any) -> list[str]:
        got.append(found)
        with pytest.raises(TypeError):
            found["scope"] = "admin"
        return ["x"]

    judge = verifier(scopes_from=scopes_from)
    forged = token()[:-8] + "AAAAAAAA"
    with pytest.raises(InvalidCredentialsError, match="signature"):
        await judge.verify(forged, NOW)
    assert got == []
    identity = await judge.verify(token(), NOW)
    assert (identity.scopes, identity.subject, len(got)) == (frozenset({"x"}), "alice", 1)


# Marks of access tokens

MARK = AccessTokenMark("token_use", "access")


@walk(
    "changes",
    [
        {"scope": ..., "token_use": "access"},
        {"token_use": "access", "nonce": "n"},
        {"scope": "read"},
        {"scope": ..., "scp": ["read"]},
    ],
)
async def test_a_mark_stands_for_a_scope_and_permits_a_nonce(changes: dict[str, Any]) -> None:
    assert (await plain(marked_by=MARK).verify(token(claims(**changes), typ="JWT"), NOW)).subject == "alice"


@walk(
    ("changes", "why"),
    [
        ({"scope": ...}, r"no claim shows that it is an access token, such as scope or scp$"),
        ({"token_use": "id"}, 'token_use is "id", so it is not an access token'),
        ({"token_use": "id", "scope": ...}, 'token_use is "id", so it is not an access token'),
        ({"nonce": "n"}, "claims of an ID token"),
        ({"token_use": "access", "at_hash": "h"}, "claims of an ID token"),
        ({"token_use": "access", "events": {}}, "claims of an ID token or a logout"),
        ({"token_use": "access", "typ": "Refresh"}, "its claim typ"),
        ({"typ": "DPoP"}, "its claim typ"),
    ],
)
async def test_what_a_mark_does_not_stand_for(changes: dict[str, Any], why: str) -> None:
    await refuses(plain(marked_by=MARK), token(claims(**changes), typ="JWT"), why)


async def test_without_a_mark_the_error_names_the_option() -> None:
    await refuses(plain(), token(claims(scope=...), typ="JWT"), r"marked_by=AccessTokenMark\('claim'\)")


async def test_a_mark_contradicts_at_jwt_too() -> None:
    await refuses(verifier(marked_by=MARK), token(claims(token_use="id")), "not an access token")


async def test_keycloak_tokens_that_are_bound_say_so_in_their_typ() -> None:
    bound = token(claims(typ="DPoP", cnf={"jkt": "A" * 43}), typ="JWT")
    assert (await plain().verify_bound(bound, NOW)).bound_to is not None


async def test_both_profiles_during_a_migration() -> None:
    both = verifier(profile=[TokenProfile.RFC9068, TokenProfile.PLAIN_JWT])
    for typ in ("at+jwt", "JWT", ...):
        assert (await both.verify(token(typ=typ), NOW)).subject == "alice"
    await refuses(both, token(claims(scope=...), typ="JWT"), "no claim shows")
    assert (await both.verify(token(claims(scope=...)), NOW)).scopes == frozenset()
    await refuses(both, token(typ="logout+jwt"), r"typ is not at\+jwt or JWT")


# Issuer, audience, subject


async def test_several_audiences() -> None:
    judge = verifier(audience=["https://old.example", AUDIENCE])
    for aud in ("https://old.example", AUDIENCE, ["x", AUDIENCE]):
        assert (await judge.verify(token(claims(aud=aud)), NOW)).subject == "alice"
    await refuses(judge, token(claims(aud="https://other.example")), 'does not include ".*" or "https://old.example"')


async def test_another_claim_stands_for_a_missing_audience() -> None:
    judge = plain(audience=["app", AUDIENCE], audience_from="client_id", marked_by=MARK)
    good = {"aud": ..., "client_id": "app", "token_use": "access"}
    assert (await judge.verify(token(claims(**good), typ="JWT"), NOW)).subject == "alice"
    for changes, why in (
        ({"client_id": "other"}, 'client_id "other", in the place of aud, does not include'),
        ({"client_id": ...}, "client_id null, in the place of aud"),
        ({"token_use": ...}, "audience null does not include"),
        ({"aud": "other"}, 'audience "other" does not include'),
        ({"aud": None}, "audience null does not include"),
        ({"token_use": "id"}, "not an access token"),
    ):
        await refuses(judge, token(claims(**{**good, **changes}), typ="JWT"), why)
    await refuses(plain(marked_by=MARK), token(claims(**good), typ="JWT"), "^token: audience null does not include")


def test_a_claim_in_the_place_of_aud_needs_a_mark() -> None:
    for wrong in ({"audience_from": "client_id"}, {"audience_from": "", "marked_by": MARK}):
        with pytest.raises(ConfigurationError, match="audience_from: it needs a claim that marks access tokens"):
            verifier(**wrong)


async def test_hints_are_added_to_the_errors_about_their_claims() -> None:
    hints = {name: f"switch {name} on" for name in ("aud", "sub", "iss", "scope", "token_use")}
    judge = plain(marked_by=MARK, hints=hints)
    for changes, name in (
        ({"aud": "x"}, "aud"),
        ({"sub": ...}, "sub"),
        ({"iss": ...}, "iss"),
        ({"scope": ...}, "scope"),
        ({"token_use": "id"}, "token_use"),
    ):
        await refuses(judge, token(claims(**changes), typ="JWT"), f"; switch {name} on$")
    with pytest.raises(InvalidCredentialsError) as caught:
        await judge.verify(token(claims(iss="https://other.example"), typ="JWT"), NOW)
    assert "switch" not in str(caught.value), "a token of another issuer is no mistake of this one's console"


@walk("keys", ["https://issuer.example/jwks", None, Keys, {"keys": []}])
def test_keys_that_are_no_source_do_not_start(keys: Any) -> None:
    with pytest.raises(ConfigurationError, match="keys is not a source of keys; write OpenIdKeys"):
        JwtVerifier(keys, issuer=ISSUER, audience=AUDIENCE)


def test_an_issuer_has_no_fragment() -> None:
    with pytest.raises(ConfigurationError, match="without a fragment"):
        verifier(issuer=f"{ISSUER}#username")


@walk(
    "iss",
    [..., None, "", f"{ISSUER}/", ISSUER.upper(), ISSUER[:-1], f" {ISSUER}", [ISSUER], {"iss": ISSUER}, True, 1],
)
async def test_the_issuer_is_compared_exactly(iss: Any) -> None:
    await refuses(verifier(), token(claims(iss=iss)), "iss is not the issuer")


@walk(
    "aud",
    [
        ...,
        None,
        "",
        [],
        f"{AUDIENCE}/",
        AUDIENCE[:-1],
        [AUDIENCE.upper()],
        "https://other.example",
        f"https://other.example {AUDIENCE}",
        {AUDIENCE: 1},
        [[AUDIENCE]],
        [AUDIENCE, 1],
        [AUDIENCE, None],
        True,
    ],
)
async def test_the_audience_is_ours_or_a_list_of_strings_with_ours(aud: Any) -> None:
    await refuses(verifier(), token(claims(aud=aud)), r'audience .* does not include "https?:')


@walk("aud", [AUDIENCE, [AUDIENCE], ["https://other.example", AUDIENCE]])
async def test_one_of_several_audiences_is_enough(aud: Any) -> None:
    assert (await verifier().verify(token(claims(aud=aud)), NOW)).subject == "alice"


@walk("sub", [..., None, "", 0, 1, True, ["alice"], {"a": "b"}])
async def test_a_subject_is_a_string_that_is_not_empty(sub: Any) -> None:
    await refuses(verifier(), token(claims(sub=sub)), "sub is missing, empty or not a string")


# Time


@walk("exp", [NOW, NOW - 0.001, NOW - 600, 0, -1, -1e300])
async def test_a_token_is_good_until_just_before_exp_and_clock_skew_does_not_help(exp: float) -> None:
    await refuses(verifier(skew=300), token(claims(exp=exp)), r"it has expired|it has no exp")


@walk("exp", [NOW + 0.001, int(NOW) + 1, 2**53, 1e300])
async def test_any_moment_ahead_is_a_good_exp(exp: float) -> None:
    assert (await verifier().verify(token(claims(exp=exp)), NOW)).expires_at == exp


@pytest.mark.parametrize("exp", [..., None])
async def test_exp_is_required(exp: Any) -> None:
    await refuses(verifier(), token(claims(exp=exp)), "has no exp")


@walk("name", ["exp", "nbf", "iat"])
@walk("value", [True, False, "1", f"{NOW + 600}", "", [NOW + 600], {}])
async def test_moments_are_numbers(name: str, value: Any) -> None:
    await refuses(verifier(), token(claims(**{name: value})), f"{name} is not a number")


@walk("name", ["exp", "nbf", "iat"])
@walk("text", [b"NaN", b"Infinity", b"-Infinity", b"1e400", b"1" + b"0" * 400, b"0x7fffffff"])
async def test_moments_that_are_no_finite_numbers_are_refused(name: str, text: bytes) -> None:
    body = json.dumps(claims(**{name: "@"})).encode().replace(b'"@"', text)
    await refuses(verifier(), token(body), "token: claims: ")


@pytest.mark.parametrize("name", ["nbf", "iat"])
async def test_nbf_and_iat_may_lie_ahead_by_the_skew_and_no_more(name: str) -> None:
    assert (await verifier(skew=30).verify(token(claims(**{name: NOW + 30})), NOW)).subject == "alice"
    await refuses(verifier(skew=30), token(claims(**{name: NOW + 30.001})), "not valid yet")
    await refuses(verifier(skew=0), token(claims(**{name: NOW + 0.001})), "not valid yet")
    await verifier().verify(token(claims(**{name: NOW + 30})), NOW)
    await refuses(verifier(), token(claims(**{name: NOW + 30.001})), "not valid yet")
    await id_verifier().verify(token(id_claims(**{name: NOW + 30}), typ="JWT"), NOW)
    await refuses(id_verifier(), token(id_claims(**{name: NOW + 30.001}), typ="JWT"), "not valid yet")


async def test_the_later_of_nbf_and_iat_decides() -> None:
    await refuses(verifier(), token(claims(nbf=NOW + 100, iat=NOW - 100)), "not valid yet")
    await refuses(verifier(), token(claims(nbf=NOW - 100, iat=NOW + 100)), "not valid yet")


def test_a_verifier_tells_whose_tokens_it_takes() -> None:
    assert verifier().issuers == (ISSUER,)


async def test_nbf_and_iat_need_not_be_there() -> None:
    assert (await verifier().verify(token(claims(iat=...)), NOW)).subject == "alice"


# The kind of token


@walk("cnf", [{"jkt": "x"}, {"x5t#S256": "x"}, {"jkt": "AAAA"}, {"jkt": 5}, {"jkt": []}, {}, None, ""])
@walk("profile", list(TokenProfile))
async def test_a_token_that_is_bound_to_a_key_is_refused(cnf: Any, profile: TokenProfile) -> None:
    await refuses(verifier(profile=profile), token(claims(cnf=cnf), typ=profile.value), "bound to a key")


@walk("typ", ["at+jwt", "AT+JWT", "application/at+jwt", "Application/AT+jwt"])
async def test_an_access_token_says_so_in_typ(typ: str) -> None:
    assert (await verifier().verify(token(typ=typ), NOW)).subject == "alice"


@walk(
    "typ",
    [..., None, "", "JWT", "jwt", "application/jwt", "logout+jwt", "dpop+jwt", "at+jwt ", "xat+jwt", 1, ["at+jwt"]],
)
async def test_by_default_nothing_but_at_jwt_is_an_access_token(typ: Any) -> None:
    await refuses(verifier(), token(typ=typ), "typ is not (at.jwt|a string)")


@walk("typ", [..., "JWT", "jwt", "application/jwt"])
async def test_the_profile_for_plain_issuers_takes_jwt_and_no_typ(typ: Any) -> None:
    assert (await plain().verify(token(typ=typ), NOW)).subject == "alice"


@walk("typ", [None, "", "at+jwt", "logout+jwt", "secevent+jwt", "dpop+jwt", "JWS", 1])
async def test_the_profile_for_plain_issuers_takes_no_other_typ(typ: Any) -> None:
    await refuses(plain(), token(typ=typ), "typ is not (JWT|a string)")


@walk("name", ["nonce", "at_hash", "c_hash", "s_hash", "events"])
@walk("profile", list(TokenProfile))
async def test_claims_of_id_and_logout_tokens_make_no_access_token(name: str, profile: TokenProfile) -> None:
    await refuses(verifier(profile=profile), token(claims(**{name: "x"}), typ=profile.value), "claims of an ID token")


@walk(
    ("made", "why"),
    [
        (lambda: token(claims(iss=f"{ISSUER}/")), f'iss is not the issuer .{ISSUER}., but "{ISSUER}/"$'),
        (lambda: token(claims(iss=...)), f"iss is not the issuer .{ISSUER}.; it is missing$"),
        (lambda: token(typ="JWT"), r'typ is not at\+jwt, but "jwt"; .* profile=TokenProfile\.PLAIN_JWT$'),
        (lambda: token(typ="logout+jwt"), r'typ is not at\+jwt, but "logout\+jwt"$'),
        (lambda: token(claims(nonce="secret")), r"an ID token or a logout token \(nonce\)$"),
        (lambda: "opaque", "not a JWT; for opaque tokens use IntrospectionVerifier$"),
    ],
)
async def test_a_rejection_says_what_the_token_has(made: Callable[[], str], why: str) -> None:
    await refuses(verifier(), made(), why)


async def test_a_rejection_says_which_mark_is_missing() -> None:
    marked = plain(marked_by=AccessTokenMark("token_use", "access", in_all=True))
    await refuses(marked, token(claims(), typ="JWT"), "token_use is missing, so it is not an access token$")


@walk("kind", ["ID", "Refresh", "Offline", "Logout", "bearer", "", None, 1, ["Bearer"]])
async def test_keycloaks_own_word_for_the_kind_of_token_is_heeded(kind: Any) -> None:
    await refuses(plain(), token(claims(typ=kind), typ="JWT"), "its claim typ")
    assert (await plain().verify(token(claims(typ="Bearer"), typ="JWT"), NOW)).subject == "alice"


async def test_a_plain_jwt_without_any_sign_of_an_access_token_is_refused() -> None:
    await refuses(plain(), token(claims(scope=...), typ="JWT"), "no claim shows that it is an access token")


# ID tokens


def id_claims(**changes: Any) -> dict[str, Any]:
    return claims(**{"scope": ..., "client_id": ..., "nonce": "n", "at_hash": "h", **changes})


@walk("typ", [..., "JWT", "jwt"])
async def test_an_id_token_is_good_for_its_own_verifier_only(typ: Any) -> None:
    made = token(id_claims(), typ=typ)
    assert (await id_verifier().verify(made, NOW)).subject == "alice"
    for other in (verifier(), plain()):
        with pytest.raises(InvalidCredentialsError):
            await other.verify(made, NOW)


@walk("typ", ["at+jwt", "application/at+jwt", "logout+jwt", None, "", 1])
async def test_an_access_token_is_no_id_token(typ: Any) -> None:
    await refuses(id_verifier(), token(id_claims(), typ=typ), "typ is not (JWT|a string)")


@walk(
    "members",
    [
        {"events": {}},
        {"typ": "Bearer"},
        {"typ": "Refresh"},
        {"typ": "Logout"},
        # access tokens of Entra ID for an application: JWT, and its client_id for audience
        {"scp": "read", "azp": AUDIENCE},
        {"scope": "read", "client_id": "https://other.example"},
        {"azpacr": "1"},
        {"appidacr": "1"},
        {"token_use": "access"},
        {"tokenType": "refresh-token"},
        {"tok_type": "AT"},
    ],
)
async def test_logout_refresh_and_access_tokens_are_no_id_tokens(members: dict[str, Any]) -> None:
    await refuses(id_verifier(), token(id_claims(**members), typ="JWT"), "not an ID token")


@walk("members", [{"token_use": "id"}, {"tok_type": "IT"}, {"purpose": "id"}, {"typ": "ID"}])
async def test_an_id_token_may_say_that_it_is_one(members: dict[str, Any]) -> None:
    assert (await id_verifier().verify(token(id_claims(**members), typ="JWT"), NOW)).subject == "alice"


@walk("azp", [None, "", "https://other.example", [AUDIENCE]])
async def test_an_id_token_that_was_issued_to_another_party_is_not_ours(azp: Any) -> None:
    await refuses(id_verifier(), token(id_claims(azp=azp), typ="JWT"), "another party")
    good = token(id_claims(azp=AUDIENCE), typ="JWT")
    assert (await id_verifier().verify(good, NOW)).subject == "alice"


@walk("azp", [..., None, "", "https://other.example", [AUDIENCE]])
async def test_an_id_token_for_several_needs_our_azp(azp: Any) -> None:
    several = ["https://other.example", AUDIENCE]
    await refuses(id_verifier(), token(id_claims(aud=several, azp=azp), typ="JWT"), "another party|several audiences")
    await id_verifier().verify(token(id_claims(aud=[AUDIENCE], azp=...), typ="JWT"), NOW)
    good = token(id_claims(aud=several, azp=AUDIENCE), typ="JWT")
    assert (await id_verifier().verify(good, NOW)).subject == "alice"


@walk(
    "changes",
    [{"iss": "https://other.example"}, {"aud": "other"}, {"exp": NOW}, {"sub": ""}, {"iat": NOW + 60}, {"cnf": {}}],
)
async def test_the_other_rules_hold_for_id_tokens_too(changes: dict[str, Any]) -> None:
    await refuses(id_verifier(), token(id_claims(**changes), typ="JWT"), "token: ")


# Keys and algorithms


async def test_a_token_by_another_key_of_the_same_name_is_refused() -> None:
    await refuses(verifier(), token(signer=STRANGER), "the signature is not the issuer's")


@walk("kid", ["unknown", "", "ed", "EC"])
async def test_an_unknown_kid_is_refused(kid: str) -> None:
    await refuses(verifier(), token(kid=kid), "no such key")


@walk("kid", [1, True, ["ec"], {}])
async def test_a_kid_that_is_no_string_is_refused(kid: Any) -> None:
    await refuses(verifier(), token(kid=kid), "kid is not a string")


async def test_a_token_without_kid_needs_the_one_key_of_its_type() -> None:
    assert (await verifier().verify(token(kid=...), NOW)).subject == "alice"
    two = verifier(Keys(EC, generate_signer("ES256", kid="other")))
    await refuses(two, token(kid=...), "no such key")


async def test_the_public_key_is_no_hmac_secret() -> None:
    for secret in (EC.public_key.to_pem(), json.dumps(EC.public_key.to_jwk()).encode(), b""):
        signed = f"{b64(json.dumps(header_of(EC, alg='HS256')).encode())}.{b64(json.dumps(claims()).encode())}"
        forged = f"{signed}.{b64(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"
        await refuses(verifier(), forged, "its alg is not accepted")


@walk("alg", ["none", "None", "", "HS384", "es256", "ES256K", "dir", "RSA1_5"])
async def test_no_other_algorithm_is_accepted(alg: str) -> None:
    await refuses(verifier(), token(alg=alg), "its alg is not accepted")
    unsigned = token(alg=alg).rpartition(".")[0] + "."
    await refuses(verifier(), unsigned, "its alg is not accepted")


@walk("alg", [..., None, 1, ["ES256"]])
async def test_alg_is_a_string(alg: Any) -> None:
    await refuses(verifier(), token(alg=alg), "alg is missing or not a string")


async def test_the_algorithm_is_the_keys_own() -> None:
    pss = LocalSigner(RSA.private_key, alg="PS256", kid="rsa")
    await refuses(verifier(), token(signer=pss), "the signature is not the issuer's")
    assert (await verifier(Keys(pss)).verify(token(signer=pss), NOW)).subject == "alice"


async def test_a_kid_of_another_key_type_is_not_that_key() -> None:
    await refuses(verifier(), token(signer=EC, kid="rsa"), "no such key")
    await refuses(verifier(), token(signer=EC, alg="RS256", kid="rsa"), "the signature is not the issuer's")


@walk("name", ["crit", "b64"])
@walk("value", [[], ["exp"], ["b64"], False, None])
async def test_critical_extensions_are_refused(name: str, value: Any) -> None:
    await refuses(verifier(), token(**{name: value}), "crit and b64 are rejected")


@walk("name", ["jwk", "jku", "x5c", "x5u"])
async def test_a_key_inside_the_header_is_not_the_key(name: str) -> None:
    value: Any = STRANGER.public_key.to_jwk() if name == "jwk" else "https://attacker.example/jwks"
    await refuses(verifier(), token(signer=STRANGER, **{name: value}), "the signature is not the issuer's")


# The shape


@walk("credential", ["", ".", "..", "...", "a", "a.b", "x" * 100, "a.b.c.d", "a.b.c.d.e"])
async def test_what_is_no_compact_jws_is_refused(credential: str) -> None:
    await refuses(verifier(), credential, "token: ")


@walk("part", [0, 1, 2])
@walk("noise", ["=", " ", "\n", "+", "/", "%", "\0"])
async def test_every_part_is_canonical_base64url(part: int, noise: str) -> None:
    parts = token().split(".")
    parts[part] += noise
    await refuses(verifier(), ".".join(parts), "token: ")


@walk("body", [b"", b"[]", b"null", b'"sub"', b"{", b"\xef\xbb\xbf{}", b"{} {}", b"\xff"])
async def test_claims_are_one_json_object(body: bytes) -> None:
    await refuses(verifier(), token(body), "token: ")


async def test_nothing_is_made_of_claims_before_their_signature_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims that cannot be changed, exact numbers and scopes take many times what their JSON weighs."""
    read: list[str] = []

    def identity(**members: Any) -> Identity:
        read.append("identity")
        return Identity(**members)

    def numbers(*given: Any, **options: Any) -> Any:
        read.append("numbers")
        return read_numbers(*given, **options)

    monkeypatch.setattr("a2a_trust.auth.token_claims.Identity", identity)
    monkeypatch.setattr("a2a_trust.auth.jwt.strict_json.read_numbers", numbers)
    body = claims(x=[[]], y=1.5)
    await refuses(verifier(), token(body, signer=STRANGER), "signature is not the issuer's")
    assert read == []
    assert (await verifier().verify(token(body), NOW)).claims["x"] == ((),)
    assert read == ["numbers", "identity"]


async def test_claims_in_utf_16_or_with_duplicates_are_refused() -> None:
    text = json.dumps(claims())
    await refuses(verifier(), token(text.encode("utf-16")), "token: claims: ")
    twice = text[:-1] + ', "sub": "mallory"}'
    await refuses(verifier(), token(twice.encode()), "appears more than once")


async def test_claims_are_exact_whatever_they_hold_and_not_deeper_than_others() -> None:
    nested = {"ids": (2**64 + 1, None, True)}  # a list in the token
    odd = {"id": 12345678901234567890123, "ratio": 0.1, "nested": nested, "name": "Zoë\t😀"}
    for one in (odd, {"id": odd["id"]}, {"nested": odd["nested"]}, {"name": odd["name"]}):
        found = (await verifier().verify(token(claims(**one)), NOW)).claims
        assert {name: found[name] for name in one} == one
    deep = json.dumps(claims(deep=1)).replace(": 1,", ": @,").replace(": 1}", ": @}")
    body = deep.replace("@", "[" * 200 + "]" * 200)
    await refuses(verifier(), token(body.encode()), "nested deeper")


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
async def test_a_member_that_comes_twice_is_refused_however_it_is_written(separators: tuple[str, str]) -> None:
    for name, value in (("sub", "mallory"), ("exp", NOW + 600), ("aud", AUDIENCE), ("x", [])):
        text = json.dumps(claims(x=[]), separators=separators)
        twice = text[:-1] + json.dumps({name: value}, separators=separators).replace("{", ",")
        await refuses(verifier(), token(twice.encode()), "appears more than once")


@walk("header", [b"", b"[]", b"null", b"{", b'{"alg":"ES256","alg":"none"}'])
async def test_the_header_is_one_json_object_without_duplicates(header: bytes) -> None:
    await refuses(verifier(), sealed(header, json.dumps(claims()).encode()), "token: ")


async def test_a_token_at_the_limit_is_read_and_one_beyond_is_not() -> None:
    def padded(length: int) -> str:
        return token(claims(pad="x" * length))

    length = next(n for n in range(11_700, 12_300) if len(padded(n)) >= MAX_TOKEN - 1)
    at_limit = padded(length)
    assert len(at_limit) <= MAX_TOKEN
    assert (await verifier().verify(at_limit, NOW)).subject == "alice"
    await refuses(verifier(), padded(length + 3), "too long, or not ASCII")
    await refuses(verifier(), "x" * 10_000_000, "too long, or not ASCII")


@walk("credential", ["ü.b.c", "\ud800", "１.２.３"])
async def test_a_token_is_ascii(credential: str) -> None:
    await refuses(verifier(), credential, "too long, or not ASCII")


async def test_the_reason_never_holds_the_token() -> None:
    for bad in (token(signer=STRANGER), token(claims(exp=0)), token(claims(sub="", x="secret-claim"))):
        with pytest.raises(InvalidCredentialsError) as caught:
            await verifier().verify(bad, NOW)
        assert all(part not in str(caught.value) for part in (*bad.split("."), "secret-claim"))
        assert caught.value.__cause__ is None


async def test_a_wrong_audience_is_named_beside_ours_cut_and_escaped() -> None:
    for aud in ("https://a", ["x", "y"], "a\n\u202e", None):
        with pytest.raises(InvalidCredentialsError) as caught:
            await verifier().verify(token(claims(aud=aud)), NOW)
        assert str(caught.value) == f'token: audience {json.dumps(aud)} does not include "{AUDIENCE}"'
    with pytest.raises(InvalidCredentialsError) as caught:
        await verifier().verify(token(claims(aud="x" * 5000)), NOW)
    assert len(str(caught.value)) < 300


@walk(
    ("issuer", "name"),
    [
        ("https://idp.example/.well-known/openid-configuration", "https://idp.example"),
        ("https://idp.example/team/.well-known/openid-configuration", "https://idp.example/team"),
        ("https://idp.example/.well-known/oauth-authorization-server/team", "https://idp.example/team"),
    ],
)
def test_the_url_of_an_issuers_metadata_is_not_its_name(issuer: str, name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"such as '{name}'"):
        verifier(issuer=issuer)
    for kind in (OpenIdKeys, OAuth2Keys):
        with pytest.raises(ConfigurationError, match=f"such as '{name}'"):
            kind(issuer, Fetcher())


# Out of reach


async def test_a_source_of_keys_that_is_down_is_no_refusal() -> None:
    keys = Keys(EC)
    keys.down = True
    with pytest.raises(KeySourceUnavailableError):
        await verifier(keys).verify(token(), NOW)
    keys.down = False
    assert (await verifier(keys).verify(token(), NOW)).subject == "alice"


# Memory


async def test_a_token_that_was_verified_is_not_verified_again() -> None:
    keys = Keys(EC)
    judge, made = verifier(keys), token()
    first = await judge.verify(made, NOW)
    assert await judge.verify(made, NOW + 299) is first
    assert keys.asked == 1
    await judge.verify(made, NOW + 300)
    assert keys.asked == 2


async def test_what_is_remembered_ends_with_exp() -> None:
    judge, made = verifier(), token(claims(exp=NOW + 5))
    await judge.verify(made, NOW + 4.999)
    await refuses(judge, made, "it has expired", NOW + 5)


async def test_what_is_remembered_does_not_hold_before_the_token_does() -> None:
    judge, made = verifier(), token(claims(nbf=NOW))
    await judge.verify(made, NOW)
    await refuses(judge, made, "not valid yet", NOW - 31)


async def test_a_changed_key_set_ends_what_is_remembered() -> None:
    keys = Keys(EC)
    judge, made = verifier(keys), token()
    await judge.verify(made, NOW)
    keys.keys, keys.generation = [ED.public_key], 2
    await refuses(judge, made, "no such key")


async def test_a_key_that_is_lost_while_it_is_looked_up_is_not_remembered() -> None:
    class Hasty(Keys):
        async def key(self, kid: str, kty: str) -> PublicKey:
            found = await super().key(kid, kty)
            self.generation += 1
            return found

    keys = Hasty(EC)
    judge, made = verifier(keys), token()
    for asked in (1, 2):
        await judge.verify(made, NOW)
        assert keys.asked == asked


async def test_a_forgotten_token_is_verified_again() -> None:
    keys = Keys(EC)
    judge, made = verifier(keys), token()
    await judge.verify(made, NOW)
    judge.forget(made)
    judge.forget("never seen")
    keys.keys = []
    await refuses(judge, made, "no such key")


async def test_two_verifiers_remember_nothing_for_each_other() -> None:
    keys = Keys(EC)
    ours, theirs = verifier(keys), verifier(keys, audience="https://other.example")
    made = token()
    await ours.verify(made, NOW)
    await refuses(theirs, made, r'audience .* does not include "https?:')


async def test_a_full_memory_keeps_working_and_forgets_the_token_that_came_first() -> None:
    keys = Keys(ED)
    judge = verifier(keys, remember=8)
    made = [token(claims(jti=str(n)), signer=ED) for n in range(40)]
    for one in made:
        assert (await judge.verify(one, NOW)).subject == "alice"
        assert len(judge._valid) <= 8
    assert keys.asked == 40
    for one in made[-8:]:  # all others that fit are still there
        await judge.verify(one, NOW)
    assert keys.asked == 40
    await judge.verify(made[0], NOW)
    assert keys.asked == 41


async def test_memory_is_bounded_in_bytes_also_for_large_claims() -> None:
    """The memory that entries really take, and what was said of them, are both below the bound."""
    judge = verifier(Keys(ED), remember=10)
    groups = [f"group-{n}" for n in range(700)]
    shapes: list[dict[str, Any]] = [{"groups": groups}, {"x": [{}] * 2_500}, {"x": "y" * 8_000}, {}]
    shapes += [{"scope": " ".join(f"{n:x}" for n in range(2_500))}]
    for shape in shapes:
        made = [token(claims(jti=str(n), **shape), signer=ED) for n in range(15)]
        judge._valid.remove_where(lambda _: True)
        await judge.verify(made[0], NOW)
        gc.collect()
        tracemalloc.start()
        try:
            for one in made:
                await judge.verify(one, NOW)
            gc.collect()
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert judge._valid._bytes <= 10 * 4_096
        assert taken <= 10 * 4_096 + 65_536, shape  # what Python itself keeps beside that


async def test_a_token_larger_than_the_memory_is_verified_each_time() -> None:
    keys = Keys(ED)
    judge, made = verifier(keys, remember=1), token(claims(x=[{}] * 2_500), signer=ED)
    for asked in (1, 2):
        await judge.verify(made, NOW)
        assert (keys.asked, len(judge._valid)) == (asked, 0)


@walk("remember", [-1, 1.0, True, "1", None])
async def test_the_memory_is_a_number_of_tokens(remember: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be a number of tokens"):
        verifier(remember=remember)


async def test_what_was_verified_while_the_clock_ran_ahead_is_verified_again() -> None:
    keys = Keys(ED)
    judge, made = verifier(keys), token(claims(exp=NOW + 200_000), signer=ED)
    await judge.verify(made, NOW + 86_400)
    await judge.verify(made, NOW)  # the clock came back, and five minutes are not a day
    assert keys.asked == 2
    await judge.verify(made, NOW - 29)  # a clock that is set back by a little changes nothing
    assert keys.asked == 2


async def test_with_the_real_cache_a_withdrawn_key_ends_what_it_had_verified() -> None:
    published, now = [EC.public_key, ED.public_key], 0.0

    async def load() -> tuple[bytes, float | None]:
        return json.dumps(publish_jwks(published)).encode(), 60.0

    cache = JwksCache(load, clock=lambda: now)
    judge = JwtVerifier(cache, issuer=ISSUER, audience=AUDIENCE)
    by_ec, by_ed = token(), token(signer=ED)
    await judge.verify(by_ec, NOW)
    published.pop(0)
    now = 400.0  # older than max-age and the time in which the old set answers at once
    await judge.verify(by_ed, NOW)
    await refuses(judge, by_ec, "no EC key named 'ec'")


async def test_with_the_real_cache_a_new_key_ends_nothing() -> None:
    published, now = [EC.public_key], 0.0

    async def load() -> tuple[bytes, float | None]:
        return json.dumps(publish_jwks(published)).encode(), 60.0

    cache = JwksCache(load, clock=lambda: now)
    judge = JwtVerifier(cache, issuer=ISSUER, audience=AUDIENCE)
    made = token()
    first = await judge.verify(made, NOW)
    published.append(ED.public_key)
    await judge.verify(token(signer=ED), NOW)
    assert await judge.verify(made, NOW) is first


async def test_only_bound_tokens_are_taken_where_that_is_demanded() -> None:
    keys = Keys(EC)
    judge = verifier(keys, binding=TokenBinding.REQUIRED)
    assert judge.binding is TokenBinding.REQUIRED
    with pytest.raises(InvalidCredentialsError, match="not bound to a key"):
        await judge.verify_bound(token(), NOW)
    assert keys.asked == 0
    bound = token(claims(cnf={"x5t#S256": b64(bytes(32))}))
    assert (await judge.verify_bound(bound, NOW)).bound_to == KeyBinding(x5t_s256=b64(bytes(32)))
    await refuses(judge, bound, "proofs of keys are not accepted")
    assert verifier().binding is TokenBinding.OPTIONAL


async def test_whose_token_it_is_decides_before_any_key_is_asked_for() -> None:
    keys = Keys(EC)
    keys.down = True
    for foreign in (token(claims(iss="https://other.example"), typ="JWT"), token(claims(iss=...)), "opaque", "a.b"):
        with pytest.raises(UnrecognizedCredentialsError):
            await verifier(keys).verify(foreign, NOW)
    with pytest.raises(InvalidCredentialsError):
        await verifier(keys).verify("no.to.ken", NOW)
    assert keys.asked == 0
    with pytest.raises(KeySourceUnavailableError):
        await verifier(keys).verify(token(), NOW)


async def test_a_remembered_token_is_forgotten_by_what_is_signed() -> None:
    keys = Keys(EC)
    judge = verifier(keys)
    made = [token(), token(claims(jti="2")), token()]  # the third is the first, signed again
    for one in made:
        await judge.verify(one, NOW)
    judge.forget(made[0])
    keys.keys = []
    await refuses(judge, made[0], "no such key")
    await refuses(judge, made[2], "no such key")
    assert (await judge.verify(made[1], NOW)).subject == "alice"


# Configuration


@pytest.mark.parametrize("name", ["issuer", "audience"])
async def test_issuer_and_audience_are_needed(name: str) -> None:
    for wrong in ("", None, 5, [], [""], b"x"):
        with pytest.raises(ConfigurationError, match=f"{name} must be a string that is not empty"):
            verifier(None, **{name: wrong})
    kinds: tuple[Any, ...] = (JwtVerifier, IdTokenVerifier)
    for kind in kinds:
        given = {"issuer": ISSUER, "audience": AUDIENCE}
        del given[name]
        with pytest.raises(TypeError, match=name):
            kind(Keys(EC), **given)


@walk("skew", [-0.1, 300.1, float("inf"), float("nan")])
async def test_the_skew_is_bounded(skew: float) -> None:
    with pytest.raises(ConfigurationError, match="must be 0 to 300 seconds"):
        verifier(skew=skew)


async def test_there_is_no_other_profile() -> None:
    for wrong in ("anything", [], ["JWT", "anything"]):
        with pytest.raises(ConfigurationError, match=r"profile is TokenProfile\.RFC9068 or"):
            verifier(profile=wrong)


@walk("limits", [{"revoked": True}, {"not_after": NOW}, {"not_before": NOW + 1}])
async def test_a_token_by_a_key_that_is_not_valid_now_is_rejected(limits: dict[str, Any]) -> None:
    keys = Keys(EC)
    keys.keys = [replace(EC.public_key, **limits)]
    with pytest.raises(InvalidCredentialsError, match="its key is revoked, expired or not valid yet"):
        await JwtVerifier(keys, issuer=ISSUER, audience=AUDIENCE).verify(token(), NOW)


async def test_a_token_is_remembered_no_longer_than_its_key_is_valid() -> None:
    keys = Keys(EC)
    keys.keys = [replace(EC.public_key, not_before=NOW - 10, not_after=NOW + 10)]
    judge, good = JwtVerifier(keys, issuer=ISSUER, audience=AUDIENCE), token()
    for moment in (NOW, NOW + 9, NOW - 10):
        await judge.verify(good, moment)
    assert keys.asked == 1
    for moment in (NOW + 10, NOW - 11):
        with pytest.raises(InvalidCredentialsError):
            await judge.verify(good, moment)
