"""The agent of docs/frameworks/pydantic-ai.md. Run by a server of its own environment, never imported by a test."""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

from typing import Any

from pydantic_ai.models.test import TestModel

from tests.frameworks.guide import run_page

names: dict[str, Any] = {"model": TestModel()}  # calls every tool, and answers with what they have said
run_page("pydantic-ai", names)
app = names["app"]
