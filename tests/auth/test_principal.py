"""Callers as values: what their claims hold can be copied, stored and shown, and never changed."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.authentication import BaseUser

from a2a_trust.auth.principal import Actor, Anonymous, Identity, Principal
from a2a_trust.errors import ConfigurationError
from tests.conftest import ROOT
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
    assert_whole_and_read_only(again.by_scheme("token").claims)
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
    ("identities", "owner"),
    [
        ([("login", "ann", "idp.example")], "ann@idp.example"),
        ([("login", "ann", "https://idp.example/tenant:1")], "ann@https://idp.example/tenant:1"),
        ([("login", "ann@corp.example", "x:y")], "ann%40corp.example@x:y"),
        ([("my:key", "a:b", "k@1")], "a:b@k%401"),
        ([("my@key", "a%40", "")], "a%2540@"),
        ([("key", "ü, b\n", "\ud800")], "%C3%BC%2C%20b%0A@%ED%A0%80"),
        ([("mtls", "CN=ann", "ca"), ("oauth", "tok", "i")], "CN=ann@ca,tok@i"),
        ([("a", "tok", "i"), ("b", "CN=ann", "ca")], "CN=ann@ca,tok@i"),
        ([("a", "ann", "i"), ("b", "ann", "i"), ("c", "ann", "j")], "ann@i,ann@j"),
    ],
)
def test_an_id_has_each_subject_with_its_issuer_once(identities: list[tuple[str, str, str]], owner: str) -> None:
    caller = named(*identities)
    assert [caller.id, caller.display_name, caller.identity] == [owner] * 3


def test_the_id_stands_where_starlette_and_the_a2a_sdk_look() -> None:
    for caller in (named(("key", "ann", "keys")), Anonymous()):
        # What a template of Jinja, and a program of somebody's own, prints.
        assert f"{caller.identity}|{caller.display_name}" == f"{caller.id}|{caller.id}"
        assert {name for name in vars(BaseUser) if not name.startswith("_")} <= {*dir(caller)}


TEXTS = st.text(st.characters(codec=None), max_size=6)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3)


def read_id(owner: str) -> list[tuple[str, ...]]:
    """The pairs that an id was made of."""
    return [tuple(unquote(part, errors="surrogatepass") for part in each.split("@")) for each in owner.split(",")]


@given(PAIRS, st.lists(TEXTS, min_size=3, max_size=3))
def test_an_id_can_be_read_again_so_no_two_callers_share_one(pairs: list[tuple[str, str]], schemes: list[str]) -> None:
    caller = named(*((scheme, *pair) for scheme, pair in zip(schemes, pairs, strict=False)))
    assert len(read_id(caller.id)) == len(set(pairs))
    assert {*read_id(caller.id)} == set(pairs)
    assert caller.id.isascii()
    assert not set(caller.id) & {*map(chr, range(33)), "\x7f"}


@given(st.data(), PAIRS)
def test_neither_the_order_nor_the_names_of_the_schemes_are_in_an_id(data: Any, pairs: list[tuple[str, str]]) -> None:
    one = [("s", *pair) for pair in pairs]
    other = [(data.draw(TEXTS), *pair) for pair in data.draw(st.permutations(pairs))]
    assert named(*one).id == named(*other).id


@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=3))
def test_the_line_of_the_changelog_makes_an_id_from_the_name_of_before(identities: list[tuple[str, str, str]]) -> None:
    (line,) = re.findall(r"(?m)^  new = (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"))

    def before(text: str, but: str) -> str:
        return quote(text, safe="!\"#$&'()*+/;<=>?[\\]^`{|}" + but, errors="surrogatepass")

    old = ",".join(f"{before(s, '@')}:{before(u, ':')}@{before(i, ':')}" for s, u, i in identities)
    assert eval(line, {"old": old}) == named(*identities).id


def test_other_credentials_of_the_request_are_found_and_change_nothing_else() -> None:
    key = Identity(issuer="keys", subject="ann", scopes=frozenset({"read"}))
    token = Identity(
        issuer="idp",
        subject="bob",
        scopes=frozenset({"read", "all"}),
        client_id="app",
        actors=(Actor(issuer="idp", subject="bot"),),
    )
    plain, more = (
        Principal(identities=(("key", key),)),
        Principal(identities=(("key", key),), for_skills=(("login", token),)),
    )
    for caller in (plain, more):
        assert (caller.id, caller.label, caller.scopes) == ("ann@keys", "ann", frozenset({"read"}))
        assert (caller.client_id, caller.actors) == (None, ())
        assert caller.by_scheme("key") is key
    assert (plain.by_scheme("login"), more.by_scheme("login")) == (None, token)
    assert plain != more  # a cache of answers by caller holds none that was made with another token
    by_token = Principal(identities=(("key", key), ("login", token)))
    assert (by_token.client_id, by_token.actors) == ("app", (Actor(issuer="idp", subject="bot"),))
    assert (Anonymous().client_id, Anonymous().actors, Anonymous().by_scheme("key")) == (None, (), None)


def test_of_two_identities_of_one_scheme_the_deciding_one_is_found() -> None:
    deciding, other = (Identity(issuer="i", subject=subject) for subject in ("ann", "bob"))
    assert Principal(identities=(("key", deciding),), for_skills=(("key", other),)).by_scheme("key") is deciding


def test_a_label_is_short_and_for_people() -> None:
    assert named(("login", "ann", "https://idp.example")).label == "ann"
    assert named(("a", "ann", "i"), ("b", "ann", "j")).label == "ann"
    assert named(("a", "ann", "i"), ("b", "svc", "j")).label == "ann, svc"
    assert named(("a", "x\n\u202eb\ud800", "i")).label == "x??b?"
    assert named(("a", "x" * 64, "i")).label == "x" * 64
    assert named(("a", "x" * 65, "i")).label == "x" * 63 + "…"
    assert Anonymous().label == "anonymous"
