"""``a2a-sign sign``: sign cards in place or to another place; all of them, or nothing is written."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from a2a_trust import strict_json
from a2a_trust.cli.card_text import rewritten
from a2a_trust.cli.moments import moment
from a2a_trust.cli.report import Exit, exit_of, failed, mark, printable, put, put_report, warn
from a2a_trust.cli.sources import check_not_secret, load_signers, read_input
from a2a_trust.errors import ConfigurationError, MalformedError, SigningError, TrustError
from a2a_trust.files.atomic import FileToWrite, Over, locked_together
from a2a_trust.keys.signer import LocalSigner
from a2a_trust.lint.findings import Finding, Severity
from a2a_trust.lint.linter import lint_card
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


@dataclass(frozen=True, slots=True)
class _Work:
    """One card that is ready to be written; ``findings`` are the errors that lint finds in it nevertheless."""

    name: str
    target: str
    data: bytes
    signed: SignedCard
    findings: tuple[Finding, ...]


@dataclass(slots=True)
class _Progress:
    """How far a run came: the file that it is about now, and the files that it has written."""

    at: str | None = None
    written: list[str] = field(default_factory=list)


def run(options: argparse.Namespace) -> int:
    """Lock the cards, sign them, verify the very bytes that will be written, then write."""
    # Where the card goes to standard output, nothing else may.
    stream = sys.stderr if "-" in ([options.output] if options.output else options.files) else sys.stdout
    progress = _Progress()
    try:
        _check_targets(options)
        now = time.time()
        exp = None if options.expires is None else moment(options.expires, now, "--expires")
        signers = _signers(options, now)
        ready = _sign_all(options, lambda name, data: _signed(name, data, options, signers, now, exp), progress)
    except BrokenPipeError:
        raise
    except (TrustError, OSError) as error:
        details: dict[str, Any] = {}
        if isinstance(error, _RejectedCardError):
            details["findings"] = list(map(asdict, error.findings))
        if progress.written:
            details["written"] = progress.written
            warn(f"signed and written before this error: {', '.join(progress.written)}")
        code = exit_of(error)
        return failed("sign", error, as_json=options.json, code=code, file=progress.at, stream=stream, details=details)
    if options.json:
        entries = [{**_entry(work, signers), "notes": _notes(work, options)} for work in ready]
        put_report("sign", Exit.OK, {"results": entries}, stream)
        return Exit.OK
    kids = ", ".join(f"{signer.kid} ({signer.alg})" for signer in signers)
    for work in ready if not options.quiet else ():
        arrow = "" if work.target in ("-", work.name) else f" -> {work.target}"
        put(f"{printable(work.name + arrow)}: {mark('signed', 'green', stream)} by {printable(kids)}", stream)
        for note in _notes(work, options):
            put(f"  note: {printable(note)}", stream)
        for finding in work.findings:
            warn(f"{work.name}:{finding.pointer} {finding.rule}: {finding.message}")
    return Exit.OK


def _sign_all(options: argparse.Namespace, sign: Callable[[str, bytes], _Work], progress: _Progress) -> list[_Work]:
    """Sign every card, each under its lock from reading to writing, and write them when all are signed."""
    files, ready = _files_to_write(options), list[_Work]()
    with locked_together(list(dict.fromkeys(files.values()))):
        for name in options.files:
            progress.at = name
            file = files.get(name)
            in_place = file is not None and file.over is Over.WHAT_WAS_READ
            ready.append(sign(name, file.read(strict_json.MAX_BYTES + 1) if file and in_place else read_input(name)))
        if not files:
            progress.at = "-"
            _write(ready[0].data)
        new = {files[work.name]: work for work in ready if files}
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
    return ready


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


def _notes(work: _Work, options: argparse.Namespace) -> list[str]:
    without_iat = (
        "signed without iat: clients that remember an earlier iat of this agent reject the card, and the others do "
        "not notice if somebody serves an older card in its place"
    )
    return [*work.signed.notes, *([without_iat] if options.no_iat else [])]


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
    targets = [Path(name) for name in ([options.output] if options.output else options.files) if name != "-"]
    check_not_secret(targets, options.key or [])
    if options.output == "":
        raise ConfigurationError("-o needs a file name, or - for standard output")
    for rule in options.allow:
        if rule not in _REJECTED:
            raise ConfigurationError(
                f"--allow {rule}: not a rule that can be allowed; those are {', '.join(_REJECTED)}"
            )


def _signed(
    name: str, data: bytes, options: argparse.Namespace, signers: list[LocalSigner], now: float, exp: float | None
) -> _Work:
    signed = sign_card(
        data,
        *signers,
        jku=options.jku,
        iat=None if options.no_iat else float(int(now)),
        exp=exp,
        drop_broken=options.drop_broken,
        companion=not options.no_companion,
    )
    original = strict_json.parse(data, what="card")
    if not original.get("name"):  # every generation demands it, while key sets and package files have none
        raise MalformedError("card: /name is missing or empty, so this is no Agent Card; nothing was signed")
    findings = _errors(name, data, options.allow)
    # The object was verified; what is written is this text, so this text is verified too.
    result = rewritten(data.decode("utf-8"), original, signed.card).encode("utf-8")
    check_own_work(result, signed.payload, signers, now)
    return _Work(name, options.output or name, result, signed, findings)


def _errors(name: str, data: bytes, allowed: list[str]) -> tuple[Finding, ...]:
    """The errors that lint finds in the card; _RejectedCardError when it is not to be signed for one of them."""
    errors = [finding for finding in lint_card(data) if finding.severity is Severity.ERROR]
    rejected = [finding for finding in errors if finding.rule in _REJECTED and finding.rule not in allowed]
    if rejected:
        raise _RejectedCardError(name, rejected)
    return tuple(errors)


def _entry(work: _Work, signers: list[LocalSigner]) -> dict[str, Any]:
    return {
        "file": work.name,
        "output": work.target,
        "ok": True,
        "keys": [{"kid": signer.kid, "alg": signer.alg} for signer in signers],
        "companion": work.signed.companion,
        "left_open": list(work.signed.left_open),
        "normalised": list(work.signed.normalised),
        "findings": list(map(asdict, work.findings)),
    }
