"""Tests that walk a whole table: one test, in place of one for each entry, that names the entries that fail."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

__all__ = ["walked"]

Test = Callable[..., None]


def walked(name: str, values: Iterable[Any]) -> Callable[[Test], Test]:
    """Call a test with each of the values as its argument ``name``, as pytest.mark.parametrize does, but as one test.

    All values are tried; the failures are raised together, each with its value. Fixtures are made once: a test that
    changes one, or writes to tmp_path, needs parametrize.
    """
    entries = list(values)
    assert entries

    def decorated(test: Test) -> Test:
        signature = inspect.signature(test)
        assert name in signature.parameters

        @functools.wraps(test)
        def walk(**fixtures: Any) -> None:
            failures = []
            for value in entries:
                try:
                    test(**{name: value}, **fixtures)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  raised below
                    error.add_note(f"{name} = {value!r:.200}")
                    failures.append(error)
            if failures:
                raise BaseExceptionGroup(f"{name}: {len(failures)} of {len(entries)}", failures)

        others = [each for each in signature.parameters.values() if each.name != name]
        walk.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return walk

    return decorated
