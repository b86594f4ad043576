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

from a2a_trust.exports import TYPE_CHECKING, lazy

if TYPE_CHECKING:
    from a2a_trust.auth import ApiKeyVerifier as ApiKeyVerifier, DPoP as DPoP, JwtVerifier as JwtVerifier
    from a2a_trust.auth import OpenIdKeys as OpenIdKeys, Principal as Principal, SqliteApiKeys as SqliteApiKeys
    from a2a_trust.auth.certificate.verifier import CertificateVerifier as CertificateVerifier
    from a2a_trust.card.merge import merged_card as merged_card
    from a2a_trust.card.security import CardSecurity as CardSecurity
    from a2a_trust.client import AsyncVerifyingTransport as AsyncVerifyingTransport, CardAuth as CardAuth
    from a2a_trust.client import FetchOptions as FetchOptions, SqliteCardMemory as SqliteCardMemory
    from a2a_trust.client import VerifyingTransport as VerifyingTransport, async_fetch_card as async_fetch_card
    from a2a_trust.client import fetch_card as fetch_card, verifying_client as verifying_client
    from a2a_trust.errors import CardVerificationError as CardVerificationError
    from a2a_trust.errors import ConfigurationError as ConfigurationError, FetchError as FetchError
    from a2a_trust.errors import MalformedError as MalformedError, TrustError as TrustError
    from a2a_trust.keys import KeyRingFile as KeyRingFile, Origins as Origins, TrustFile as TrustFile
    from a2a_trust.keys import TrustStore as TrustStore, TrustedKey as TrustedKey, generate_signer as generate_signer
    from a2a_trust.keys import load_private_key as load_private_key, publish_jwks as publish_jwks
    from a2a_trust.lint import lint_card as lint_card
    from a2a_trust.middleware import CardServing as CardServing, ExtendedCard as ExtendedCard
    from a2a_trust.middleware import FromApplication as FromApplication, FromTls as FromTls
    from a2a_trust.middleware import ProtectedAgent as ProtectedAgent, RequestRules as RequestRules
    from a2a_trust.middleware import acting_for as acting_for, current_principal as current_principal
    from a2a_trust.middleware import principal_of as principal_of, protect as protect, protect_agents as protect_agents
    from a2a_trust.middleware.card import CardFile as CardFile
    from a2a_trust.net.fetcher import Fetcher as Fetcher
    from a2a_trust.signing import CardVerifier as CardVerifier, VerifiedCard as VerifiedCard, sign_card as sign_card
    from a2a_trust.signing import verify_card as verify_card

    __version__: str
else:
    _MODULES = {
        "auth": "ApiKeyVerifier DPoP JwtVerifier OpenIdKeys Principal SqliteApiKeys",
        "auth.certificate.verifier": "CertificateVerifier", "card.merge": "merged_card",
        "card.security": "CardSecurity",
        "client": "AsyncVerifyingTransport CardAuth FetchOptions SqliteCardMemory "
        "VerifyingTransport async_fetch_card fetch_card verifying_client",
        "errors": "CardVerificationError ConfigurationError FetchError MalformedError TrustError",
        "keys": "KeyRingFile Origins TrustFile TrustStore TrustedKey generate_signer load_private_key publish_jwks",
        "lint": "lint_card",
        "middleware": "CardServing ExtendedCard FromApplication FromTls ProtectedAgent "
        "RequestRules acting_for current_principal principal_of protect protect_agents",
        "middleware.card": "CardFile", "net.fetcher": "Fetcher",
        "signing": "CardVerifier VerifiedCard sign_card verify_card",
    }  # fmt: skip
    _find, __dir__ = lazy(__name__, _MODULES)

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            return version("a2a-trust")
        return _find(name)
