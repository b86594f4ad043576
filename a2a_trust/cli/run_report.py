"""The report of a run over many cards: a file of JSON Lines, with which a run that was killed goes on.

1. The first line names the run: the command, a digest of keys and options, and the moment of all verifications.
2. A line for each card follows, in the order of the cards: its name, the SHA-256 of its bytes, and the result.
3. The last line has the number of cards and the exit code. A file without it is of a run that did not end.

A run with the file of such a run skips the cards whose lines fit: at the same place, of the same name, with the same
bytes. From the first line that does not fit, it begins again. A card of a URL is not fetched again to compare it, so a
run goes on for at most a day.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from a2a_trust.cli.named_cards import GivenCard, is_url
from a2a_trust.cli.report import json_line
from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.files.atomic import lock_now
from a2a_trust.files.watched import check_writers

_LONGEST: Final = 86_400.0
"""Seconds after its begin in which a run can go on."""
_LONGEST_LINE: Final = 1_048_576


def digest_of(document: bytes) -> str:
    """The SHA-256 of a card as it was read, in hexadecimal."""
    return hashlib.sha256(document).hexdigest()


class RunReport:
    """The report of a run, as a context manager.

    ``at`` is the moment of all verifications of the run, in seconds since the epoch.
    """

    def __init__(self, path: Path, command: str, described: str) -> None:
        """Open the report of a run that did not end, or begin one. ``described`` is all that decides the results.

        ConfigurationError: the file is another one, it is of another or older run or of one that ended, everybody can
        write to it, or another process has it. OSError.
        """
        self._path, self._command = path, command
        self._file: BinaryIO = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        try:
            check_writers(os.fstat(self._file.fileno()), path, "claim that a card is verified")
            if not lock_now(self._file.fileno()):
                raise ConfigurationError(f"--report {path}: another run writes this report; name another file")
            self.at: float = self._begin(hashlib.sha256(described.encode()).hexdigest())
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _begin(self, run: str) -> float:
        """Read or write the first line; returns the moment in it."""
        line = self._file.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            if line and not line.startswith(b'{"command"'):
                raise self._other("is not a report of this command")
            self._file.seek(0)
            self._file.truncate()
            at = time.time()
            self.add(json_line({"command": self._command, "run": run, "at": at}))
            return at
        first = self._read(line)
        if first.get("command") != self._command or type(first.get("at")) is not float:
            raise self._other("is not a report of this command")
        if first.get("run") != run:
            raise self._other("is of a run with other keys or options")
        if not 0 <= time.time() - first["at"] <= _LONGEST:
            raise self._other("is of a run that began more than a day ago")
        if b'"exit"' in self._last_line():
            raise self._other("is of a run that ended")
        return float(first["at"])

    def _last_line(self) -> bytes:
        """The last whole line; the place in the file stays."""
        at = self._file.tell()
        self._file.seek(max(at, self._file.seek(0, os.SEEK_END) - _LONGEST_LINE))
        lines = self._file.read().split(b"\n")[:-1]
        self._file.seek(at)
        return lines[-1] if lines else b""

    def _other(self, what: str) -> ConfigurationError:
        return ConfigurationError(f"--report {self._path}: this file {what}; name another file, or remove this one")

    def _read(self, line: bytes) -> dict[str, Any]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if type(value) is not dict:
            raise self._other("is not a report of this command")
        return value

    def remaining(
        self,
        cards: Iterator[GivenCard],
        document_of: Callable[[GivenCard], bytes],
        skipped: Callable[[dict[str, Any]], None],
    ) -> Iterator[GivenCard]:
        """The cards whose lines are missing or do not fit; ``skipped`` gets each line that fits."""
        for card in cards:
            at = self._file.tell()
            line = self._file.readline(_LONGEST_LINE)
            entry = self._read(line) if line.endswith(b"\n") else None
            if entry is None or not _fits(entry, card, document_of):
                self._file.seek(at)
                self._file.truncate()
                return chain([card], cards)
            skipped(entry)
        self._file.truncate()
        return cards

    def add(self, line: str) -> None:
        """Add the line of a card. It is in the file, for a later run, even if this process is killed."""
        self._file.write(f"{line}\n".encode())
        self._file.flush()

    def end(self, cards: int, code: int) -> None:
        """Add the last line."""
        self.add(json_line({"command": self._command, "ok": code == 0, "exit": code, "cards": cards}))


def _fits(entry: dict[str, Any], card: GivenCard, document_of: Callable[[GivenCard], bytes]) -> bool:
    """Whether this is the line of that card as it is now."""
    if entry.get("file") != card.name or type(entry.get("ok")) is not bool:
        return False
    if card.line is None and is_url(card.name):
        return True
    try:
        return entry.get("sha256") == digest_of(document_of(card))
    except (OSError, TrustError):
        return entry.get("sha256") is None
