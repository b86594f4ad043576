"""``a2a-sign probe``: ask running agents whether they enforce what their cards declare."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from a2a_trust.base.workers import in_threads
from a2a_trust.card.view import ApiKeyScheme, CardView
from a2a_trust.cli.card_text import Position
from a2a_trust.cli.file_names import NOT_SHOWN, is_secret
from a2a_trust.cli.progress import note_results
from a2a_trust.cli.report import (
    Exit,
    Results,
    class_of,
    error_text,
    exit_of,
    mark,
    printable,
    put,
    put_json,
    report_failure,
)
from a2a_trust.cli.sources import needing_client, read_input
from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.lint.findings import Finding, Severity

if TYPE_CHECKING:
    from a2a_trust.client.credentials import Credential
    from a2a_trust.probe.probing import ProbeReport

    _Result = tuple[str, Exit, ProbeReport | TrustError | OSError]
    """The URL of an agent, its exit code, and the report, or why there is none."""

_COLORS: Final = {"enforced": "green", "not enforced": "red", "error": "red"}
"""By verdict or severity; all others are yellow."""


def _parse(option: str, default: str, text: str) -> tuple[str, str, str]:
    """Scheme, file and origin. ConfigurationError: it is not SCHEME=FILE[@ORIGIN], or there is no origin."""
    scheme, _, rest = text.partition("=")
    file, _, origin = rest.rpartition("@")
    if not file or not origin.startswith(("https://", "http://")):
        file, origin = rest, default
    if any(map(is_secret, (scheme, file))):
        raise ConfigurationError(f"{option}: {NOT_SHOWN}")
    if not scheme or not file:
        raise ConfigurationError(f"{option}: write SCHEME=FILE[@ORIGIN]")
    if not origin:
        raise ConfigurationError(f"{option} {scheme}: with several agents, name its origin: SCHEME=FILE@ORIGIN")
    return scheme, file, origin


def _credential(view: CardView, name: str, file: str, origin: str) -> Credential:
    """The credential, in the kind of the card's scheme. ConfigurationError: the file is no such secret."""
    from a2a_trust.client.credentials import ApiKey, BasicCredentials, BearerToken, SecretFile, http_scheme

    secret, scheme = SecretFile(file), view.schemes.get(name)
    if isinstance(scheme, ApiKeyScheme):
        return ApiKey(secret, origins=[origin])
    if scheme is None or http_scheme(scheme) != "basic":
        return BearerToken(secret, origins=[origin])
    user, colon, password = secret.read().partition(":")
    if not colon:
        raise ConfigurationError(f"{file}: write USER:PASSWORD on one line, for HTTP Basic")
    return BasicCredentials(user, password, origins=[origin])


def run(options: argparse.Namespace) -> Exit:
    """Probe every agent; the first agent that fails determines the exit code."""
    urls = _urls(options)
    with needing_client("to probe agents"):
        probe = _prepare(options, urls)
    results = Results("probe", options.json)
    note_results(options, len(urls), "agents probed", lambda: results.total)
    probed: list[_Result] = []
    for result in in_threads(probe, urls):
        probed.append(result)
        _, code, report = result
        results.add(_entry(result), code, getattr(report, "verdict", class_of(code)))
        if not options.json:
            _put(result, options)
    if options.sarif:
        _put_sarif(probed)
        return results.exit
    return results.put(what="agents")


def _urls(options: argparse.Namespace) -> list[str]:
    listed = "" if options.list is None else read_input(options.list).decode("utf-8", "replace")
    urls = [*options.urls, *(line.strip() for line in listed.splitlines() if line.strip() and line[0] != "#")]
    if any(map(is_secret, urls)):
        raise ConfigurationError("the URL of an agent has a secret in it, and is not shown; write --credential")
    if not urls:
        raise ConfigurationError("no agent to probe; name its URL, or a list of URLs with --list FILE")
    return [*dict.fromkeys(urls)]


def _prepare(options: argparse.Namespace, urls: list[str]) -> Callable[[str], _Result]:
    """A function that probes the agent at a URL. ConfigurationError, OSError: an option is wrong."""
    from a2a_trust.base.net.fetcher import Fetcher
    from a2a_trust.client.destinations import Destination, named_origins
    from a2a_trust.client.flow import run_on_new_loop
    from a2a_trust.keys.trust.file import TrustFile
    from a2a_trust.probe.probing import ProbeOptions, probe_with, with_this_machine

    default = Destination.origin_of(urls[0]) if len(urls) == 1 else ""
    given = [*map(partial(_parse, "--credential", default), options.credential)]
    lacking = [*map(partial(_parse, "--lacking", default), options.lacking)]
    named = {*options.interface_origin, *(origin for *_, origin in (*given, *lacking))}
    origins = named_origins(named) if named else frozenset()
    trust = None if options.trust is None else TrustFile(options.trust)

    def make(view: CardView) -> tuple[dict[str, Credential], dict[str, Credential]]:
        first, second = ({each[0]: _credential(view, *each) for each in some} for some in (given, lacking))
        return first, second

    def probe(url: str) -> _Result:
        shown = url.partition("?")[0]  # a query may hold a secret
        try:
            private = with_this_machine({Destination.origin_of(url), *origins}) if options.private_origins else ()
            fetcher = Fetcher(private_origins=private)
            settings = ProbeOptions(trust=trust, origins=origins, fetcher=fetcher, allow_tasks=options.allow_tasks)
            report = run_on_new_loop(partial(probe_with, url, settings, make))
        except (TrustError, OSError) as error:
            return shown, exit_of(error), error
        is_strict = options.fail_on == "cannot-tell"
        fails = report.verdict != "enforced" if is_strict else report.verdict == "not enforced"
        return shown, Exit.INVALID if fails else Exit.OK, report

    return probe


def _put(result: _Result, options: argparse.Namespace) -> None:
    url, code, report = result
    if isinstance(report, Exception):
        report_failure("probe", report, as_json=False, code=code, file=url)
    elif not options.sarif:
        if not options.quiet:
            put(f"{printable(report.name[:120])} at {printable(url)}, card {report.card}")
            for line in _lines(report, verbose=options.verbose):
                put(line)
        put(f"{printable(url)}: {_mark_word(report.verdict, report.verdict.upper())}")


def _mark_word(word: str, text: str) -> str:
    return mark(text, _COLORS.get(word, "yellow"), sys.stdout)


def _lines(report: ProbeReport, *, verbose: bool) -> Iterator[str]:
    rows, shown = report.requirements, list[tuple[str, str, str]]()
    for each in rows:
        interface = printable(f"{each.interface.binding[:16]} {each.interface.url[:120]}")
        shown.append((each.verdict.value, printable(each.requirement[:60] or "-"), interface))
    widths = [max(map(len, column), default=0) for column in zip(*shown, strict=True)]
    for row, line in zip(rows, shown, strict=True):
        verdict, requirement, interface = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        proof = "; ".join(row.proof) if row.verdict.endswith("enforced") else row.reason
        yield f"  {_mark_word(row.verdict, verdict)}  {requirement}  {interface}  {printable(proof)}"
    for it in report.findings:
        if it.severity is not Severity.NOTE or verbose:
            level = _mark_word(it.severity, it.severity)
            yield f"  {level} {it.rule} {printable(it.where)}: {printable(it.message)}"
            yield from (f"      {printable(proof)}" for proof in it.proof if verbose)


def _entry(result: _Result) -> dict[str, Any]:
    url, code, report = result
    about = {"message": error_text(report, url)} if isinstance(report, Exception) else asdict(report)
    return {"url": url, "ok": code is Exit.OK, "class": class_of(code), **about} | {"url": url}


def _put_sarif(outcomes: list[_Result]) -> None:
    from a2a_trust.cli.sarif import log_of, notification, result
    from a2a_trust.probe.verdicts import RULES

    results, errors = list[dict[str, Any]](), list[dict[str, Any]]()
    for url, _, report in outcomes:
        if isinstance(report, Exception):
            errors.append(notification(url, report))
            continue
        for it in report.findings:
            fix = ". ".join(it.proof)
            found = Finding(rule=it.rule, severity=it.severity, pointer=it.where, message=it.message, fix=fix)
            results.append(result(url, found, Position(1, 1)))
    put_json(log_of(results, errors, "probe", RULES))
