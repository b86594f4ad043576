"""``a2a-sign keygen``: make a signing key, and the JWK Set that publishes its public key."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any, Literal

from a2a_trust.base.files.atomic import FileToWrite, Over, is_taken
from a2a_trust.cli.progress import hold_signals, note_targets
from a2a_trust.cli.report import mark, printable, put
from a2a_trust.cli.sources import default_key_path, new_passphrase
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.files import private_key_bytes
from a2a_trust.keys.jwk import publish_jwks
from a2a_trust.keys.signer import LocalSigner, generate_signer

#: Algorithms that follow from the kind of key in a PEM file. Only a JWK can hold the others.
_IN_ENCRYPTED_PEM = ("ES256", "ES384", "ES512", "EdDSA")
_IN_PEM = (*_IN_ENCRYPTED_PEM, "RS256")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Make the key; an existing key is never overwritten."""
    private, public, signer = _make(options)
    if not options.json:
        _put(private, public, signer, options)
    return {"kid": signer.kid, "alg": signer.alg, "private_key": str(private), "jwks": str(public)}


def _put(private: Path, public: Path, signer: LocalSigner, options: argparse.Namespace) -> None:
    key = "" if options.output is None else f"--key {shlex.quote(options.output)} "
    about = "keep it secret; mode 0600"
    if private.suffix == ".pem" and _format(options, signer.alg) == "jwk":
        about += f"; a JWK, because PEM {'protects less' if options.encrypt else 'cannot hold --kid or this --alg'}"
    put(f"{mark('made', 'green', sys.stdout)} {signer.alg} key {printable(signer.kid)}")
    put(f"  private key: {printable(private)}   {about}")
    put(f"  public keys: {printable(public)}   publish it; verifiers read it")
    put(f"  next:        a2a-sign {printable(key)}card.json")


def _make(options: argparse.Namespace) -> tuple[Path, Path, LocalSigner]:
    """The files with the private key and its JWK Set, and the key.

    Both files are prepared before the first is put in place, so a failed write leaves neither.
    """
    private = default_key_path() if options.output is None else Path(options.output)
    if options.output in ("", "-") or not private.name:
        raise ConfigurationError(
            f"-o {options.output!a}: a private key is secret, so name a file, which only you can read"
        )
    public = private.with_name(f"{private.stem}.jwks.json")
    note_targets(options, map(str, (private, public)))
    for path in (private, public):
        if is_taken(path):
            raise _exists_error(path)
    signer = generate_signer(options.alg, kid=options.kid)
    chosen = _format(options, signer.alg)
    data = private_key_bytes(signer, format=chosen, passphrase=new_passphrase() if options.encrypt else None)
    if options.output is None:
        private.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    jwks = f"{json.dumps(publish_jwks([signer.public_key]), indent=2)}\n".encode()
    try:
        with FileToWrite(private, Over.NOTHING) as first, FileToWrite(public, Over.NOTHING) as second:
            second.prepare(jwks, mode=0o644)
            first.prepare(data, mode=0o600)
            with hold_signals():
                first.commit()
                second.commit()
    except FileExistsError as error:
        raise _exists_error(error.filename) from None
    return private, public, signer


def _exists_error(path: Path | str) -> ConfigurationError:
    return ConfigurationError(f"{path} exists already and is not overwritten; move it away, or choose -o FILE")


def _format(options: argparse.Namespace, alg: str) -> Literal["pem", "jwk"]:
    fits_pem = options.kid is None and alg in (_IN_ENCRYPTED_PEM if options.encrypt else _IN_PEM)
    if options.format == "pem" and not fits_pem:
        raise ConfigurationError("--format pem: PEM cannot hold --kid or this --alg; use --format jwk")
    chosen: Literal["pem", "jwk"] | None = options.format
    return chosen or ("pem" if fits_pem and not options.encrypt else "jwk")
