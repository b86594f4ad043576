"""Every block of code on every page has a language, and tests that run it."""

from __future__ import annotations

import re

from tests.conftest import ROOT
from tests.docs.blocks import LANGUAGES, RUN_BY, blocks_of, runners_of
from tests.docs.pages import PAGES

#: Blocks that no test types: output, shapes of texts, diagrams (test_diagrams.py), "sh" for commands on a whole clone,
#: which .ci/run types, and "js" and "go" for agents in other languages (docs/serve.md).
SHOWN = {"text", "mermaid", "sh", "js", "go"}
#: Its blocks are samples for those who write the project, not for those who use it.
OF_SAMPLES = "CONTRIBUTING.md"
WITH_CODE = [name for name, page in PAGES.items() if blocks_of(page) and name != OF_SAMPLES]


def test_every_block_says_what_it_is() -> None:
    fences = [
        (name, language)
        for name, page in PAGES.items()
        for _, language in re.findall(r"(?ms)^( *)```([^\n]*)\n.*?^\1```$", page)
    ]
    assert len(fences) > 300
    assert [fence for fence in fences if fence[1].split(" ")[0] not in SHOWN | LANGUAGES.keys()] == []


def test_every_page_has_tests_that_run_its_blocks() -> None:
    runners = [(name, test) for name in WITH_CODE for test in runners_of(name)]
    assert len(runners) >= len(WITH_CODE) > 30
    assert [runner for runner in runners if not (ROOT / runner[1]).exists()] == []


def test_no_page_is_named_that_is_gone() -> None:
    assert all(any(name == page or name.startswith(page) for name in WITH_CODE) for page in RUN_BY)


def test_the_samples_for_contributors_are_of_the_code() -> None:
    code = "".join(
        path.read_text(encoding="utf-8") for room in ("a2a_trust", "tests") for path in ROOT.glob(f"{room}/**/*.py")
    )
    samples = re.findall(r"(?ms)^```python\n(.*?)^```$", PAGES[OF_SAMPLES])
    assert len(samples) == 2
    assert all(sample in code for sample in samples)
