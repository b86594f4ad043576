"""llms.txt, the index of the documentation for language models (llmstxt.org): ``python -m tests.docs.llms`` writes it.

It has the first sentence of README.md, and the sections of docs/README.md with their links.
"""

from __future__ import annotations

import posixpath
import re
from typing import Final

from tests.conftest import ROOT
from tests.docs.pages import PAGES

__all__ = ["FILE", "text"]

FILE: Final = ROOT / "llms.txt"
_INDEX: Final = "docs/README.md"
#: Sections that a reader with little space leaves out; the format has this name for them.
_OPTIONAL: Final = ("Project",)


def text() -> str:
    """The file, from the two pages."""
    _, sentence, *_ = PAGES["README.md"].split("\n\n")
    summary = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(sentence.split()))
    parts = [
        f"# a2a-trust\n\n> {summary}\n\nStart with [README.md](README.md): install, sign, verify, protect, probe.\n"
    ]
    for section in re.split(r"(?m)^## ", PAGES[_INDEX])[1:]:
        title, _, body = section.partition("\n")
        items = re.findall(r"(?ms)^- (.*?)(?=^-|^$|\Z)", body)
        name = "Optional" if title in _OPTIONAL else title
        parts.append(f"## {name}\n\n" + "".join(f"{_item(' '.join(item.split()))}\n" for item in items))
    return "\n".join(parts)


def _item(item: str) -> str:
    """An item of the index, with links from the root."""
    return "- " + re.sub(r"\]\(([^)]*)\)", lambda link: f"]({posixpath.normpath(f'docs/{link[1]}')})", item)


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
