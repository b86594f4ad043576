"""Access tokens and API keys: what it takes to know whose they are."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from hashlib import sha256
from itertools import repeat
from time import perf_counter
from typing import Any, Final

from a2a_trust.auth.api_key import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.keys import base64url
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.jws import signing_input
from benchmarks.peers import Peers
from benchmarks.rounds import Contender, Row, Timer, calls_per_round, repeated
from benchmarks.setting import Setting

__all__ = ["AUDIENCE", "ISSUER", "OneKey", "rows_api_keys", "rows_tokens", "token_of"]

ISSUER: Final = "https://login.example.com"
AUDIENCE: Final = "https://agent.example.com"
_TOKENS: Final = 400

LOOP: Final = asyncio.new_event_loop()


class OneKey:
    """The keys of an issuer that has one, without a network."""

    generation = 0

    def __init__(self, key: PublicKey) -> None:
        self._key = key

    async def key(self, kid: str, kty: str) -> PublicKey:  # noqa: ARG002
        return self._key

    async def only_key(self, kty: str) -> PublicKey:  # noqa: ARG002
        return self._key


def token_of(peers: Peers, number: int = 0) -> str:
    """An access token by RFC 9068."""
    signer = peers.signer
    header = {"alg": signer.alg, "typ": "at+jwt", "kid": signer.kid}
    now = int(time.time())
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "248289761001",
        "client_id": "s6BhdRkqt3",
        "iat": now - 10,
        "exp": now + 86_400,
        "jti": f"dbe39bf3a3ba4238a513f51d6e1691c4{number}",
        "scope": "invoices:read invoices:write",
    }
    data = signing_input(base64url.encode(json.dumps(header).encode()), json.dumps(claims).encode())
    return f"{data.decode()}.{base64url.encode(signer.sign(data))}"


def rows_tokens(setting: Setting) -> Iterator[Row]:
    """A token to its claims, all of RFC 9068 that each contender can check."""
    yield _tokens(setting, setting.es256, target=1.2)
    yield _tokens(setting, setting.rs256, target=1.6)
    yield _remembered(setting)


def awaited(work: Callable[[], Awaitable[Any]]) -> Timer:
    """As ``repeated``, for coroutines."""

    async def timed(calls: int) -> float:
        start = perf_counter()
        for _ in repeat(None, calls):
            await work()
        return (perf_counter() - start) / calls

    calls = calls_per_round(LOOP.run_until_complete(timed(3)))
    return lambda: LOOP.run_until_complete(timed(calls))


def _tokens(setting: Setting, peers: Peers, *, target: float) -> Row:
    alg, key = peers.signer.alg, peers.signer.public_key
    tokens = [token_of(peers, number) for number in range(_TOKENS)]
    token = tokens[0]
    data, _, signature = token.rpartition(".")
    raw_verify, octets = peers.raw_verifier(base64url.decode(signature, "signature")), data.encode()

    async def all_different(count: int) -> float:
        verifier = JwtVerifier(OneKey(key), issuer=ISSUER, audience=AUDIENCE)
        now = time.time()
        start = perf_counter()
        for each in tokens[:count]:
            await verifier.verify(each, now)
        return (perf_counter() - start) / count

    count = min(_TOKENS, calls_per_round(LOOP.run_until_complete(all_different(20))))
    contenders = [
        Contender(name="cryptography verify (floor)", timer=repeated(lambda: raw_verify(octets))),
        Contender(
            name="a2a_trust JwtVerifier, tokens not seen before",
            timer=lambda: LOOP.run_until_complete(all_different(count)),
            target=target,
        ),
        *_peers_of_tokens(key, alg, token),
    ]
    return Row(
        title=f"access token, {alg}, {len(token)} characters",
        baseline="cryptography verify (floor)",
        contenders=tuple(contenders),
        rounds=setting.rounds(60),
    )


def _peers_of_tokens(key: PublicKey, alg: str, token: str) -> Iterator[Contender]:
    import warnings

    import jwt
    from authlib.oauth2.rfc9068 import JWTBearerTokenValidator
    from fastmcp.server.auth.providers.jwt import JWTVerifier
    from joserfc import jwt as joserfc_jwt
    from joserfc.jwk import import_key

    jwk = key.to_jwk()
    joserfc_key = import_key(jwk)
    registry = joserfc_jwt.JWTClaimsRegistry(
        iss={"essential": True, "value": ISSUER}, aud={"essential": True, "value": AUDIENCE}, exp={"essential": True}
    )

    def with_joserfc() -> Any:
        decoded = joserfc_jwt.decode(token, joserfc_key, algorithms=[alg])
        registry.validate(decoded.claims)
        return decoded.claims

    yield Contender(name="joserfc", timer=repeated(with_joserfc))
    pyjwt_key, required = jwt.PyJWK(jwk), ["exp", "iss", "aud", "sub"]

    def with_pyjwt(found: Any = pyjwt_key) -> Any:
        return jwt.decode(token, found, [alg], {"require": required}, audience=AUDIENCE, issuer=ISSUER)

    yield Contender(name="PyJWT", timer=repeated(with_pyjwt))

    class Client(jwt.PyJWKClient):
        def fetch_data(self) -> Any:
            raise AssertionError("the set is in the cache")

    client = Client(f"{ISSUER}/jwks", lifespan=86_400)
    if client.jwk_set_cache is None:
        raise TypeError("PyJWKClient keeps no set")
    client.jwk_set_cache.put({"keys": [jwk]})
    yield Contender(
        name="PyJWKClient + PyJWT", timer=repeated(lambda: with_pyjwt(client.get_signing_key_from_jwt(token)))
    )

    class Validator(JWTBearerTokenValidator):  # type: ignore[misc]
        def get_jwks(self) -> Any:
            return {"keys": [jwk]}

    warnings.filterwarnings("ignore", module="authlib")  # of its own ways, in every call
    validator = Validator(issuer=ISSUER, resource_server=AUDIENCE)

    def with_authlib() -> Any:
        claims = validator.authenticate_token(token)
        validator.validate_token(claims, [], None)
        return claims

    yield Contender(name="authlib rfc9068", timer=repeated(with_authlib))
    fastmcp = JWTVerifier(public_key=key.to_pem().decode(), issuer=ISSUER, audience=AUDIENCE, algorithm=alg)
    if LOOP.run_until_complete(fastmcp.verify_token(token)) is None:
        raise AssertionError("FastMCP does not take the token")
    yield Contender(name="FastMCP JWTVerifier", timer=awaited(lambda: fastmcp.verify_token(token)))


def _remembered(setting: Setting) -> Row:
    """The same token again: what is left is its digest and a look into the memory."""
    peers = setting.es256
    token, now = token_of(peers), time.time()
    verifier = JwtVerifier(OneKey(peers.signer.public_key), issuer=ISSUER, audience=AUDIENCE)
    return Row(
        title=f"the same access token again, {len(token)} characters",
        baseline="sha256 of it and a dict (floor)",
        contenders=(
            _digest_and_dict(token),
            Contender(name="a2a_trust JwtVerifier", timer=awaited(lambda: verifier.verify(token, now))),
        ),
        rounds=setting.rounds(60),
        notes=("wanted: 1.5 µs at most",),
    )


def _digest_and_dict(text: str) -> Contender:
    known = {sha256(text.encode()).digest(): True}
    return Contender(
        name="sha256 of it and a dict (floor)", timer=repeated(lambda: known.get(sha256(text.encode()).digest()))
    )


def rows_api_keys(setting: Setting) -> Iterator[Row]:
    """A key to its owner."""
    from argon2 import PasswordHasher

    contenders = []
    key = ""
    for number in (10, 100_000):
        store = MemoryApiKeys()
        issued = [store.create(owner=f"owner {index}", scopes=["read"]) for index in range(number)]
        key, verifier = issued[number // 2].text, ApiKeyVerifier(store)
        contenders.append(Contender(name=f"a2a_trust ApiKeyVerifier, {number:,} keys", timer=_verified(verifier, key)))
    hasher = PasswordHasher()
    kept = hasher.hash(key)
    yield Row(
        title="API key",
        baseline="sha256 of it and a dict (floor)",
        contenders=(
            _digest_and_dict(key),
            *contenders,
            Contender(name="argon2id", timer=repeated(lambda: hasher.verify(kept, key))),
        ),
        rounds=setting.rounds(40),
        notes=("wanted: 1 µs at most, whatever the number of keys",),
    )


def _verified(verifier: ApiKeyVerifier, key: str) -> Timer:
    now = time.time()
    return awaited(lambda: verifier.verify(key, now))
