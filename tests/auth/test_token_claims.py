"""Where tokens say what they allow and whom they are for, and by what access tokens are told from others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.auth.token_claims import (
    NOT_ID,
    AccessTokenMark,
    ScopeClaims,
    actors_of,
    audiences_of,
    binding_of,
    candidates,
    check_other_kinds,
    claim_of_kind,
    client_of,
    is_for,
    marks_of,
    moments_of,
)
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError
from tests.tables import walk

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)

# Clients


@walk(
    ("claims", "client"),
    [
        ({"client_id": "a", "azp": "b", "cid": "c", "appid": "d"}, "a"),  # RFC 9068
        ({"azp": "b", "cid": "c", "appid": "d"}, "b"),  # Keycloak
        ({"cid": "c", "appid": "d"}, "c"),  # Okta
        ({"appid": "d"}, "d"),  # Entra ID, version 1
        ({"sub": "ann"}, None),
        ({"client_id": "", "azp": 1, "cid": None, "appid": ["d"]}, None),
        ({"client_id": ["a"], "azp": "b"}, "b"),
    ],
)
def test_the_client_stands_in_the_claim_of_its_issuer(claims: dict[str, Any], client: str | None) -> None:
    assert client_of(claims) == client


@given(JSON)
def test_any_actors_are_read_or_refused(act: Any) -> None:
    """``tests/attacks/test_t13_actors_that_are_malformed.py`` has the table."""
    try:
        assert len(actors_of({"act": act}, "i")) <= 8
    except InvalidCredentialsError:
        return
    assert type(act["sub"]) is str


# Scopes


@walk(
    ("scopes_from", "claims", "scopes"),
    [
        ("scope", {"scope": "a b"}, {"a", "b"}),
        ("scope", {"scp": "a"}, set()),
        (["scope", "scp"], {"scope": "a", "scp": ["b"]}, {"a", "b"}),
        ("permissions", {"permissions": ["read:x"], "scope": "other"}, {"read:x"}),
        ("realm_access.roles", {"realm_access": {"roles": ["admin"]}}, {"admin"}),
        ("resource_access.agent.roles", {"resource_access": {"agent": {"roles": ["a"]}, "b": {"roles": ["c"]}}}, {"a"}),
        ("resource_access.agent.roles", {"resource_access": {}}, set()),
        ("urn:zitadel:iam:org:project:roles", {"urn:zitadel:iam:org:project:roles": {"r": {"1": "d"}}}, {"r"}),
        (
            "roles",
            {"roles": {"r": True, "admin": False, "root": None, "owner": {}, "all": [], "any": "", "w": 0}},
            {"r"},
        ),
        ("https://example.com/roles", {"https://example.com/roles": ["r"], "https://example": {}}, {"r"}),
        (lambda claims: claims["a"]["b"], {"a": {"b": ["x"]}}, {"x"}),
        (lambda claims: (each for each in ("x", "")), {}, {"x"}),
    ],
)
def test_scopes_are_where_scopes_from_says(scopes_from: Any, claims: dict[str, Any], scopes: set[str]) -> None:
    reader = ScopeClaims(scopes_from)
    assert reader.of_claims(claims) == scopes


@walk(
    ("scopes_from", "claims"),
    [
        ("scope", {"scope": 1}),
        ("scope", {"scope": {"a": 1}}),
        ("scp", {"scp": None}),
        ("roles", {"roles": [1]}),
        ("roles", {"roles": True}),
        ("realm_access.roles", {"realm_access": "roles"}),
        ("realm_access.roles", {"realm_access": ["roles"]}),
    ],
)
def test_claims_that_hold_no_scopes_are_rejected(scopes_from: str, claims: dict[str, Any]) -> None:
    with pytest.raises(InvalidCredentialsError, match=r"neither a string nor a list|is not where scopes_from says"):
        ScopeClaims(scopes_from).of_claims(claims)


@walk("scopes_from", ["", "a.", ".a", "a..b", [], [""], ["a", 1], None, 5, b"scope"])
def test_scopes_from_that_says_nothing_is_refused_at_start(scopes_from: Any) -> None:
    with pytest.raises(ConfigurationError, match="scopes_from: write the name of a claim"):
        ScopeClaims(scopes_from)


def _raising(claims: Any) -> list[str]:
    raise KeyError("secret-claim")


@walk(
    ("function", "why"),
    [
        (_raising, "scopes_from raised KeyError$"),
        (lambda claims: "admin", "did not return a list of strings"),
        (lambda claims: [1], "did not return a list of strings"),
        (lambda claims: {"a": 1}, "did not return a list of strings"),
        (lambda claims: None, "scopes_from raised TypeError"),
    ],
)
def test_a_function_that_fails_admits_nobody(function: Any, why: str) -> None:
    with pytest.raises(InvalidCredentialsError, match=why):
        ScopeClaims(function).of_claims({})


@given(JSON, st.sampled_from(["scope", "roles", "realm_access.roles", "a.b.c", "urn:x"]))
def test_whatever_a_claim_holds_it_is_scopes_or_a_rejection(value: Any, name: str) -> None:
    claims = {name: value, name.split(".", maxsplit=1)[0]: value}
    try:
        scopes = ScopeClaims(name).of_claims(claims)
    except InvalidCredentialsError:
        return
    assert all(type(scope) is str and scope for scope in scopes)


def test_candidates_are_claims_that_scopes_from_can_name() -> None:
    claims = {
        "scope": "openid",
        "roles": ["read", "x"],
        "realm_access": {"roles": ["read"], "odd.name": ["read"]},
        "a.b": ["read"],
        "urn:roles": {"read": {"1": "d"}},
        "deep": {"er": {"still": ["read"], "most": {"too": ["read"]}}},
        "n": 5,
    }
    found = candidates(claims, {"read", "write"})
    assert found == ("roles", "realm_access.roles", "urn:roles", "deep.er.still")
    assert all("read" in ScopeClaims(name).of_claims(claims) for name in found)
    assert candidates(claims, {"write"}) == ()
    assert candidates({f"c{n}": "read" for n in range(1000)}, {"read"})[-1] == "c255"


# Marks


@walk(
    ("mark", "claims", "is_in", "is_contradicted"),
    [
        (AccessTokenMark("use", "access"), {"use": "access"}, True, False),
        (AccessTokenMark("use", "access"), {"use": "id"}, False, True),
        (AccessTokenMark("use", "access"), {"use": ["access"]}, False, True),
        (AccessTokenMark("use", "access"), {"use": None}, False, True),
        (AccessTokenMark("use", "access"), {}, False, False),
        (AccessTokenMark("use", "a", "b"), {"use": "b"}, True, False),
        (AccessTokenMark("sub", prefix="spiffe://x/"), {"sub": "spiffe://x/a"}, True, False),
        (AccessTokenMark("sub", prefix="spiffe://x/"), {"sub": "spiffe://x/"}, False, True),
        (AccessTokenMark("sub", prefix="spiffe://x/"), {"sub": "spiffe://x.evil/a"}, False, True),
        (AccessTokenMark("kubernetes.io"), {"kubernetes.io": {"namespace": "n"}}, True, False),
        (AccessTokenMark("kubernetes.io"), {"kubernetes": {"io": 1}}, False, False),
        (AccessTokenMark("kubernetes.io"), {"kubernetes.io": {}}, False, True),
    ],
)
def test_marks(mark: AccessTokenMark, claims: dict[str, Any], is_in: bool, is_contradicted: bool) -> None:
    assert (mark.is_in(claims), mark.is_contradicted_by(claims)) == (is_in, is_contradicted)


@walk(
    ("words", "prefix"), [(("",), ""), (("a", ""), ""), (("a", "b"), "c"), ((1,), ""), (("a", 1), ""), (("a",), None)]
)
def test_a_mark_that_says_nothing_is_refused(words: Any, prefix: Any) -> None:
    with pytest.raises(ConfigurationError, match="AccessTokenMark: write"):
        AccessTokenMark(*words, prefix=prefix)


def test_marks_are_one_or_a_list() -> None:
    mark = AccessTokenMark("a")
    assert marks_of(mark) == marks_of([mark]) == (mark,)
    assert marks_of(()) == ()
    for wrong in ("token_use", ["a"], None, 5):
        with pytest.raises(ConfigurationError, match="marked_by: write AccessTokenMark"):
            marks_of(wrong)  # type: ignore[arg-type]


# Kinds


@walk("name", ["token_type", "token_use", "tokenType", "tokenName", "tok_type", "purpose", "typ"])
@walk(
    "kind",
    ["refresh", "Refresh_Token", "RT", "offline", "offline-token", "logout", "LogoutToken", "id", "id_token", "it"],
)
def test_other_kinds_of_tokens_are_no_access_tokens(kind: str, name: str) -> None:
    with pytest.raises(InvalidCredentialsError, match=f"its claim {name} is .*, so it is not an access token"):
        check_other_kinds({name: kind})
    assert (claim_of_kind({name: kind}, NOT_ID) is None) is (kind.startswith("i"))


@walk("kind", ["access", "access_token", "at", "Bearer", "DPoP", "urn:x", "", None, ["refresh"]])
def test_all_else_says_nothing_against_an_access_token(kind: Any) -> None:
    check_other_kinds({"typ": kind})
    assert (claim_of_kind({"typ": kind}, NOT_ID) == "typ") is (type(kind) is str and kind.startswith("a"))


# The rest


def test_audiences() -> None:
    assert audiences_of("a", "X") == {"a"}
    assert audiences_of(["a", "b"], "X") == {"a", "b"}
    for wrong in ("", [], [""], ["a", None], None, 5, b"a"):
        with pytest.raises(ConfigurationError, match="X: audience must be"):
            audiences_of(wrong, "X")  # type: ignore[arg-type]
    ours = frozenset({"a", "b"})
    assert is_for("a", ours)
    assert is_for(["x", "b"], ours)
    for aud in ("", "x", [], ["x"], ["a", 1], None, {"a": 1}, 5, True):
        assert not is_for(aud, ours)


def test_a_binding_that_is_not_understood_is_rejected() -> None:
    assert binding_of({"jkt": "A" * 43}).jkt == "A" * 43
    for cnf in (None, {}, {"kid": "x"}, {"jkt": "A" * 42}, {"jkt": "A" * 43, "jwk": {}}):
        with pytest.raises(InvalidCredentialsError):
            binding_of(cnf)


def test_moments() -> None:
    assert moments_of({"exp": 11, "nbf": 5, "iat": 6}, 10, 1) == (5, 11.0)
    assert moments_of({}, 10, 0) == (0, None)
    for claims in ({"exp": 10}, {"exp": "11"}, {"exp": True}, {"nbf": 12}, {"iat": 12}, {"nbf": "1"}):
        with pytest.raises(InvalidCredentialsError):
            moments_of(claims, 10, 1)


@walk(("claims", "is_missed"), [({}, True), ({"uid": ""}, True), ({"uid": "1"}, False)])
def test_a_mark_of_all_access_tokens_is_missed(claims: dict[str, Any], is_missed: bool) -> None:
    assert AccessTokenMark("uid", in_all=True).is_contradicted_by(claims) == is_missed
    assert AccessTokenMark("uid").is_contradicted_by(claims) == (is_missed and "uid" in claims)
