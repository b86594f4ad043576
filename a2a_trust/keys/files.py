"""Private keys in files: PEM (PKCS #8) or JWK, plain or encrypted, readable by their owner only."""

from __future__ import annotations

import json
import os
import shlex
import stat
import warnings
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from a2a_trust.base import strict_json
from a2a_trust.base.files.atomic import write_atomically
from a2a_trust.base.files.watched import check_writers, missing_file
from a2a_trust.errors import ConfigurationError, MalformedError, with_option
from a2a_trust.keys.jwk import PrivateKeyObject, private_key_to_jwk, pss_algorithms
from a2a_trust.keys.signer import LocalSigner

_MAX_KEY_BYTES: Final = 65_536
#: An encrypted JWK (RFC 7517 7): the key for it from the passphrase by PBES2 (RFC 7518 4.8).
_JWE_ALGORITHMS: Final = ["PBES2-HS512+A256KW", "A256GCM"]
_JWE_ITERATIONS: Final = 210_000  # what OWASP asks of PBKDF2 with SHA-512


class KeyFileWarning(UserWarning):
    """The group of a private key file can read or replace the key."""


class PassphraseNeededError(ConfigurationError, code="passphrase-needed"):
    """The private key is encrypted, and no passphrase was given."""


def read_private_key(
    data: bytes, *, passphrase: str | None = None, alg: str | None = None, kid: str | None = None
) -> LocalSigner:
    """Read a private key from ``data``, and return a signer with it.

    ``data`` is PEM (PKCS #8, SEC 1, PKCS #1), a JWK, or a JWK that is encrypted as JWE. ``alg`` is for RSA keys without
    an algorithm; their default is RS256, or PS256 for keys in PEM that are for RSASSA-PSS only. An RSA key in encrypted
    PKCS #8 needs ``alg``, because nothing shows whether it is for RSASSA-PSS only. ``kid`` replaces the ``kid`` of a
    JWK.

    - MalformedError: not such a key, or a weak key.
    - ConfigurationError: the passphrase is wrong, or ``alg`` is missing or does not fit the key.
    - PassphraseNeededError: the key is encrypted, and ``passphrase`` is missing.
    """
    text = data.strip()
    if text.startswith(b"-----BEGIN"):
        return _read_pem(text, passphrase, alg, kid)
    if text.startswith(b"eyJ") and text.count(b".") == 4:
        text = _decrypt(text, passphrase)
    if not text.startswith(b"{"):
        raise MalformedError(
            "private key: neither PEM (-----BEGIN PRIVATE KEY-----) nor a JWK ({…}); give one of these"
        )
    signer = LocalSigner.from_jwk(strict_json.parse(text, what="private key"), kid=kid)
    return signer if alg is None else signer.with_alg(alg)


def load_tls_key(path: Path, *, passphrase: str | None = None) -> LocalSigner:
    """As ``load_private_key``, for TLS, which has its own algorithms: no RSA key needs ``alg``."""
    with path.open("rb") as file:
        data = read_key_file(file, path).strip()
    if data.startswith(b"-----BEGIN ENCRYPTED"):
        return LocalSigner(_key_in_pem(data, passphrase))
    return read_private_key(data, passphrase=passphrase)


def load_private_key(
    path: Path | str, *, passphrase: str | None = None, alg: str | None = None, kid: str | None = None
) -> LocalSigner:
    """Read a private key from a file that only its owner can read, and return a signer with it.

    Arguments and errors are as for ``read_private_key``, and these:

    - FileNotFoundError: there is no such file.
    - ConfigurationError: everybody can read the file, or others can change it.
    - KeyFileWarning (a warning): the group can read the file, as with mounted secrets.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = read_key_file(file, path)
    except FileNotFoundError:
        raise missing_file(path, "private key", "a2a-sign keygen") from None
    return read_private_key(data, passphrase=passphrase, alg=alg, kid=kid)


def read_key_file(file: BinaryIO, path: Path, *, max_bytes: int = _MAX_KEY_BYTES) -> bytes:
    """The content of an open file with private keys, after the check of its rights; see ``load_private_key``."""
    status = os.fstat(file.fileno())  # of the open file: the path could be replaced between a check and the opening
    if os.name == "posix" and stat.S_ISREG(status.st_mode):
        _check_rights(path, status)
    data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise MalformedError(f"private key: {path} is larger than {max_bytes} bytes, so it is not a key file")
    return data


def private_key_bytes(
    signer: LocalSigner, *, format: Literal["pem", "jwk"] | None = None, passphrase: str | None = None
) -> bytes:
    """The content of a file with the signer's private key. It is secret, unless a passphrase encrypts it.

    JWK holds ``kid``, the algorithm of an RSA key, and how long the key is valid. PEM holds none of these. The default
    is PEM, and with a passphrase JWK, as JWE with 210,000 rounds of PBKDF2. Encrypted PEM has 2,048, so a passphrase is
    guessed a hundred times as fast.
    """
    if passphrase == "":
        raise ConfigurationError("passphrase: it is empty; give a passphrase, or leave the argument out")
    if format == "pem" or (format is None and passphrase is None):
        encryption = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
        return signer.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    private = private_key_to_jwk(signer.private_key, alg=signer.alg, kid=signer.kid)
    jwk = json.dumps({**private, **signer.public_key.to_jwk()})
    if passphrase is None:
        return f"{jwk}\n".encode()
    from joserfc import jwe

    alg, enc = _JWE_ALGORITHMS
    header = {"alg": alg, "enc": enc, "cty": "jwk+json", "p2c": _JWE_ITERATIONS}
    token = jwe.encrypt_compact(header, jwk, _passphrase_key(passphrase), algorithms=_JWE_ALGORITHMS)
    return f"{token}\n".encode()


def save_private_key(
    path: Path | str,
    signer: LocalSigner,
    *,
    format: Literal["pem", "jwk"] | None = None,
    passphrase: str | None = None,
    replace: bool = False,
) -> None:
    """Write the signer's private key to a file of mode 0600, in one step.

    Arguments and errors are as for ``private_key_bytes``. FileExistsError: the file exists, and ``replace`` is
    not set.
    """
    data = private_key_bytes(signer, format=format, passphrase=passphrase)
    write_atomically(Path(path), data, mode=0o600, replace=replace)


def _check_rights(path: Path, status: os.stat_result) -> None:
    mode = status.st_mode
    fix = f"chmod 600 {shlex.quote(str(path))}"
    if mode & stat.S_IROTH:
        raise ConfigurationError(
            f"private key: everybody can read {path}. If other users could log in here, treat the key as compromised "
            f"and make a new one; else run: {fix}"
        )
    check_writers(status, path, "replace the private key")
    if mode & (stat.S_IRGRP | stat.S_IWGRP):
        action = "read this private key" if mode & stat.S_IRGRP else "replace this private key"
        warnings.warn(f"the group of {path} can {action}; if you do not want that, run: {fix}", KeyFileWarning, 4)


def _key_in_pem(pem: bytes, passphrase: str | None) -> PrivateKeyObject:
    """The key object, perhaps of a kind that LocalSigner rejects."""
    if b"BEGIN OPENSSH PRIVATE KEY" in pem:
        raise MalformedError(
            "private key: this is the format of OpenSSH; convert a copy with: ssh-keygen -p -m PKCS8 -f FILE"
        )
    encrypted = b"BEGIN ENCRYPTED PRIVATE KEY" in pem or b"Proc-Type: 4,ENCRYPTED" in pem
    if encrypted and passphrase is None:
        raise PassphraseNeededError("private key: it is encrypted and no passphrase was given")
    secret = passphrase.encode() if encrypted and passphrase is not None else None
    try:
        return load_pem_private_key(pem, secret)  # type: ignore[return-value]  # the signer rejects other kinds
    except (ValueError, TypeError, UnsupportedAlgorithm):
        if encrypted:
            raise ConfigurationError("private key: the passphrase is wrong") from None
        raise MalformedError("private key: this PEM holds no readable private key (BEGIN PRIVATE KEY)") from None


def _read_pem(pem: bytes, passphrase: str | None, alg: str | None, kid: str | None) -> LocalSigner:
    key = _key_in_pem(pem, passphrase)
    limits: tuple[str, ...] = ()
    if isinstance(key, rsa.RSAPrivateKey):
        if b"BEGIN ENCRYPTED PRIVATE KEY" not in pem:
            limits = pss_algorithms(pem)
        elif alg is None:
            text = "private key: encrypted PEM does not show the algorithm of its RSA key; give"
            which = "RS256, unless the key is for PS256, PS384 or PS512"
            raise with_option(ConfigurationError(f"{text} alg=: {which}"), f"{text} --alg: {which}")
    return LocalSigner(key, alg=alg, kid=kid, algorithms=limits)


def _decrypt(token: bytes, passphrase: str | None) -> bytes:
    if passphrase is None:
        raise PassphraseNeededError("private key: it is encrypted and no passphrase was given")
    from joserfc import jwe
    from joserfc.errors import JoseError

    try:
        opened = jwe.decrypt_compact(token, _passphrase_key(passphrase), algorithms=_JWE_ALGORITHMS)
    except (JoseError, ValueError, TypeError, KeyError):
        raise ConfigurationError("private key: the passphrase is wrong") from None
    return opened.plaintext or b""


def _passphrase_key(passphrase: str) -> Any:
    from joserfc.jwk import OctKey

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "below 112 bits" is about keys; PBES2 stretches a passphrase
        return OctKey.import_key(passphrase.encode())
