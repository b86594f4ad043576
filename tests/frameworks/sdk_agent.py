"""The agent of docs/frameworks/a2a-sdk.md. Run by a server of its own environment, never imported by a test."""

from __future__ import annotations

from typing import Any

from tests.frameworks.guide import run_page

names: dict[str, Any] = {}
run_page("a2a-sdk", names)
app = names["app"]
