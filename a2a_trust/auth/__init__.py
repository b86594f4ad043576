"""Requests: who is asking, and may they."""

from a2a_trust.base.exports import TYPE_CHECKING, lazy

if TYPE_CHECKING:
    from a2a_trust.auth.api_key.shared import PostgresApiKeys as PostgresApiKeys, RedisApiKeys as RedisApiKeys
    from a2a_trust.auth.record_table import SqliteApiKeys as SqliteApiKeys
    from a2a_trust.auth.api_key.verifier import ApiKeyRecord as ApiKeyRecord, ApiKeyStore as ApiKeyStore
    from a2a_trust.auth.api_key.verifier import ApiKeyVerifier as ApiKeyVerifier, IssuedApiKey as IssuedApiKey
    from a2a_trust.auth.api_key.verifier import MemoryApiKeys as MemoryApiKeys
    from a2a_trust.auth.basic.records import IssuedPassword as IssuedPassword, MemoryPasswords as MemoryPasswords
    from a2a_trust.auth.basic.records import PasswordRecord as PasswordRecord, PasswordStore as PasswordStore
    from a2a_trust.auth.record_table import SqlitePasswords as SqlitePasswords
    from a2a_trust.auth.basic.verifier import BasicVerifier as BasicVerifier
    from a2a_trust.auth.credentials import HttpAuthorization as HttpAuthorization, InCookie as InCookie
    from a2a_trust.auth.credentials import InHeader as InHeader, InQuery as InQuery
    from a2a_trust.auth.discovery import JwksFile as JwksFile, OAuth2Keys as OAuth2Keys, OpenIdKeys as OpenIdKeys
    from a2a_trust.auth.discovery import SeveralKeySources as SeveralKeySources
    from a2a_trust.auth.dpop import DPoP as DPoP, ServerNonces as ServerNonces
    from a2a_trust.auth.guard_config import CredentialAt as CredentialAt
    from a2a_trust.auth.introspection import IntrospectionVerifier as IntrospectionVerifier
    from a2a_trust.auth.introspection_endpoint import EndpointAuthentication as EndpointAuthentication
    from a2a_trust.auth.token_claims import SeveralIssuers as SeveralIssuers
    from a2a_trust.auth.jwt import IdTokenVerifier as IdTokenVerifier, JwtVerifier as JwtVerifier
    from a2a_trust.auth.jwt import TokenProfile as TokenProfile
    from a2a_trust.auth.principal import Actor as Actor, Anonymous as Anonymous, BoundVerifier as BoundVerifier
    from a2a_trust.auth.principal import CredentialKind as CredentialKind, Identity as Identity
    from a2a_trust.auth.principal import KeyBinding as KeyBinding, Principal as Principal, TokenBinding as TokenBinding
    from a2a_trust.auth.principal import SubjectToken as SubjectToken, TokenVerifier as TokenVerifier
    from a2a_trust.auth.principal import Verifier as Verifier
    from a2a_trust.auth.proofs.memory import ProofMemory as ProofMemory, VolatileProofMemory as VolatileProofMemory
    from a2a_trust.auth.proofs.shared import PostgresProofMemory as PostgresProofMemory
    from a2a_trust.auth.proofs.shared import RedisProofMemory as RedisProofMemory
    from a2a_trust.auth.proofs.sqlite import SqliteProofMemory as SqliteProofMemory
    from a2a_trust.auth.throttle import FailureLimits as FailureLimits, RedisCounters as RedisCounters
    from a2a_trust.auth.introspection import RedisTokenCache as RedisTokenCache
    from a2a_trust.auth.token_claims import AccessTokenMark as AccessTokenMark
else:
    __getattr__, __dir__ = lazy(__name__, {
        "auth.api_key.shared": "PostgresApiKeys RedisApiKeys", "auth.record_table": "SqliteApiKeys SqlitePasswords",
        "auth.api_key.verifier": "ApiKeyRecord ApiKeyStore ApiKeyVerifier IssuedApiKey MemoryApiKeys",
        "auth.basic.records": "IssuedPassword MemoryPasswords PasswordRecord PasswordStore",
        "auth.basic.verifier": "BasicVerifier", "auth.credentials": "HttpAuthorization InCookie InHeader InQuery",
        "auth.discovery": "JwksFile OAuth2Keys OpenIdKeys SeveralKeySources", "auth.dpop": "DPoP ServerNonces",
        "auth.guard_config": "CredentialAt", "auth.introspection": "IntrospectionVerifier RedisTokenCache",
        "auth.introspection_endpoint": "EndpointAuthentication",
        "auth.token_claims": "SeveralIssuers AccessTokenMark", "auth.jwt": "IdTokenVerifier JwtVerifier TokenProfile",
        "auth.principal": "Actor Anonymous BoundVerifier CredentialKind Identity KeyBinding Principal TokenBinding "
        "SubjectToken TokenVerifier Verifier", "auth.proofs.memory": "ProofMemory VolatileProofMemory",
        "auth.proofs.shared": "PostgresProofMemory RedisProofMemory", "auth.proofs.sqlite": "SqliteProofMemory",
        "auth.throttle": "FailureLimits RedisCounters",
    })  # fmt: skip
