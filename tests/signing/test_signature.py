"""One entry of ``signatures``: the form that RFC 7515 and A2A demand, before any key is looked at."""

from __future__ import annotations

from typing import Any

import pytest

from a2a_trust.errors import MalformedError, UnsignedCardError
from a2a_trust.keys import base64url
from a2a_trust.keys.jws import MAX_HEADER
from a2a_trust.signing.forms import Form
from a2a_trust.signing.signature import FORM_MARKERS, MAX_SIGNATURES, content_type, parse_signature, signature_entries
from tests.signing.making import header_text
from tests.tables import walk

HEADER = {"alg": "ES256", "kid": "alice"}


def with_header(protected: object, /, **entry: Any) -> dict[str, Any]:
    return {"protected": header_text(protected), "signature": "AAAA", **entry}


def test_a_sound_entry_is_read() -> None:
    signature = parse_signature(with_header({**HEADER, "typ": "JOSE", "iat": 1, "exp": 2.5}, header={"x": 1}))
    assert (signature.kid, signature.header["alg"], signature.signature) == ("alice", "ES256", "AAAA")
    assert (signature.header["iat"], signature.header["exp"]) == (1, 2.5)
    assert signature.unprotected == {"x": 1}
    assert not signature.is_companion
    with pytest.raises(AttributeError):
        signature.kid = "bob"  # type: ignore[misc]
    with pytest.raises(TypeError):
        signature.header["kid"] = "bob"  # type: ignore[index]


@walk("entry", [None, 1, "x", [], True], ids=repr)
def test_an_entry_is_an_object(entry: Any) -> None:
    with pytest.raises(MalformedError, match="not a JSON object"):
        parse_signature(entry)


@walk("name", ["protected", "signature"])
@walk("value", [None, 1, [], {}, True], ids=repr)
def test_protected_and_signature_are_strings(name: str, value: Any) -> None:
    entry = with_header(HEADER)
    with pytest.raises(MalformedError, match="must be strings"):
        parse_signature({**entry, name: value})
    del entry[name]
    with pytest.raises(MalformedError, match="must be strings"):
        parse_signature(entry)


@walk("typ", ["JOSE", "jose", "JOSE+JSON", "jws", "JWT", "application/jose", "Application/JOSE+JSON"])
def test_types_of_jws_are_taken_whatever_their_case(typ: str) -> None:
    assert parse_signature(with_header({**HEADER, "typ": typ})).header["typ"] == typ


@walk(
    "typ",
    [
        "",
        "at+jwt",
        "dpop+jwt",
        "JWE",
        "text/JOSE",
        "application/application/jose",
        "JOSE ",
        "JO\u017fE",
        None,
        1,
        ["JOSE"],
        {},
    ],
)
def test_other_types_are_refused(typ: Any) -> None:
    with pytest.raises(MalformedError, match="typ must be absent, JOSE"):
        parse_signature(with_header({**HEADER, "typ": typ}))


@walk("kid", ["", None, 1, True, [], ["alice"], {}], ids=repr)
def test_kid_is_a_string_that_is_not_empty(kid: Any) -> None:
    with pytest.raises(MalformedError, match="kid is missing or not a string"):
        parse_signature(with_header({**HEADER, "kid": kid}))
    with pytest.raises(MalformedError, match="kid is missing or not a string"):
        parse_signature(with_header({"alg": "ES256"}))


@walk("alg", [None, 1, True, [], ["ES256"], {}], ids=repr)
def test_alg_is_a_string(alg: Any) -> None:
    with pytest.raises(MalformedError, match="alg is missing or not a string"):
        parse_signature(with_header({**HEADER, "alg": alg}))


@walk("name", ["iat", "exp"])
@walk("value", [None, True, False, "1", "", [], {}], ids=repr)
def test_iat_and_exp_are_numbers(name: str, value: Any) -> None:
    with pytest.raises(MalformedError, match=f"{name} is not a number of seconds"):
        parse_signature(with_header({**HEADER, name: value}))


@walk("name", ["crit", "b64"])
@walk("value", [None, [], ["exp"], ["b64"], True, False, "x"], ids=repr)
def test_crit_and_b64_are_refused_whatever_they_hold_and_wherever(name: str, value: Any) -> None:
    with pytest.raises(MalformedError, match="crit and b64 are rejected"):
        parse_signature(with_header({**HEADER, name: value}))
    with pytest.raises(MalformedError, match="must be in the protected header"):
        parse_signature(with_header(HEADER, header={name: value}))


@walk("header", [[], "x", 1, True, False, ""], ids=repr)
def test_the_unprotected_header_is_an_object(header: Any) -> None:
    with pytest.raises(MalformedError, match="unprotected header: not a JSON object"):
        parse_signature(with_header(HEADER, header=header))


def test_an_unprotected_header_that_is_null_is_none() -> None:
    assert parse_signature(with_header(HEADER, header=None)).unprotected is None


@walk("name", ["alg", "kid", "typ", "x"])
def test_a_name_stands_in_one_of_the_headers_only(name: str) -> None:
    protected = {**HEADER, "typ": "JOSE", "x": 1}
    with pytest.raises(MalformedError, match="repeats a name of the protected one"):
        parse_signature(with_header(protected, header={name: protected[name]}))


def test_a_kid_that_is_only_unprotected_does_not_count() -> None:
    with pytest.raises(MalformedError):
        parse_signature(with_header({"alg": "ES256"}, header={"kid": "alice"}))


@walk(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"{}{}",
        b'{"alg":"ES256","kid":"a"}x',
        b'{"alg":"ES256","kid":"a","kid":"b"}',
        b'{"alg":"ES256","kid":"a","\\u006bid":"b"}',
        b'{"alg":"none","alg":"ES256","kid":"a"}',
        b'\xef\xbb\xbf{"alg":"ES256","kid":"a"}',
        b'{"alg":"ES256","kid":"\\ud800"}',
        b'{"alg":"ES256","kid":"\xff"}',
        b'{"alg":"ES256","kid":"a","x":NaN}',
        '{"alg":"ES256","kid":"a"}'.encode("utf-16"),
        b'{"alg":"ES256","kid":"a","x":' + b"[" * 200 + b"]" * 200 + b"}",
    ],
)
def test_the_protected_header_is_one_strict_json_object(text: bytes) -> None:
    with pytest.raises(MalformedError, match=r"^protected header: "):
        parse_signature({"protected": base64url.encode(text), "signature": "AAAA"})


@walk(
    "spoil",
    [
        lambda text: text + "=",
        lambda text: text + "==",
        lambda text: text + " ",
        lambda text: " " + text,
        lambda text: text[:10] + "\n" + text[10:],
        lambda text: text[:10] + "+" + text[11:],
        lambda text: text[:10] + "é" + text[11:],
        lambda text: text + "A",
        lambda text: text.replace("0", "1")[:-1] + "~",
    ],
)
def test_the_protected_header_has_one_spelling(spoil: Any) -> None:
    with pytest.raises(MalformedError, match="protected header"):
        parse_signature({"protected": spoil(header_text(HEADER)), "signature": "AAAA"})


def test_the_length_of_the_header_is_checked_before_it_is_decoded() -> None:
    fits = with_header({**HEADER, "x": "y" * (MAX_HEADER * 3 // 4 - 60)})
    assert len(fits["protected"]) <= MAX_HEADER
    assert parse_signature(fits).kid == "alice"
    with pytest.raises(MalformedError, match="longer than 8192"):
        parse_signature({"protected": "!" * (MAX_HEADER + 1), "signature": "AAAA"})


def test_the_marks_are_the_four_texts_of_the_documentation() -> None:
    assert dict(FORM_MARKERS) == {
        "application/json;a2a-form=spec": Form.SPEC,
        "application/json;a2a-form=served": Form.SERVED,
        "application/json;a2a-form=pruned": Form.PRUNED,
        "application/json;a2a-form=v0.3-python": Form.V0_3_PYTHON,
    }


@walk("form", list(FORM_MARKERS.values()))
def test_a_mark_is_a_protected_cty_and_tells_a_companion_from_a_full_signature(form: Form) -> None:
    signature = parse_signature(with_header({**HEADER, "cty": content_type(form)}))
    assert (signature.marker, signature.is_companion) == (form, form in (Form.PRUNED, Form.V0_3_PYTHON))
    unprotected = parse_signature(with_header(HEADER, header={"cty": content_type(form)}))
    assert (unprotected.marker, unprotected.is_companion) == (None, False)


@walk(
    "cty",
    [
        "application/json;a2a-form=pruned-legacy",
        "application/json;a2a-form=",
        "application/json; a2a-form=pruned",
        "application/json;a2a-form=pruned;x=1",
        "application/json;a2a-form=Pruned",
        "application/json",
        "json;a2a-form=pruned",
        "pruned",
        "",
        None,
        False,
        1,
        ["application/json;a2a-form=pruned"],
        {},
    ],
    ids=repr,
)
def test_any_other_cty_is_that_of_another_tool_and_no_error(cty: Any) -> None:
    signature = parse_signature(with_header({**HEADER, "cty": cty}))
    assert (signature.marker, signature.is_companion) == (None, False)


@walk("signatures", [None, [], {}, "", "x", 0, 1, True], ids=repr)
def test_signatures_are_a_list_that_is_not_empty(signatures: Any) -> None:
    with pytest.raises(UnsignedCardError):
        signature_entries({"signatures": signatures})
    with pytest.raises(UnsignedCardError):
        signature_entries({"name": "x"})


def test_signatures_are_bounded_in_number() -> None:
    assert len(signature_entries([None] * MAX_SIGNATURES)) == MAX_SIGNATURES
    with pytest.raises(MalformedError, match="more than 16"):
        signature_entries([None] * (MAX_SIGNATURES + 1))
