"""Security for A2A agents: sign Agent Cards, verify them, enforce their security rules, and manage the keys.

The names that most programs need are here. All other public names are in ``errors``, ``keys``, ``signing``, ``auth``,
``lint``, ``middleware``, ``client`` and ``testing``, and in three modules that collect public names: ``proxies``,
``certificates`` and ``providers``.

docs/architecture.md is the map of the package.
"""

from a2a_trust.base.exports import TYPE_CHECKING, lazy

if TYPE_CHECKING:
    from a2a_trust.auth import ApiKeyVerifier as ApiKeyVerifier, DPoP as DPoP, JwtVerifier as JwtVerifier
    from a2a_trust.auth import OpenIdKeys as OpenIdKeys, Principal as Principal, SqliteApiKeys as SqliteApiKeys
    from a2a_trust.auth.certificate.verifier import CertificateVerifier as CertificateVerifier
    from a2a_trust.card.merge import CardSecurity as CardSecurity, merged_card as merged_card
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
    from a2a_trust.base.net.fetcher import Fetcher as Fetcher
    from a2a_trust.signing import CardVerifier as CardVerifier, VerifiedCard as VerifiedCard, sign_card as sign_card
    from a2a_trust.signing import verify_card as verify_card

    __version__: str
else:
    _find, __dir__ = lazy(__name__, {
        "auth": "ApiKeyVerifier DPoP JwtVerifier OpenIdKeys Principal SqliteApiKeys",
        "auth.certificate.verifier": "CertificateVerifier", "card.merge": "CardSecurity merged_card",
        "client": "AsyncVerifyingTransport CardAuth FetchOptions SqliteCardMemory "
        "VerifyingTransport async_fetch_card fetch_card verifying_client",
        "errors": "CardVerificationError ConfigurationError FetchError MalformedError TrustError",
        "keys": "KeyRingFile Origins TrustFile TrustStore TrustedKey generate_signer load_private_key publish_jwks",
        "lint": "lint_card",
        "middleware": "CardServing ExtendedCard FromApplication FromTls ProtectedAgent "
        "RequestRules acting_for current_principal principal_of protect protect_agents",
        "middleware.card": "CardFile", "base.net.fetcher": "Fetcher",
        "signing": "CardVerifier VerifiedCard sign_card verify_card",
    })  # fmt: skip

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            return version("a2a-trust")
        return _find(name)
