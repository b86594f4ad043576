"""``a2a-sign verify``: verify cards with keys that the caller trusts, and report what is verified.

Many cards are verified on all cores, and cards of URLs by several threads. The results come in the order of the cards.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TextIO

from a2a_trust.base.workers import in_threads, on_all_cores
from a2a_trust.cli.agents import FetchSettings, fetch_settings, read_or_fetch
from a2a_trust.cli.moments import duration, moment, rfc3339
from a2a_trust.cli.named_cards import NamedCard, card_sources, is_url, named_cards, reader_for
from a2a_trust.cli.pipeline_reports import check_reports, write_reports
from a2a_trust.cli.progress import Progress, note_results
from a2a_trust.cli.report import (
    Exit,
    Results,
    class_of,
    error_text,
    exit_of,
    json_line,
    mark,
    mark_verified,
    printable,
    printable_lines,
    put,
    put_report,
    short_kid,
    warn,
    word_of,
)
from a2a_trust.cli.trusted import TrustedKeys, trusted_keys
from a2a_trust.errors import CardVerificationError, ConfigurationError, FailureReason, PartialSignatureError, TrustError
from a2a_trust.signing.verify import VerifiedCard, report_of_error, report_of_verified, verify_document


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """The outcome for one card, ready to be written. ``word`` is its word in the summary.

    ``entry`` is for --json, or its line for --json-lines; ``reported`` is the line for --report, and ``checked``
    the entry for reports of pipelines. ``lines`` are for people, and ``warnings`` for standard error.
    """

    code: Exit
    word: str
    entry: dict[str, Any] | str
    reported: str
    checked: dict[str, Any]
    lines: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verification:
    """How all cards are verified. ``now`` is the moment for cards that are not fetched.

    ``as_of`` is the moment of --at, as text. A card must be verified at ``until``, too.
    """

    options: argparse.Namespace
    keys: TrustedKeys
    asked: FetchSettings | None
    now: float
    as_of: str | None
    until: float

    def outcome(self, card: NamedCard) -> _Outcome:
        """Read and verify a card."""
        data = card.line
        try:
            if data is None:
                data = read_or_fetch(card.name, self.options)
            verified = self._verify(card, data)
        except (TrustError, OSError) as error:
            return self._failure(card.name, data, error)
        return self._success(card.name, data, verified)

    def _verify(self, card: NamedCard, data: bytes) -> VerifiedCard:
        document, origin = data, self.keys.origin_of(card.name)
        if card.line is not None:
            from a2a_trust.signing.lines import origin_in, read_line  # msgspec is slow to import

            line = read_line(data)
            document, origin = line.card, origin_in(line, self.keys.origin)
        trust = self.keys.store_for(document, origin)
        if self.asked is not None and is_url(card.name) and isinstance(origin, str):
            return self.asked.verify(document, card.name, origin, trust)
        return verify_document(document, trust, origin, self.now, read=reader_for(self.options))

    def _success(self, name: str, data: bytes, verified: VerifiedCard) -> _Outcome:
        lines, warnings = tuple[str, ...](), tuple[str, ...]()
        is_soon = verified.valid_until <= self.until
        code = Exit.INVALID if is_soon else Exit.OK
        soon = {"code": "expires-soon", "message": f"verified until {rfc3339(verified.valid_until)} only"}
        if not self.options.json and is_soon:
            lines = (f"{printable(name)}: {mark('EXPIRES SOON', 'red', sys.stdout)}: {soon['message']}",)
        elif not (self.options.json or self.options.quiet):
            lines = tuple(_lines_of_success(name, verified, verbose=self.options.verbose))
            warnings = tuple(
                f"{name}: {warning}"
                for warning in verified.warnings
                if not warning.startswith("origin:")  # the line says so
            )
        report = report_of_verified(verified) if self.options.json or self.options.report is not None else {}
        if report and self.asked is not None and is_url(name):
            report["rollback_checked"] = self.asked.memory is not None
        card = {"card": verified.card} if self.options.json else {}
        word = "verified in part" if verified.unverified else "verified"
        return _Outcome(
            code=code,
            word="expires soon" if is_soon else word,
            entry=self._entry(name, code, {**report, **card}),
            reported=self._report_line(name, data, code, report),
            checked={**self._head(name, code), **(soon if is_soon else {})},
            lines=lines,
            warnings=warnings,
        )

    def _failure(self, name: str, data: bytes | None, error: TrustError | OSError) -> _Outcome:
        code, report = exit_of(error), {"code": word_of(error), "message": error_text(error, name)}
        if isinstance(error, TrustError):
            report = report_of_error(error, error_text(error, name))
        return _Outcome(
            code=code,
            word=class_of(code),
            entry=self._entry(name, code, report),
            reported=self._report_line(name, data, code, report),
            checked={**self._head(name, code), **report},
            lines=() if self.options.json else tuple(_lines_of_failure(name, error, code, self.keys)),
        )

    def _entry(self, name: str, code: Exit, report: dict[str, Any]) -> dict[str, Any] | str:
        entry = {**self._head(name, code), **report}
        if self.options.json == "lines":
            return json_line({"command": "verify", **entry})
        return entry if self.options.json else ""

    def _report_line(self, name: str, data: bytes | None, code: Exit, report: dict[str, Any]) -> str:
        if self.options.report is None:
            return ""
        digest = None if data is None else sha256(data).hexdigest()
        return json_line({**self._head(name, code), **report, "sha256": digest})

    def _head(self, name: str, code: Exit) -> dict[str, Any]:
        return {"file": name, "ok": code == Exit.OK, "class": class_of(code), "as_of": self.as_of}


def run(options: argparse.Namespace) -> Exit:
    """Verify every card. The first card that fails sets the exit code."""
    verifying = _prepare(options)
    check_reports(options)
    with nullcontext() if options.report is None else _new_report(options.report) as report:
        return _run(verifying, report)


def _prepare(options: argparse.Namespace) -> _Verification:
    if options.trust is None and not (options.jwks or options.public_key or options.on_first_use):
        raise ConfigurationError("name the keys that you trust: --trust FILE, --jwks FILE or --public-key FILE")
    options.files = named_cards(options)
    keys, within = trusted_keys(options), options.expires_within
    at = None if options.at is None else moment(options.at, time.time(), "--at")
    now, asked = at or time.time(), fetch_settings(options, at)
    until = -math.inf if within is None else now + duration(within, "--expires-within").total_seconds()
    return _Verification(options=options, keys=keys, asked=asked, now=now, as_of=rfc3339(at), until=until)


def _new_report(name: str) -> TextIO:
    """The file of --report. It never exists before, so no line in it is from an earlier run or another user."""
    try:
        return Path(name).open("x", encoding="utf-8")
    except FileExistsError:
        raise ConfigurationError(f"--report {name}: the file exists; name a new file, or remove this one") from None


def _run(verifying: _Verification, report: TextIO | None) -> Exit:
    options = verifying.options
    results, total = Results("verify", options.json), None if options.cards_from else len(options.files)
    checked = list[dict[str, Any]]()
    note_results(options, total, "cards verified", lambda: results.total)
    with Progress(total) as progress:
        for outcome in _outcomes(verifying):
            if outcome.lines or outcome.warnings or options.json == "lines":
                progress.hide()
            results.add(outcome.entry, outcome.code, outcome.word)
            for line in outcome.lines:
                put(f"AS OF {verifying.as_of}: {line}" if verifying.as_of else line)
            for warning in outcome.warnings:
                warn(warning)
            if report is not None:
                print(outcome.reported, file=report)
            if options.junit is not None or options.code_quality is not None:
                checked.append(outcome.checked)
            progress.show(results.total, results.failed)
    write_reports("verify", checked, options)
    code = results.put()
    if report is not None:
        put_report("verify", code, {"cards": results.total}, report, form="lines")
    return code


def _outcomes(verifying: _Verification) -> Iterator[_Outcome]:
    cards, names = card_sources(verifying.options), verifying.options.files
    if verifying.keys.file is not None or any(map(is_url, names)):
        return in_threads(verifying.outcome, cards)
    return on_all_cores(verifying.outcome, cards, 1 if "-" in names else None)  # only we can read standard input


def _lines_of_success(name: str, verified: VerifiedCard, *, verbose: bool) -> Iterator[str]:
    yield (
        f"{printable(name)}: {mark_verified(in_part=bool(verified.unverified))}: "
        f"signed by {short_kid(verified.key.kid)} ({verified.key.alg}), form {verified.form}, "
        f"origin {verified.origin or 'not bound'}"
    )
    if verified.unverified:
        yield f"  {mark('unverified', 'yellow', sys.stdout)}: {', '.join(verified.unverified)}"
    for failure in verified.ignored if verbose else ():
        if failure.reason is not FailureReason.COMPANION:  # normal: a companion stands beside our full signatures
            yield f"  ignored: {printable(failure)}"


def _lines_of_failure(name: str, error: Exception, code: Exit, keys: TrustedKeys) -> Iterator[str]:
    label, text = mark("NOT VERIFIED", "red", sys.stdout), error_text(error, name)
    if isinstance(error, CardVerificationError):  # a companion is always ignored, so it is not why the card fails
        others = [str(each) for each in error.failures if each.reason is not FailureReason.COMPANION]
        text = "\n  ".join([error.message, *others]) if others else text
    yield f"{printable(name)}: {label} ({class_of(code)}): {printable_lines(text)}"
    # A caller who named the signer knows how it signs, and needs no hint.
    if isinstance(error, PartialSignatureError) and keys.names_no_signer({each.kid for each in error.failures}):
        yield '  accept it: --signer a2a-python or --signer a2a-js; in a trust file, signer = "a2a-python" in the entry'
    if isinstance(error.__cause__, TrustError):
        yield f"  cause:     {printable(error.__cause__)}"
