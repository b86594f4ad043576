"""The table of who accepts whose signature, in docs/interop-tables.md, is what the released SDKs say today."""

from __future__ import annotations

import pytest

from tests.interop.matrix import (
    BEGIN,
    COLUMNS,
    DOCUMENT,
    END,
    NAMED_SIGNER,
    NO_SIGNER,
    OURS,
    SDK_NAMES,
    WITHHELD,
    Table,
    printed,
    tables,
)
from tests.interop.sdk_process import SdkProcess

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def made(
    python_1_3_0: SdkProcess,
    python_1_1_3: SdkProcess,
    python_1_0_0: SdkProcess,
    python_0_3_26: SdkProcess,
    js_1_3_0: SdkProcess,
) -> list[Table]:
    sdks = (python_1_3_0, python_1_1_3, python_1_0_0, python_0_3_26, js_1_3_0)
    return tables(dict(zip(SDK_NAMES, sdks, strict=True)))


def test_the_documentation_says_who_accepts_whose_signature(made: list[Table]) -> None:
    _, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    text, end, _ = rest.partition(END)
    assert end
    assert text.strip() == printed(made), "the tables have changed: python -m tests.interop.matrix writes them"


def test_nothing_can_be_taken_from_a_card_that_is_accepted_here(made: list[Table]) -> None:
    """A note on an accepted card is what can be taken away from it: the SDKs have them, we have none."""
    notes = {
        column: [row[at].note for table in made for row in table.rows.values() if row and row[at].is_accepted]
        for at, column in enumerate(COLUMNS)
    }
    assert len(notes[NAMED_SIGNER]) > 15
    assert set(notes[NO_SIGNER] + notes[NAMED_SIGNER]) == {""}
    assert all(any(notes[column]) for column in COLUMNS if column not in (NO_SIGNER, NAMED_SIGNER))


def test_without_a_word_on_its_signer_only_what_was_signed_here_is_accepted(made: list[Table]) -> None:
    """A card of an SDK may be what the SDK left of another: it is told apart from a bad one, and from a whole one."""
    for at, accepted in ((COLUMNS.index(NO_SIGNER), set()), (COLUMNS.index(NAMED_SIGNER), {"accepts, unverified"})):
        for table in made:
            for name, row in table.rows.items():
                if row and name.startswith(OURS):
                    assert row[at].verdict == "accepts", (table.kind, name)
                elif row:
                    assert row[at].verdict in {"partial" if not accepted else "in part", "rejects", *accepted}


def test_whatever_is_signed_here_is_accepted_by_every_sdk_of_its_generation_that_reads_what_is_served(
    made: list[Table],
) -> None:
    """Cards of 1.0, merged ones too, with a companion; the SDKs that do otherwise are named, and the table says why."""
    refusing = {
        (table.kind, column)
        for table in made
        for name, row in table.rows.items()
        if name.startswith(OURS) and name != WITHHELD and row
        for column, cell in zip(COLUMNS, row, strict=True)
        if cell.verdict != "accepts" and table.kind != "0.3" and column != "python 0.3.26"
    }
    not_ascii = next(table.kind for table in made if "ASCII" in table.kind)
    with_schemes = {table.kind for table in made if table.kind.startswith("1.0") and "no security" not in table.kind}
    assert refusing == {
        (not_ascii, "python 1.1.3"),
        (not_ascii, "python 1.0.0"),
        *((kind, "js resolver") for kind in with_schemes),
    }


def test_without_a_companion_no_sdk_accepts_a_card_of_which_it_would_miss_security_members(made: list[Table]) -> None:
    kinds = {table.kind for table in made if WITHHELD in table.rows}
    assert len(kinds) == 3
    for table in made:
        cells = dict(zip(COLUMNS, table.rows.get(WITHHELD) or (), strict=False))
        verdicts = {cell.verdict for column, cell in cells.items() if column not in (NO_SIGNER, NAMED_SIGNER)}
        assert verdicts <= {"rejects", "unreadable"}, table.kind


def test_every_cell_that_does_not_accept_says_why(made: list[Table]) -> None:
    cells = [cell for table in made for row in table.rows.values() if row for cell in row]
    assert {cell.verdict for cell in cells} == {
        "accepts",
        "accepts, unverified",
        "partial",
        "in part",
        "rejects",
        "unreadable",
    }
    assert all(cell.note for cell in cells if not cell.is_accepted)
    assert len(cells) > 300
