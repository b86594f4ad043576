"""Protocol classes for uvicorn that record who is really at the other end of the connection.

::

    uvicorn --http a2a_trust.servers.uvicorn:HttpToolsProtocol agent:app
    uvicorn --http a2a_trust.servers.uvicorn:H11Protocol agent:app

``scope["client"]`` is no proof of that: uvicorn writes into it what X-Forwarded-For says, from loopback peers by
default and from everybody with ``--forwarded-allow-ips='*'``. Here the address comes from the socket.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol as _H11Protocol

from a2a_trust.middleware.peer import with_peer

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as _HttpToolsProtocol
except ModuleNotFoundError:  # uvicorn without its extra "standard" has h11 alone
    _HttpToolsProtocol = None  # type: ignore[assignment,misc]

__all__ = ["H11Protocol", "HttpToolsProtocol"]


class H11Protocol(_H11Protocol):
    """uvicorn's protocol on h11, with the socket's peer in the scope."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.app = with_peer(self.app, _peer_of(transport), unix=_is_unix(transport))


if _HttpToolsProtocol is not None:

    class HttpToolsProtocol(_HttpToolsProtocol):
        """uvicorn's protocol on httptools, with the socket's peer in the scope."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.app = with_peer(self.app, _peer_of(transport), unix=_is_unix(transport))

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            # Trailers that come with the head would be added to the request's own list, and be taken for headers.
            self.headers = self.headers.copy()


def _peer_of(transport: asyncio.BaseTransport) -> str | None:
    """The address at the other end; None for what is no internet socket."""
    name = transport.get_extra_info("peername")
    return name[0] if isinstance(name, tuple) else None


def _is_unix(transport: asyncio.BaseTransport) -> bool:
    sock = transport.get_extra_info("socket")
    return sock is not None and sock.family == getattr(socket, "AF_UNIX", None)
