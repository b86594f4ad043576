"""The pages of the documentation, as they are read and tested: every Markdown file of the repository."""

from __future__ import annotations

from typing import Final

from tests.conftest import ROOT

__all__ = ["PAGES"]

_PATTERNS: Final = ("*.md", "docs/**/*.md", "examples/**/*.md", "tests/attacks/README.md")

#: Name from the root -> text.
PAGES: Final = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(path for pattern in _PATTERNS for path in ROOT.glob(pattern))
}
