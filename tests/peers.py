"""An application behind a server that records the sockets' peers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from a2a_trust.auth.peers import peer_extension

__all__ = ["with_peer"]


def with_peer(app: Any, address: str | None, *, unix: bool = False) -> Callable[..., Awaitable[None]]:
    """``app``, with the address of the socket's peer, or its unix socket, in every scope."""
    recorded = peer_extension(address, unix=unix)

    async def recorded_app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        scope["extensions"] = {**(scope.get("extensions") or {}), **recorded}
        await app(scope, receive, send)

    return recorded_app
