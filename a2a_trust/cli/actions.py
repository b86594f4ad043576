"""Commands that have actions, such as ``a2a-sign keys create``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

__all__ = ["Actions"]


class Actions:
    """The actions of a command; the arguments of ``every`` are those of all of them.

    When the arguments are read, ``options.action`` is the name of an action and ``options.act`` its function.
    """

    def __init__(self, command: argparse.ArgumentParser, every: argparse.ArgumentParser) -> None:
        self._every = every
        self._actions = command.add_subparsers(dest="action", required=True)

    def add(
        self, name: str, act: Callable[..., dict[str, Any] | None], summary: str, *parents: argparse.ArgumentParser
    ) -> argparse.ArgumentParser:
        """Add an action, and return its parser for further arguments; those of ``parents`` it has already."""
        action = self._actions.add_parser(name, parents=[self._every, *parents], help=summary, description=summary)
        action.set_defaults(act=act)
        self._actions.metavar = f"{{{','.join(self._actions.choices)}}}"
        return action
