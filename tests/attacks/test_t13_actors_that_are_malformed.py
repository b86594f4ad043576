"""T13: the claim ``act`` of a token is malformed or deep, and a delegated request passes for the subject's own.

A reader that skips what it does not understand shows no actor; one that follows any depth writes pages into the log.
"""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.auth.principal import Actor
from a2a_trust.errors import InvalidCredentialsError
from tests.auth.introspecting import active, introspecting, verifier_for
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys, claims, token
from tests.middleware.agent import CALL, Agent, guarded
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def nested(number: int, **innermost: Any) -> dict[str, Any]:
    """So many actors within each other; ``a1`` is the current one."""
    act: dict[str, Any] = {"sub": f"a{number}", **innermost}
    for each in range(number - 1, 0, -1):
        act = {"sub": f"a{each}", "act": act}
    return act


async def by_jwt(act: Any) -> Any:
    return await JwtVerifier(Keys(EC), issuer=ISSUER, audience=AUDIENCE).verify(token(claims(act=act)), NOW)


async def by_introspection(act: Any) -> Any:
    async with introspecting(opaque=active(act=act)) as server:
        return await verifier_for(server).verify("opaque", NOW)


VERIFYING = [by_jwt, by_introspection]


@walk("verifying", VERIFYING)
@walk(
    ("act", "why"),
    [
        *(
            (act, "act is not an object with sub, and perhaps iss, as strings")
            for act in (
                "agent",
                1,
                True,
                [],
                [{"sub": "agent"}],
                {},
                {"iss": ISSUER},
                {"sub": None},
                {"sub": 1},
                {"sub": ""},
                {"sub": ["agent"]},
                {"sub": "agent", "iss": None},
                {"sub": "agent", "iss": ""},
                {"sub": "agent", "iss": {}},
                {"sub": "agent", "act": None},
                {"sub": "agent", "act": "other"},
                {"sub": "agent", "act": {"act": {"sub": "other"}}},
                nested(8, sub=8),
                nested(8, iss=1),
            )
        ),
        (nested(9), "act names more than 8 actors"),
        (nested(9, sub=1), "act names more than 8 actors"),
        (nested(20), "act names more than 8 actors"),
    ],
)
async def test_a_malformed_actor_makes_the_token_invalid(verifying: Any, act: Any, why: str) -> None:
    with pytest.raises(InvalidCredentialsError, match=f"^token: {why}$"):
        await verifying(act)


async def test_a_missing_actor_as_null_is_no_actor_only_where_null_means_missing() -> None:
    with pytest.raises(InvalidCredentialsError, match="act is not an object"):
        await by_jwt(None)
    assert (await by_introspection(None)).actors == ()


@walk("verifying", VERIFYING)
async def test_actors_are_listed_from_the_current_one(verifying: Any) -> None:
    found = await verifying({"sub": "agent", "act": {"sub": "other", "iss": "https://b.example", "exp": 1}})
    assert found.actors == (Actor(issuer=ISSUER, subject="agent"), Actor(issuer="https://b.example", subject="other"))
    assert found.subject in ("alice", "ann")
    assert [each.subject for each in (await verifying(nested(8))).actors] == [f"a{number}" for number in range(1, 9)]


async def test_long_names_of_clients_and_actors_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "a2a_trust.audit")
    long, agent = "x\n\u202e" * 400, Agent()
    act = {"sub": long, "act": {"sub": "bot", "iss": "https://b.example"}}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(guarded(agent)), base_url="http://agent.example"
    ) as http:
        for members in ({"client_id": long, "act": act}, {"client_id": "app", "act": act["act"]}, {"client_id": ...}):
            headers = {"Authorization": f"Bearer {token(claims(**members))}"}
            assert (await http.post("/rpc", json=CALL, headers=headers)).status_code == 200
    cut, short, neither = [record.__dict__["audit"] for record in caplog.records if record.name == "a2a_trust.audit"]
    assert len(cut["client_id"]) < 6 * 513
    assert [len(each) for each in cut["actors"]] == [512, len("bot@https://b.example")]
    assert all(text.isascii() and text.isprintable() for text in (cut["client_id"], *cut["actors"]))
    assert (short["client_id"], short["actors"]) == ("app", ["bot@https://b.example"])
    assert not {"client_id", "actors"} & neither.keys()
    assert agent.scopes[0]["user"].client_id == long
    assert [each.subject for each in agent.scopes[0]["user"].actors] == [long, "bot"]
