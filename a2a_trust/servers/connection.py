"""The certain facts of a connection, for the scopes of its requests: the socket's peer, and the TLS connection."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any, Final

from a2a_trust.auth.certificate.identities import subject_of
from a2a_trust.auth.peers import peer_extension


def extensions_of(transport: asyncio.BaseTransport) -> dict[str, Any]:
    """Extensions for every scope of the connection, by name: the peer, and for TLS ``tls`` (ASGI TLS 0.2)."""
    name = transport.get_extra_info("peername")
    sock = transport.get_extra_info("socket")
    is_unix = sock is not None and sock.family == getattr(socket, "AF_UNIX", None)
    extensions = peer_extension(name[0] if isinstance(name, tuple) else None, unix=is_unix)
    tls = transport.get_extra_info("ssl_object")
    if tls is not None:
        extensions["tls"] = _tls(tls)
    return extensions


def with_extensions(app: Any, extensions: dict[str, Any]) -> Any:
    """``app``, with a copy of these extensions in every scope; other arguments are passed on."""

    async def recording(scope: Any, *others: Any) -> None:
        scope["extensions"] = {
            **(scope.get("extensions") or {}),
            **{name: value.copy() for name, value in extensions.items()},
        }
        await app(scope, *others)

    return recording


def _tls(connection: ssl.SSLObject) -> dict[str, Any]:
    leaf = connection.getpeercert(binary_form=True)
    cipher = connection.cipher()
    return {
        "server_cert": None,  # Python's ssl does not say which certificate it sent
        "client_cert_chain": () if leaf is None else tuple(map(ssl.DER_cert_to_PEM_cert, _chain(connection, leaf))),
        "client_cert_name": None if leaf is None else subject_of(leaf),
        "client_cert_error": None,  # with an error there is no connection
        "tls_version": _VERSIONS.get(connection.version() or ""),
        "cipher_suite": None if cipher is None else _suite(connection.context, cipher[0]),
    }


def _chain(connection: ssl.SSLObject, leaf: bytes) -> list[bytes]:
    """The certificates that the client has sent, its own first. Before Python 3.13, and in a resumed TLS session, only
    its own certificate is known.
    """
    sent: list[bytes] = list(getattr(connection, "get_unverified_chain", list)())
    return sent if sent[:1] == [leaf] else [leaf]


_VERSIONS: Final = {"TLSv1": 0x0301, "TLSv1.1": 0x0302, "TLSv1.2": 0x0303, "TLSv1.3": 0x0304}
_suites: Final[dict[str, int]] = {}


def _suite(context: ssl.SSLContext, name: str) -> int | None:
    """The number of a cipher suite (RFC 8446 B.4), which is the lower half of OpenSSL's id."""
    if name not in _suites:
        _suites.update((each["name"], each["id"] & 0xFFFF) for each in context.get_ciphers())
    return _suites.get(name)
