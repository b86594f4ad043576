"""Security for A2A agents: sign Agent Cards, verify them, enforce what they declare, and manage the keys.

Rooms, from the ground up; each imports only from rooms before it:

==================  =================================================================================
``errors``          the exception tree
``strict_json``     the reader for JSON from strangers, canonical JSON (RFC 8785), JSON pointers
``dates``           moments as people read them
``cache``           bounded memories, and one flight for several callers
``files``           written whole or not at all, watched for changes, who may write them, SQLite
``net``             the fetcher, the one guarded way to the network; URLs, and which addresses are public
``card``            cards of every generation: what they say, what makes them ambiguous, two generations in one
``keys``            algorithms, JWK and PEM, key sets, JWS, signers, rings, origins, trust
``signing``         canonical JSON, presence, forms, signatures, sign, verify
``auth``            API keys, access tokens, client certificates, DPoP, and the guard that applies a card
``lint``            what in a card should be otherwise, and why
``middleware``      ASGI: the guard in front of an application, cards, key sets and metadata
``client``          cards fetched and verified, what is remembered of their origins, DPoP, certificates
``servers``         what only a server knows of a connection: for uvicorn and hypercorn
``cli``             the command ``a2a-sign``
==================  =================================================================================

The names below are what most programs need; they are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from a2a_trust.auth.api_key.sqlite import SqliteApiKeys as SqliteApiKeys
    from a2a_trust.auth.api_key.verifier import ApiKeyVerifier as ApiKeyVerifier
    from a2a_trust.auth.api_key.verifier import MemoryApiKeys as MemoryApiKeys
    from a2a_trust.auth.certificate.authority import ClientAuthority as ClientAuthority
    from a2a_trust.auth.certificate.identities import AllIssued as AllIssued
    from a2a_trust.auth.certificate.identities import FromDns as FromDns
    from a2a_trust.auth.certificate.identities import FromEmail as FromEmail
    from a2a_trust.auth.certificate.identities import FromSubject as FromSubject
    from a2a_trust.auth.certificate.identities import FromUri as FromUri
    from a2a_trust.auth.certificate.identities import OnlyIdentities as OnlyIdentities
    from a2a_trust.auth.certificate.identities import OnlyThumbprints as OnlyThumbprints
    from a2a_trust.auth.certificate.verifier import CertificateVerifier as CertificateVerifier
    from a2a_trust.auth.credentials import Cookie as Cookie
    from a2a_trust.auth.credentials import Header as Header
    from a2a_trust.auth.credentials import Query as Query
    from a2a_trust.auth.discovery import OAuth2Keys as OAuth2Keys
    from a2a_trust.auth.discovery import OpenIdKeys as OpenIdKeys
    from a2a_trust.auth.dpop import DPoP as DPoP
    from a2a_trust.auth.dpop import ServerNonces as ServerNonces
    from a2a_trust.auth.guard_config import At as At
    from a2a_trust.auth.jwt import IdTokenVerifier as IdTokenVerifier
    from a2a_trust.auth.jwt import JwtVerifier as JwtVerifier
    from a2a_trust.auth.jwt import TokenProfile as TokenProfile
    from a2a_trust.auth.principal import Anonymous as Anonymous
    from a2a_trust.auth.principal import BoundVerifier as BoundVerifier
    from a2a_trust.auth.principal import Identity as Identity
    from a2a_trust.auth.principal import KeyBinding as KeyBinding
    from a2a_trust.auth.principal import Principal as Principal
    from a2a_trust.auth.principal import TokenBinding as TokenBinding
    from a2a_trust.auth.principal import Verifier as Verifier
    from a2a_trust.auth.proof_memory import ProofMemory as ProofMemory
    from a2a_trust.auth.proof_memory import VolatileProofMemory as VolatileProofMemory
    from a2a_trust.auth.proof_store import SqliteProofMemory as SqliteProofMemory
    from a2a_trust.card.merge import merged_card as merged_card
    from a2a_trust.client.card_cache import CardCache as CardCache
    from a2a_trust.client.certificates import CertificateFiles as CertificateFiles
    from a2a_trust.client.certificates import CertificateInMemory as CertificateInMemory
    from a2a_trust.client.certificates import client_context as client_context
    from a2a_trust.client.destinations import UnsafePassAnything as UnsafePassAnything
    from a2a_trust.client.dpop import DPoPAuth as DPoPAuth
    from a2a_trust.client.dpop import DPoPAuthError as DPoPAuthError
    from a2a_trust.client.extended import fetch_extended_card as fetch_extended_card
    from a2a_trust.client.extended import fetch_extended_card_async as fetch_extended_card_async
    from a2a_trust.client.fetch_card import UnsafeReportOnly as UnsafeReportOnly
    from a2a_trust.client.fetch_card import fetch_card as fetch_card
    from a2a_trust.client.fetch_card import fetch_card_async as fetch_card_async
    from a2a_trust.client.first_use import TrustOnFirstUse as TrustOnFirstUse
    from a2a_trust.client.memory import VolatileCardMemory as VolatileCardMemory
    from a2a_trust.client.memory_store import SqliteCardMemory as SqliteCardMemory
    from a2a_trust.client.transport import AsyncVerifyingTransport as AsyncVerifyingTransport
    from a2a_trust.client.transport import UnverifiedCardError as UnverifiedCardError
    from a2a_trust.client.transport import VerifyingTransport as VerifyingTransport
    from a2a_trust.errors import AuthenticationError as AuthenticationError
    from a2a_trust.errors import AuthorizationError as AuthorizationError
    from a2a_trust.errors import CardMemoryError as CardMemoryError
    from a2a_trust.errors import CardMemoryUnavailableError as CardMemoryUnavailableError
    from a2a_trust.errors import CardNotServedError as CardNotServedError
    from a2a_trust.errors import CardVerificationError as CardVerificationError
    from a2a_trust.errors import ConfigurationError as ConfigurationError
    from a2a_trust.errors import CrossSiteError as CrossSiteError
    from a2a_trust.errors import FetchError as FetchError
    from a2a_trust.errors import InvalidCredentialsError as InvalidCredentialsError
    from a2a_trust.errors import InvalidSignatureError as InvalidSignatureError
    from a2a_trust.errors import KeySourceUnavailableError as KeySourceUnavailableError
    from a2a_trust.errors import MalformedError as MalformedError
    from a2a_trust.errors import MissingCredentialsError as MissingCredentialsError
    from a2a_trust.errors import PartialSignatureError as PartialSignatureError
    from a2a_trust.errors import PinnedKeyError as PinnedKeyError
    from a2a_trust.errors import PolicyNotMetError as PolicyNotMetError
    from a2a_trust.errors import RolledBackCardError as RolledBackCardError
    from a2a_trust.errors import SigningError as SigningError
    from a2a_trust.errors import TooManyRequestsError as TooManyRequestsError
    from a2a_trust.errors import TrustError as TrustError
    from a2a_trust.errors import UncoveredFieldsError as UncoveredFieldsError
    from a2a_trust.errors import UnrecognizedCredentialsError as UnrecognizedCredentialsError
    from a2a_trust.errors import UnsignedCardError as UnsignedCardError
    from a2a_trust.errors import UntrustedCardError as UntrustedCardError
    from a2a_trust.keys.files import load_private_key as load_private_key
    from a2a_trust.keys.files import save_private_key as save_private_key
    from a2a_trust.keys.jwk import PublicKey as PublicKey
    from a2a_trust.keys.jwks_cache import JwksCache as JwksCache
    from a2a_trust.keys.keyset import publish_jwks as publish_jwks
    from a2a_trust.keys.keyset import read_jwks as read_jwks
    from a2a_trust.keys.origins import Origins as Origins
    from a2a_trust.keys.origins import UnsafeAnyOrigin as UnsafeAnyOrigin
    from a2a_trust.keys.policy import all_of as all_of
    from a2a_trust.keys.policy import n_of as n_of
    from a2a_trust.keys.policy import named as named
    from a2a_trust.keys.ring_file import KeyRingFile as KeyRingFile
    from a2a_trust.keys.ring_file import load_key_ring as load_key_ring
    from a2a_trust.keys.rotation import KeyRing as KeyRing
    from a2a_trust.keys.signer import LocalSigner as LocalSigner
    from a2a_trust.keys.signer import Signer as Signer
    from a2a_trust.keys.signer import generate_signer as generate_signer
    from a2a_trust.keys.trust import SigningTool as SigningTool
    from a2a_trust.keys.trust import TrustedKey as TrustedKey
    from a2a_trust.keys.trust import TrustSource as TrustSource
    from a2a_trust.keys.trust import TrustStore as TrustStore
    from a2a_trust.keys.trust_file import TrustFile as TrustFile
    from a2a_trust.lint.findings import Finding as Finding
    from a2a_trust.lint.findings import Severity as Severity
    from a2a_trust.lint.lint_card import lint_card as lint_card
    from a2a_trust.middleware.authentication import CardEnforcementMiddleware as CardEnforcementMiddleware
    from a2a_trust.middleware.authentication import principal_of as principal_of
    from a2a_trust.middleware.card import CardFile as CardFile
    from a2a_trust.middleware.card import CardSignedHere as CardSignedHere
    from a2a_trust.middleware.card import CardSigner as CardSigner
    from a2a_trust.middleware.card import FixedCard as FixedCard
    from a2a_trust.middleware.card import PublicCard as PublicCard
    from a2a_trust.middleware.card_access import CardReaders as CardReaders
    from a2a_trust.middleware.client_certificate import FromTls as FromTls
    from a2a_trust.middleware.extended_card import ExtendedCard as ExtendedCard
    from a2a_trust.middleware.metadata import JwksEndpoint as JwksEndpoint
    from a2a_trust.middleware.metadata import ProtectedResource as ProtectedResource
    from a2a_trust.middleware.options import RequestRules as RequestRules
    from a2a_trust.middleware.peer import Networks as Networks
    from a2a_trust.middleware.protection import CardServing as CardServing
    from a2a_trust.middleware.protection import protect as protect
    from a2a_trust.middleware.proxies.certificate_only import AwsAlb as AwsAlb
    from a2a_trust.middleware.proxies.certificate_only import Caddy as Caddy
    from a2a_trust.middleware.proxies.certificate_only import Rfc9440 as Rfc9440
    from a2a_trust.middleware.proxies.certificate_only import Traefik as Traefik
    from a2a_trust.middleware.proxies.envoy import Envoy as Envoy
    from a2a_trust.middleware.proxies.from_proxy import FromProxy as FromProxy
    from a2a_trust.middleware.proxies.from_proxy import ProxySecret as ProxySecret
    from a2a_trust.middleware.proxies.from_proxy import UnixSocket as UnixSocket
    from a2a_trust.middleware.proxies.with_verdict import Apache as Apache
    from a2a_trust.middleware.proxies.with_verdict import HAProxy as HAProxy
    from a2a_trust.middleware.proxies.with_verdict import Nginx as Nginx
    from a2a_trust.middleware.rules import call_of as call_of
    from a2a_trust.net.fetcher import Fetcher as Fetcher
    from a2a_trust.signing.forms import Form as Form
    from a2a_trust.signing.sign import SignedCard as SignedCard
    from a2a_trust.signing.sign import sign_card as sign_card
    from a2a_trust.signing.verifier import CardVerifier as CardVerifier
    from a2a_trust.signing.verify import SignedPartOnly as SignedPartOnly
    from a2a_trust.signing.verify import VerifiedCard as VerifiedCard
    from a2a_trust.signing.verify import verify_card as verify_card

#: Public name -> module: what a caller does not use is not loaded, and the command starts fast.
_HOMES = {
    "AllIssued": "auth.certificate.identities",
    "Anonymous": "auth.principal",
    "Apache": "middleware.proxies.with_verdict",
    "ApiKeyVerifier": "auth.api_key.verifier",
    "AsyncVerifyingTransport": "client.transport",
    "At": "auth.guard_config",
    "AuthenticationError": "errors",
    "CardEnforcementMiddleware": "middleware.authentication",
    "AuthorizationError": "errors",
    "AwsAlb": "middleware.proxies.certificate_only",
    "BoundVerifier": "auth.principal",
    "Caddy": "middleware.proxies.certificate_only",
    "CardCache": "client.card_cache",
    "CardFile": "middleware.card",
    "CardMemoryError": "errors",
    "CardMemoryUnavailableError": "errors",
    "CardNotServedError": "errors",
    "CardSignedHere": "middleware.card",
    "CardSigner": "middleware.card",
    "CardVerificationError": "errors",
    "CardVerifier": "signing.verifier",
    "CertificateFiles": "client.certificates",
    "CertificateInMemory": "client.certificates",
    "CertificateVerifier": "auth.certificate.verifier",
    "ClientAuthority": "auth.certificate.authority",
    "ConfigurationError": "errors",
    "Cookie": "auth.credentials",
    "CrossSiteError": "errors",
    "DPoP": "auth.dpop",
    "DPoPAuth": "client.dpop",
    "DPoPAuthError": "client.dpop",
    "Fetcher": "net.fetcher",
    "Envoy": "middleware.proxies.envoy",
    "ExtendedCard": "middleware.extended_card",
    "FetchError": "errors",
    "Finding": "lint.findings",
    "FixedCard": "middleware.card",
    "Form": "signing.forms",
    "FromDns": "auth.certificate.identities",
    "FromEmail": "auth.certificate.identities",
    "FromProxy": "middleware.proxies.from_proxy",
    "FromSubject": "auth.certificate.identities",
    "FromTls": "middleware.client_certificate",
    "FromUri": "auth.certificate.identities",
    "HAProxy": "middleware.proxies.with_verdict",
    "Header": "auth.credentials",
    "IdTokenVerifier": "auth.jwt",
    "Identity": "auth.principal",
    "InvalidCredentialsError": "errors",
    "InvalidSignatureError": "errors",
    "JwksCache": "keys.jwks_cache",
    "JwksEndpoint": "middleware.metadata",
    "JwtVerifier": "auth.jwt",
    "KeyBinding": "auth.principal",
    "KeyRing": "keys.rotation",
    "KeyRingFile": "keys.ring_file",
    "KeySourceUnavailableError": "errors",
    "LocalSigner": "keys.signer",
    "MalformedError": "errors",
    "MemoryApiKeys": "auth.api_key.verifier",
    "MissingCredentialsError": "errors",
    "Networks": "middleware.peer",
    "Nginx": "middleware.proxies.with_verdict",
    "OAuth2Keys": "auth.discovery",
    "OnlyIdentities": "auth.certificate.identities",
    "OnlyThumbprints": "auth.certificate.identities",
    "OpenIdKeys": "auth.discovery",
    "Origins": "keys.origins",
    "PartialSignatureError": "errors",
    "PinnedKeyError": "errors",
    "PolicyNotMetError": "errors",
    "Principal": "auth.principal",
    "ProofMemory": "auth.proof_memory",
    "ProtectedResource": "middleware.metadata",
    "ProxySecret": "middleware.proxies.from_proxy",
    "PublicCard": "middleware.card",
    "PublicKey": "keys.jwk",
    "Query": "auth.credentials",
    "RequestRules": "middleware.options",
    "CardServing": "middleware.protection",
    "CardReaders": "middleware.card_access",
    "Rfc9440": "middleware.proxies.certificate_only",
    "RolledBackCardError": "errors",
    "ServerNonces": "auth.dpop",
    "Severity": "lint.findings",
    "SignedCard": "signing.sign",
    "SignedPartOnly": "signing.verify",
    "Signer": "keys.signer",
    "SigningError": "errors",
    "SigningTool": "keys.trust",
    "SqliteApiKeys": "auth.api_key.sqlite",
    "SqliteCardMemory": "client.memory_store",
    "SqliteProofMemory": "auth.proof_store",
    "TokenBinding": "auth.principal",
    "TokenProfile": "auth.jwt",
    "TooManyRequestsError": "errors",
    "Traefik": "middleware.proxies.certificate_only",
    "TrustError": "errors",
    "TrustFile": "keys.trust_file",
    "TrustOnFirstUse": "client.first_use",
    "TrustSource": "keys.trust",
    "TrustStore": "keys.trust",
    "TrustedKey": "keys.trust",
    "UncoveredFieldsError": "errors",
    "UnrecognizedCredentialsError": "errors",
    "UnixSocket": "middleware.proxies.from_proxy",
    "UnsafeAnyOrigin": "keys.origins",
    "UnsafePassAnything": "client.destinations",
    "UnsafeReportOnly": "client.fetch_card",
    "UnsignedCardError": "errors",
    "UntrustedCardError": "errors",
    "UnverifiedCardError": "client.transport",
    "VerifiedCard": "signing.verify",
    "Verifier": "auth.principal",
    "VerifyingTransport": "client.transport",
    "VolatileCardMemory": "client.memory",
    "VolatileProofMemory": "auth.proof_memory",
    "all_of": "keys.policy",
    "call_of": "middleware.rules",
    "client_context": "client.certificates",
    "fetch_card": "client.fetch_card",
    "fetch_card_async": "client.fetch_card",
    "fetch_extended_card": "client.extended",
    "fetch_extended_card_async": "client.extended",
    "generate_signer": "keys.signer",
    "lint_card": "lint.lint_card",
    "load_key_ring": "keys.ring_file",
    "load_private_key": "keys.files",
    "merged_card": "card.merge",
    "n_of": "keys.policy",
    "named": "keys.policy",
    "principal_of": "middleware.authentication",
    "protect": "middleware.protection",
    "publish_jwks": "keys.keyset",
    "read_jwks": "keys.keyset",
    "save_private_key": "keys.files",
    "sign_card": "signing.sign",
    "verify_card": "signing.verify",
}

_LIBRARIES_OF_EXTRAS = ("anyio", "httpcore", "httpx", "msgspec", "starlette")

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(f"{__name__}.{home}"), name)
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in _LIBRARIES_OF_EXTRAS:
            raise
        extra = "client" if home.startswith("client.") else "server"
        raise ImportError(f'{name} is for {extra}s and needs {library}: pip install "a2a-trust[{extra}]"') from None
    globals()[name] = value
    return value
