"""T5: the issuer signs many kinds of tokens with one key, and a server takes any of them for an access token.

Measured in several resource servers: ID, refresh and logout tokens, tokens that are bound to a key that the thief does
not have, tokens without end, and moments that are no numbers. Each token here is good but for the one thing.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from a2a_trust.auth.jwt import TokenProfile
from a2a_trust.auth.token_claims import AccessTokenMark
from a2a_trust.errors import InvalidCredentialsError
from tests.auth.proofs import CLIENT
from tests.auth.test_jwt import NOW, claims, token, verifier
from tests.auth.vendors import VENDORS, Vendor, network
from tests.base.net.test_fetcher import Authority
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


ID = {"scope": ..., "client_id": ..., "nonce": "n", "at_hash": "h", "auth_time": NOW, "acr": "1"}
EVENTS: dict[str, dict[str, str]] = {"http://schemas.openid.net/event/backchannel-logout": {}}

OTHERS: list[tuple[str, dict[str, Any], Any]] = [
    ("an ID token", ID, "JWT"),
    ("an ID token without typ", ID, ...),
    ("an ID token with scopes", {**ID, "scope": "read"}, "JWT"),
    ("an ID token of the hybrid flow", {"scope": "read", "c_hash": "h"}, "JWT"),
    ("an ID token of the implicit flow", {"scope": "read", "nonce": "n"}, "JWT"),
    ("a Keycloak ID token", {"typ": "ID", "azp": "c"}, "JWT"),
    ("a Keycloak refresh token", {"typ": "Refresh", "scope": "openid read"}, "JWT"),
    ("a Keycloak offline token", {"typ": "Offline", "scope": "offline_access read"}, "JWT"),
    ("a Casdoor refresh token", {"tokenType": "refresh-token", "scope": "read"}, "JWT"),
    ("a PingAM refresh token", {"tokenName": "refresh_token", "token_type": "Bearer", "scope": ["read"]}, "JWT"),
    ("an Oracle refresh token", {"tok_type": "RT", "scope": "read"}, "JWT"),
    ("a Curity ID token", {"purpose": "id", "scope": "read"}, "JWT"),
    ("a refresh token by token_type", {"token_type": "refresh", "scope": "read"}, "JWT"),
    ("a Cognito ID token with scopes", {"token_use": "id", "scope": "read"}, "JWT"),
    ("a Keycloak logout token", {"typ": "Logout"}, "JWT"),
    ("a logout token", {"events": EVENTS, "sid": "s"}, "JWT"),
    ("a logout token by its typ", {"events": EVENTS}, "logout+jwt"),
    ("a security event", {}, "secevent+jwt"),
    ("an authorization request", {}, "oauth-authz-req+jwt"),
    ("a client's assertion", {}, "client-authentication+jwt"),
    ("an introspection response", {}, "token-introspection+jwt"),
    ("a DPoP proof", {}, "dpop+jwt"),
]


@walk(("changes", "typ"), [other[1:] for other in OTHERS], ids=[other[0] for other in OTHERS])
@walk("profile", list(TokenProfile))
async def test_it_is_no_access_token(changes: dict[str, Any], typ: Any, profile: TokenProfile) -> None:
    with pytest.raises(InvalidCredentialsError):
        await verifier(profile=profile).verify(token(claims(**changes), typ=typ), NOW)


@walk(
    "changes",
    [
        {"tokenType": "access-token"},
        {"tokenName": "access_token", "token_type": "Bearer"},
        {"tok_type": "AT"},
        {"purpose": "access_token"},
        {"token_type": "access"},
        {"purpose": ["id"], "token_type": None},
    ],
    ids=str,
)
async def test_an_access_token_that_says_so_is_one(changes: dict[str, Any]) -> None:
    made = token(claims(**changes), typ="JWT")
    assert (await verifier(profile=TokenProfile.PLAIN_JWT).verify(made, NOW)).subject == "alice"


MARKS = {
    "its kind": AccessTokenMark("token_use", "access"),
    "a claim that is there": AccessTokenMark("kubernetes.io"),
    "a prefix": AccessTokenMark("client_id", prefix="service:"),
}
"""What operators name when access tokens have no scope: no token without it gets in by its being named."""


@walk("mark", MARKS.values(), ids=MARKS)
@walk("stolen", [{}, {"nonce": ..., "at_hash": ..., "auth_time": ..., "acr": ...}], ids=["whole", "bare"])
@walk("typ", ["JWT", ...])
async def test_an_id_token_for_this_agent_is_none_where_access_tokens_need_no_scope(
    mark: AccessTokenMark, stolen: dict[str, Any], typ: Any
) -> None:
    """The agent's audience is in its aud, and nothing of an ID token is left in it."""
    judge = verifier(profile=list(TokenProfile), marked_by=mark)
    tries: list[dict[str, Any]] = [{}, {"token_use": "id"}, {"kubernetes.io": {}}, {"client_id": "web"}]
    for changes in tries:
        with pytest.raises(InvalidCredentialsError, match=r"access token|claims of an ID token"):
            await judge.verify(token(claims(**{**ID, **stolen, **changes}), typ=typ), NOW)
    good = {"token_use": "access", "kubernetes.io": {"namespace": "n"}, "client_id": "service:a", "scope": ...}
    assert (await judge.verify(token(claims(**good), typ=typ), NOW)).subject == "alice"


@pytest.mark.parametrize(("profile", "typ"), [(TokenProfile.RFC9068, "at+jwt"), (TokenProfile.PLAIN_JWT, "JWT")])
async def test_the_same_token_without_the_one_thing_is_good(profile: TokenProfile, typ: str) -> None:
    assert (await verifier(profile=profile).verify(token(typ=typ), NOW)).subject == "alice"


@pytest.mark.parametrize("cnf", [{"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}, {"x5t#S256": "x"}, {}, None])
async def test_a_stolen_token_that_is_bound_to_a_key_is_no_bearer_token(cnf: Any) -> None:
    with pytest.raises(InvalidCredentialsError, match="bound to a key"):
        await verifier().verify(token(claims(cnf=cnf)), NOW)


@pytest.mark.parametrize("cnf", [{"jkt": CLIENT.public_key.thumbprint}, {"x5t#S256": CLIENT.public_key.thumbprint}])
async def test_a_token_that_is_bound_to_a_key_is_not_remembered_as_a_bearer_token(cnf: Any) -> None:
    """Its claims are remembered, after a request that had the proof; what they are bound to is part of them."""
    judge, bound = verifier(), token(claims(cnf=cnf))
    for _ in range(3):
        assert (await judge.verify_bound(bound, NOW)).bound_to is not None
        with pytest.raises(InvalidCredentialsError, match="bound to a key"):
            await judge.verify(bound, NOW)


@walk(
    "cnf",
    [
        None,
        {},
        [],
        "x",
        {"jkt": None},
        {"jkt": ""},
        {"jkt": "x"},
        {"jkt": ["0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"]},
        {"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I="},
        {"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4J"},  # bits that no octet uses
        {"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4IA"},
        {"x5t#S256": ""},
        {"x5t": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"},
        {"jwk": dict(CLIENT.public_key.jwk)},
        {"kid": "1"},
        {"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I", "kid": "1"},
        {"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I", "x5u": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"},
        {"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I", "x5t#S256": None},
        {"JKT": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"},
    ],
)
async def test_a_binding_that_is_not_understood_is_not_taken_for_none(cnf: Any) -> None:
    judge, bound = verifier(), token(claims(cnf=cnf))
    for verify in (judge.verify, judge.verify_bound):
        for _ in range(2):
            with pytest.raises(InvalidCredentialsError, match="bound to a key"):
                await verify(bound, NOW)


@walk("name", ["exp", "nbf", "iat"])
@walk("text", ["NaN", "-NaN", "Infinity", "true", '"9999999999"', "[9999999999]", "{}", "1e999"])
async def test_a_moment_that_is_no_number_is_no_moment(name: str, text: str) -> None:
    body = json.dumps(claims(**{name: "@"})).replace('"@"', text)
    with pytest.raises(InvalidCredentialsError):
        await verifier().verify(token(body.encode()), NOW)


@walk("exp", [..., None, NOW, NOW - 1, 0])
async def test_a_token_without_end_or_at_its_end_is_refused(exp: Any) -> None:
    with pytest.raises(InvalidCredentialsError, match=r"it has expired|it has no exp"):
        await verifier(skew=300).verify(token(claims(exp=exp)), NOW)


@pytest.mark.parametrize("name", ["nbf", "iat"])
async def test_a_token_of_the_future_is_refused(name: str) -> None:
    with pytest.raises(InvalidCredentialsError, match="not valid yet"):
        await verifier().verify(token(claims(**{name: NOW + 31, "exp": NOW + 600})), NOW)


# Presets for identity providers


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@walk("vendor", VENDORS, ids=lambda vendor: vendor.name)
async def test_no_preset_takes_an_id_refresh_or_logout_token_of_any_vendor(
    vendor: Vendor, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is issued by the preset's own issuer, for the agent, with and without what most readers look at."""
    here: dict[str, Any] = {"iss": vendor.issuer, "aud": vendor.audience, vendor.audience_in: vendor.audience}
    bare = dict.fromkeys(["nonce", "at_hash", "c_hash", "s_hash"], ...)
    async with network(vendor.documents, authority, monkeypatch) as (fetcher, servers):
        judge = vendor.verifier(fetcher)
        for shape in [shape for other in VENDORS for shape in other.others if not shape.is_altered]:
            for changes in (here, {**here, **bare}):
                with pytest.raises(InvalidCredentialsError):
                    await judge.verify_bound(shape.token(**changes), NOW)
        assert servers.asked == []
