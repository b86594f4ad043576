"""``a2a-sign memory``: show the card memory, accept new keys of an agent, and forget an agent."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, Final

from a2a_trust.cli.moments import rfc3339
from a2a_trust.cli.progress import note_transaction
from a2a_trust.cli.report import mark, printable, put, put_table
from a2a_trust.cli.sources import default_memory_path, naming
from a2a_trust.cli.stores import card_memory, memory_name
from a2a_trust.client.memory import Remembered, acceptance


def run(options: argparse.Namespace) -> dict[str, Any]:
    name = str(default_memory_path()) if options.file is None else memory_name(options.file)
    note_transaction(options)
    with naming(name):
        return {"file": name, **_ACTIONS[options.action](options.file or name, options)}


def _list(memory: str, options: argparse.Namespace) -> dict[str, Any]:
    records = card_memory(memory).records()
    if not options.json:
        heads = ("LOCATION", "KEYS FROM", "SIGNED", "VERSION", "FIRST SEEN", "LAST SEEN", "THUMBPRINTS")
        put_table(heads, map(_row, records))
    return {"records": [_entry(record) for record in records]}


def _accept(memory: str, options: argparse.Namespace) -> dict[str, Any]:
    acceptance(options.location, options.thumbprints)  # check the arguments before a file is made
    if options.file is None:
        Path(memory).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    record = card_memory(memory, create=True).accept(options.location, options.thumbprints, now=time.time())
    if not options.json:
        put(f"{mark('accepted', 'green', sys.stdout)} {record.location}")
        put(f"  only these keys are trusted there on first use: {_thumbprints(record)}")
        put("  keys that a trust file or trust store names for this host take precedence")
        if "?" in record.location:
            put("  the query (from ? on) counts only for clients that name this URL in cards=; else leave it out")
    return _entry(record)


def _forget(memory: str, options: argparse.Namespace) -> dict[str, Any]:
    record = card_memory(memory).forget(options.location)
    if not options.json:
        put(f"{mark('forgot', 'green', sys.stdout)} {record.location}")
        put(f"  its keys were: {_thumbprints(record)}")
        put("  the next card from there is its first card again. With trust on first use its key is then trusted.")
        put("  Cards at other locations may name the URLs of its interfaces, also if they are older.")
        put("  If other agents of the host are remembered, the key must be one that was trusted on first use for them.")
    return _entry(record)


def _entry(record: Remembered) -> dict[str, Any]:
    return {
        "location": record.location,
        "thumbprints": sorted(record.thumbprints),
        "on_first_use": record.on_first_use,
        "issued": rfc3339(record.issued),
        "version": record.version,
        "first_seen": rfc3339(record.first_seen),
        "last_seen": rfc3339(record.last_seen),
    }


def _row(record: Remembered) -> tuple[str, ...]:
    return (
        record.location,
        "first use" if record.on_first_use else "trust store",
        rfc3339(record.issued) or "-",
        "-" if record.version is None else printable(record.version),
        rfc3339(record.first_seen) or "",
        rfc3339(record.last_seen) or "",
        _thumbprints(record),
    )


def _thumbprints(record: Remembered) -> str:
    return ", ".join(sorted(record.thumbprints))


_ACTIONS: Final = {"list": _list, "accept": _accept, "forget": _forget}
