"""Security for A2A agents: sign Agent Cards, verify them, enforce what they declare, and manage the keys.

Rooms, from the ground up; each imports only from rooms before it:

==================  =================================================================================
``errors``          the exception tree
``exports``         public names, imported when they are first used
``strict_json``     the reader for JSON from strangers, canonical JSON (RFC 8785), JSON pointers
``dates``           moments as people read them
``cache``           bounded memories, and one flight for several callers
``files``           written whole or not at all, watched for changes, who may write them, SQLite
``net``             the fetcher, the one guarded way to the network; URLs, and which addresses are public
``card``            cards of every generation: what they say, what makes them ambiguous, two generations in one
``keys``            algorithms, JWK and PEM, key sets, JWS, signers, rings, origins, trust
``signing``         canonical JSON, presence, forms, signatures, sign, verify
``auth``            API keys, access tokens, client certificates, DPoP, and the guard that applies a card
``lint``            problems of cards, and what to write instead
``middleware``      ASGI: the guard in front of an application, cards, key sets and metadata
``client``          cards fetched and verified, what is remembered of their origins, DPoP, certificates
``servers``         what only a server knows of a connection: for uvicorn and hypercorn
``cli``             the command ``a2a-sign``
``__main__``        the same, as ``python -m a2a_trust``
``proxies``         a door: client certificates from a proxy
``certificates``    a door: client certificates, for agents and for clients
``endpoints``       a door: parts of ``protect`` as ASGI applications of their own, and sources of cards
``providers``       a door: presets for the tokens of identity providers
``testing``         for tests of agents and clients: callers, tokens, agents in memory
==================  =================================================================================

The names that most programs need are here, as ``__init__.pyi`` lists them. All other public names are in ``errors``,
``keys``, ``signing``, ``auth``, ``lint``, ``middleware``, ``client`` and ``testing``, and behind the four doors.
"""

from __future__ import annotations

from a2a_trust.exports import lazy

TYPE_CHECKING = False  # typing takes a tenth of the time that --help may take
if TYPE_CHECKING:
    from typing import Any

_find, __dir__ = lazy(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("a2a-trust")
    return _find(name)
