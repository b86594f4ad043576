"""Refusals on the wire: status, challenges and bodies, word by word."""

from __future__ import annotations

import json
from typing import Any

import pytest

from a2a_trust.auth.dpop import DPoP, ServerNonces
from a2a_trust.auth.guard import Guard, Rejected
from a2a_trust.card.operations import Binding
from a2a_trust.card.view import read_card
from a2a_trust.errors import (
    AuthorizationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MissingCredentialsError,
)
from a2a_trust.middleware.rejection import Rejection, rejection_for
from tests.auth.test_jwt import NOW
from tests.middleware.agent import CARD, verifiers
from tests.tables import walk

INFO = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "domain": "a2a-protocol.org"}


def invalid(scheme: str | None) -> Rejected:
    return Rejected(InvalidCredentialsError("secret reason"), scheme)


def forbidden(scopes: tuple[str, ...], by_scheme: dict[str, tuple[str, ...]], *, by_dpop: bool = False) -> Rejected:
    return Rejected(AuthorizationError("secret reason", scopes, by_scheme), by_dpop=by_dpop)


MISSING, INVALID = Rejected(MissingCredentialsError("secret reason")), invalid("oauth")
FORBIDDEN = forbidden(("read", "write"), {"oauth": ("read", "write")})
DOWN = Rejected(KeySourceUnavailableError("secret reason"))


def answer(
    error: Rejected, binding: Binding = Binding.JSONRPC, *, dpop: DPoP | None = None, **members: Any
) -> Rejection:
    card = {**CARD, **members}
    used = {name for item in card["securityRequirements"] for name in item["schemes"]}
    given = verifiers()
    if card["securitySchemes"]["key"].get("type") == "http":
        given["key"] = given["oauth"]
    chosen = {name: verifier for name, verifier in given.items() if name in used}
    nonce = None if dpop is None else dpop.nonce(NOW)
    return rejection_for(error, Guard(read_card(card), chosen, dpop=dpop), binding, dpop_nonce=nonce)


def values(rejection: Rejection, name: bytes) -> list[str]:
    return [value.decode() for line, value in rejection.headers if line == name]


@pytest.mark.parametrize(
    ("error", "status", "code", "reason", "message"),
    [
        (MISSING, 401, -31401, "UNAUTHENTICATED", "Authentication is required."),
        (INVALID, 401, -31401, "UNAUTHENTICATED", "Authentication is required."),
        (FORBIDDEN, 403, -31403, "UNAUTHORIZED", "The caller is not allowed to do this."),
        (DOWN, 503, -32603, "UNAVAILABLE", "Credentials cannot be checked now."),
    ],
)
def test_the_body_of_json_rpc(error: Rejected, status: int, code: int, reason: str, message: str) -> None:
    rejection = answer(error, Binding.JSONRPC)
    assert rejection.status == status
    assert json.loads(rejection.body) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": code, "message": message, "data": [{**INFO, "reason": reason}]},
    }
    assert values(rejection, b"content-type") == ["application/json"]


@pytest.mark.parametrize(
    ("error", "status", "name", "reason"),
    [
        (MISSING, 401, "UNAUTHENTICATED", "UNAUTHENTICATED"),
        (INVALID, 401, "UNAUTHENTICATED", "UNAUTHENTICATED"),
        (FORBIDDEN, 403, "PERMISSION_DENIED", "UNAUTHORIZED"),
        (DOWN, 503, "UNAVAILABLE", "UNAVAILABLE"),
    ],
)
def test_the_body_of_http_json(error: Rejected, status: int, name: str, reason: str) -> None:
    rejection = answer(error, Binding.HTTP_JSON)
    assert rejection.status == status
    body = json.loads(rejection.body)
    assert body["error"].pop("message")
    assert body == {"error": {"code": status, "status": name, "details": [{**INFO, "reason": reason}]}}
    assert values(rejection, b"content-type") == ["application/a2a+json"]


@walk("binding", list(Binding))
@walk("error", [MISSING, INVALID, FORBIDDEN, DOWN])
def test_every_refusal_is_complete_is_not_cached_and_does_not_say_why(error: Rejected, binding: Binding) -> None:
    rejection = answer(error, binding)
    assert values(rejection, b"content-length") == [str(len(rejection.body))]
    assert values(rejection, b"cache-control") == ["no-store"]
    assert b"secret" not in rejection.body + b"".join(name + value for name, value in rejection.headers)


KEY_CHALLENGE = 'ApiKey in="header", name="X-API-Key"'
BEARER = 'Bearer scope="read"'


@walk(
    ("error", "challenges"),
    [
        (MISSING, [KEY_CHALLENGE, BEARER]),
        (INVALID, [KEY_CHALLENGE, 'Bearer error="invalid_token"']),
        (invalid("key"), [KEY_CHALLENGE, BEARER]),
        (invalid(None), [KEY_CHALLENGE, BEARER]),
        (FORBIDDEN, [KEY_CHALLENGE, 'Bearer error="insufficient_scope", scope="read write"']),
        (forbidden(("read",), {"key": ("read",)}), [KEY_CHALLENGE, BEARER]),
        (
            forbidden(("a", "b"), {"key": ("a",), "oauth": ("b",)}),
            [KEY_CHALLENGE, 'Bearer error="insufficient_scope", scope="b"'],
        ),
        (DOWN, []),
    ],
)
def test_there_is_one_challenge_for_each_scheme_that_a_caller_may_use(error: Rejected, challenges: list[str]) -> None:
    assert values(answer(error), b"www-authenticate") == challenges


def test_only_an_outage_says_when_to_come_again() -> None:
    assert int(values(answer(DOWN), b"retry-after")[0]) > 0
    for error in (MISSING, INVALID, FORBIDDEN):
        assert values(answer(error), b"retry-after") == []


def test_schemes_that_nothing_demands_are_not_challenged_for() -> None:
    rejection = answer(MISSING, securityRequirements=[{"schemes": {"key": {}}}])
    assert values(rejection, b"www-authenticate") == [KEY_CHALLENGE]


@walk(
    ("requirements", "bearer"),
    [
        ([{"oauth": ["b", "a"]}, {"oauth": ["c"]}], 'Bearer scope="c"'),
        ([{"oauth": ["b"]}, {"oauth": ["a"]}], 'Bearer scope="b"'),
        ([{"key": [], "oauth": ["a"]}, {"oauth": ["c", "b"]}], 'Bearer scope="b c"'),
        ([{"key": []}, {"oauth": ["a"]}], 'Bearer scope="a"'),
        ([{"oauth": []}, {"oauth": ["a"]}], 'Bearer realm="A2A"'),
    ],
)
def test_bearers_are_told_the_scopes_of_the_cheapest_alternative(
    requirements: list[dict[str, list[str]]], bearer: str
) -> None:
    demanded = [{"schemes": {name: {"list": each} for name, each in one.items()}} for one in requirements]
    assert values(answer(MISSING, securityRequirements=demanded), b"www-authenticate")[-1] == bearer


@pytest.mark.parametrize("location", ["query", "cookie"])
def test_a_key_elsewhere_is_challenged_for_there(location: str) -> None:
    schemes = {"key": {"type": "apiKey", "in": location, "name": "k"}}
    rejection = answer(MISSING, securitySchemes=schemes, securityRequirements=[{"schemes": {"key": {}}}])
    assert values(rejection, b"www-authenticate") == [f'ApiKey in="{location}", name="k"']


@pytest.mark.parametrize(
    ("error", "challenge"),
    [
        (MISSING, BEARER),
        (invalid("key"), 'Bearer error="invalid_token"'),
        (INVALID, 'Bearer error="invalid_token"'),
        (
            forbidden(("a", "b"), {"key": ("b",), "oauth": ("a", "b")}),
            'Bearer error="insufficient_scope", scope="a b"',
        ),
    ],
)
def test_two_schemes_for_one_token_make_one_challenge(error: Rejected, challenge: str) -> None:
    schemes = {"key": {"type": "http", "scheme": "bearer"}, "oauth": {"type": "oauth2"}}
    assert values(answer(error, securitySchemes=schemes), b"www-authenticate") == [challenge]


def test_http_json_of_versions_before_1_0_has_no_media_type_of_its_own() -> None:
    guard = Guard(read_card(CARD), verifiers())
    new, old = (rejection_for(MISSING, guard, Binding.HTTP_JSON, legacy=legacy) for legacy in (False, True))
    assert values(old, b"content-type") == ["application/json"]
    assert old.body == new.body


def test_challenges_can_stand_in_one_line() -> None:
    rejection = answer(MISSING)
    joined = rejection.with_one_challenge_line()
    assert values(joined, b"www-authenticate") == [f"{KEY_CHALLENGE}, {BEARER}"]
    assert {line for line in rejection.headers if line[0] != b"www-authenticate"} < set(joined.headers)
    assert (joined.status, joined.body) == (rejection.status, rejection.body)
    assert answer(DOWN).with_one_challenge_line() == answer(DOWN)


ALGS = 'algs="ES256 ES384 ES512 EdDSA Ed25519 RS256 RS384 RS512 PS256 PS384 PS512"'


def of_dpop(oauth_error: str = "invalid_token") -> Rejected:
    return Rejected(InvalidCredentialsError("secret reason", oauth_error=oauth_error), "oauth", by_dpop=True)


def lacking_by_dpop() -> Rejected:
    return forbidden(("read",), {"oauth": ("read",)}, by_dpop=True)


@walk(
    ("error", "bearer", "dpop"),
    [
        (MISSING, BEARER, f"DPoP {ALGS}"),
        (INVALID, 'Bearer error="invalid_token"', f"DPoP {ALGS}"),
        (of_dpop(), BEARER, f'DPoP error="invalid_token", {ALGS}'),
        (of_dpop("invalid_dpop_proof"), BEARER, f'DPoP error="invalid_dpop_proof", {ALGS}'),
        (of_dpop("use_dpop_nonce"), BEARER, f'DPoP error="use_dpop_nonce", {ALGS}'),
        (FORBIDDEN, 'Bearer error="insufficient_scope", scope="read write"', f"DPoP {ALGS}"),
        (lacking_by_dpop(), BEARER, f'DPoP error="insufficient_scope", scope="read", {ALGS}'),
    ],
)
def test_who_may_use_dpop_is_told_so_beside_bearer_and_hears_of_errors_where_the_token_came(
    error: Rejected, bearer: str, dpop: str
) -> None:
    rejection = answer(error, dpop=DPoP(url="http://agent.example"))
    assert values(rejection, b"www-authenticate") == [KEY_CHALLENGE, bearer, dpop]
    assert values(rejection, b"dpop-nonce") == []
    assert values(rejection.with_one_challenge_line(), b"www-authenticate") == [f"{KEY_CHALLENGE}, {bearer}, {dpop}"]


def test_http_bearer_beside_oauth_is_told_of_bearer_alone() -> None:
    schemes = {"key": {"type": "http", "scheme": "bearer"}, "oauth": {"type": "oauth2"}}
    rejection = answer(of_dpop(), dpop=DPoP(url="http://agent.example"), securitySchemes=schemes)
    assert values(rejection, b"www-authenticate") == [BEARER, f'DPoP error="invalid_token", {ALGS}']


@pytest.mark.parametrize(("error", "given"), [(MISSING, 1), (of_dpop("use_dpop_nonce"), 1), (FORBIDDEN, 0), (DOWN, 0)])
def test_a_401_gives_the_nonce_that_the_next_proof_has_to_hold(error: Rejected, given: int) -> None:
    dpop = DPoP(url="http://agent.example", nonces=ServerNonces(b"s" * 32))
    assert values(answer(error, dpop=dpop), b"dpop-nonce") == [dpop.nonce(NOW)] * given
