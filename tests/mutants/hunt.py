"""Runs tests against mutants, each in a process of its own that has the mutant in memory only: no file is changed.

Tests that start other processes do not see the mutant there, and count for nothing.
"""

from __future__ import annotations

import ast
import importlib
import os
import pickle
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from itertools import islice
from multiprocessing import connection, get_context
from multiprocessing.context import ForkProcess
from pathlib import Path
from types import CodeType
from typing import Any, Final, TypeVar

import coverage
import pytest

from tests.mutants.changes import Mutant, mutants

__all__ = ["Measured", "Module", "Tried", "measure", "try_mutants"]

_PROCESSES: Final = 2
#: Into how many runs the measuring is cut.
_PARTS: Final = 8
_MEASURING_SECONDS: Final = 3_600.0
#: How many seconds of tests are tried on one mutant; of parametrised tests then not all cases.
_SECONDS: Final = 10.0
_LEAST_SECONDS = 10.0
#: What tests import that takes long: imported once, before processes are made.
_IMPORTED: Final = ("cryptography.x509", "httpx", "hypothesis.stateful", "joserfc.jws", "starlette.applications")
_SURVIVED: Final = 10
_NOTICED: Final = 11
#: Lines that run when the module is imported; every test depends on them.
_AT_IMPORT: Final = ""
_OPTIONS: Final = (
    *("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # of _IMPORTED
)

_Job = TypeVar("_Job")


@dataclass(frozen=True)
class Module:
    """A module to change, and the folder that the tests are in."""

    root: Path
    package: str
    path: str
    """In the package: ``auth/guard.py``."""

    @property
    def file(self) -> Path:
        return self.root / self.package / self.path

    @property
    def name(self) -> str:
        return ".".join([self.package, *Path(self.path).with_suffix("").parts])

    def mutants(self) -> list[Mutant]:
        return list(mutants(self._tree()))

    def code_of(self, number: int) -> CodeType:
        """The code of one of its mutants."""
        tree = self._tree()
        for each, _ in enumerate(mutants(tree)):
            if each == number:
                return compile(ast.fix_missing_locations(tree), self.file, "exec", dont_inherit=True)
        raise IndexError(number)

    def _tree(self) -> ast.Module:
        return ast.parse(self.file.read_text(encoding="utf-8"))


@dataclass
class Measured:
    """What tests do when nothing is changed."""

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    """For each module and line the tests that run it."""
    failed: set[str] = field(default_factory=set)

    def of(self, module: Module, mutant: Mutant | None) -> list[str]:
        """The tests that may notice a mutant, or any of the module: those of its own file first."""
        lines = self.lines.get(module.path, {})
        found = set[str]().union(*(lines[line] for line in mutant.run if line in lines)) if mutant else {_AT_IMPORT}
        if _AT_IMPORT in found:
            stem = Path(module.path).stem  # a test that reads a constant runs no line of the module
            found = set().union(*lines.values()) | {test for test in self.seconds if stem in test.partition("::")[0]}
        cases: dict[str, list[str]] = defaultdict(list)
        for test in sorted(found & self.seconds.keys() - self.failed, key=self.seconds.__getitem__):
            cases[test.partition("[")[0]].append(test)
        numbered = sorted(
            (number, self.seconds[test], test) for each in cases.values() for number, test in enumerate(each)
        )
        own = Path(module.path).stem
        numbered.sort(key=lambda each: own not in each[2].partition("::")[0])
        chosen: list[str] = []
        total = 0.0
        for _, seconds, test in numbered:
            if total + seconds <= _SECONDS or not chosen:
                total += seconds
                chosen.append(test)
        return chosen


@dataclass(frozen=True)
class Tried:
    module: Module
    number: int
    mutant: Mutant
    survived: bool
    late: bool
    """Whether the tests were ended by the limit of time."""


def measure(root: Path, modules: Sequence[Module], files: Sequence[Path]) -> Measured:
    """Run the tests in these files, and see which lines of the modules each of them runs."""
    measured = Measured()
    with tempfile.TemporaryDirectory() as folder:
        shares = [(Path(folder, str(number)), files[number::_PARTS]) for number in range(min(_PARTS, len(files)))]
        jobs = [(out, partial(_measure, root, modules, share, out), _MEASURING_SECONDS) for out, share in shares]
        for out, code in _in_processes(jobs):
            if code != _SURVIVED:
                raise RuntimeError("the tests could not be run")
            part: Measured = pickle.loads(out.read_bytes())
            measured.failed |= part.failed
            measured.seconds |= part.seconds
            for path, lines in part.lines.items():
                for line, tests in lines.items():
                    measured.lines.setdefault(path, {}).setdefault(line, set()).update(tests)
    return measured


def try_mutants(root: Path, chosen: Sequence[tuple[Module, int, Mutant]], measured: Measured) -> list[Tried]:
    """Run the tests that may notice each mutant. RuntimeError: they also notice a module without any change."""
    for name in _IMPORTED:
        with suppress(ImportError):
            importlib.import_module(name)
    unchanged = [(module, None, None) for module in dict.fromkeys(module for module, _, _ in chosen)]
    jobs = []
    for module, number, mutant in (*unchanged, *chosen):
        tests = measured.of(module, mutant)
        limit = _LEAST_SECONDS + 3 * sum(measured.seconds[test] for test in tests)
        jobs.append(((module, number, mutant), partial(_try, root, module, number, tests), limit))
    tried = []
    for (module, number, mutant), code in _in_processes(jobs):
        if number is not None and mutant is not None:
            tried.append(Tried(module, number, mutant, survived=code == _SURVIVED, late=code is None))
        elif code != _SURVIVED:
            raise RuntimeError(f"{module.path}: the tests fail without any change")
    return sorted(tried, key=lambda each: (each.module.path, each.number))


def _in_processes(jobs: Iterable[tuple[_Job, Callable[[], int], float]]) -> Iterator[tuple[_Job, int | None]]:
    """Do each job in a process of its own; its exit code, or None when it took longer than its limit in seconds."""
    waiting = iter(jobs)
    running: dict[int, tuple[_Job, ForkProcess, float]] = {}
    try:
        while True:
            for job, work, limit in islice(waiting, _PROCESSES - len(running)):
                process = get_context("fork").Process(target=_alone, args=(work,))
                process.start()
                running[process.sentinel] = job, process, time.monotonic() + limit
            if not running:
                return
            ended = set(connection.wait(list(running), timeout=0.5))
            for sentinel, (job, process, deadline) in list(running.items()):
                if sentinel in ended or time.monotonic() > deadline:
                    _end(process)
                    del running[sentinel]
                    yield job, process.exitcode if sentinel in ended else None
    finally:
        for _, process, _ in running.values():
            _end(process)


def _end(process: ForkProcess) -> None:
    """With what its tests have left running."""
    if process.pid is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.join()


def _alone(work: Callable[[], int]) -> None:
    """In a process group of its own, without a terminal; it ends without waiting for threads."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    code = 1
    try:
        code = work()
    finally:
        os._exit(code)


class _Recorder:
    """A pytest plugin: how long each test takes, whether it fails, and what it runs."""

    def __init__(self, measuring: coverage.Coverage, package: str) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()
        self._measuring, self._package = measuring, package

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        # What one test leaves in a cache another does not run.
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == self._package:
                for value in list(vars(module).values()):
                    if hasattr(value, "cache_clear"):
                        value.cache_clear()
        self._measuring.switch_context(item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if not report.passed:
            self.failed.add(report.nodeid)


def _measure(root: Path, modules: Sequence[Module], files: Sequence[Path], out: Path) -> int:
    os.chdir(root)
    measuring = coverage.Coverage(data_file=None, config_file=False, include=[str(each.file) for each in modules])
    measuring.set_option("run:core", "ctrace")  # the one that can say which test it was
    recorder = _Recorder(measuring, modules[0].package)
    measuring.start()
    pytest.main([*map(str, files), *_OPTIONS], plugins=[recorder])
    measuring.stop()
    data = measuring.get_data()
    lines = {
        each.path: {line: set(tests) for line, tests in data.contexts_by_lineno(str(each.file)).items()}
        for each in modules
    }
    out.write_bytes(pickle.dumps(Measured(dict(recorder.seconds), lines, recorder.failed)))
    return _SURVIVED


class _Only:
    """A pytest plugin: runs only these tests, file by file, in this order."""

    def __init__(self, tests: Sequence[str], files: Sequence[str]) -> None:
        self._order = {test: number for number, test in enumerate(tests)}
        self._files = {file: number for number, file in enumerate(files)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self._order), key=self._place)

    def _place(self, item: pytest.Item) -> tuple[int, int]:
        return self._files[item.nodeid.partition("::")[0]], self._order[item.nodeid]


class _Mutated(SourceFileLoader):
    """Loads a module with one change."""

    def __init__(self, module: Module, number: int) -> None:
        super().__init__(module.name, str(module.file))
        self._code = module.code_of(number)

    def get_code(self, fullname: str) -> CodeType:
        return self._code


class _Finder:
    def __init__(self, module: Module, number: int) -> None:
        self._module, self._loader = module, _Mutated(module, number)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return (
            spec_from_file_location(name, self._module.file, loader=self._loader) if name == self._module.name else None
        )


def _try(root: Path, module: Module, number: int | None, tests: Sequence[str]) -> int:
    """Whether a mutant survives these tests; the unchanged module, without a number."""
    if not tests:
        return _SURVIVED
    os.chdir(root)
    if number is not None:
        sys.meta_path.insert(0, _Finder(module, number))
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    own = [file for file in files if Path(module.path).stem in file]
    others = [file for file in files if file not in own]
    for each in filter(None, (own, others)):  # the first are quicker to collect
        if pytest.main([*each, "-x", *_OPTIONS], plugins=[_Only(tests, each)]) != pytest.ExitCode.OK:
            return _NOTICED
    return _SURVIVED
