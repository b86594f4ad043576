"""JSON pointers: RFC 6901."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.base.strict_json.pointer import Path, escape_step, pointer_of, steps_of, steps_to
from tests.tables import walk


@walk(
    ("steps", "pointer"),
    [  # RFC 6901 5
        ([], ""),
        (["foo"], "/foo"),
        (["foo", 0], "/foo/0"),
        ([""], "/"),
        (["a/b"], "/a~1b"),
        (["c%d"], "/c%d"),
        (['k"l'], '/k"l'),
        ([" "], "/ "),
        (["m~n"], "/m~0n"),
        (["~1"], "/~01"),
    ],
)
def test_steps_become_a_pointer_and_come_back(steps: list[str | int], pointer: str) -> None:
    assert pointer_of(steps) == pointer
    assert steps_of(pointer) == [str(step) for step in steps]


@given(st.lists(st.text() | st.integers(0)))
def test_a_path_has_the_steps_that_it_was_made_of(steps: list[str | int]) -> None:
    path: Path = None
    for step in steps:
        path = (path, step)
    assert steps_to(path) == steps


def test_a_name_is_one_step_whatever_is_in_it() -> None:
    assert escape_step("~/~1") == "~0~1~01"
