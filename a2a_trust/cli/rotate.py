"""``a2a-sign rotate``: bring the next signing key of a ring on its way; time does the rest."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any

from a2a_trust.cli.keys import ALGORITHMS, add_ring_argument, changed, done, entry, plan, present
from a2a_trust.cli.moments import duration, written
from a2a_trust.cli.report import add_json_argument, mark, printable, put
from a2a_trust.keys.rotation import KeyRing, new_ring_key

__all__ = ["add_arguments"]


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Define the arguments of the command, and what runs it."""
    add_ring_argument(command)
    command.add_argument(
        "--overlap",
        default="24h",
        metavar="TIME",
        help="how long the new key is published before it signs: at least the max-age of the key set (default: 24h)",
    )
    command.add_argument(
        "--keep",
        default="91d",
        metavar="TIME",
        help="how long the old key stays published after that: at least the longest --expires and the max-age of the "
        "cards (default: 91d)",
    )
    command.add_argument("--alg", help=f"{ALGORITHMS} (default: as the key before)")
    add_json_argument(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    """Publish a new key now that takes over later; nothing when one is on its way already."""
    return done("rotate", options, _rotate)


def _rotate(options: argparse.Namespace) -> dict[str, Any]:
    now = present()
    overlap, keep = (duration(getattr(options, name), f"--{name}").total_seconds() for name in ("overlap", "keep"))
    new = None if options.alg is None else new_ring_key(options.alg)
    under_way: list[bool] = []

    def rotate(ring: KeyRing) -> KeyRing:
        under_way.append(ring.next(now) is not None)
        return ring.rotate(now, overlap=overlap, keep=keep, new=new)

    ring = changed(options, rotate)
    active, following = ring.active(now), ring.next(now)
    if following is None:
        raise AssertionError("a rotation leaves a key that follows")
    if not options.json:
        name, when = printable(shlex.quote(options.file)), written(following.active_from)
        if under_way[-1]:
            put("a rotation is under way already; nothing was changed")
        else:
            put(f"{mark('rotating', 'green', sys.stdout)} {printable(options.file)}")
        put(f"  next:   {printable(following.kid)} ({following.public_key.alg}) {plan(ring, following, now)}")
        put(f"  active: {printable(active.kid)} ({active.public_key.alg}) {plan(ring, active, now)}")
        put(f"  now:    a2a-sign keys export {name}   publish this key set; a server that reads the ring does")
        put(f"  then:   a2a-sign card.json --key {name}   from {when}; a server that signs by the ring does")
    return {
        "rotated": not under_way[-1],
        "active": active.kid,
        "next": following.kid,
        "signs_from": written(following.active_from),
        "keys": [entry(ring, key, now) for key in ring.keys],
    }
