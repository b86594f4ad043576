"""``a2a-sign keygen``: make a signing key, and the JWK Set that publishes its public key."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from a2a_trust.base.files.atomic import FileToWrite, Over, is_taken
from a2a_trust.cli.report import Exit, exit_of_setup, mark, printable, put, put_report, report_failure
from a2a_trust.cli.sources import algorithm_option, default_key_path, key_file_warnings, naming, new_passphrase, unlock
from a2a_trust.errors import ConfigurationError, MalformedError, TrustError
from a2a_trust.keys.files import PassphraseNeededError, private_key_bytes, read_key_file, read_private_key
from a2a_trust.keys.jwk import publish_jwks
from a2a_trust.keys.jws import RSA_PADDING
from a2a_trust.keys.signer import LocalSigner, generate_signer

#: Algorithms that follow from the kind of key in a PEM file. Only a JWK can hold the others.
_IN_ENCRYPTED_PEM = ("ES256", "ES384", "ES512", "EdDSA")
_IN_PEM = (*_IN_ENCRYPTED_PEM, "RS256")


@dataclass(frozen=True, slots=True)
class _Made:
    """A key in its two files; ``is_completed``: the private one was there before."""

    private: Path
    public: Path
    signer: LocalSigner
    is_completed: bool


def run(options: argparse.Namespace) -> int:
    """Make the key; an existing key is never overwritten."""
    try:
        made = _make(options)
    except (TrustError, OSError) as error:
        return report_failure("keygen", error, as_json=options.json, code=exit_of_setup(error))
    signer, private = made.signer, str(made.private)
    if options.json:
        files = {"private_key": private, "jwks": str(made.public), "completed": made.is_completed}
        put_report("keygen", Exit.OK, {"kid": signer.kid, "alg": signer.alg, **files})
        return Exit.OK
    key = "" if options.output is None else f"--key {shlex.quote(private)} "
    word = "completed" if made.is_completed else "made"
    about = "existed already, unchanged" if made.is_completed else "keep it secret; mode 0600"
    if made.private.suffix == ".pem" and not made.is_completed and _format(options, signer.alg) == "jwk":
        about += f"; a JWK, because PEM {'protects less' if options.encrypt else 'cannot hold --kid or this --alg'}"
    put(f"{mark(word, 'green', sys.stdout)} {signer.alg} key {printable(signer.kid)}")
    put(f"  private key: {printable(private)}   {about}")
    put(f"  public keys: {printable(made.public)}   publish it; verifiers read it")
    put(f"  next:        a2a-sign {printable(key)}card.json")
    return Exit.OK


def _make(options: argparse.Namespace) -> _Made:
    """Make both files. Both are prepared before the first is put in place, so a failed write leaves neither.

    A command that is killed between the two leaves the private key only. The next run makes the JWK Set from it, if the
    file is a private file of this user.
    """
    private = default_key_path() if options.output is None else Path(options.output)
    if options.output in ("", "-") or not private.name:
        raise ConfigurationError(
            f"-o {options.output!a}: a private key is secret, so name a file, which only you can read"
        )
    public = private.with_name(f"{private.stem}.jwks.json")
    is_completed = is_taken(private)
    if is_taken(public):
        raise _exists_error(private if is_completed else public)
    if is_completed:
        signer = _signer_in(private, options)
    else:
        signer, data = _new_key(options)
        if options.output is None:
            private.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    jwks = f"{json.dumps(publish_jwks([signer.public_key]), indent=2)}\n".encode()
    try:
        with FileToWrite(private, Over.NOTHING) as first, FileToWrite(public, Over.NOTHING) as second:
            second.prepare(jwks, mode=0o644)
            if not is_completed:
                first.prepare(data, mode=0o600)
                first.commit()
            second.commit()
    except FileExistsError as error:
        if error.filename != str(public) or not _holds(public, jwks):
            raise _exists_error(error.filename) from None
    return _Made(private, public, signer, is_completed)


def _exists_error(path: Path | str) -> ConfigurationError:
    return ConfigurationError(f"{path} exists already and is not overwritten; move it away, or choose -o FILE")


def _format(options: argparse.Namespace, alg: str) -> Literal["pem", "jwk"]:
    fits_pem = options.kid is None and alg in (_IN_ENCRYPTED_PEM if options.encrypt else _IN_PEM)
    if options.format == "pem" and not fits_pem:
        raise ConfigurationError("--format pem: PEM cannot hold --kid or this --alg; use --format jwk")
    chosen: Literal["pem", "jwk"] | None = options.format
    return chosen or ("pem" if fits_pem and not options.encrypt else "jwk")


def _new_key(options: argparse.Namespace) -> tuple[LocalSigner, bytes]:
    signer = generate_signer(options.alg, kid=options.kid)
    chosen = _format(options, signer.alg)
    passphrase = new_passphrase() if options.encrypt else None
    return signer, private_key_bytes(signer, format=chosen, passphrase=passphrase)


def _holds(public: Path, jwks: bytes) -> bool:
    """Whether the file has the content that we would write: another ``keygen`` may have just completed the same key."""
    with _open_own(public, closed=0o022) as file:
        return file.read(len(jwks) + 1) == jwks


def _open_own(path: Path, *, closed: int = 0o077) -> BinaryIO:
    """The opened file. ConfigurationError unless it is a regular file of this user, closed to others, and no link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        raise _exists_error(path) from None
    file = os.fdopen(descriptor, "rb")
    status = os.fstat(descriptor)
    is_own = os.name != "posix" or (status.st_uid == os.geteuid() and not status.st_mode & closed)
    if not (is_own and stat.S_ISREG(status.st_mode)):
        file.close()
        raise _exists_error(path)
    return file


def _signer_in(private: Path, options: argparse.Namespace) -> LocalSigner:
    """The existing key without a JWK Set; ConfigurationError if it is not the key that the options ask for."""
    with _open_own(private) as file, key_file_warnings(), naming(str(private)):
        data = read_key_file(file, private)
    is_encrypted = False
    asked = algorithm_option(options.alg)
    try:
        signer = read_private_key(data)
    except PassphraseNeededError:
        is_encrypted = True
        alg = asked if asked in RSA_PADDING else None  # which only RSA keys need
        with naming(str(private)):
            signer = unlock(lambda passphrase: read_private_key(data, passphrase=passphrase, alg=alg), str(private))
    except MalformedError:
        raise _exists_error(private) from None
    if (signer.alg, options.kid or signer.kid, is_encrypted or not options.encrypt) != (asked, signer.kid, True):
        state = "encrypted" if is_encrypted else "not encrypted"
        raise ConfigurationError(
            f"{private} exists already without its JWK Set, and is not the key that the options ask for: it is the "
            f"{signer.alg} key {signer.kid}, {state}. To make its JWK Set, run: a2a-sign keygen "
            f"-o {shlex.quote(str(private))} --alg {signer.alg}. For a new key, move the file away, or choose -o FILE"
        )
    return signer
