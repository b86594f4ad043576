"""A table is walked whole, and what failed in it is named."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from tests.tables import walk


def names_of(group: BaseExceptionGroup[BaseException]) -> list[str]:
    return [note for error in group.exceptions for note in error.__notes__]


def test_every_entry_that_fails_is_named_and_the_others_are_tried() -> None:
    tried: list[int] = []

    @walk("number", [1, 2, 3, pytest.param(4, id="four"), 5])
    def check(number: int, tmp: str) -> None:
        tried.append(number)
        if number == 4:
            pytest.fail("as where nothing is raised")
        assert number not in (2, 5), tmp

    assert list(inspect.signature(check).parameters) == ["tmp"]
    with pytest.raises(BaseExceptionGroup, match="3 of 5 entries failed") as caught:
        check(tmp="x")
    assert tried == [1, 2, 3, 4, 5]
    assert names_of(caught.value) == ["entry: 2", "entry: four", "entry: 5"]


def test_tables_of_tests_that_wait_are_walked_within_each_other() -> None:
    tried: list[tuple[int, str]] = []

    @walk(("a", "b"), [(1, 2), (3, 4)], ids=["one", "two"])
    @walk("c", "xy", ids=str.upper)
    async def check(a: int, b: int, c: str) -> None:
        await asyncio.sleep(0)
        tried.append((a + b, c))
        assert (a, c) != (3, "y")

    assert inspect.iscoroutinefunction(check)
    assert not inspect.signature(check).parameters
    with pytest.raises(BaseExceptionGroup) as caught:
        asyncio.run(check())
    assert tried == [(3, "x"), (3, "y"), (7, "x"), (7, "y")]
    assert names_of(caught.value) == ["entry: two"]
    (inner,) = caught.value.exceptions
    assert isinstance(inner, BaseExceptionGroup)
    assert names_of(inner) == ["entry: Y"]


def test_an_empty_table_is_a_mistake() -> None:
    with pytest.raises(AssertionError):
        walk("number", [])
