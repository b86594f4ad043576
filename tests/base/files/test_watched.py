"""A value that is read from a file, and read again when the file has changed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from a2a_trust.base.files.watched import Stamp, Watched, open_regular, read_at_most, stamp_of, stamp_of_path
from tests.tables import walk


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("a2a_trust.base.files.watched.monotonic", clock)
    return clock


class Numbers:
    """A number in a file, and what is told about it."""

    def __init__(self, path: Path, every: float = 0.0) -> None:
        self.path, self.reads, self.told = path, 0, list[str | None]()
        self.watched = Watched(
            self._read,
            lambda: stamp_of_path(path),
            failures=(ValueError, OSError),
            tell=lambda failure: self.told.append(None if failure is None else type(failure).__name__),
            every=every,
        )

    def _read(self) -> tuple[int, Stamp]:
        self.reads += 1
        with open_regular(self.path) as file:
            return int(file.read()), stamp_of(os.fstat(file.fileno()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "number"
    path.write_text("1")
    return path


def test_a_file_is_read_again_when_it_has_changed_only(path: Path, clock: Clock) -> None:
    numbers = Numbers(path)
    assert [numbers.watched.value() for _ in range(3)] == [1, 1, 1]
    assert (numbers.reads, numbers.told) == (1, [])
    path.write_text("22")
    assert [numbers.watched.value() for _ in range(3)] == [22, 22, 22]
    assert (numbers.reads, numbers.told) == (2, [None])


def test_the_last_value_stays_and_each_change_is_told_once(path: Path, clock: Clock) -> None:
    numbers = Numbers(path)
    path.write_text("half")
    assert [numbers.watched.value() for _ in range(3)] == [1, 1, 1]
    path.unlink()
    assert [numbers.watched.value() for _ in range(3)] == [1, 1, 1]
    assert numbers.told == ["ValueError", "FileNotFoundError"]
    path.write_text("333")
    assert numbers.watched.value() == 333
    assert numbers.told == ["ValueError", "FileNotFoundError", None]


def test_what_failed_is_tried_again_once_per_second_and_told_once(path: Path, clock: Clock) -> None:
    """A disk that fails for a moment changes no stamp, and a file system may give two writes one time."""
    numbers = Numbers(path)
    path.write_text("x")
    for _ in range(3):
        numbers.watched.value()
        numbers.watched.value()
        clock.now += 1
    assert (numbers.reads, numbers.told) == (4, ["ValueError"])
    status = path.stat()
    path.write_text("4")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert numbers.watched.value() == 4


def test_the_file_is_looked_at_once_in_an_interval(path: Path, clock: Clock) -> None:
    numbers = Numbers(path, every=1.0)
    path.write_text("22")
    clock.now += 0.9
    assert numbers.watched.value() == 1
    clock.now += 0.1
    assert numbers.watched.value() == 22


def test_without_a_first_value_there_is_none(path: Path) -> None:
    path.write_text("x")
    with pytest.raises(ValueError, match="invalid literal"):
        Numbers(path)


def test_many_threads_read_one_change_once(path: Path) -> None:
    numbers = Numbers(path)
    for number in range(2, 30):
        path.write_text("1" * number)
        seen: list[int] = []
        threads = [threading.Thread(target=lambda: seen.append(numbers.watched.value())) for _ in range(8)]  # noqa: B023
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(seen) == {int("1" * number)}
    assert numbers.reads == 29


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_refused_and_nobody_waits(put: object, tmp_path: Path) -> None:
    assert callable(put)
    put(tmp_path / "x")
    with pytest.raises(OSError, match=r"not a regular file|Is a directory"):
        open_regular(tmp_path / "x")
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(Path("/dev/zero"))


@walk("size", [0, 1, 65_535, 65_536, 65_537, 200_000])
@walk("limit", [0, 1, 65_535, 65_536, 65_537, 1_048_577])
def test_a_file_is_read_to_its_end_or_to_the_limit(size: int, limit: int, tmp_path: Path) -> None:
    path, content = tmp_path / "file", os.urandom(size)
    path.write_bytes(content)
    with path.open("rb") as file:
        assert read_at_most(file, limit) == content[:limit]
