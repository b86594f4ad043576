"""Report the changes of the code that no test notices, and those that only tests of attacks notice."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Final

from tests.mutants.changes import Mutant
from tests.mutants.hunt import Measured, Module, Tried, measure, try_mutants
from tests.mutants.unkillable import UNKILLABLE

__all__ = ["MODULES", "main"]

_ROOT: Final = Path(__file__).resolve().parents[2]

#: What decides about cards and callers.
MODULES: Final = (
    *(f"base/strict_json/{path.name}" for path in sorted(_ROOT.glob("a2a_trust/base/strict_json/[!_]*.py"))),
    *(f"signing/{path.name}" for path in sorted(_ROOT.glob("a2a_trust/signing/[!_]*.py"))),
    "keys/jws.py",
    "keys/trust/store.py",
    "auth/guard.py",
    "auth/introspection.py",
    "auth/jwt.py",
    "auth/token_claims.py",
    "card/ambiguity.py",
    "client/memory.py",
    "middleware/calls.py",
    "middleware/decision.py",
    "middleware/door.py",
)

_Chosen = tuple[Module, int, Mutant]


def main(
    root: Path,
    package: str,
    paths: Sequence[str],
    *,
    count: int | None,
    seed: int,
    unkillable: Container[tuple[str, str, str]] = (),
) -> int:
    """0 when every mutant is noticed. The unit tests of a module are those of its room; they run first."""
    modules = [Module(root, package, path) for path in paths]
    chosen = [(module, *each) for module in modules for each in enumerate(module.mutants())]
    known = [each for each in chosen if (each[0].path, each[2].scope, each[2].change) in unkillable]
    chosen = [each for each in chosen if each not in known]
    if count is not None:
        chosen = sorted(random.Random(seed).sample(chosen, min(count, len(chosen))), key=chosen.index)
    print(f"{len(chosen)} mutants, {len(known)} that are known to change nothing; seed {seed}")

    rooms = {path.partition("/")[0] for path in paths}
    units = _tried(root, modules, chosen, [root / "tests" / room for room in sorted(rooms)], "unit tests")
    left = [(each.module, each.number, each.mutant) for each in units if each.survived]
    attacks = _tried(root, modules, left, [root / "tests" / "attacks"], "tests of attacks")
    for module in modules:
        of_module = [each for each in units if each.module == module]
        of_attacks = [each for each in attacks if each.module == module]
        survivors = [each for each in of_attacks if each.survived]
        noticed = [each for each in of_attacks if not each.survived]
        print(f"\n{module.path}: {len(of_module)} mutants, {len(survivors)} survivors")
        _show("noticed by tests of attacks only", noticed)
        _show("noticed by no test", survivors)
    return int(any(each.survived for each in attacks))


def _tried(
    root: Path, modules: Sequence[Module], chosen: Sequence[_Chosen], folders: Sequence[Path], what: str
) -> list[Tried]:
    if not chosen:
        return []
    started = time.monotonic()
    files = sorted(file for folder in folders for file in folder.rglob("test_*.py"))
    measured: Measured = measure(root, modules, files)
    print(f"{what}: {len(measured.seconds)} measured in {time.monotonic() - started:.0f} s")
    for test in sorted(measured.failed):
        print(f"left out, because it fails or skips without any change: {test}")
    tried = try_mutants(root, chosen, measured)
    survivors = sum(each.survived for each in tried)
    late = sum(each.late for each in tried)
    print(f"{what}: {survivors} of {len(tried)} survive, {late} ran too long, {time.monotonic() - started:.0f} s")
    return tried


def _show(what: str, tried: Sequence[Tried]) -> None:
    if tried:
        print(f"  {what}:")
    for each in tried:
        print(f"    {each.module.path}:{each.mutant.line}: {each.mutant.scope}: {each.mutant.change}")


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=", ".join(MODULES))
    parser.add_argument("--count", type=int, help="try a random sample of this many mutants")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    given = parser.parse_args()
    if not set(given.modules) <= set(MODULES):
        parser.error(f"the modules are {', '.join(MODULES)}")
    chosen = given.modules or MODULES
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = folder  # what fails with a mutant is no example for other runs
        sys.exit(main(_ROOT, "a2a_trust", chosen, count=given.count, seed=given.seed, unkillable=UNKILLABLE))
