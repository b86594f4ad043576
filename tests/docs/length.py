"""How long the documentation is: `make words` counts the prose that a person wrote, and fails above the limits.

Code blocks, parts that programs write, and addresses of links are not prose. Pages that only look something up, and
docs/benchmarks.md, are apart. Lines of code that are too wide for a page of the site are counted, too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Final

from tests.docs.pages import PAGES

__all__ = ["counts", "excesses", "wide_lines", "words_in"]

#: Pages that programs write, and the measurements: not counted.
_APART: Final = ("docs/api.md", "docs/benchmarks.md", "docs/commands.md")
#: Pages to look something up in: counted, of any length.
_REFERENCES: Final = ("docs/clauses.md", "docs/errors.md")
_README: Final = 700
_PAGE: Final = 1_500
_TOTAL: Final = 48_066
#: What a page of the site shows without scrolling, and how many lines of code are wider: URLs of two providers.
_COLUMNS: Final = 88
_WIDE: Final = 2
#: The lines of the commands in a session, whose other lines are output.
_COMMAND: Final = re.compile(r"(?m)^(?:   )?\$ .*|(?<=\\\n).*")


def words_in(page: str) -> int:
    """The words of the prose of a page; inline code and tables are part of it."""
    page = re.sub(r"(?ms)^( *)```.*?^\1```$", "", page)
    page = re.sub(r"(?s)<!-- made by .*?: begin -->.*?<!-- .*?end -->", "", page)
    page = re.sub(r"(?s)<!--.*?-->|\]\([^)]*\)", " ", page)
    return len([word for word in page.split() if re.search(r"\w", word)])


def counts(pages: Mapping[str, str]) -> dict[str, int]:
    """The words of README and of each page below docs/."""
    of_readers = (name for name in pages if name == "README.md" or name.startswith("docs/"))
    return {name: words_in(pages[name]) for name in of_readers if name not in _APART}


def wide_lines(pages: Mapping[str, str]) -> list[str]:
    """Each line of code that is too wide, behind the name of its page. Logs and output are as they are."""
    lines = (
        (name, line)
        for name, page in pages.items()
        for language, block in re.findall(r"(?ms)^ *```(\w+)[^\n]*\n(.*?)^ *```$", page)
        if language not in ("mermaid", "text")
        for line in (_COMMAND.findall(block) if language == "console" else block.splitlines())
    )
    return [f"{name}: {line}" for name, line in lines if len(line) > _COLUMNS]


def excesses(words: Mapping[str, int]) -> list[str]:
    """One line for each limit that is exceeded."""
    found = [
        f"{name}: {count} words; at most {limit}: divide the page by task"
        for name, count in words.items()
        if count > (limit := _README if name == "README.md" else _PAGE) and name not in _REFERENCES
    ]
    total = sum(words.values())
    return found + ([f"all pages: {total} words; at most {_TOTAL}: merge what is said twice"] if total > _TOTAL else [])


def _main() -> int:
    words = counts(PAGES)
    for name, count in sorted(words.items(), key=lambda item: -item[1]):
        print(f"{count:6} {name}")
    print(f"{sum(words.values()):6} in all")
    wide = wide_lines(PAGES)
    print(f"{len(wide):6} lines of code are wider than {_COLUMNS} columns; at most {_WIDE}")
    if "--wide" in sys.argv[1:]:
        print("\n".join(wide))
    problems = excesses(words)
    if len(wide) > _WIDE:
        problems.append(f"lines of code: {len(wide)} are too wide; see them with: python -m tests.docs.length --wide")
    print("\n".join(problems), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(_main())
