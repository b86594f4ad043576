"""Trust: what a key may do is said when it is entered, and a wrong entry is a mistake at start-up."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import pytest

from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust.origins import Origins, UnsafeAnyOrigin
from a2a_trust.keys.trust.policy import all_of, n_of, named
from a2a_trust.keys.trust.store import SigningTool, TrustedKey, TrustStore
from tests.tables import walk

KEY = generate_signer(kid="k").public_key
HOST = Origins("agent.example.com")


def test_a_key_is_valid_at_all_times_and_not_revoked_unless_its_entry_says_so() -> None:
    entry = TrustedKey(key=KEY, origins=HOST)
    assert (entry.signer, entry.name) == (None, None)
    assert (entry.not_before, entry.not_after, entry.revoked) == (float("-inf"), float("inf"), False)
    assert not entry.on_first_use


@walk("origins", [None, "agent.example.com", [], ("agent.example.com",), UnsafeAnyOrigin, True, ""])
def test_origins_are_named_or_unsafe_and_nothing_switches_them_off(origins: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"write origins=Origins\("):
        TrustedKey(key=KEY, origins=origins)


def test_an_entry_without_origins_cannot_be_made() -> None:
    with pytest.raises(TypeError):
        TrustedKey(key=KEY)  # type: ignore[call-arg]


def test_a_signer_may_be_given_by_name_and_unknown_ones_are_a_mistake() -> None:
    signer: Any = "a2a-python"
    assert TrustedKey(key=KEY, origins=HOST, signer=signer).signer is SigningTool.A2A_PYTHON
    unknown: list[Any] = ["", "A2A-python", "pruned", ["a2a-python"], {}, 0, False]
    for signer in unknown:
        with pytest.raises(ConfigurationError, match='write one of "a2a-trust", "a2a-python", "a2a-js", "whole"'):
            TrustedKey(key=KEY, origins=HOST, signer=signer)


@walk("name", ["", "a" * 129, "a\nb", "\x1b[2J", 1, b"bank", ["bank"], "M" * 43])
def test_a_name_is_short_text_that_is_no_thumbprint(name: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^name: "):
        TrustedKey(key=KEY, origins=HOST, name=name)


@walk(
    ("not_before", "not_after"), [(1.0, 1.0), (2.0, 1.0), (float("nan"), 1.0), (1.0, float("nan")), (float("inf"), 1.0)]
)
def test_a_key_that_is_never_valid_is_a_mistake(not_before: float, not_after: float) -> None:
    with pytest.raises(ConfigurationError, match="not_before must be earlier"):
        TrustedKey(key=KEY, origins=HOST, not_before=not_before, not_after=not_after)


@walk("key", [None, "k", KEY.to_jwk(), KEY.native, generate_signer()], ids=lambda key: type(key).__name__)
def test_an_entry_holds_a_public_key(key: Any) -> None:
    with pytest.raises(ConfigurationError):
        TrustedKey(key=key, origins=HOST)


@walk(
    ("now", "state"),
    [
        (9.0, "not valid before 1970-01-01T00:00:10Z"),
        (10.0, "trusted"),
        (19.0, "trusted"),
        (20.0, "expired on 1970-01-01T00:00:20Z"),
    ],
)
def test_an_entry_says_what_its_key_is_now(now: float, state: str) -> None:
    entry = TrustedKey(key=KEY, origins=HOST, not_before=10, not_after=20)
    assert entry.state(now) == state
    assert dataclasses.replace(entry, revoked=True).state(now) == "revoked"


def test_an_entry_allows_no_more_than_the_key_itself() -> None:
    limited = dataclasses.replace(KEY, not_before=10.0, not_after=20.0)
    wide = TrustedKey(key=limited, origins=HOST, not_before=5, not_after=25)
    assert (wide.not_before, wide.not_after) == (10, 20)
    narrow = TrustedKey(key=limited, origins=HOST, not_before=12, not_after=18)
    assert (narrow.not_before, narrow.not_after) == (12, 18)
    never = TrustedKey(key=limited, origins=HOST, not_before=20, not_after=10)
    assert not never.not_before < never.not_after
    assert TrustedKey(key=dataclasses.replace(KEY, revoked=True), origins=HOST).revoked


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


@walk("entry", [KEY, "k", 1, ("k",)], ids=lambda entry: type(entry).__name__)
def test_a_store_holds_entries_only(entry: Any) -> None:
    with pytest.raises(ConfigurationError, match="write a list of trusted keys"):
        TrustStore([entry])


def test_stores_of_the_same_entries_are_equal() -> None:
    entry = TrustedKey(key=KEY, origins=HOST)
    store = TrustStore([entry])
    assert store == TrustStore([entry])
    assert store.trust_store() is store
    assert TrustStore([entry]) != TrustStore([])


@walk("by", ["kid", "thumbprint", "entry"])
def test_a_key_that_the_operator_revoked_is_revoked_under_its_other_names_too(by: str) -> None:
    twin = dataclasses.replace(KEY, kid="other")
    namesake = generate_signer(kid="k").public_key
    entries = [
        TrustedKey(key=KEY, origins=HOST, revoked=by == "entry"),
        TrustedKey(key=twin, origins=HOST),
        TrustedKey(key=namesake, origins=Origins("elsewhere.example.com")),
    ]
    names = {"kid": ["k"], "thumbprint": [KEY.thumbprint], "entry": []}[by]
    store = TrustStore(entries, revoked=names)
    # The name says something about another key with the same name, the thumbprint and the entry do not.
    assert [entry.revoked for entry in store.keys] == [True, True, by == "kid"]
    assert KEY.thumbprint in store.revoked


@pytest.mark.parametrize("by", ["kid", "entry"])
def test_a_fetched_key_that_is_revoked_revokes_no_other(by: str) -> None:
    url = "https://evil.example.net/jwks.json"
    fetched = TrustedKey(key=dataclasses.replace(KEY, kid="evil-1"), origins=HOST, source=url, revoked=by == "entry")
    own = TrustedKey(key=KEY, origins=HOST)
    store = TrustStore([fetched, own], revoked=["evil-1"] if by == "kid" else [])
    assert [entry.revoked for entry in store.keys] == [True, False]
    assert KEY.thumbprint not in store.revoked


def test_the_thumbprint_of_a_fetched_key_revokes_it_everywhere() -> None:
    fetched = TrustedKey(key=KEY, origins=HOST, source="https://a.example/jwks.json")
    own = TrustedKey(key=dataclasses.replace(KEY, kid="other"), origins=HOST)
    assert all(entry.revoked for entry in TrustStore([fetched, own], revoked=[KEY.thumbprint]).keys)


def test_a_store_knows_kids_and_the_names_of_parties() -> None:
    nameless = TrustedKey(key=KEY, origins=HOST)
    store = TrustStore([dataclasses.replace(nameless, name="bank"), nameless], names=["auditor"])
    assert store.names == {"bank", "auditor"}
    assert store.knows("k")
    assert not store.knows("bank")


def test_a_text_where_a_list_belongs_is_a_mistake() -> None:
    text: Any = "bank-2025"
    for option in ("revoked", "names"):
        with pytest.raises(ConfigurationError, match=rf"write {option}=\['bank-2025'\]"):
            TrustStore([TrustedKey(key=KEY, origins=HOST)], **{option: text})
    policies: Any = [all_of("bank")]
    with pytest.raises(ConfigurationError, match="policies are OriginPolicy"):
        TrustStore([], policies)
    wrong: list[Any] = [["bank", "auditor"], None, 1, b"bank"]
    for parties in wrong:
        for policy in (all_of, named, partial(n_of, 1)):
            with pytest.raises(ConfigurationError, match="name parties one by one"):
                policy(parties)
