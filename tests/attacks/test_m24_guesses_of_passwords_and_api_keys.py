"""M24: somebody tries passwords and API keys, one after the other or all at once.

The server is a real uvicorn as it comes, and callers are told apart by the addresses of their sockets. Without limits
an attacker here gets as many guesses as the processor hashes, and the hashing keeps all others waiting.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from a2a_trust.auth.basic.verifier import BasicVerifier
from a2a_trust.auth.principal import Identity
from a2a_trust.auth.throttle import FailureLimits, Throttle
from a2a_trust.errors import TemporarilyUnavailableError
from tests.attacks.test_m09_passwords_written_oddly import CARD_OF_BASIC
from tests.auth.passwords import Passwords
from tests.middleware.agent import CALL, CARD, KEY, Agent, guarded, uvicorn_serving, verifiers
from tests.tables import walk

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8 without being told"),
]

LIMITS = FailureLimits(by_credential="10/hour", by_peer="100/hour")  # as they come, for machines that are slow
ATTACKER, OTHER = "127.0.0.66", "127.0.0.77"  # uvicorn trusts the headers of 127.0.0.1 alone

LOGIN: dict[str, Any] = {
    **CARD,
    "securitySchemes": {
        **CARD["securitySchemes"],
        "login": {"apiKeySecurityScheme": {"location": "header", "name": "X-Login"}},
    },
    "securityRequirements": [*CARD["securityRequirements"], {"schemes": {"login": {"list": ["read"]}}}],
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def passwords(**others: str) -> Passwords:
    return Passwords(ann="right", bob="right", **others)


def agent(login: Passwords, limits: FailureLimits = LIMITS) -> Any:
    return guarded(Agent(), LOGIN, verifiers={**verifiers(), "login": login}, failures=limits, clock=time.time)


class Caller:
    """Calls the agent from one address."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def __call__(self, path: str = "/rpc", **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self._client.post(path, json=CALL, headers=named)

    async def login(self, text: str, **headers: str) -> int:
        return (await self(x_login=text, **headers)).status_code


@asynccontextmanager
async def calling(origin: str, address: str, limit: int = 200) -> AsyncIterator[Caller]:
    transport = httpx.AsyncHTTPTransport(local_address=address, limits=httpx.Limits(max_connections=limit))
    async with httpx.AsyncClient(transport=transport, base_url=origin, timeout=60) as client:
        yield Caller(client)


async def test_guesses_are_slowed_and_all_others_go_on() -> None:
    store = passwords()
    async with (
        uvicorn_serving(agent(store), "h11") as origin,
        calling(origin, ATTACKER) as attacker,
        calling(origin, OTHER) as other,
    ):
        assert await attacker.login("bob:right") == 200
        store.hashed.clear()
        statuses = Counter([await attacker.login(f"ann:{number}") for number in range(200)])
        assert statuses == {401: 10, 429: 190}
        assert len(store.hashed) == 10
        assert await attacker.login("ann:right") == 429
        assert await other.login("ann:right") == 200
        assert await attacker.login("bob:right") == 200  # which is remembered
        assert (await attacker(x_api_key=KEY)).status_code == 200


async def test_guesses_at_many_names_are_slowed_as_well() -> None:
    store = passwords()
    async with uvicorn_serving(agent(store), "httptools") as origin, calling(origin, ATTACKER) as attacker:
        statuses = Counter([await attacker.login(f"user{number}:Summer2026") for number in range(150)])
        assert statuses == {401: 100, 429: 50}
        assert len(store.hashed) == 100
        assert (await attacker(x_api_key=KEY)).status_code == 200


async def test_guesses_at_once_are_limited_exactly() -> None:
    store = passwords()
    async with uvicorn_serving(agent(store), "h11") as origin, calling(origin, ATTACKER) as attacker:
        statuses = Counter(await asyncio.gather(*(attacker.login(f"ann:{number}") for number in range(100))))
        assert statuses == {401: 10, 429: 90}
        assert len(store.hashed) == 10


async def test_good_passwords_at_once_are_all_admitted() -> None:
    people = {f"user{number}": "right" for number in range(110)}
    async with uvicorn_serving(agent(passwords(**people)), "h11") as origin, calling(origin, OTHER) as other:
        alike = await asyncio.gather(*(other.login("user1:right") for _ in range(50)))
        others = await asyncio.gather(*(other.login(f"{name}:right") for name in people))
        assert {*alike, *others} == {200}


async def test_guessed_api_keys_are_429_and_good_ones_are_not() -> None:
    async with uvicorn_serving(agent(passwords()), "h11") as origin, calling(origin, ATTACKER) as attacker:
        statuses: Counter[int] = Counter()
        for number in range(60):
            statuses[(await attacker(x_api_key=f"{KEY[:16]}_{number:038}")).status_code] += 1
            assert (await attacker(x_api_key=KEY)).status_code == 200
        assert statuses == {401: 10, 429: 50}
        statuses = Counter([(await attacker(x_api_key=f"guess-{number}")).status_code for number in range(120)])
        assert statuses == {401: 40, 429: 80}  # those of other forms have no name, and 60 of the peer were counted


async def basic_statuses(function: Any, count: int) -> Counter[int]:
    """The answers to so many guesses at as many passwords of ann, behind that function."""
    app: Any = guarded(Agent(), CARD_OF_BASIC, verifiers={"login": BasicVerifier(function)}, failures=LIMITS)
    transport = httpx.ASGITransport(app, client=(ATTACKER, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as http:
        guesses = [("ann", f"guess {number}") for number in range(count)]
        return Counter([(await http.post("/rpc", json=CALL, auth=guess)).status_code for guess in guesses])


async def test_a_function_that_raises_an_exception_is_no_way_round_the_limits() -> None:
    """A look-up in a dict is a function that raises for names, and for passwords, that it does not know."""
    asked: list[str] = []

    async def known(user: str, password: str) -> Identity | None:
        asked.append(password)
        return {("ann", "right"): Identity(issuer="directory", subject="ann")}[user, password]

    assert await basic_statuses(known, 30) == {503: 10, 429: 20}
    assert len(asked) == 10


@pytest.mark.parametrize("error", [OSError(), TimeoutError(), TemporarilyUnavailableError("down")])
async def test_an_outage_of_a_directory_is_nobodys_guess(error: Exception) -> None:
    async def away(user: str, password: str) -> Identity | None:
        raise error

    assert await basic_statuses(away, 30) == {503: 30}


async def test_a_right_password_ends_the_count_of_its_own_user_alone() -> None:
    async with uvicorn_serving(agent(passwords()), "h11") as origin, calling(origin, ATTACKER) as attacker:
        for number in range(9):
            assert await attacker.login(f"ann:{number}") == 401
            assert await attacker.login(f"bob:{number}") == 401
        assert await attacker.login("bob:right") == 200
        assert [await attacker.login(f"bob:more {number}") for number in range(9)] == [401] * 9
        assert [await attacker.login(f"ann:more {number}") for number in range(2)] == [401, 429]
        statuses = Counter([await attacker.login(f"user{number}:x") for number in range(100)])
        assert statuses == {401: 72, 429: 28}, "all of them count for the peer"


async def test_a_right_password_for_one_scheme_does_not_end_the_count_of_another() -> None:
    """The attacker has an account of his own at the second store, under the name of a user of the first."""
    card = {
        **LOGIN,
        "securitySchemes": {
            **LOGIN["securitySchemes"],
            "second": {"apiKeySecurityScheme": {"location": "header", "name": "X-Second"}},
        },
        "securityRequirements": [{"schemes": {"login": {"list": []}}}, {"schemes": {"second": {"list": []}}}],
    }
    given = {"login": passwords(), "second": passwords()}
    app = guarded(Agent(), card, verifiers=given, failures=LIMITS, clock=time.time)
    async with uvicorn_serving(app, "h11") as origin, calling(origin, ATTACKER) as attacker:
        for number in range(9):
            assert await attacker.login(f"ann:{number}") == 401
        assert (await attacker(x_second="ann:right")).status_code == 200
        assert [await attacker.login(f"ann:more {number}") for number in range(2)] == [401, 429]
    one = passwords()  # both places have the same users
    app = guarded(Agent(), card, verifiers={"login": one, "second": one}, failures=LIMITS, clock=time.time)
    async with uvicorn_serving(app, "h11") as origin, calling(origin, ATTACKER) as attacker:
        for number in range(10):
            name = "x_second" if number % 2 else "x_login"
            assert (await attacker(**{name: f"ann:{number}"})).status_code == 401
        assert [(await attacker(**{name: "ann:x"})).status_code for name in ("x_login", "x_second")] == [429, 429]


async def test_an_expired_token_is_401_so_that_its_client_gets_a_new_one() -> None:
    async with uvicorn_serving(agent(passwords()), "h11") as origin, calling(origin, ATTACKER) as attacker:
        for number in range(120):
            await attacker.login(f"user{number}:x")
        answer = await attacker(authorization="Bearer a.b.c")
        assert answer.status_code == 401
        assert 'Bearer error="invalid_token"' in answer.headers["www-authenticate"]


@walk("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "X-Client-IP", "True-Client-IP"])
async def test_a_header_of_the_client_makes_no_other_peer(header: str) -> None:
    store = passwords()
    async with uvicorn_serving(agent(store), "h11") as origin, calling(origin, ATTACKER) as attacker:
        word = "for=" if header == "Forwarded" else ""
        statuses = Counter(
            [await attacker.login(f"ann:{number}", **{header: f"{word}203.0.113.{number}"}) for number in range(60)]
        )
        assert statuses == {401: 10, 429: 50}
        assert len(store.hashed) == 10


async def test_many_peers_and_names_do_not_grow_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_trust.auth.throttle._COUNTERS", 64)
    app = agent(Passwords())
    for number in range(64):  # of a network with 2 ** 16 networks; each counts itself and a name
        transport = httpx.ASGITransport(app, client=(f"2001:db8::{number:x}:0:0:0:1", 1))
        headers = [(b"host", b"agent.example"), (b"x-login", b"user%d:x" % number)]
        request = httpx.Request("POST", "http://agent.example/rpc", headers=headers)
        assert (await transport.handle_async_request(request)).status_code == 401
    assert len(app.access.guard._throttle._counters) == 64


@pytest.mark.parametrize(
    ("path", "media_type", "error"),
    [
        ("/rpc", "application/json", ("code", -31429)),
        ("/rest/message:send", "application/a2a+json", ("status", "RESOURCE_EXHAUSTED")),
    ],
)
async def test_the_answer_is_in_the_words_of_the_binding(
    path: str, media_type: str, error: tuple[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = FailureLimits(by_credential="1/2 seconds")
    now = 1_000.0
    monkeypatch.setattr(Throttle.__init__, "__defaults__", (lambda: now,))
    app = agent(passwords(), limits)
    async with uvicorn_serving(app, "h11") as origin, calling(origin, ATTACKER) as attacker:
        assert (await attacker(path, x_login="ann:wrong")).status_code == 401
        answer = await attacker(path, x_login="ann:right")
        assert (answer.status_code, answer.headers["content-type"]) == (429, media_type)
        name, value = error
        assert answer.json()["error"][name] == value
        assert "ann" not in answer.text
        assert "www-authenticate" not in answer.headers
        wait = int(answer.headers["retry-after"])
        assert 1 <= wait <= 2
        now += wait
        assert (await attacker(path, x_login="ann:right")).status_code == 200


async def test_a_websocket_is_limited_too() -> None:
    app = agent(passwords(), FailureLimits(by_credential="1/minute"))

    async def handshake(login: str) -> list[Any]:
        sent: list[Any] = []
        scope = {
            "type": "websocket",
            "path": "/rpc",
            "raw_path": b"/rpc",
            "query_string": b"",
            "headers": [(b"host", b"agent.example"), (b"x-login", login.encode())],
            "client": (ATTACKER, 1),
            "extensions": {"websocket.http.response": {}},
        }

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await app(scope, receive, send)
        return sent

    assert (await handshake("ann:wrong"))[0]["status"] == 401
    start, body = await handshake("ann:right")
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 429)
    assert 1 <= int(dict(start["headers"])[b"retry-after"]) <= 60
    assert json.loads(body["body"])["error"]["code"] == -31429


async def test_guesses_do_not_flood_the_audit_trail(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "a2a_trust.audit")
    app = agent(passwords())
    async with uvicorn_serving(app, "h11") as origin, calling(origin, ATTACKER) as attacker:
        for number in range(100):
            await attacker.login(f"ann:secret{number}")
    app.access.trail.flush()
    events = [record.__dict__["audit"] for record in caplog.records if record.name == "a2a_trust.audit"]
    assert Counter(event["reason"] for event in events) == {"invalid-credentials": 10, "too-many-requests": 2}
    first, count = events[10:]
    assert first["detail"] == f"too many failed credentials from {ATTACKER} (by_credential=10/hour)"
    assert (first["client"], count["count"], count["detail"]) == (ATTACKER, 89, first["detail"])
    levels = [record.levelno for record in caplog.records if record.name == "a2a_trust.audit"]
    firsts = [logging.WARNING] * 3 + [logging.INFO] * 7
    assert levels == firsts + [logging.WARNING] * 2, "a brute force is seen without any logging set up"
    assert "secret" not in caplog.text
