"""JSON pointers (RFC 6901): the texts that name a place in a document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Path: TypeAlias = "tuple[Path, str | int] | None"
"""The path to a value: the path to the object or list around it, and its name or index there; None for the document.

Texts for all values would need memory with the square of the document's size; paths share their common parts.
"""


def escape_step(step: str | int) -> str:
    """The name of a member, or an index, as one step of a pointer."""
    return str(step).replace("~", "~0").replace("/", "~1")


def pointer_of(steps: Iterable[str | int]) -> str:
    """The pointer of these steps, from the root on."""
    return "".join(f"/{escape_step(step)}" for step in steps)


def steps_of(pointer: str) -> list[str]:
    """The steps of a pointer; indices are texts here."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def steps_to(path: Path) -> list[str | int]:
    """The steps of a path, from the root on."""
    steps: list[str | int] = []
    while path is not None:
        path, step = path
        steps.append(step)
    return steps[::-1]
