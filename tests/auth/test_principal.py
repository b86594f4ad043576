"""Callers as values: what their claims hold can be copied, stored and shown, and never changed."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from a2a_trust.auth.principal import Identity, Principal
from a2a_trust.errors import ConfigurationError

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


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
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


@pytest.mark.parametrize(
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
