"""A probe is right about servers that others wrote: the hello worlds of SDKs and frameworks, bare and protected."""

from __future__ import annotations

from pathlib import Path

import pytest

from a2a_trust.probe import Verdict
from tests.frameworks.probed import BEGIN, DOCUMENT, END, FRAMEWORKS, Framework, probed, row


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.title)
def test_the_bare_agent_does_not_enforce_its_card_and_the_protected_one_does(
    framework: Framework, tmp_path: Path
) -> None:
    found = probed(framework, tmp_path)
    assert found.bare.verdict is Verdict.NOT_ENFORCED, found.bare
    assert {each.rule for each in found.bare.findings} >= {"open-operation", "wrong-credential-accepted"}
    for report in found[1:]:
        if report is not None:
            assert report.verdict is Verdict.ENFORCED, report
            assert [each for each in report.findings if each.severity != "note"] == []
    table = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert row(framework, found) in table.splitlines()
