"""Clients of agents: verify a card, and compare it with remembered cards, before anything in it is used."""

from a2a_trust.base.exports import TYPE_CHECKING, lazy

if TYPE_CHECKING:
    from a2a_trust.client.httpx import AsyncVerifyingTransport as AsyncVerifyingTransport, CardAuth as CardAuth
    from a2a_trust.client.httpx import CredentialsError as CredentialsError, UnverifiedCardError as UnverifiedCardError
    from a2a_trust.client.httpx import CredentialsRejectedError as CredentialsRejectedError
    from a2a_trust.client.httpx import VerifyingTransport as VerifyingTransport
    from a2a_trust.client.httpx import sync_verifying_client as sync_verifying_client
    from a2a_trust.client.httpx import sync_verifying_clients as sync_verifying_clients
    from a2a_trust.client.httpx import verifying_client as verifying_client, verifying_clients as verifying_clients
    from a2a_trust.client.credentials import ApiKey as ApiKey, BasicCredentials as BasicCredentials
    from a2a_trust.client.credentials import BearerToken as BearerToken, SecretFile as SecretFile
    from a2a_trust.client.destinations import UnsafePassAnything as UnsafePassAnything
    from a2a_trust.client.memory import CardMemory as CardMemory, VolatileCardMemory as VolatileCardMemory
    from a2a_trust.client.memory_store import PostgresCardMemory as PostgresCardMemory
    from a2a_trust.client.memory_store import SqliteCardMemory as SqliteCardMemory
    from a2a_trust.client.oauth import ClientCredentials as ClientCredentials, RefreshToken as RefreshToken
    from a2a_trust.client.oauth import ClientSecret as ClientSecret, JwtSvid as JwtSvid, OAuthClient as OAuthClient
    from a2a_trust.client.oauth import IdentityAssertion as IdentityAssertion, TokenExchange as TokenExchange
    from a2a_trust.client.oauth import PrivateKeyJwt as PrivateKeyJwt, TlsClientAuth as TlsClientAuth
    from a2a_trust.client.sdk_hook import signature_verifier as signature_verifier
    from a2a_trust.client.verification import CardCache as CardCache, FetchOptions as FetchOptions
    from a2a_trust.client.verification import TrustOnFirstUse as TrustOnFirstUse, UnsafeReportOnly as UnsafeReportOnly
    from a2a_trust.client.verification import async_fetch_card as async_fetch_card, fetch_card as fetch_card
    from a2a_trust.client.verification import async_fetch_extended_card as async_fetch_extended_card
    from a2a_trust.client.verification import fetch_extended_card as fetch_extended_card
    from a2a_trust.base.net.fetcher import Fetched as Fetched, Fetcher as Fetcher, Resolver as Resolver
else:
    __getattr__, __dir__ = lazy(__name__, {
        "client.httpx": "AsyncVerifyingTransport CardAuth CredentialsError CredentialsRejectedError "
        "UnverifiedCardError VerifyingTransport sync_verifying_client sync_verifying_clients verifying_client "
        "verifying_clients",
        "client.credentials": "ApiKey BasicCredentials BearerToken SecretFile",
        "client.destinations": "UnsafePassAnything",
        "client.memory": "CardMemory VolatileCardMemory",
        "client.memory_store": "PostgresCardMemory SqliteCardMemory",
        "client.oauth": "ClientCredentials ClientSecret IdentityAssertion JwtSvid OAuthClient PrivateKeyJwt "
        "RefreshToken TlsClientAuth TokenExchange",
        "client.sdk_hook": "signature_verifier",
        "client.verification": "CardCache FetchOptions TrustOnFirstUse UnsafeReportOnly async_fetch_card "
        "async_fetch_extended_card fetch_card fetch_extended_card",
        "base.net.fetcher": "Fetched Fetcher Resolver",
    })  # fmt: skip
