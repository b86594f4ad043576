"""M8: two callers with one name own each other's tasks.

Seen in a2a-python (#1159: every anonymous caller is the same one) and salesagent (#1720: one subject of two issuers).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.auth.principal import Anonymous, Identity, Principal

TEXTS = st.text(alphabet='ab@%,:4"[]\\ü\u2028\ud800\0|/ ', max_size=4)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3)


def id_of(pairs: Iterable[tuple[str, str]]) -> str:
    """The id of a caller with these issuers and subjects, each by a scheme of its own."""
    identities = [(f"s{number}", Identity(issuer=issuer, subject=of)) for number, (issuer, of) in enumerate(pairs)]
    return Principal(identities=tuple(identities)).id


@given(one=PAIRS, other=PAIRS)
def test_ids_are_equal_only_when_all_owners_are(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> None:
    assert (id_of(one) == id_of(other)) == (set(one) == set(other))


PARTS = ("ann", "ann@keys", "ann%40keys", "keys", "ann@keys,bob", "bob@keys", "ann%2C", "key:ann", "", "@", ",", "%")


def test_a_subject_that_looks_like_another_encoding_is_its_own_caller() -> None:
    """Every caller of one or two owners from these parts has an id of its own."""
    pairs = [*product(PARTS, PARTS)]
    callers = {frozenset(each) for each in product(pairs, pairs)}
    assert len({id_of(each) for each in callers}) == len(callers)


@pytest.mark.parametrize("place", [0, 1])
def test_a_separator_moves_nothing_from_one_part_to_another(place: int) -> None:
    for separator in (",", ":", "|", '","', '"],["', "/", " ", "\0", "@", "%"):
        parts, shifted = ["a", "b"], ["a", "b"]
        parts[place] = f"x{separator}y"
        shifted[place], shifted[1 - place] = "x", f"y{separator}{shifted[1 - place]}"
        assert id_of([(parts[0], parts[1])]) != id_of([(shifted[0], shifted[1])])


def test_the_same_subject_of_another_issuer_is_another_caller() -> None:
    assert len({id_of([(issuer, "ann")]) for issuer in ("one", "two")}) == 2


def test_anonymous_is_never_anonymous_again_and_never_somebody() -> None:
    callers = [Anonymous() for _ in range(1000)]
    ids = {caller.id for caller in callers}
    assert len(ids) == 1000
    assert "" not in ids
    assert len(set(callers)) == 1000
    for each in list(ids)[:10]:
        assert id_of([("keys", each)]) not in ids


def test_what_a_caller_may_is_no_part_of_its_id_and_the_expiry_neither() -> None:
    poor = Identity(issuer="i", subject="s")
    rich = Identity(issuer="i", subject="s", scopes=frozenset({"all"}), expires_at=1.0, claims={"jti": "2"})
    assert len({Principal(identities=(("k", identity),)).id for identity in (poor, rich)}) == 1
