"""``a2a-sign sign``: sign cards in place or to another place; all of them, or nothing is written.

With --if-needed a card that is signed as asked for keeps every byte, and --check only tells which ones are not.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TextIO

from a2a_trust import strict_json
from a2a_trust.cli.card_text import rewritten
from a2a_trust.cli.moments import duration, moment
from a2a_trust.cli.named_cards import named_cards
from a2a_trust.cli.report import (
    Exit,
    Results,
    class_of,
    exit_of,
    failed,
    mark,
    printable,
    put,
    said,
    warn,
    word_of,
)
from a2a_trust.cli.sources import check_not_secret, load_signers, read_input
from a2a_trust.errors import ConfigurationError, MalformedError, SigningError, TrustError
from a2a_trust.files.atomic import FileToWrite, Over, locked_together
from a2a_trust.keys.signer import LocalSigner
from a2a_trust.lint.findings import Finding, Severity
from a2a_trust.lint.linter import lint_card
from a2a_trust.signing.renewal import reason_to_sign
from a2a_trust.signing.sign import SignedCard, check_own_work, sign_card

__all__ = ["run"]

#: Rules of lint whose errors make a card ambiguous or contradictory: it is signed only with --allow RULE.
#: ``ambiguous-member`` is not among them: ``sign_card`` refuses such a card, and nothing allows it.
_REJECTED: Final = (
    "missing-member",
    "proto-name",
    "requirement-spelling",
    "undeclared-scheme",
    "unclear-url",
    "unread-member",
)
_SHOWN: Final = 5


class _RejectedCardError(SigningError):
    """Lint finds errors for which the card is not signed."""

    def __init__(self, name: str, findings: list[Finding]) -> None:
        self.findings = findings
        lines = ["the card is ambiguous or contradictory, and was not signed:"]
        for finding in findings[:_SHOWN]:
            lines.append(f"  {printable(finding.pointer)} {finding.rule}: {printable(finding.message)}")
            lines.append(f"    {printable(finding.fix)}")
        if len(findings) > _SHOWN:
            lines.append(f"  and {len(findings) - _SHOWN} more; to see all: a2a-sign lint {printable(name)}")
        rules = dict.fromkeys(finding.rule for finding in findings)
        lines.append(f"  to sign it as it is: {' '.join(f'--allow {rule}' for rule in rules)}")
        super().__init__("\n".join(lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """One card and what signing makes of it, or why it cannot be signed.

    ``data`` is its text, signed. ``reason`` is why it has to be signed; None when it is to stay as it is. ``findings``
    are the errors that lint finds in it nevertheless.
    """

    name: str
    target: str
    error: TrustError | OSError | None = None
    data: bytes = b""
    reason: str | None = None
    signed: SignedCard | None = None
    findings: tuple[Finding, ...] = ()


class _Status(StrEnum):
    """What became of a card."""

    SIGNED = "signed"
    UNCHANGED = "unchanged"
    TO_SIGN = "to-sign"
    REFUSED = "refused"
    NOT_WRITTEN = "not-written"
    """It could be signed, but another one could not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """How all cards are signed: when, by which signers, until when, and how long a signature has to last to stay."""

    options: argparse.Namespace
    signers: list[LocalSigner]
    now: float
    exp: float | None
    until: float


@dataclass(slots=True)
class _Progress:
    """How far a run came: the file that it is about now, and the files that it has written."""

    at: str | None = None
    written: list[str] = field(default_factory=list)


def run(options: argparse.Namespace) -> int:
    """Lock the cards, sign them, verify the very bytes that will be written, then write."""
    progress, stream = _Progress(), sys.stdout
    try:
        options.files = named_cards(options)
        # Where the card goes to standard output, nothing else may.
        if not options.check and "-" in ([options.output] if options.output else options.files):
            stream = sys.stderr
        _check_targets(options)
        job = _job(options)
        works = _sign_all(job, progress)
    except BrokenPipeError:
        raise
    except (TrustError, OSError) as error:
        details: dict[str, Any] = {}
        if progress.written:
            details["written"] = progress.written
            warn(f"signed and written before this error: {', '.join(progress.written)}")
        code = exit_of(error)
        return failed("sign", error, as_json=options.json, code=code, file=progress.at, stream=stream, details=details)
    return _report(works, job, stream)


def _job(options: argparse.Namespace) -> _Job:
    now = time.time()
    exp = None if options.expires is None else moment(options.expires, now, "--expires")
    until = now
    if options.expires_within is not None:
        until += duration(options.expires_within, "--expires-within").total_seconds()
        if exp is not None and exp <= until:
            raise ConfigurationError(
                "--expires-within: every new signature ends within that time; give it a longer one with --expires"
            )
    return _Job(options=options, signers=_signers(options, now), now=now, exp=exp, until=until)


def _sign_all(job: _Job, progress: _Progress) -> list[_Work]:
    """Sign every card, each under its lock from reading to writing, and write those that need it when all are signed.

    Nothing is written when one of them cannot be signed.
    """
    options = job.options
    files = {} if options.check else _files_to_write(options)
    with locked_together(list(dict.fromkeys(files.values()))):
        works = [_work(name, files.get(name), job) for name in options.files]
        if options.check or any(work.error is not None for work in works):
            return works
        if not files:
            progress.at = "-"
            _write(works[0].data)
        new = {files[work.name]: work for work in works if files and work.reason is not None}
        for file, work in new.items():
            progress.at = work.target
            file.prepare(work.data)
        for file, work in new.items():
            progress.at = work.target
            file.check()
        for file, work in new.items():
            progress.at = work.target
            file.commit()
            progress.written.append(work.target)
    return works


def _work(name: str, file: FileToWrite | None, job: _Job) -> _Work:
    """Read one card, and sign it if it has to be signed."""
    target = job.options.output or name
    try:
        in_place = file is not None and file.over is Over.WHAT_WAS_READ
        data = file.read(strict_json.MAX_BYTES + 1) if file is not None and in_place else read_input(name)
        return _signed(name, target, data, job)
    except (TrustError, OSError) as error:
        return _Work(name=name, target=target, error=error)


def _files_to_write(options: argparse.Namespace) -> dict[str, FileToWrite]:
    """By the name of each card the file that its signed form goes to, the same one for all names of a file.

    Empty when it goes to standard output.
    """
    if "-" in (options.output, *options.files) and options.output in (None, "-"):
        return {}
    files, by_path = dict[str, FileToWrite](), dict[str, FileToWrite]()
    for name in options.files:
        target = options.output or name
        place = os.path.realpath(target)
        in_place = name != "-" and os.path.realpath(name) == place
        file = FileToWrite(Path(target), Over.WHAT_WAS_READ if in_place else Over.ANYTHING)
        files[name] = by_path.setdefault(place, file)
    return files


def _signers(options: argparse.Namespace, now: float) -> list[LocalSigner]:
    try:
        signers = load_signers(options.key, options.kid, options.alg)
    except MalformedError as error:
        raise ConfigurationError(str(error)) from None  # the key is the operator's, so this says nothing about a card
    for signer in signers:
        if not signer.public_key.is_valid_at(now):
            raise ConfigurationError(
                f"the key {signer.kid!a} is revoked or not valid now, as nbf, exp or revoked of its JWK says; "
                "sign with another key"
            )
    return signers


def _write(data: bytes) -> None:
    if sys.stdout is None:
        raise OSError("standard output is closed")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _check_targets(options: argparse.Namespace) -> None:
    if options.output and len(options.files) > 1:
        raise ConfigurationError("-o takes one card; sign several in place, or call once for each")
    if options.files.count("-") and len(options.files) > 1:
        raise ConfigurationError("- (standard input) stands alone; name files, or call once for each")
    if options.output and (options.check or options.if_needed):
        raise ConfigurationError("--check and --if-needed are for cards that are signed in place; leave out -o")
    if options.expires_within is not None and not (options.check or options.if_needed):
        raise ConfigurationError("--expires-within says what --if-needed and --check leave as it is; give one of them")
    targets = [Path(name) for name in ([options.output] if options.output else options.files) if name != "-"]
    check_not_secret(targets, options.key or [])
    if options.output == "":
        raise ConfigurationError("-o needs a file name, or - for standard output")
    for rule in options.allow:
        if rule not in _REJECTED:
            raise ConfigurationError(
                f"--allow {rule}: not a rule that can be allowed; those are {', '.join(_REJECTED)}"
            )


def _signed(name: str, target: str, data: bytes, job: _Job) -> _Work:
    options = job.options
    signed = sign_card(
        data,
        *job.signers,
        jku=options.jku,
        iat=None if options.no_iat else float(int(job.now)),
        exp=job.exp,
        drop_broken=options.drop_broken,
        companion=not options.no_companion,
    )
    original = strict_json.parse(data, what="card")
    if not original.get("name"):  # every generation demands it, while key sets and package files have none
        raise MalformedError("card: /name is missing or empty, so this is no Agent Card; nothing was signed")
    findings = _errors(name, data, options.allow)
    reason: str | None = ""
    if options.check or options.if_needed:
        reason = reason_to_sign(data, original, signed, job.signers, now=job.now, until=job.until)
        if reason is None:
            return _Work(name=name, target=target, data=data, signed=signed, findings=findings)
    # The object was verified; what is written is this text, so this text is verified too.
    result = rewritten(data.decode("utf-8"), original, signed.card).encode("utf-8")
    check_own_work(result, signed.payload, job.signers, job.now)
    return _Work(name=name, target=target, data=result, reason=reason, signed=signed, findings=findings)


def _errors(name: str, data: bytes, allowed: list[str]) -> tuple[Finding, ...]:
    """The errors that lint finds in the card; _RejectedCardError when it is not to be signed for one of them."""
    errors = [finding for finding in lint_card(data) if finding.severity is Severity.ERROR]
    rejected = [finding for finding in errors if finding.rule in _REJECTED and finding.rule not in allowed]
    if rejected:
        raise _RejectedCardError(name, rejected)
    return tuple(errors)


def _report(works: list[_Work], job: _Job, stream: TextIO | None) -> Exit:
    """Say what was done with every card; the exit code is that of the first card that failed."""
    options, noted = job.options, 0
    results, is_given_up = Results("sign", options.json, stream), any(work.error is not None for work in works)
    for work in works:
        status, code = _status(work, options, is_given_up=is_given_up)
        notes = _notes(work, options) if status in (_Status.SIGNED, _Status.TO_SIGN) else []
        is_done = status in (_Status.SIGNED, _Status.UNCHANGED)
        what = None if status is _Status.NOT_WRITTEN else class_of(code)
        entry = {**_entry(work, job.signers), "ok": is_done, "class": what, "status": status, "notes": notes}
        results.add(entry, code, status.replace("-", " "))
        if not options.json:
            _put(work, status, job, stream)
        if not (options.json or options.quiet):
            noted += bool(notes)
            for note in notes if len(works) == 1 else ():
                put(f"  note: {printable(note)}", stream)
    if noted and len(works) > 1:
        put(f"notes on {noted} of the cards: --json shows them", stream)
    return results.put(quiet=options.quiet)


def _status(work: _Work, options: argparse.Namespace, *, is_given_up: bool) -> tuple[_Status, Exit]:
    """What became of the card, and the exit code for it."""
    if work.error is not None:
        return _Status.REFUSED, exit_of(work.error)
    if work.reason is None:
        return _Status.UNCHANGED, Exit.OK
    if options.check:
        return _Status.TO_SIGN, Exit.INVALID
    return (_Status.NOT_WRITTEN if is_given_up else _Status.SIGNED), Exit.OK


def _put(work: _Work, status: _Status, job: _Job, stream: TextIO | None) -> None:
    """The line of one card, and what lint finds in it nevertheless."""
    quiet, name = job.options.quiet, printable(work.name)
    kids = printable(", ".join(f"{signer.kid} ({signer.alg})" for signer in job.signers))
    if work.error is not None:
        failed("sign", work.error, as_json="", code=exit_of(work.error), file=work.name)
    elif status is _Status.TO_SIGN:
        put(f"{name}: {mark('has to be signed', 'yellow', stream)}: {printable(work.reason)}", stream)
    elif status is _Status.UNCHANGED and not quiet:
        put(f"{name}: unchanged, signed by {kids}", stream)
    elif status is _Status.NOT_WRITTEN and not quiet:
        put(f"{name}: not written, because another card was refused", stream)
    elif status is _Status.SIGNED and not quiet:
        arrow = "" if work.target in ("-", work.name) else f" -> {printable(work.target)}"
        put(f"{name}{arrow}: {mark('signed', 'green', stream)} by {kids}", stream)
    for finding in work.findings if not quiet else ():
        warn(f"{work.name}:{finding.pointer} {finding.rule}: {finding.message}")


def _notes(work: _Work, options: argparse.Namespace) -> list[str]:
    without_iat = (
        "signed without iat: clients that remember an earlier iat of this agent reject the card, and the others do "
        "not notice if somebody serves an older card in its place"
    )
    return [*(work.signed.notes if work.signed is not None else ()), *([without_iat] if options.no_iat else [])]


def _entry(work: _Work, signers: list[LocalSigner]) -> dict[str, Any]:
    if work.signed is None:
        error = work.error or AssertionError("a card is signed, or there is an error")
        rejected = {"findings": list(map(asdict, error.findings))} if isinstance(error, _RejectedCardError) else {}
        told = {"code": word_of(error), "message": said(error, work.name)}
        return {"file": work.name, **told, **rejected}
    return {
        "file": work.name,
        "output": work.target,
        "reason": work.reason or None,
        "keys": [{"kid": signer.kid, "alg": signer.alg} for signer in signers],
        "companion": work.signed.companion,
        "left_open": list(work.signed.left_open),
        "normalised": list(work.signed.normalised),
        "findings": list(map(asdict, work.findings)),
    }
