"""`make words` counts what a person wrote, and notices a page that is too long."""

from __future__ import annotations

from tests.docs.length import counts, excesses, wide_lines, words_in
from tests.docs.pages import PAGES

PAGE = """\
# Sign a [card](trust.md)

<!-- made by python -m tests.x: begin -->
| a | table |
<!-- made by python -m tests.x: end -->

- `a2a-sign` signs: one – card

  ```console
  $ a2a-sign card.json
  ```
"""


def test_code_generated_parts_and_marks_are_no_words() -> None:
    assert words_in(PAGE) == len(["Sign", "a", "card", "a2a-sign", "signs", "one", "card"])


def test_the_pages_are_within_the_limits() -> None:
    words = counts(PAGES)
    assert len(words) > 50
    assert excesses(words) == []


def test_a_limit_that_is_exceeded_is_named() -> None:
    found = excesses({"README.md": 701, "docs/protect-more.md": 1_501, "docs/errors.md": 99_999})
    assert [line.partition(" words")[0] for line in found] == [
        "README.md: 701",
        "docs/protect-more.md: 1501",
        "all pages: 102201",
    ]


def test_wide_lines_of_code_are_found_and_wide_output_is_not() -> None:
    page = "```python\n{}\n```\n```text\n{}\n```\n  ```toml\n  {}\n  ```\n"
    assert wide_lines({"page": page.format("a" * 88, "b" * 89, "c" * 86)}) == []
    assert wide_lines({"page": page.format("a" * 89, "b" * 89, "c" * 87)}) == [
        f"page: {'a' * 89}",
        f"page:   {'c' * 87}",
    ]
