"""Hypothesis strategies for JSON: values with everything that canonical JSON is about, and odd spellings of them."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st

MAX_SAFE = 2**53 - 1

#: Names that sort otherwise by UTF-16 than by code points, look alike, or need escapes.
NAMES = (
    "", "a", "A", "\u0061\u0301", "á", "\u20ac", "\r", "\ufb33", "\U0001f600", "\U00010000", "\U0010ffff", "\ue000",
    "\uffff", "\ud7ff", "\x00", "\x1f", "\x7f", "\x80", "\u2028", '"', "\\", "\\\\", '\\"', "\\u0061", "/", "1", "10",
    "2", ":1.5", ",1234567890123456", "[1e5", "\U0001f600a",
)  # fmt: skip

FLOATS = (
    0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 1e-7, 1e-6, 9.999999999999997e-7,
    1e15, 1e16, 1e20, 1e21, 999999999999999900000.0, 1.5, -1.0, 100.0, 0.1, 4.35, 9007199254740992.0, 1e23, 333333333.3,
)  # fmt: skip

INTEGERS = (0, 1, -1, 10**14, 10**15, MAX_SAFE, MAX_SAFE - 1, -MAX_SAFE, 123456789012345)

UNSAFE_INTEGERS = (MAX_SAFE + 1, -MAX_SAFE - 1, 2**53 + 1, 2**63, 2**64, 10**21, 10**22 + 1, -(10**300))

texts = st.sampled_from(NAMES) | st.text(max_size=12)

doubles = (
    st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(FLOATS)
    | st.integers(-(2**70), 2**70).map(float)
    | st.builds(
        lambda digits, power: float(f"{digits}e{power}"), st.integers(-(10**17), 10**17), st.integers(-330, 290)
    )
)

safe_integers = st.integers(-MAX_SAFE, MAX_SAFE) | st.sampled_from(INTEGERS)

unsafe_integers = st.sampled_from(UNSAFE_INTEGERS) | st.integers(MAX_SAFE + 1, 2**70)


def values(numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """JSON values whose numbers come from ``numbers``."""
    return st.recursive(
        st.none() | st.booleans() | texts | numbers,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
        max_leaves=25,
    )


#: What canonicalize takes.
canonicalizable = values(doubles | safe_integers)

#: What a document may hold.
documents = values(doubles | safe_integers | unsafe_integers)


def nested(depth: int, leaf: Any, *, kind: str) -> Any:
    """``leaf`` within ``depth`` lists, objects, or both by turns."""
    value = leaf
    for level in range(depth):
        value = [value] if kind == "lists" or (kind == "both" and level % 2) else {"k": value}
    return value


_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def spell(text: str, random: Random) -> str:
    """A JSON string for the text, each character in one of the spellings that JSON has for it."""
    spelled = []
    for char in text:
        units = char.encode("utf-16-be")
        escape = "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
        ways = [escape, escape.upper().replace("\\U", "\\u")]
        if char in _SHORT:
            ways.append(_SHORT[char])
        elif char >= " ":
            ways += [char, char]
        if char == "/":
            ways.append("\\/")
        spelled.append(random.choice(ways))
    return f'"{"".join(spelled)}"'


def write(value: Any, random: Random) -> str:
    """A JSON text of the value, with blanks and spellings by chance."""

    def blank() -> str:
        return random.choice(["", "", "", " ", "\n", "\t\r "])

    if type(value) is dict:
        members = [f"{blank()}{spell(k, random)}{blank()}:{write(item, random)}" for k, item in value.items()]
        text = f"{{{','.join(members) or blank()}}}"
    elif type(value) is list:
        text = f"[{','.join(write(item, random) for item in value) or blank()}]"
    elif type(value) is str:
        text = spell(value, random)
    elif value is None or type(value) is bool:
        text = {None: "null", True: "true", False: "false"}[value]
    else:
        text = repr(value)
    return f"{blank()}{text}{blank()}"
