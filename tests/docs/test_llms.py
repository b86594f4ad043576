"""llms.txt is the index of the documentation, in the format of llmstxt.org, and leads to each page."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from tests.conftest import ROOT
from tests.docs.llms import FILE, text
from tests.docs.pages import PAGES

LINES = FILE.read_text(encoding="utf-8").splitlines()
LINKS = re.findall(r"\]\(([^)]*)\)", "\n".join(LINES))


def test_the_file_is_made_from_the_index() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), "run: python -m tests.docs.llms"


def test_the_file_has_the_format() -> None:
    assert LINES[0] == "# a2a-trust"
    assert LINES[2].startswith("> Signs and verifies")
    assert LINES.count("## Optional") == 1
    assert [line for line in LINES if line.startswith("- ") and not re.match(r"- \[[^\]]+\]\([^)]+\)", line)] == []


def test_each_link_leads_to_a_file_of_the_repository() -> None:
    assert len(LINKS) > 40
    assert [link for link in LINKS if not (ROOT / link).is_file()] == []


def test_each_page_is_named_or_is_beside_the_index_of_its_folder() -> None:
    folders = {str(PurePosixPath(link).parent) for link in LINKS if link.endswith("/README.md")} - {"docs"}
    pages = [name for name in PAGES if name.startswith("docs/") and str(PurePosixPath(name).parent) not in folders]
    assert len(pages) > 30
    assert [name for name in pages if name not in LINKS and name != "docs/README.md"] == []
