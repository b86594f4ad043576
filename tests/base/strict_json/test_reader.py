"""The strict reader: one reading or none, and the fast way reads as the exact way does."""

from __future__ import annotations

import json
import math
import sys
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.base import strict_json
from a2a_trust.base.strict_json import MAX_BYTES, MAX_DEPTH, Plain, is_too_deep, parse, reader
from a2a_trust.errors import MalformedError
from tests.signing.json_values import NAMES, documents, nested, spell, texts, write
from tests.tables import walk

randoms = st.integers(0, 2**32).map(Random)


def outcome(document: bytes, *, exactly: bool = False) -> str:
    """What the reader makes of a document, types, order and minus zero included; "refused" when it refuses."""
    try:
        return repr(reader._parse_exactly(document, "document") if exactly else parse(document))
    except MalformedError:
        return "refused"


@given(documents, randoms)
def test_a_document_is_read_as_it_was_written_whatever_the_spelling(value: Any, random: Random) -> None:
    document = write(value, random).encode()
    assert repr(parse(document)) == repr(value)


@given(documents, randoms)
def test_the_fast_way_reads_as_the_exact_way(value: Any, random: Random) -> None:
    document = write(value, random).encode()
    assert outcome(document) == outcome(document, exactly=True) == repr(value)


@given(documents)
def test_a_value_that_is_called_plain_goes_through_orjson_unchanged(value: Any) -> None:
    read, plain = strict_json.read(json.dumps(value).encode())
    assert repr(read) == repr(value)
    if plain is Plain.YES:
        compact = orjson.dumps(value)
        assert repr(strict_json.parse_printed(compact)) == repr(value)


@walk(
    ("document", "plain"),
    [
        (b"{}", Plain.YES),
        (b'{"a":[1,-1,true,null,"x",123456789012345]}', Plain.YES),
        (b"7", Plain.YES),
        (b"-7", Plain.YES),
        (b'"1.5"', Plain.YES),
        (b'["1.5e5,:1.5",":1234567890123456","[1.5"]', Plain.YES),
        (b'["\\\\",":1.5","\\"",",1.5"]', Plain.YES),
        ('{"é":"\uffff"}'.encode(), Plain.YES),
        (b"1.5", Plain.YES),
        (b"-1.5", Plain.YES),
        (b"0.0001", Plain.YES),
        (b"[-10.05,100.0001]", Plain.YES),
        (b"0.00001", Plain.NO),
        (b"[-0.00009]", Plain.NO),
        (b"1e5", Plain.BUT_WHOLE),
        (b"1e16", Plain.NO),
        (b"-0.0", Plain.NO),
        (b"[1.0]", Plain.BUT_WHOLE),
        (b'{"a":1.50,"b":-20.00}', Plain.BUT_WHOLE),
        (b'["1.0,",1.5]', Plain.YES),
        (b'{"a":-0.0}', Plain.NO),
        (b"1234567890123456", Plain.NO),
        (b"[-1234567890123456]", Plain.NO),
        (b'{"a":{"b":[0,[1e300]]}}', Plain.NO),
        (b'["\\\\",1.0]', Plain.BUT_WHOLE),
        (b'{"\\\\\\"":1.0}', Plain.BUT_WHOLE),
        (b'["x",1.0,"y"]', Plain.BUT_WHOLE),
        (b'["x",1e-5,"y"]', Plain.NO),
        ('{"😀":1}'.encode(), Plain.NO),
        ('["😀",{"😀":1}]'.encode(), Plain.NO),
        ('{"\U00100000":1}'.encode(), Plain.NO),
        ('{"a":[{"b\\"\\\\":{"x😀":1}}]}'.encode(), Plain.NO),
        (b'{"\\ud83d\\ude00":1}', Plain.NO),
        (b'"\\ud83d\\ude00"', Plain.YES),
        ('{"a":["😀",{"b":":😀","c\\"":"😀\\""}]}'.encode(), Plain.YES),
    ],
)
def test_numbers_that_need_care_and_astral_names_are_not_plain(document: bytes, plain: Plain) -> None:
    assert strict_json.read(document) == (json.loads(document), plain)


@given(documents, randoms, st.integers(0, 10**6), st.integers(0, 255), st.sampled_from(["set", "insert", "delete"]))
def test_one_changed_byte_is_read_alike_or_refused_by_both_ways(
    value: Any, random: Random, place: int, byte: int, change: str
) -> None:
    document = bytearray(write(value, random).encode())
    place %= len(document)
    document[place : place + (change != "insert")] = b"" if change == "delete" else bytes([byte])
    assert outcome(bytes(document)) == outcome(bytes(document), exactly=True)


@given(st.binary(max_size=40) | st.text(alphabet='{}[]",:\\u0019.eE+-truefalsn \n', max_size=40).map(str.encode))
def test_arbitrary_bytes_are_read_alike_or_refused_by_both_ways(document: bytes) -> None:
    assert outcome(document) == outcome(document, exactly=True)


@given(
    name=texts,
    others=st.lists(st.tuples(texts, documents), max_size=4),
    first=documents,
    second=documents,
    around=st.lists(st.sampled_from(['[1,"\\\\",', '{"k":', '{"\\"":{"\\\\":', '["\\\\\\"",']), max_size=4),
    random=randoms,
    data=st.data(),
)
def test_a_member_that_is_there_twice_is_refused_wherever_it_is_and_however_it_is_spelled(
    name: str,
    others: list[tuple[str, Any]],
    first: Any,
    second: Any,
    around: list[str],
    random: Random,
    data: st.DataObject,
) -> None:
    members = [(other, value) for other, value in dict(others).items() if other != name]
    members.insert(data.draw(st.integers(0, len(members))), (name, first))
    members.insert(data.draw(st.integers(0, len(members))), (name, second))
    text = ",".join(f"{spell(member, random)}:{write(value, random)}" for member, value in members)
    document = f"{{{text}}}"
    for opener in reversed(around):
        document = opener + document + "".join({"[": "]", "{": "}"}[char] for char in reversed(opener) if char in "[{")
    with pytest.raises(MalformedError, match="appears more than once"):
        parse(document.encode())


@walk(
    "document",
    [
        r'{"a":1,"a":1}',
        r'{"a":1,"\u0061":2}',
        r'{"\u0061":1,"\u0061":2}',
        r'{"é":1,"\u00e9":2}',
        r'{"😀":1,"\ud83d\ude00":2}',
        r'{"\\":1,"\u005c":2}',
        r'{"\"":1,"\u0022":2}',
        r'{"\\\"":1,"\u005c\u0022":2}',
        r'{"/":1,"\/":2}',
        r'{"":1,"":2}',
        r'{"k":{"a":{"x":1},"a":{"x":1}}}',
        r'[{"a":[]},{"b":"\\","b":"\""}]',
        '{"a":1,\n"b":"\\\\\\\\",\t"a" : 1}',
    ],
)
def test_duplicate_members_are_refused_in_every_spelling(document: str) -> None:
    assert json.loads(document)  # valid JSON: nothing but the second member is wrong
    with pytest.raises(MalformedError, match="appears more than once in one object"):
        parse(document.encode())


@walk("run", range(1, 9))
@walk("end", ["", '\\"', "\\u0022", "\\n", "\\u005c"])
def test_runs_of_backslashes_are_not_taken_for_duplicates_and_hide_none(run: int, end: str) -> None:
    string = f'"{chr(92) * 2 * run}{end}"'
    assert parse(f'{{"a":{string},"b":{string}}}'.encode()) == {"a": json.loads(string), "b": json.loads(string)}
    assert parse(f'{{{string}:1,"b":2}}'.encode()) == {json.loads(string): 1, "b": 2}
    with pytest.raises(MalformedError, match="more than once"):
        parse(f'{{"a":{string},"a":{string}}}'.encode())
    with pytest.raises(MalformedError, match="more than once"):
        parse(f'{{{string}:1,"b":2,{string}:1}}'.encode())


@walk("unit", [r"\u0022", r"\"", r"\\", r"\u005c", r"\u005c\u0022", r"\\\"", r"\\\u0022"])
@walk("dropped", ["1", '""', r'"\""', r'"\u0022"', '{"x":"y"}', r'["\\"]'])
def test_marks_that_only_one_spelling_shows_do_not_make_up_for_a_dropped_member(unit: str, dropped: str) -> None:
    # The fast way compares numbers of quotation marks; one written as an escape must not stand in for a lost one.
    for times in range(10):
        kept = f'"{unit * times}"'
        for document in (
            f'{{"a":{dropped},"a":{kept}}}',
            f'{{"b":{kept},"a":{dropped},"a":0}}',
            f'[{kept},{{"":1,"":2}}]',
        ):
            with pytest.raises(MalformedError, match="more than once"):
                parse(document.encode())


def test_an_object_is_final_only_if_orjson_reads_all_of_it_exactly() -> None:
    for document in (b"{}", b'{"a": "x, y", "b": -1, "c": true, "d": null, "e\\n": 18446744073709551615}'):
        assert strict_json.read_members(document) == (json.loads(document), None)
    for document in (
        b"[]",
        b"1",
        b'{"a":1.5}',
        b'{"a":[]}',
        b'{"a":{}}',
        b'{"a":18446744073709551616}',
        b'{"a":1,"a":1}',
    ):
        assert strict_json.read_members(document)[1] is not None


def test_names_that_look_alike_are_different_members() -> None:
    assert parse('{"é":1,"e\u0301":2,"A":3,"a":4}'.encode()) == {"é": 1, "e\u0301": 2, "A": 3, "a": 4}
    document = json.dumps(dict.fromkeys(NAMES, 1), ensure_ascii=False).encode()
    assert list(parse(document)) == list(NAMES)


def test_a_duplicate_among_a_hundred_thousand_members_is_found_without_comparing_all_with_all() -> None:
    # A megabyte; a look for the name that is quadratic in the members keeps a processor busy for minutes.
    names = b",".join(b'"%d":1' % number for number in range(90_000))
    with pytest.raises(MalformedError, match="the member 'z' appears more than once"):
        parse(b"{" + names + b',"z":1,"z":2}')


def test_the_text_of_a_duplicate_is_short_and_printable() -> None:
    name = "\u202e" + "x" * 5_000
    with pytest.raises(MalformedError) as refused:
        parse(json.dumps({name: 1})[:-1].encode() + f",{json.dumps(name)}:2}}".encode(), what="card")
    assert str(refused.value).startswith("card: the member '\\u202e")
    assert str(refused.value).isascii()
    assert len(str(refused.value)) < 150


@walk(
    ("document", "why"),
    [
        (b"", "not JSON"),
        (b" ", "not JSON"),
        (b"{} {}", "not JSON"),
        (b"{}x", "not JSON"),
        (b"{}\x00", "not JSON"),
        (b"\x00{}", "not JSON"),
        (b"[1,]", "not JSON"),
        (b'{"a":1,}', "not JSON"),
        (b"{'a':1}", "not JSON"),
        (b"[01]", "not JSON"),
        (b"[+1]", "not JSON"),
        (b"[.5]", "not JSON"),
        (b"[5.]", "not JSON"),
        (b"[0x1]", "not JSON"),
        (b"[1_000]", "not JSON"),
        ("[\u0661]".encode(), "not JSON"),
        (b"// c\n{}", "not JSON"),
        (b'"\x1f"', "not JSON"),
        (b'"a\nb"', "not JSON"),
        (b'"\\x41"', "not JSON"),
        (b'"\\u00_1"', "not JSON"),
        (b'"\\u 061"', "not JSON"),
        (b"\x0b[]", "not JSON"),
        ("\u00a0[]".encode(), "not JSON"),
        (b"True", "not JSON"),
        (b"NaN", "NaN is not JSON"),
        (b"[NaN]", "NaN is not JSON"),
        (b"[Infinity]", "Infinity is not JSON"),
        (b"[-Infinity]", "-Infinity is not JSON"),
        (b"[1e309]", "larger than a double"),
        (b"[-1e309]", "larger than a double"),
        (b"[1" + b"0" * 309 + b"]", "larger than a double"),
        (b"[-1" + b"0" * 5_000 + b"]", "larger than a double"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ('{"a":1}'.encode("utf-16"), "byte order mark"),
        ('{"a":1}'.encode("utf-16-le"), "not JSON"),
        ('{"a":1}'.encode("utf-32-be"), "not JSON"),
        (b'"\xff"', "byte 1 is not UTF-8"),
        (b'"\xc0\x80"', "byte 1 is not UTF-8"),
        (b'"\xed\xa0\x80"', "byte 1 is not UTF-8"),
        (b'"\xf5\x80\x80\x80"', "byte 1 is not UTF-8"),
        (b'"\\ud800"', "half of a surrogate pair"),
        (b'"\\udc00\\ud800"', "half of a surrogate pair"),
        (b'{"\\udfff":1}', "half of a surrogate pair"),
        (b'[{"a":["x","\\ud83d "]}]', "half of a surrogate pair"),
    ],
)
def test_what_readers_do_not_agree_on_is_refused_with_its_reason(document: bytes, why: str) -> None:
    with pytest.raises(MalformedError, match=f"^thing: .*{why}"):
        parse(document, what="thing")


@walk(
    ("document", "value"),
    [
        (b"0", 0),
        (b"-0", 0),
        (b"-0.0", -0.0),
        (b"1.0", 1.0),
        (b"1E2", 100.0),
        (b"9007199254740993", 2**53 + 1),
        (b"-9223372036854775809", -(2**63) - 1),
        (b"18446744073709551616", 2**64),
        (b"1" + b"0" * 300, 10**300),
        (b"1e-999", 0.0),
        (b"1.7976931348623157e308", 1.7976931348623157e308),
        (b' "\\u00e9\\/\\ud83d\\ude00" ', "é/😀"),
        (b"[1,{}]", [1, {}]),
    ],
)
def test_numbers_and_strings_keep_their_type_and_value(document: bytes, value: Any) -> None:
    assert repr(parse(document)) == repr(value)
    assert repr(reader._parse_exactly(document, "document")) == repr(value)


def test_the_order_of_members_is_kept() -> None:
    assert list(parse(b'{"z":1,"a":2,"m":3}')) == ["z", "a", "m"]
    assert list(parse(b'{"z":1.5,"a":2,"m":3}')) == ["z", "a", "m"]  # the exact way


@walk("kind", ["lists", "objects", "both"])
@walk("leaf", [None, 1.5, "[{"], ids=repr)
@walk("depth", range(MAX_DEPTH - 2, MAX_DEPTH + 3))
def test_nesting_is_read_up_to_its_limit(depth: int, leaf: Any, kind: str) -> None:
    value = nested(depth, leaf, kind=kind)
    document = json.dumps(value).encode()
    if depth <= MAX_DEPTH:
        assert parse(document) == value
    else:
        with pytest.raises(MalformedError, match="nested deeper than 128"):
            parse(document)
    assert is_too_deep(value) is (depth > MAX_DEPTH)


@walk("depth", [255, 256, 1_023, 1_025, 5_000, 200_000])
@walk("unit", [b"[", b'{"a":'])
def test_absurd_nesting_is_refused_and_not_followed(unit: bytes, depth: int) -> None:
    with pytest.raises(MalformedError):
        parse(unit * depth)
    with pytest.raises(MalformedError, match=r"nested deeper|bytes, more than"):
        parse(unit * depth + b"1" + (b"]" if unit == b"[" else b"}") * depth)


def test_wide_documents_are_not_taken_for_deep_ones() -> None:
    assert len(parse(b"[" + b"[]," * 999 + b"[]]")) == 1_000
    assert parse(b'["' + b"[{" * 500 + b'"]') == ["[{" * 500]


def test_the_limit_of_bytes_is_checked_before_reading() -> None:
    assert parse(b'"' + b"a" * (MAX_BYTES - 2) + b'"') == "a" * (MAX_BYTES - 2)
    with pytest.raises(MalformedError, match=f"card: {MAX_BYTES + 1} bytes, more than the limit of {MAX_BYTES}"):
        parse(b"\xff" * (MAX_BYTES + 1), what="card")
    with pytest.raises(MalformedError, match="3 bytes, more than the limit of 2"):
        parse(b"123", max_bytes=2)
    assert parse(b"12", max_bytes=2) == 12


@walk("given", ["{}", bytearray(b"{}"), memoryview(b"{}"), None, {}], ids=lambda v: type(v).__name__)
def test_only_bytes_are_read(given: Any) -> None:
    with pytest.raises(TypeError, match="card: pass the bytes of the document"):
        parse(given, what="card")


def test_texts_of_refusals_hold_nothing_of_the_document_but_the_name_of_a_duplicate() -> None:
    secret = "s3cret"
    documents = [f'{{"d":"{secret}",}}', f'["{secret}"', f'["{secret}\\ud800"]', f"[{secret}]", f'"{secret}" 1']
    for document in documents:
        with pytest.raises(MalformedError) as refused:
            parse(document.encode())
        assert secret not in str(refused.value)


def test_exact_numbers_take_no_call_each() -> None:
    calls: list[str] = []

    def entered(frame: Any, event: str, _argument: Any) -> None:
        calls.extend([frame.f_code.co_name] if event == "call" else [])

    sys.setprofile(entered)
    try:
        assert parse(b"[%b1e1]" % (b"1e1,1234567890123456," * 1_000)) == [10.0, 1234567890123456] * 1_000 + [10.0]
    finally:
        sys.setprofile(None)
    assert len(calls) < 100


def test_a_number_beyond_a_double_is_refused_and_never_infinite() -> None:
    for document in (b"1e400", b"-1e400", b"1" * 400, b"9" * 250 + b"e99", b"1" * 199 + b"E+111", b"1.5e0400"):
        with pytest.raises(MalformedError):
            parse(document)
    assert math.isfinite(parse(b"1" * 308))
