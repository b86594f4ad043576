"""The report names what no test notices, and nothing else; the list of mutants that change nothing is true."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.__main__ import MODULES
from tests.mutants.changes import mutants
from tests.mutants.hunt import Module
from tests.mutants.unkillable import UNKILLABLE

_ROOT = Path(__file__).resolve().parents[2]

_RULE = """\
def admits(age: int, member: bool) -> bool:
    if age < 18 and not member:
        return False
    return True
"""
_UNIT_TEST = """\
from package.room.rule import admits

def test_a_child_is_not_admitted():
    assert not admits(8, False)
    assert admits(30, False)
"""
_ATTACK = """\
from package.room.rule import admits

def test_a_member_of_any_age_is_admitted():
    assert admits(8, True)
"""
_PROGRAM = """\
import sys
from pathlib import Path
from tests.mutants import hunt
from tests.mutants.__main__ import main
hunt._LEAST_SECONDS = 60.0  # a machine that is busy
sys.exit(main(Path(sys.argv[1]), "package", ["room/rule.py"], count=None, seed=0))
"""


@pytest.mark.long
def test_the_report_names_what_no_test_notices_and_what_only_attacks_notice(tmp_path: Path) -> None:
    for name, text in (
        ("package/__init__.py", ""),
        ("package/room/__init__.py", ""),
        ("package/room/rule.py", _RULE),
        ("tests/room/test_rule.py", _UNIT_TEST),
        ("tests/attacks/test_members.py", _ATTACK),
    ):
        tmp_path.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        tmp_path.joinpath(name).write_text(text)
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path)]
    environment = {"PYTHONPATH": f"{tmp_path}:{_ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (1, "")
    report = done.stdout.partition("room/rule.py: ")[2]
    of_attacks, survivors = report.split("noticed by no test:")
    assert "age < 18 and (not member)  ->  age < 18\n" in of_attacks
    assert "room/rule.py:2: admits: age < 18  ->  age <= 18\n" in survivors
    assert "condition age < 18 and (not member) is False" not in report
    assert tmp_path.joinpath("package/room/rule.py").read_text() == _RULE


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("x == 'a'", ["x == 'a'  ->  x != 'a'", "x == 'a'  ->  x == 'ax'"]),
        ("x = f(True, 1)", ["True  ->  False", "1  ->  2", "1  ->  0"]),
        ("x = {'a', 'b'}", ["{'a', 'b'}  ->  {'b'}", "{'a', 'b'}  ->  {'a'}"]),
        ("x = a or b", ["a or b  ->  b", "a or b  ->  a"]),
        ("x = name.lower()", ["name.lower()  ->  name"]),
        ("check(x)", ["dropped: check(x)"]),
        ("if x: raise E(f'{1}')", ["condition x is True", "condition x is False", "dropped: raise E(f'{1}')"]),
        (
            "try: f()\nexcept (A, B): pass",
            ["dropped: f()", "dropped: except (A, B)", "dropped: except A", "dropped: except B"],
        ),
        ("def f(x: Literal['a'] = 'b') -> None: 'text'", []),
    ],
)
def test_every_mutant_is_one_change(code: str, changes: list[str]) -> None:
    tree = ast.parse(code)
    before = ast.unparse(tree)
    found = {mutant.change: ast.unparse(tree) for mutant in mutants(tree)}
    assert list(found) == changes
    assert before not in found.values()
    assert len(set(found.values())) == len(found)
    assert ast.unparse(tree) == before


def test_mutants_that_are_said_to_change_nothing_exist() -> None:
    found = {
        (path, mutant.scope, mutant.change) for path in MODULES for mutant in Module(_ROOT, "a2a_trust", path).mutants()
    }
    assert UNKILLABLE.keys() <= found
    assert all(re.search(r"\w+ \w+", why) for why in UNKILLABLE.values())
