"""Opaque tokens of a certified OpenID provider, which the agent asks about (RFC 7662, RFC 9701)."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from a2a_trust import DPoP, JwtVerifier, generate_signer, principal_of, protect
from a2a_trust.auth import IntrospectionVerifier, SeveralIssuers
from a2a_trust.auth.discovery import OpenIdKeys
from a2a_trust.auth.introspection import MAX_REMEMBERED
from a2a_trust.client import ClientSecret, PrivateKeyJwt
from a2a_trust.errors import InvalidCredentialsError, KeySourceUnavailableError
from a2a_trust.keys import LocalSigner
from a2a_trust.keys.trust.jwks_cache import JwksCache
from tests.middleware.agent import uvicorn_serving
from tests.real.clock import Clock
from tests.real.openid_provider import AUDIENCE, OpenIdProvider
from tests.real.test_bound_tokens import proof
from tests.real.test_openid_provider import bearer, card_of, down

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def verifier_of(provider: OpenIdProvider, **options: Any) -> IntrospectionVerifier:
    given = {
        "issuer": provider.issuer,
        "audience": AUDIENCE,
        "client_id": "agent",
        "authentication": ClientSecret("secret"),
        "fetcher": provider.fetcher(),
        **options,
    }
    return IntrospectionVerifier(provider.introspection_url, **given)


async def who(request: Request) -> JSONResponse:
    return JSONResponse({"caller": principal_of(request).display_name})


@asynccontextmanager
async def calling(
    provider: OpenIdProvider, verifier: Any = None, clock: Callable[[], float] = time.time
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an agent that asks about the tokens of its callers."""
    app = protect(
        Starlette(routes=[Route("/who", who, methods=["POST"])]),
        card=card_of(provider),
        verifiers={"login": verifier_of(provider) if verifier is None else verifier},
        dpop=DPoP(url=AUDIENCE),
        clock=clock,
    )
    async with uvicorn_serving(app, "h11") as origin, httpx.AsyncClient(base_url=origin, timeout=60) as client:
        yield client


async def status_of(client: httpx.AsyncClient, token: str) -> int:
    return (await client.post("/who", headers=bearer(token))).status_code


async def test_opaque_tokens_of_machines_and_people_are_accepted_until_they_are_revoked(
    provider: OpenIdProvider, clock: Clock
) -> None:
    machine, login = await provider.opaque_token(), await provider.login("opaque", client="web-ES256")
    async with calling(provider, clock=clock.wall) as client:
        answer = await client.post("/who", headers=bearer(machine))
        assert (answer.status_code, answer.json()) == (
            200,
            {"caller": f"service@{provider.issuer}#client_id"},
        ), "a token of a client names no subject"
        answer = await client.post("/who", headers=bearer(login["access_token"]))
        assert answer.json() == {"caller": f"alice@{provider.issuer}"}
        before = provider.introspected()
        assert [await status_of(client, machine) for _ in range(5)] == [200] * 5
        assert provider.introspected() == before
        await provider.revoke(machine)
        clock.passed += MAX_REMEMBERED
        refused = await client.post("/who", headers=bearer(machine))
        assert (refused.status_code, refused.headers["www-authenticate"].partition(",")[0]) == (
            401,
            'Bearer error="invalid_token"',
        )
        assert await status_of(client, login["access_token"]) == 200


async def test_of_what_a_login_gives_only_the_access_token_is_accepted(provider: OpenIdProvider) -> None:
    tokens = await provider.login("opaque", client="web-ES256", nonce="n")
    for options in ({}, {"audience": [AUDIENCE, "web-ES256"], "allow_missing_audience": True}):
        verifier = verifier_of(provider, **options)
        assert (await verifier.verify(tokens["access_token"], time.time())).subject == "alice"
        for kind in ("refresh_token", "id_token"):
            with pytest.raises(InvalidCredentialsError):
                await verifier.verify(tokens[kind], time.time())


async def test_a_refresh_token_is_active_and_nothing_but_its_kind_keeps_it_out(provider: OpenIdProvider) -> None:
    """The control: this server answers for refresh tokens as well."""
    tokens = await provider.login("opaque", client="web-ES256")
    careless = verifier_of(provider, allow_missing_audience=True, knows_access_tokens_only=True)
    assert (await careless.verify(tokens["refresh_token"], time.time())).subject == "alice"


async def test_a_token_without_the_scope_of_the_card_is_403(provider: OpenIdProvider) -> None:
    async with calling(provider) as client:
        answer = await client.post("/who", headers=bearer(await provider.opaque_token(scope="write")))
    assert (answer.status_code, answer.headers["www-authenticate"].partition(" ")[2].partition(",")[0]) == (
        403,
        'error="insufficient_scope"',
    )


async def test_the_agent_proves_by_a_key_who_it_is(provider: OpenIdProvider) -> None:
    signer = generate_signer("ES256")
    provider.register(
        "agent-key",
        token_endpoint_auth_method="private_key_jwt",
        jwks={"keys": [signer.public_key.to_jwk()]},
    )
    verifier = verifier_of(provider, client_id="agent-key", authentication=PrivateKeyJwt(signer))
    assert (await verifier.verify(await provider.opaque_token(), time.time())).subject == "service"


async def test_an_agent_that_the_provider_does_not_know_gets_no_answer(
    provider: OpenIdProvider, caplog: pytest.LogCaptureFixture
) -> None:
    verifier = verifier_of(provider, authentication=ClientSecret("another"))
    with pytest.raises(KeySourceUnavailableError, match="invalid_client"):
        await verifier.verify(await provider.opaque_token(), time.time())
    assert "rejects the requests of the client 'agent'" in caplog.text


async def test_signed_answers_are_verified_by_the_keys_of_the_provider(provider: OpenIdProvider) -> None:
    keys = OpenIdKeys(provider.issuer, provider.fetcher())
    verifier = verifier_of(provider, signed_answers=keys)
    token = await provider.opaque_token()
    assert (await verifier.verify(token, time.time())).subject == "service"
    with pytest.raises(InvalidCredentialsError, match="not active"):
        await verifier.verify("unknown", time.time())
    others = JwksCache(_no_keys)
    with pytest.raises(KeySourceUnavailableError, match="signed answer is rejected"):
        await verifier_of(provider, signed_answers=others).verify(token, time.time())


async def test_answers_that_a_new_key_signs_are_verified_without_a_restart(provider: OpenIdProvider) -> None:
    verifier = verifier_of(provider, signed_answers=OpenIdKeys(provider.issuer, provider.fetcher()))
    assert (await verifier.verify(await provider.opaque_token(), time.time())).subject == "service"
    for change in ("rotate", "dropOld"):
        provider.tell(change)
        asked = await asyncio.gather(*(provider.opaque_token() for _ in range(8)))
        found = await asyncio.gather(*(verifier.verify(token, time.time()) for token in asked))
        assert {each.subject for each in found} == {"service"}


async def _no_keys() -> tuple[bytes, float | None]:
    return b'{"keys": []}', None


def by_dpop(token: str, signer: LocalSigner | None) -> dict[str, str]:
    headers = {"Authorization": f"DPoP {token}"}
    return headers if signer is None else {**headers, "DPoP": proof(token, f"{AUDIENCE}/who", signer)}


async def test_a_bound_opaque_token_is_worth_nothing_without_the_proof_of_its_key(provider: OpenIdProvider) -> None:
    signer = generate_signer("ES256")
    token = await provider.opaque_token(signer=signer)
    async with calling(provider) as client:
        for _ in range(2):  # asked, and remembered
            for headers, status in (
                (by_dpop(token, signer), 200),
                (by_dpop(token, None), 401),
                (by_dpop(token, generate_signer("ES256")), 401),
                (bearer(token), 401),
            ):
                assert (await client.post("/who", headers=headers)).status_code == status


async def test_opaque_tokens_and_jwts_of_one_provider_share_a_scheme(provider: OpenIdProvider) -> None:
    keys = OpenIdKeys(provider.issuer, provider.fetcher())
    jwts = JwtVerifier(keys, issuer=provider.issuer, audience=AUDIENCE)
    async with calling(provider, SeveralIssuers([jwts, verifier_of(provider)])) as client:
        before = provider.introspected()
        assert await status_of(client, await provider.access_token("ES256")) == 200
        assert provider.introspected() == before
        assert await status_of(client, await provider.opaque_token()) == 200
        assert await status_of(client, "unknown") == 401


async def test_a_jwt_that_the_provider_does_not_read_is_401_and_no_outage(provider: OpenIdProvider) -> None:
    async with calling(provider) as client:
        assert await status_of(client, await provider.access_token("ES256")) == 401
        assert await status_of(client, await provider.opaque_token()) == 200


async def test_while_the_provider_is_down_remembered_tokens_go_on_and_others_are_503(
    provider: OpenIdProvider, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "a2a_trust.auth.introspection_endpoint")
    known, other = await provider.opaque_token(), await provider.opaque_token()
    async with calling(provider, clock=clock.wall) as client:
        assert await status_of(client, known) == 200
        with down(provider):
            answer = await client.post("/who", headers=bearer(other))
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
            assert "www-authenticate" not in answer.headers
            assert [await status_of(client, each) for each in (known, other, "unknown")] == [200, 503, 503]
            clock.passed += MAX_REMEMBERED
            assert await status_of(client, known) == 503
        clock.passed += 60  # the back-off
        assert [await status_of(client, each) for each in (known, other, "unknown")] == [200, 200, 401]
    lines = [record.getMessage() for record in caplog.records if record.name.endswith("introspection_endpoint")]
    assert ["no usable answer" in line for line in lines] == [True, False]
    assert lines[1].endswith("it answers again")


async def test_a_storm_of_unknown_tokens_delays_no_good_one(provider: OpenIdProvider) -> None:
    good = await provider.opaque_token()
    async with calling(provider) as client:
        assert await status_of(client, good) == 200
        found: list[int] = []
        is_over = False

        async def stranger() -> None:
            async with httpx.AsyncClient(base_url=client.base_url, timeout=60) as http:
                while not is_over:
                    found.append(await status_of(http, secrets.token_urlsafe(32)))

        async with asyncio.TaskGroup() as storm:
            for _ in range(20):
                storm.create_task(stranger())
            for _ in range(25):
                assert await status_of(client, good) == 200
                before = len(found)
                async with asyncio.timeout(60):
                    while len(found) < before + 4:
                        await asyncio.sleep(0.001)
            is_over = True
        assert set(found) <= {401, 503}  # 503: too many of them wait to be asked about
        assert 401 in found
        assert await status_of(client, await provider.opaque_token()) == 200
