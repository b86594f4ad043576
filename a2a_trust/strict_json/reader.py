"""A JSON reader for documents of strangers.

It takes what RFC 8259 allows and every reader understands alike (the conditions of RFC 8785 3.1 and RFC 7493),
and refuses the rest: encodings other than UTF-8, byte order marks, duplicate members, lone surrogates,
numbers that are not finite doubles, data after the document, too many bytes, too deep a nesting.

What comes back are plain values: dict (in the document's order), list, str, bool, None, float, and int for every
number that was written without fraction and exponent, exact however long; what a double can hold of such a
number is for the canonical form to decide (RFC 8785 3.2.2.3), not for the reader.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn, TypeAlias

import orjson

from a2a_trust.errors import MalformedError

__all__ = [
    "JSON",
    "MAX_BYTES",
    "MAX_DEPTH",
    "JSONObject",
    "is_too_deep",
    "parse",
    "parse_printed",
    "read",
    "read_members",
    "read_numbers",
]

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
_FRACTION: Final = re.compile(rb"[0-9]\.")
#: What orjson prints of a number that it may have read otherwise than exactly: an integer as a double, among others.
_MAY_BE_ROUNDED: Final = re.compile(rb"[0-9][eE]|[0-9]{16}")
#: From a character above U+FFFF to the end of its string, and the colon that follows if it is a name.
_REST_OF_ASTRAL_STRING: Final = re.compile(rb'[\xf0-\xf4][^"\\]*+(?:\\.[^"\\]*+)*+"(:?)')
_BELOW_ASTRAL: Final = bytes(range(0xF0))
_NOT_IN_ESCAPES: Final = bytes(byte for byte in range(256) if byte not in b'"\\\\/bfnrtu')


def parse(data: bytes, *, what: str = "document", max_bytes: int = MAX_BYTES) -> JSON:
    """Read one JSON document, or raise MalformedError with a text that begins with ``what``.

    Source: RFC 8259, RFC 7493 2, RFC 8785 3.1.
    """
    return read(data, what=what, max_bytes=max_bytes)[0]


def read(data: bytes, *, what: str = "document", max_bytes: int = MAX_BYTES) -> tuple[JSON, bool]:
    """As ``parse``, and whether the value is plain: no number of it needs care, and no name of a member does.

    Then orjson with sorted keys prints the RFC 8785 form of the value: the two write fractions, exponents and integers
    beyond 53 bits differently, and order names by code points and by UTF-16 code units, which differ above U+FFFF only.
    """
    value, compact = read_members(data, what=what, max_bytes=max_bytes)
    return read_numbers(data, value, compact, what=what)


def read_members(data: bytes, *, what: str = "document", max_bytes: int = MAX_BYTES) -> tuple[JSON, bytes]:
    """The first half of ``read``: the value, as yet with rounded numbers and at any depth, and its text by orjson.

    The value is final when it holds no numbers and its shape is known. The text is empty where orjson would not have
    the document, or where it has duplicate members: ``read_numbers`` gives the reason.
    """
    if not isinstance(data, bytes):
        raise TypeError(f"{what}: give the bytes as they came, not {type(data).__name__}")
    if len(data) > max_bytes:
        raise MalformedError(f"{what}: {len(data)} bytes, more than the {max_bytes} that are read")
    try:
        value = orjson.loads(data)
        compact = orjson.dumps(value)
    except (ValueError, TypeError, RecursionError):
        # orjson knows nothing of our texts: the exact reader gives the reason, or refuses the same document.
        return None, b""
    # orjson drops all but the last of duplicate members. Every member that it dropped took at least the two
    # quotation marks of its name along, and nothing else changes their number between the two texts.
    if data == compact or _delimiters(data) == _delimiters(compact):
        return value, compact
    return None, b""


def read_numbers(data: bytes, value: JSON, compact: bytes, *, what: str = "document") -> tuple[JSON, bool]:
    """The second half of ``read``, of what ``read_members`` gave: numbers, depth, and reasons for refusals."""
    if not compact:
        return _parse_exactly(data, what), False
    numbers = _around_strings(compact)
    if _MAY_BE_ROUNDED.search(numbers):
        return _parse_exactly(data, what), False
    plain = not _FRACTION.search(numbers) and _has_plain_names(compact)
    _check_depth(value, compact, what)
    return value, plain


def parse_printed(data: bytes) -> JSON:
    """The value of a document that this package has printed, so that nothing has to be checked again."""
    return orjson.loads(data)


def _has_plain_names(compact: bytes) -> bool:
    if compact.isascii() or not compact.translate(None, _BELOW_ASTRAL):
        return True
    return not any(match[1] for match in _REST_OF_ASTRAL_STRING.finditer(compact))


def _around_strings(compact: bytes) -> bytes:
    """What stands outside of the strings; nothing where no number can be among it."""
    # A number stands at the start, after the name of a member, or after "," or "[". Where nothing looks like that, even
    # in strings, there is none. To look first saves a fifth of reading and canonicalizing a card without numbers.
    starts = compact.translate(_NUMBER_STARTS)
    if b'":0' not in starts and b",0" not in starts and starts[:1] != b"0":
        return b""
    return b"".join(_without_escapes(compact).split(b'"')[::2])


def _check_depth(value: JSON, compact: bytes, what: str) -> None:
    """Refuse a value, printed as ``compact``, in which more than MAX_DEPTH arrays and objects lie within each other."""
    # Counting openers is cheap and an upper bound; only a document that passes it needs the real walk.
    if compact.count(b"{") + compact.count(b"[") > MAX_DEPTH and is_too_deep(value):
        raise MalformedError(f"{what}: nested deeper than {MAX_DEPTH} levels")


def is_too_deep(value: JSON) -> bool:
    """Whether more than MAX_DEPTH arrays and objects lie within each other; ends on values that contain themselves."""
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
    """The text without escaped quotation marks and backslashes: every mark left opens or closes a string."""
    return text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text


def _delimiters(text: bytes) -> int:
    """The number of quotation marks that open or close a string."""
    # What can follow a backslash is kept, so that the rest, a quarter of the text, is escaped as the whole was.
    return _without_escapes(text.translate(None, _NOT_IN_ESCAPES) if b"\\" in text else text).count(b'"')


def _parse_exactly(data: bytes, what: str) -> JSON:
    """The same reader on the standard library: slower, with exact integers and a reason for every refusal."""
    value, refusal = _decoded(data)
    # Raised here, because the exceptions of the decoder hold the document, which may be a private key.
    if refusal:
        raise MalformedError(f"{what}: {refusal}")
    _check_depth(value, data, what)
    if b"\\u" in data:
        _check_surrogates(value, what)
    return value


def _decoded(data: bytes) -> tuple[JSON, str]:
    """The value of a document, or the reason why it has none."""
    if data.startswith((b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe")):
        return None, "it begins with a byte order mark; save it as UTF-8 without one"
    try:
        return _DECODER.decode(data.decode("utf-8", "strict")), ""
    except UnicodeDecodeError as error:
        return None, f"byte {error.start} is not UTF-8"
    except json.JSONDecodeError as error:
        return None, f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
    except RecursionError:
        return None, f"nested deeper than {MAX_DEPTH} levels"
    except _RefusedError as refusal:
        return None, str(refusal)


class _RefusedError(Exception):
    pass


def _members(pairs: list[tuple[str, JSON]]) -> JSONObject:
    members: JSONObject = {}
    for name, value in pairs:
        if name in members:
            raise _RefusedError(f"the member {name[:64]!a} appears more than once in one object")
        members[name] = value
    return members


def _integer(digits: str) -> int:
    _fraction(digits)  # refuses what no double can hold, before int() takes quadratic time over its digits
    return int(digits)


def _fraction(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _RefusedError("a number is larger than a double can hold")
    return number


def _constant(name: str) -> NoReturn:
    raise _RefusedError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_members, parse_int=_integer, parse_float=_fraction, parse_constant=_constant
)


def _check_surrogates(value: JSON, what: str) -> None:
    """Refuse strings that hold half of a surrogate pair: such text has no UTF-8 form (RFC 8785 3.2.2.2)."""
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
