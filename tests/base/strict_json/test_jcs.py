"""Canonical JSON: the fast way, the definition, the released rfc8785 package and Node print the same bytes."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import json
import shutil
import struct
import subprocess
import sys
import uuid
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson
import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from a2a_trust.base import strict_json
from a2a_trust.base.strict_json import MAX_DEPTH, jcs
from a2a_trust.base.strict_json.jcs import (
    MAX_SAFE_INTEGER,
    canonicalize,
    canonicalize_parsed,
    canonicalize_received,
    es6_number,
)
from a2a_trust.errors import MalformedError
from tests.signing.json_values import (
    NAMES,
    UNSAFE_INTEGERS,
    canonicalizable,
    documents,
    doubles,
    nested,
    texts,
    unsafe_integers,
    values,
    write,
)
from tests.tables import walk
from tests.tiers import missing


def rounded(value: Any) -> Any:
    """The value with every integer that is no double of its own replaced by the nearest double."""
    if type(value) is dict:
        return {name: rounded(item) for name, item in value.items()}
    if type(value) is list:
        return [rounded(item) for item in value]
    return float(value) if type(value) is int and abs(value) > MAX_SAFE_INTEGER else value


@given(canonicalizable)
@example(dict.fromkeys(NAMES, 1))
@example([{name: [{name: 1.5}] for name in reversed(NAMES)}])
@example([1e15, 1e16, 10**15, MAX_SAFE_INTEGER, 1.0, -0.0, 123456789012345.6])
def test_the_fast_way_is_the_definition_is_the_released_package(value: Any) -> None:
    canonical = canonicalize(value)
    assert canonical == jcs._write(value).encode()
    assert canonical == rfc8785.dumps(value)


@given(values(doubles | unsafe_integers))
def test_received_integers_beyond_53_bits_are_printed_as_the_nearest_double(value: Any) -> None:
    canonical = canonicalize_received(value)
    assert canonical == jcs._write(value, doubles=True).encode()
    assert canonical == rfc8785.dumps(rounded(value))


@given(documents)
def test_the_canonical_form_is_stable_under_re_parse(value: Any) -> None:
    canonical = canonicalize_received(value)
    again = strict_json.parse(canonical)
    assert canonicalize_received(again) == canonical
    assert canonicalize_received(json.loads(canonical)) == canonical


@given(documents, st.integers(0, 2**32))
def test_neither_order_nor_spelling_nor_blanks_matter(value: Any, seed: int) -> None:
    random = Random(seed)

    def shuffled(item: Any) -> Any:
        if type(item) is dict:
            names = list(item)
            random.shuffle(names)
            return {name: shuffled(item[name]) for name in names}
        return [shuffled(child) for child in item] if type(item) is list else item

    document = write(shuffled(value), random).encode()
    assert canonicalize_received(strict_json.parse(document)) == canonicalize_received(value)


@given(canonicalizable, canonicalizable)
def test_different_values_have_different_bytes(one: Any, other: Any) -> None:
    def read(value: Any) -> Any:
        return json.loads(canonicalize(value), parse_int=float)

    # repr tells True from 1.0; names are in canonical order on both sides.
    assert (canonicalize(one) == canonicalize(other)) is (repr(read(one)) == repr(read(other)))


@given(documents)
def test_a_plain_document_has_its_canonical_bytes_on_the_short_way(value: Any) -> None:
    read, plain = strict_json.read(json.dumps(value, ensure_ascii=False).encode())
    if plain:
        assert canonicalize_parsed(read, plain=plain) == jcs._write(read).encode()


@given(
    st.recursive(
        st.one_of(
            st.floats(-1e6, 1e6),
            st.integers(-(10**6), 10**6).map(float),
            st.decimals(-(10**6), 10**6, places=3).map(float),
            st.text('1.0,:]}"\\x\U0001f6a2'),
        ),
        lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text('1.0,:]}"\\'), inner)),
    )
)
def test_fractions_are_printed_on_the_short_way_as_the_definition_prints_them(value: Any) -> None:
    read, plain = strict_json.read(json.dumps(value, ensure_ascii=False).encode())
    assert canonicalize_parsed(read, plain=plain) == jcs._write(read).encode()


@walk("value", [[1.0, [2.5]], [2.5, [1.0]], {"a": 0.0, "b": [-0.0]}, [-0.0], [1e-5, 1.0], [1e15]])
def test_doubles_at_every_depth_are_printed_as_the_definition_prints_them(value: Any) -> None:
    assert canonicalize(value) == jcs._write(value).encode()


@walk(
    ("text", "printed"),
    [
        (b"1.0", b"1"),
        (b"[1.0,2.05,-3.0]", b"[1,2.05,-3]"),
        (b'{"a 1.0,":"1.0,2.0}","b":1.0}', b'{"a 1.0,":"1.0,2.0}","b":1}'),
        (b'["\\"1.0,",1.0,"\\\\",1.0]', b'["\\"1.0,",1,"\\\\",1]'),
        (b'["1.0"]', b'["1.0"]'),
    ],
)
def test_only_numbers_lose_their_zeros(text: bytes, printed: bytes) -> None:
    assert strict_json.reader.without_whole_fractions(text) == printed


@given(canonicalizable)
def test_the_value_is_not_changed(value: Any) -> None:
    before = repr(value)
    canonicalize(value)
    assert repr(value) == before


@given(texts, texts)
def test_names_are_sorted_by_utf_16_code_units(one: str, other: str) -> None:
    printed = list(json.loads(canonicalize({one: 0, other: 0})))
    assert printed == sorted({one, other}, key=lambda name: name.encode("utf-16-be"))


def test_astral_names_sort_before_the_last_of_the_basic_plane() -> None:
    # By code points 1F600 comes after FB33; as UTF-16 it begins with D83D and comes before.
    assert canonicalize({"\ufb33": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ufb33":1}'.encode()
    assert canonicalize([{"x": {"\uffff": 1, "\U00010000": 1.0}}]) == '[{"x":{"\U00010000":1,"\uffff":1}}]'.encode()


def test_only_what_rfc_8785_names_is_escaped() -> None:
    every = "".join(map(chr, [*range(0x80), 0x2028, 0x2029, 0xFEFF, 0xFFFF, 0x1F600]))
    escaped = [f"\\u{code:04x}" for code in range(0x20)]
    for char, short in {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}.items():
        escaped[ord(char)] = short
    plain = every[0x20:].replace("\\", "\\\\").replace('"', '\\"')
    assert canonicalize(every) == f'"{"".join(escaped)}{plain}"'.encode()
    assert canonicalize([every, 1.5]) == f'["{"".join(escaped)}{plain}",1.5]'.encode()


@walk("kind", ["lists", "objects", "both"])
@walk("leaf", [None, 1.5, {"\U0001f600": 1}], ids=["plain", "float", "astral"])
@walk("depth", [*range(MAX_DEPTH - 2, MAX_DEPTH + 3), 200, 254, 255, 1_500])
def test_nesting_is_printed_up_to_its_limit_on_every_way(depth: int, leaf: Any, kind: str) -> None:
    value = nested(depth - (type(leaf) is dict), leaf, kind=kind)
    if depth <= MAX_DEPTH:
        assert canonicalize(value) == jcs._write(value).encode() == rfc8785.dumps(value)
    else:
        with pytest.raises(MalformedError, match="nested deeper than 128"):
            canonicalize(value)
        with pytest.raises(MalformedError, match="nested deeper than 128"):
            canonicalize_received(value)


@walk("integer", [MAX_SAFE_INTEGER, -MAX_SAFE_INTEGER, 10**15, 10**14, 0])
def test_integers_up_to_53_bits_are_printed_as_they_are(integer: int) -> None:
    assert canonicalize({"n": [integer]}) == b'{"n":[%d]}' % integer
    assert canonicalize_received(integer) == str(integer).encode()


@walk("integer", UNSAFE_INTEGERS)
def test_integers_beyond_53_bits_are_refused_by_the_writer_and_doubles_to_the_reader(integer: int) -> None:
    for value in (integer, [integer], {"n": integer}, {"\U0001f600": integer}):
        with pytest.raises(MalformedError, match="an integer is beyond"):
            canonicalize(value)
    assert canonicalize_received([integer]) == f"[{es6_number(float(integer))}]".encode()
    assert float(canonicalize_received(integer)) == float(integer)


def test_an_integer_that_no_double_holds_is_refused_also_when_received() -> None:
    with pytest.raises(MalformedError, match="larger than a double"):
        canonicalize_received([10**400])


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Real(float):
    pass


class Members(dict[str, Any]):
    pass


class Items(list[Any]):
    pass


class Pair(NamedTuple):
    left: int
    right: int


@dataclass
class Card:
    name: str


NOT_JSON = [
    uuid.UUID(int=0),
    Colour.RED,
    Level.LOW,
    Word.YES,
    (),
    (1, 2),
    Pair(1, 2),
    {1},
    frozenset(),
    b"bytes",
    bytearray(b"bytes"),
    memoryview(b"bytes"),
    Card("card"),
    Card,
    object(),
    len,
    range(3),
    iter([]),
    1j,
    decimal.Decimal("1.5"),
    dt.datetime(2026, 11, 1, tzinfo=dt.UTC),
    dt.date(2026, 11, 1),
    dt.time(1),
    Text("text"),
    Number(1),
    Real(1.5),
    Members(a=1),
    Items([1]),
    collections.OrderedDict(a=1),
    collections.defaultdict(int),
    MappingProxyType({"a": 1}),
    orjson.Fragment(b"1"),
]


@walk("thing", NOT_JSON, ids=lambda thing: type(thing).__name__)
def test_what_is_not_plain_json_is_refused_wherever_it_is(thing: Any) -> None:
    for value in (thing, [thing], {"a": thing}, [1.5, {"\U0001f600": [thing]}], {"a": {"b": [None, thing]}}):
        with pytest.raises(MalformedError, match=f"{type(thing).__name__} is not JSON"):
            canonicalize(value)
        with pytest.raises(MalformedError, match=f"{type(thing).__name__} is not JSON"):
            canonicalize_received(value)
        with pytest.raises(MalformedError):
            jcs._write(value)


@walk("name", [1, 1.5, None, True, b"a", (), Word.YES, Text("a"), uuid.UUID(int=0)], ids=repr)
def test_member_names_that_are_not_text_are_refused(name: Any) -> None:
    for value in ({name: 1}, {"a": {name: 1.5}}, {"\U0001f600": {name: 1}}):
        with pytest.raises(MalformedError, match=f"a member name is {type(name).__name__}, not str"):
            canonicalize(value)
        with pytest.raises(MalformedError):
            jcs._write(value)


@walk("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_refused(number: float) -> None:
    for value in (number, [number], {"\U0001f600": number}, {"a": [None, {"b": number}]}):
        with pytest.raises(MalformedError, match="NaN and infinities are not JSON"):
            canonicalize(value)
    with pytest.raises(MalformedError):
        es6_number(number)


@walk("text", [chr(0xD800), chr(0xDFFF), "a\udc00\ud800", "\ud83d\ude00"], ids=ascii)
def test_halves_of_surrogate_pairs_are_refused_in_strings_and_names(text: str) -> None:
    for value in (text, [text], {text: 1}, {"\U0001f600": text}, {"\U0001f600": 1, text: 2}, {"a": {text: 1.5}}):
        with pytest.raises(MalformedError, match="half of a surrogate pair"):
            canonicalize(value)
        with pytest.raises(MalformedError):
            jcs._write(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    row: list[Any] = []
    row.append(row)
    members: dict[str, Any] = {"x": 1.5}
    members["self"] = [members]
    for value in (row, members, {"k": [row]}):
        with pytest.raises(MalformedError, match="nested deeper than 128"):
            canonicalize(value)


def test_a_value_that_contains_itself_twice_is_refused_before_it_fills_the_memory() -> None:
    # Each level has twice as many paths as the one above: 2**128 of them, though there is one list.
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))\n"
        "from a2a_trust.errors import MalformedError\n"
        "from a2a_trust.base.strict_json.jcs import canonicalize\n"
        "row = []; row += [row, row]\n"
        "try: canonicalize(row)\n"
        "except MalformedError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("canonical form: nested deeper than 128 levels\n", 0)


@given(doubles)
def test_a_printed_double_reads_back_as_itself(value: float) -> None:
    assert float(es6_number(value)) == value
    assert canonicalize(value) == es6_number(value).encode()


@walk(
    ("value", "printed"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (1e20, "100000000000000000000"),
        (999999999999999900000.0, "999999999999999900000"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (1e-6, "0.000001"),
        (1.25e-6, "0.00000125"),
        (1e-7, "1e-7"),
        (-1.5e-7, "-1.5e-7"),
        (5e-324, "5e-324"),
        (123456789.125, "123456789.125"),
        (0.1, "0.1"),
        (9007199254740993.0, "9007199254740992"),
    ],
)
def test_doubles_at_the_borders_of_the_layouts_of_ecmascript(value: float, printed: str) -> None:
    assert es6_number(value) == printed


@pytest.fixture(scope="module")
def node() -> str:
    """Node.js."""
    return shutil.which("node") or missing("Node.js", "real-sdks")


@pytest.mark.real
def test_doubles_are_printed_as_node_prints_them(node: str) -> None:
    random = Random(8785)
    patterns = [random.getrandbits(64) for _ in range(60_000)]
    for value in (10.0**power for power in range(-320, 309)):
        bits: int = struct.unpack(">Q", struct.pack(">d", value))[0]
        patterns += [bits - 1, bits, bits + 1]
    patterns += [random.getrandbits(52) for _ in range(5_000)]  # subnormal
    whole = [struct.unpack(">Q", struct.pack(">d", float(random.getrandbits(80))))[0] for _ in range(5_000)]
    patterns = [bits for bits in patterns + whole if (bits >> 52) & 0x7FF != 0x7FF]
    data = struct.pack(f">{len(patterns)}Q", *patterns)
    program = (
        "const data = require('node:fs').readFileSync(0);"
        "const lines = [];"
        "for (let at = 0; at < data.length; at += 8) lines.push(JSON.stringify(data.readDoubleBE(at)));"
        "process.stdout.write(lines.join('\\n'));"
    )
    done = subprocess.run([node, "-e", program], input=data, capture_output=True, check=True)
    printed = done.stdout.decode("ascii").split("\n")
    assert len(printed) == len(patterns) > 70_000
    ours = [es6_number(value) for value in struct.unpack(f">{len(patterns)}d", data)]
    assert ours == printed
