"""``a2a-sign lint``: check Agent Cards for problems, and fix those whose fix changes no meaning."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from a2a_trust.base import strict_json
from a2a_trust.base.files.atomic import FileToWrite, Over
from a2a_trust.cli.card_text import Position, positions_of, rewrite
from a2a_trust.cli.named_cards import named_cards
from a2a_trust.cli.pipeline_reports import check_reports, write_reports
from a2a_trust.cli.progress import note_results, note_targets
from a2a_trust.cli.report import (
    Exit,
    Results,
    class_of,
    exit_of,
    mark,
    printable,
    put,
    put_json,
    report_failure,
    warn,
)
from a2a_trust.cli.sources import read_input
from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.lint.findings import Finding, Severity
from a2a_trust.lint.linter import fix_card, lint_card
from a2a_trust.lint.rules import RULES

_COLORS: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    """The report on one file. ``places`` has the position of every finding's pointer.

    ``not_fixed`` says why --fix did not fix the card, ``unread`` why the file could not be read.
    """

    name: str
    findings: tuple[Finding, ...] = ()
    places: dict[str, Position] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    not_fixed: MalformedError | ConfigurationError | None = None
    unread: OSError | None = None

    @property
    def code(self) -> Exit:
        if self.unread is not None:
            return exit_of(self.unread)
        if any(finding.severity is Severity.ERROR for finding in self.findings):
            return Exit.INVALID
        return Exit.OK if self.not_fixed is None else exit_of(self.not_fixed)

    @property
    def outcome(self) -> str:
        """The word for the summary."""
        if self.unread is not None:
            return "not read"
        return f"with {self.findings[0].severity}s" if self.findings else "without problems"


def run(options: argparse.Namespace) -> Exit:
    """Lint every card. The first card with an error sets the exit code."""
    names = named_cards(options)
    if options.fix and "-" in names:
        raise ConfigurationError("--fix changes files, and - is standard input; name files, or leave out --fix")
    check_reports(options)
    results, reports = Results("lint", options.json), list[_Report]()
    if options.fix:
        note_targets(options, names, "fixed")
    else:
        note_results(options, len(names), "cards checked", lambda: results.total)
    for name in names:
        report = _report(name, fix=options.fix)
        results.add(_entry(report), report.code, report.outcome)
        reports.append(report)
        if not options.sarif and not options.json:
            _put(report, hint=not options.fix, quiet=options.quiet)
    write_reports("lint", list(map(_entry, reports)), options)
    if options.sarif:
        _put_sarif(reports)
        return results.exit
    return results.put()


def _put_sarif(reports: list[_Report]) -> None:
    from a2a_trust.cli.sarif import log_of, notification, result

    found = [result(it.name, finding, it.places[finding.pointer]) for it in reports for finding in it.findings]
    put_json(log_of(found, [notification(it.name, it.unread) for it in reports if it.unread is not None]))
    for report in reports:
        _put_not_read(report)


def _put_not_read(report: _Report) -> None:
    if report.unread is not None:
        report_failure("lint", report.unread, as_json=False, code=report.code, file=report.name)
    if report.not_fixed is not None:
        warn(f"{report.name}: not fixed: {report.not_fixed}")


def _report(name: str, *, fix: bool) -> _Report:
    try:
        data, fixed, not_fixed = _fix_file(Path(name)) if fix else (read_input(name), (), None)
    except OSError as error:
        return _Report(name=name, unread=error)
    findings = lint_card(data)
    pointers = [finding.pointer for finding in findings]
    if any(finding.rule == "unreadable-document" for finding in findings):  # not a card: the beginning of the text
        places = dict.fromkeys(pointers, Position(line=1, column=1))
    else:
        places = positions_of(data.decode("utf-8"), pointers)
    return _Report(name=name, findings=findings, places=places, fixed=fixed, not_fixed=not_fixed)


def _fix_file(path: Path) -> tuple[bytes, tuple[str, ...], MalformedError | ConfigurationError | None]:
    """The card in the file now, the pointers of the members that were removed, and why the card was not fixed."""
    with FileToWrite(path, Over.WHAT_WAS_READ) as file:
        file.lock()
        data = file.read(strict_json.MAX_BYTES + 1)
        try:
            text, fixed = fixed_text(data)
        except (MalformedError, ConfigurationError) as error:
            return data, (), error
        if fixed:
            file.prepare(text)
            file.commit()
        return text, fixed, None


def fixed_text(data: bytes) -> tuple[bytes, tuple[str, ...]]:
    """The card's text without the members that ``fix_card`` removes, and their pointers.

    The rest of the text keeps its order and layout. Raises the errors of ``fix_card``.
    """
    card = strict_json.parse(data, what="card")
    fixed, dropped = fix_card(card)
    if not dropped:
        return data, ()
    text = rewrite(data.decode("utf-8"), card, fixed).encode("utf-8")
    if strict_json.parse(text, what="card") != fixed:
        raise AssertionError("the new text differs from the fixed card; nothing was written")
    return text, dropped


def _entry(report: _Report) -> dict[str, Any]:
    entry: dict[str, Any] = {"file": report.name, "ok": report.code is Exit.OK, "class": class_of(report.code)}
    if report.unread is not None:
        return {**entry, "message": str(report.unread)}
    findings = [{**asdict(finding), **report.places[finding.pointer]._asdict()} for finding in report.findings]
    not_fixed = None if report.not_fixed is None else str(report.not_fixed)
    return {**entry, "findings": findings, "fixed": list(report.fixed), "not_fixed": not_fixed}


def _put(report: _Report, *, hint: bool, quiet: bool) -> None:
    _put_not_read(report)
    if report.unread is not None:
        return
    name = printable(report.name)
    for pointer in report.fixed if not quiet else ():
        put(f"{name}:{printable(pointer)} {mark('fixed', 'green', sys.stdout)}: removed")
    for finding in report.findings:
        if quiet and finding.severity is not Severity.ERROR:
            continue
        severity = mark(finding.severity, _COLORS.get(finding.severity), sys.stdout)
        put(f"{name}:{printable(finding.pointer)} {severity} {finding.rule}: {printable(finding.message)}")
        put(f"    {printable(finding.fix)}")
    if quiet:
        return
    counts = Counter(finding.severity for finding in report.findings)
    sums = [f"{counts[severity]} {severity}{'s'[: counts[severity] != 1]}" for severity in Severity if counts[severity]]
    put(f"{name}: {', '.join(sums) or mark('no problems found', 'green', sys.stdout)}")
    fixable = sum(RULES[finding.rule].is_fixable for finding in report.findings)
    if fixable and hint:
        put(f"  {fixable} can be fixed with --fix; the meaning of the card stays the same")
