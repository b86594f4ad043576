"""Canonical JSON: the bytes of RFC 8785, the JSON Canonicalization Scheme.

``_write`` is the definition, clause by clause. ``canonicalize`` produces the same bytes faster: orjson with sorted keys
prints RFC 8785, except for some numbers, and for member names with characters above U+FFFF (it sorts by code points,
3.2.3 by UTF-16 code units). ``_plainness`` says whether it does.
"""

from __future__ import annotations

from typing import Final

import orjson

from a2a_trust.base.strict_json.reader import JSON, MAX_DEPTH, Plain, is_too_deep, without_whole_fractions
from a2a_trust.errors import MalformedError

MAX_SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer up to which every integer has its own double (RFC 7493 2.2)."""

_TYPES: Final = frozenset({dict, list, str, int, float, bool, type(None)})
_CONTAINERS: Final = frozenset({dict, list})
_NUMBERS: Final = frozenset({int, float})

_ESCAPES: Final = {ord(char): f"\\u{ord(char):04x}" for char in map(chr, range(0x20))} | {
    ord("\b"): "\\b",
    ord("\t"): "\\t",
    ord("\n"): "\\n",
    ord("\f"): "\\f",
    ord("\r"): "\\r",
    ord('"'): '\\"',
    ord("\\"): "\\\\",
}


def canonicalize(value: JSON) -> bytes:
    """The canonical bytes of a JSON value.

    The value may have dict (with str keys), list, str, int, float, bool and None. MalformedError: another type, an
    integer beyond ±(2^53−1), NaN or an infinity, half of a surrogate pair, or nesting deeper than 128. Source: RFC 8785
    3.2.
    """
    return _canonicalize(value, doubles=False)


def canonicalize_received(value: JSON) -> bytes:
    """As ``canonicalize``, but an integer beyond ±(2^53−1) becomes the nearest double, as RFC 8785 3.2.2.3 requires
    for a received document."""
    return _canonicalize(value, doubles=True)


def canonicalize_parsed(value: JSON, *, plain: Plain) -> bytes:
    """As ``canonicalize_received``, for a value of ``strict_json.read`` or a part of it, with its result ``plain``."""
    if not plain:
        return _canonicalize(value, doubles=True)
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return text if plain is Plain.YES else without_whole_fractions(text)


def _canonicalize(value: JSON, *, doubles: bool) -> bytes:
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)  # first, because it ends for values within themselves
        plain = _plainness(value)
    except TypeError:
        plain = Plain.NO
    if plain:
        return text if plain is Plain.YES else without_whole_fractions(text)
    # The definition reports the error, or prints the value.
    if is_too_deep(value):
        raise MalformedError(f"canonical form: nested deeper than {MAX_DEPTH} levels")
    return _write(value, doubles).encode()


def _plainness(value: JSON) -> Plain:
    """Whether orjson prints the canonical form of a value; NO also for types that JSON does not have."""
    plain = Plain.YES
    names: list[str] = []
    level: list[JSON] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        items: list[JSON] = []
        for container in level:
            if type(container) is dict:
                names += container
                items += container.values()
            else:
                items += container
        kinds = set(map(type, items))
        if not kinds <= _TYPES:
            return Plain.NO
        if not kinds.isdisjoint(_NUMBERS):
            of_numbers = _plainness_of_numbers(items)
            if of_numbers is Plain.NO:
                return of_numbers
            plain = max(plain, of_numbers)
        if _CONTAINERS.isdisjoint(kinds):
            letters = "".join(names)
            return plain if letters.isascii() or max(letters) <= "\uffff" else Plain.NO
        level = [item for item in items if type(item) in _CONTAINERS]
    return Plain.NO


def _plainness_of_numbers(items: list[JSON]) -> Plain:
    integers = [item for item in items if type(item) is int]
    doubles = [item for item in items if type(item) is float]
    if not all(-MAX_SAFE_INTEGER <= integer <= MAX_SAFE_INTEGER for integer in integers):
        return Plain.NO
    # Between these limits both print the shortest digits without an exponent, and orjson prints minus zero as it is.
    if not all(1e-4 <= abs(double) < 1e15 or repr(double) == "0.0" for double in doubles):
        return Plain.NO
    return Plain.BUT_WHOLE if any(map(float.is_integer, doubles)) else Plain.YES


def _check_text(value: object) -> None:
    if type(value) is str and not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise MalformedError("canonical form: a string holds half of a surrogate pair") from None


def _write(value: JSON, doubles: bool = False) -> str:
    """RFC 8785 3.2, clause by clause: the definition against which the fast way is tested."""
    kind = type(value)
    if value is None:  # 3.2.2.1
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is str:
        _check_text(value)
        return f'"{value.translate(_ESCAPES)}"'  # 3.2.2.2: only these characters are escaped
    if kind is int or kind is float:
        return _number(value, doubles)
    if kind is list:
        return f"[{','.join([_write(item, doubles) for item in value])}]"
    if kind is dict:
        for name in value:
            if type(name) is not str:
                raise MalformedError(f"canonical form: a member name is {type(name).__name__}, not str")
            _check_text(name)
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))  # 3.2.3: by UTF-16 code units
        return f"{{{','.join([f'{_write(name)}:{_write(value[name], doubles)}' for name in names])}}}"
    raise MalformedError(f"canonical form: {kind.__name__} is not JSON; use dict, list, str, int, float, bool or None")


def _number(value: float, doubles: bool) -> str:
    if type(value) is int:
        if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            return str(value)
        if not doubles:
            raise MalformedError(
                "canonical form: an integer is beyond ±(2^53−1), where readers disagree; write it as a string"
            )
        try:
            value = float(value)
        except OverflowError:
            raise MalformedError("canonical form: a number is larger than a double can hold") from None
    return es6_number(value)


def es6_number(value: float) -> str:
    """A finite double in the form of ECMAScript's Number::toString (RFC 8785 3.2.2.3)."""
    if value == 0:
        return "0"  # minus zero too
    if value != value or value in (float("inf"), float("-inf")):
        raise MalformedError("canonical form: NaN and infinities are not JSON")
    sign = "-" if value < 0 else ""
    # repr returns the shortest digits that read back as the same double, as ECMAScript requires; only the layout
    # differs.
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # value = 0.DIGITS * 10**point
    point = len(whole) + int(exponent or 0) if whole != "0" else int(exponent or 0) - (len(fraction) - len(digits))
    digits = digits.rstrip("0")
    count = len(digits)
    if not -6 < point <= 21:
        mark = f"e{'+' if point > 0 else '-'}{abs(point - 1)}"
        return f"{sign}{digits[0]}{'.' if count > 1 else ''}{digits[1:]}{mark}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point < count:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    return f"{sign}{digits}{'0' * (point - count)}"
