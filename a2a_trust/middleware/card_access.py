"""Who may read the public card: everybody, callers of the agent, or certain networks.

Key set and metadata stay public: readers of the card need them to verify it and to get a token.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from a2a_trust.middleware import audit
from a2a_trust.middleware.documents import ASGIApp, Receive, Scope, Send, refuse
from a2a_trust.middleware.peer import Networks, verified_peer, was_forwarded


class CardReaders(Enum):
    """Who may read the public card. The third choice is ``Networks``: peers there may read it without a credential.

    For networks, the server must record the socket's peer (``a2a_trust.servers``). A request that came through a proxy
    is rejected, because its peer is the proxy: restrict the card in the proxy instead. Some proxies do not mark
    requests, so never name a network that contains a proxy.
    """

    EVERYBODY = auto()
    """Everybody, as A2A expects."""
    CALLERS = auto()
    """Callers that meet one of the card's requirements; others get 401 with the challenges."""


_NO_PEER: Final = (
    "the server does not record the address of the peer; run the agent with "
    "uvicorn --http a2a_trust.servers.uvicorn:HttpToolsProtocol, or :H11Protocol"
)


class InNetworks:
    """``app`` for peers in the networks; 403 for all others. Only http."""

    def __init__(self, app: ASGIApp, networks: Networks) -> None:
        self._app, self._networks = app, networks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = verified_peer(scope)
        if peer is None:
            detail = _NO_PEER
        elif was_forwarded(scope):
            detail = "the request came through a proxy, so the peer is the proxy; restrict the card in the proxy"
        elif not self._networks.covers(peer):
            detail = f"the peer {peer} is outside the networks of CardServing(readers=Networks(…))"
        else:
            await self._app(scope, receive, send)
            return
        audit.request_refused(scope, audit.Reason.NETWORK, detail)
        await refuse(send, 403, [(b"cache-control", b"no-store")])
