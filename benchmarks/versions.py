"""Two versions of this package beside each other: ``python -m benchmarks.versions FOLDER --row tokens:rows_tokens``.

``FOLDER`` has another commit (``git worktree add FOLDER COMMIT``). Each version runs the rows of its own ``benchmarks``
in its own process, and the rounds of the two are interleaved. Times are those of the processor, in that process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias

__all__ = ["main"]

_ROOT: Final = Path(__file__).resolve().parent.parent
_OURS: Final = "a2a_trust"
_Taken: TypeAlias = dict[tuple[str, str], list[float]]
"""The seconds of each round, by version and contender."""


def _serve(name: str, wanted: str) -> None:
    """In the process of one version: tell the contenders of each row, and make a round of the one that is asked for."""
    from importlib import import_module

    time.perf_counter = time.process_time  # what else the machine does counts less
    from benchmarks.setting import Setting

    module, function = name.split(":")
    for row in getattr(import_module(f"benchmarks.{module}"), function)(Setting(sdk=None, quick=False)):
        if wanted not in row.title:
            continue
        timers = {each.name: each.timer for each in row.contenders if each.name.startswith(_OURS)}
        timers = {"": next(each.timer for each in row.contenders if each.name == row.baseline), **timers}
        for timer in timers.values():
            timer()
        print(json.dumps({"title": row.title, "baseline": row.baseline, "names": list(timers)}), flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            if asked is None:
                break
            print(timers[asked](), flush=True)
    print("null", flush=True)


class _Version:
    def __init__(self, folder: Path, name: str, wanted: str, stack: ExitStack) -> None:
        # -P: the folder of this file is not searched, only the one of the version.
        path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-P", __file__, str(folder), "--row", name, "--title", wanted, "--serve"]
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._process = stack.enter_context(process)
        stack.callback(process.terminate)

    def ask(self, what: str | None) -> None:
        if self._process.stdin is not None:
            print(json.dumps(what), file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        return json.loads(self._process.stdout.readline() if self._process.stdout is not None else "null")


def _rows(folder: Path, name: str, wanted: str, rounds: int) -> Iterator[tuple[Any, _Taken]]:
    with ExitStack() as stack:
        versions = {"old": _Version(folder, name, wanted, stack), "new": _Version(_ROOT, name, wanted, stack)}
        while True:
            rows = [version.answer() for version in versions.values()]
            if None in rows:
                return
            if rows[0]["names"] != rows[1]["names"]:
                raise SystemExit(f"the versions have other contenders: {rows}")
            taken: _Taken = {}
            for number in range(rounds):
                names = rows[0]["names"]
                for contender in names[number % len(names) :] + names[: number % len(names)]:
                    for which in ("old", "new") if number % 2 else ("new", "old"):
                        versions[which].ask(contender)
                        taken.setdefault((which, contender), []).append(versions[which].answer())
            for version in versions.values():
                version.ask(None)
            yield rows[0], taken


def _best(times: list[float]) -> float:
    """The median of the fastest tenth."""
    return median(sorted(times)[: max(1, len(times) // 10)])


def _print(row: Any, taken: _Taken) -> None:
    base = [median(pair) for pair in zip(taken["old", ""], taken["new", ""], strict=True)]
    print(f"\n{row['title']}; ratio to {row['baseline']} ({median(base) * 1e6:.2f} µs)")
    print(f"  {'':<44}{'old µs':>9}{'new µs':>9}{'old':>8}{'new':>8}{'best':>7}{'best':>7}{'new/old':>9}")
    for name in row["names"]:
        old, new = taken["old", name], taken["new", name]
        ratios = [median(each / other for each, other in zip(own, base, strict=True)) for own in (old, new)]
        best = [_best(own) / _best(base) for own in (old, new)]
        change = median(each / other for each, other in zip(new, old, strict=True))
        times = f"{median(old) * 1e6:>9.2f}{median(new) * 1e6:>9.2f}"
        print(
            f"  {name or row['baseline']:<44}{times}{ratios[0]:>8.2f}{ratios[1]:>8.2f}{best[0]:>7.2f}{best[1]:>7.2f}"
            f"{change:>9.3f}",
            flush=True,
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__)
    parser.add_argument("folder", type=Path, help="the other version")
    parser.add_argument("--row", required=True, metavar="MODULE:FUNCTION", help="as in requests:rows_of_calls")
    parser.add_argument("--title", default="", help="only rows with this text in their title")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        _serve(options.row, options.title)
        return
    for row, taken in _rows(options.folder.resolve(), options.row, options.title, options.rounds):
        _print(row, taken)


if __name__ == "__main__":
    main()
