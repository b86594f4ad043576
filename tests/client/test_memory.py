"""The rules of the memory, and that it keeps them wherever it is kept: in a process, a file, or a database."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from a2a_trust import Origins, TrustedKey, TrustStore, VerifiedCard, generate_signer, sign_card, verify_card
from a2a_trust.base.dates import CLOCK_SKEW
from a2a_trust.client.location import location_of
from a2a_trust.client.memory import CardMemory, Remembered, VolatileCardMemory
from a2a_trust.client.memory_store import PostgresCardMemory, SqliteCardMemory
from a2a_trust.client.verification import TrustOnFirstUse
from a2a_trust.errors import CardMemoryError, ConfigurationError, PinnedKeyError, RolledBackCardError, TrustError
from a2a_trust.keys import LocalSigner
from tests.client.memories import KINDS, Memory, memory_of
from tests.tables import walk

AGENT = "https://agent.example.com"
NOW = 1_800_000_000.0
CARD: dict[str, Any] = {
    "name": "Agent",
    "description": "Does things.",
    "version": "1.2.0",
    "supportedInterfaces": [{"url": f"{AGENT}/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "do", "name": "Do", "description": "Does.", "tags": ["x"]}],
}
SIGNERS = tuple(generate_signer("EdDSA", kid=f"key-{number}") for number in range(3))
ALICE, BOB, CAROL = SIGNERS


@pytest.fixture(params=KINDS)
def memory(request: pytest.FixtureRequest) -> Memory:
    return memory_of(request)


def thumbprint(signer: LocalSigner) -> str:
    return signer.public_key.thumbprint


def naming(*interfaces: str, **tenants: str) -> dict[str, Any]:
    """The card with these interfaces; ``tenants`` are URLs by the tenant."""
    named = [("", url) for url in interfaces] + [*tenants.items()]
    binding = {"protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    return CARD | {"supportedInterfaces": [{"url": url, "tenant": tenant} | binding for tenant, url in named]}


def proof(
    signer: LocalSigner, *, iat: float | None = None, on_first_use: bool = False, card: dict[str, Any] = CARD
) -> VerifiedCard:
    """What a client has verified of the agent's card, by a key that the trust store names or by one of first use."""
    if on_first_use:
        trust = TrustOnFirstUse().trust_store([signer.public_key], AGENT, TrustStore(()))
    else:
        trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("agent.example.com"))])
    signed = json.dumps(sign_card(card, signer, iat=False if iat is None else iat).card).encode()
    return verify_card(signed, trust, origin=AGENT, now=NOW if iat is None else max(NOW, iat))


# --- what is kept


def test_what_is_remembered_of_a_card(memory: Memory) -> None:
    protocol: CardMemory = memory
    assert not protocol.expects_signature(AGENT)
    first = protocol.admit(proof(ALICE, iat=NOW - 10), f"{AGENT}/.well-known/agent-card.json", now=NOW)
    expected = Remembered(
        location=location_of(AGENT),
        thumbprints=frozenset([thumbprint(ALICE)]),
        issued=NOW - 10,
        version="1.2.0",
        first_seen=NOW,
        last_seen=NOW,
        interfaces=first.remembered.interfaces,
        on_first_use=False,
    )
    assert (first.remembered, first.before, first.warnings) == (expected, None, ())
    assert memory.records() == (expected,)
    second = protocol.admit(proof(ALICE, iat=NOW - 5.5), AGENT, now=NOW + 7)
    assert second.before == expected
    assert second.remembered == replace(expected, issued=NOW - 5.5, last_seen=NOW + 7)
    assert memory.records() == (second.remembered,)
    assert protocol.expects_signature(f"{AGENT}/.well-known/agent.json?x")
    assert not protocol.expects_signature(f"{AGENT}/elsewhere")
    earlier = protocol.admit(proof(ALICE, iat=NOW), AGENT, now=NOW).remembered
    assert (earlier.last_seen, earlier.first_seen) == (NOW + 7, NOW)  # another process whose clock is behind


def test_a_proof_knows_when_it_was_signed_and_who_vouches_for_its_key() -> None:
    assert (proof(ALICE).issued, proof(ALICE).on_first_use) == (None, False)
    assert (proof(ALICE, iat=NOW - 1).issued, proof(ALICE, on_first_use=True).on_first_use) == (NOW - 1, True)


def test_a_clock_that_is_a_little_behind_refuses_nobody(memory: Memory) -> None:
    ahead = NOW + CLOCK_SKEW
    assert memory.admit(proof(ALICE, iat=ahead), AGENT, now=NOW).remembered.issued == ahead
    with pytest.raises(TrustError, match="future"):
        memory.admit(proof(ALICE, iat=ahead + 1), AGENT, now=NOW)


@pytest.mark.parametrize("version", [None, 7, "x" * 65, ["1.0"]])
def test_a_version_that_is_none_is_not_remembered(memory: Memory, version: object) -> None:
    payload = replace(proof(ALICE), payload=json.dumps(CARD | {"version": version}).encode())
    assert memory.admit(payload, AGENT, now=NOW).remembered.version is None
    assert memory.admit(proof(ALICE), AGENT, now=NOW).remembered.version == "1.2.0"
    assert memory.admit(payload, AGENT, now=NOW).remembered.version == "1.2.0"


@pytest.mark.parametrize(
    ("before", "after", "is_lower"),
    [
        ("1.2.0", "1.1.9", True),
        ("1.10", "1.9", True),
        ("2.0.0-rc1", "1.9+x", True),
        ("1.2", "1.2.0", False),
        ("1.2.0", "1.2", False),
        ("1.2.0", "1.2.1", False),
        ("1.2.0-b", "1.2.0-a", False),
        ("1.2.0", "one", False),
        ("two", "1.2.0", False),
        ("1.2.0", None, False),
    ],
)
def test_a_lower_version_is_a_warning(memory: Memory, before: str, after: str | None, is_lower: bool) -> None:
    first, second = (replace(proof(ALICE), payload=json.dumps(CARD | {"version": v}).encode()) for v in (before, after))
    memory.admit(first, AGENT, now=NOW)
    warnings = memory.admit(second, AGENT, now=NOW).warnings
    assert warnings == ((f"{AGENT}: the card's version is {after!r}, and was {before!r} before",) if is_lower else ())


def test_a_named_key_in_the_place_of_one_of_first_use_starts_again_and_the_same_key_does_not(memory: Memory) -> None:
    memory.admit(proof(ALICE, iat=NOW, on_first_use=True), AGENT, now=NOW)
    with pytest.raises(RolledBackCardError):
        memory.admit(proof(ALICE, iat=NOW - 50), AGENT, now=NOW)
    assert memory.admit(proof(BOB, iat=NOW - 50), AGENT, now=NOW).remembered.issued == NOW - 50


def test_a_key_that_the_trust_store_names_ends_first_use_for_good(memory: Memory) -> None:
    assert memory.admit(proof(ALICE, on_first_use=True), AGENT, now=NOW).remembered.on_first_use
    assert not memory.admit(proof(ALICE), AGENT, now=NOW).remembered.on_first_use
    assert not memory.admit(proof(ALICE, on_first_use=True), AGENT, now=NOW).remembered.on_first_use


def test_a_card_from_before_1970_is_as_old_as_can_be(memory: Memory) -> None:
    verified = replace(proof(ALICE), issued=-5.0)
    assert memory.admit(verified, AGENT, now=NOW).remembered.issued == 0.0


def test_a_memory_of_the_program_tells_what_the_program_may_call() -> None:
    memory, key = VolatileCardMemory(), thumbprint(BOB)
    memory.admit(proof(ALICE, iat=NOW, on_first_use=True), AGENT, now=NOW)
    with pytest.raises(PinnedKeyError, match=rf"the program's memory\.accept\('{AGENT}', \['{key}'\], now=…\)"):
        memory.admit(proof(BOB, on_first_use=True), AGENT, now=NOW)
    with pytest.raises(RolledBackCardError, match=rf"the program's memory\.forget\('{AGENT}'\)"):
        memory.admit(proof(ALICE, iat=NOW - 1, on_first_use=True), AGENT, now=NOW)


def test_a_card_is_admitted_only_where_it_was_verified(memory: Memory) -> None:
    elsewhere = "https://other.example.com"
    for verified in (
        proof(ALICE),
        proof(ALICE, on_first_use=True),
        replace(proof(ALICE, on_first_use=True), origin=None),
    ):
        with pytest.raises(ConfigurationError, match=f"was not verified for the host of {elsewhere}"):
            memory.admit(verified, elsewhere, now=NOW)
    wrong: Any = CARD
    with pytest.raises(ConfigurationError, match="it is not a VerifiedCard"):
        memory.admit(wrong, AGENT, now=NOW)
    assert memory.records() == ()
    # A key of the trust store that speaks for every host.
    assert memory.admit(replace(proof(ALICE), origin=None), elsewhere, now=NOW).before is None


# --- what people do


def test_an_accepted_key_takes_the_place_of_the_one_before(memory: Memory) -> None:
    memory.admit(proof(ALICE, iat=NOW, on_first_use=True), AGENT, now=NOW)
    changed = proof(BOB, iat=NOW - 50, on_first_use=True)
    with pytest.raises(PinnedKeyError):
        memory.admit(changed, AGENT, now=NOW + 1)
    accepted = memory.accept(AGENT, [thumbprint(BOB)], now=NOW + 2)
    assert memory.records() == (accepted,)
    assert accepted.thumbprints == {thumbprint(BOB)}
    assert (accepted.first_seen, accepted.last_seen) == (NOW, NOW)
    # What the other key has said of time and version binds nobody any more.
    assert (accepted.issued, accepted.version) == (None, None)
    assert memory.admit(changed, AGENT, now=NOW + 3).remembered.issued == NOW - 50
    with pytest.raises(PinnedKeyError):
        memory.admit(proof(ALICE, on_first_use=True), AGENT, now=NOW + 4)


def test_a_key_accepted_beside_the_one_before_opens_no_way_back(memory: Memory) -> None:
    memory.admit(proof(ALICE, iat=NOW, on_first_use=True), AGENT, now=NOW)
    accepted = memory.accept(AGENT, [thumbprint(BOB), thumbprint(ALICE)], now=NOW)
    assert (accepted.issued, accepted.version) == (NOW, "1.2.0")
    for signer in (ALICE, BOB):
        with pytest.raises(RolledBackCardError):
            memory.admit(proof(signer, iat=NOW - 1, on_first_use=True), AGENT, now=NOW)
        kept = memory.admit(proof(signer, iat=NOW, on_first_use=True), AGENT, now=NOW).remembered
        assert kept.thumbprints == {thumbprint(BOB), thumbprint(ALICE)}


def test_a_key_can_be_accepted_before_the_agent_is_ever_asked(memory: Memory) -> None:
    """Then there is no first use at which anybody would be believed."""
    record = memory.accept("agent.example.com", thumbprint(ALICE), now=NOW)
    assert (record.location, record.first_seen, record.on_first_use) == (AGENT, NOW, True)
    assert memory.expects_signature(AGENT)
    with pytest.raises(PinnedKeyError):
        memory.admit(proof(BOB, on_first_use=True), AGENT, now=NOW)
    assert memory.admit(proof(ALICE, on_first_use=True), AGENT, now=NOW).warnings == ()


@pytest.mark.parametrize("keys", [[], [""], "", ["x" * 42], ["x" * 44], ["é" * 43], [f"{'x' * 42} "], ["x" * 43, "y"]])
def test_only_thumbprints_are_accepted(memory: Memory, keys: Any) -> None:
    with pytest.raises(ConfigurationError, match="RFC 7638 thumbprint"):
        memory.accept(AGENT, keys, now=NOW)
    assert memory.records() == ()


def test_what_is_forgotten_is_seen_for_the_first_time_again(memory: Memory) -> None:
    kept = memory.admit(proof(ALICE, iat=NOW, on_first_use=True), AGENT, now=NOW).remembered
    with pytest.raises(ConfigurationError, match=r"there is no record of https://agent\.example\.com:8443"):
        memory.forget(f"{AGENT}:8443")
    with pytest.raises(ConfigurationError, match="there is no record"):
        memory.forget(f"{AGENT}/x")
    assert memory.forget(f"{AGENT}/") == kept
    assert memory.records() == ()
    assert not memory.expects_signature(AGENT)
    with pytest.raises(ConfigurationError):
        memory.forget(AGENT)
    admitted = memory.admit(proof(BOB, on_first_use=True), AGENT, now=NOW)
    assert admitted.before is None
    assert len(admitted.warnings) == 1


def test_records_can_be_brought_along() -> None:
    record = VolatileCardMemory().accept(AGENT, [thumbprint(ALICE)], now=NOW)
    assert VolatileCardMemory([record]).records() == (record,)


# --- several agents on one host


def test_a_new_location_may_use_the_keys_of_first_use_of_its_host_and_no_other(memory: Memory) -> None:
    memory.admit(proof(ALICE, iat=NOW, on_first_use=True), AGENT, now=NOW)
    memory.accept(f"{AGENT}/b", [thumbprint(BOB)], now=NOW)
    for place, signer in ((f"{AGENT}/c", ALICE), (f"{AGENT}/d", BOB)):
        theirs = proof(signer, iat=NOW - 100, on_first_use=True, card=naming(f"{place}/a2a"))  # of no other's time
        admitted = memory.admit(theirs, place, now=NOW)
        assert (admitted.before, admitted.remembered.thumbprints) == (None, frozenset([thumbprint(signer)]))
        assert "was trusted on first use" in admitted.warnings[0]
    known = memory.records()
    with pytest.raises(PinnedKeyError, match=f"^ANOTHER KEY AT {AGENT}\n  {AGENT}/e is new here") as caught:
        memory.admit(proof(CAROL, on_first_use=True), f"{AGENT}/e/.well-known/agent-card.json", now=NOW)
    assert (caught.value.location, caught.value.presented) == (f"{AGENT}/e", frozenset([thumbprint(CAROL)]))
    assert caught.value.pinned == {thumbprint(ALICE), thumbprint(BOB)}
    assert memory.records() == known
    memory.accept(f"{AGENT}/e", [thumbprint(CAROL)], now=NOW)
    assert memory.admit(proof(CAROL, iat=NOW, on_first_use=True), f"{AGENT}/e", now=NOW).warnings == ()


def test_a_key_that_a_trust_store_named_opens_no_first_use_at_a_new_location(memory: Memory) -> None:
    """The operator has taken it out of the trust store, maybe for good reason."""
    memory.admit(proof(ALICE), AGENT, now=NOW)
    for signer in (ALICE, BOB):
        with pytest.raises(PinnedKeyError, match="no key; a trust store named the keys") as caught:
            memory.admit(proof(signer, on_first_use=True), f"{AGENT}/b", now=NOW)
        assert caught.value.pinned == frozenset()
    assert memory.admit(proof(BOB, iat=NOW), f"{AGENT}/b", now=NOW).warnings == ()


def test_the_key_of_another_agent_is_a_warning_only_in_the_place_of_a_key_that_counts(memory: Memory) -> None:
    memory.admit(proof(ALICE), AGENT, now=NOW)
    first, replaced = (proof(signer, card=naming(f"{AGENT}/b/a2a")) for signer in (BOB, ALICE))
    assert memory.admit(replaced, f"{AGENT}/c", now=NOW).warnings == ()  # no key was there
    memory.accept(f"{AGENT}/b", [thumbprint(CAROL)], now=NOW)
    memory.forget(f"{AGENT}/c")
    assert memory.admit(replaced, f"{AGENT}/b", now=NOW).warnings == ()  # in the place of a key of first use
    memory.forget(f"{AGENT}/b")
    memory.admit(first, f"{AGENT}/b", now=NOW)
    assert f"the key of {AGENT}; if these" in memory.admit(replaced, f"{AGENT}/b", now=NOW).warnings[0]


def test_every_port_of_a_host_is_a_neighbour_and_no_other_host_is(memory: Memory) -> None:
    """A key of first use speaks for the whole host."""
    others = ["https://agent.example.com.evil.example/a", "https://agent.example.com0/a", "https://agent.example.co/a"]
    same = [f"{AGENT}/a", f"{AGENT}/?x", f"{AGENT}:8443", f"{AGENT}:8443/a"]
    same += [place.replace("https", "http") for place in (AGENT, *same)]
    for place in others[:1]:
        memory.accept(place, [thumbprint(BOB)], now=NOW)
    assert memory.admit(proof(ALICE, on_first_use=True), AGENT, now=NOW).before is None
    for place in (*same, *others):
        memory.accept(place, [thumbprint(BOB)], now=NOW)
    with memory._writing() as table:
        assert {str(each.location) for each in table.neighbours(location_of(AGENT))} == set(same)
        assert {str(each.location) for each in table.neighbours(location_of(f"{AGENT}:1/x"))} == {AGENT, *same}


def test_the_key_of_a_neighbour_in_the_place_of_another_is_a_warning(memory: Memory) -> None:
    """The trust store names both for the host, so neither is refused; it cannot say which is whose."""
    memory.admit(proof(ALICE), f"{AGENT}/a", now=NOW)
    memory.admit(proof(BOB, card=naming(f"{AGENT}/b/a2a")), f"{AGENT}/b", now=NOW)
    assert memory.admit(proof(CAROL), f"{AGENT}/a", now=NOW).warnings == ()
    (warning,) = memory.admit(proof(BOB), f"{AGENT}/a", now=NOW).warnings
    assert warning.startswith(f"{AGENT}/a: its card is signed by another key than before, the key of {AGENT}/b; ")
    assert memory.admit(proof(BOB), f"{AGENT}/a", now=NOW).warnings == ()


def test_a_query_counts_only_where_a_person_writes_it(memory: Memory) -> None:
    theirs = proof(ALICE, on_first_use=True, card=naming(f"{AGENT}/theirs"))
    memory.admit(theirs, f"{AGENT}/cards?agent=a", now=NOW)
    assert [str(record.location) for record in memory.records()] == [f"{AGENT}/cards"]
    record = memory.accept(f"{AGENT}/cards?agent=b", [thumbprint(BOB)], now=NOW)
    assert record.location == f"{AGENT}/cards?agent=b"
    assert memory.expects_signature(record.location)
    with pytest.raises(PinnedKeyError):
        memory.admit(proof(BOB, on_first_use=True), f"{AGENT}/cards?agent=b", now=NOW)
    assert memory.admit(proof(BOB, on_first_use=True), record.location, now=NOW).before == record
    assert memory.forget(f"{AGENT}/cards?agent=b").location == record.location
    with pytest.raises(ConfigurationError, match="as in a2a-sign memory list"):
        memory.forget(f"{AGENT}/cards?agent=a")


@walk(
    "url",
    [
        "", " ", "/", "//agent.example.com", "ftp://agent.example.com", "file:///etc/passwd", "https://",
        "agent.example.com/x", "https://a@agent.example.com", "https://agent.example.com\\x", "https://ag ent",
        "https://agent.example.com:99999", "https://agent.example.com:x", "https://agent.example.com.", "https:x",
        "https://agent.example.com/a/../b", None, 7,
    ],
)  # fmt: skip
def test_what_is_no_location_is_refused_everywhere(memory: Memory, url: Any) -> None:
    uses: list[Callable[[], object]] = [
        lambda: memory.expects_signature(url),
        lambda: memory.forget(url),
        lambda: memory.accept(url, [thumbprint(ALICE)], now=NOW),
        lambda: memory.admit(proof(ALICE), url, now=NOW),
        lambda: TrustOnFirstUse().applies_to(url, TrustStore(())),
    ]
    for use in uses:
        with pytest.raises(ConfigurationError, match="location"):
            use()


# --- one interface, several locations


OLD_AGE, NEW_AGE = NOW - 100, NOW - 10


@pytest.mark.parametrize(
    ("here", "elsewhere", "is_rejected"),
    [
        (NEW_AGE, OLD_AGE, True),
        (NEW_AGE, NEW_AGE, False),
        (OLD_AGE, NEW_AGE, False),
        (NEW_AGE, None, True),
        (None, OLD_AGE, False),
        (None, None, True),
    ],
)
def test_an_older_card_at_another_location_may_not_name_the_interface(
    memory: Memory, here: float | None, elsewhere: float | None, is_rejected: bool
) -> None:
    first = memory.admit(proof(ALICE, iat=here), AGENT, now=NOW).remembered
    assert len(first.interfaces) == 1
    if not is_rejected:
        moved = memory.admit(proof(ALICE, iat=elsewhere), f"{AGENT}/team", now=NOW).remembered
        assert moved.interfaces == first.interfaces
        assert memory.records() == (replace(first, interfaces=frozenset()), moved)
        return
    with pytest.raises(
        RolledBackCardError, match=f"{AGENT}/team: the card names {AGENT}/a2a, as .* {AGENT} did"
    ) as caught:
        memory.admit(proof(ALICE, iat=elsewhere), f"{AGENT}/team", now=NOW)
    assert (caught.value.location, caught.value.issued, caught.value.remembered) == (f"{AGENT}/team", elsewhere, here)
    assert memory.records() == (first,)
    assert str(caught.value).endswith(memory._hint("forget", AGENT))
    memory.forget(AGENT)
    assert memory.admit(proof(ALICE, iat=elsewhere), f"{AGENT}/team", now=NOW).remembered.interfaces


def test_an_interface_stays_where_it_was_although_newer_cards_do_not_name_it(memory: Memory) -> None:
    """A retired URL does not come back with a copy of the card that named it."""
    memory.admit(proof(ALICE, iat=NOW - 20), AGENT, now=NOW)
    memory.admit(proof(ALICE, iat=NOW, card=naming(f"{AGENT}/new")), AGENT, now=NOW)
    with pytest.raises(RolledBackCardError):
        memory.admit(proof(ALICE, iat=NOW - 20), f"{AGENT}/team", now=NOW)
    assert memory.admit(proof(ALICE, iat=NOW), f"{AGENT}/team", now=NOW).before is None
    assert [len(record.interfaces) for record in memory.records()] == [1, 1]


@pytest.mark.parametrize(
    ("card", "is_same"),
    [
        (naming("HTTPS://Agent.example.com:443/%612a/"), True),
        (naming(f"{AGENT}/other", f"{AGENT}/a2a#x"), True),
        (naming(f"{AGENT}/a2a?x"), False),
        (naming(f"{AGENT}/A2A"), False),
        (naming(f"{AGENT}:8443/a2a"), False),
        (naming(team=f"{AGENT}/a2a"), False),
        (naming(), False),
    ],
)
def test_an_interface_is_a_url_in_any_spelling_and_a_tenant(memory: Memory, card: Any, is_same: bool) -> None:
    memory.admit(proof(ALICE, iat=NOW), AGENT, now=NOW)
    older = proof(ALICE, iat=NOW - 1, card=card)
    if is_same:
        with pytest.raises(RolledBackCardError):
            memory.admit(older, f"{AGENT}/team", now=NOW)
    else:
        assert memory.admit(older, f"{AGENT}/team", now=NOW).before is None


def test_a_key_of_the_trust_store_does_not_wait_for_what_a_first_use_has_claimed(memory: Memory) -> None:
    """At the same location, too, the interfaces of the other key are forgotten."""
    memory.admit(proof(BOB, iat=NOW, on_first_use=True), f"{AGENT}/evil", now=NOW)
    assert memory.admit(proof(ALICE, iat=NOW - 100), f"{AGENT}/team", now=NOW).before is None
    memory.forget(f"{AGENT}/team")
    memory.admit(proof(BOB, iat=NOW, on_first_use=True, card=naming(f"{AGENT}/b")), f"{AGENT}/evil", now=NOW)
    memory.admit(proof(ALICE, card=naming(f"{AGENT}/c")), f"{AGENT}/evil", now=NOW)
    assert [len(record.interfaces) for record in memory.records()] == [1]
    memory.accept(f"{AGENT}/evil", [thumbprint(CAROL)], now=NOW)
    assert [len(record.interfaces) for record in memory.records()] == [0]


def test_a_location_keeps_a_bounded_number_of_interfaces(memory: Memory) -> None:
    many = [f"{AGENT}/{number}" for number in range(300)]
    with pytest.raises(CardMemoryError, match="more than 256 interfaces"):
        memory.admit(proof(ALICE, iat=NOW, card=naming(*many[:257])), AGENT, now=NOW)
    assert memory.records() == ()
    assert (
        len(memory.admit(proof(ALICE, iat=NOW, card=naming(*many[:200])), AGENT, now=NOW).remembered.interfaces) == 200
    )
    last = memory.admit(proof(ALICE, iat=NOW, card=naming(*many[200:])), AGENT, now=NOW).remembered
    assert memory.records() == (last,)
    assert len(last.interfaces) == 256
    with pytest.raises(RolledBackCardError):
        memory.admit(proof(ALICE, iat=NOW - 1, card=naming(many[299])), f"{AGENT}/team", now=NOW)


# --- two memories, one life

LOCATIONS = (AGENT, f"{AGENT}/a", f"{AGENT}/a/b", f"{AGENT}:8443", "http://agent.example.com")
SPELLINGS = {
    AGENT: (AGENT, "agent.example.com", "HTTPS://AGENT.example.com:443/.well-known/agent.json?x"),
    f"{AGENT}/a": (f"{AGENT}/a/", f"{AGENT}//%61#x", f"{AGENT}/a/.well-known/agent-card.json"),
}
PROOFS: dict[tuple[bool, tuple[int, ...]], VerifiedCard] = {
    (on_first_use, keys): replace(
        proof(SIGNERS[keys[0]], on_first_use=on_first_use), keys=tuple(SIGNERS[key].public_key for key in keys)
    )
    for on_first_use in (False, True)
    for keys in ((0,), (1,), (0, 1), (1, 2))
}


class OneLife(RuleBasedStateMachine):
    """Both memories say and keep the same, and the rules hold as a third, naive one has them."""

    def __init__(self, empty: Callable[[], Callable[[], Memory]]) -> None:
        """``empty`` makes an empty store, and returns what opens it."""
        super().__init__()
        self.empty = empty

    @initialize()
    def begin(self) -> None:
        self.open = self.empty()
        self.volatile = VolatileCardMemory()
        self.kept = self.open()
        self.now = NOW
        self.keys: dict[str, frozenset[str]] = {}
        self.highest: dict[str, float | None] = {}
        self.named_at: dict[str, str] = {}
        self.unvouched: set[str] = set()

    def both(self, use: Callable[[Memory], Any]) -> Any:
        outcomes = []
        for memory in (self.volatile, self.kept):
            try:
                outcomes.append(use(memory))
            except (TrustError, ConfigurationError) as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]
        return outcomes[0]

    @rule(seconds=st.floats(0, 1000))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(
        location=st.sampled_from(LOCATIONS),
        spelling=st.integers(0, 2),
        asked=st.sampled_from(sorted(PROOFS)),
        age=st.one_of(st.none(), st.sampled_from([-61.0, -60.0, 0.0, 1.0]), st.floats(-100, 3000)),
        version=st.sampled_from(["1", "1.2.0", "2.0", "spring"]),
        interfaces=st.sets(st.sampled_from([f"{AGENT}/{number}" for number in range(8)]), max_size=2),
    )
    def a_card_comes(
        self,
        location: str,
        spelling: int,
        asked: tuple[bool, tuple[int, ...]],
        age: float | None,
        version: str,
        interfaces: set[str],
    ) -> None:
        on_first_use, keys = asked
        prints = frozenset(thumbprint(SIGNERS[key]) for key in keys)
        issued = None if age is None else self.now - age
        card = naming(*interfaces) | {"version": version}
        verified = replace(PROOFS[asked], payload=json.dumps(card).encode(), issued=issued)
        written = SPELLINGS.get(location, (location,) * 3)[spelling]
        outcome = self.both(lambda memory: memory.admit(verified, written, now=self.now))
        is_new, known = location not in self.keys, self.keys.get(location, frozenset())
        replaced = location in self.unvouched and not on_first_use and not prints & known
        highest = None if is_new or replaced else self.highest[location]
        host = urlsplit(location).hostname
        neighbours = [each for each in self.keys if urlsplit(each).hostname == host]
        usable = frozenset[str]().union(*[self.keys[each] for each in neighbours if each in self.unvouched])
        refused = isinstance(outcome, type)
        assert refused == (
            (issued is not None and issued > self.now + CLOCK_SKEW)
            or (on_first_use and not is_new and not prints <= known)
            or (on_first_use and is_new and bool(neighbours) and not prints <= usable)
            or (highest is not None and (issued is None or issued < highest))
            or any(
                self.is_older(issued, prints, on_first_use, self.named_at.get(url, location), location)
                for url in interfaces
            )
        )
        if refused:
            return
        if replaced:
            self.no_interfaces_of(location)
        self.named_at |= dict.fromkeys(interfaces, location)
        assert outcome.remembered.location == location
        assert bool(outcome.warnings) >= (is_new and on_first_use)
        self.highest[location] = issued
        if is_new or not on_first_use:
            self.keys[location] = prints
            (self.unvouched.add if on_first_use else self.unvouched.discard)(location)

    def is_older(
        self, issued: float | None, prints: frozenset[str], on_first_use: bool, named_at: str, location: str
    ) -> bool:
        """Whether a card of ``location`` is older than the last one from where an interface was named last."""
        if named_at == location or (
            named_at in self.unvouched and not on_first_use and not prints & self.keys[named_at]
        ):
            return False
        highest = self.highest[named_at]
        return issued is None or (highest is not None and issued < highest)

    def no_interfaces_of(self, location: str) -> None:
        self.named_at = {url: place for url, place in self.named_at.items() if place != location}

    @rule(location=st.sampled_from(LOCATIONS), keys=st.sets(st.integers(0, 2), min_size=1))
    def a_person_accepts(self, location: str, keys: set[int]) -> None:
        prints = frozenset(thumbprint(SIGNERS[key]) for key in keys)
        self.both(lambda memory: memory.accept(location, prints, now=self.now))
        if not prints & self.keys.get(location, frozenset()):
            self.highest[location] = None
            self.no_interfaces_of(location)
        self.keys[location] = prints
        self.unvouched.add(location)

    @rule(location=st.sampled_from(LOCATIONS))
    def a_person_forgets(self, location: str) -> None:
        outcome = self.both(lambda memory: memory.forget(location))
        assert (outcome is ConfigurationError) == (location not in self.keys)
        self.keys.pop(location, None)
        self.no_interfaces_of(location)
        self.unvouched.discard(location)

    @precondition(lambda self: hasattr(self, "open"))
    @rule()
    def the_program_starts_anew(self) -> None:
        self.kept = self.open()
        self.volatile = VolatileCardMemory(self.volatile.records())

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "open"):
            return
        records = self.both(lambda memory: memory.records())
        assert {record.location: record.thumbprints for record in records} == self.keys
        assert {record.location: record.issued for record in records} == {
            location: self.highest[location] for location in self.keys
        }
        assert {record.location for record in records if record.on_first_use} == self.unvouched
        named = Counter(self.named_at.values())
        assert {record.location: len(record.interfaces) for record in records if record.interfaces} == named
        for location in LOCATIONS:
            assert self.both(partial(self.expects, location)) == (location in self.keys)

    @staticmethod
    def expects(location: str, memory: Memory) -> bool:
        return memory.expects_signature(location)


LIVES = settings(stateful_step_count=25)


def test_one_life_in_a_file(tmp_path: Path) -> None:
    def empty() -> Callable[[], Memory]:
        path = tmp_path / f"{secrets.token_hex(8)}.db"
        SqliteCardMemory(path, create=True)
        return lambda: SqliteCardMemory(path)

    run_state_machine_as_test(lambda: OneLife(empty), settings=LIVES)  # type: ignore[arg-type]


@pytest.mark.real
def test_one_life_in_a_database(postgres_url: str) -> None:
    memory = PostgresCardMemory(postgres_url, timeout=20)

    def empty() -> Callable[[], Memory]:
        for record in memory.records():
            memory.forget(record.location)
        return lambda: memory

    run_state_machine_as_test(lambda: OneLife(empty), settings=LIVES)  # type: ignore[arg-type]
