"""The command line of the benchmarks: runs rows and prints a table."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from time import perf_counter, time
from typing import Final

from benchmarks import bulk, canonical, commands, many_cards, proofs, signatures, whole_cards
from benchmarks.auth_env import auth_environment, in_auth_environment, run_there
from benchmarks.rounds import Result, Row, run
from benchmarks.sdk import MISSING, SDK_VERSION, SdkWorker, find_sdk
from benchmarks.setting import Setting


def _rows_client_auth(setting: Setting) -> Iterator[Row]:
    from benchmarks.client_auth import rows  # httpx is not in the environment of the servers' peers

    return rows(setting)


def _rows_databases(setting: Setting) -> Iterator[Row]:
    from benchmarks.databases import rows  # asyncpg is not there either

    return rows(setting)


def _rows_grpc(setting: Setting) -> Iterator[Row]:
    from benchmarks.grpc_calls import rows  # nor is grpcio

    return rows(setting)


def _rows_observers(setting: Setting) -> Iterator[Row]:
    from benchmarks.observers import rows  # nor is the SDK of OpenTelemetry

    return rows(setting)


def _rows_proxies(setting: Setting) -> Iterator[Row]:
    from benchmarks.proxies import rows  # httpx again

    return rows(setting)


#: Rows that need peers which have no place in our own environment; imported there.
_AUTH_ROWS: Final = {
    "tokens": ("benchmarks.tokens", "rows_tokens"),
    "dpop": ("benchmarks.dpop", "rows"),
    "api-keys": ("benchmarks.api_keys", "rows"),
    "passwords": ("benchmarks.passwords", "rows"),
    "requests": ("benchmarks.requests", "rows_in_process"),
    "calls": ("benchmarks.requests", "rows_of_calls"),
    "agents": ("benchmarks.requests", "rows_of_agents"),
    "served": ("benchmarks.requests", "rows_served"),
}

_ROWS: Final[dict[str, Callable[[Setting], Iterator[Row]]]] = {
    "canonical": canonical.rows_from_dict,
    "parse": canonical.rows_from_bytes,
    "verify": signatures.rows_verify,
    "verify-card": whole_cards.rows_verify_card,
    "trust-files": whole_cards.rows_trust_files,
    "sign": signatures.rows_sign,
    "sign-card": whole_cards.rows_sign_card,
    "many": many_cards.rows,
    "bulk": bulk.rows,
    "commands": commands.rows,
    "proofs": proofs.rows,
    "databases": _rows_databases,
    "client-auth": _rows_client_auth,
    "observers": _rows_observers,
    "proxies": _rows_proxies,
    "grpc": _rows_grpc,
}


def main() -> int:
    """Measure and print; the exit code says nothing of speed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: orientation in seconds")
    parser.add_argument("--row", action="append", choices=[*_ROWS, *_AUTH_ROWS], help="only this; may be repeated")
    parser.add_argument("--results", type=Path, metavar="FILE", help="append each row to this file of JSON Lines")
    options = parser.parse_args()
    wanted = options.row or [*_ROWS, *_AUTH_ROWS]
    of_servers = [name for name in wanted if name in _AUTH_ROWS]
    others = [name for name in wanted if name not in of_servers]
    if others:
        _measure(others, quick=options.quick, with_sdk=True, into=options.results)
    if of_servers:
        python = None if in_auth_environment() else auth_environment()
        if python is not None:
            passed_on = ["--quick"] if options.quick else []
            passed_on += ["--results", str(options.results.resolve())] if options.results else []
            return run_there(python, *passed_on, *(part for name in of_servers for part in ("--row", name)))
        _measure(of_servers, quick=options.quick, with_sdk=False, into=options.results)
    return 0


def _measure(wanted: list[str], *, quick: bool, with_sdk: bool, into: Path | None) -> None:
    started = perf_counter()
    python = find_sdk() if with_sdk else None
    versions = _versions(f"a2a-sdk {SDK_VERSION} in its own process" if python else "")
    print(versions)
    print("Medians over interleaved rounds; best: of the least disturbed tenth. Ratios hold, times do not.")
    missed = []
    with ExitStack() as stack:
        sdk = stack.enter_context(SdkWorker(python)) if python else None
        setting = Setting(sdk=sdk, quick=quick)
        if with_sdk and sdk is None:
            setting.leave_out(MISSING)
        for name in wanted:
            for row in _rows(name)(setting):
                results = run(row)
                _print_row(name, row, results)
                if into is not None:
                    _append(into, name, row, results, versions)
                missed += [
                    f"[{name}] {row.title}: {result.name}: {_measured(result)}, wanted {_target(result)}"
                    for result in results
                    if result.verdict
                ]
    print(f"\n{perf_counter() - started:.0f} s in all. ", end="")
    print("Every target is met." if not missed else "Targets missed:\n  " + "\n  ".join(missed))
    for line in setting.left_out:
        print(f"*** {line} ***", file=sys.stderr)


def _rows(name: str) -> Callable[[Setting], Iterator[Row]]:
    if name in _ROWS:
        return _ROWS[name]
    module, function = _AUTH_ROWS[name]
    rows: Callable[[Setting], Iterator[Row]] = getattr(import_module(module), function)
    return rows


def _versions(sdk: str) -> str:
    names = ["cryptography", "orjson", "joserfc", "rfc8785", "PyJWT"]
    if in_auth_environment():
        names += ["authlib", "fastmcp", "mcp", "starlette", "fastapi", "uvicorn"]
    versions = [f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in names)]
    return ", ".join([*versions, sdk] if sdk else versions)


def _print_row(name: str, row: Row, results: list[Result]) -> None:
    kind = "rate" if row.as_rate else "time"
    print(f"\n[{name}] {row.title}\n  {'':<44}{kind:>11}{'ratio':>9}{'best':>9}   target")
    for result in results:
        amount = f"{1 / result.seconds:>9,.0f}/s" if row.as_rate else f"{_duration(result.seconds):>11}"
        target = f"   {_target(result)}   {result.verdict or 'met'}" if _target(result) else ""
        ratios = f"{result.ratio:>9.3f}{result.best:>9.3f}"
        print(f"  {result.name:<44}{amount}{ratios}{target}".rstrip())
    print(f"  ratio to {row.baseline}{'; ' if row.notes else ''}{'; '.join(row.notes)}", flush=True)


def _append(file: Path, name: str, row: Row, results: list[Result], versions: str) -> None:
    line = {
        "row": name,
        "title": row.title,
        "baseline": row.baseline,
        "as_rate": row.as_rate,
        "notes": row.notes,
        "versions": versions,
        "measured": int(time()),
        "contenders": {result.name: {"seconds": result.seconds, "ratio": result.ratio} for result in results},
    }
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(line) + "\n")


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms" if seconds >= 0.001 else f"{seconds * 1e6:,.2f} µs"


def _target(result: Result) -> str:
    if result.at_most is not None:
        return f"≤ {_duration(result.at_most)}"
    if result.target is None:
        return ""
    limit = f"{'≥' if result.as_rate else '≤'} {result.target:g}"
    return limit if result.target_to is None else f"{limit} of {result.target_to}: {result.reached:.2f}"


def _measured(result: Result) -> str:
    return f"{result.ratio:.2f}" if result.at_most is None else _duration(result.seconds)


if __name__ == "__main__":
    sys.exit(main())
