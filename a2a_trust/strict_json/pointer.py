"""JSON pointers (RFC 6901): the texts that name a place in a document."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["escaped", "pointer_of", "steps_of"]


def escaped(step: str | int) -> str:
    """The name of a member, or an index, as one step of a pointer."""
    return str(step).replace("~", "~0").replace("/", "~1")


def pointer_of(steps: Iterable[str | int]) -> str:
    """The pointer of these steps, from the root on."""
    return "".join(f"/{escaped(step)}" for step in steps)


def steps_of(pointer: str) -> list[str]:
    """The steps of a pointer; indices are texts here."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
