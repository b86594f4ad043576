"""``a2a-sign database``: make the tables in PostgreSQL, or bring them up to date."""

from __future__ import annotations

import argparse
import sys

from a2a_trust.base.databases.postgres import migrate
from a2a_trust.base.databases.schema import VERSION
from a2a_trust.cli.progress import note_transaction
from a2a_trust.cli.report import Exit, mark, printable, put, put_report
from a2a_trust.cli.stores import COMMAND_SECONDS, postgres_url
from a2a_trust.errors import KeySourceUnavailableError


def run(options: argparse.Namespace) -> Exit:
    note_transaction(options)
    url, only_check = postgres_url(options.url), options.action == "check"
    done = migrate(url, unavailable=KeySourceUnavailableError, timeout=COMMAND_SECONDS, only_check=only_check)
    code = Exit.OK if done.now >= VERSION else Exit.INVALID
    if options.json:
        versions = {"before": done.before, "version": done.now, "needed": VERSION}
        put_report(f"database {options.action}", code, versions)
        return code
    name = printable(options.url)
    if done.now < VERSION:
        put(f"{mark('old', 'red', sys.stdout)} {name}: version {done.now}, and this release needs {VERSION}")
        put(f"  run: a2a-sign database migrate {name}")
    elif done.before == done.now:
        put(f"{mark('ok', 'green', sys.stdout)} {name}: version {done.now}")
    else:
        put(f"{mark('migrated', 'green', sys.stdout)} {name}: from version {done.before} to {done.now}")
        put("  allow the roles of servers what docs/replicas.md lists: they need no right to change tables")
    return code
