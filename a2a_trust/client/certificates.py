"""The client's own certificate for mutual TLS, replaced without a restart of the client.

::

    certificate = CertificateFiles("agent.pem", "agent.key", origins=["https://agent.example.com"])
    httpx.AsyncClient(verify=client_context(certificate, authorities="agents-ca.pem"))

A context knows only the host that it connects to, and shows the certificate to the hosts of ``origins``.
``verifying_client`` and ``VerifyingTransport(mutual_tls=…)`` do more: they use connections with the certificate only
for requests to URLs at ``origins`` that a verified card names, and for cards there that the program lists. Every new
connection uses the newest certificate, open connections keep theirs.

Python's ``ssl`` reads private keys only from files. So a key is written to a file for the moment of loading, in a new
folder that only its owner can enter, encrypted with a random passphrase that is never written. If a crash or a backup
keeps that file, it is useless.
"""

from __future__ import annotations

import logging
import secrets
import ssl
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

from a2a_trust.base.files.watched import Stamp, Watched, log_outcome, stamp_of_path
from a2a_trust.base.net.urls import read_host
from a2a_trust.client.destinations import named_origins
from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys.files import load_tls_key, private_key_bytes, read_private_key
from a2a_trust.keys.signer import LocalSigner
from a2a_trust.keys.trust.origins import host_of

_MAX_BYTES: Final = 1_048_576
_log: Final = logging.getLogger(__name__)


class OwnCertificate(Protocol):
    """A source of a client's certificate and its key. ``origins`` may get the certificate."""

    @property
    def origins(self) -> frozenset[str]: ...

    @property
    def version(self) -> object:
        """A value that changes with the certificate."""

    def load(self) -> tuple[bytes, LocalSigner]:
        """The chain in PEM, the client's own certificate first, and the private key."""


class CertificateFiles:
    """A certificate in files: the chain in PEM, the client's own first, and the key as for ``load_private_key``.

    ``origins`` may get the certificate, and no others. Changed files are read again. While only one of the two is
    replaced, they do not match, and the previous certificate stays in use. ConfigurationError: one is not an origin.
    """

    def __init__(
        self, certificate: Path | str, key: Path | str, *, origins: Iterable[str], passphrase: str | None = None
    ) -> None:
        self.origins: frozenset[str] = named_origins(origins)
        self._certificate, self._key, self._passphrase = Path(certificate), Path(key), passphrase

    @property
    def version(self) -> tuple[Stamp | None, Stamp | None]:
        return stamp_of_path(self._certificate), stamp_of_path(self._key)

    def load(self) -> tuple[bytes, LocalSigner]:
        with self._certificate.open("rb") as file:
            chain = file.read(_MAX_BYTES)
        return chain, load_tls_key(self._key, passphrase=self._passphrase)

    def __repr__(self) -> str:
        return f"CertificateFiles({str(self._certificate)!r}, {str(self._key)!r})"


class CertificateInMemory:
    """A certificate in memory: ``chain`` in PEM, the client's own certificate first.

    ``key`` is PEM or JWK, or a ``LocalSigner``, which takes keys of ``cryptography``. ``origins`` is as for
    ``CertificateFiles``. Call ``replace`` with each new certificate, for example from the SPIFFE Workload API. Neither
    its repr nor any error contains the key.
    """

    def __init__(self, chain: bytes, key: bytes | LocalSigner, *, origins: Iterable[str]) -> None:
        self.origins: frozenset[str] = named_origins(origins)
        self._pair = chain, _signer(key)

    @property
    def version(self) -> object:
        return self._pair

    def load(self) -> tuple[bytes, LocalSigner]:
        return self._pair

    def replace(self, chain: bytes, key: bytes | LocalSigner) -> None:
        """Use this certificate for new connections. ConfigurationError, MalformedError: the previous one stays."""
        signer = _signer(key)
        _load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), chain, signer)
        self._pair = chain, signer

    def __repr__(self) -> str:
        return "CertificateInMemory(…)"


def _signer(key: bytes | LocalSigner) -> LocalSigner:
    return key if isinstance(key, LocalSigner) else read_private_key(key)


def client_context(certificate: OwnCertificate, *, authorities: Path | str | None = None) -> ssl.SSLContext:
    """A context that shows the certificate to the hosts of its origins, at every port.

    It is for ``httpx.Client(verify=…)``, ``httpx.HTTPTransport(verify=…)`` and other users of ``ssl.SSLContext``.
    Servers and their host names are verified against ``authorities``, a file of CA certificates in PEM, or against
    the system's own. Certificates, authorities and ciphers that you load into the context later have no effect.

    ConfigurationError, MalformedError, OSError: a file cannot be read, or the key does not belong to the certificate.
    """
    # Read once, so a renewal of the certificate does not depend on it. Characters beyond ASCII stand in comments.
    pem = None if authorities is None else Path(authorities).read_text("ascii", errors="ignore")
    context = _ReloadingContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.show(certificate, partial(_without_certificate, authorities, pem))
    return context


def _without_certificate(authorities: Path | str | None, pem: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if pem is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return context
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError):  # ValueError for an empty file
        raise ConfigurationError(
            f"authorities: {authorities} has no CA certificates in PEM (BEGIN CERTIFICATE); name a file that has"
        ) from None
    return context


class _Socket(ssl.SSLSocket):
    def do_handshake(self, block: bool = False) -> None:
        _show_newest(self)
        super().do_handshake(block)


class _Object(ssl.SSLObject):
    def do_handshake(self) -> None:
        _show_newest(self)
        super().do_handshake()


def _show_newest(connection: _Socket | _Object) -> None:
    if isinstance(connection.context, _ReloadingContext):  # not so in the further steps of a handshake
        connection.context = connection.context.newest(connection.server_hostname)


class _ReloadingContext(ssl.SSLContext):
    """Looks for a new certificate when a connection begins, and uses it in a new context.

    It never loads a certificate itself: OpenSSL keeps one for each kind of key, and would still use the old one beside
    a new one with another kind. A connection has versions, protocols and the host's name from here, the certificate and
    the authorities from the newest context.
    """

    sslsocket_class = _Socket
    sslobject_class = _Object

    def show(self, certificate: OwnCertificate, without_certificate: Callable[[], ssl.SSLContext]) -> None:
        self._certificate, self._without_certificate = certificate, without_certificate
        self._hosts = frozenset(map(host_of, certificate.origins))
        self._without = without_certificate()
        failures = (OSError, MalformedError, ConfigurationError, Warning)  # warnings may be made errors
        tell = log_outcome(_log, repr(certificate))
        self._contexts = Watched(self._make, lambda: certificate.version, failures=failures, tell=tell)

    def newest(self, server: str | None) -> ssl.SSLContext:
        try:
            is_for = server is not None and read_host(f"[{server}]" if ":" in server else server) in self._hosts
        except MalformedError:
            is_for = False
        return self._contexts.value() if is_for else self._without

    def _make(self) -> tuple[ssl.SSLContext, object]:
        version = self._certificate.version  # before loading: a change meanwhile is noticed the next time
        context = self._without_certificate()
        _load_into(context, *self._certificate.load())
        return context, version


def _load_into(context: ssl.SSLContext, chain: bytes, signer: LocalSigner) -> None:
    if b"PRIVATE KEY" in chain:
        raise ConfigurationError("client certificate: the chain contains a private key; give it as key= instead")
    passphrase = secrets.token_urlsafe(32)
    with TemporaryDirectory(prefix="a2a-trust-") as folder:  # of mode 0700
        path = Path(folder, "pair.pem")
        path.touch(mode=0o600)
        path.write_bytes(chain + b"\n" + private_key_bytes(signer, format="pem", passphrase=passphrase))
        try:
            context.load_cert_chain(path, password=passphrase)
        except ssl.SSLError:
            raise ConfigurationError(
                "client certificate: the chain is not PEM, or the key does not belong to it; give the chain in PEM, "
                "your own certificate first, and the private key of that certificate"
            ) from None
