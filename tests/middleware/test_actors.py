"""Which actors may act for callers: the options, and who is admitted with them."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

from a2a_trust.auth.principal import Actor
from a2a_trust.errors import ConfigurationError
from a2a_trust.middleware import ActorRules, RequestRules, protect
from tests.auth.test_jwt import ISSUER, NOW, claims, token
from tests.middleware.agent import CALL, CARD, Agent, guarded, verifiers
from tests.tables import walk

pytestmark = pytest.mark.anyio

PLANNER, RESEARCHER, OTHER = (Actor(issuer=ISSUER, subject=name) for name in ("planner", "researcher", "other"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def acting(*actors: Actor) -> str:
    """A token of alice for which these actors act, the current one first."""
    act: dict[str, Any] = {}
    for actor in reversed(actors):
        act = {"act": {"sub": actor.subject, "iss": actor.issuer, **act}}
    return token(claims(**act))


def protected(agent: Agent, actors: ActorRules) -> Any:
    rules = RequestRules(actors=actors)
    return protect(agent, card=CARD, verifiers=verifiers(), clock=lambda: NOW, rules=rules)


def enforced(agent: Agent, actors: ActorRules) -> Any:
    return guarded(agent, actors=actors)


DOORS = [protected, enforced]


async def status(app: Any, *tokens: str) -> list[int]:
    """The statuses of two requests with each token: the second finds it in the cache."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example") as http:
        return [
            (await http.post("/rpc", json=CALL, headers={"Authorization": f"Bearer {text}"})).status_code
            for text in tokens
            for _ in range(2)
        ]


@walk("door", DOORS)
@walk(
    ("rules", "actors", "expected"),
    [
        (ActorRules(), [], 200),
        (ActorRules(), [PLANNER], 200),
        (ActorRules(), [OTHER] * 3, 200),
        (ActorRules(), [OTHER] * 4, 401),
        (ActorRules(most=4), [OTHER] * 4, 200),
        (ActorRules(most=8), [OTHER] * 8, 200),
        (ActorRules(most=8), [OTHER] * 9, 401),
        (ActorRules(most=0), [], 200),
        (ActorRules(most=0), [PLANNER], 401),
        (ActorRules(may_act=[PLANNER]), [], 200),
        (ActorRules(may_act=[PLANNER]), [PLANNER], 200),
        (ActorRules(may_act=[PLANNER]), [RESEARCHER], 401),
        (ActorRules(may_act=[PLANNER]), [PLANNER, RESEARCHER], 401),
        (ActorRules(may_act=[PLANNER]), [RESEARCHER, PLANNER], 401),
        (ActorRules(may_act={PLANNER, RESEARCHER}), [RESEARCHER, PLANNER], 200),
        (ActorRules(may_act=[PLANNER]), [Actor(issuer="https://b.example", subject="planner")], 401),
        (ActorRules(may_act=lambda actor: actor.issuer == ISSUER), [RESEARCHER, PLANNER], 200),
        (ActorRules(may_act=lambda actor: actor != OTHER), [PLANNER, OTHER], 401),
    ],
)
async def test_who_may_act(door: Any, rules: ActorRules, actors: list[Actor], expected: int) -> None:
    agent = Agent()
    assert await status(door(agent, rules), acting(*actors)) == [expected] * 2
    assert len(agent.scopes) == (2 if expected == 200 else 0)


@walk("door", DOORS)
async def test_a_rejection_has_a_reason_of_its_own_and_the_whole_chain(
    door: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "a2a_trust.audit")
    app = door(Agent(), ActorRules(may_act=[PLANNER, RESEARCHER]))
    caplog.clear()
    await status(app, acting(RESEARCHER, PLANNER), acting(PLANNER, OTHER), token(claims(act={"sub": 1})))
    events = [record.__dict__["audit"] for record in caplog.records if record.name == "a2a_trust.audit"]
    allowed, rejected, malformed = events[0], events[2], events[4]
    assert allowed["actors"] == [f"researcher@{ISSUER}", f"planner@{ISSUER}"]
    assert (rejected["event"], rejected["reason"], rejected["caller"]) == (
        "refused",
        "invalid-actors",
        f"alice@{ISSUER}",
    )
    assert rejected["actors"] == [f"planner@{ISSUER}", f"other@{ISSUER}"]
    assert f"token: the actor 'other@{ISSUER}' may not act here" in rejected["detail"]
    assert rejected["detail"].endswith("; to accept it, add it to ActorRules(may_act=[...])")
    assert (malformed["reason"], malformed["detail"][:32]) == ("invalid-actors", "token: act is not an object with")
    assert "caller" not in malformed


async def test_the_challenge_says_that_the_token_is_invalid_and_nothing_of_the_actors() -> None:
    transport = httpx.ASGITransport(guarded(Agent(), actors=ActorRules(most=0)))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as http:
        answer = await http.post("/rpc", json=CALL, headers={"Authorization": f"Bearer {acting(PLANNER)}"})
    challenges = answer.headers.get_list("www-authenticate")
    assert 'Bearer error="invalid_token"' in challenges
    assert "planner" not in answer.text + str(challenges)


@walk(
    ("options", "text"),
    [
        ({"most": -1}, "ActorRules: most=-1 must be a number, 0 to 8"),
        ({"most": 9}, "ActorRules: most=9 must be a number, 0 to 8"),
        ({"most": True}, "ActorRules: most=True must be a number"),
        ({"most": "3"}, "ActorRules: most='3' must be a number"),
        ({"may_act": []}, "to accept no actor, write most=0"),
        ({"may_act": "planner"}, "may_act: write a list of Actor"),
        ({"may_act": ["planner"]}, "may_act: write a list of Actor"),
        ({"may_act": PLANNER}, "may_act: write a list of Actor"),
        ({"may_act": 1}, "may_act: write a list of Actor"),
    ],
)
def test_wrong_options(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        ActorRules(**options)
    assert text in str(error.value)


def test_a_function_that_is_async_and_rules_of_another_kind() -> None:
    async def late(actor: Actor) -> bool:
        return actor == PLANNER

    with pytest.raises(ConfigurationError, match="not async def"):
        ActorRules(may_act=late)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="actors: write ActorRules"):
        RequestRules(actors=[PLANNER])  # type: ignore[arg-type]


def test_rules_can_be_compared_and_shown() -> None:
    assert ActorRules(may_act=iter([PLANNER])) == ActorRules(may_act=(PLANNER, PLANNER))
    assert "planner" in repr(ActorRules(may_act=[PLANNER]))
