"""Authorization servers of other projects answer for opaque tokens: what passes through the guard, and for how long."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from a2a_trust.auth.introspection import MAX_REMEMBERED, IntrospectionVerifier
from a2a_trust.auth.principal import Principal
from a2a_trust.client import ClientSecret
from a2a_trust.middleware.caller import principal_of
from a2a_trust.middleware.protection import protect
from tests.middleware.agent import uvicorn_serving
from tests.real.clock import Clock
from tests.real.token_servers import AuthlibServer, CanailleServer, DjangoServer, IntrospectingServer

pytestmark = pytest.mark.anyio

LOGGER: Final = "a2a_trust.auth.introspection_endpoint"

CARD: Final[dict[str, Any]] = {
    "name": "agent",
    "supportedInterfaces": [{"url": "http://agent.example/", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}],
    "securitySchemes": {"login": {"oauth2SecurityScheme": {"flows": {}}}},
    "securityRequirements": [{"schemes": {"login": {"list": ["read"]}}}],
    "skills": [],
}


@dataclass(frozen=True)
class Named:
    """How the server names its callers: what is added to the issuer, and the subject."""

    fixture: str
    machine: tuple[str, str]
    user: tuple[str, str]


NAMED: Final = (
    Named("authlib_server", ("", "service"), ("", "alice")),
    Named("canaille_server", ("#client_id", "service"), ("", "alice")),
    Named("django_server", ("#client_id", "service"), ("#username", "alice")),
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=NAMED, ids=lambda named: named.fixture)
def named(request: pytest.FixtureRequest) -> Named:
    each: Named = request.param
    return each


@pytest.fixture
def server(request: pytest.FixtureRequest, named: Named) -> Iterator[IntrospectingServer]:
    """The server, which gives opaque tokens where it has a choice."""
    chosen: IntrospectingServer = request.getfixturevalue(named.fixture)
    if not isinstance(chosen, CanailleServer):
        chosen.token_form("opaque")
    chosen.questions()  # of other tests
    yield chosen
    if not isinstance(chosen, CanailleServer):
        chosen.token_form("jwt" if isinstance(chosen, AuthlibServer) else "opaque")


def verifier_of(server: IntrospectingServer, secret: str = "secret", **options: Any) -> IntrospectionVerifier:
    settings: dict[str, Any] = {
        "issuer": server.issuer,
        "audience": server.audience,
        "client_id": "agent",
        "knows_access_tokens_only": isinstance(server, DjangoServer),
    }
    return IntrospectionVerifier(
        server.introspection_url,
        authentication=ClientSecret(secret),
        fetcher=server.fetcher(),
        **{**settings, **options},
    )


@asynccontextmanager
async def client_of(
    verifier: IntrospectionVerifier, clock: Callable[[], float] = time.time
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an agent behind that verifier, under a real uvicorn; the agent tells who called."""

    async def who(request: Request) -> JSONResponse:
        caller = principal_of(request)
        assert isinstance(caller, Principal)
        ((_, identity),) = caller.identities
        return JSONResponse({"caller": [identity.issuer, identity.subject], "scopes": sorted(identity.scopes)})

    app = protect(
        Starlette(routes=[Route("/who", who, methods=["POST"])]), card=CARD, verifiers={"login": verifier}, clock=clock
    )
    async with (
        uvicorn_serving(app, "h11") as origin,
        httpx.AsyncClient(base_url=origin, timeout=60) as client,
    ):
        yield client


async def called(client: httpx.AsyncClient, token: str) -> httpx.Response:
    return await client.post("/who", headers={"Authorization": f"Bearer {token}"})


async def status(client: httpx.AsyncClient, token: str) -> int:
    return (await called(client, token)).status_code


@contextmanager
def down(server: IntrospectingServer) -> Iterator[None]:
    server.stop()
    try:
        yield
    finally:
        server.start()


# Which tokens pass


async def test_tokens_of_machines_and_of_users_name_the_caller_and_the_scopes(
    server: IntrospectingServer, named: Named
) -> None:
    async with client_of(verifier_of(server)) as client:
        for token, (suffix, subject), scopes in (
            (server.machine_token("read"), named.machine, ["read"]),
            (server.machine_token("read write"), named.machine, ["read", "write"]),
            (server.login("read write")["access_token"], named.user, ["read", "write"]),
        ):
            answer = await called(client, token)
            assert answer.status_code == 200, answer.text
            assert answer.json() == {"caller": [server.issuer + suffix, subject], "scopes": scopes}
        poor = await called(client, server.machine_token("write"))
        assert (poor.status_code, poor.headers["www-authenticate"]) == (
            403,
            'Bearer error="insufficient_scope", scope="read"',
        )


async def test_of_what_a_login_gives_only_the_access_token_passes(server: IntrospectingServer) -> None:
    tokens = server.login("read" if isinstance(server, AuthlibServer) else "openid read")
    async with client_of(verifier_of(server)) as client:
        for kind in ("refresh_token", "id_token", "refresh_token"):
            if kind in tokens:
                answer = await called(client, tokens[kind])
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer error="invalid_token"')
        assert await status(client, tokens["access_token"]) == 200
    assert isinstance(server, AuthlibServer) or "id_token" in tokens


async def test_an_answer_that_is_the_same_for_refresh_tokens_lets_them_pass(authlib_server: AuthlibServer) -> None:
    """As Authlib's documentation has it, the answer is about a row with both tokens. The hint of the question decides
    which of them is looked for; a server that ignores it makes them equal, and no verifier can tell them apart."""
    authlib_server.token_form("opaque")
    authlib_server.trust_hints(False)
    try:
        async with client_of(verifier_of(authlib_server)) as client:
            assert await status(client, authlib_server.login()["refresh_token"]) == 200
            authlib_server.trust_hints(True)
            assert await status(client, authlib_server.login()["refresh_token"]) == 401
    finally:
        authlib_server.trust_hints(True)
        authlib_server.token_form("jwt")


async def test_tokens_for_another_agent_are_rejected(server: IntrospectingServer) -> None:
    token = server.machine_token()
    async with client_of(verifier_of(server, audience="https://other.example")) as client:
        assert await status(client, token) == 401


async def test_a_client_that_may_not_ask_gets_the_answer_of_an_unknown_token(
    authlib_server: AuthlibServer, canaille_server: CanailleServer
) -> None:
    """As RFC 7662 2.2 has it: the agent cannot know that it is its own mistake."""
    for server in (authlib_server, canaille_server):
        async with client_of(verifier_of(server, client_id="service")) as client:
            assert await status(client, server.machine_token()) == 401


async def test_any_client_of_django_oauth_toolkit_may_ask_and_may_name_any_agent(django_server: DjangoServer) -> None:
    """The audience is what the client asked for, and its scopes are all those of the site unless it asks for less."""
    django_server.token_form("opaque")
    token = django_server.machine_token(scope=None)
    async with client_of(verifier_of(django_server, client_id="service")) as client:
        assert (await called(client, token)).json()["scopes"] == ["openid", "read", "write"]


async def test_the_tokens_of_a_user_who_may_not_log_in_any_more_stay_good_at_django_oauth_toolkit(
    django_server: DjangoServer,
) -> None:
    django_server.token_form("opaque")
    token = django_server.login()["access_token"]
    django_server.set_active(False)
    try:
        async with client_of(verifier_of(django_server)) as client:
            assert await status(client, token) == 200
            django_server.revoke(token, "web")
        async with client_of(verifier_of(django_server)) as client:
            assert await status(client, token) == 401
    finally:
        django_server.set_active(True)


# How long answers count


async def test_a_revoked_token_is_rejected_after_the_time_for_which_it_is_remembered(
    server: IntrospectingServer, clock: Clock
) -> None:
    machine, login = server.machine_token(), server.login()["access_token"]
    async with client_of(verifier_of(server), clock.wall) as client:
        assert [await status(client, token) for token in (machine, login)] == [200, 200]
        server.revoke(machine, "service")
        server.revoke(login, "web")
        clock.passed += MAX_REMEMBERED
        assert [await status(client, token) for token in (machine, login)] == [401, 401]


async def test_a_revoked_token_that_was_never_remembered_is_rejected_at_once(server: IntrospectingServer) -> None:
    machine, login = server.machine_token(), server.login()["access_token"]
    async with client_of(verifier_of(server, remember_for=0)) as client:
        assert [await status(client, token) for token in (machine, login)] == [200, 200]
        server.revoke(machine, "service")
        server.revoke(login, "web")
        assert [await status(client, token) for token in (machine, login)] == [401, 401]


async def test_a_remembered_token_ends_when_it_expires(authlib_server: AuthlibServer, clock: Clock) -> None:
    lifetime = int(MAX_REMEMBERED) - 1
    authlib_server.token_form("opaque")
    authlib_server.set_lifetime(lifetime)
    try:
        token = authlib_server.machine_token()
    finally:
        authlib_server.set_lifetime(600)
        authlib_server.token_form("jwt")
    async with client_of(verifier_of(authlib_server), clock.wall) as client:
        assert await status(client, token) == 200
        clock.passed += lifetime
        assert await status(client, token) == 401


async def test_a_remembered_token_is_asked_about_once(server: IntrospectingServer) -> None:
    token = server.machine_token()
    async with client_of(verifier_of(server)) as client:
        answers = await asyncio.gather(*(status(client, token) for _ in range(20)))
        assert Counter(answers) == {200: 20}
        assert server.questions() == 1


# Tokens of strangers, and an agent that is one


async def test_a_token_that_nobody_issued_is_rejected(server: IntrospectingServer) -> None:
    async with client_of(verifier_of(server)) as client:
        for token in (secrets.token_urlsafe(24), "a.b.c", "~" * 1_000):
            answer = await called(client, token)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer error="invalid_token"')
        assert await status(client, server.machine_token()) == 200


async def test_a_wrong_client_secret_is_503_and_one_line_that_says_what_to_correct(
    server: IntrospectingServer, caplog: pytest.LogCaptureFixture
) -> None:
    token = server.machine_token()
    with caplog.at_level(logging.INFO, LOGGER):
        async with client_of(verifier_of(server, secret="of-somebody-else")) as client:
            for each in (token, token, secrets.token_urlsafe(24)):
                answer = await called(client, each)
                assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
                assert "www-authenticate" not in answer.headers
    (record,) = [each for each in caplog.records if each.name == LOGGER]
    assert record.levelno == logging.ERROR
    assert server.introspection_url in record.getMessage()
    assert "correct client_id and authentication" in record.getMessage()
    assert not {"of-somebody-else", token} & {*record.getMessage().split()}
    assert "of-somebody-else" not in caplog.text


# While the server is down


async def test_remembered_tokens_go_on_while_the_server_is_down_and_the_agent_recovers(
    server: IntrospectingServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    known, unknown = server.machine_token(), server.machine_token()
    with caplog.at_level(logging.INFO, LOGGER):
        async with client_of(verifier_of(server), clock.wall) as client:
            assert await status(client, known) == 200
            with down(server):
                refused = await called(client, unknown)
                assert refused.status_code == 503
                assert int(refused.headers["retry-after"]) > 0
                assert "www-authenticate" not in refused.headers
                assert (await client.post("/who")).status_code == 401  # nobody has to be asked about no token
                assert await status(client, known) == 200
                clock.passed += MAX_REMEMBERED
                assert [await status(client, token) for token in (known, unknown)] == [503, 503]
            until = time.monotonic() + 60
            while await status(client, unknown) != 200:
                assert time.monotonic() < until
                clock.passed += 1.0  # the back-off
                await asyncio.sleep(0.1)
            assert await status(client, known) == 200
    told = [each.getMessage() for each in caplog.records if each.name == LOGGER]
    assert len(told) == 2
    assert "unknown tokens get 503" in told[0]
    assert told[1].endswith("it answers again")


# Storms


async def test_a_storm_of_unknown_tokens_does_not_stop_a_good_caller(server: IntrospectingServer) -> None:
    """20 callers send tokens of nobody. Each is asked about once, and the good token is answered meanwhile."""
    good = server.machine_token()
    async with client_of(verifier_of(server)) as client:
        assert await status(client, good) == 200
        server.questions()
        junk = [secrets.token_urlsafe(24) for _ in range(60)]
        storm_is_over = asyncio.Event()

        async def stranger(tokens: list[str]) -> list[int]:
            return [await status(client, token) for token in tokens]

        async def caller() -> list[int]:
            seen = []
            while not storm_is_over.is_set():
                seen.append(await status(client, good))
            return seen

        calling = asyncio.create_task(caller())
        answers = await asyncio.gather(*(stranger(junk[at::20]) for at in range(20)))
        storm_is_over.set()
        seen = await calling
        assert {*seen} == {200}
        assert len(seen) > 1
        assert Counter(code for codes in answers for code in codes) == {401: len(junk)}
        assert len(junk) <= server.questions() <= len(junk) + 1  # on a slow machine the good one is asked about again
        # The same tokens again: what is invalid is remembered, too.
        assert Counter(await stranger(junk[-20:])) == {401: 20}
        assert server.questions() == 0
        newcomer = server.machine_token()
        assert await status(client, newcomer) == 200
        assert server.questions() == 1
