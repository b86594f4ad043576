"""A strict JSON reader for untrusted documents.

It accepts JSON (RFC 8259) that every reader reads in the same way (RFC 8785 3.1, RFC 7493). It rejects encodings other
than UTF-8, byte order marks, duplicate members, lone surrogates, numbers that are not finite doubles, data after the
document, too many bytes, and too deep nesting.

The result has plain values: dict (in the order of the document), list, str, bool, None, float, and int for numbers
without fraction and exponent. An int is exact, however long; the canonical form decides how to round it (RFC 8785
3.2.2.3).
"""

from __future__ import annotations

import json
import math
import re
from enum import IntEnum
from typing import Any, Final, NoReturn, TypeAlias

import orjson

from a2a_trust.errors import MalformedError

JSON: TypeAlias = Any
"""A JSON value as plain Python: dict, list, str, int, float, bool or None."""

JSONObject: TypeAlias = dict[str, Any]

MAX_BYTES: Final = 1_048_576
"""The largest document that is read, in bytes: a hundred times the largest card we have seen."""

MAX_DEPTH: Final = 128
"""The deepest nesting of arrays and objects that is read."""

#: Digits and minus signs become 0, "[" becomes a comma; quotation marks, colons and commas stay; all else is a blank.
_NUMBER_STARTS: Final = bytes(
    ord("0") if char in "-0123456789" else ord(",") if char in ",[" else ord(char) if char in '":' else ord(" ")
    for char in map(chr, range(256))
)
#: A whole double as orjson prints it.
_WHOLE: Final = re.compile(rb"\.0(?![0-9])")
#: They go, so that less is searched; never the character before a number.
_LETTERS: Final = bytes(byte for byte in range(256) if byte > 0x7F or chr(byte).isalpha())
#: Numbers that orjson may not have read exactly, such as an integer as a double.
_MAY_BE_ROUNDED: Final = re.compile(rb"[0-9][eE]|[0-9]{16}")
#: The rest of a string, and the colon that follows if it is a name.
_REST_OF_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"(:?)')
_ASTRAL: Final = tuple(bytes([lead]) for lead in range(0xF0, 0xF5))
"""The first bytes of characters above U+FFFF."""
#: Types of values that orjson reads exactly, and that hold no others. It reads an integer beyond 64 bits as a double.
_FINAL: Final = frozenset({str, int, bool, type(None)})
_ESCAPE: Final = re.compile(rb"(?s)\\.")


class Plain(IntEnum):
    """Whether orjson with sorted keys prints the RFC 8785 form of a value."""

    NO = 0
    YES = 1
    BUT_WHOLE = 2
    """Yes, except for whole doubles: it prints ``1.0`` for ``1``."""


def parse(data: bytes, *, what: str = "document", max_bytes: int = MAX_BYTES) -> JSON:
    """Read one JSON document, or raise MalformedError with a text that begins with ``what``.

    Source: RFC 8259, RFC 7493 2, RFC 8785 3.1.
    """
    value, compact = read_members(data, what=what, max_bytes=max_bytes)
    return value if compact is None else read_numbers(data, value, compact, what=what)[0]


def read(data: bytes, *, what: str = "document", max_bytes: int = MAX_BYTES) -> tuple[JSON, Plain]:
    """As ``parse``, and whether the value is plain, so that orjson with sorted keys prints its RFC 8785 form.

    The two differ in whole doubles, exponents and integers beyond 53 bits, and in the order of names with characters
    above U+FFFF: by code points in orjson, by UTF-16 code units in RFC 8785. Both print the
    shortest digits of a fraction, and without an exponent there is only one way to write them.
    """
    value, compact = read_members(data, what=what, max_bytes=max_bytes)
    return read_numbers(data, value, orjson.dumps(value) if compact is None else compact, what=what)


def read_members(data: bytes, *, what: str = "document", max_bytes: int = MAX_BYTES) -> tuple[JSON, bytes | None]:
    """The first half of ``read``: the value, with rounded numbers and unchecked depth, and its text by orjson.

    The text is None if the value is final: an object of strings, integers, booleans and null. The text is empty if
    orjson rejects the document, or if it has duplicate members: ``read_numbers`` reports the reason.
    """
    if not isinstance(data, bytes):
        raise TypeError(f"{what}: pass the bytes of the document, not {type(data).__name__}")
    if len(data) > max_bytes:
        raise MalformedError(f"{what}: {len(data)} bytes, more than the limit of {max_bytes}")
    try:
        value = orjson.loads(data)
        if type(value) is dict and _is_final(value, data):
            return value, None
        compact = orjson.dumps(value)
    except (ValueError, TypeError, RecursionError):
        # The exact reader rejects the same document, with one of our texts.
        return None, b""
    # orjson keeps only the last of duplicate members. With every other one at least the two quotation marks of its
    # name are gone, and only this changes their number between the two texts.
    if data == compact or _delimiters(data) == _delimiters(compact):
        return value, compact
    return None, b""


def _is_final(members: JSONObject, data: bytes) -> bool:
    """Whether the members, by orjson, are all of the document, and exact."""
    kinds = [*map(type, members.values())]
    # Each name and each string of the document has two quotation marks at least, also of a member that orjson dropped.
    return _FINAL.issuperset(kinds) and data.count(b'"') == 2 * (len(kinds) + kinds.count(str))


def read_numbers(data: bytes, value: JSON, compact: bytes, *, what: str = "document") -> tuple[JSON, Plain]:
    """The second half of ``read``, for the result of ``read_members``: exact numbers, depth, and reasons for errors."""
    if not compact:
        return _parse_exactly(data, what), Plain.NO
    numbers = _around_strings(compact)
    if _MAY_BE_ROUNDED.search(numbers):
        return _parse_exactly(data, what), Plain.NO
    _check_depth(value, compact, what)
    # orjson has its own forms of minus zero, and perhaps of doubles below 0.0001.
    if b"-0.0," in numbers or b"0.0000" in numbers or not has_plain_names(compact):
        return value, Plain.NO
    return value, Plain.BUT_WHOLE if b".0," in numbers else Plain.YES


def parse_printed(data: bytes) -> JSON:
    """The value of a document that this package has printed or read before, so it needs no checks."""
    return orjson.loads(data)


def has_plain_names(compact: bytes) -> bool:
    """Whether no name in a text without blanks has a character above U+FFFF."""
    if compact.isascii():
        return True
    for lead in _ASTRAL:
        at = compact.find(lead)
        while at >= 0:
            rest = _REST_OF_STRING.match(compact, at)
            if rest is None or rest[1]:
                return False
            at = compact.find(lead, rest.end())
    return True


def without_whole_fractions(text: bytes) -> bytes:
    """Compact JSON with ``1`` for ``1.0``; numbers with exponents must not be in it."""
    parts, start, is_in_string = [], 0, False
    for match in _WHOLE.finditer(text):
        part = text[start : match.start()]
        is_in_string ^= _delimiters(part) % 2 == 1
        parts.append(part)
        start = match.start() if is_in_string else match.end()
    return b"".join([*parts, text[start:]])


def _around_strings(compact: bytes) -> bytes:
    """The text outside of the strings, a comma after each number; empty if there can be no number."""
    # A number is at the start, after the name of a member, or after "," or "[". This quick search also looks into
    # strings. It saves a fifth of reading and canonicalizing a card without numbers.
    starts = compact.translate(_NUMBER_STARTS, _LETTERS)
    if b'":0' not in starts and b",0" not in starts and starts[:1] != b"0":
        return b""
    return b"".join(_without_escapes(compact).split(b'"')[::2]).translate(None, b"{}[]:") + b","


def _check_depth(value: JSON, compact: bytes, what: str) -> None:
    """MalformedError for a value, printed as ``compact``, with more than MAX_DEPTH nested arrays and objects."""
    # Counting the openers is cheap, and an upper bound; only a document with more of them needs the real walk.
    if compact.count(b"{") + compact.count(b"[") > MAX_DEPTH and is_too_deep(value):
        raise MalformedError(f"{what}: nested deeper than {MAX_DEPTH} levels")


def is_too_deep(value: JSON) -> bool:
    """Whether more than MAX_DEPTH arrays and objects are nested; also ends for values that contain themselves."""
    level = {id(value): value} if type(value) in (dict, list) else {}
    for _ in range(MAX_DEPTH):
        level = {
            id(child): child
            for container in level.values()
            for child in (container.values() if type(container) is dict else container)
            if type(child) is dict or type(child) is list
        }
        if not level:
            return False
    return bool(level)


def _without_escapes(text: bytes) -> bytes:
    """The text without escapes: every remaining quotation mark opens or closes a string."""
    return _ESCAPE.sub(b"", text) if b"\\" in text else text


def _delimiters(text: bytes) -> int:
    """The number of quotation marks that open or close a string."""
    return _without_escapes(text).count(b'"')


def _parse_exactly(data: bytes, what: str) -> JSON:
    """The same reader with the standard library: slower, with exact integers and a reason for every error."""
    value, reason = _decode(data)
    # Raise only here, because the exceptions of the decoder hold the document, which may be a private key.
    if reason:
        raise MalformedError(f"{what}: {reason}")
    _check_depth(value, data, what)
    if b"\\u" in data:
        _check_surrogates(value, what)
    return value


def _decode(data: bytes) -> tuple[JSON, str]:
    """The value of a document, or the reason for its rejection."""
    if data.startswith((b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe")):
        return None, "it begins with a byte order mark; save it as UTF-8 without one"
    try:
        decoder = _DECODER_OF_HUGE if _may_be_huge(data) else _DECODER
        return decoder.decode(data.decode("utf-8", "strict")), ""
    except UnicodeDecodeError as error:
        return None, f"byte {error.start} is not UTF-8"
    except json.JSONDecodeError as error:
        return None, f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
    except RecursionError:
        return None, f"nested deeper than {MAX_DEPTH} levels"
    except _InvalidJsonError as reason:
        return None, str(reason)


class _InvalidJsonError(Exception):
    pass


def _members(pairs: list[tuple[str, JSON]]) -> JSONObject:
    members: JSONObject = {}
    for name, value in pairs:
        if name in members:
            raise _InvalidJsonError(f"the member {name[:64]!a} appears more than once in one object")
        members[name] = value
    return members


def _integer(digits: str) -> int:
    _fraction(digits)  # rejects numbers beyond a double, before int() takes quadratic time for their digits
    return int(digits)


def _fraction(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _InvalidJsonError("a number is larger than a double can hold")
    return number


def _constant(name: str) -> NoReturn:
    raise _InvalidJsonError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_constant)
_DECODER_OF_HUGE: Final = json.JSONDecoder(
    object_pairs_hook=_members, parse_int=_integer, parse_float=_fraction, parse_constant=_constant
)
#: Digits become 0, plus signs go.
_MAGNITUDES: Final = bytes.maketrans(b"123456789E", b"000000000e")


def _may_be_huge(data: bytes) -> bool:
    """Whether a number may be beyond a double: only then is a function called for every number, which takes long."""
    magnitudes = data.translate(_MAGNITUDES, b"+")
    return b"e000" in magnitudes or b"0" * 200 in magnitudes  # 200 digits and an exponent of 99 are within a double


def _check_surrogates(value: JSON, what: str) -> None:
    """MalformedError for a string with half of a surrogate pair, which has no UTF-8 form (RFC 8785 3.2.2.2)."""
    stack = [value]
    while stack:
        item = stack.pop()
        if type(item) is dict:
            stack.extend(item)
            stack.extend(item.values())
        elif type(item) is list:
            stack.extend(item)
        elif type(item) is str:
            try:
                item.encode("utf-8")
            except UnicodeEncodeError:
                raise MalformedError(f"{what}: a string holds half of a surrogate pair") from None
