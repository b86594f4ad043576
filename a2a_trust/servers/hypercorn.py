"""hypercorn, telling who is really at the other end of the connection.

::

    python -m a2a_trust.servers.hypercorn agent:app --bind 0.0.0.0:8443 --certfile server.pem --keyfile server.key \\
        --ca-certs ca.pem --verify-mode CERT_OPTIONAL

takes what the command ``hypercorn`` takes, and ``serve`` what ``hypercorn.asyncio.serve`` does. Every scope, of HTTP/2
and of websockets too, has the socket's peer and the client's certificate (ASGI TLS extension 0.2), which ``FromTls()``
reads. ``CERT_OPTIONAL`` asks callers for a certificate, ``CERT_REQUIRED`` talks to nobody without. HTTP/3 and the
workers of trio tell neither, so ``FromTls()`` refuses what comes that way.
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

__all__ = ["asyncio_worker", "main", "serve", "uvloop_worker"]


class _TellingServer(TCPServer):
    """One connection; hypercorn begins it when TLS is through."""

    def __init__(self, app: Any, loop: Any, config: Any, context: Any, state: Any, reader: Any, writer: Any) -> None:
        telling = with_extensions(app, extensions_of(writer.transport))
        super().__init__(telling, loop, config, context, state, reader, writer)


async def serve(app: Any, config: Config, **options: Any) -> None:
    """``hypercorn.asyncio.serve``, telling of connections; from then on every hypercorn of this process does."""
    _begin_to_tell()
    await _asyncio.serve(app, config, **options)


def main(arguments: list[str] | None = None) -> int:
    """The command ``hypercorn``, telling of connections."""
    # hypercorn starts its workers by these names, in processes that import this module for them.
    _run.asyncio_worker, _run.uvloop_worker = asyncio_worker, uvloop_worker
    return command.main(arguments)


def asyncio_worker(*arguments: Any, **options: Any) -> None:
    """A process of the command that serves with asyncio."""
    _begin_to_tell()
    _ASYNCIO(*arguments, **options)


def uvloop_worker(*arguments: Any, **options: Any) -> None:
    """A process of the command that serves with uvloop."""
    _begin_to_tell()
    _UVLOOP(*arguments, **options)


_ASYNCIO, _UVLOOP = _run.asyncio_worker, _run.uvloop_worker


def _begin_to_tell() -> None:
    vars(_run)["TCPServer"] = _TellingServer  # the name by which hypercorn makes one for every connection


if __name__ == "__main__":
    from a2a_trust.servers import hypercorn

    sys.exit(hypercorn.main())  # not this copy of it, which workers cannot import
