"""M8: two callers with one name own each other's tasks.

Seen in a2a-python (#1159: every anonymous caller is the same one) and salesagent (#1720: one subject of two issuers).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.auth.principal import Anonymous, Identity, Principal

TEXTS = st.text(alphabet='ab@%,:4"[]\\ü\u2028\ud800\0|/ ', max_size=4)
IDENTITIES = st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=3)


def name_of(identities: list[tuple[str, str, str]]) -> str:
    return Principal(
        identities=tuple((scheme, Identity(issuer=issuer, subject=subject)) for scheme, issuer, subject in identities)
    ).display_name


@given(one=IDENTITIES, other=IDENTITIES)
def test_names_are_equal_only_when_everything_is(
    one: list[tuple[str, str, str]], other: list[tuple[str, str, str]]
) -> None:
    assert (name_of(one) == name_of(other)) == (one == other)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_separator_moves_nothing_from_one_part_to_another(place: int) -> None:
    for separator in (",", ":", "|", '","', '"],["', "/", " ", "\0"):
        parts = ["a", "b", "c"]
        parts[place] = f"x{separator}y"
        shifted = ["a", "b", "c"]
        shifted[place] = "x"
        shifted[(place + 1) % 3] = f"y{separator}{shifted[(place + 1) % 3]}"
        assert name_of([(parts[0], parts[1], parts[2])]) != name_of([(shifted[0], shifted[1], shifted[2])])


def test_the_same_subject_of_another_issuer_or_by_another_scheme_is_another_caller() -> None:
    names = {name_of([(scheme, issuer, "ann")]) for scheme in ("key", "oauth") for issuer in ("one", "two")}
    assert len(names) == 4


def test_anonymous_is_never_anonymous_again_and_never_somebody() -> None:
    callers = [Anonymous() for _ in range(1000)]
    names = {caller.display_name for caller in callers}
    assert len(names) == 1000
    assert "" not in names
    assert len(set(callers)) == 1000
    for name in list(names)[:10]:
        assert name_of([("key", "keys", name)]) not in names


def test_what_a_caller_may_is_no_part_of_its_name_and_the_expiry_neither() -> None:
    poor = Identity(issuer="i", subject="s")
    rich = Identity(issuer="i", subject="s", scopes=frozenset({"all"}), expires_at=1.0, claims={"jti": "2"})
    assert len({Principal(identities=(("k", identity),)).display_name for identity in (poor, rich)}) == 1
