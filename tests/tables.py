"""A test that walks a whole table: one case, whose report names every entry that failed."""

from __future__ import annotations

import copy
import functools
import inspect
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["walk"]

Test = Callable[..., Any]


def walk(names: str | tuple[str, ...], table: Iterable[Any], *, ids: Any = None) -> Callable[[Test], Test]:
    """As ``pytest.mark.parametrize``, in one case: the test is called with each entry, also after one has failed.

    Each entry has its own ``tmp_path``, ``monkeypatch`` and documents (dict, list), and an empty ``caplog`` and
    ``capsys``. All other fixtures are made once for the whole table. One that has ``begin_entry`` is
    told of each entry.
    """
    arguments = [name.strip() for name in (names.split(",") if isinstance(names, str) else names)]
    entries = list(table)
    assert entries
    if ids is not None and not callable(ids):
        ids = list(ids)

    def decorator(test: Test) -> Test:
        @functools.wraps(test)
        def walked(**fixtures: Any) -> None:
            failures = _Failures()
            for name, values in _named(arguments, entries, ids):
                with failures.of(name), _own(fixtures) as own:
                    test(**own, **values)
            failures.report()

        @functools.wraps(test)
        async def walked_async(**fixtures: Any) -> None:
            failures = _Failures()
            for name, values in _named(arguments, entries, ids):
                with failures.of(name), _own(fixtures) as own:
                    await test(**own, **values)
            failures.report()

        chosen: Any = walked_async if inspect.iscoroutinefunction(test) else walked
        signature = inspect.signature(test)
        kept = [each for name, each in signature.parameters.items() if name not in arguments]
        chosen.__signature__ = signature.replace(parameters=kept)
        return chosen  # type: ignore[no-any-return]

    return decorator


def _named(arguments: list[str], entries: list[Any], ids: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each entry: its name, and the arguments of the test."""
    for number, entry in enumerate(entries):
        named = None
        if isinstance(entry, type(pytest.param())):
            assert not entry.marks
            named, values = entry.id, entry.values
        else:
            values = (entry,) if len(arguments) == 1 else tuple(entry)
        if ids is not None and not callable(ids):
            named = ids[number]
        shown = ids if callable(ids) else repr
        yield (
            str(named or ", ".join(f"{shown(value)!s:.200}" for value in values)),
            dict(zip(arguments, values, strict=True)),
        )


@contextmanager
def _own(fixtures: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The fixtures for one entry, without what earlier entries did to them."""
    own = {name: copy.deepcopy(value) if type(value) in (dict, list) else value for name, value in fixtures.items()}
    if "tmp_path" in own:
        own["tmp_path"] = Path(tempfile.mkdtemp(dir=own["tmp_path"]))
    for value in own.values():
        if hasattr(value, "begin_entry"):
            value.begin_entry()
    for name in {"caplog"} & own.keys():
        own[name].clear()
    for name in {"capsys", "capfd"} & own.keys():
        own[name].readouterr()
    with pytest.MonkeyPatch.context() as patches:
        if "monkeypatch" in own:
            own["monkeypatch"] = patches
        yield own


class _Failures:
    """What failed so far."""

    def __init__(self) -> None:
        self._errors: list[BaseException] = []
        self._count = 0

    def of(self, name: str) -> _Failures:
        self._count += 1
        self._name = name
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if not isinstance(error, Exception | pytest.fail.Exception):
            return False
        error.add_note(f"entry: {self._name}")
        self._errors.append(error)
        return True

    def report(self) -> None:
        if self._errors:
            raise BaseExceptionGroup(f"{len(self._errors)} of {self._count} entries failed", self._errors)
