"""M17: while an issuer is out of reach, anybody can fill the audit log with junk that says it is the issuer's.

Measured here: every such token was a warning of its own, which servers write to their logs by themselves. Also by a
brute force, and by one request with a long path, name or address, as some proxies pass on.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import httpx
import pytest

from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.auth.principal import Identity
from a2a_trust.auth.throttle import FailureLimits
from a2a_trust.errors import FetchError, InvalidCredentialsError, KeySourceUnavailableError
from a2a_trust.keys.trust.jwks_cache import JwksCache
from a2a_trust.middleware import audit
from tests.auth.test_jwt import AUDIENCE, ISSUER, STRANGER, claims, token
from tests.middleware.agent import KEY, Agent, guarded, verifiers
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def down() -> tuple[bytes, float | None]:
    raise FetchError("no route")


class Named:
    """A verifier whose words name what came: a text for each request."""

    async def verify(self, credential: str, now: float) -> Identity:
        raise KeySourceUnavailableError(f"request {credential} could not be judged")


def agent(verifier: Any = None) -> Any:
    verifier = verifier or JwtVerifier(JwksCache(down, name="keys of a"), issuer=ISSUER, audience=AUDIENCE)
    return guarded(Agent(), verifiers={**verifiers(), "oauth": verifier})


def http(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example")


def heard(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.__dict__["audit"] for record in caplog.records if record.name == "a2a_trust.audit"]


def junk(number: int) -> str:
    return token(claims(jti=str(number)), signer=STRANGER, kid=f"invented-{number}")


async def flood(app: Any, credentials: list[str]) -> None:
    async with http(app) as client:
        for number, credential in enumerate(credentials):
            answer = await client.post(f"/rpc/{number}", headers={"Authorization": f"Bearer {credential}"})
            assert answer.status_code == 503


async def finished(app: Any) -> None:
    """The end of the server, by the lifespan protocol."""
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None: ...

    await app({"type": "lifespan"}, receive, send)


async def test_a_flood_of_junk_is_one_event_and_one_with_the_count(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "a2a_trust.audit")
    app = agent()
    await flood(app, [junk(number) for number in range(500)])
    (first,) = heard(caplog)
    assert (first["reason"], first["path"]) == ("key-source-unavailable", "/rpc/0")
    await finished(app)
    _, count = heard(caplog)
    assert count == {
        "event": "refused",
        "reason": "key-source-unavailable",
        "detail": first["detail"],
        "count": 499,
        "seconds": 60,
    }
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


async def test_the_count_is_told_when_nothing_comes_any_more(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_COUNTED_SECONDS", 1)
    await flood(agent(), [junk(number) for number in range(10)])
    async with asyncio.timeout(60):
        while len(heard(caplog)) < 2:
            await asyncio.sleep(0.01)
    assert [event.get("count") for event in heard(caplog)] == [None, 9]


async def test_words_that_differ_each_time_are_no_way_round_it(caplog: pytest.LogCaptureFixture) -> None:
    app = agent(Named())
    await flood(app, [f"r{number}" for number in range(1000)])
    assert len(heard(caplog)) == 65
    await finished(app)
    (count,) = heard(caplog)[65:]
    assert (count["count"], count["detail"]) == (935, "further causes")


async def test_nothing_is_lost_of_what_differs(caplog: pytest.LogCaptureFixture) -> None:
    """Another cause, another agent, and everything that is the caller's own fault are events of their own."""
    caplog.set_level(logging.DEBUG, "a2a_trust.audit")
    app = agent()
    await flood(app, [junk(1), junk(2)])
    await flood(agent(), [junk(3)])
    await flood(agent(Named()), ["x"])
    async with http(app) as client:
        for _ in range(3):
            assert (await client.post("/rpc", headers={"Authorization": "Bearer opaque"})).status_code == 401
    assert [event["reason"] for event in heard(caplog)] == ["key-source-unavailable"] * 3 + ["invalid-credentials"] * 3


class Long:
    """A verifier that believes whatever name comes, or complains of it."""

    async def verify(self, credential: str, now: float) -> Identity:
        if credential.startswith("no"):
            raise InvalidCredentialsError(credential)
        return Identity(issuer="names", subject=credential, scopes=frozenset({"read"}))


@walk("word", ["x", "no", "\U0001f511", "'\"", "\x1b[2J", "%"])
async def test_no_event_is_as_long_as_a_caller_likes(caplog: pytest.LogCaptureFixture, word: str) -> None:
    caplog.set_level(logging.DEBUG, "a2a_trust.audit")
    text = word * 100_000
    scope = {
        "type": "http",
        "method": text,
        "path": f"/{text}",
        "query_string": b"",
        "headers": [(b"x-api-key", text.encode("latin-1", "replace"))],
        "client": (text, 1),
    }

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None: ...

    await guarded(Agent(), verifiers={**verifiers(), "key": Long()})(scope, receive, send)
    assert len(heard(caplog)) == 1
    assert len(json.dumps(heard(caplog))) < 20_000
    assert len(caplog.text) < 20_000


async def test_a_brute_force_is_one_warning_a_minute_whatever_it_tries(caplog: pytest.LogCaptureFixture) -> None:
    """First beyond the limit of one key id, later beyond that of the peer."""
    caplog.set_level(logging.WARNING, "a2a_trust.audit")  # as Python shows events without any setting
    limits = FailureLimits(by_credential="10/hour", by_peer="100/hour")
    app = guarded(Agent(), failures=limits)
    clock = [0.0]
    for repeated in app.access.trail._repeated.values():
        repeated._clock = lambda: clock[0]
    async with http(app) as client:
        for number in range(300):
            clock[0] = number / 2  # two and a half minutes
            guess = f"{KEY[:16]}_{number:038}"
            assert (await client.post("/rpc", headers={"X-API-Key": guess})).status_code == (
                401 if number < 10 else 429
            )
    told = [(event["reason"], event.get("count")) for event in heard(caplog)]
    first = [("invalid-credentials", None)] * 3  # where nobody has configured logging
    assert told == [*first, *(("too-many-requests", count) for count in (None, 119, 120))]
