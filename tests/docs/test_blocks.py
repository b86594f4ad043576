"""Every block of code on every page has a language, and tests that run it."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT
from tests.docs.blocks import LANGUAGES, RUN_BY, blocks_of, runners_of
from tests.docs.pages import PAGES

#: Blocks that no test types: output, shapes of texts, diagrams (test_diagrams.py), and "sh" for commands on a whole
#: clone, which .ci/run types.
SHOWN = {"text", "mermaid", "sh"}
#: Its blocks are samples for those who write the project, not for those who use it.
OF_SAMPLES = "CONTRIBUTING.md"
WITH_CODE = [name for name, page in PAGES.items() if blocks_of(page) and name != OF_SAMPLES]


@pytest.mark.parametrize("name", PAGES)
def test_every_block_says_what_it_is(name: str) -> None:
    languages = re.findall(r"(?ms)^( *)```([^\n]*)\n.*?^\1```$", PAGES[name])
    assert {language.split(" ")[0] for _, language in languages} <= SHOWN | LANGUAGES.keys()


@pytest.mark.parametrize("name", WITH_CODE)
def test_every_page_has_tests_that_run_its_blocks(name: str) -> None:
    assert all((ROOT / test).exists() for test in runners_of(name))


def test_no_page_is_named_that_is_gone() -> None:
    assert all(any(name == page or name.startswith(page) for name in WITH_CODE) for page in RUN_BY)


def test_the_samples_for_contributors_are_of_the_code() -> None:
    code = "".join(
        path.read_text(encoding="utf-8") for room in ("a2a_trust", "tests") for path in ROOT.glob(f"{room}/**/*.py")
    )
    samples = re.findall(r"(?ms)^```python\n(.*?)^```$", PAGES[OF_SAMPLES])
    assert len(samples) == 2
    assert all(sample in code for sample in samples)
