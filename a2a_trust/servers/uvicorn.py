"""Protocol classes for uvicorn that record the real peer of a connection and its certificate.

::

    uvicorn --http a2a_trust.servers.uvicorn:HttpToolsProtocol agent:app
    uvicorn --http a2a_trust.servers.uvicorn:H11Protocol agent:app

and from code ``uvicorn.run(app, http=H11Protocol)``. They add two things to every scope, also of websockets:

- The socket's peer. ``scope["client"]`` is not certain: uvicorn writes X-Forwarded-For into it, by default from
  loopback peers, and from every peer with ``--forwarded-allow-ips='*'``.
- The client's certificate (ASGI TLS extension 0.2), which ``FromTls()`` reads. uvicorn asks callers for one with
  ``--ssl-ca-certs ca.pem`` and ``--ssl-cert-reqs 1``; with ``2`` it rejects connections without a certificate.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol as _H11Protocol

from a2a_trust.servers.connection import extensions_of, with_extensions

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as _HttpToolsProtocol
except ModuleNotFoundError:  # uvicorn without its extra "standard" has only h11
    _HttpToolsProtocol = None  # type: ignore[assignment,misc]

__all__ = ["H11Protocol", "HttpToolsProtocol"]


class H11Protocol(_H11Protocol):
    """uvicorn's protocol on h11, with the socket's peer and the client's certificate in the scope."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        _record_facts(self, transport)


if _HttpToolsProtocol is not None:

    class HttpToolsProtocol(_HttpToolsProtocol):
        """uvicorn's protocol on httptools, with the socket's peer and the client's certificate in the scope."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            _record_facts(self, transport)

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            # Otherwise, trailers that come with the head would be added to the request's headers.
            self.headers: list[tuple[bytes, bytes]] = self.headers.copy()


def _record_facts(protocol: Any, transport: Any) -> None:
    extensions = extensions_of(transport)
    protocol.app = with_extensions(protocol.app, extensions)
    if protocol.ws_protocol_class is not None:
        protocol.ws_protocol_class = partial(_upgrade, protocol.ws_protocol_class, extensions)


def _upgrade(kind: Any, extensions: dict[str, Any], **settings: Any) -> Any:
    """The protocol of a connection that becomes a websocket."""
    protocol = kind(**settings)
    protocol.app = with_extensions(protocol.app, extensions)
    return protocol
