"""Security for A2A agents: sign Agent Cards, verify them, enforce their security rules, and manage the keys.

The names that most programs need are here. All other public names are in ``errors``, ``keys``, ``signing``, ``auth``,
``lint``, ``middleware``, ``client`` and ``testing``, and in four modules that collect public names: ``proxies``,
``certificates``, ``endpoints`` and ``providers``.

The parts of the package, from the ground up; each imports only from parts before it:

- ``errors``: the exception tree
- ``exports``: public names, imported on first use
- ``strict_json``: a strict reader for JSON from strangers, canonical JSON (RFC 8785), JSON pointers
- ``dates``: moments in the form that people read
- ``cache``: bounded caches, and single flight
- ``workers``: work on many things in worker processes or threads
- ``files``: atomic writes, watched files, file permissions, SQLite
- ``net``: the fetcher, which is the only way to the network; URLs; which addresses are public
- ``card``: cards of every generation: their content, ambiguous members, two generations in one card
- ``databases``: connections to PostgreSQL and Redis, which replicas share
- ``keys``: algorithms, JWK and PEM, key sets, JWS, signers, key rings, origins, trust
- ``signing``: canonical forms, signatures, sign, verify
- ``auth``: API keys, passwords, access tokens, client certificates, DPoP, and the guard that applies a card
- ``lint``: problems of cards, and how to fix them
- ``middleware``: ASGI: the guard in front of an application, cards, key sets and metadata
- ``client``: fetch and verify cards, the card memory, credentials, DPoP, client certificates
- ``servers``: facts about connections that only uvicorn and hypercorn know
- ``cli``: the command ``a2a-sign``
- ``__main__``: the same command, as ``python -m a2a_trust``
- ``proxies``: public names for client certificates from a proxy
- ``certificates``: public names for client certificates, in agents and clients
- ``endpoints``: parts of ``protect`` as separate ASGI applications, and sources of cards
- ``providers``: verifiers for the tokens of identity providers
- ``testing``: callers, tokens and agents in memory, for tests
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
