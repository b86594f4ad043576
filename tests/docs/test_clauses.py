"""docs/clauses.md is true: its functions and tests are there, and a row without them says whose task it is."""

from __future__ import annotations

import re
from importlib import import_module

from tests.conftest import ROOT
from tests.docs.pages import PAGES

ROWS = re.findall(r"(?m)^\| ((?:\d|RFC).*?) \| (.*?) \| (.*?) \| ?(.*?) ?\|$", PAGES["docs/clauses.md"])
OTHERS = ("application", "operator", "not done: ")


def test_a_row_names_function_and_test() -> None:
    wrong = []
    for clause, _, function, test in ROWS:
        if function.startswith("`"):
            module, _, name = function.strip("`").rpartition(".")
            if not (callable(getattr(import_module(f"a2a_trust.{module}"), name)) and test):
                wrong.append(f"{clause}: {function}")
        elif not function.startswith(OTHERS):
            wrong.append(f"{clause}: {function}")
        folder, _, stem = test.strip("`").rpartition("/")
        if test and not (ROOT / "tests" / folder / f"test_{stem}.py").is_file():
            wrong.append(f"{clause}: {test}")
    assert wrong == []


def test_sections_7_8_and_13_of_a2a_are_there() -> None:
    clauses = {clause for clause, *_ in ROWS}
    wanted = {"7.1", "7.2", "7.3", "7.4", "7.5", "7.6", "8.1", "8.2", "8.3.1", "8.3.2", "8.4.1", "8.4.2", "8.4.3"}
    assert wanted | {"8.6.1", "8.6.2", "13.1", "13.2", "13.3", "13.4"} <= clauses
    assert len(ROWS) > 90
