"""Base64url as JOSE writes it: one text for every octet string."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.errors import MalformedError
from a2a_trust.keys import base64url
from tests.tables import walk


@given(st.binary(max_size=70))
def test_octets_have_one_text_without_padding_and_come_back(octets: bytes) -> None:
    text = base64url.encode(octets)
    assert text == base64.urlsafe_b64encode(octets).decode().rstrip("=")
    assert base64url.decode(text, "it") == octets


@given(st.text(max_size=12) | st.text(alphabet="AQgw_-+/= \n", max_size=8))
def test_a_text_is_decoded_only_when_it_is_what_encoding_gives(text: str) -> None:
    try:
        octets = base64url.decode(text, "it")
    except MalformedError:
        return
    assert base64url.encode(octets) == text


@walk(
    "text",
    [
        *("=", "AA==", "AAA=", "AAAA=", "AA.A", "AA+A", "AA/A"),
        *("A", "AAAAA", "AB", "AAB"),
        *("AA A", " AAAA", "AAAA ", "AA\nAA", "AA\x00A"),
        *("\u0410AAA", "ａaaa", "\ud800AAA"),
    ],
)
def test_every_other_spelling_is_refused_and_named(text: str) -> None:
    with pytest.raises(MalformedError, match=r"^signature is not canonical base64url without padding$"):
        base64url.decode(text, "signature")


def test_nothing_is_the_text_of_nothing() -> None:
    assert base64url.decode("", "it") == b""
    assert base64url.encode(b"") == ""
