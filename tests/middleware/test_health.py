"""Readiness from what is known, and the end of stores with the lifespan."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from a2a_trust import JwtVerifier, RequestRules, protect, protect_agents
from a2a_trust.auth import ApiKeyRecord, DPoP, Identity, SeveralIssuers, SeveralKeySources, TokenBinding
from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.basic.records import MemoryPasswords
from a2a_trust.auth.basic.verifier import BasicVerifier
from a2a_trust.auth.records import Found
from a2a_trust.base.databases.availability import Pooled
from a2a_trust.errors import CardNotServedError, ConfigurationError, KeySourceUnavailableError
from a2a_trust.keys.jwk import publish_jwks
from a2a_trust.keys.trust.jwks_cache import JwksCache
from a2a_trust.middleware import Readiness, readiness
from a2a_trust.middleware.card import FixedCard
from a2a_trust.middleware.documents import Document
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER
from tests.middleware.agent import CARD, Agent, Message, verifiers
from tests.middleware.several import agent_at, asked, card_of
from tests.waiting import settled, until

pytestmark = pytest.mark.anyio

READY = Readiness(ready=True, problems={})


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Store(MemoryApiKeys):
    """Keys that can be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.is_lost = False
        self.finds = 0

    async def find(self, digests: tuple[bytes, ...]) -> Found[ApiKeyRecord]:
        self.finds += 1
        if self.is_lost:
            raise OSError("the disk is gone")
        return await super().find(digests)


class Source:
    """A key set that can be lost."""

    def __init__(self) -> None:
        self.is_lost = False
        self.clock = Clock()
        self.cache = JwksCache(self.load, name="keys of idp", clock=self.clock)
        self.loads = 0

    async def load(self) -> tuple[bytes, float | None]:
        self.loads += 1
        if self.is_lost:
            raise OSError
        return json.dumps(publish_jwks([EC.public_key])).encode(), None

    async def use(self) -> None:
        await self.cache.keys()


def key_agent(store: Any, clock: Clock | None = None, **rules: Any) -> Any:
    card = {**CARD, "securityRequirements": [{"schemes": {"key": {"list": ["read"]}}}]}
    verifier = ApiKeyVerifier(store, clock=Clock() if clock is None else clock)
    return protect(Agent(), card=card, verifiers={"key": verifier}, rules=RequestRules(**rules))


def token_verifier(keys: Any, issuer: str = ISSUER, **options: Any) -> JwtVerifier:
    return JwtVerifier(keys, issuer=issuer, audience=AUDIENCE, **options)


def token_agent(verifier: Any, dpop: DPoP | None = None, **rules: Any) -> Any:
    card = {**CARD, "securityRequirements": [{"schemes": {"oauth": {"list": ["read"]}}}]}
    return protect(Agent(), card=card, verifiers={"oauth": verifier}, dpop=dpop, rules=RequestRules(**rules))


async def use(app: Any, key: str = "unknown") -> int:
    sent = await asked(app, "/x", method="GET", type="http", headers=[(b"x-api-key", key.encode())])
    return int(sent[0]["status"])


async def test_a_store_that_was_never_used_is_available() -> None:
    store = Store()
    store.is_lost = True
    assert readiness(key_agent(store)) == READY
    assert store.finds == 0


async def test_a_lost_store_is_known_until_it_is_back_without_any_request() -> None:
    store, clock = Store(), Clock()
    app = key_agent(store, clock)
    store.is_lost = True
    assert await use(app) == 503
    found = readiness(app)
    assert (found.ready, [*found.problems]) == (False, ["scheme 'key'"])
    assert found.problems["scheme 'key'"]
    finds = store.finds
    for _ in range(100):  # anybody may ask for it
        assert not readiness(app).ready
    await settled()
    assert store.finds == finds
    clock.now += 60
    store.is_lost = False
    for _ in range(100):
        assert not readiness(app).ready  # it does not wait
    await until(lambda: readiness(app).ready)
    assert store.finds == finds + 1


async def test_a_lost_store_is_tried_by_one_look_up_at_a_time() -> None:
    store, clock, entered, go_on = Store(), Clock(), asyncio.Event(), asyncio.Event()
    app = key_agent(store, clock)
    store.is_lost = True
    await use(app)

    async def hang(digests: tuple[bytes, ...]) -> Found[ApiKeyRecord]:
        asked_for.append(digests)
        entered.set()
        await go_on.wait()
        return Found(1, ())

    asked_for: list[tuple[bytes, ...]] = []
    guard = type(app)._a2a_trust_guard.access.guard
    guard._schemes["key"].verifier._records._find_in_store = hang
    clock.now += 60
    for _ in range(1000):
        readiness(app)
    await entered.wait()
    for _ in range(1000):
        readiness(app)
    go_on.set()
    await until(lambda: readiness(app).ready)
    assert sum(map(len, asked_for)) == 1


async def test_passwords_are_a_store_and_a_function_is_none() -> None:
    card = {
        **CARD,
        "securitySchemes": {"basic": {"httpAuthSecurityScheme": {"scheme": "Basic"}}},
        "securityRequirements": [{"schemes": {"basic": {"list": []}}}],
    }
    clock, store = Clock(), MemoryPasswords()

    async def find(users: tuple[str, ...]) -> Any:
        raise OSError

    store.find = find  # type: ignore[method-assign,assignment]
    app = protect(Agent(), card=card, verifiers={"basic": BasicVerifier(store, clock=clock)})
    headers = [(b"authorization", b"Basic YW5uOnNlY3JldA==")]
    await asked(app, "/x", method="GET", type="http", headers=headers)
    assert [*readiness(app).problems] == ["scheme 'basic'"]

    async def check(user: str, password: str) -> Identity | None:
        raise OSError

    app = protect(Agent(), card=card, verifiers={"basic": BasicVerifier(check)})
    await asked(app, "/x", method="GET", type="http", headers=headers)
    assert readiness(app) == READY


async def test_a_key_set_is_lost_when_its_load_failed_and_no_usable_keys_are_known() -> None:
    source = Source()
    app = token_agent(token_verifier(source.cache))
    assert readiness(app) == READY
    assert source.loads == 0

    source.is_lost = True
    with pytest.raises(KeySourceUnavailableError):
        await source.use()
    assert readiness(app).problems == {"scheme 'oauth'": "keys of idp: unreachable, and no usable keys are known"}
    await settled()
    assert source.loads == 1  # not again before the pause of the cache

    source.clock.now += 60
    source.is_lost = False
    assert not readiness(app).ready
    await until(lambda: readiness(app).ready)

    source.is_lost = True
    source.clock.now += 400  # stale, and usable
    await source.use()
    await settled()
    assert readiness(app) == READY
    source.clock.now += 3_600
    assert not readiness(app).ready


async def test_one_of_several_sources_or_issuers_is_enough() -> None:
    lost, good = Source(), Source()
    lost.is_lost = True
    with pytest.raises(KeySourceUnavailableError):
        await lost.use()
    await good.use()
    several = token_agent(token_verifier(SeveralKeySources([lost.cache, good.cache])))
    issuers = [token_verifier(each.cache, f"https://{at}.example") for at, each in enumerate((lost, good))]
    assert readiness(several) == readiness(token_agent(SeveralIssuers(issuers))) == READY
    assert not readiness(token_agent(token_verifier(SeveralKeySources([lost.cache])))).ready


async def test_an_agent_is_ready_while_one_alternative_can_be_verified() -> None:
    source, store = Source(), Store()
    source.is_lost = True
    with pytest.raises(KeySourceUnavailableError):
        await source.use()
    given: dict[str, Any] = {"key": ApiKeyVerifier(store), "oauth": token_verifier(source.cache)}
    app = protect(Agent(), card=CARD, verifiers=given)
    found = readiness(app)
    assert (found.ready, [*found.problems]) == (True, ["scheme 'oauth'"])
    both: dict[str, Any] = {"schemes": {"key": {"list": []}, "oauth": {"list": []}}}
    assert not readiness(protect(Agent(), card={**CARD, "securityRequirements": [both]}, verifiers=given)).ready
    everybody = {**CARD, "securityRequirements": [both, {"schemes": {}}]}
    rules = RequestRules(allow_anonymous=True)
    assert readiness(protect(Agent(), card=everybody, verifiers=given, rules=rules)).ready


async def test_a_lost_memory_of_proofs_is_a_problem_of_schemes_that_take_proofs() -> None:
    class Memory:
        async def first_use(self, jkt: str, jti: str, *, now: float, issued: float, window: float) -> bool:
            return True

        def outage(self) -> str:
            return "the memory is lost"

    for binding in TokenBinding:
        verifier = token_verifier(Source().cache, binding=binding)
        app = token_agent(verifier, dpop=DPoP(url=AUDIENCE, memory=Memory()))
        assert readiness(app) == Readiness(ready=False, problems={"scheme 'oauth'": "the memory is lost"})


async def test_a_card_that_is_not_served_is_not_ready() -> None:
    class Ends(FixedCard):
        why = ""

        def document(self, now: float) -> Document:
            if self.why:
                raise CardNotServedError(self.why)
            return super().document(now)

    source = Ends(CARD)
    app = protect(Agent(), card=source, verifiers=verifiers())
    assert readiness(app) == READY
    source.why = "expired"
    assert readiness(app) == Readiness(ready=False, problems={"card": "expired"})


async def test_several_agents_are_ready_when_each_is() -> None:
    exists: list[Mapping[str, Any]] = []

    def late() -> Mapping[str, Any]:
        if not exists:
            raise RuntimeError("not yet")
        return exists[0]

    app = protect_agents(Agent(), {"/a": agent_at("/a"), "/b": agent_at("/b", card=late)})
    assert readiness(app).problems == {"agent '/b': card": "it could not be made yet"}
    exists.append(card_of("/b"))
    await asked(app, "/b/rpc", method="GET", type="http", headers=[])
    assert readiness(app) == READY


async def test_an_application_that_is_not_protected_has_no_readiness() -> None:
    with pytest.raises(ConfigurationError, match=r"readiness: Agent is not protected; pass what protect\(…\)"):
        readiness(Agent())


def test_readiness_needs_the_event_loop() -> None:
    with pytest.raises(ConfigurationError, match="event loop"):
        readiness(key_agent(Store()))


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_everybody_reads_whether_an_agent_is_ready_and_nothing_else(method: str) -> None:
    store = Store()
    app = key_agent(store, readiness_path="/readyz")
    for status, body in ((200, b"ready"), (503, b"not ready")):
        start, end = await asked(app, "/readyz", method=method, type="http", headers=[])
        assert start["status"] == status
        assert dict(start["headers"]) == {
            b"cache-control": b"no-store",
            b"content-type": b"text/plain",
            b"content-length": str(len(body)).encode(),
        }
        assert end["body"] == (body if method == "GET" else b"")
        store.is_lost = True
        await use(app)


async def test_other_methods_and_other_paths_need_a_credential() -> None:
    app = key_agent(Store(), readiness_path="/readyz")
    for method, path in (("POST", "/readyz"), ("GET", "/readyz/"), ("GET", "/Readyz"), ("GET", "//readyz")):
        start, _ = await asked(app, path, method=method, type="http", headers=[])
        assert start["status"] == 401


async def test_each_of_several_agents_has_its_own_path() -> None:
    agents = {"/a": agent_at("/a", readiness_path="/a/readyz"), "/b": agent_at("/b")}
    app = protect_agents(Agent(), agents)
    assert (await asked(app, "/a/readyz", method="GET", type="http", headers=[]))[0]["status"] == 200
    assert (await asked(app, "/b/readyz", method="GET", type="http", headers=[]))[0]["status"] == 401


@pytest.mark.parametrize(
    ("path", "rules", "why"),
    [
        ("/rpc", {}, "the path of an interface"),
        ("/rest/v1/tasks", {}, "the path of an interface, of an operation"),
        ("/.well-known/agent-card.json", {}, "the card is served at"),
        ("/.well-known/oauth-protected-resource", {}, "of another document"),
        ("/readyz", {"public_paths": ["/readyz"]}, "another option names it"),
        ("/readyz", {"other_paths": ["/readyz"]}, "another option names it"),
        ("/readyz/{id}", {}, "not an exact path"),
        ("readyz", {}, "not an exact path"),
        (7, {}, "not an exact path"),
    ],
)
def test_the_path_of_readiness_is_its_own(path: Any, rules: dict[str, Any], why: str) -> None:
    given = RequestRules(readiness_path=path, **rules)
    with pytest.raises(ConfigurationError, match=f"readiness_path: .*{why}"):
        protect(Agent(), card=CARD, verifiers=verifiers(), url="http://agent.example", rules=given)


class Pool(MemoryApiKeys, Pooled[Any]):
    """A store with connections, which counts how often they are closed."""

    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


async def live(app: Any) -> None:
    """The life of an application under a server."""
    messages: list[Message] = [{"type": "lifespan.shutdown"}, {"type": "lifespan.startup"}]

    async def receive() -> Message:
        return messages.pop()

    async def send(message: Message) -> None:
        if message["type"] == "lifespan.shutdown.complete":
            raise asyncio.CancelledError  # as servers do

    with suppress(asyncio.CancelledError):
        await app({"type": "lifespan", "asgi": {}}, receive, send)


async def test_stores_close_with_the_lifespan_once_each() -> None:
    pool = Pool()
    card = {**CARD, "securityRequirements": [{"schemes": {"key": {"list": []}, "other": {"list": []}}}]}
    card["securitySchemes"] = {
        "key": CARD["securitySchemes"]["key"],
        "other": {"apiKeySecurityScheme": {"location": "header", "name": "X-Other"}},
    }
    given = {"key": ApiKeyVerifier(pool), "other": ApiKeyVerifier(pool)}
    await live(protect(Agent(), card=card, verifiers=given))
    assert pool.closed == 1
    await live(protect_agents(Agent(), {"/a": agent_at("/a", verifiers={"key": ApiKeyVerifier(pool)})}))
    assert pool.closed == 2


async def test_a_store_that_only_has_aclose_is_its_owners_to_close() -> None:
    class Theirs(MemoryApiKeys):
        async def aclose(self) -> None:
            raise AssertionError

    await live(key_agent(Theirs()))


async def test_a_store_is_an_async_context_manager() -> None:
    pool = Pool()
    async with pool as entered:
        assert entered is pool
        assert pool.closed == 0
    assert pool.closed == 1
