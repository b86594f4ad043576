"""``a2a-sign sign``: sign cards in place, or one card to another file. No card is written before all are signed.

With --if-needed a card that is already signed as asked keeps every byte. --check only reports cards that have to be
signed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from a2a_trust.base import strict_json
from a2a_trust.base.files.atomic import FileToWrite, Over, flush_folder
from a2a_trust.base.workers import on_all_cores
from a2a_trust.cli.card_text import rewrite
from a2a_trust.cli.moments import duration, moment
from a2a_trust.cli.named_cards import NamedCard, card_sources, named_cards, reader_for
from a2a_trust.cli.progress import Progress, note_targets
from a2a_trust.cli.report import (
    Exit,
    Results,
    class_of,
    error_text,
    exit_of,
    mark,
    printable,
    put,
    put_document,
    report_failure,
    short_kid,
    warn,
    word_of,
)
from a2a_trust.cli.sources import check_not_secret, load_signers, read_input
from a2a_trust.errors import ConfigurationError, MalformedError, SigningError, TrustError
from a2a_trust.keys.signer import LocalSigner
from a2a_trust.lint.findings import Finding
from a2a_trust.lint.linter import errors_in
from a2a_trust.signing.sign import Arguments, card_to_sign, check_served, make_claims, reason_to_sign, sign_unchecked

#: Rules of lint whose errors make a card ambiguous or contradictory, or publish a secret. Such a card is signed only
#: with --allow RULE.
#: ``ambiguous-member`` is missing here, because ``sign_card`` rejects such a card and no option allows it.
_REJECTED: Final = (
    "missing-member",
    "proto-name",
    "requirement-spelling",
    "secret",
    "undeclared-scheme",
    "unclear-url",
    "unread-member",
)
_SHOWN: Final = 5
_NOTES: Final = "docs/sign.md#what-a-signature-says"


class _RejectedCardError(SigningError):
    """Lint finds errors, so the card is not signed."""

    def __init__(self, name: str, findings: Sequence[Finding]) -> None:
        self.findings = findings
        lines = ["the card has errors, so it was not signed:"]
        for finding in findings[:_SHOWN]:
            lines.append(f"  {printable(finding.pointer)} {finding.rule}: {printable(finding.message)}")
            lines.append(f"    {printable(finding.fix)}")
        if len(findings) > _SHOWN:
            lines.append(f"  and {len(findings) - _SHOWN} more; to see all: a2a-sign lint {printable(name)}")
        rules = dict.fromkeys(finding.rule for finding in findings)
        lines.append(f"  fix it, or sign it as it is with {' '.join(f'--allow {rule}' for rule in rules)}")
        super().__init__("\n".join(lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """One card, and the outcome of signing it, or the error.

    ``data`` is the signed text, and ``read`` the SHA-256 of the card in a file that is signed in place. ``reason`` says
    why the card has to be signed; None when it stays as it is. ``findings`` are errors of lint that --allow names, or
    that do not forbid to sign. ``entry`` has members for a JSON report. ``notes`` are for people, and for JSON.
    """

    name: str
    target: str
    error: TrustError | OSError | None = None
    data: bytes = b""
    read: bytes | None = None
    reason: str | None = None
    findings: tuple[Finding, ...] = ()
    entry: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class _Status(StrEnum):
    """The outcome for one card."""

    SIGNED = "signed"
    UNCHANGED = "unchanged"
    TO_SIGN = "to-sign"
    REJECTED = "refused"  # a stable word of reports
    NOT_WRITTEN = "not-written"
    """It could be signed, but another card could not."""


class _Job(NamedTuple):
    """How all cards are signed: ``claims`` come from ``make_claims``.

    A signature that expires before ``until`` has to be made again.
    """

    options: argparse.Namespace
    signers: list[LocalSigner]
    claims: dict[str, Any]
    now: float
    until: float


@dataclass(slots=True)
class _Progress:
    """How far a run came: the file that it is working on, and the files that it has written."""

    at: str | None = None
    written: list[str] = field(default_factory=list)


def run(options: argparse.Namespace) -> Exit:
    """Sign the cards, verify the bytes that will be written, then write them."""
    progress, stream = _Progress(), sys.stdout
    try:
        options.files = named_cards(options)
        # A card on standard output must be the only output there.
        if not options.check and "-" in ([options.output] if options.output else options.files):
            stream = sys.stderr
        _check_targets(options)
        note_targets(options, [options.output] if options.output else options.files, "" if options.output else "signed")
        job = _job(options)
        works = _sign_all(job, progress) if options.cards_from is None else _sign_lines(job, progress)
    except BrokenPipeError:
        raise
    except (TrustError, OSError) as error:
        details: dict[str, Any] = {}
        if progress.written:
            details["written"] = progress.written
            warn(f"these cards were signed and written before the error: {', '.join(progress.written)}")
        code = exit_of(error)
        return report_failure(
            "sign", error, as_json=options.json, code=code, file=progress.at, stream=stream, details=details
        )
    return _report(works, job, stream)


def _job(options: argparse.Namespace) -> _Job:
    now = time.time()
    exp = None if options.expires is None else moment(options.expires, now, "--expires")
    until = now
    if options.expires_within is not None:
        until += duration(options.expires_within, "--expires-within").total_seconds()
        if exp is not None and exp <= until:
            raise ConfigurationError(
                "--expires-within: every new signature would expire within that time; give a later --expires"
            )
    try:
        signers = load_signers(options.key, options.kid, options.alg)
    except MalformedError as error:
        raise ConfigurationError(str(error)) from None  # the operator's key is wrong, not a card
    for signer in signers:
        if not signer.public_key.is_valid_at(now):
            raise ConfigurationError(
                f"the key {signer.kid!a} is revoked or not valid now, according to nbf, exp or revoked in its JWK; "
                "sign with another key: --key FILE"
            )
    claims = make_claims(tuple(signers), now, iat=False if options.no_iat else None, exp=exp, jku=options.jku)
    return _Job(options=options, signers=signers, claims=claims, now=now, until=until)


def _sign_all(job: _Job, progress: _Progress) -> list[_Work]:
    """Sign every card, then write the cards that have to be signed. Nothing is written when a card cannot be signed."""
    options, works, failures = job.options, list[_Work](), 0
    count = 1 if "-" in options.files else None  # only we can read standard input
    with Progress(len(options.files)) as shown:
        for work in on_all_cores(partial(_work, job), options.files, count):
            works.append(work)
            failures += work.error is not None
            shown.show(len(works), failures)
    if not (options.check or failures):
        folders = set[Path]()
        try:
            for number, work in enumerate(works):
                if work.reason is not None or work.target == "-":
                    progress.at = work.target
                    works[number] = _write_card(work, job, folders)
                    progress.written.append(work.target)
        finally:
            for folder in folders:
                flush_folder(folder)
    return works


def _write_card(work: _Work, job: _Job, folders: set[Path]) -> _Work:
    """Write a card; ``folders`` gets its folder, which has to be flushed.

    A card that has changed since it was read is read and signed again, under the lock of its file.
    """
    if work.target == "-":
        put_document(work.data)
        return work
    with FileToWrite(Path(work.target), Over.ANYTHING if work.read is None else Over.WHAT_WAS_READ) as file:
        file.lock()
        if work.read is not None and _digest(data := file.read(strict_json.MAX_BYTES + 1)) != work.read:
            work = _sign(work.name, work.target, data, job)
        if work.reason is not None:
            file.prepare(work.data)
            file.commit(folders.add)
    return work


def _sign_lines(job: _Job, progress: _Progress) -> list[_Work]:
    """Sign the card in each line, and write the lines to --output when all are signed."""
    options = job.options
    works: list[_Work] = []

    def signed_lines() -> Iterator[bytes]:
        with Progress(None) as shown:
            for work in on_all_cores(partial(_sign_line, job), card_sources(options)):
                works.append(replace(work, data=b""))
                shown.show(len(works), 0)
                yield work.data + b"\n"

    if options.check:
        for _ in signed_lines():
            pass
        return works
    progress.at = options.output
    if options.output == "-":
        from tempfile import TemporaryFile  # slow to import

        with TemporaryFile() as file:
            file.writelines(signed_lines())
            file.seek(0)
            if not any(work.error is not None for work in works):
                while part := file.read(1_048_576):
                    put_document(part)
        return works
    with FileToWrite(Path(options.output), Over.ANYTHING) as target:
        target.lock()
        target.prepare(signed_lines())
        if not any(work.error is not None for work in works):
            target.commit()
    return works


def _sign_line(job: _Job, card: NamedCard) -> _Work:
    """The outcome for the card in a line; its ``data`` is the whole line."""
    from a2a_trust.signing.lines import read_line  # msgspec is slow to import

    try:
        line = read_line(card.line or b"")
        work = _sign(card.name, card.name, line.card, job)
    except (TrustError, OSError) as error:
        return _rejected(card.name, card.name, error)
    return replace(work, data=line.with_card(work.data))


def _rejected(name: str, target: str, error: TrustError | OSError) -> _Work:
    findings = {"findings": list(map(asdict, error.findings))} if isinstance(error, _RejectedCardError) else {}
    return _Work(name=name, target=target, error=error, entry=findings)


def _work(job: _Job, name: str) -> _Work:
    """Read one card, and sign it if it has to be signed."""
    target = job.options.output or name
    try:
        data = read_input(name)
        work = _sign(name, target, data, job)
    except (TrustError, OSError) as error:
        return _rejected(name, target, error)
    in_place = name != "-" and Path(name).is_file() and os.path.realpath(name) == os.path.realpath(target)
    return replace(work, read=_digest(data)) if in_place else work


def _digest(data: bytes) -> bytes:
    from hashlib import sha256  # slow to import

    return sha256(data).digest()


def _check_targets(options: argparse.Namespace) -> None:
    if options.cards_from is not None:
        _check_lines(options)
    if len(options.files) > 1:
        if options.output:
            raise ConfigurationError(
                "-o works with one card only; sign several cards in place, or run once for each card"
            )
        if "-" in options.files:
            raise ConfigurationError("- (standard input) must be the only card; name files, or run once for each card")
    compares = options.check or options.if_needed
    if options.output and compares and options.cards_from is None:
        raise ConfigurationError("--check and --if-needed are for cards that are signed in place; leave out -o")
    if options.expires_within is not None and not compares:
        raise ConfigurationError("--expires-within works only with --if-needed or --check; add one of them")
    check_not_secret(map(Path, [options.output] if options.output else options.files), options.key)
    if options.output == "":
        raise ConfigurationError("-o needs a file name, or - for standard output")
    if unknown := sorted({*options.allow} - {*_REJECTED}):
        raise ConfigurationError(
            f"--allow {unknown[0]}: this rule cannot be allowed; these can: {', '.join(_REJECTED)}"
        )


def _check_lines(options: argparse.Namespace) -> None:
    if options.files:
        raise ConfigurationError(
            "--cards-from: the lines are the cards; leave out the other files, or run once for each"
        )
    if bool(options.output) == options.check:
        raise ConfigurationError("--cards-from needs -o FILE for the signed lines (- is standard output), or --check")
    paths = [Path(name) for name in (options.cards_from, options.output) if name and name != "-"]
    if len(paths) == 2 and all(path.exists() for path in paths) and paths[0].samefile(paths[1]):
        raise ConfigurationError("--cards-from and -o are one file; write the signed lines to another file")


def _sign(name: str, target: str, data: bytes, job: _Job) -> _Work:
    options = job.options
    read, signers = reader_for(options), tuple(job.signers)
    unsigned, drops = card_to_sign(data, read), options.drop_broken
    signed = sign_unchecked(signers, job.claims, unsigned, drop_broken=drops, companion=options.companion)
    original = strict_json.parse(data, what="card")
    if not original.get("name"):  # every generation requires it; key sets and package files do not have it
        raise MalformedError(
            "card: /name is missing or empty, so this is not an Agent Card; nothing was signed. Name another file, or "
            "add the agent's name"
        )
    findings = errors_in(data)
    rejected = [finding for finding in findings if finding.rule in _REJECTED and finding.rule not in options.allow]
    if rejected:
        raise _RejectedCardError(name, rejected)
    reason: str | None = ""
    if options.check or options.if_needed:
        reason = reason_to_sign(data, original, signed, job.signers, now=job.now, until=job.until, read=read)
    if reason is not None:
        # The text is what will be written, so that is checked.
        data = rewrite(data.decode("utf-8"), original, signed.card).encode("utf-8")
        check_served(read(data), signed)
    entry = {
        "companion": signed.companion,
        "left_open": list(signed.left_open),
        "normalized": list(signed.normalized),
        "findings": list(map(asdict, findings)),
    }
    return _Work(
        name=name,
        target=target,
        data=data,
        reason=reason,
        findings=findings,
        entry=entry,
        notes=signed.notes_naming(_OPTIONS),
    )


def _report(works: list[_Work], job: _Job, stream: TextIO | None) -> Exit:
    options, noted = job.options, 0
    results, is_given_up = Results("sign", options.json, stream), any(work.error is not None for work in works)
    for work in works:
        status, code = _status(work, options, is_given_up=is_given_up)
        is_new = status in (_Status.SIGNED, _Status.TO_SIGN)
        notes = list(work.notes) if is_new else []
        is_done = status in (_Status.SIGNED, _Status.UNCHANGED)
        outcome = None if status is _Status.NOT_WRITTEN else class_of(code)
        entry = {**_members(work, job.signers), "ok": is_done, "class": outcome, "status": status, "notes": notes}
        results.add(entry, code, status.replace("-", " "))
        if not options.json:
            _put(work, status, job, stream)
        if not (options.json or options.quiet):
            noted += bool(notes)
            for note in notes if len(works) == 1 else ():
                put(f"  note: {printable(note)}; see {_NOTES}", stream)
    if noted and len(works) > 1:
        put(f"notes on {noted} of the cards: --json shows them; see {_NOTES}", stream)
    return results.put()


def _status(work: _Work, options: argparse.Namespace, *, is_given_up: bool) -> tuple[_Status, Exit]:
    if work.error is not None:
        return _Status.REJECTED, exit_of(work.error)
    if work.reason is None:
        return _Status.UNCHANGED, Exit.OK
    if options.check:
        return _Status.TO_SIGN, Exit.INVALID
    return (_Status.NOT_WRITTEN if is_given_up else _Status.SIGNED), Exit.OK


def _put(work: _Work, status: _Status, job: _Job, stream: TextIO | None) -> None:
    """Print the line of one card, and the errors of lint that it was signed in spite of."""
    quiet, name = job.options.quiet, printable(work.name)
    kids = ", ".join(f"{short_kid(signer.kid)} ({signer.alg})" for signer in job.signers)
    if work.error is not None:
        report_failure("sign", work.error, as_json="", code=exit_of(work.error), file=work.name)
    elif status is _Status.TO_SIGN:
        put(f"{name}: {mark('has to be signed', 'yellow', stream)}: {printable(work.reason)}", stream)
    elif status is _Status.UNCHANGED and not quiet:
        put(f"{name}: unchanged, signed by {kids}", stream)
    elif status is _Status.NOT_WRITTEN and not quiet:
        put(f"{name}: not written, because another card was rejected", stream)
    elif status is _Status.SIGNED and not quiet:
        arrow = "" if work.target in ("-", work.name) else f" -> {printable(work.target)}"
        put(f"{name}{arrow}: {mark('signed', 'green', stream)} by {kids}", stream)
    for finding in work.findings if not quiet else ():
        warn(f"{work.name}:{finding.pointer} {finding.rule}: {finding.message}")


_OPTIONS: Final = Arguments(
    companion="--companion", no_companion="--no-companion", no_iat="--no-iat", end="--expires 90d"
)


def _members(work: _Work, signers: list[LocalSigner]) -> dict[str, Any]:
    if work.error is not None:
        code, message = word_of(work.error), error_text(work.error, work.name)
        return {"file": work.name, "code": code, "message": message, **work.entry}
    keys = [{"kid": signer.kid, "alg": signer.alg} for signer in signers]
    return {"file": work.name, "output": work.target, "reason": work.reason or None, "keys": keys, **work.entry}
