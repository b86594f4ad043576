"""A certified OpenID provider issues every kind of token, rotates and drops keys, and goes down."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from a2a_trust import generate_signer
from a2a_trust.auth.discovery import OAuth2Keys, OpenIdKeys
from a2a_trust.auth.jwt import IdTokenVerifier, JwtVerifier, TokenProfile
from a2a_trust.auth.principal import Identity
from a2a_trust.errors import InvalidCredentialsError, KeySourceUnavailableError
from a2a_trust.keys import base64url
from a2a_trust.keys.trust.jwks_cache import JwksCache
from a2a_trust.middleware.caller import principal_of
from a2a_trust.middleware.protection import protect
from tests.middleware.agent import uvicorn_serving
from tests.real.openid_provider import ALGS, AUDIENCE, OpenIdProvider

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Clock:
    """The time by which keys grow old; the moments in tokens go by the real one."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def keys_of(provider: OpenIdProvider, clock: Clock | None = None) -> OpenIdKeys:
    return OpenIdKeys(provider.issuer, provider.fetcher(), clock=clock or Clock())


def verifier_of(provider: OpenIdProvider, clock: Clock | None = None, **options: Any) -> JwtVerifier:
    return JwtVerifier(keys_of(provider, clock), issuer=provider.issuer, **{"audience": AUDIENCE, **options})


async def verified(verifier: JwtVerifier, token: str) -> Identity:
    return await verifier.verify(token, time.time())


@contextmanager
def down(provider: OpenIdProvider) -> Iterator[None]:
    provider.tell("stop")
    try:
        yield
    finally:
        provider.tell("start")


async def settled(keys: JwksCache) -> None:
    """After a refresh that goes on behind the callers' backs."""
    if (flight := keys._flights.running(None)) is not None:
        await asyncio.wait([flight])


# Which tokens are good


@pytest.mark.parametrize("alg", ALGS)
async def test_an_access_token_is_good(provider: OpenIdProvider, alg: str) -> None:
    verifier = verifier_of(provider)
    token = await provider.access_token(alg)
    identity = await verified(verifier, token)
    assert (identity.issuer, identity.subject) == (provider.issuer, "service")
    assert identity.scopes == {"read", "write"}
    assert await verified(verifier, token) is identity


@pytest.mark.parametrize("alg", ALGS)
async def test_of_what_a_login_gives_only_the_access_token_is_good(provider: OpenIdProvider, alg: str) -> None:
    tokens = await provider.login(alg, nonce="n")
    identity = await verified(verifier_of(provider), tokens["access_token"])
    assert (identity.subject, *identity.scopes) == ("alice", "read")
    for audience in (AUDIENCE, f"web-{alg}"):  # an agent could be known to the provider as the client itself
        for profile in TokenProfile:
            verifier = verifier_of(provider, audience=audience, profile=profile)
            for kind in ("id_token", "refresh_token"):
                with pytest.raises(InvalidCredentialsError):
                    await verified(verifier, tokens[kind])


@pytest.mark.parametrize("profile", TokenProfile)
async def test_an_id_token_without_nonce_is_no_access_token(provider: OpenIdProvider, profile: TokenProfile) -> None:
    """Nothing in its claims is foreign to an access token, and it has no ``typ``."""
    tokens = await provider.login("ES256")
    with pytest.raises(InvalidCredentialsError, match=r"typ is not at\+jwt|no claim shows that it is an access token"):
        await verified(verifier_of(provider, audience="web-ES256", profile=profile), tokens["id_token"])


@pytest.mark.parametrize("alg", ALGS)
async def test_the_verifier_of_id_tokens_takes_nothing_else(provider: OpenIdProvider, alg: str) -> None:
    tokens = await provider.login(alg, nonce="n")
    verifier = IdTokenVerifier(keys_of(provider), issuer=provider.issuer, audience=f"web-{alg}")
    assert (await verified(verifier, tokens["id_token"])).subject == "alice"
    for kind in ("access_token", "refresh_token"):
        with pytest.raises(InvalidCredentialsError):
            await verified(verifier, tokens[kind])


@pytest.mark.parametrize(
    ("typ", "claims"),
    [
        ("JWT", {"typ": "Refresh", "scope": "openid offline_access"}),
        ("JWT", {"typ": "Offline", "scope": "offline_access"}),
        ("rt+jwt", {"scope": "read"}),
        ("logout+jwt", {"events": {"http://schemas.openid.net/event/backchannel-logout": {}}}),
        ("token-introspection+jwt", {"token_introspection": {"active": True}}),
    ],
)
@pytest.mark.parametrize("profile", TokenProfile)
async def test_other_jwts_by_the_same_key_are_no_access_tokens(
    provider: OpenIdProvider, typ: str, claims: dict[str, Any], profile: TokenProfile
) -> None:
    verifier = verifier_of(provider, profile=profile)
    moment = int(time.time())
    good = {"iss": provider.issuer, "aud": AUDIENCE, "sub": "alice", "iat": moment, "exp": moment + 600}
    control = provider.signed("ES256", {"typ": profile.value}, {**good, "scope": "read"})
    assert (await verified(verifier, control)).subject == "alice"
    with pytest.raises(InvalidCredentialsError):
        await verified(verifier, provider.signed("ES256", {"typ": typ}, {**good, **claims}))


@pytest.mark.parametrize("alg", ALGS)
@pytest.mark.parametrize("bound", [OpenIdProvider.dpop_token, OpenIdProvider.certificate_token])
async def test_a_token_that_is_bound_to_a_key_is_no_bearer_token(
    provider: OpenIdProvider, bound: Callable[[OpenIdProvider, str], Awaitable[str]], alg: str
) -> None:
    with pytest.raises(InvalidCredentialsError, match="bound to a key"):
        await verified(verifier_of(provider), await bound(provider, alg))


async def test_a_token_for_another_agent_of_the_same_provider_is_refused(provider: OpenIdProvider) -> None:
    token = await provider.access_token("ES256")
    with pytest.raises(InvalidCredentialsError, match=r'audience .* does not include "https?:'):
        await verified(verifier_of(provider, audience="https://other.example"), token)


# Where keys come from


async def test_keys_from_its_oauth_metadata_and_from_their_own_url_are_the_same(provider: OpenIdProvider) -> None:
    """This provider has the document of OpenID Connect only, where RFC 8414 5 allows it too."""
    fetcher, token = provider.fetcher(), await provider.access_token("RS256")
    sources: list[JwksCache] = [
        OAuth2Keys(provider.issuer, fetcher, metadata_url=provider.discovery_url),
        JwksCache(fetcher.loader(f"{provider.issuer}/jwks", configured=True)),
    ]
    for keys in sources:
        verifier = JwtVerifier(keys, issuer=provider.issuer, audience=AUDIENCE)
        assert (await verified(verifier, token)).subject == "service"


async def test_without_the_operators_word_a_private_provider_is_not_asked(provider: OpenIdProvider) -> None:
    before = provider.fetched()
    keys = OpenIdKeys(provider.issuer, provider.fetcher(named=False))
    verifier = JwtVerifier(keys, issuer=provider.issuer, audience=AUDIENCE)
    with pytest.raises(KeySourceUnavailableError):
        await verified(verifier, await provider.access_token("ES256"))
    assert provider.fetched() == before


async def test_nothing_is_fetched_before_the_first_token_and_then_each_document_once(provider: OpenIdProvider) -> None:
    before = provider.fetched()
    verifier = verifier_of(provider)
    assert provider.fetched() == before
    tokens = [await provider.access_token(alg) for alg in ALGS for _ in range(3)]
    await asyncio.gather(*(verified(verifier, token) for token in tokens))
    assert new_fetches(provider, before) == (1, 1)


def new_fetches(provider: OpenIdProvider, before: dict[str, int]) -> tuple[int, int]:
    now = provider.fetched()
    return now["discovery"] - before["discovery"], now["jwks"] - before["jwks"]


# Rotation


@pytest.mark.parametrize("alg", ALGS)
async def test_a_rotation_refuses_no_good_token(provider: OpenIdProvider, alg: str) -> None:
    verifier = verifier_of(provider)
    old = await provider.access_token(alg)
    await verified(verifier, old)
    provider.tell("rotate")
    tokens = [await provider.access_token(alg) for _ in range(20)]
    found = await asyncio.gather(*(verified(verifier, token) for token in [*tokens, old, *tokens]))
    assert {identity.subject for identity in found} == {"service"}
    verifier.forget(old)
    assert (await verified(verifier, old)).subject == "service"


async def test_a_key_set_that_moves_is_found_with_its_first_new_key(provider: OpenIdProvider) -> None:
    verifier = verifier_of(provider)
    await verified(verifier, await provider.access_token("ES256"))
    provider.tell("moveKeys", path="/moved")
    try:
        provider.tell("rotate")
        assert (await verified(verifier, await provider.access_token("ES256"))).subject == "service"
    finally:
        provider.tell("moveKeys", path="/jwks")


async def test_tokens_of_a_dropped_key_are_refused_after_the_refresh(provider: OpenIdProvider) -> None:
    verifier = verifier_of(provider)
    remembered, unseen = await provider.access_token("ES256"), await provider.access_token("ES256")
    await verified(verifier, remembered)
    provider.tell("rotate")
    provider.tell("dropOld")
    new = await provider.access_token("ES256")
    assert (await verified(verifier, new)).subject == "service"  # this has refreshed the set
    for token in (remembered, unseen):
        with pytest.raises(InvalidCredentialsError):
            await verified(verifier, token)


async def test_without_any_new_token_a_dropped_key_ends_with_the_age_of_the_set(provider: OpenIdProvider) -> None:
    clock = Clock()
    keys = keys_of(provider, clock)
    verifier = JwtVerifier(keys, issuer=provider.issuer, audience=AUDIENCE)
    old = await provider.access_token("ES256")
    await verified(verifier, old)
    provider.tell("rotate")
    provider.tell("dropOld")
    clock.now = 301.0
    verifier.forget(old)  # as five minutes later
    await verified(verifier, old)  # by the old set, while the new one is fetched
    await settled(keys)
    with pytest.raises(InvalidCredentialsError):
        await verified(verifier, old)


# Outage


async def test_while_the_provider_is_down_known_keys_go_on_and_unknown_ones_are_nobodys_fault(
    provider: OpenIdProvider,
) -> None:
    clock = Clock()
    verifier = verifier_of(provider, clock)
    known = [await provider.access_token(alg) for alg in ALGS for _ in range(2)]
    await verified(verifier, known[0])
    provider.tell("rotate")
    unknown = [await provider.access_token(alg) for alg in ALGS]
    with down(provider):
        for clock.now in (0.0, 250.0, 3000.0):
            for token in known:
                verifier.forget(token)
                assert (await verified(verifier, token)).subject == "service"
            for token in unknown:
                with pytest.raises(KeySourceUnavailableError):
                    await verified(verifier, token)
        clock.now = 4000.0  # longer than anybody should trust what cannot be asked
        verifier.forget(known[0])
        with pytest.raises(KeySourceUnavailableError):
            await verified(verifier, known[0])
    clock.now += 60
    for token in (*known, *unknown):
        assert (await verified(verifier, token)).subject == "service"


async def test_a_provider_that_is_down_from_the_start_is_found_when_it_comes(provider: OpenIdProvider) -> None:
    clock = Clock()
    verifier = verifier_of(provider, clock)
    token = await provider.access_token("ES256")
    with down(provider):
        for _ in range(3):
            with pytest.raises(KeySourceUnavailableError):
                await verified(verifier, token)
    clock.now += 1
    assert (await verified(verifier, token)).subject == "service"


# A storm


def forged(provider: OpenIdProvider, count: int) -> list[str]:
    """Tokens as the provider writes them, each by a key of a name that nobody has heard of."""
    signer = generate_signer("ES256")
    moment = int(time.time())
    claims = {"iss": provider.issuer, "aud": AUDIENCE, "sub": "mallory", "iat": moment, "exp": moment + 600}
    tokens = []
    for number in range(count):
        header = {"alg": "ES256", "typ": "at+jwt", "kid": f"ES256-{signer.kid}-{number}"}
        signed = ".".join(base64url.encode(json.dumps(part).encode()) for part in (header, claims))
        tokens.append(f"{signed}.{base64url.encode(signer.sign(signed.encode()))}")
    return tokens


async def test_a_storm_of_unknown_kids_makes_as_many_fetches_as_its_budget_has(provider: OpenIdProvider) -> None:
    clock = Clock()
    verifier = verifier_of(provider, clock)
    await verified(verifier, await provider.access_token("ES256"))
    before = provider.fetched()
    for number, fetches in ((0.0, 5), (1.0, 5), (5.0, 6), (9.0, 6), (10.0, 7)):
        clock.now = number
        for _ in range(4):
            storm = [verified(verifier, token) for token in forged(provider, 100)]
            results = await asyncio.gather(*storm, return_exceptions=True)
            assert {type(result) for result in results} <= {InvalidCredentialsError, KeySourceUnavailableError}
        assert (await verified(verifier, await provider.access_token("ES256"))).subject == "service"
        assert new_fetches(provider, before) == (fetches, fetches)


# End to end


def card_of(provider: OpenIdProvider) -> dict[str, Any]:
    return {
        "name": "agent",
        "supportedInterfaces": [
            {"url": f"{AUDIENCE}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        ],
        "securitySchemes": {
            "login": {"openIdConnectSecurityScheme": {"openIdConnectUrl": provider.discovery_url}},
        },
        "securityRequirements": [{"schemes": {"login": {"list": ["read"]}}}],
        "skills": [],
    }


async def who(request: Request) -> JSONResponse:
    caller = principal_of(request.scope)
    return JSONResponse({"caller": caller.display_name, "scopes": sorted(caller.scopes)})


def agent_of(provider: OpenIdProvider, clock: Callable[[], float]) -> Any:
    app = Starlette(routes=[Route("/who", who, methods=["POST"])])
    keys = OpenIdKeys(provider.issuer, provider.fetcher(), clock=clock)
    verifier = JwtVerifier(keys, issuer=provider.issuer, audience=AUDIENCE)
    return protect(app, card=card_of(provider), verifiers={"login": verifier})


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@asynccontextmanager
async def client_of(
    provider: OpenIdProvider, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        uvicorn_serving(agent_of(provider, clock), "h11") as origin,
        httpx.AsyncClient(base_url=origin, timeout=60) as client,
    ):
        yield client


async def test_a_protected_agent_lets_in_who_has_an_access_token_and_nobody_else(provider: OpenIdProvider) -> None:
    tokens = await provider.login("ES256", nonce="n")
    async with client_of(provider) as client:
        nothing = await client.post("/who")
        assert (nothing.status_code, nothing.headers["www-authenticate"]) == (401, 'Bearer scope="read"')
        good = await client.post("/who", headers=bearer(tokens["access_token"]))
        assert good.status_code == 200
        assert good.json() == {"caller": f"alice@{provider.issuer}", "scopes": ["read"]}
        bad = [tokens["id_token"], tokens["refresh_token"], await provider.dpop_token("ES256")]
        for token in bad:
            refused = await client.post("/who", headers=bearer(token))
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == 'Bearer error="invalid_token"'
        poor = await client.post("/who", headers=bearer(await provider.access_token("ES256", scope="write")))
        assert (poor.status_code, poor.headers["www-authenticate"]) == (
            403,
            'Bearer error="insufficient_scope", scope="read"',
        )


async def test_a_protected_agent_says_503_and_not_401_while_the_provider_is_down(
    provider: OpenIdProvider,
) -> None:
    token, clock = await provider.access_token("ES256"), Clock()
    async with client_of(provider, clock) as client:
        with down(provider):
            answer = await client.post("/who", headers=bearer(token))
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
            assert "www-authenticate" not in answer.headers
            assert (await client.post("/who")).status_code == 401  # whoever has no token needs no provider
        clock.now += 60  # the back-off
        assert (await client.post("/who", headers=bearer(token))).status_code == 200


async def test_an_issuer_that_is_another_by_one_character_has_no_keys_here(
    provider: OpenIdProvider, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = f"{provider.issuer}/"  # the same document; the names in it are not the same
    keys = OpenIdKeys(issuer, provider.fetcher())
    assert keys.metadata_url == provider.discovery_url
    verifier = JwtVerifier(keys, issuer=issuer, audience=AUDIENCE)
    with pytest.raises(InvalidCredentialsError, match=f'iss is not the issuer "{issuer}"'):
        await verified(verifier, await provider.access_token("ES256"))
    moment = int(time.time())
    told = {"iss": issuer, "aud": AUDIENCE, "sub": "alice", "iat": moment, "exp": moment + 600}
    with pytest.raises(KeySourceUnavailableError):
        await verified(verifier, provider.signed("ES256", {"typ": "at+jwt"}, told))
    assert "does not name the issuer" in caplog.text
