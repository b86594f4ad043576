"""T15: an agent acts for a user and hides it, acts at the end of a long chain, or invents who acts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from a2a_trust.auth.principal import Actor
from a2a_trust.keys import base64url
from a2a_trust.middleware import ActorRules
from tests.auth.test_jwt import EC, ISSUER, STRANGER, b64, claims, sealed, token
from tests.middleware.agent import CARD, Agent, guarded
from tests.middleware.test_actors import DOORS, OTHER, PLANNER, RESEARCHER, acting, status
from tests.tables import walk
from tests.testing.test_authorization_server import ARCHIVE, HOME, exchange, post
from tests.testing.test_authorization_server import PLANNER as CLIENT
from tests.testing.test_authorization_server import RESEARCHER as NEXT

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@walk("door", DOORS)
async def test_a_chain_of_five_is_rejected_by_default(door: Any) -> None:
    agent = Agent()
    chains = [acting(*[PLANNER] * length) for length in (1, 3, 4, 5)]
    assert await status(door(agent, ActorRules()), *chains) == [200, 200, 200, 200, 401, 401, 401, 401]


@walk("door", DOORS)
async def test_an_actor_cannot_be_invented_exchanged_or_left_out(door: Any) -> None:
    """With the signature of the token that the attacker has, or with a key of its own."""
    app, good = door(Agent(), ActorRules(may_act=[PLANNER])), acting(PLANNER)
    header, payload, signature = good.split(".")
    members = json.loads(base64url.decode(payload, "claims"))
    without = {name: value for name, value in members.items() if name != "act"}
    for forged in (without, {**members, "act": {"sub": "researcher"}}, {**members, "sub": "root"}):
        text = f"{header}.{b64(json.dumps(forged).encode())}.{signature}"
        assert await status(app, text) == [401, 401]
        assert await status(app, token(forged, signer=STRANGER)) == [401, 401]
    assert await status(app, good) == [200, 200]


@walk("door", DOORS)
@walk(
    "act",
    [
        b'{"sub": "planner", "sub": "other"}',
        b'{"sub": "planner", "act": {"sub": "other"}, "act": {"sub": "planner"}}',
        b'{"sub": "planner\\u0000"}',
        b'{"sub": "planner "}',
        b'{"sub": "Planner"}',
        b'{"sub": "planner", "iss": "https://issuer.example/"}',
        b'{"sub": "planner", "iss": "https://other.example"}',
        b'{"sub": "planner", "act": {"sub": "other"}}',
        b'{"sub": ["planner"]}',
        b'[{"sub": "planner"}]',
    ],
)
async def test_an_actor_that_is_almost_the_right_one_is_rejected(door: Any, act: bytes) -> None:
    agent, header = Agent(), json.dumps({"alg": EC.alg, "kid": EC.kid, "typ": "at+jwt"}).encode()
    body = json.dumps(claims()).encode()[:-1] + b', "act": ' + act + b"}"
    assert await status(door(agent, ActorRules(may_act=[PLANNER])), sealed(header, body)) == [401, 401]
    assert not agent.scopes


RULES: list[Callable[[Actor], Any]] = [
    lambda _: None,
    lambda _: 1,
    lambda _: "no",
    lambda actor: actor.subject,
    lambda actor: [actor],
]


@walk("door", DOORS)
@walk("rule", RULES)
async def test_a_rule_that_does_not_say_true_accepts_nobody(door: Any, rule: Any) -> None:
    assert await status(door(Agent(), ActorRules(may_act=rule)), acting(PLANNER)) == [401, 401]


@walk("door", DOORS)
async def test_a_rule_that_fails_lets_nobody_in(door: Any) -> None:
    def fails(actor: Actor) -> bool:
        raise ZeroDivisionError

    agent = Agent()
    with pytest.raises(ZeroDivisionError):
        await status(door(agent, ActorRules(may_act=fails)), acting(PLANNER))
    assert not agent.scopes


async def test_the_rules_hold_for_a_token_that_only_a_skill_demands() -> None:
    skill = {"id": "s", "name": "s", "description": "s", "tags": ["s"]}
    demands = [{"schemes": {"oauth": {"list": ["read"]}}}]
    card = {**CARD, "securityRequirements": [{}], "skills": [{**skill, "securityRequirements": demands}]}
    agent = Agent()
    options = {"allow_anonymous": True, "handlers_check_skills": True, "actors": ActorRules(may_act=[PLANNER])}
    app = guarded(agent, card, **options)
    assert await status(app, acting(PLANNER), acting(OTHER), acting(PLANNER, OTHER)) == [200, 200, 401, 401, 401, 401]
    assert len(agent.scopes) == 2


@walk("extra", [{"act": '{"sub": "root"}'}, {"actor_token": "x"}, {"client_id": ARCHIVE}, {"actors": "root"}])
async def test_an_agent_that_exchanges_a_token_does_not_choose_the_actor(extra: dict[str, str]) -> None:
    first = HOME.token("ann", audience=CLIENT, scopes=["read"])
    form = exchange(first, resource=NEXT, **extra)
    identity = await HOME.verifier(NEXT).verify((await post(HOME, CLIENT, form)).json()["access_token"], time.time())
    assert identity.actors == (Actor(issuer=HOME.url, subject=CLIENT),)
    assert ISSUER not in repr(identity.actors)
    assert RESEARCHER not in identity.actors
