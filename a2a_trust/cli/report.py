"""The reports of all commands: exit codes, lines for people, JSON for machines."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, Literal, TextIO, TypeAlias

from a2a_trust.base.dates import date_of
from a2a_trust.errors import (
    CardMemoryError,
    CardMemoryUnavailableError,
    ConfigurationError,
    FetchError,
    KeySourceUnavailableError,
    PartialSignatureError,
    TrustError,
    UncoveredFieldsError,
    UnsignedCardError,
    UntrustedCardError,
)


class Exit(IntEnum):
    """The exit codes of ``a2a-sign``: one per class of outcome, the same for every command."""

    OK = 0
    INVALID = 1
    USAGE = 2
    UNSIGNED = 3
    UNTRUSTED = 4
    UNCOVERED = 5
    INPUT_OUTPUT = 6


def exit_of(error: Exception) -> Exit:
    if isinstance(error, OSError | FetchError | CardMemoryUnavailableError | KeySourceUnavailableError):
        return Exit.INPUT_OUTPUT
    if isinstance(error, ConfigurationError):
        return Exit.USAGE
    if isinstance(error, UnsignedCardError):
        return Exit.UNSIGNED
    if isinstance(error, UntrustedCardError | CardMemoryError):
        return Exit.UNTRUSTED
    if isinstance(error, UncoveredFieldsError | PartialSignatureError):
        return Exit.UNCOVERED
    if isinstance(error, TrustError):
        return Exit.INVALID
    raise error


def class_of(code: Exit) -> str:
    return code.name.lower().replace("_", "-")


def word_of(error: Exception) -> str:
    """The stable word for an error, for machines; for errors of other libraries, the word for the exit code."""
    return error.code if isinstance(error, TrustError) else class_of(exit_of(error))


def printable(text: object) -> str:
    """The text in one line, with every character escaped that could control a terminal or the log of a pipeline.

    Pipelines take commands from the output of every step: lines that begin with ``::`` (GitHub), and texts such as
    ``##[…]`` and ``##vso[…]`` anywhere (GitHub, Azure).
    """
    return printable_lines(text).replace("\n", "\\n")


def printable_lines(text: object) -> str:
    """As ``printable``, for our own texts of several lines; each further line begins with two blanks."""
    escaped = "".join(
        char
        if (char.isprintable() and char not in _BLANK_LETTERS) or char == "\n"
        else char.encode("unicode_escape").decode()
        for char in str(text)
    )
    escaped = re.sub(r"\n(?!  )", r"\\n", escaped.replace("##", r"#\x23"))
    return re.sub(r"^( *):(?=:)", r"\1\\x3a", escaped, flags=re.MULTILINE)


_BLANK_LETTERS: Final = "\u115f\u1160\u2800\u3164\uffa0"
"""Python calls these letters printable; people see blanks."""


def mark(text: str, color: str | None, stream: TextIO | None) -> str:
    """The text, in a color if there is one and the stream is a terminal."""
    if color is None or stream is None or not stream.isatty() or os.environ.get("NO_COLOR"):
        return text
    code = {"red": 31, "green": 32, "yellow": 33}[color]
    return f"\x1b[{code}m{text}\x1b[0m"


def mark_verified(*, in_part: bool) -> str:
    return mark("verified in part", "yellow", sys.stdout) if in_part else mark("verified", "green", sys.stdout)


_STANDARD_OUTPUT: Literal["standard output"] = "standard output"
_Stream: TypeAlias = TextIO | Literal["standard output"] | None
"""Where to write; None for a closed stream."""


def put(text: str, stream: _Stream = _STANDARD_OUTPUT) -> None:
    target = sys.stdout if stream == _STANDARD_OUTPUT else stream
    if target is not None:
        print(text, file=target)


def put_json(value: dict[str, Any], stream: _Stream = _STANDARD_OUTPUT, *, form: str = "object") -> None:
    """Write the value as JSON to the stream; in one line for the ``form`` ``lines``."""
    put(json_line(value) if form == "lines" else _harmless(json.dumps(value, indent=2)), stream)


def json_line(value: dict[str, Any]) -> str:
    """The value as JSON in one line, without line end."""
    return _harmless(json.dumps(value))


def _harmless(text: str) -> str:
    """The JSON without commands for pipelines, which can be in strings only; see ``printable``."""
    return text.replace("##", "#\\u0023")


def put_report(
    command: str, code: Exit, members: Mapping[str, Any], stream: _Stream = _STANDARD_OUTPUT, *, form: str = "object"
) -> None:
    """Write the JSON report of a command: the members that every report has, and ``members``."""
    put_json({"command": command, "ok": code == Exit.OK, "exit": code, **members}, stream, form=form)


class Results:
    """The results of a command over several cards: an entry for each card, and the exit code of the command.

    ``form`` is ``options.json``: empty for people, ``object`` for one JSON report with all entries, ``lines`` for a
    JSON line for each entry as soon as it is known, and a last line with the number of cards.
    """

    def __init__(self, command: str, form: str, stream: _Stream = _STANDARD_OUTPUT) -> None:
        self.counts: Counter[str] = Counter()
        self.exit: Exit = Exit.OK
        self.failed: int = 0
        self._command = command
        self._form = form
        self._stream = stream
        self._entries: list[dict[str, Any]] = []

    def add(self, entry: dict[str, Any] | str, code: Exit, outcome: str) -> None:
        """Add a card. ``outcome`` is its word in the summary. The first code that is not OK is the exit code.

        ``entry`` may be the whole JSON line, if the form is ``lines``.
        """
        self.counts[outcome] += 1
        self.exit = self.exit or code
        self.failed += code != Exit.OK
        if self._form == "lines":
            put(entry if isinstance(entry, str) else json_line({"command": self._command, **entry}), self._stream)
        elif self._form and not isinstance(entry, str):
            self._entries.append(entry)

    @property
    def total(self) -> int:
        return self.counts.total()

    def put(self, what: str = "cards") -> Exit:
        """Write the end of the report, for people the totals when there are several cards; return the exit code."""
        total = self.total
        if self._form:
            members = {"cards": total} if self._form == "lines" else {"results": self._entries}
            put_report(self._command, self.exit, members, self._stream, form=self._form)
        elif total > 1:
            put(f"{total} {what}: {', '.join(f'{n} {word}' for word, n in self.counts.items())}", self._stream)
        return self.exit


def put_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, indent: str = "") -> None:
    """Write rows under their headings, in aligned columns."""
    lines = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        put(indent + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def warn(text: object) -> None:
    put(f"{mark('warning', 'yellow', sys.stderr)}: {printable(text)}", sys.stderr)


@contextmanager
def show_log(*, verbose: bool) -> Iterator[None]:
    """In the block, warnings in the log of the package go to standard error; with ``verbose``, the whole log does."""
    import logging  # only commands with --verbose log, and they have imported it already

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "audit" in vars(record):
                return  # a database was lost: the error of the command says so, too
            about = ""
            if record.levelno >= logging.WARNING:
                level = mark(record.levelname.lower(), "yellow", sys.stderr)
                about = f"{date_of(record.created)} {level}: "
            put(f"{about}{printable(record.getMessage())}", sys.stderr)

    log, lines = logging.getLogger("a2a_trust"), Lines()
    level = log.level
    log.setLevel(logging.DEBUG if verbose else logging.WARNING)
    log.addHandler(lines)
    try:
        yield
    finally:
        log.removeHandler(lines)
        log.setLevel(level)


def error_text(error: Exception, file: str | None = None) -> str:
    """The text of the error. An error of the operating system comes without its number and the name of ``file``."""
    if isinstance(error, OSError) and error.strerror and isinstance(error.filename, str | bytes | os.PathLike):
        name = os.fsdecode(error.filename)
        return error.strerror if name == file else f"{name}: {error.strerror}"
    return getattr(error, "on_command_line", "") or str(error)


def report_failure(
    command: str,
    error: Exception,
    *,
    as_json: str | bool,
    code: Exit,
    file: str | None = None,
    stream: _Stream = _STANDARD_OUTPUT,
    details: Mapping[str, Any] = MappingProxyType({}),
) -> Exit:
    """Report that a whole command failed, and return its exit code.

    ``as_json`` is ``options.json``, ``stream`` is for JSON reports, ``details`` are more members of their ``error``.
    """
    if as_json:
        report = {"class": class_of(code), "message": error_text(error, file), **details}
        put_report(command, code, {"file": file, "error": report}, stream, form=str(as_json))
    else:
        where = f"{printable(file)}: " if file else ""
        put(
            f"a2a-sign: {mark('error', 'red', sys.stderr)}: {where}{printable_lines(error_text(error, file))}",
            sys.stderr,
        )
    return code


def run_and_report(
    run: Callable[[argparse.Namespace], dict[str, Any] | Exit | None], options: argparse.Namespace
) -> Exit:
    """Run a command, and return its exit code. The members that ``run`` returns are its JSON report.

    Errors about cards are reported by the commands themselves. All others are about keys, trust files and other
    settings of the operator, whatever their class: USAGE, or INPUT_OUTPUT.
    """
    command = " ".join(filter(None, (options.command, getattr(options, "action", None))))
    as_json = getattr(options, "json", "")
    try:
        done = run(options)
    except BrokenPipeError:
        raise
    except (TrustError, OSError) as error:
        code = Exit.INPUT_OUTPUT if exit_of(error) is Exit.INPUT_OUTPUT else Exit.USAGE
        # Without standard output, people at least get the text.
        return report_failure(
            command, error, as_json=as_json if sys.stdout else "", code=code, stream=_report_stream(options)
        )
    if isinstance(done, Exit):
        return done
    if as_json and done is not None:
        put_report(command, Exit.OK, done, _report_stream(options))
    return Exit.OK


def _report_stream(options: argparse.Namespace) -> TextIO | None:
    """A document on standard output must be the only output there."""
    return sys.stderr if getattr(options, "output", None) == "-" else sys.stdout
