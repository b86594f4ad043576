"""The cards that a command is given: files, directories, globs, and lists of their names.

A name means, in this order:

1. ``-`` is standard input, and a URL an agent.
2. A directory stands for every ``*.json`` file in it and below it. Hidden files and directories are left out, and links
   to directories are not followed.
3. A name that is there is a file, whatever is in the name.
4. A name with ``*``, ``?`` or ``[`` is a glob; ``**`` stands for any number of directories.

A directory, a glob or a list without a card is an error: a check that looked at nothing must not pass.
"""

from __future__ import annotations

import argparse
import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from a2a_trust.errors import ConfigurationError

__all__ = ["is_url", "named_cards"]

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(name: str) -> bool:
    """Whether a card is to be fetched; a file whose name looks like a URL is written with its path: ``./…``."""
    return _SCHEME.match(name) is not None


def named_cards(options: argparse.Namespace) -> list[str]:
    """The names of the cards, each once, those of a directory or a glob in alphabetical order.

    ConfigurationError: there are none. OSError: a list or a directory cannot be read.
    """
    given = list(options.files)
    if options.files_from is not None:
        given += _listed(options.files_from)
    if [*options.files, options.files_from].count("-") > 1 or given.count("-") > 1:
        raise ConfigurationError("- (standard input) can be read only once")
    if options.files_from == "-" and "-" in given:
        raise ConfigurationError("--files-from -: standard input is the list, so it cannot be a card in the list too")
    try:
        return list(dict.fromkeys(name for each in given for name in _meant(each)))
    except RecursionError:
        raise ConfigurationError("directories are nested too deeply to search; name the cards") from None


def _listed(name: str) -> list[str]:
    """The names in a list: separated by NUL if there is one, as ``find -print0`` writes them, else one per line."""
    if name == "-":
        if sys.stdin is None:
            raise OSError("standard input is closed")
        data = sys.stdin.buffer.read()
    else:
        data = Path(name).read_bytes()
    names = data.split(b"\0") if b"\0" in data else data.splitlines()
    found = [os.fsdecode(each) for each in names if each]
    if not found:
        raise ConfigurationError(f"--files-from {name}: the list is empty; run the command only when there are cards")
    for each in found:
        if b"\0" not in data and each[0] == each[-1] == '"' and not os.path.lexists(each):
            raise ConfigurationError(f"--files-from {name}: git has quoted the name {each}; list names with git … -z")
    return found


def _meant(name: str) -> Iterable[str]:
    if name == "-" or is_url(name):
        return [name]
    if Path(name).is_dir():
        cards = sorted(_cards_below(name))
        if not cards:
            raise ConfigurationError(
                f"{name}: no *.json file in this directory; name the cards, or a directory of them"
            )
        return cards
    if glob.has_magic(name) and not os.path.lexists(name):
        found = glob.glob(name, recursive=True)  # noqa: PTH207  Path.glob takes no absolute pattern
        cards = sorted(_checked(each) for each in found if not Path(each).is_dir())
        if not cards:
            raise ConfigurationError(f"{name}: no file matches this glob")
        return cards
    return [name]


def _cards_below(folder: str) -> Iterator[str]:
    def stop(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(folder, onerror=stop):
        folders[:] = [each for each in folders if not each.startswith(".")]
        for each in files:
            if each.endswith(".json") and not each.startswith("."):
                yield _checked(os.path.join(place, each))  # noqa: PTH118  names stay as they were typed


def _checked(path: str) -> str:
    """A path that nobody has typed; ConfigurationError when it is a pipe or a device, which may never end."""
    if Path(path).exists() and not Path(path).is_file():
        raise ConfigurationError(f"{path}: not a regular file; name the cards, or keep it elsewhere")
    return path
