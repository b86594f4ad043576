"""The paths that options name: exact ones, templates, and folders.

A path of an option is written as in requests. A path that a router could read as an operation of A2A, or as the path of
a card, is named only where that is meant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from a2a_trust.card.operations import ends_like_operation, fold_path
from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.errors import ConfigurationError

_NOT_EXACT: Final = re.compile(r"[?#%*{}\\\x00-\x20\x7f]|//|/\.{1,2}(?:/|$)")
_PLACEHOLDER: Final = re.compile(r"\{\w+\}")
_RESOLVED: Final = re.compile(r"//|\\|/\.{1,2}(?:/|$)|%")
_ENTRY: Final = re.compile(r"/|(?:/(?:\{\w+\}|[^/{}?#%*\\\x00-\x20\x7f])+)+/?")
_CARD_ENDINGS: Final = tuple(f"/{path.rpartition('/')[2]}" for path in CARD_PATHS)


def exact_path(option: str, path: Any) -> str:
    if type(path) is not str or not path.startswith("/") or not path.isascii() or _NOT_EXACT.search(path):
        raise ConfigurationError(
            f"{option}: {path!r:.128} is not an exact path; write it as in requests, such as '/healthz', not a pattern"
        )
    return path


def public_path(path: str) -> str:
    """A path of ``public_paths``; ConfigurationError when it is not exact, or is for callers only."""
    if ends_like_operation(path):
        raise ConfigurationError(f"public_paths: {path!r} is an operation of A2A, for callers only; leave it out")
    if path not in CARD_PATHS and ends_like_card(fold_path(path)):
        raise ConfigurationError(
            f"public_paths: {path!r} ends like the path of a card, and the application's own card would be public "
            "there; leave it out. protect() serves the card itself: mount it where the agent's prefix is"
        )
    return exact_path("public_paths", path)


def ends_like_card(folded: str) -> bool:
    return folded.endswith(_CARD_ENDINGS)


class OtherPaths:
    """The paths that an option names, in addition to the paths of the interfaces."""

    def __init__(self, option: str, entries: Sequence[str], interfaces: Sequence[str] = ()) -> None:
        for entry in entries:
            _check_entry(option, entry, interfaces)
        exact = [entry for entry in entries if entry == "/" or not entry.endswith("/")]
        self._subtrees = tuple(entry for entry in entries if entry not in exact)
        self._exact = frozenset(exact)
        templates = [entry for entry in exact if "{" in entry]
        self._templates = _matching(templates)
        # A template that is an operation only through its placeholders was meant for pages.
        self._operations = _matching([each for each in templates if ends_like_operation(_PLACEHOLDER.sub("x", each))])

    def names(self, path: str) -> bool:
        return path in self._exact

    def names_operation(self, path: str) -> bool:
        """Whether an entry is the path, or a template of it that itself ends like an operation."""
        return path in self._exact or self._operations.fullmatch(path) is not None

    def has(self, path: str) -> bool:
        """Whether an entry is the path, a template of it, or a folder above it."""
        if path in self._exact or self._templates.fullmatch(path):
            return True
        # A path that a lenient router resolves to another path is below no entry.
        return path.startswith(self._subtrees) and not _RESOLVED.search(path)


def _matching(templates: list[str]) -> re.Pattern[str]:
    patterns = ["[^/]+".join(map(re.escape, _PLACEHOLDER.split(template))) for template in templates]
    return re.compile("|".join(patterns) or r"(?!)")


def _check_entry(option: str, entry: Any, interfaces: Sequence[str]) -> None:
    if not isinstance(entry, str) or not _ENTRY.fullmatch(entry) or _RESOLVED.search(entry):
        raise ConfigurationError(
            f'{option}: {entry!a:.128} is not a path; write an exact path ("/docs"), a template ("/tasks/{{id}}"), or '
            'a prefix that ends in a slash ("/docs/")'
        )
    if entry == "/" or not entry.endswith("/"):
        return
    if "{" in entry:
        raise ConfigurationError(f"{option}: {entry!a} is a template and cannot stand for all paths below it")
    for path in interfaces:
        if f"{path}/".startswith(entry):
            raise ConfigurationError(
                f"{option}: {entry!a} covers the interface at {path!a}, whose requests must be checked; name the other "
                "paths one by one"
            )
