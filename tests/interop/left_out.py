"""What of one JSON value is not in another: an oracle that knows nothing of A2A, its fields and its forms."""

from __future__ import annotations

from typing import Any

__all__ = ["left_out"]


def left_out(whole: Any, part: Any, at: str = "") -> frozenset[str]:
    """JSON pointers of what must be taken out of ``whole`` to leave ``part``; AssertionError when that is no way."""
    if isinstance(whole, dict) and isinstance(part, dict):
        assert part.keys() <= whole.keys(), f"{at}: {part.keys() - whole.keys()} are new"
        pointers: set[str] = set()
        for name, value in whole.items():
            here = f"{at}/{name.replace('~', '~0').replace('/', '~1')}"
            pointers |= left_out(value, part[name], here) if name in part else {here}
        return frozenset(pointers)
    if isinstance(whole, list) and isinstance(part, list):
        pointers = set()
        rest = list(part)
        for index, value in enumerate(whole):
            here = f"{at}/{index}"
            if rest and _is_part(value, rest[0]):
                pointers |= left_out(value, rest.pop(0), here)
            else:
                pointers.add(here)
        assert not rest, f"{at}: {rest} are new"
        return frozenset(pointers)
    assert (type(whole) is bool) is (type(part) is bool), at
    assert whole == part, at
    return frozenset()


def _is_part(whole: Any, part: Any) -> bool:
    try:
        left_out(whole, part)
    except AssertionError:
        return False
    return True
