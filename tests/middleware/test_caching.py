"""Answers to callers who were judged by what caches do not know to be a credential."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from a2a_trust.auth.credentials import FromTls
from a2a_trust.auth.principal import Identity
from tests.middleware.agent import guarded
from tests.middleware.test_authentication import http_scope
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


SCHEMES: dict[str, Any] = {
    "header": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
    "query": {"apiKeySecurityScheme": {"location": "query", "name": "k"}},
    "cookie": {"apiKeySecurityScheme": {"location": "cookie", "name": "sid"}},
    "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
    "mtls": {"mtlsSecurityScheme": {}},
}


class Anybody:
    async def verify(self, credential: str, now: float) -> Identity:
        return Identity(issuer="i", subject="s")


class Application:
    """It answers with the headers that it was given."""

    def __init__(self, *headers: tuple[str, str]) -> None:
        self.headers = [(name.encode(), value.encode()) for name, value in headers]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
        await send({"type": f"{kind}.start", "status": 200, "headers": self.headers})
        await send({"type": f"{kind}.body", "body": b"for this caller"})


def agent(app: Application, *names: str, **options: Any) -> Any:
    card = {
        "name": "agent",
        "supportedInterfaces": [
            {"url": "http://agent.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ],
        "securitySchemes": SCHEMES,
        "securityRequirements": [{"schemes": {name: {"list": []}}} if name else {} for name in names],
    }
    return guarded(app, card, verifiers={name: Anybody() for name in names if name}, **options)


async def answered(app: Any, **headers: str) -> httpx.Headers:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example") as http:
        answer = await http.get("/rpc", params={"k": "v"} if "query" in headers.pop("by", "") else {}, headers=headers)
    assert answer.status_code == 200
    return answer.headers


HEADER = {"X-API-Key": "v"}


@walk(
    ("names", "carried", "vary"),
    [
        (["header"], HEADER, "x-api-key"),
        (["cookie"], {"Cookie": "sid=v"}, "cookie"),
        (["query"], {"by": "query"}, None),  # caches tell URLs apart by themselves
        (["header", "cookie", "query", "bearer"], HEADER, "cookie, x-api-key"),
        (["header", "bearer"], {"Authorization": "Bearer v"}, "x-api-key"),
    ],
)
async def test_answers_are_for_their_caller_alone(names: list[str], carried: dict[str, str], vary: str | None) -> None:
    headers = await answered(agent(Application(), *names), **carried)
    assert (headers["cache-control"], headers.get("vary")) == ("private", vary)


async def test_so_are_those_to_a_client_certificate() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    class Shown(FromTls):
        def chain(self, scope: Any) -> tuple[bytes, ...]:
            return (b"certificate",)

    app = agent(Application(), "mtls", client_certificates=Shown())
    await app(http_scope(), None, send)
    assert sent[0]["headers"] == [(b"cache-control", b"private")]


async def test_an_anonymous_answer_is_not_for_those_with_a_key() -> None:
    headers = await answered(agent(Application(), "header", "", allow_anonymous=True))
    assert (headers["cache-control"], headers["vary"]) == ("private", "x-api-key")


async def test_caches_know_by_themselves_of_authorization() -> None:
    headers = await answered(agent(Application(), "bearer"), Authorization="Bearer v")
    assert not {"cache-control", "vary"} & headers.keys()


@pytest.mark.parametrize(
    ("said", "control", "vary"),
    [
        ([("Cache-Control", "public, max-age=60")], ["public, max-age=60"], ["x-api-key"]),
        ([("cache-control", "no-store"), ("vary", "accept")], ["no-store"], ["accept", "x-api-key"]),
        ([("Vary", "Accept, X-Api-Key")], ["private"], ["Accept, X-Api-Key"]),
        ([("vary", "*")], ["private"], ["*"]),
    ],
)
async def test_what_the_application_says_stays(
    said: list[tuple[str, str]], control: list[str], vary: list[str]
) -> None:
    headers = await answered(agent(Application(*said), "header"), **HEADER)
    assert (headers.get_list("cache-control"), headers.get_list("vary")) == (control, vary)


async def test_the_applications_own_list_is_not_changed() -> None:
    app = Application(("content-type", "text/plain"))
    judged = agent(app, "header")
    for _ in range(2):
        assert (await answered(judged, **HEADER)).get_list("vary") == ["x-api-key"]
    assert app.headers == [(b"content-type", b"text/plain")]
