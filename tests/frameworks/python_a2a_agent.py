"""The agent of docs/frameworks/python-a2a.md. Run by a server of its own environment, never imported by a test."""

from __future__ import annotations

from typing import Any

from tests.frameworks.guide import run_page

names: dict[str, Any] = {}
run_page("python-a2a", names)
app = names["app"]
