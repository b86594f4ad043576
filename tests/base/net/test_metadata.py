"""``WWW-Authenticate`` headers: those of the RFCs, and those of anybody else."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.base.net.metadata import Challenge, challenges_of
from tests.tables import walk

WORDS = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789!#$%&'*+.^_`|~-", min_size=1, max_size=20)
QUOTED = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E) | st.just("\t"), max_size=40)
PARAMETERS = st.lists(st.tuples(WORDS, QUOTED), min_size=1, max_size=5, unique_by=lambda each: each[0].lower())
CHALLENGES = st.lists(st.tuples(WORDS, PARAMETERS), min_size=1, max_size=4)


def written(scheme: str, parameters: list[tuple[str, str]], blank: str) -> str:
    def quoted(text: str) -> str:
        return '"' + "".join(f"\\{each}" if each in '"\\' else each for each in text) + '"'

    return f"{scheme} " + f",{blank}".join(f"{name}{blank}={blank}{quoted(text)}" for name, text in parameters)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # RFC 9110 11.6.1
        (
            ['Basic realm="simple", Newauth realm="apps", type=1, title="Login to \\"apps\\""'],
            [
                ("basic", {"realm": "simple"}),
                ("newauth", {"realm": "apps", "type": "1", "title": 'Login to "apps"'}),
            ],
        ),
        # RFC 9110 11.3: token68, and a scheme alone
        (["Negotiate a87421000492aa874209af8bc028=="], [("negotiate", {})]),
        (["Negotiate, Basic realm=a"], [("negotiate", {}), ("basic", {"realm": "a"})]),
        # RFC 6750 3
        (['Bearer realm="example"'], [("bearer", {"realm": "example"})]),
        (
            ['Bearer realm="example",  error="invalid_token", error_description="The access token expired"'],
            [
                (
                    "bearer",
                    {
                        "realm": "example",
                        "error": "invalid_token",
                        "error_description": "The access token expired",
                    },
                )
            ],
        ),
        # RFC 9449 7.1 and 9
        (
            ['DPoP error="use_dpop_nonce", error_description="Resource server requires nonce in DPoP proof"'],
            [
                (
                    "dpop",
                    {
                        "error": "use_dpop_nonce",
                        "error_description": "Resource server requires nonce in DPoP proof",
                    },
                )
            ],
        ),
        (['Bearer, DPoP algs="ES256 PS256"'], [("bearer", {}), ("dpop", {"algs": "ES256 PS256"})]),
        # several lines are one list (RFC 9110 5.3), whose elements may be empty (5.6.1.2)
        (["Bearer", ' , ,DPoP\talgs = "ES256" ,'], [("bearer", {}), ("dpop", {"algs": "ES256"})]),
        ([], []),
        (["", " , "], []),
    ],
)
def test_challenges_that_are_well_formed(lines: list[str], expected: list[tuple[str, dict[str, str]]]) -> None:
    assert [(each.scheme, each.parameters) for each in challenges_of(lines)] == expected


@pytest.mark.parametrize(
    "line",
    [
        'Bearer realm="a',
        'Bearer realm="a\\"',
        'Bearer realm="a" error="b"',
        'Bearer realm="a", REALM="b"',
        "Bearer scope=a b=c d",
        "Bearer (a)",
        'Bearer realm="a", "b"',
        "Bearer realm=ä",
        "Bearer " * 2000,
    ],
)
def test_what_cannot_be_read_says_nothing(line: str) -> None:
    assert challenges_of([line]) == ()
    assert challenges_of(['Bearer scope="read"', line]) == ()


def test_parameters_belong_to_the_last_scheme() -> None:
    assert challenges_of(['realm="a"']) == ()
    assert challenges_of(["Bearer scope=read", 'realm="a"']) == (Challenge("bearer", {"scope": "read", "realm": "a"}),)


@given(CHALLENGES, st.sampled_from(["", " ", "\t  "]), st.booleans())
def test_well_formed_challenges_come_as_they_were_written(
    challenges: list[tuple[str, list[tuple[str, str]]]], blank: str, is_one_line: bool
) -> None:
    lines = [written(scheme, parameters, blank) for scheme, parameters in challenges]
    read = challenges_of([", ".join(lines)] if is_one_line else lines)
    expected = [
        Challenge(scheme.lower(), {name.lower(): text for name, text in parameters})
        for scheme, parameters in challenges
    ]
    assert [*read] == expected


@given(st.lists(st.text(max_size=200) | st.text(' ",=\\abc\t/~', max_size=200), max_size=4))
def test_no_header_makes_an_error(lines: list[str]) -> None:
    for each in challenges_of(lines):
        assert all(name == name.lower() for name in (each.scheme, *each.parameters))
        assert "" not in each.scopes
        assert len(each.resource_metadata) <= 300


@walk("unit", ["a", " ", ",", "a ", "a=", "=", "a,", 'a="', 'a="\\', '\\"', "a =\t", "a b=c,", 'a="b",', "~/"])
@walk("begin", ["", "Bearer ", 'Bearer a="', "Bearer a="])
def test_a_long_header_takes_linear_time(begin: str, unit: str) -> None:
    """That is 50 ms. Quadratic time would be hours, which the alarm ends: it comes in regular expressions too."""

    def too_late(*_: object) -> None:
        raise TimeoutError

    length = 2_000_000
    header = (begin + unit * length)[:length]
    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(120)
    try:
        assert all(each.scheme for each in challenges_of([header]))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("parameters", "scopes"),
    [
        ({"scope": "read write"}, {"read", "write"}),
        ({"scope": "urn:example:channel=HBO&urn:example:rating=G,PG-13"}, {
            "urn:example:channel=HBO&urn:example:rating=G,PG-13"
        }),  # RFC 6750 3
        ({}, set()),
        ({"scope": ""}, set()),
        ({"scope": "read  write"}, set()),
        ({"scope": 'read "'}, set()),
        ({"scope": "read é"}, set()),
    ],
)  # fmt: skip
def test_scopes(parameters: dict[str, str], scopes: set[str]) -> None:
    assert Challenge("bearer", parameters).scopes == scopes


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"resource_metadata": "https://a.example/.well-known/oauth-protected-resource"}, True),
        ({"resource_metadata": "https://a.example/\x1b[2J"}, False),
        ({"resource_metadata": "https://a.example/\n"}, False),
        ({"resource_metadata": "https://a.example/" + "a" * 300}, False),
        ({}, False),
    ],
)
def test_metadata_is_shown_when_it_can_be_printed(given: dict[str, Any], shown: bool) -> None:
    assert Challenge("bearer", given).resource_metadata == (given["resource_metadata"] if shown else "")
