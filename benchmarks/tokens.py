"""Access tokens: what it takes to know whose they are."""

from __future__ import annotations

import asyncio
import json
import time
import warnings
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from hashlib import sha256
from itertools import repeat
from random import Random
from time import perf_counter
from typing import Any, Final
from urllib.parse import urlencode

from a2a_trust.auth.introspection import IntrospectionVerifier
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.keys import base64url
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.jws import signing_input
from benchmarks.peers import Peers
from benchmarks.rounds import Contender, Row, Timer, calls_per_round, repeated
from benchmarks.setting import Setting

__all__ = ["AUDIENCE", "ISSUER", "LOOP", "OneKey", "awaited", "rows_tokens", "token_of"]

ISSUER: Final = "https://login.example.com"
AUDIENCE: Final = "https://agent.example.com"
_TOKENS: Final = 400
_REQUIRED: Final[Any] = {"require": ["exp", "iss", "aud", "sub"]}  # PyJWT's options

_FLOOR: Final = "sha256 of it and a dict (floor)"

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
    yield _tokens(setting, setting.es256, target=1.5)
    yield _tokens(setting, setting.rs256, target=2.0)
    yield _remembered(setting)
    yield _remembered_opaque(setting)
    yield _asked_about(setting)
    for callers in (4_000, 6_000, 20_000):
        yield _of_many_callers(setting, callers)


def awaited(work: Callable[[], Awaitable[Any]]) -> Timer:
    """As ``repeated``, for coroutines."""

    async def timed(calls: int) -> float:
        start = perf_counter()
        for _ in repeat(None, calls):
            await work()
        return (perf_counter() - start) / calls

    LOOP.run_until_complete(timed(1))  # what is made or read on the first call is not what a call takes
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

    LOOP.run_until_complete(all_different(20))
    count = min(_TOKENS, calls_per_round(LOOP.run_until_complete(all_different(20))))
    contenders = [
        Contender(name="cryptography verify (floor)", timer=repeated(lambda: raw_verify(octets))),
        Contender(
            name="a2a_trust JwtVerifier, tokens not seen before",
            timer=lambda: LOOP.run_until_complete(all_different(count)),
            target=target,
        ),
        *setting.available("joserfc", lambda: _joserfc(key, token)),
        *setting.available("PyJWT", lambda: _pyjwt(key, token)),
        *setting.available("PyJWKClient", lambda: _pyjwk_client(key, token)),
        *setting.available("authlib", lambda: _authlib(key, token)),
        *setting.available("FastMCP", lambda: _fastmcp(key, token)),
    ]
    return Row(
        title=f"access token, {alg}, {len(token)} characters",
        baseline="cryptography verify (floor)",
        contenders=tuple(contenders),
        rounds=setting.rounds(60),
    )


def _joserfc(key: PublicKey, token: str) -> Contender:
    from joserfc import jwt
    from joserfc.jwk import import_key

    imported = import_key(key.to_jwk())
    registry = jwt.JWTClaimsRegistry(
        iss={"essential": True, "value": ISSUER},
        aud={"essential": True, "value": AUDIENCE},
        exp={"essential": True},
        sub={"essential": True},
    )

    def verify() -> Any:
        decoded = jwt.decode(token, imported, algorithms=[key.alg])
        registry.validate(decoded.claims)
        return decoded.claims

    return Contender(name="joserfc, imported key", timer=repeated(verify))


def _pyjwt(key: PublicKey, token: str) -> Contender:
    import jwt

    imported = jwt.PyJWK(key.to_jwk())
    return Contender(name="PyJWT, imported key", timer=repeated(lambda: _decoded_by_pyjwt(token, imported, key.alg)))


def _pyjwk_client(key: PublicKey, token: str) -> Contender:
    import jwt

    class Client(jwt.PyJWKClient):
        def fetch_data(self) -> Any:
            raise AssertionError("the set is in the cache")

    client = Client(f"{ISSUER}/jwks", lifespan=86_400)
    if client.jwk_set_cache is None:
        raise TypeError("PyJWKClient keeps no set")
    client.jwk_set_cache.put({"keys": [key.to_jwk()]})
    return Contender(
        name="PyJWT with PyJWKClient, set in its cache",
        timer=repeated(lambda: _decoded_by_pyjwt(token, client.get_signing_key_from_jwt(token), key.alg)),
    )


def _decoded_by_pyjwt(token: str, key: Any, alg: str) -> Any:
    import jwt

    return jwt.decode(token, key, [alg], _REQUIRED, audience=AUDIENCE, issuer=ISSUER)


def _authlib(key: PublicKey, token: str) -> Contender:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own ways
        from authlib.oauth2.rfc9068 import JWTBearerTokenValidator

    jwks = {"keys": [key.to_jwk()]}

    class Validator(JWTBearerTokenValidator):  # type: ignore[misc]
        def get_jwks(self) -> Any:
            return jwks

    warnings.filterwarnings("ignore", module="authlib")  # once, and not in every call that is measured
    validator = Validator(issuer=ISSUER, resource_server=AUDIENCE)

    def verify() -> Any:
        claims = validator.authenticate_token(token)
        validator.validate_token(claims, [], None)
        return claims

    return Contender(name="authlib rfc9068", timer=repeated(verify))


def _fastmcp(key: PublicKey, token: str) -> Contender:
    from fastmcp.server.auth.providers.jwt import JWTVerifier

    verifier = JWTVerifier(public_key=key.to_pem().decode(), issuer=ISSUER, audience=AUDIENCE, algorithm=key.alg)
    if LOOP.run_until_complete(verifier.verify_token(token)) is None:
        raise AssertionError("FastMCP does not take the token")
    return Contender(name="FastMCP JWTVerifier", timer=awaited(lambda: verifier.verify_token(token)))


def _remembered(setting: Setting) -> Row:
    """The same token again: what is left is its digest and a look into the memory."""
    peers = setting.es256
    token, now = token_of(peers), time.time()
    verifier = JwtVerifier(OneKey(peers.signer.public_key), issuer=ISSUER, audience=AUDIENCE)
    return Row(
        title=f"the same access token again, {len(token)} characters",
        baseline=_FLOOR,
        contenders=(
            _digest_and_dict(token),
            Contender(
                name="a2a_trust JwtVerifier", timer=awaited(lambda: verifier.verify_bound(token, now)), target=1.4
            ),
        ),
        rounds=setting.rounds(60),
    )


class _Secret:
    """HTTP Basic, without the extra for clients."""

    async def authenticated(self, client: Any, url: str, form: str) -> tuple[dict[str, str], bytes]:  # noqa: ARG002
        return {"Authorization": f"Basic {b64encode(b'agent:secret').decode()}"}, form.encode()


_OPAQUE: Final = "mF_9.B5f-4.1JqM" * 3


async def _answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An introspection endpoint to which every token is a good one."""
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
    answer = {
        "active": True,
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "248289761001",
        "client_id": "s6BhdRkqt3",
        "exp": int(time.time()) + 86_400,
        "scope": "invoices:read invoices:write",
        "token_type": "Bearer",
    }
    body = json.dumps(answer).encode()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()
    writer.close()


def _introspecting(**options: Any) -> IntrospectionVerifier:
    """A verifier that asks a server on this machine."""
    server = LOOP.run_until_complete(asyncio.start_server(_answering, "127.0.0.1", 0))
    origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    return IntrospectionVerifier(
        f"{origin}/introspect",
        issuer=ISSUER,
        audience=AUDIENCE,
        client_id="agent",
        authentication=_Secret(),
        fetcher=Fetcher(private_origins=[origin]),
        **options,
    )


def _remembered_opaque(setting: Setting) -> Row:
    """An opaque token again, beside a JWT: neither is asked about nor verified twice."""
    peers, now = setting.es256, time.time()
    token, jwts = token_of(peers), JwtVerifier(OneKey(peers.signer.public_key), issuer=ISSUER, audience=AUDIENCE)
    verifier = _introspecting()
    return Row(
        title=f"the same opaque token again, {len(_OPAQUE)} characters",
        baseline=_FLOOR,
        contenders=(
            _digest_and_dict(_OPAQUE),
            Contender(
                name="a2a_trust IntrospectionVerifier",
                timer=awaited(lambda: verifier.verify_bound(_OPAQUE, now)),
                at_most=1.5e-6,
            ),
            Contender(
                name=f"a2a_trust JwtVerifier, a JWT of {len(token)} characters",
                timer=awaited(lambda: jwts.verify_bound(token, now)),
            ),
        ),
        rounds=setting.rounds(60),
    )


def _asked_about(setting: Setting) -> Row:
    """An unknown opaque token: one question to a server on this machine, over plain http, and its answer."""
    now, verifier = time.time(), _introspecting(remember_for=0.0)
    url, fetcher = verifier._endpoint._url, verifier._endpoint._fetcher
    form = urlencode({"token": _OPAQUE, "token_type_hint": "access_token"}).encode()
    return Row(
        title="an opaque token that is asked about, on this machine",
        baseline="Fetcher.post_form (floor)",
        contenders=(
            Contender(name="Fetcher.post_form (floor)", timer=awaited(lambda: fetcher.post_form(url, form))),
            Contender(
                name="a2a_trust IntrospectionVerifier",
                timer=awaited(lambda: verifier.verify_bound(_OPAQUE, now)),
                target=1.5,
            ),
        ),
        rounds=setting.rounds(20),
    )


def _of_many_callers(setting: Setting, callers: int) -> Row:
    """Each caller has a live token of its own, and they come in any order."""
    key, order, now = _CountedKey(setting.es256.signer.public_key), Random(1), time.time()
    tokens = [token_of(setting.es256, number) for number in range(callers)]
    verifier = JwtVerifier(key, issuer=ISSUER, audience=AUDIENCE)
    known = {sha256(token.encode()).digest(): True for token in tokens}

    async def serve(requests: list[str]) -> float:
        start = perf_counter()
        for token in requests:
            await verifier.verify_bound(token, now)
        return (perf_counter() - start) / len(requests)

    def look_up(requests: list[str]) -> float:
        start = perf_counter()
        for token in requests:
            known.get(sha256(token.encode()).digest())
        return (perf_counter() - start) / len(requests)

    LOOP.run_until_complete(serve(tokens))
    key.asked = 0
    LOOP.run_until_complete(serve(order.choices(tokens, k=2 * callers)))
    hits = 1 - key.asked / (2 * callers)
    return Row(
        title=f"access tokens of {callers:,} callers, {len(tokens[0])} characters",
        baseline=_FLOOR,
        contenders=(
            Contender(name=_FLOOR, timer=lambda: look_up(order.choices(tokens, k=2_000))),
            Contender(
                name="a2a_trust JwtVerifier",
                timer=lambda: LOOP.run_until_complete(serve(order.choices(tokens, k=2_000))),
                target=1.4,
            ),
        ),
        rounds=setting.rounds(60),
        notes=(f"{hits:.1%} of the requests were answered from the memory",),
    )


class _CountedKey(OneKey):
    """As ``OneKey``; it is asked once for every token that is verified."""

    asked = 0

    async def key(self, kid: str, kty: str) -> PublicKey:
        self.asked += 1
        return await super().key(kid, kty)


def _digest_and_dict(text: str) -> Contender:
    known = {sha256(text.encode()).digest(): True}
    return Contender(name=_FLOOR, timer=repeated(lambda: known.get(sha256(text.encode()).digest())))
