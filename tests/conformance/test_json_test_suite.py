"""The strict reader against JSONTestSuite: what must be read, what must not, and our verdict on what is left open."""

from __future__ import annotations

import base64

from a2a_trust.base import strict_json
from a2a_trust.errors import MalformedError
from tests.conformance.conftest import Row, Rows

#: JSON that we refuse: two readers of it see two documents (RFC 8785 3.1, RFC 7493 2.3).
REFUSED_ALTHOUGH_VALID = {
    "test_parsing/y_object_duplicated_key.json",
    "test_parsing/y_object_duplicated_key_and_value.json",
}

#: Of the cases that RFC 8259 leaves to the implementation these are read, all others refused. Numbers that are too
#: small for a double, and integers that are too long for one, have one reading each: RFC 8785 3.2.2.3.
READ_ALTHOUGH_OPEN = {
    "test_parsing/i_number_double_huge_neg_exp.json",
    "test_parsing/i_number_real_underflow.json",
    "test_parsing/i_number_too_big_neg_int.json",
    "test_parsing/i_number_too_big_pos_int.json",
    "test_parsing/i_number_very_big_negative_int.json",
    "test_transform/number_-9223372036854775808.json",
    "test_transform/number_-9223372036854775809.json",
    "test_transform/number_1.0.json",
    "test_transform/number_1.000000000000000005.json",
    "test_transform/number_1000000000000000.json",
    "test_transform/number_10000000000000000999.json",
    "test_transform/number_1e-999.json",
    "test_transform/number_1e6.json",
    "test_transform/number_9223372036854775807.json",
    "test_transform/number_9223372036854775808.json",
    # Unicode normalization is not JSON's affair: these are two names (RFC 8785 3.1).
    "test_transform/object_key_nfc_nfd.json",
    "test_transform/object_key_nfd_nfc.json",
    "test_transform/string_with_escaped_NULL.json",
}


def read(rows: Rows, expected: str) -> tuple[set[str], set[str]]:
    """The ids of the cases of one kind: those that are read, and those that are refused."""
    verdicts: tuple[set[str], set[str]] = (set(), set())
    for row in cases(rows, expected):
        try:
            strict_json.parse(base64.b64decode(row["data_b64"], validate=True))
        except MalformedError:
            verdicts[1].add(row["id"])
        else:
            verdicts[0].add(row["id"])
    return verdicts


def cases(rows: Rows, expected: str) -> list[Row]:
    return [row for row in rows("jsontestsuite/cases.jsonl.gz") if row["expected"] == expected]


def test_what_must_be_read_is_read_except_duplicate_members(rows: Rows) -> None:
    accepted, refused = read(rows, "accept")
    assert refused == REFUSED_ALTHOUGH_VALID
    assert len(accepted) == 93


def test_what_must_be_refused_is_refused(rows: Rows) -> None:
    accepted, refused = read(rows, "reject")
    assert not accepted
    assert len(refused) == 188


def test_what_is_left_open_has_the_documented_verdict(rows: Rows) -> None:
    accepted, refused = read(rows, "either")
    assert accepted == READ_ALTHOUGH_OPEN
    assert len(refused) == 39
