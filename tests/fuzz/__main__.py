"""Make the environment of the fuzzer, and print its interpreter."""

from __future__ import annotations

from pathlib import Path

from tests.servers.environments import python_of

print(python_of("frameworks", Path(__file__).resolve().parent))
