"""docs/threat-model.md names every attack that has a test, and no other."""

from __future__ import annotations

import re

from tests.docs.pages import PAGES


def test_every_attack_belongs_to_an_attacker() -> None:
    carried_out = re.findall(r"(?m)^- \*\*([A-Z]\d+)\*\*:", PAGES["tests/attacks/README.md"])
    named = re.findall(r"`([A-Z]\d+)`", PAGES["docs/threat-model.md"])
    assert set(named) == set(carried_out)
    assert len(carried_out) > 60
