"""Trust: what a key may do is said when it is entered, and a wrong entry is a mistake at start-up."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.origins import Origins, UnsafeAnyOrigin
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust import LOSSLESS_FORMS, Form, TrustedKey, TrustStore

KEY = generate_signer(kid="k").public_key
HOST = Origins("agent.example.com")


def test_a_key_speaks_in_lossless_forms_always_and_is_not_revoked_unless_told() -> None:
    entry = TrustedKey(key=KEY, origins=HOST)
    assert entry.forms == LOSSLESS_FORMS == {Form.SERVED, Form.SPEC}
    assert (entry.not_before, entry.not_after, entry.revoked) == (float("-inf"), float("inf"), False)


@pytest.mark.parametrize("origins", [None, "agent.example.com", [], ("agent.example.com",), UnsafeAnyOrigin, True, ""])
def test_origins_are_named_or_unsafe_and_nothing_switches_them_off(origins: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"write origins=Origins\("):
        TrustedKey(key=KEY, origins=origins)


def test_an_entry_without_origins_cannot_be_made() -> None:
    with pytest.raises(TypeError):
        TrustedKey(key=KEY)  # type: ignore[call-arg]


@pytest.mark.parametrize("forms", [frozenset(), [], (), ""])
def test_a_key_that_may_speak_in_no_form_is_a_mistake(forms: Any) -> None:
    with pytest.raises(ConfigurationError, match="forms is empty"):
        TrustedKey(key=KEY, origins=HOST, forms=forms)


def test_forms_may_be_given_by_name_and_unknown_ones_are_a_mistake() -> None:
    forms: Any = ["pruned", "served"]
    assert TrustedKey(key=KEY, origins=HOST, forms=forms).forms == {Form.PRUNED, Form.SERVED}
    for unknown in (["v9"], ["Pruned"], "pruned", [None]):
        forms = unknown
        with pytest.raises(ConfigurationError):
            TrustedKey(key=KEY, origins=HOST, forms=forms)


@pytest.mark.parametrize(
    ("not_before", "not_after"), [(1.0, 1.0), (2.0, 1.0), (float("nan"), 1.0), (1.0, float("nan")), (float("inf"), 1.0)]
)
def test_a_key_that_is_never_valid_is_a_mistake(not_before: float, not_after: float) -> None:
    with pytest.raises(ConfigurationError, match="not_before must be earlier"):
        TrustedKey(key=KEY, origins=HOST, not_before=not_before, not_after=not_after)


@pytest.mark.parametrize(
    "key", [None, "k", KEY.to_jwk(), KEY.native, generate_signer()], ids=lambda key: type(key).__name__
)
def test_an_entry_holds_a_public_key(key: Any) -> None:
    with pytest.raises(ConfigurationError):
        TrustedKey(key=key, origins=HOST)


def test_an_entry_cannot_be_changed() -> None:
    entry = TrustedKey(key=KEY, origins=HOST)
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.revoked = True  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrustStore([entry]).keys = ()  # type: ignore[misc]


def test_a_store_finds_keys_by_name_and_type() -> None:
    okp = generate_signer("EdDSA", kid="k").public_key
    here, there = TrustedKey(key=KEY, origins=HOST), TrustedKey(key=KEY, origins=Origins("b.example.com"))
    other = TrustedKey(key=okp, origins=HOST)
    store = TrustStore(iter([here, other, there]))
    assert store.keys == (here, other, there)
    assert store.named("k", "EC") == (here, there)
    assert store.named("k", "OKP") == (other,)
    assert store.named("k", "RSA") == store.named("K", "EC") == store.named("", "") == ()


def test_one_entry_given_twice_is_one_entry() -> None:
    store = TrustStore([TrustedKey(key=KEY, origins=HOST), TrustedKey(key=KEY, origins=HOST)])
    assert len(store.named("k", "EC")) == len(store.keys) == 1


def test_an_empty_store_knows_nobody() -> None:
    assert TrustStore([]).named("k", "EC") == ()


@pytest.mark.parametrize("entry", [KEY, "k", 1, ("k",)], ids=lambda entry: type(entry).__name__)
def test_a_store_holds_entries_only(entry: Any) -> None:
    with pytest.raises(ConfigurationError, match="give TrustedKey objects"):
        TrustStore([entry])


def test_stores_of_the_same_entries_are_equal() -> None:
    entry = TrustedKey(key=KEY, origins=HOST)
    assert TrustStore([entry]) == TrustStore([entry])
    assert TrustStore([entry]) != TrustStore([])


@pytest.mark.parametrize("by", ["kid", "thumbprint", "entry"])
def test_a_revoked_key_is_revoked_under_its_other_names_too(by: str) -> None:
    twin = dataclasses.replace(KEY, kid="other")
    namesake = generate_signer(kid="k").public_key
    entries = [
        TrustedKey(key=KEY, origins=HOST, revoked=by == "entry"),
        TrustedKey(key=twin, origins=HOST),
        TrustedKey(key=namesake, origins=Origins("elsewhere.example.com")),
    ]
    names = {"kid": ["k"], "thumbprint": [KEY.thumbprint], "entry": []}[by]
    store = TrustStore(entries, revoked=names)
    # Of another key with the same name, which may be of somebody else, only the name says anything.
    assert [entry.revoked for entry in store.keys] == [True, True, by == "kid"]
    assert KEY.thumbprint in store.revoked
