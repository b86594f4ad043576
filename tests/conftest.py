"""What every test may use: the vectors of others, its tier, and how many examples its properties try."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

from a2a_trust.signing import sign
from tests import tiers
from tests.databases import postgres, postgres_url, redis_server, redis_url

__all__ = ["postgres", "postgres_url", "redis_server", "redis_url"]

# How long an example takes says something about the machine, not about the code. No result of a quick run depends on an
# earlier run: its seed is fixed, too, in pyproject.toml.
settings.register_profile(
    "quick", deadline=None, suppress_health_check=list(HealthCheck), max_examples=25, database=None, print_blob=True
)
settings.register_profile("long", settings.get_profile("quick"), max_examples=1_000)
settings.load_profile("quick")

ROOT = Path(__file__).resolve().parent.parent

# What a pipeline or a developer has set must not choose the key that a test signs with: a2a-sign reads these variables.
for _name in [name for name in os.environ if name == "CI" or name.startswith("A2A_SIGN_")]:
    del os.environ[_name]

# Unless a test says otherwise, cards are signed at one moment of the past. Tests verify them at moments of their own,
# and no result depends on the day of the run.
sign.time = SimpleNamespace(time=lambda: 1_600_000_000.5)  # type: ignore[assignment, attr-defined]


VECTORS = Path(os.environ.get("A2A_TRUST_VECTORS", ROOT.parent / "shared" / "vectors"))
HAS_VECTORS = (VECTORS / "SOURCES.json").is_file()


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of conformance data that others wrote. Where it is not, tests that use it are left out."""
    return VECTORS


@pytest.fixture
def next_second(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it after a change of a file that is checked once per second: the clock of these checks goes on by one."""
    ahead = 0.0

    def go_on() -> None:
        nonlocal ahead
        ahead += 1.0

    monkeypatch.setattr("a2a_trust.base.files.watched.monotonic", lambda: time.monotonic() + ahead)
    return go_on


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left() -> Iterator[None]:
    """A process that a test starts is ended by that test."""
    yield
    children = [pid for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()]
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() for pid in children]
    assert [line for line in lines if line and "multiprocessing" not in line] == []


def pytest_configure(config: pytest.Config) -> None:
    if "not real" in config.option.markexpr:
        sys.addaudithook(tiers.python_only)
    if config.option.markexpr == "long":
        settings.load_profile("long")


def pytest_report_header() -> str | None:
    return None if HAS_VECTORS else f"*** NO VECTORS at {VECTORS}: set A2A_TRUST_VECTORS to the conformance data ***"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Folders of which no test is wanted are not even imported."""
    unwanted = {tiers.QUICK: ("real", "long"), "real and not long": ("long",)}
    return tiers.tier_of_folder(collection_path) in unwanted.get(config.option.markexpr, ()) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers.mark(items)
    if not HAS_VECTORS:
        without = [item for item in items if "vectors" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if item not in without]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The line that repeats each property that failed."""
    for report in terminalreporter.stats.get("failed", []):
        if "hypothesis" in report.keywords:
            seed, tier = config.getoption("--hypothesis-seed"), config.option.markexpr
            terminalreporter.line(f"repeat: python -m pytest -m '{tier}' --hypothesis-seed={seed} '{report.nodeid}'")
