"""The algorithms that cards and keys may use."""

from __future__ import annotations

import pytest

from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.algorithms import ALGORITHMS, DEFAULT_ALGORITHM, algorithm_named, algorithm_of
from tests.tables import walk


def test_only_asymmetric_algorithms_of_the_issue_are_there() -> None:
    assert set(ALGORITHMS) == {
        "ES256", "ES384", "ES512", "EdDSA", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512",
    }  # fmt: skip
    assert {algorithm.kty for algorithm in ALGORITHMS.values()} == {"EC", "OKP", "RSA"}
    assert DEFAULT_ALGORITHM == "ES256"


def test_each_algorithm_is_found_by_its_name_and_eddsa_by_both() -> None:
    for name, algorithm in ALGORITHMS.items():
        assert algorithm_named(name) is algorithm
    assert algorithm_named("Ed25519") is ALGORITHMS["EdDSA"]


@walk(
    "name", ["", "none", "None", "HS256", "HS384", "HS512", "es256", "ES256 ", "ES256K", "Ed448", "RSA-OAEP", "x" * 999]
)
def test_other_names_are_a_mistake_that_lists_the_right_ones(name: str) -> None:
    with pytest.raises(ConfigurationError, match="choose from ES256, ES384") as error:
        algorithm_named(name)
    assert len(str(error.value)) < 300
    assert algorithm_of(name) is None


@walk("name", [None, 1, b"ES256", ["ES256"], {}, True])
def test_what_is_no_text_names_no_algorithm(name: object) -> None:
    assert algorithm_of(name) is None


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        ALGORITHMS["HS256"] = ALGORITHMS["ES256"]  # type: ignore[index]
