"""``a2a-sign rotate``: add the next signing key to a ring. It is published now, and signs after the overlap."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any

from a2a_trust.cli.keys import changed, done, entry, plan, present
from a2a_trust.cli.moments import duration, rfc3339
from a2a_trust.cli.report import mark, printable, put
from a2a_trust.keys.rotation import KeyRing, new_ring_key


def run(options: argparse.Namespace) -> int:
    """Add a key that is published now and signs later; change nothing if the ring has such a key already."""
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
        name, when = printable(shlex.quote(options.file)), rfc3339(following.active_from)
        if under_way[-1]:
            put(f"{printable(options.file)}: a rotation is under way already; nothing was changed")
        else:
            put(f"{mark('rotating', 'green', sys.stdout)} {printable(options.file)}")
        put(f"  next:   {printable(following.kid)} ({following.public_key.alg}) {plan(ring, following, now)}")
        put(f"  active: {printable(active.kid)} ({active.public_key.alg}) {plan(ring, active, now)}")
        put(
            f"  now:    a2a-sign keys export {name}   and publish this key set (a server that reads the ring does this)"
        )
        put(f"  then:   a2a-sign card.json --key {name}   from {when} on (a server that signs with the ring does this)")
    return {
        "rotated": not under_way[-1],
        "active": active.kid,
        "next": following.kid,
        "signs_from": rfc3339(following.active_from),
        "keys": [entry(ring, key, now) for key in ring.keys],
    }
