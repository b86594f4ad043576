"""``a2a-sign keys``: key rings, and the export of their JWK Sets."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from a2a_trust.base.files.atomic import is_taken, write_atomically
from a2a_trust.cli.moments import duration, rfc3339
from a2a_trust.cli.progress import note_targets
from a2a_trust.cli.report import mark, printable, put, put_table
from a2a_trust.cli.sources import check_not_secret, key_file_warnings, load_signers, naming, new_passphrase, unlock
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.jwk import publish_jwks
from a2a_trust.keys.ring_file import load_key_ring, save_key_ring, update_key_ring
from a2a_trust.keys.rotation import KeyRing, KeyState, RingKey, new_ring_key


def run(options: argparse.Namespace) -> dict[str, Any]:
    note_targets(options, [getattr(options, "output", options.file)])
    with key_file_warnings(), naming(options.file):
        return {"file": options.file, **_ACTIONS[options.action](options)}


def _change(options: argparse.Namespace, change: Callable[[KeyRing], KeyRing]) -> KeyRing:
    """The ring in the file after the change; asks for the passphrase if a new key needs one."""
    with _existing(options.file) as path:
        return unlock(lambda passphrase: update_key_ring(path, change, passphrase=passphrase), options.file)


def _next_second() -> float:
    """The next full second, so that the times shown to people are exact."""
    return float(math.ceil(time.time()))


_TIMES: Final = ("published_at", "active_from", "retired_at", "removed_at", "revoked_at")


def _entry(ring: KeyRing, key: RingKey, now: float) -> dict[str, Any]:
    """The entry for a key in a JSON report, without the private key."""
    return {
        "kid": key.kid,
        "alg": key.public_key.alg,
        "thumbprint": key.public_key.thumbprint,
        "state": ring.state(key, now),
        **{name: rfc3339(getattr(key, name)) for name in _TIMES},
    }


def _plan(ring: KeyRing, key: RingKey, now: float) -> str:
    """The job of a key now, and when that changes."""
    match ring.state(key, now):
        case KeyState.NEXT:
            return f"published, signs from {rfc3339(key.active_from)}"
        case KeyState.ACTIVE:
            ends, goes = rfc3339(key.retired_at), rfc3339(key.removed_at)
            return f"signs until {ends}, published until {goes}" if ends else "signs; no rotation is under way"
        case KeyState.RETIRED:
            return f"does not sign, published until {rfc3339(key.removed_at)}"
        case KeyState.REMOVED:
            return "not published; the next change of the ring removes it from the file"
        case KeyState.REVOKED:
            return f"since {rfc3339(key.revoked_at)}; neither signs nor is published"


def _create(options: argparse.Namespace) -> dict[str, Any]:
    path = Path(options.file)
    if options.file in ("", "-") or not path.name:
        raise ConfigurationError(f"RING {options.file!a}: a key ring is secret, so name a file that only you can read")
    if options.kid is not None and options.key is None:
        raise ConfigurationError("--kid works only with --key; the name of a new key is its thumbprint")
    exists = ConfigurationError(f"{path} exists already and is not overwritten; choose another name")
    if is_taken(path):
        raise exists
    if options.key is None:
        first = new_ring_key(options.alg or "ES256")
    else:
        first = load_signers([options.key], options.kid, options.alg)[0]
    ring = KeyRing.begin(first, _next_second(), passphrase=new_passphrase() if options.encrypt else None)
    try:
        save_key_ring(path, ring)
    except FileExistsError:
        raise exists from None
    if not options.json:
        name = printable(shlex.quote(options.file))
        kind = "encrypted" if ring.is_encrypted else "not encrypted"
        put(f"{mark('made', 'green', sys.stdout)} {printable(options.file)}: {first.alg} key {printable(first.kid)}")
        put(f"  signs from now on; keep the file secret: mode 0600, {kind}")
        put(f"  publish:   a2a-sign keys export {name} -o published.json   writes the key set that verifiers read")
        put(f"  next:      a2a-sign card.json --key {name}")
    return {"kid": first.kid, "alg": first.alg, "encrypted": ring.is_encrypted}


def _list(options: argparse.Namespace) -> dict[str, Any]:
    with _existing(options.file) as path:  # no passphrase, because only private keys are encrypted
        ring, now = load_key_ring(path), time.time()
    if not options.json:
        plans = [(key, ring.state(key, now), _plan(ring, key, now)) for key in ring.keys]
        rows = [(printable(key.kid), key.public_key.alg, state, plan) for key, state, plan in plans]
        put_table(("KID", "ALG", "STATE", "JOB"), rows)
    return {"encrypted": ring.is_encrypted, "keys": [_entry(ring, key, now) for key in ring.keys]}


def _revoke(options: argparse.Namespace) -> dict[str, Any]:
    now = _next_second()
    before: list[KeyRing] = []

    def revoke(ring: KeyRing) -> KeyRing:
        before.append(ring)
        return ring.revoke(options.kid, now)

    ring = _change(options, revoke)
    active = ring.active(now)
    was_active = before[-1].active(now).kid == options.kid
    was_revoked = next((key.revoked_at for key in before[-1].keys if key.kid == options.kid and key.is_revoked), None)
    if not options.json:
        name = printable(shlex.quote(options.file))
        put(f"{mark('revoked', 'green', sys.stdout)} {printable(options.kid)}")
        if was_revoked is not None:
            put(f"  it was revoked before, at {rfc3339(was_revoked)}")
        put(f"  {printable(active.kid)} {'signs from now on' if was_active else _plan(ring, active, now)}")
        put(f"  publish the key set now: a2a-sign keys export {name} -o published.json   (servers with the ring do so)")
        if was_active:
            put(f"  sign the cards again:    a2a-sign card.json --key {name}   (a server with this ring does this)")
            put("  verifiers with the old key set in a cache accept the new signatures after they fetch the new one")
    entries = [_entry(ring, key, now) for key in ring.keys]
    return {
        "kid": options.kid,
        "active": active.kid,
        "was_active": was_active,
        "was_revoked": was_revoked is not None,
        "keys": entries,
    }


def _rotate(options: argparse.Namespace) -> dict[str, Any]:
    """Add a key that is published now and signs after the overlap; nothing changes if the ring has such a key."""
    now = _next_second()
    overlap, keep = (duration(getattr(options, name), f"--{name}").total_seconds() for name in ("overlap", "keep"))
    new = None if options.alg is None else new_ring_key(options.alg)
    under_way: list[bool] = []

    def rotate(ring: KeyRing) -> KeyRing:
        under_way.append(ring.next(now) is not None)
        return ring.rotate(now, overlap=overlap, keep=keep, new=new)

    ring = _change(options, rotate)
    active, following = ring.active(now), ring.next(now)
    if following is None:
        raise AssertionError("a rotation leaves a key that follows")
    if not options.json:
        name, when = printable(shlex.quote(options.file)), rfc3339(following.active_from)
        if under_way[-1]:
            put(f"{printable(options.file)}: a rotation is under way already; nothing was changed")
        else:
            put(f"{mark('rotating', 'green', sys.stdout)} {printable(options.file)}")
        put(f"  next:   {printable(following.kid)} ({following.public_key.alg}) {_plan(ring, following, now)}")
        put(f"  active: {printable(active.kid)} ({active.public_key.alg}) {_plan(ring, active, now)}")
        put(f"  now:    a2a-sign keys export {name} -o published.json   and publish it (servers with the ring do so)")
        put(f"  then:   a2a-sign card.json --key {name}   from {when} on (a server that signs with the ring does this)")
    return {
        "rotated": not under_way[-1],
        "active": active.kid,
        "next": following.kid,
        "signs_from": rfc3339(following.active_from),
        "keys": [_entry(ring, key, now) for key in ring.keys],
    }


def _export(options: argparse.Namespace) -> dict[str, Any]:
    with _existing(options.file) as path:  # no passphrase, because only private keys are encrypted
        ring, now = load_key_ring(path), time.time()
    jwks = publish_jwks(ring.published(now))
    data = f"{json.dumps(jwks, indent=2)}\n"
    if options.output == "-":
        if sys.stdout is None:
            raise OSError("standard output is closed")
        sys.stdout.write(data)
        sys.stdout.flush()
    else:
        target = Path(options.output)
        check_not_secret([target], [options.file])
        write_atomically(target, data.encode())
        if not options.json:
            number = len(jwks["keys"])
            keys = "1 public key" if number == 1 else f"{number} public keys"
            put(f"{mark('wrote', 'green', sys.stdout)} {printable(options.output)}: {keys}")
    return {"output": options.output, "kids": [member["kid"] for member in jwks["keys"]]}


@contextmanager
def _existing(name: str) -> Iterator[Path]:
    """In the block, the error for a missing ring says how to make one."""
    try:
        yield Path(name)
    except FileNotFoundError:
        raise ConfigurationError(
            f"there is no key ring at {name}; to make one with its first key: a2a-sign keys create {shlex.quote(name)}"
        ) from None


_ACTIONS: Final = {"create": _create, "list": _list, "revoke": _revoke, "rotate": _rotate, "export": _export}
