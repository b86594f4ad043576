"""The client's own certificate for TLS, shown to agents that ask for one, and replaced while the client goes on.

::

    certificate = CertificateFiles("agent.pem", "agent.key")
    httpx.AsyncClient(verify=client_context(certificate, authorities="agents-ca.pem"))

Certificates that live for hours (SPIFFE, cert-manager) are renewed in place: every new connection shows the newest,
those that are open keep theirs.

Python's ``ssl`` takes private keys from files only. So a key goes through a file for the moment of loading, in a new
folder that only its owner can enter, encrypted under a random passphrase that is never written: what a crash could
leave behind, or a backup take, opens nothing.
"""

from __future__ import annotations

import logging
import secrets
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.files.watched import Stamp, Watched, stamp_of_path
from a2a_trust.keys.files import load_private_key, private_key_bytes, read_private_key
from a2a_trust.keys.signer import LocalSigner

__all__ = ["CertificateFiles", "CertificateInMemory", "OwnCertificate", "client_context"]

_MAX_BYTES: Final = 1_048_576

_log: Final = logging.getLogger(__name__)


class OwnCertificate(Protocol):
    """Where a client's certificate and its key come from."""

    @property
    def version(self) -> object:
        """What differs from what it was as soon as there is another certificate."""
        ...

    def load(self) -> tuple[bytes, LocalSigner]:
        """The chain in PEM, the client's own certificate first, and the private key."""
        ...


class CertificateFiles:
    """A certificate in files: the chain in PEM, the client's own first, and the key as ``load_private_key`` takes it.

    The files are read again when they have changed. Between the replacement of one and of the other they do not fit,
    and the last certificate goes on.
    """

    def __init__(self, certificate: Path | str, key: Path | str, *, passphrase: str | None = None) -> None:
        self._certificate, self._key, self._passphrase = Path(certificate), Path(key), passphrase

    @property
    def version(self) -> tuple[Stamp | None, Stamp | None]:
        return stamp_of_path(self._certificate), stamp_of_path(self._key)

    def load(self) -> tuple[bytes, LocalSigner]:
        with self._certificate.open("rb") as file:
            chain = file.read(_MAX_BYTES)
        return chain, load_private_key(self._key, passphrase=self._passphrase)

    def __repr__(self) -> str:
        return f"CertificateFiles({str(self._certificate)!r}, {str(self._key)!r})"


class CertificateInMemory:
    """A certificate that never was in a file: ``chain`` in PEM, the client's own certificate first.

    ``key`` is PEM or JWK, or a ``LocalSigner``, which takes keys of ``cryptography``. Who receives new ones (from the
    SPIFFE Workload API, say) calls ``replace``. Neither its repr nor any error has the key.
    """

    def __init__(self, chain: bytes, key: bytes | LocalSigner) -> None:
        self._pair = chain, _signer(key)

    @property
    def version(self) -> object:
        return self._pair

    def load(self) -> tuple[bytes, LocalSigner]:
        return self._pair

    def replace(self, chain: bytes, key: bytes | LocalSigner) -> None:
        """From now on new connections show this one. ConfigurationError, MalformedError: the previous one stays."""
        signer = _signer(key)
        _load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), chain, signer)
        self._pair = chain, signer

    def __repr__(self) -> str:
        return "CertificateInMemory(…)"


def _signer(key: bytes | LocalSigner) -> LocalSigner:
    return key if isinstance(key, LocalSigner) else read_private_key(key)


def client_context(certificate: OwnCertificate, *, authorities: Path | str | None = None) -> ssl.SSLContext:
    """A context for ``httpx.Client(verify=…)`` and all that takes ``ssl.SSLContext``, which shows the certificate.

    Servers are verified against ``authorities``, a file of CA certificates in PEM, or against those that the system
    trusts; their host names are, too. Both are for these arguments to say: what is loaded into the context afterwards
    counts for no connection, and neither do ciphers that are set in it.

    ConfigurationError, MalformedError, OSError: a file cannot be read, or the key is not that of the certificate.
    """
    context = _ReloadingContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.show(certificate, _Authorities(authorities))
    return context


class _Authorities:
    """Whom servers are verified against. The file is read once: a renewal of the certificate does not depend on it."""

    def __init__(self, path: Path | str | None) -> None:
        # What is not ASCII stands in comments, as in bundles that name their authorities.
        self._path, self._pem = path, None if path is None else Path(path).read_text("ascii", errors="ignore")

    def load_into(self, context: ssl.SSLContext) -> None:
        if self._pem is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
            return
        try:
            context.load_verify_locations(cadata=self._pem)
        except (ssl.SSLError, ValueError):  # ValueError for an empty file
            raise ConfigurationError(f"{self._path}: no CA certificates in PEM (BEGIN CERTIFICATE)") from None


class _Socket(ssl.SSLSocket):
    """A connection of ``wrap_socket``; it shows the newest certificate."""

    def do_handshake(self, block: bool = False) -> None:
        _show_newest(self)
        super().do_handshake(block)


class _Object(ssl.SSLObject):
    """A connection of ``wrap_bio``; it shows the newest certificate."""

    def do_handshake(self) -> None:
        _show_newest(self)
        super().do_handshake()


def _show_newest(connection: _Socket | _Object) -> None:
    if isinstance(connection.context, _ReloadingContext):  # not so in the further steps of a handshake
        connection.context = connection.context.newest()


class _ReloadingContext(ssl.SSLContext):
    """Looks for another certificate whenever a connection begins, and shows it by a context of its own.

    Why it is a context of its own kind: clients keep the one that they are given, and ask it for every connection. Why
    it never takes a certificate itself: OpenSSL keeps one for each kind of key, and would go on showing the old one
    beside a new one whose key is of another kind. A connection has versions, protocols and the host's name from here,
    the certificate and the authorities from the newest context.
    """

    sslsocket_class = _Socket
    sslobject_class = _Object

    _authorities: _Authorities
    _certificate: OwnCertificate
    _contexts: Watched[ssl.SSLContext]

    def show(self, certificate: OwnCertificate, authorities: _Authorities) -> None:
        self._certificate, self._authorities = certificate, authorities
        self._contexts = Watched(
            self._made,
            lambda: certificate.version,
            failures=(OSError, MalformedError, ConfigurationError, Warning),  # warnings may be made errors
            tell=self._tell,
        )

    def newest(self) -> ssl.SSLContext:
        return self._contexts.value()

    def _tell(self, failure: Exception | None) -> None:
        if failure is None:
            _log.info("%r was read again", self._certificate)
            return
        reason = failure.strerror if isinstance(failure, OSError) else failure
        _log.error("%r cannot be read, the last certificate goes on: %s", self._certificate, reason)

    def _made(self) -> tuple[ssl.SSLContext, object]:
        version = self._certificate.version  # before loading: a change meanwhile is noticed the next time
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._authorities.load_into(context)
        _load_into(context, *self._certificate.load())
        return context, version


def _load_into(context: ssl.SSLContext, chain: bytes, signer: LocalSigner) -> None:
    if b"PRIVATE KEY" in chain:
        raise ConfigurationError("client certificate: a private key stands among the certificates; give it as the key")
    passphrase = secrets.token_urlsafe(32)
    with TemporaryDirectory(prefix="a2a-trust-") as folder:  # of mode 0700
        path = Path(folder, "pair.pem")
        path.touch(mode=0o600)
        path.write_bytes(chain + b"\n" + private_key_bytes(signer, passphrase=passphrase))
        try:
            context.load_cert_chain(path, password=passphrase)
        except ssl.SSLError:
            raise ConfigurationError(
                "client certificate: give the chain in PEM, your own certificate first, and the private key of that one"
            ) from None
