"""The command line of the benchmarks: runs rows and prints a table."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.metadata import version
from time import perf_counter
from typing import Final

from benchmarks import canonical, commands, many_cards, signatures, whole_cards
from benchmarks.rounds import Result, Row, run
from benchmarks.sdk import MISSING, SDK_VERSION, SdkWorker, find_sdk
from benchmarks.setting import Setting

_ROWS: Final[dict[str, Callable[[Setting], Iterator[Row]]]] = {
    "canonical": canonical.rows_from_dict,
    "parse": canonical.rows_from_bytes,
    "verify": signatures.rows_verify,
    "verify-card": whole_cards.rows_verify_card,
    "sign": signatures.rows_sign,
    "sign-card": whole_cards.rows_sign_card,
    "many": many_cards.rows,
    "commands": commands.rows,
}


def main() -> int:
    """Measure and print; the exit code says nothing of speed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: orientation in seconds")
    parser.add_argument("--row", action="append", choices=list(_ROWS), help="only this; may be repeated")
    options = parser.parse_args()
    started = perf_counter()
    python = find_sdk()
    _print_versions()
    if python is None:
        print(f"\n*** {MISSING} ***", file=sys.stderr)
    missed = []
    with ExitStack() as stack:
        sdk = stack.enter_context(SdkWorker(python)) if python else None
        setting = Setting(sdk=sdk, quick=options.quick)
        for name in options.row or _ROWS:
            for row in _ROWS[name](setting):
                results = run(row)
                _print_row(name, row, results)
                missed += [
                    f"[{name}] {row.title}: {result.name}: {result.ratio:.2f}, wanted {_target(result)}"
                    for result in results
                    if result.verdict
                ]
    print(f"\n{perf_counter() - started:.0f} s in all. ", end="")
    print("Every target is met." if not missed else "Targets missed:\n  " + "\n  ".join(missed))
    return 0


def _print_versions() -> None:
    names = ("cryptography", "orjson", "joserfc", "rfc8785", "PyJWT")
    print(f"Python {platform.python_version()}, {', '.join(f'{name} {version(name)}' for name in names)}, ", end="")
    print(f"a2a-sdk {SDK_VERSION} in its own process")
    print("Medians over interleaved rounds; best: of the least disturbed tenth. Ratios hold, times do not.")


def _print_row(name: str, row: Row, results: list[Result]) -> None:
    kind = "rate" if row.as_rate else "time"
    print(f"\n[{name}] {row.title}\n  {'':<44}{kind:>11}{'ratio':>9}{'best':>9}   target")
    for result in results:
        amount = f"{1 / result.seconds:>9,.0f}/s" if row.as_rate else f"{_duration(result.seconds):>11}"
        target = "" if result.target is None else f"   {_target(result)}   {result.verdict}"
        ratios = f"{result.ratio:>9.3f}{result.best:>9.3f}"
        print(f"  {result.name:<44}{amount}{ratios}{target}".rstrip())
    print(f"  ratio to {row.baseline}{'; ' if row.notes else ''}{'; '.join(row.notes)}", flush=True)


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms" if seconds >= 0.001 else f"{seconds * 1e6:,.2f} µs"


def _target(result: Result) -> str:
    return f"{'≥' if result.as_rate else '≤'} {result.target:g}"


if __name__ == "__main__":
    sys.exit(main())
