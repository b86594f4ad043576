"""The credential of HTTP Basic has one spelling, and is read as RFC 7617 has it."""

from __future__ import annotations

import base64
import traceback
import unicodedata

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from a2a_trust.auth.basic.user_pass import read_user_pass
from a2a_trust.errors import InvalidCredentialsError
from tests.tables import walk


def encoded(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


@walk(
    ("credential", "user", "password"),
    [
        ("QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "Aladdin", "open sesame"),  # RFC 7617 2
        ("dGVzdDoxMjPCow==", "test", "123£"),  # RFC 7617 2.1
        (encoded("ann:a:b:"), "ann", "a:b:"),
        (encoded("ann:"), "ann", ""),
        (encoded(" ann : "), " ann ", " "),
        (encoded("Ann:x"), "Ann", "x"),
        (encoded(f"{'𝔸' * 256}:{'𝔸' * 256}"), "𝔸" * 256, "𝔸" * 256),
        (encoded(f"ann:{'x' * 1024}"), "ann", "x" * 1024),
        (encoded(f"ann:{'e' + chr(0x327) * 30}"), "ann", f"ȩ{chr(0x327) * 29}"),
    ],
)
def test_the_name_ends_at_the_first_colon(credential: str, user: str, password: str) -> None:
    assert read_user_pass(credential) == (user, password)


@walk(
    "credential",
    [
        "",
        "=",
        "YW5uOng",  # without padding
        "YW5uOng===",
        "YW5uOnh=",  # stray bits behind the last octet
        "YW5uOng=YW5uOng=",
        "YW5u-ng=",
        "YW5uOn_g",
        "YW5u Ong=",
        "YW5uOng=\n",
        "YW5uOng~",
        "YW5uOngé",
        "ann:x",
        encoded(b"ann:\xff"),
        encoded(b"ann:\xc0\xba"),
        encoded(b"ann\xed\xa0\x80:x"),
        encoded("ann"),
        encoded(":x"),
        encoded("ann:x\0"),
        encoded("an\tn:x"),
        encoded("ann:x\r\n"),
        encoded("ann:x\x7f"),
        encoded("ann:x\x85"),
        encoded(f"{'a' * 257}:x"),
        encoded(f"a:{'x' * 1025}"),
        encoded(f"a:{'é' * 513}"),
        encoded(f"a:e{chr(0x301) * 31}"),
        encoded(f"e{chr(0x301) * 31}:a"),
        "YW5u" * 10_000,
    ],
)
def test_another_spelling_is_rejected_and_repeated_nowhere(credential: str) -> None:
    with pytest.raises(InvalidCredentialsError) as caught:
        read_user_pass(credential)
    told = "".join(traceback.format_exception(caught.value))
    assert "ann" not in told.replace("cannot", "")
    assert caught.value.__context__ is None  # whose text would hold it


def test_both_forms_of_an_accent_are_one_name_and_one_password() -> None:
    composed, decomposed = ("René:caf\u00e9", unicodedata.normalize("NFD", "René:caf\u00e9"))
    assert composed != decomposed
    assert read_user_pass(encoded(decomposed)) == read_user_pass(encoded(composed)) == ("René", "caf\u00e9")


def test_no_repr_shows_a_name_or_a_password() -> None:
    assert repr(read_user_pass(encoded("ann:secret"))) == "UserPass(…)"


@given(
    st.text(st.characters(exclude_categories=("Cc", "Cs"), exclude_characters=":"), min_size=1, max_size=20),
    st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=40),
)
@example("a", ":")
def test_what_a_client_writes_is_read(user: str, password: str) -> None:
    written = next(httpx.BasicAuth(user, password).auth_flow(httpx.Request("GET", "https://a.example")))
    scheme, _, credential = written.headers["authorization"].partition(" ")
    found = read_user_pass(credential)
    assert scheme == "Basic"
    assert found == (unicodedata.normalize("NFC", user), unicodedata.normalize("NFC", password))


@given(st.text("ABCYZabcyz0189+/=-_ :", max_size=24) | st.binary(max_size=30).map(encoded) | st.text(max_size=12))
def test_whatever_is_read_has_no_other_spelling(credential: str) -> None:
    try:
        base64.b64decode(credential, validate=True).decode()
    except ValueError:
        with pytest.raises(InvalidCredentialsError):
            read_user_pass(credential)
        return
    try:
        user, password = read_user_pass(credential)
    except InvalidCredentialsError:
        return
    text = base64.b64decode(credential).decode()
    assert encoded(text) == credential
    assert unicodedata.normalize("NFC", text).partition(":") == (user, ":", password)
