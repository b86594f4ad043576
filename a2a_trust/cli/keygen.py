"""``a2a-sign keygen``: make a signing key, and the JWK Set with its public half to publish."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Literal

from a2a_trust.cli.report import Exit, exit_of, failed, mark, printable, put, put_json
from a2a_trust.cli.sources import default_key_path, new_passphrase
from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.files.atomic import write_atomically
from a2a_trust.keys.files import save_private_key
from a2a_trust.keys.keyset import publish_jwks
from a2a_trust.keys.signer import generate_signer

__all__ = ["run"]

#: Algorithms that a PEM file implies by its kind of key; others are only remembered in a JWK.
_PEM_TELLS = ("ES256", "ES384", "ES512", "EdDSA", "RS256")


def run(options: argparse.Namespace) -> int:
    """Make the key; never over one that is there."""
    try:
        private, public, alg, kid = _make(options)
    except (TrustError, ConfigurationError, OSError) as error:
        # There is no card here: whatever is wrong is wrong with what was asked for.
        code = exit_of(error) if isinstance(error, OSError) else Exit.USAGE
        return failed("keygen", error, as_json=options.json, code=code)
    if options.json:
        report = {"kid": kid, "alg": alg, "private_key": str(private), "jwks": str(public)}
        put_json({"command": "keygen", "ok": True, "exit": Exit.OK, **report})
        return Exit.OK
    key = "" if options.output is None else f"--key {shlex.quote(str(private))} "
    put(f"{mark('made', 'green', sys.stdout)} {alg} key {printable(kid)}")
    put(f"  private key: {printable(private)}   keep it secret; mode 0600")
    put(f"  public keys: {printable(public)}   publish it; verifiers read it")
    put(f"  next:        a2a-sign {printable(key)}card.json")
    return Exit.OK


def _make(options: argparse.Namespace) -> tuple[Path, Path, str, str]:
    private = default_key_path() if options.output is None else Path(options.output)
    if options.output in ("", "-") or not private.name:
        raise ConfigurationError("-o needs the name of a file: a private key goes into one that only you can read")
    public = private.with_name(f"{private.stem}.jwks.json")
    for path in (private, public):
        if path.exists():
            raise ConfigurationError(f"{path} is there already and is not overwritten; move it away, or choose -o FILE")
    signer = generate_signer(options.alg, kid=options.kid)
    fits_pem = options.kid is None and signer.alg in _PEM_TELLS
    if options.format == "pem" and not fits_pem:
        raise ConfigurationError("PEM can hold neither --kid nor this --alg; use --format jwk")
    chosen: Literal["pem", "jwk"] = options.format or ("pem" if fits_pem else "jwk")
    passphrase = new_passphrase() if options.encrypt else None
    if options.output is None:
        private.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    save_private_key(private, signer, format=chosen, passphrase=passphrase)
    jwks = json.dumps(publish_jwks([signer.public_key]), indent=2)
    write_atomically(public, f"{jwks}\n".encode(), mode=0o644)
    return private, public, signer.alg, signer.kid
