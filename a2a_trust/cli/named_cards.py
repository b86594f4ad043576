"""The cards that the arguments of a command name: files, directories, globs, lists of names, and lines of JSON.

The first rule that fits decides what a name means:

1. ``-`` is standard input, and a URL is an agent.
2. A directory stands for every ``*.json`` file in it and below it.
3. The name of an existing file is that file, even with ``*``, ``?`` or ``[`` in it.
4. A name with ``*``, ``?`` or ``[`` is a glob; ``**`` stands for any number of directories.

Hidden files and directories are left out, except ``.well-known``, from which agents serve their cards. A check that
skipped cards must not pass: a directory, glob or list without a card, a directory that cannot be read, and a link to a
directory on the way of ``**`` are errors.
"""

from __future__ import annotations

import argparse
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from a2a_trust.card.ambiguity import Reader, UnambiguousCard, read_quickly
from a2a_trust.cli.file_names import NOT_SHOWN, is_secret
from a2a_trust.cli.sources import open_input
from a2a_trust.errors import ConfigurationError

_MOST_SHOWN: Final = 50
_MAGIC: Final = re.compile(r"[*?\[]")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(name: str) -> bool:
    """Whether the name is a URL, so the card is fetched. For a file with such a name write ``./…``."""
    return _SCHEME.match(name) is not None


class NamedCard(NamedTuple):
    """A card to read: its name, or its line with the name of the line."""

    name: str
    line: bytes | None = None


def card_sources(options: argparse.Namespace) -> Iterator[NamedCard]:
    """The cards of ``named_cards``, which are in ``options.files`` now, and the lines of --cards-from.

    ConfigurationError: no line has a card. OSError: the file cannot be read.
    """
    yield from map(NamedCard, options.files)
    name, number = options.cards_from, 0
    if name is None:
        return
    with open_input(name) as file:
        for number, line in _lines(file):
            yield NamedCard(f"{name}:{number}", line)
    if not number:
        raise ConfigurationError(f"--cards-from {name}: no line with a card; run the command only when there are cards")


def reader_for(options: argparse.Namespace) -> Reader:
    """How the cards of ``named_cards`` are read."""
    return UnambiguousCard if len(options.files) == 1 and options.cards_from is None else read_quickly


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Number and content of each line that is not blank; a line that is too long is cut, and still too long."""
    from a2a_trust.signing.lines import MAX_LINE_BYTES

    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        rest = line
        while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
            rest = file.readline(MAX_LINE_BYTES + 1)
        if not line.isspace():
            yield number, line.rstrip(b"\r\n")


def named_cards(options: argparse.Namespace) -> list[str]:
    """The names of the cards, each once; names from a directory or a glob in alphabetical order.

    For more than 50 cards on a terminal it sets ``options.quiet``, so people see the failures and the sum only.

    ConfigurationError: a directory, a glob or a list has no card. OSError: a list or a directory cannot be read.
    """
    given = list(options.files)
    cards_from = getattr(options, "cards_from", None)  # not every command reads lines
    sources = [*options.files, options.files_from, cards_from]
    if options.files_from is not None:
        given += _read_list(options.files_from)
    if sources.count("-") > 1 or given.count("-") > 1:
        raise ConfigurationError("- (standard input) can be read only once")
    if options.files_from == "-" and "-" in given:
        raise ConfigurationError(
            "--files-from -: standard input is the list, so it cannot be a card, too; remove the name - from the list"
        )
    if cards_from == "-" and "-" in given:
        raise ConfigurationError("--cards-from -: standard input has the cards, so remove the name - from the list")
    names = list(dict.fromkeys(name for each in given for name in _expand(each)))
    if len(names) > _MOST_SHOWN and sys.stdout is not None and sys.stdout.isatty():
        options.quiet = True
    return names


def _read_list(name: str) -> list[str]:
    """The names in a list: separated by NUL if it has one (``find -print0``), else one per line."""
    with open_input(name) as file:
        data = file.read()
    names = data.split(b"\0") if b"\0" in data else data.splitlines()
    found = [os.fsdecode(each) for each in names if each]
    if not found:
        raise ConfigurationError(f"--files-from {name}: the list is empty; run the command only when there are cards")
    for number, each in enumerate(found, 1):
        if is_secret(each):
            raise ConfigurationError(f"--files-from {name}: name {number}: {NOT_SHOWN}")
        if b"\0" not in data and each[0] == each[-1] == '"' and not os.path.lexists(each):
            raise ConfigurationError(
                f"--files-from {name}: git has quoted the name {each}; make the list with git … -z"
            )
    return found


def _expand(name: str) -> list[str]:
    if name == "-" or is_url(name):
        return [name]
    if Path(name).is_dir():
        return _cards_below(name)
    if not _MAGIC.search(name) or os.path.lexists(name):
        _check_regular(name, may_be_pipe=True)  # a shell makes a pipe for <(command)
        return [name]
    steps = name.split("/")
    first = next(number for number, step in enumerate(steps) if _MAGIC.search(step))
    folder = "/".join(steps[:first]) or "/" * name.startswith("/")
    found = _matches(folder, steps[first:]) if Path(folder or ".").is_dir() else []
    if not found:
        raise ConfigurationError(f"{name}: no file matches this glob; correct it, or name the cards")
    return [card for path in found for card in (_cards_below(path) if Path(path).is_dir() else [path])]


def _cards_below(folder: str) -> list[str]:
    cards = _matches(folder, ["**", "*.json"])
    if not cards:
        raise ConfigurationError(f"{folder}: no *.json file in this directory; name the cards, or a directory of them")
    return cards


def _matches(folder: str, steps: Sequence[str]) -> list[str]:
    """The paths below the folder that match the steps of a glob, in alphabetical order.

    ``states`` are the numbers of the steps that the next name may match, so each name is read once. Python's ``glob``
    skips directories that it cannot read, and its ``**`` follows links, even in circles.
    """
    found: list[str] = []
    waiting = [(folder, _with_next(steps, {0}) - {len(steps)})]
    while waiting:
        place, states = waiting.pop()
        with os.scandir(place or ".") as entries:
            for entry in entries:
                path = os.path.join(place, entry.name)  # noqa: PTH118  names stay as they were typed
                fitting = {state for state in states if _fits(entry.name, steps[state])}
                after = _with_next(steps, {state + (steps[state] != "**") for state in fitting})
                if len(steps) in after:
                    _check_regular(path)
                    found.append(path)
                deeper = after - {len(steps)}
                if deeper and entry.is_dir():
                    if entry.is_symlink() and any(steps[state] == "**" for state in deeper):
                        raise ConfigurationError(
                            f"{path}: a link to a directory, which is not searched; replace it by the directory, or "
                            "name the cards"
                        )
                    waiting.append((path, deeper))
    return sorted(found)


def _with_next(steps: Sequence[str], states: set[int]) -> set[int]:
    """The states, and the state after each ``**``, which may stand for no directory."""
    for state in range(len(steps)):
        if state in states and steps[state] == "**":
            states = states | {state + 1}
    return states


def _fits(name: str, step: str) -> bool:
    if name.startswith(".") and not step.startswith("."):
        return step == "**" and name == ".well-known"
    return step == "**" or fnmatchcase(name, step)


def _check_regular(path: str, *, may_be_pipe: bool = False) -> None:
    """ConfigurationError for a device or a pipe, whose content may never end."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116  many names
    except (OSError, ValueError):
        return  # the error comes when the card is read
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or (may_be_pipe and stat.S_ISFIFO(mode))):
        raise ConfigurationError(f"{path}: not a regular file; move it away, or name the cards")
