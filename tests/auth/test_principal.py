"""Callers as values: what their claims hold can be copied, stored and shown, and never changed."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.auth.principal import Anonymous, Identity, Principal
from a2a_trust.errors import ConfigurationError
from tests.tables import walk

CLAIMS: dict[str, Any] = {
    "roles": ["reader", {"of": ["ledger"]}],
    "realm": {"groups": {"a", "b"}, "key": bytearray(b"k"), "none": None, "at": datetime(2026, 11, 22, tzinfo=UTC)},
    "limit": Decimal("1.5"),
}


def identity(**claims: Any) -> Identity:
    return Identity(issuer="own", subject="ann", claims=claims)


def caller() -> Principal:
    return Principal(identities=(("token", identity(**CLAIMS)),))


def assert_whole_and_read_only(claims: Any) -> None:
    assert claims == identity(**CLAIMS).claims
    assert claims["roles"] == ("reader", {"of": ("ledger",)})
    assert type(claims["realm"]["groups"]) is frozenset
    assert type(claims["realm"]["key"]) is bytes
    for target in (claims, claims["realm"], claims["roles"][1]):
        with pytest.raises(TypeError):
            target["x"] = 1
        with pytest.raises(TypeError):
            target._members["x"] = 1
        with pytest.raises(AttributeError):
            target._members = {}


@walk("copied", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_a_copy_of_a_caller_is_whole_and_as_read_only(copied: Any) -> None:
    again = copied(caller())
    assert again == caller()
    assert_whole_and_read_only(again.identity("token").claims)
    assert_whole_and_read_only(copied(caller().identities[0][1].claims))


def test_a_caller_can_be_taken_apart() -> None:
    ((scheme, taken),) = dataclasses.asdict(caller())["identities"]
    assert (scheme, taken["subject"]) == ("token", "ann")
    assert_whole_and_read_only(taken["claims"])
    assert dataclasses.replace(caller().identities[0][1], subject="bob").claims == caller().identities[0][1].claims


def test_claims_are_a_mapping_that_json_takes_as_the_guide_says() -> None:
    claims = identity(a=1, b={"c": [2, {"d": None}]}).claims
    assert (list(claims), len(claims), claims.get("x"), "a" in claims) == (["a", "b"], 2, None, True)
    assert claims == {"a": 1, "b": {"c": (2, {"d": None})}}
    assert repr(claims) == "{'a': 1, 'b': {'c': (2, {'d': None})}}"
    assert json.dumps(claims, default=dict) == '{"a": 1, "b": {"c": [2, {"d": null}]}}'


class Account:
    """Something that a verifier of somebody's own might put into the claims."""


@walk(
    ("claims", "named"),
    [
        ({"account": Account()}, "account"),
        ({"realm": {"account": Account()}}, "realm.account"),
        ({"roles": ["a", {"account": Account()}]}, "roles[1].account"),
        ({"roles": {Account()}}, "roles[0]"),
    ],
)
def test_a_claim_that_could_be_changed_is_refused_by_its_name(claims: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        identity(**claims)
    assert f"claims: {named} is of the type Account" in str(caught.value)


# Names


def named(*identities: tuple[str, str, str]) -> Principal:
    return Principal(
        identities=tuple((scheme, Identity(issuer=issuer, subject=subject)) for scheme, subject, issuer in identities)
    )


@walk(
    ("identities", "name"),
    [
        ([("login", "ann", "idp.example")], "login:ann@idp.example"),
        ([("login", "ann", "https://idp.example/tenant:1")], "login:ann@https://idp.example/tenant:1"),
        ([("login", "ann@corp.example", "x:y")], "login:ann%40corp.example@x:y"),
        ([("my:key", "a:b", "k@1")], "my%3Akey:a:b@k%401"),
        ([("my@key", "a%40", "")], "my@key:a%2540@"),
        ([("key", "ü, b\n", "\ud800")], "key:%C3%BC%2C%20b%0A@%ED%A0%80"),
        ([("mtls", "CN=ann", "ca"), ("oauth", "tok", "i")], "mtls:CN=ann@ca,oauth:tok@i"),
    ],
)
def test_the_display_name_has_scheme_subject_and_issuer(identities: list[tuple[str, str, str]], name: str) -> None:
    assert named(*identities).display_name == name


TEXTS = st.text(st.characters(codec=None), max_size=6)


def read_name(name: str) -> list[tuple[str, ...]]:
    """The parts that a display name was made of."""
    parts = []
    for each in name.split(","):
        scheme, _, rest = each.partition(":")
        parts.append(tuple(unquote(part, errors="surrogatepass") for part in (scheme, *rest.split("@"))))
    return parts


@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=3))
def test_a_display_name_can_be_read_again_so_no_two_callers_share_one(identities: list[tuple[str, str, str]]) -> None:
    name = named(*identities).display_name
    assert read_name(name) == identities
    assert name.isascii()
    assert not set(name) & {*map(chr, range(33)), "\x7f"}


def test_a_name_is_short_and_for_people() -> None:
    assert named(("login", "ann", "https://idp.example")).name == "ann"
    assert named(("a", "ann", "i"), ("b", "ann", "j")).name == "ann"
    assert named(("a", "ann", "i"), ("b", "svc", "j")).name == "ann, svc"
    assert named(("a", "x\n\u202eb\ud800", "i")).name == "x??b?"
    assert named(("a", "x" * 64, "i")).name == "x" * 64
    assert named(("a", "x" * 65, "i")).name == "x" * 63 + "…"
    assert Anonymous().name == "anonymous"
