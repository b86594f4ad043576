"""A card is fetched, and had only when it is verified: the same by the flow, with and without an event loop."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from a2a_trust import (
    CardVerificationError,
    ConfigurationError,
    Fetcher,
    FetchError,
    MalformedError,
    Origins,
    TrustedKey,
    TrustFile,
    TrustStore,
    VerifiedCard,
    async_fetch_card,
    fetch_card,
    generate_signer,
    publish_jwks,
    verify_card,
)
from a2a_trust.base.net.fetcher import Fetched
from a2a_trust.client import CardCache, UnsafeReportOnly, async_fetch_extended_card, fetch_extended_card
from a2a_trust.client.flow import Awaited, Flow, InThread, run
from a2a_trust.client.memory import VolatileCardMemory
from a2a_trust.client.verification import FetchOptions, TrustOnFirstUse, Verification, card_urls, fetching, finding
from a2a_trust.errors import (
    KeySourceUnavailableError,
    PartialSignatureError,
    PinnedKeyError,
    PolicyNotMetError,
    RolledBackCardError,
    UncoveredFieldsError,
    UnsignedCardError,
    UntrustedCardError,
)
from a2a_trust.keys import SigningTool, named
from a2a_trust.keys.trust.jwks_cache import JwksCache
from a2a_trust.signing import Coverage
from a2a_trust.signing.forms import UNVERIFIED_BY_PRUNING
from tests.attacks.forgery import canonical, entry, pruned, served, signs
from tests.client.agents import NEW, OLD, OWNER, Agent, Asked, Page, card_of, signed, trusting

HOST = "agent.test"
Fetch = Callable[..., VerifiedCard]


def _in_loop(url: str, trust: Any, **options: Any) -> VerifiedCard:
    return asyncio.run(async_fetch_card(url, trust, options=FetchOptions(**options)))


def _waiting_in_loop(url: str, trust: Any, **options: Any) -> VerifiedCard:
    """The one that waits, called where an event loop is running."""

    async def main() -> VerifiedCard:
        return fetch_card(url, trust, options=FetchOptions(**options))

    return asyncio.run(main())


def _waiting(url: str, trust: Any, **options: Any) -> VerifiedCard:
    return fetch_card(url, trust, FetchOptions(**options))


ways = pytest.mark.parametrize("fetch", [_waiting, _in_loop, _waiting_in_loop])


# --- what is had ---------------------------------------------------------------------------------------------------


@ways
def test_a_verified_card_is_had(fetch: Fetch, agent: Agent, fetcher: Fetcher) -> None:
    card = card_of(agent.origin())
    agent.pages[NEW] = signed(card)
    verified = fetch(agent.origin(), trusting(HOST), fetcher=fetcher)
    assert (verified.card, verified.origin, verified.key) == (card, HOST, OWNER.public_key)
    assert agent.paths() == [NEW]


@ways
@pytest.mark.parametrize(
    ("document", "error"),
    [
        (lambda origin: json.dumps(card_of(origin)).encode(), UnsignedCardError),
        (lambda origin: json.dumps({**card_of(origin), "signatures": []}).encode(), UnsignedCardError),
        (lambda origin: signed(card_of(origin), by=generate_signer("ES256", kid="owner")), CardVerificationError),
        (lambda origin: signed(card_of(origin), by=generate_signer("ES256", kid="mallory")), UntrustedCardError),
        (lambda origin: signed(card_of(origin)).replace(b"Books", b"Cooks"), CardVerificationError),
        (lambda origin: signed(card_of("https://elsewhere.test")), UntrustedCardError),
        (lambda origin: b"[]", MalformedError),
        (lambda origin: b'{"name": "a", "name": "b"}', MalformedError),
        (lambda origin: b"\xff", MalformedError),
    ],
)
def test_what_is_not_verified_is_not_had(
    fetch: Fetch, agent: Agent, fetcher: Fetcher, document: Callable[[str], bytes], error: type[Exception]
) -> None:
    agent.pages[NEW] = document(agent.origin())
    with pytest.raises(error):
        fetch(agent.origin(), trusting(HOST), fetcher=fetcher)


def test_nobody_is_trusted_by_an_empty_store(agent: Agent, fetcher: Fetcher) -> None:
    agent.pages[NEW] = signed(card_of(agent.origin()))
    with pytest.raises(UntrustedCardError):
        fetch_card(agent.origin(), TrustStore([]), options=FetchOptions(fetcher=fetcher))


def test_the_same_bytes_are_verified_offline(agent: Agent, fetcher: Fetcher) -> None:
    document = agent.pages[NEW] = signed(card_of(agent.origin()))
    fetched = fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher))
    assert isinstance(document, bytes)
    assert fetched == verify_card(document, trusting(HOST), origin=agent.origin(), now=time.time())


def test_policy_and_coverage_are_those_of_verify_card(agent: Agent, fetcher: Fetcher) -> None:
    agent.pages[NEW] = signed(card_of(agent.origin()))
    auditor = generate_signer("ES256", kid="auditor")
    trust = TrustStore(
        TrustedKey(key=signer.public_key, origins=Origins(HOST), name=name)
        for name, signer in (("firm", OWNER), ("auditor", auditor))
    )
    with pytest.raises(PolicyNotMetError, match="0 of the 1 parties"):
        fetch_card(agent.origin(), trust, options=FetchOptions(fetcher=fetcher, policy=named("auditor")))
    assert (
        fetch_card(agent.origin(), trust, options=FetchOptions(fetcher=fetcher, policy=named("firm"))).key
        == OWNER.public_key
    )
    with pytest.raises(ConfigurationError, match="never by kid"):
        fetch_card(agent.origin(), trust, options=FetchOptions(fetcher=fetcher, policy=named(OWNER.kid)))
    verified = fetch_card(
        agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher, coverage=Coverage.SIGNED_PART_ONLY)
    )
    assert verified.dropped == ()


def test_a_card_that_an_sdk_signed_is_had_in_part_by_the_word_of_the_operator_only(
    agent: Agent, fetcher: Fetcher
) -> None:
    card = pruned(card_of(agent.origin()))
    made = entry({"alg": "ES256", "kid": "owner"}, canonical(card), signs(OWNER.private_key, "ES256"))
    agent.pages[NEW] = served(card, made)
    with pytest.raises(PartialSignatureError, match="a2a-python"):
        fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher))
    key = TrustedKey(key=OWNER.public_key, origins=Origins(HOST), signer=SigningTool.A2A_PYTHON)
    assert (
        fetch_card(agent.origin(), TrustStore([key]), options=FetchOptions(fetcher=fetcher)).unverified
        == UNVERIFIED_BY_PRUNING
    )
    agent.pages[NEW] = served({**card, "x": "y"}, made)
    with pytest.raises(UncoveredFieldsError):
        fetch_card(agent.origin(), TrustStore([key]), options=FetchOptions(fetcher=fetcher))
    assert fetch_card(
        agent.origin(), TrustStore([key]), options=FetchOptions(fetcher=fetcher, coverage=Coverage.SIGNED_PART_ONLY)
    ).dropped == ("/x",)


# --- where it is looked for ----------------------------------------------------------------------------------------


@ways
def test_the_older_name_is_asked_only_when_the_newer_is_not_there(fetch: Fetch, agent: Agent, fetcher: Fetcher) -> None:
    agent.pages[OLD] = signed(card_of(agent.origin()))
    assert fetch(agent.origin(), trusting(HOST), fetcher=fetcher).card["name"] == "Ledger"
    assert agent.paths() == [NEW, OLD]


@ways
@pytest.mark.parametrize(
    "newer",
    [
        Page(status=500),
        Page(status=403),
        Page(status=302, headers={"Location": OLD}),
        Page(body=b"{}"),
        Page(status=304),
    ],
)
def test_no_other_failure_leads_to_the_older_name(fetch: Fetch, agent: Agent, fetcher: Fetcher, newer: Page) -> None:
    """Whoever can spoil the newer answer must not get to choose the older one."""
    agent.pages = {NEW: newer, OLD: signed(card_of(agent.origin()))}
    with pytest.raises((FetchError, UnsignedCardError)):
        fetch(agent.origin(), trusting(HOST), fetcher=fetcher)
    assert agent.paths() == [NEW]


def test_a_card_that_is_nowhere_is_an_error_with_its_status(agent: Agent, fetcher: Fetcher) -> None:
    with pytest.raises(FetchError, match="status 404") as caught:
        fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher))
    assert caught.value.status == 404
    assert agent.paths() == [NEW, OLD]


@pytest.mark.parametrize(
    ("url", "places"),
    [
        ("https://a.test", ("https://a.test" + NEW, "https://a.test" + OLD)),
        ("https://a.test/", ("https://a.test" + NEW, "https://a.test" + OLD)),
        ("https://a.test/team/", ("https://a.test/team" + NEW, "https://a.test/team" + OLD)),
        ("https://a.test/cards/one.json", ("https://a.test/cards/one.json",)),
        ("https://a.test/cards/one.JSON?v=2", ("https://a.test/cards/one.JSON?v=2",)),
        ("https://[", ("https://[",)),
    ],
)
def test_a_url_names_the_agent_or_its_card(url: str, places: tuple[str, ...]) -> None:
    assert card_urls(url) == places


def test_a_url_that_could_mean_either_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"ends in \.json"):
        card_urls("https://a.test/card?id=1")


def test_a_card_at_a_place_of_its_own(agent: Agent, fetcher: Fetcher) -> None:
    agent.pages["/cards/one.json"] = signed(card_of(agent.origin()))
    assert (
        fetch_card(f"{agent.origin()}/cards/one.json", trusting(HOST), options=FetchOptions(fetcher=fetcher)).origin
        == HOST
    )
    assert agent.paths() == ["/cards/one.json"]


# --- the flow, driven by hand --------------------------------------------------------------------------------------


def asked(step: Any) -> tuple[str, dict[str, Any]]:
    """The URL that a step fetches, and how."""
    assert isinstance(step, Awaited)
    fetch: Any = step.begin
    assert fetch.func.__func__ is Fetcher.fetch
    (url,) = fetch.args
    return url, fetch.keywords


def test_the_flow_asks_for_what_it_needs_and_for_nothing_else() -> None:
    memory = VolatileCardMemory()
    flow = fetching("https://agent.test", Verification(trust=trusting(HOST), memory=memory), None)
    first = next(flow)
    how: dict[str, Any] = {"configured": True, "known": None, "headers": {}}
    assert asked(first) == ("https://agent.test" + NEW, how)
    second = flow.throw(FetchError("not there", 404))
    assert asked(second) == ("https://agent.test" + OLD, how)
    third = flow.send(Fetched(body=signed(card_of("https://agent.test")), max_age=None))
    assert isinstance(third, InThread)
    assert memory.records() == ()
    third.call()
    with pytest.raises(StopIteration) as done:
        flow.send(None)
    assert done.value.value.origin == HOST
    assert [record.location for record in memory.records()] == ["https://agent.test"]


def test_a_card_that_takes_long_to_verify_does_not_hold_up_an_event_loop() -> None:
    flow = fetching("https://agent.test", Verification(trust=trusting(HOST)), None)
    next(flow)
    document = signed(card_of("https://agent.test", description="x" * 8_192))
    step = flow.send(Fetched(body=document, max_age=None))
    assert isinstance(step, InThread)
    with pytest.raises(StopIteration) as done:
        flow.send(step.call())
    assert done.value.value.origin == HOST


@ways
def test_a_large_card_is_verified_or_refused_like_others(fetch: Fetch, agent: Agent, fetcher: Fetcher) -> None:
    agent.pages[NEW] = signed(card_of(agent.origin(), description="x" * 65_536))
    assert fetch(agent.origin(), trusting(HOST), fetcher=fetcher).origin == HOST
    with pytest.raises(UntrustedCardError):
        fetch(agent.origin(), trusting("other.test"), fetcher=fetcher)


def test_a_strangers_key_set_is_read_off_the_event_loop() -> None:
    memory = VolatileCardMemory()
    verification = Verification(trust=TrustStore([]), memory=memory, on_first_use=TrustOnFirstUse())
    flow = fetching("https://agent.test", verification, None)
    next(flow)
    step = flow.send(Fetched(body=signed(card_of("https://agent.test")), max_age=None))
    assert asked(step) == ("https://agent.test/.well-known/jwks.json", {"configured": True})
    reading = flow.send(Fetched(body=json.dumps(publish_jwks([OWNER.public_key])).encode(), max_age=None))
    assert isinstance(reading, InThread)
    assert [key.thumbprint for key in reading.call().keys] == [OWNER.public_key.thumbprint]
    flow.close()


def test_a_step_shows_no_credentials() -> None:
    """Tracebacks with local variables print it."""
    step = next(finding("https://agent.test", None, {"Authorization": "Bearer secret"}))
    assert asked(step)[1]["headers"] == {"Authorization": "Bearer secret"}
    assert "secret" not in repr(step)


def test_what_is_not_verified_is_not_remembered() -> None:
    memory = VolatileCardMemory()
    flow = fetching("https://agent.test", Verification(trust=trusting("other.test"), memory=memory), None)
    next(flow)
    with pytest.raises(UntrustedCardError):
        flow.send(Fetched(body=signed(card_of("https://agent.test")), max_age=None))
    assert memory.records() == ()


# --- keeping answers -----------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@ways
def test_a_fresh_answer_is_not_asked_for_again(fetch: Fetch, agent: Agent, fetcher: Fetcher) -> None:
    agent.pages[NEW] = Page(body=signed(card_of(agent.origin())), headers={"Cache-Control": "max-age=60"})
    cache, clock = CardCache(), Clock()
    for _ in range(2):
        fetch(agent.origin(), trusting(HOST), fetcher=fetcher, cache=cache, clock=clock)
    assert agent.paths() == [NEW]
    clock.now += 60
    fetch(agent.origin(), trusting(HOST), fetcher=fetcher, cache=cache, clock=clock)
    assert agent.paths() == [NEW, NEW]


@pytest.mark.parametrize(
    ("validator", "condition"),
    [
        ({"ETag": '"one"'}, ("if-none-match", '"one"')),
        ({"ETag": 'W/"one"', "Last-Modified": "Sat, 21 Nov 2026 10:00:00 GMT"}, ("if-none-match", 'W/"one"')),
        (
            {"Last-Modified": "Sat, 21 Nov 2026 10:00:00 GMT"},
            ("if-modified-since", "Sat, 21 Nov 2026 10:00:00 GMT"),
        ),
    ],
)
def test_a_stale_answer_is_asked_for_by_its_validator(
    agent: Agent, fetcher: Fetcher, validator: dict[str, str], condition: tuple[str, str]
) -> None:
    document = signed(card_of(agent.origin()))
    name, value = condition

    def page(asked: Asked) -> Page:
        if asked.headers.get(name) == value:
            return Page(status=304, headers={**validator, "Cache-Control": "max-age=60"})
        return Page(body=document, headers=validator)

    agent.pages[NEW] = page
    cache, clock = CardCache(), Clock()
    first = fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher, cache=cache, clock=clock))
    assert not {"if-none-match", "if-modified-since"} & agent.asked[0].headers.keys()
    second = fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher, cache=cache, clock=clock))
    assert agent.asked[1].headers[name] == value
    assert first == second
    fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher, cache=cache, clock=clock))
    assert len(agent.asked) == 2  # the 304 has made it fresh


@pytest.mark.parametrize(
    "headers",
    [
        {"ETag": '"one"', "Cache-Control": "no-store"},
        {"ETag": '"one"', "Vary": "*", "Cache-Control": "max-age=60"},
        {"ETag": "one"},
        {"Last-Modified": "yesterday"},
        {},
    ],
)
def test_what_must_not_or_cannot_be_kept_is_fetched_whole(
    agent: Agent, fetcher: Fetcher, headers: dict[str, str]
) -> None:
    agent.pages[NEW] = Page(body=signed(card_of(agent.origin())), headers=headers)
    cache = CardCache()
    for _ in range(2):
        fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher, cache=cache))
    assert len(agent.asked) == 2
    assert not any({"if-none-match", "if-modified-since"} & asked.headers.keys() for asked in agent.asked)


def test_a_304_that_nobody_asked_for_is_no_card(agent: Agent, fetcher: Fetcher) -> None:
    agent.pages[NEW] = Page(status=304)
    with pytest.raises(FetchError, match="status 304"):
        fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher, cache=CardCache()))


def test_a_304_for_another_etag_is_no_card(agent: Agent, fetcher: Fetcher) -> None:
    agent.pages[NEW] = Page(body=signed(card_of(agent.origin())), headers={"ETag": '"one"'})
    cache = CardCache()
    fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher, cache=cache))
    agent.pages[NEW] = Page(status=304, headers={"ETag": '"two"'})
    with pytest.raises(FetchError, match="another ETag than the one in the request"):
        fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher, cache=cache))


def test_what_is_kept_is_verified_anew_and_asked_for_when_it_is_not(agent: Agent, fetcher: Fetcher) -> None:
    """A key that was revoked proves nothing, however fresh the answer; the server may have another card by now."""
    agent.pages[NEW] = Page(body=signed(card_of(agent.origin())), headers={"Cache-Control": "max-age=60"})
    cache = CardCache()
    fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher, cache=cache))
    next_key = generate_signer("ES256", kid="next")
    with pytest.raises(UntrustedCardError):
        fetch_card(agent.origin(), trusting(HOST, key=next_key), options=FetchOptions(fetcher=fetcher, cache=cache))
    agent.pages[NEW] = signed(card_of(agent.origin()), by=next_key)
    assert (
        fetch_card(
            agent.origin(), trusting(HOST, key=next_key), options=FetchOptions(fetcher=fetcher, cache=cache)
        ).key.kid
        == "next"
    )


def test_a_kept_card_is_refused_once_a_newer_one_was_seen_by_others(agent: Agent, fetcher: Fetcher) -> None:
    """Its server allows to keep it; another process that shares the memory has seen its successor meanwhile."""
    now = time.time()
    older, newer = (signed(card_of(agent.origin()), iat=now - age) for age in (100, 10))
    agent.pages[NEW] = Page(body=older, headers={"Cache-Control": "max-age=600"})
    memory, cache = VolatileCardMemory(), CardCache()
    options: dict[str, Any] = {"fetcher": fetcher, "memory": memory, "cache": cache}
    fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(**options))
    url = agent.origin() + NEW
    memory.admit(verify_card(newer, trusting(HOST), origin=url, now=now), url, now=now)
    agent.pages[NEW] = newer
    assert fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(**options)).issued == now - 10
    assert agent.paths() == [NEW, NEW]


def test_what_is_not_verified_is_not_kept(agent: Agent, fetcher: Fetcher) -> None:
    """Else whoever answers once in the agent's place could lock it out for as long as he likes."""
    cache = CardCache()
    agent.pages[NEW] = Page(
        body=json.dumps(card_of(agent.origin())).encode(), headers={"Cache-Control": "max-age=9999"}
    )
    with pytest.raises(UnsignedCardError):
        fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher, cache=cache))
    agent.pages[NEW] = signed(card_of(agent.origin()))
    assert fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher, cache=cache)).origin == HOST


def test_nothing_is_fresh_for_more_than_a_day_or_before_it_came() -> None:
    cache = CardCache()
    cache.keep("https://a.test/", Fetched(body=b"", max_age=2.0**31), 1000.0)
    assert cache.fresh("https://a.test/", 1000.0 + 86_399) is not None
    assert cache.fresh("https://a.test/", 1000.0 + 86_400) is None
    assert cache.fresh("https://a.test/", 999.0) is None


def test_a_cache_forgets_the_oldest() -> None:
    cache = CardCache(size=2)
    for name in "abac":
        cache.keep(name, Fetched(body=name.encode(), max_age=60), 0.0)
    assert [cache.known(name) is not None for name in "abc"] == [True, False, True]
    with pytest.raises(ConfigurationError, match="1 or more"):
        CardCache(size=0)


# --- memory --------------------------------------------------------------------------------------------------------


@ways
def test_an_older_card_after_a_newer_one_is_refused(fetch: Fetch, agent: Agent, fetcher: Fetcher) -> None:
    now, memory = time.time(), VolatileCardMemory()
    old, new = (
        signed(card_of(agent.origin(), version=version), iat=now - age) for version, age in (("1", 9), ("2", 5))
    )
    agent.pages[NEW] = new
    for _ in range(2):
        fetch(agent.origin(), trusting(HOST), fetcher=fetcher, memory=memory)
    agent.pages[NEW] = old
    with pytest.raises(RolledBackCardError):
        fetch(agent.origin(), trusting(HOST), fetcher=fetcher, memory=memory)
    assert fetch(agent.origin(), trusting(HOST), fetcher=fetcher).card["version"] == "1"  # nobody remembered


@ways
def test_who_strips_the_signatures_of_a_known_agent_is_told_on(fetch: Fetch, agent: Agent, fetcher: Fetcher) -> None:
    memory = VolatileCardMemory()
    agent.pages[NEW] = signed(card_of(agent.origin()))
    fetch(agent.origin(), trusting(HOST), fetcher=fetcher, memory=memory)
    agent.pages[NEW] = json.dumps(card_of(agent.origin())).encode()
    with pytest.raises(UnsignedCardError, match="its signatures may have been removed"):
        fetch(agent.origin(), trusting(HOST), fetcher=fetcher, memory=memory)


@ways
def test_trust_on_first_use_is_a_choice_and_holds_to_the_first_key(
    fetch: Fetch, agent: Agent, fetcher: Fetcher
) -> None:
    memory, nobody = VolatileCardMemory(), TrustStore([])
    first = TrustOnFirstUse()

    def publish(key: Any) -> None:
        agent.pages[NEW] = signed(card_of(agent.origin()), by=key)
        agent.pages["/.well-known/jwks.json"] = json.dumps(publish_jwks([key.public_key])).encode()

    publish(OWNER)
    with pytest.raises(UntrustedCardError):
        fetch(agent.origin(), nobody, fetcher=fetcher, memory=memory)
    with pytest.raises(ConfigurationError, match="write TrustFile"):
        fetch_card("https://agent.example", "trust.toml")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="without a memory"):
        fetch(agent.origin(), nobody, fetcher=fetcher, on_first_use=first)
    assert fetch(agent.origin(), nobody, fetcher=fetcher, memory=memory, on_first_use=first).on_first_use
    publish(generate_signer("ES256", kid="owner"))
    with pytest.raises(PinnedKeyError):
        fetch(agent.origin(), nobody, fetcher=fetcher, memory=memory, on_first_use=first)
    with pytest.raises(UntrustedCardError):  # where the trust store says something, that alone counts
        fetch(
            agent.origin(),
            trusting(HOST, key=generate_signer(kid="another")),
            fetcher=fetcher,
            memory=memory,
            on_first_use=first,
        )


@pytest.mark.parametrize("key_set", [Page(status=404), Page(body=b"{}"), Page(status=500)])
def test_a_key_set_that_is_not_there_leads_to_no_other_card(agent: Agent, fetcher: Fetcher, key_set: Page) -> None:
    """Else a 404 for the keys would bring the card at the older name."""
    agent.pages = {NEW: signed(card_of(agent.origin())), OLD: b"{}", "/.well-known/jwks.json": key_set}
    with pytest.raises(UntrustedCardError) as caught:
        fetch_card(
            agent.origin(),
            TrustStore([]),
            options=FetchOptions(fetcher=fetcher, memory=VolatileCardMemory(), on_first_use=TrustOnFirstUse()),
        )
    assert isinstance(caught.value.__cause__, KeySourceUnavailableError)
    assert agent.paths() == [NEW, "/.well-known/jwks.json"]


# --- keys on the network -------------------------------------------------------------------------------------------

TRUST = """
version = 1
[[trust]]
origins = ["agent.test"]
jwks_url = "{origin}/keys"
"""


@ways
def test_key_sets_of_a_trust_file_are_fetched(fetch: Fetch, agent: Agent, fetcher: Fetcher, tmp_path: Path) -> None:
    path = tmp_path / "trust.toml"
    path.write_text(TRUST.format(origin=agent.origin()))
    agent.pages = {
        NEW: signed(card_of(agent.origin())),
        "/keys": json.dumps(publish_jwks([OWNER.public_key])).encode(),
    }
    assert fetch(agent.origin(), TrustFile(path, fetcher=fetcher), fetcher=fetcher).origin == HOST
    assert sorted(agent.paths()) == [NEW, "/keys"]


@pytest.mark.parametrize("in_loop", [False, True])
def test_programs_that_wait_finish_the_refresh_of_stale_keys_that_they_begin(in_loop: bool) -> None:
    """Else each card would ask the key server in vain, and a key that was taken out of the set would go on."""
    now, begun = 0.0, 0

    async def load() -> tuple[bytes, float | None]:
        nonlocal begun
        begun += 1
        keys = [OWNER.public_key] if begun == 1 else []
        await asyncio.sleep(0)
        return json.dumps(publish_jwks(keys)).encode(), 60

    cache = JwksCache(load, clock=lambda: now)

    class Keys:
        async def fetch(self, origin: str | None = None) -> TrustStore:
            return TrustStore(TrustedKey(key=key, origins=Origins(HOST)) for key in await cache.keys())

    def asking() -> Flow[TrustStore]:
        store: TrustStore = yield Awaited(partial(Keys().fetch, HOST))
        return store

    async def asked_in_loop() -> TrustStore:
        return run(asking())

    def ask() -> TrustStore:
        return asyncio.run(asked_in_loop()) if in_loop else run(asking())

    assert len(ask().keys) == 1
    now = 100.0  # stale, and not for long
    ask()
    assert [len(ask().keys) for _ in range(5)] == [0] * 5
    assert begun == 2


@ways
def test_a_key_set_out_of_reach_is_told_when_it_was_needed(
    fetch: Fetch, agent: Agent, fetcher: Fetcher, tmp_path: Path
) -> None:
    path = tmp_path / "trust.toml"
    path.write_text(TRUST.format(origin=agent.origin()))
    agent.pages[NEW] = signed(card_of(agent.origin()))
    with pytest.raises(UntrustedCardError) as caught:
        fetch(agent.origin(), TrustFile(path, fetcher=fetcher), fetcher=fetcher)
    assert isinstance(caught.value.__cause__, KeySourceUnavailableError)
    # That its configured keys are out of reach must not make it an agent of which nothing is known.
    agent.pages["/.well-known/jwks.json"] = json.dumps(publish_jwks([OWNER.public_key])).encode()
    with pytest.raises(UntrustedCardError):
        fetch(
            agent.origin(),
            TrustFile(path, fetcher=fetcher),
            fetcher=fetcher,
            memory=VolatileCardMemory(),
            on_first_use=TrustOnFirstUse(),
        )
    (tmp_path / "owner.json").write_text(json.dumps(publish_jwks([OWNER.public_key])))
    path.write_text(path.read_text() + '[[trust]]\norigins = ["agent.test"]\nkeys = "owner.json"\n')
    assert fetch(agent.origin(), TrustFile(path, fetcher=fetcher), fetcher=fetcher).origin == HOST


# --- observing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [True, False])
def test_a_report_tells_what_came_and_why_it_is_not_verified(agent: Agent, fetcher: Fetcher, waits: bool) -> None:
    def report(trust: TrustStore) -> UnsafeReportOnly:
        if waits:
            return UnsafeReportOnly.fetch(agent.origin(), trust, options=FetchOptions(fetcher=fetcher))
        return asyncio.run(UnsafeReportOnly.async_fetch(agent.origin(), trust, options=FetchOptions(fetcher=fetcher)))

    card = card_of(agent.origin())
    agent.pages[OLD] = signed(card)
    good = report(trusting(HOST))
    assert (good.is_verified, good.reasons, good.refusal, good.url) == (True, (), None, agent.origin() + OLD)
    assert good.unverified["name"] == card["name"]
    assert not issubclass(UnsafeReportOnly, VerifiedCard)
    assert report(trusting("other.test")).reasons == ("untrusted", "wrong-origin", "companion")
    agent.pages[OLD] = json.dumps(card).encode()
    unsigned = report(trusting(HOST))
    assert (unsigned.is_verified, unsigned.reasons, unsigned.unverified) == (False, ("unsigned",), card)
    agent.pages[OLD] = b'{"a": 1, "a": 2}'
    assert (report(trusting(HOST)).unverified, report(trusting(HOST)).reasons) == (None, ("malformed",))
    del agent.pages[OLD]
    with pytest.raises(FetchError, match="404"):
        report(trusting(HOST))
    agent.pages[NEW] = Page(status=500)
    with pytest.raises(FetchError, match="500"):
        report(trusting(HOST))


# --- the extended card ---------------------------------------------------------------------------------------------

KEY = {"X-API-Key": "a secret"}


def public(agent: Agent, fetcher: Fetcher, **members: Any) -> VerifiedCard:
    agent.pages[NEW] = signed(card_of(agent.origin(), **members))
    verified = fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher))
    agent.asked.clear()
    return verified


def interfaces(agent: Agent, *bindings: tuple[str, str, str]) -> list[dict[str, str]]:
    return [
        {"url": agent.origin() + path, "protocolBinding": binding, "protocolVersion": version}
        for path, binding, version in bindings
    ]


def by_json_rpc(document: bytes) -> Callable[[Asked], Page]:
    def page(asked: Asked) -> Page:
        call = json.loads(asked.body)
        return Page(body=b'{"jsonrpc": "2.0", "id": %b, "result": %b}' % (json.dumps(call["id"]).encode(), document))

    return page


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    ("interface", "tenant", "path", "method"),
    [
        (("/rest", "HTTP+JSON", "1.0"), "", "/rest/extendedAgentCard", ""),
        (("/rest/", "HTTP+JSON", "1.0"), "a/b", "/rest/a%2Fb/extendedAgentCard", ""),
        (("/rest", "HTTP+JSON", "0.3.0"), "", "/rest/v1/card", ""),
        (("/rest", "HTTP+JSON", "0.2.5"), "", "/rest/agent/authenticatedExtendedCard", ""),
        (("/rpc", "JSONRPC", "1.0"), "", "/rpc", "GetExtendedAgentCard"),
        (("/rpc", "JSONRPC", "1.0"), "team", "/rpc", "GetExtendedAgentCard"),
        (("/rpc", "JSONRPC", "0.3"), "", "/rpc", "agent/getAuthenticatedExtendedCard"),
    ],
)
def test_an_extended_card_is_had_by_every_name(
    agent: Agent, fetcher: Fetcher, waits: bool, interface: tuple[str, str, str], tenant: str, path: str, method: str
) -> None:
    supported = interfaces(agent, ("/grpc", "GRPC", "1.0"), interface)
    card = public(agent, fetcher, supportedInterfaces=supported)
    more = card_of(agent.origin(), supportedInterfaces=supported, description="More.")
    agent.pages[path] = by_json_rpc(signed(more)) if method else signed(more)
    options: Any = {"headers": KEY, "tenant": tenant, "options": FetchOptions(fetcher=fetcher)}
    if waits:
        extended = fetch_extended_card(card, trusting(HOST), **options)
    else:
        extended = asyncio.run(async_fetch_extended_card(card, trusting(HOST), **options))
    assert extended.card == more
    (asked,) = agent.asked
    assert (asked.method, asked.headers["x-api-key"]) == ("POST" if method else "GET", "a secret")
    assert asked.headers.get("a2a-version") == ("1.0" if interface[2] == "1.0" else None)
    if method:
        call = json.loads(asked.body)
        assert (call["method"], call.get("params", {}).get("tenant", "")) == (method, tenant)


def test_the_tenant_of_the_card_goes_before_that_of_the_caller(agent: Agent, fetcher: Fetcher) -> None:
    (supported,) = interfaces(agent, ("/rest", "HTTP+JSON", "1.0"))
    card = public(agent, fetcher, supportedInterfaces=[{**supported, "tenant": "own"}])
    with pytest.raises(FetchError, match="404"):
        fetch_extended_card(card, trusting(HOST), headers=KEY, tenant="other", options=FetchOptions(fetcher=fetcher))
    assert agent.paths() == ["/rest/own/extendedAgentCard"]


@pytest.mark.parametrize(
    ("answer", "error", "match"),
    [
        (b'{"jsonrpc": "2.0", "id": "extended-card", "error": {"code": -32007}}', FetchError, "-32007"),
        (b'{"jsonrpc": "2.0", "id": "extended-card", "error": "no"}', FetchError, r"error \?"),
        (b'{"jsonrpc": "2.0", "id": "extended-card"}', MalformedError, "either a result or an error"),
        (b'{"jsonrpc": "2.0", "id": "extended-card", "result": {}, "error": {}}', MalformedError, "either"),
        (b'{"jsonrpc": "2.0", "id": "other", "result": {}}', MalformedError, "another request"),
        (b'{"jsonrpc": "2.0", "id": "extended-card", "result": []}', MalformedError, "is not a card|another request"),
        (b"[]", MalformedError, "not JSON-RPC"),
        (b'{"jsonrpc": "2.0", "id": "extended-card", "result": {}}', UnsignedCardError, "not signed"),
    ],
)
def test_an_answer_without_a_verified_card_is_an_error(
    agent: Agent, fetcher: Fetcher, answer: bytes, error: type[Exception], match: str
) -> None:
    card = public(agent, fetcher)
    agent.pages["/rpc"] = answer
    with pytest.raises(error, match=match):
        fetch_extended_card(card, trusting(HOST), headers=KEY, options=FetchOptions(fetcher=fetcher))


def test_the_memory_neither_gets_an_extended_card_nor_rejects_an_older_one(agent: Agent, fetcher: Fetcher) -> None:
    """The times of its signatures are independent of the public card's."""
    card, memory = public(agent, fetcher), VolatileCardMemory()
    memory.admit(replace(card, issued=time.time()), agent.origin(), now=time.time())
    known = memory.records()
    agent.pages["/rpc"] = by_json_rpc(signed(card_of(agent.origin(), description="More."), iat=time.time() - 60))
    options = FetchOptions(fetcher=fetcher, memory=memory)
    fetch_extended_card(card, trusting(HOST), headers=KEY, options=options)
    assert memory.records() == known


@pytest.mark.parametrize("status", [401, 403])
def test_credentials_that_do_not_suffice_are_told_by_the_status(agent: Agent, fetcher: Fetcher, status: int) -> None:
    card = public(agent, fetcher)
    agent.pages["/rpc"] = Page(status=status)
    with pytest.raises(FetchError) as caught:
        fetch_extended_card(card, trusting(HOST), headers=KEY, options=FetchOptions(fetcher=fetcher))
    assert caught.value.status == status


def test_a_card_that_promises_none_is_not_asked(agent: Agent, fetcher: Fetcher) -> None:
    card = public(agent, fetcher, capabilities={})
    with pytest.raises(FetchError, match="promises no extended card"):
        fetch_extended_card(card, trusting(HOST), headers=KEY, options=FetchOptions(fetcher=fetcher))
    assert agent.asked == []


@pytest.mark.parametrize(
    "headers",
    [{"Host": "x"}, {"content-length": "1"}, {"Transfer-Encoding": "x"}, {"X\r\nY": "z"}, {"": "z"}, {"Accept": "*/*"}],
)
def test_headers_that_are_not_credentials_are_refused(agent: Agent, fetcher: Fetcher, headers: dict[str, str]) -> None:
    card = public(agent, fetcher)
    with pytest.raises(ConfigurationError, match="is set by the fetcher"):
        fetch_extended_card(card, trusting(HOST), headers=headers, options=FetchOptions(fetcher=fetcher))
    assert agent.asked == []


@pytest.mark.parametrize("value", ["a\r\nb", "s\u00e9cret", "", " secret", "secret\n"])
def test_a_value_that_is_no_header_is_refused_and_not_repeated(agent: Agent, fetcher: Fetcher, value: str) -> None:
    card = public(agent, fetcher)
    with pytest.raises(ConfigurationError, match="the value of X-API-Key must be") as caught:
        fetch_extended_card(card, trusting(HOST), headers={"X-API-Key": value}, options=FetchOptions(fetcher=fetcher))
    assert not value.strip() or value.strip() not in str(caught.value)
    assert agent.asked == []


def test_uncovered_members_of_an_extended_card_are_refused(agent: Agent, fetcher: Fetcher) -> None:
    card = public(agent, fetcher)
    more = card_of(agent.origin())
    made = entry({"alg": "ES256", "kid": "owner"}, canonical(pruned(more)), signs(OWNER.private_key, "ES256"))
    agent.pages["/rpc"] = by_json_rpc(served({**more, "x": "y"}, made))
    key = TrustedKey(key=OWNER.public_key, origins=Origins(HOST), signer=SigningTool.A2A_PYTHON)
    with pytest.raises(UncoveredFieldsError):
        fetch_extended_card(card, TrustStore([key]), headers=KEY, options=FetchOptions(fetcher=fetcher))


@pytest.mark.parametrize("given", ["x", Fetcher])
def test_what_is_no_fetcher_says_what_to_write(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"fetcher: \w+ is not a fetcher; write Fetcher\(\)"):
        FetchOptions(fetcher=given)
