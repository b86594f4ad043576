"""What every test may use: the vectors of others, and whether real components are demanded."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

from a2a_trust.signing import sign

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")  # how long an example takes says something about the machine, not about the code

ROOT = Path(__file__).resolve().parent.parent

# What a pipeline or a developer has set must not choose the key that a test signs with: a2a-sign reads these variables.
for _name in [name for name in os.environ if name == "CI" or name.startswith("A2A_SIGN_")]:
    del os.environ[_name]

# Unless a test says otherwise, cards are signed at one moment of the past. Tests verify them at moments of their own,
# and no result depends on the day of the run.
sign.time = SimpleNamespace(time=lambda: 1_600_000_000.5)  # type: ignore[assignment, attr-defined]


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of conformance data that others wrote; the test is skipped, loudly, where it is not."""
    folder = Path(os.environ.get("A2A_TRUST_VECTORS", ROOT.parent / "shared" / "vectors"))
    if not (folder / "SOURCES.json").is_file():
        pytest.skip(f"NO VECTORS at {folder}: set A2A_TRUST_VECTORS to the folder of conformance data")
    return folder
