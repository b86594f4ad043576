"""Runs hypercorn so that it records the real peer of a connection and its certificate.

::

    python -m a2a_trust.servers.hypercorn agent:app --bind 0.0.0.0:8443 --certfile server.pem --keyfile server.key \\
        --ca-certs ca.pem --verify-mode CERT_OPTIONAL

The command has the arguments of ``hypercorn``, and ``serve`` the arguments of ``hypercorn.asyncio.serve``. Every
scope, also of HTTP/2 and websockets, has the socket's peer and the client's certificate (ASGI TLS extension 0.2), which
``FromTls()`` reads. ``CERT_OPTIONAL`` asks callers for a certificate; ``CERT_REQUIRED`` rejects connections without
one. HTTP/3 records neither, so ``FromTls()`` rejects its requests. ``protect`` needs workers of asyncio or uvloop, not
of trio.
"""

from __future__ import annotations

import sys
from typing import Any

from hypercorn import __main__ as command
from hypercorn import asyncio as _asyncio
from hypercorn.asyncio import run as _run
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.config import Config

from a2a_trust.servers.connection import extensions_of, with_extensions

__all__ = ["Config", "asyncio_worker", "main", "serve", "uvloop_worker"]


class _RecordingServer(TCPServer):
    """One connection; hypercorn makes it after the TLS handshake."""

    def __init__(self, app: Any, loop: Any, config: Any, context: Any, state: Any, reader: Any, writer: Any) -> None:
        recording = with_extensions(app, extensions_of(writer.transport))
        super().__init__(recording, loop, config, context, state, reader, writer)


async def serve(app: Any, config: Config, **options: Any) -> None:
    """``hypercorn.asyncio.serve``, which records peers; from then on every hypercorn of this process does."""
    _record_peers()
    await _asyncio.serve(app, config, **options)


def main(arguments: list[str] | None = None) -> int:
    """The command ``hypercorn``, which records peers."""
    # hypercorn starts its workers by these names, in processes that import this module for them.
    _run.asyncio_worker, _run.uvloop_worker = asyncio_worker, uvloop_worker
    return command.main(arguments)


def asyncio_worker(*arguments: Any, **options: Any) -> None:
    """A process of the command that serves with asyncio."""
    _record_peers()
    _ASYNCIO(*arguments, **options)


def uvloop_worker(*arguments: Any, **options: Any) -> None:
    """A process of the command that serves with uvloop."""
    _record_peers()
    _UVLOOP(*arguments, **options)


_ASYNCIO, _UVLOOP = _run.asyncio_worker, _run.uvloop_worker


def _record_peers() -> None:
    vars(_run)["TCPServer"] = _RecordingServer  # hypercorn makes one by this name for every connection


if __name__ == "__main__":
    from a2a_trust.servers import hypercorn

    sys.exit(hypercorn.main())  # not this copy of it, which workers cannot import
