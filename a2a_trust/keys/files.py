"""Private keys in files: PEM (PKCS #8) or JWK, plain or encrypted, readable by their owner only."""

from __future__ import annotations

import json
import os
import shlex
import stat
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Literal

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from a2a_trust import strict_json
from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.files.atomic import write_atomically
from a2a_trust.files.rights import check_writers
from a2a_trust.keys.jwk import private_key_to_jwk
from a2a_trust.keys.signer import LocalSigner

if TYPE_CHECKING:
    from joserfc.jwk import OctKey

__all__ = [
    "KeyFileWarning",
    "PassphraseNeededError",
    "load_private_key",
    "private_key_bytes",
    "read_key_file",
    "read_private_key",
    "save_private_key",
]

_MAX_KEY_BYTES: Final = 65_536
#: An encrypted JWK (RFC 7517 7): the key for it from the passphrase by PBES2 (RFC 7518 4.8).
_JWE_ALGORITHMS: Final = ["PBES2-HS512+A256KW", "A256GCM"]
_JWE_ITERATIONS: Final = 210_000  # what OWASP asks of PBKDF2 with SHA-512


class KeyFileWarning(UserWarning):
    """A private key file is open to more people than its owner."""


class PassphraseNeededError(ConfigurationError):
    """The key is encrypted and no passphrase was given."""

    code = "passphrase-needed"


def read_private_key(
    data: bytes, *, passphrase: str | None = None, alg: str | None = None, kid: str | None = None
) -> LocalSigner:
    """The signer with the private key in ``data``: PEM (PKCS #8, SEC 1, PKCS #1), JWK, or a JWK encrypted as JWE.

    ``alg`` is for RSA keys that do not say which algorithm they are for (RS256 without it, and PS256 for keys in PEM
    that are for RSASSA-PSS only); ``kid`` replaces the one that a JWK has. MalformedError: not such a key, or a weak
    one. ConfigurationError: the passphrase is wrong, or ``alg`` does not fit the key. PassphraseNeededError: the
    passphrase is missing.
    """
    text = data.strip()
    if text.startswith(b"-----BEGIN"):
        return _read_pem(text, passphrase, alg, kid)
    if text.startswith(b"eyJ") and text.count(b".") == 4:
        text = _decrypt(text, passphrase)
    if not text.startswith(b"{"):
        raise MalformedError("private key: neither PEM (-----BEGIN PRIVATE KEY-----) nor a JWK ({…})")
    signer = LocalSigner.from_jwk(strict_json.parse(text, what="private key"), kid=kid)
    return signer if alg is None else signer.with_alg(alg)


def load_private_key(
    path: Path | str, *, passphrase: str | None = None, alg: str | None = None, kid: str | None = None
) -> LocalSigner:
    """As ``read_private_key``, from a file that only its owner can read.

    ConfigurationError when everybody can read it, KeyFileWarning when its group can (mounted secrets are like that).
    """
    path = Path(path)
    with path.open("rb") as file:
        data = read_key_file(file, path)
    return read_private_key(data, passphrase=passphrase, alg=alg, kid=kid)


def read_key_file(file: BinaryIO, path: Path, *, max_bytes: int = _MAX_KEY_BYTES) -> bytes:
    """The content of an open file with private keys, after a look at who can read it; see ``load_private_key``."""
    status = os.fstat(file.fileno())  # of the open file: between a look at the path and opening it may change
    if os.name == "posix" and stat.S_ISREG(status.st_mode):
        _check_rights(path, status)
    data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise MalformedError(f"private key: {path} is larger than {max_bytes} bytes, so it is no key")
    return data


def private_key_bytes(
    signer: LocalSigner, *, format: Literal["pem", "jwk"] = "pem", passphrase: str | None = None
) -> bytes:
    """The signer's private key as a file's content: secret, unless a passphrase encrypts it.

    PEM holds neither ``kid`` nor the algorithm of an RSA key, nor how long the key is valid; JWK holds all of them.
    """
    if passphrase == "":
        raise ConfigurationError("the passphrase is empty; give one, or none at all")
    if format == "pem":
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
    format: Literal["pem", "jwk"] = "pem",
    passphrase: str | None = None,
    replace: bool = False,
) -> None:
    """After this the file holds the key, whole, with mode 0600. FileExistsError unless ``replace``."""
    data = private_key_bytes(signer, format=format, passphrase=passphrase)
    write_atomically(Path(path), data, mode=0o600, replace=replace)


def _check_rights(path: Path, status: os.stat_result) -> None:
    mode = status.st_mode
    fix = f"chmod 600 {shlex.quote(str(path))}"
    if mode & stat.S_IROTH:
        raise ConfigurationError(
            f"private key: everybody can read {path}; if it holds one, treat that as compromised; if nobody else could "
            f"read it, run: {fix}"
        )
    check_writers(status, path, "put another private key into it")
    if mode & (stat.S_IRGRP | stat.S_IWGRP):
        what = "read this private key" if mode & stat.S_IRGRP else "put another private key in its place"
        warnings.warn(f"the group of {path} can {what}; if that is not meant: {fix}", KeyFileWarning, 4)


def _read_pem(pem: bytes, passphrase: str | None, alg: str | None, kid: str | None) -> LocalSigner:
    if b"BEGIN OPENSSH PRIVATE KEY" in pem:
        raise MalformedError(
            "private key: in OpenSSH's own format; convert a copy with: ssh-keygen -p -m PKCS8 -f FILE"
        )
    encrypted = b"BEGIN ENCRYPTED PRIVATE KEY" in pem or b"Proc-Type: 4,ENCRYPTED" in pem
    if encrypted and passphrase is None:
        raise PassphraseNeededError("private key: it is encrypted and no passphrase was given")
    try:
        key = load_pem_private_key(pem, passphrase.encode() if encrypted and passphrase is not None else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        if encrypted:
            raise ConfigurationError("private key: the passphrase does not open it") from None
        raise MalformedError("private key: this PEM holds no private key that can be read") from None
    limits: tuple[str, ...] = ()
    if isinstance(key, rsa.RSAPrivateKey):
        from a2a_trust.keys.pss import pss_algorithms  # here: the import takes time, and most keys are not RSA keys

        limits = pss_algorithms(pem, passphrase)
    # type: the signer refuses other kinds
    return LocalSigner(key, alg=alg, kid=kid, algorithms=limits)  # type: ignore[arg-type]


def _decrypt(token: bytes, passphrase: str | None) -> bytes:
    if passphrase is None:
        raise PassphraseNeededError("private key: it is encrypted and no passphrase was given")
    from joserfc import jwe
    from joserfc.errors import JoseError

    try:
        opened = jwe.decrypt_compact(token, _passphrase_key(passphrase), algorithms=_JWE_ALGORITHMS)
    except (JoseError, ValueError, TypeError, KeyError):
        raise ConfigurationError("private key: the passphrase does not open it") from None
    return opened.plaintext or b""


def _passphrase_key(passphrase: str) -> OctKey:
    from joserfc.jwk import OctKey

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "below 112 bits": said of keys; PBES2 stretches what people can remember
        return OctKey.import_key(passphrase.encode())
