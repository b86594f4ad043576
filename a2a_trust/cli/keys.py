"""``a2a-sign keys``: make a key ring, show it, revoke a key of it, and write its JWK Set."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from a2a_trust.cli.moments import written
from a2a_trust.cli.report import (
    Exit,
    exit_of_setup,
    failed,
    mark,
    printable,
    put,
    put_report,
    put_table,
)
from a2a_trust.cli.sources import (
    check_not_secret,
    key_file_warnings,
    load_signers,
    naming,
    new_passphrase,
    opened,
)
from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.files.atomic import is_taken, write_atomically
from a2a_trust.keys.keyset import publish_jwks
from a2a_trust.keys.ring_file import load_key_ring, save_key_ring, update_key_ring
from a2a_trust.keys.rotation import KeyRing, KeyState, RingKey, new_ring_key

__all__ = ["changed", "done", "entry", "plan", "present"]


def run(options: argparse.Namespace) -> int:
    """Do what the action is for, with the ring in ``options.file``."""
    return done(f"keys {options.action}", options, _ACTIONS[options.action])


def done(command: str, options: argparse.Namespace, act: Callable[[argparse.Namespace], dict[str, Any]]) -> int:
    """The exit code of a command on a ring, whose report is what ``act`` gives."""
    # Where the key set goes to standard output, nothing else may.
    stream = sys.stderr if getattr(options, "output", None) == "-" else sys.stdout
    try:
        with key_file_warnings(), naming(options.file):
            report = act(options)
    except BrokenPipeError:
        raise
    except (TrustError, OSError) as error:
        return failed(command, error, as_json=options.json, code=exit_of_setup(error), stream=stream)
    if options.json:
        put_report(command, Exit.OK, {"file": options.file, **report}, stream)
    return Exit.OK


def changed(options: argparse.Namespace, change: Callable[[KeyRing], KeyRing]) -> KeyRing:
    """The ring in the file after the change; the passphrase is asked for when a new key needs one."""
    path = Path(options.file)
    try:
        return opened(lambda passphrase: update_key_ring(path, change, passphrase=passphrase), options.file)
    except FileNotFoundError:
        raise _no_ring(options.file) from None


def present() -> float:
    """The next full second, so that what is written for people is what holds."""
    return float(math.ceil(time.time()))


def entry(ring: KeyRing, key: RingKey, now: float) -> dict[str, Any]:
    """What a report in JSON says of a key: no private half."""
    return {
        "kid": key.kid,
        "alg": key.public_key.alg,
        "thumbprint": key.public_key.thumbprint,
        "state": ring.state(key, now),
        "published_at": written(key.published_at),
        "active_from": written(key.active_from),
        "retired_at": written(key.retired_at),
        "removed_at": written(key.removed_at),
        "revoked_at": written(key.revoked_at),
    }


def plan(ring: KeyRing, key: RingKey, now: float) -> str:
    """What a key does, and when that changes."""
    match ring.state(key, now):
        case KeyState.NEXT:
            return f"published, signs from {written(key.active_from)}"
        case KeyState.ACTIVE:
            ends, goes = written(key.retired_at), written(key.removed_at)
            return f"signs until {ends}, published until {goes}" if ends else "signs; no rotation is under way"
        case KeyState.RETIRED:
            return f"signs no more, published until {written(key.removed_at)}"
        case KeyState.REMOVED:
            return "published no more; the next change takes it out of the file"
        case KeyState.REVOKED:
            return f"since {written(key.revoked_at)}; neither signs nor is published"


def _create(options: argparse.Namespace) -> dict[str, Any]:
    path = Path(options.file)
    if options.file in ("", "-") or not path.name:
        raise ConfigurationError("a key ring needs the name of a file, which only you can read")
    if options.kid is not None and options.key is None:
        raise ConfigurationError("--kid names the key of --key; a new key is named by its thumbprint")
    if options.key is not None and options.alg is not None:
        raise ConfigurationError("--alg is for a new key, and --key names one that you have; drop one of them")
    exists = ConfigurationError(f"{path} is there already and is not overwritten; choose another name")
    if is_taken(path):
        raise exists
    first = new_ring_key(options.alg or "ES256") if options.key is None else load_signers([options.key], options.kid)[0]
    ring = KeyRing.begin(first, present(), passphrase=new_passphrase() if options.encrypt else None)
    try:
        save_key_ring(path, ring)
    except FileExistsError:
        raise exists from None
    if not options.json:
        name = printable(shlex.quote(options.file))
        kind = "encrypted" if ring.is_encrypted else "not encrypted"
        put(f"{mark('made', 'green', sys.stdout)} {printable(options.file)}: {first.alg} key {printable(first.kid)}")
        put(f"  signs from now on; keep the file secret: mode 0600, {kind}")
        put(f"  publish:   a2a-sign keys export {name}   gives the key set that verifiers read")
        put(f"  next:      a2a-sign card.json --key {name}")
    return {"kid": first.kid, "alg": first.alg, "encrypted": ring.is_encrypted}


def _list(options: argparse.Namespace) -> dict[str, Any]:
    ring, now = _ring(options.file), time.time()
    if not options.json:
        put_table(
            ("KID", "ALG", "STATE", "WHAT IT DOES"),
            [(printable(key.kid), key.public_key.alg, ring.state(key, now), plan(ring, key, now)) for key in ring.keys],
        )
    return {"encrypted": ring.is_encrypted, "keys": [entry(ring, key, now) for key in ring.keys]}


def _revoke(options: argparse.Namespace) -> dict[str, Any]:
    now = present()
    before: list[KeyRing] = []

    def revoke(ring: KeyRing) -> KeyRing:
        before.append(ring)
        return ring.revoke(options.kid, now)

    ring = changed(options, revoke)
    active = ring.active(now)
    was_active = before[-1].active(now).kid == options.kid
    if not options.json:
        name = printable(shlex.quote(options.file))
        put(f"{mark('revoked', 'green', sys.stdout)} {printable(options.kid)}")
        put(f"  {printable(active.kid)} {'signs from now on' if was_active else plan(ring, active, now)}")
        put(f"  publish the key set now: a2a-sign keys export {name}   (a server that reads the ring does)")
        if was_active:
            put(f"  sign the cards again:    a2a-sign card.json --key {name}   (a server that signs by the ring does)")
            put("  verifiers that remember the old key set take the new signatures when they have fetched it again")
    entries = [entry(ring, key, now) for key in ring.keys]
    return {"kid": options.kid, "active": active.kid, "was_active": was_active, "keys": entries}


def _export(options: argparse.Namespace) -> dict[str, Any]:
    ring, now = _ring(options.file), time.time()
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


def _ring(name: str) -> KeyRing:
    """The ring, without its passphrase: what is public in it is not encrypted."""
    try:
        return load_key_ring(Path(name))
    except FileNotFoundError:
        raise _no_ring(name) from None


def _no_ring(name: str) -> ConfigurationError:
    return ConfigurationError(
        f"there is no key ring at {name}; make it with its first key: a2a-sign keys create {shlex.quote(name)}"
    )


_ACTIONS: Final = {"create": _create, "list": _list, "revoke": _revoke, "export": _export}
