"""Key rings: one signer at every moment, no key that signs before it is known, none that comes back."""

from __future__ import annotations

import copy
import json
import math
import pickle
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys.files import PassphraseNeededError, private_key_bytes
from a2a_trust.keys.jwk import MAX_KEYS, PublicKey, publish_jwks
from a2a_trust.keys.rotation import (
    KeyRing,
    KeyState,
    RingKey,
    is_key_ring,
    key_ring_bytes,
    read_key_ring,
)
from a2a_trust.keys.signer import LocalSigner, generate_signer
from tests.tables import walk

NOW = 1_800_000_000.0
HOUR, DAY = 3_600.0, 86_400.0
PASSPHRASE = "correct horse"
PLAIN = (Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passphrases are stretched less: how much is a rule of ``keys.files``, and hundreds of keys are encrypted here."""
    monkeypatch.setattr("a2a_trust.keys.files._JWE_ITERATIONS", 1_000)


def key(kid: str) -> LocalSigner:
    return generate_signer("EdDSA", kid=kid)


def ring_of(first: str = "a", **how: Any) -> KeyRing:
    return KeyRing.begin(key(first), NOW, **how)


def rotating() -> KeyRing:
    """Key a signs, key b takes over an hour after NOW, and a is published for a day more."""
    return ring_of("a").rotate(NOW, overlap=HOUR, keep=DAY, new=key("b"))


def states(ring: KeyRing, now: float) -> dict[str, str]:
    return {each.kid: ring.state(each, now).value for each in ring.keys}


def kids(keys: tuple[PublicKey, ...]) -> list[str]:
    return [each.kid for each in keys]


def halves(ring: KeyRing) -> set[str]:
    """Whose private halves the ring's file would hold."""
    return {entry["kid"] for entry in json.loads(key_ring_bytes(ring))["keys"] if entry["private_key"]}


# --- the plan


def test_the_first_key_signs_at_once() -> None:
    ring = ring_of("a")
    assert states(ring, NOW) == {"a": "active"}
    assert ring.signer(NOW).kid == "a"
    assert kids(ring.published(NOW)) == ["a"]
    assert ring.next(NOW) is None


def test_a_new_key_is_published_before_it_signs_and_the_old_one_after_it_signed() -> None:
    ring = rotating()
    moments = [NOW, NOW + HOUR - 1, NOW + HOUR, NOW + HOUR + DAY - 1, NOW + HOUR + DAY]
    assert [states(ring, now) for now in moments] == [
        {"a": "active", "b": "next"},
        {"a": "active", "b": "next"},
        {"a": "retired", "b": "active"},
        {"a": "retired", "b": "active"},
        {"a": "removed", "b": "active"},
    ]
    assert [ring.signer(now).kid for now in moments] == ["a", "a", "b", "b", "b"]
    assert [kids(ring.published(now)) for now in moments] == [["a", "b"], ["a", "b"], ["b", "a"], ["b", "a"], ["b"]]


def test_what_is_published_makes_a_key_set_that_holds_no_private_half() -> None:
    (first, second) = publish_jwks(rotating().published(NOW))["keys"]
    assert (first["kid"], second["kid"]) == ("a", "b")
    assert first.keys() == second.keys() == {"kty", "crv", "x", "kid", "use", "alg"}


def test_a_second_rotation_waits_for_the_first() -> None:
    ring = rotating()
    again = ring.rotate(NOW + HOUR - 1, overlap=2 * HOUR, keep=9 * DAY, new=key("c"))
    assert again == ring
    assert states(ring.rotate(NOW + HOUR, overlap=HOUR, new=key("c")), NOW + HOUR) == {
        "a": "retired",
        "b": "active",
        "c": "next",
    }


def test_a_new_key_is_for_the_algorithm_of_the_last_one_unless_told() -> None:
    ring = KeyRing.begin(generate_signer("ES384"), NOW).rotate(NOW)
    assert [each.public_key.alg for each in ring.keys] == ["ES384", "ES384"]
    assert [each.public_key.alg for each in ring_of().rotate(NOW, new=generate_signer("ES256")).keys] == [
        "EdDSA",
        "ES256",
    ]


def test_no_new_key_has_a_name_that_a_command_line_takes_for_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    made = iter([key("-a"), key("--b"), key("c-")])
    monkeypatch.setattr("a2a_trust.keys.rotation.generate_signer", lambda alg: next(made))
    assert ring_of().rotate(NOW).keys[1].kid == "c-"


@walk("name", ["overlap", "keep"])
@walk("seconds", [0, -1, math.inf, math.nan, 1e12])
def test_no_time_switches_the_overlap_off(name: str, seconds: float) -> None:
    with pytest.raises(ConfigurationError, match=rf"^{name}: "):
        ring_of().rotate(NOW, **{name: seconds})  # type: ignore[arg-type]


def test_a_full_key_set_takes_no_further_key() -> None:
    ring = ring_of()
    now = NOW
    private = ring.keys[0].private_key
    retired = tuple(
        RingKey(public_key=key(f"old-{i}").public_key, published_at=1, active_from=1, retired_at=2, removed_at=NOW * 2)
        for i in range(MAX_KEYS - 1)
    )
    full = replace(ring, keys=(*retired, *ring.keys))
    assert full.keys[-1].private_key == private
    with pytest.raises(ConfigurationError, match="the key ring is full: 256 published keys"):
        full.rotate(now)
    assert len(replace(ring, keys=(*retired[1:], *ring.keys)).rotate(now).published(now)) == MAX_KEYS


# --- revocation


def test_revoking_the_active_key_lets_the_next_one_sign_at_once() -> None:
    ring = rotating().revoke("a", NOW + 60)
    assert states(ring, NOW + 60) == {"a": "revoked", "b": "active"}
    assert ring.signer(NOW + 60).kid == "b"
    assert kids(ring.published(NOW + 60)) == ["b"]
    assert kids(ring.revoked()) == ["a"]
    assert ring.keys[1].active_from == NOW + 60


def test_revoking_the_only_key_makes_a_new_one() -> None:
    ring = KeyRing.begin(generate_signer("ES512", kid="a"), NOW).revoke("a", NOW + 60)
    old, new = ring.keys
    assert ring.state(old, NOW + 60) is KeyState.REVOKED
    assert ring.signer(NOW + 60).kid == new.kid != "a"
    assert new.public_key.alg == "ES512"
    assert kids(ring_of("a").revoke("a", NOW, new=key("mine")).published(NOW)) == ["mine"]


def test_revoking_the_next_key_leaves_the_active_one_at_work() -> None:
    ring = rotating().revoke("b", NOW + 60)
    for now in (NOW + 60, NOW + HOUR, NOW + 999 * DAY):
        assert states(ring, now) == {"a": "active", "b": "revoked"}
    after = ring.rotate(NOW + 120, overlap=HOUR, keep=DAY, new=key("c"))
    assert states(after, NOW + 120) == {"a": "active", "b": "revoked", "c": "next"}


@pytest.mark.parametrize("moment", [NOW + HOUR, NOW + 99 * DAY], ids=["retired", "removed"])
def test_revoking_a_key_that_signs_no_more_lists_it_and_unpublishes_it(moment: float) -> None:
    ring = rotating().revoke("a", moment)
    assert states(ring, moment) == {"a": "revoked", "b": "active"}
    assert kids(ring.published(moment)) == ["b"]
    assert kids(ring.revoked()) == ["a"]


def test_a_revoked_key_stays_revoked_at_every_time_and_through_every_change() -> None:
    ring = rotating().revoke("a", NOW + 60)
    assert ring.revoke("a", NOW + 120) == ring
    for now in (0.0, NOW - DAY, NOW + 59, NOW + 9_999 * DAY):
        assert ring.state(ring.keys[0], now) is KeyState.REVOKED
        assert ring.signer(now).kid == "b"
        assert "a" not in kids(ring.published(now))
    later = ring.rotate(NOW + DAY, new=key("c")).prune(NOW + 9_999 * DAY)
    assert kids(later.revoked()) == ["a"]


def test_a_key_that_the_ring_has_does_not_come_in_again_under_another_name() -> None:
    leaked = key("a")
    ring = KeyRing.begin(leaked, NOW).revoke("a", NOW)
    again = LocalSigner(leaked.private_key, kid="innocent")
    for signer in (leaked, again, key("a")):
        with pytest.raises(ConfigurationError, match="the ring has the key 'a' already, and revoked; give a new key"):
            ring.rotate(NOW, new=signer)
    with pytest.raises(ConfigurationError, match="has the key 'b' already; give a new key"):
        rotating().rotate(NOW + HOUR, new=key("b"))


def test_an_unknown_key_is_not_revoked() -> None:
    with pytest.raises(ConfigurationError, match="no key 'z'"):
        rotating().revoke("z", NOW)


# --- private halves


def test_a_key_that_signs_no_more_loses_its_private_half_with_the_next_change() -> None:
    ring = rotating()
    assert halves(ring) == halves(ring.prune(NOW)) == {"a", "b"}
    assert halves(ring.prune(NOW + HOUR)) == {"b"}
    assert halves(ring.revoke("a", NOW)) == {"b"}
    assert halves(ring.revoke("b", NOW)) == {"a"}
    assert halves(ring.rotate(NOW + HOUR, new=key("c"))) == {"b", "c"}
    assert [each.kid for each in ring.prune(NOW + HOUR + DAY).keys] == ["b"]


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE])
def test_no_text_and_no_copy_holds_a_private_half(passphrase: str | None) -> None:
    ring = ring_of(passphrase=passphrase).rotate(NOW, new=key("b"))
    shown = f"{ring!r} {ring} {ring.keys[0]!r} {ring.signer(NOW)!r}"
    for each in ring.keys:
        assert each.private_key is not None
        assert each.private_key.splitlines()[1 if passphrase is None else 0] not in shown
    assert "PRIVATE" not in shown
    assert PASSPHRASE not in shown
    for secret in (ring, ring.keys[0]):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(secret)
        with pytest.raises(TypeError, match="cannot be pickled"):
            copy.deepcopy(secret)


# --- clocks


def test_a_clock_that_runs_behind_finds_a_signer_too() -> None:
    ring = rotating()
    for now in (0.0, NOW - DAY, NOW - 1):
        assert states(ring, now) == {"a": "active", "b": "next"}
        assert kids(ring.published(now)) == ["a", "b"]
    pruned = ring.prune(NOW + HOUR)
    assert states(pruned, NOW) == {"a": "retired", "b": "active"}


def test_a_rotation_by_a_clock_that_runs_behind_keeps_the_order_and_the_overlap() -> None:
    ring = ring_of("a").rotate(NOW - DAY, overlap=HOUR, keep=DAY, new=key("b"))
    b = ring.keys[1]
    assert (b.published_at, b.active_from) == (NOW, NOW + HOUR)
    revoked = rotating().revoke("a", NOW - DAY)
    assert revoked.signer(NOW - DAY).kid == revoked.signer(NOW).kid == "b"


def test_a_clock_that_ran_ahead_leaves_a_signer_behind() -> None:
    ring = rotating().rotate(NOW + 999 * DAY, overlap=HOUR, new=key("c"))
    assert states(ring, NOW) == {"b": "active", "c": "next"}
    assert states(ring.revoke("c", NOW), NOW + 9_999 * DAY) == {"b": "active", "c": "revoked"}


# --- the file's content


@walk("passphrase", [None, PASSPHRASE])
@walk("alg", ["ES256", "ES384", "ES512", "EdDSA", "RS256", "PS512"])
def test_a_ring_comes_back_from_its_bytes(alg: str, passphrase: str | None) -> None:
    first = generate_signer(alg, rsa_bits=2048) if alg[1] == "S" else generate_signer(alg)
    ring = KeyRing.begin(first, NOW, passphrase=passphrase)
    ring = ring.rotate(NOW + 0.25, overlap=HOUR, keep=DAY, new=key("b")).revoke("b", NOW + 1)
    data = key_ring_bytes(ring)
    back = read_key_ring(data, passphrase=passphrase)
    assert back == ring
    assert key_ring_bytes(back) == data
    assert is_key_ring(data)
    signer = back.signer(NOW)
    assert signer.public_key == first.public_key
    assert signer.private_key.private_bytes(*PLAIN) == first.private_key.private_bytes(*PLAIN)


def test_an_encrypted_ring_shows_its_public_halves_and_signs_by_its_passphrase_only() -> None:
    ring = ring_of(passphrase=PASSPHRASE).rotate(NOW, overlap=HOUR, new=key("b"))
    data = key_ring_bytes(ring)
    assert b"BEGIN PRIVATE KEY" not in data
    assert [entry["private_key"][:3] for entry in json.loads(data)["keys"]] == ["eyJ", "eyJ"]
    sealed = read_key_ring(data)
    assert (sealed.is_encrypted, sealed.is_open) == (True, False)
    assert sealed.published(NOW) == ring.published(NOW)
    for needs_one in (lambda: sealed.signer(NOW), lambda: sealed.rotate(NOW + HOUR)):
        with pytest.raises(PassphraseNeededError, match="no passphrase was given"):
            needs_one()
    with pytest.raises(ConfigurationError, match="the passphrase is wrong"):
        read_key_ring(data, passphrase="wrong")
    assert states(sealed.revoke("a", NOW), NOW) == {"a": "revoked", "b": "active"}
    opened = read_key_ring(data, passphrase=PASSPHRASE)
    assert opened.is_open
    again = json.loads(key_ring_bytes(opened.rotate(NOW + HOUR)))["keys"]
    assert [entry["private_key"] and entry["private_key"][:3] for entry in again] == [None, "eyJ", "eyJ"]


def test_a_ring_that_is_not_encrypted_stays_so_whatever_passphrase_is_around() -> None:
    ring = read_key_ring(key_ring_bytes(ring_of()), passphrase=PASSPHRASE).rotate(NOW)
    assert not ring.is_encrypted
    assert read_key_ring(key_ring_bytes(ring)).is_open


def test_an_empty_passphrase_is_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match="passphrase: it is empty"):
        ring_of(passphrase="")


def document() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(key_ring_bytes(rotating()))
    return value


def changed(**members: Any) -> bytes:
    """The bytes of a ring with members of its first key changed."""
    value = document()
    value["keys"][0].update(members)
    return json.dumps(value).encode()


OTHER = generate_signer("EdDSA", kid="a")


@walk(
    ("data", "said"),
    [
        (private_key_bytes(OTHER), "not a key ring"),
        (private_key_bytes(OTHER, format="jwk"), "not a key ring"),
        (b"", "not a key ring"),
        (b"[]", "not a key ring"),
        (b'{"type": "a2a-trust-key-ring"', "not JSON"),
        (json.dumps({**document(), "version": 2}).encode(), "version 1"),
        (json.dumps({**document(), "version": None}).encode(), "version 1"),
        (json.dumps({**document(), "more": 1}).encode(), "version 1"),
        (json.dumps({**document(), "keys": {}}).encode(), "keys must be a list"),
        (json.dumps({**document(), "keys": []}).encode(), "no key in it can sign"),
        (json.dumps({**document(), "keys": ["a"]}).encode(), "list of objects"),
        (changed(more=1), "exactly the members"),
        (changed(kid=1), "must be strings"),
        (changed(kid=""), "kid must be"),
        (changed(public_key=1), "must be strings"),
        (changed(public_key="s3cret"), "not a public key"),
        (changed(private_key=7), "must be PEM, JWE, or null"),
        (changed(private_key="s3cret"), "must be PEM, JWE, or null"),
        (changed(private_key='{"kty":"OKP","d":"s3cret"}'), "must be PEM, JWE, or null"),
        (changed(private_key="-----BEGIN PRIVATE KEY-----\ns3cret\n"), "no readable private key"),
        (changed(private_key=private_key_bytes(OTHER).decode()), "does not belong to its private_key"),
        (changed(private_key=None, retired_at=None, removed_at=None), "has no private_key, and no retired_at"),
        (changed(retired_at=NOW), "active_from of 'b' is not retired_at of 'a'"),
        (changed(retired_at=NOW + HOUR + 1), "active_from of 'b' is not retired_at of 'a'"),
        (changed(retired_at=None), "active_from of 'b' is not retired_at of 'a'"),
        (changed(removed_at=NOW), "must be in the order"),
        (changed(published_at=NOW + 1), "must be in the order"),
        (changed(revoked_at=NOW), "is revoked, so its private_key must be null"),
        (changed(published_at=None), "published_at must be a time"),
        (changed(active_from="2027"), "active_from must be a time"),
        (changed(revoked_at=True), "revoked_at must be a time"),
        (changed(revoked_at=-1), "not in seconds since the epoch"),
        (changed(removed_at=NOW * 1_000), "not in seconds since the epoch"),
        (json.dumps({**document(), "keys": document()["keys"][:1]}).encode(), "no key signs after 'a'"),
        (json.dumps({**document(), "keys": [*document()["keys"]][::-1]}).encode(), "no key signs after 'a'"),
        (changed(kid="b"), "are the same, or have the same kid"),
    ],
)
def test_a_file_that_is_no_sound_ring_is_refused_without_telling_what_it_held(data: bytes, said: str) -> None:
    with pytest.raises(MalformedError, match=said) as error:
        read_key_ring(data)
    assert "s3cret" not in str(error.value)


def test_one_key_under_two_names_is_refused() -> None:
    value = document()
    twin = {**value["keys"][1], "kid": "c", "private_key": None, "retired_at": NOW + DAY, "removed_at": NOW + DAY}
    value["keys"].append(twin)
    with pytest.raises(MalformedError, match="are the same, or have the same kid"):
        read_key_ring(json.dumps(value).encode())


def test_a_single_key_is_told_from_a_ring() -> None:
    assert not is_key_ring(private_key_bytes(OTHER))
    assert not is_key_ring(private_key_bytes(OTHER, format="jwk"))
    assert not is_key_ring(b"[]")
    assert is_key_ring(key_ring_bytes(rotating()))


# --- every history


class Histories(RuleBasedStateMachine):
    """Any order of commands at any times; the clock of this world runs forward only."""

    ring: KeyRing
    now: float
    max_age: float

    @initialize(max_age=st.sampled_from([1.0, 60.0, HOUR]), passphrase=st.sampled_from([None, None, PASSPHRASE]))
    def begin(self, max_age: float, passphrase: str | None) -> None:
        self.made = 0
        self.max_age = max_age
        self.now = NOW
        self.ring = KeyRing.begin(self.fresh(), self.now, passphrase=passphrase)
        #: When each key was first seen in the key set.
        self.published = {each.kid: self.now for each in self.ring.keys}
        #: Keys that had to sign early, because the one before was revoked, and the first.
        self.hurried = {self.ring.keys[0].kid}
        self.signers: list[str] = []
        self.dropped: set[str] = set()
        #: Until when a key that signed must be in the key set.
        self.promised: dict[str, float] = {}

    def fresh(self) -> LocalSigner:
        self.made += 1
        return key(f"key-{self.made}")

    @rule(ahead=st.sampled_from([0.0, 0.5, 30.0, 59.0, HOUR, HOUR - 1, DAY, 40 * DAY]))
    def time_passes(self, ahead: float) -> None:
        self.now += ahead

    @rule()
    def time_passes_until_something_changes(self) -> None:
        times = [t for each in self.ring.keys for t in (each.retired_at, each.removed_at) if self.now < t < math.inf]
        self.now = min(times, default=self.now)

    @rule(longer=st.sampled_from([0.0, 1.0, DAY]), keep=st.sampled_from([1.0, HOUR, 30 * DAY]))
    def rotate(self, longer: float, keep: float) -> None:
        had_next = self.ring.next(self.now)
        active = self.ring.active(self.now)
        before = {each.kid for each in self.ring.keys}
        self.ring = self.ring.rotate(self.now, overlap=self.max_age + longer, keep=keep, new=self.fresh())
        added = {each.kid for each in self.ring.keys} - before
        assert len(added) == (1 if had_next is None else 0)
        for kid in added:
            self.published[kid] = self.now
            self.promised[active.kid] = self.now + self.max_age + longer + keep

    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        kid = data.draw(st.sampled_from([each.kid for each in self.ring.keys]))
        was_active = self.ring.active(self.now).kid == kid
        following = self.ring.next(self.now)
        active = self.ring.active(self.now)
        self.ring = self.ring.revoke(kid, self.now, new=self.fresh())
        self.dropped.add(kid)
        self.promised.pop(kid, None)
        if was_active:
            self.hurried.add(self.ring.active(self.now).kid)
        if following is not None and kid == following.kid:
            self.promised.pop(active.kid, None)
        for each in self.ring.keys:
            self.published.setdefault(each.kid, self.now)

    @rule()
    def prune(self) -> None:
        self.ring = self.ring.prune(self.now)

    @rule()
    @precondition(lambda self: not self.ring.is_encrypted)
    def write_and_read(self) -> None:
        self.ring = read_key_ring(key_ring_bytes(self.ring))

    @invariant()
    def one_key_signs_and_never_two(self) -> None:
        edges = {t for each in self.ring.keys for t in (each.active_from, each.retired_at, each.removed_at)}
        moments = {self.now, 0.0, NOW, *(t + d for t in edges if t < math.inf for d in (-0.5, 0.0, 0.5))}
        for moment in moments:
            active = [each for each in self.ring.keys if self.ring.state(each, moment) is KeyState.ACTIVE]
            assert active == [self.ring.active(moment)]
            assert self.ring.signer(moment).public_key == active[0].public_key
            assert active[0].public_key in self.ring.published(moment)

    @invariant()
    def no_key_signs_before_it_was_published_for_max_age(self) -> None:
        for each in self.ring.keys:
            if each.private_key is not None and each.kid not in self.hurried:
                assert each.active_from >= self.published[each.kid] + self.max_age

    @invariant()
    def no_key_signs_again(self) -> None:
        kid = self.ring.signer(self.now).kid
        if kid not in self.signers:
            self.signers.append(kid)
        assert kid == self.signers[-1]

    @invariant()
    def no_revoked_key_is_used_published_or_forgotten(self) -> None:
        assert set(kids(self.ring.revoked())) == self.dropped
        assert not self.dropped & set(kids(self.ring.published(self.now)))
        assert not self.dropped & halves(self.ring)

    @invariant()
    def what_signed_stays_published_as_promised(self) -> None:
        published = kids(self.ring.published(self.now))
        for kid, until in self.promised.items():
            assert (kid in published) == (self.now < until)


Histories.TestCase.settings = settings(stateful_step_count=30)
TestHistories = Histories.TestCase


class WildClocks(RuleBasedStateMachine):
    """The clock jumps as it likes: a machine without a battery, another machine."""

    @initialize()
    def begin(self) -> None:
        self.ring = ring_of("key-0")
        self.made = 0
        self.revoked: set[str] = set()

    @rule(now=st.floats(0, 2 * NOW), command=st.sampled_from(["rotate", "revoke", "prune"]), data=st.data())
    def command(self, now: float, command: str, data: st.DataObject) -> None:
        self.made += 1
        if command == "rotate":
            self.ring = self.ring.rotate(now, new=key(f"key-{self.made}"))
        elif command == "revoke":
            kid = data.draw(st.sampled_from([each.kid for each in self.ring.keys]))
            self.ring = self.ring.revoke(kid, now, new=key(f"key-{self.made}"))
            self.revoked.add(kid)
        else:
            self.ring = self.ring.prune(now)

    @invariant()
    def one_key_signs_at_every_moment_and_no_revoked_one(self) -> None:
        edges = {t for each in self.ring.keys for t in (each.active_from, each.retired_at) if t < math.inf}
        for moment in {0.0, NOW, 9 * NOW, *edges}:
            active = [each.kid for each in self.ring.keys if self.ring.state(each, moment) is KeyState.ACTIVE]
            assert active == [self.ring.signer(moment).kid]
            assert self.revoked.isdisjoint(kids(self.ring.published(moment)))
        assert set(kids(self.ring.revoked())) == self.revoked
        assert read_key_ring(key_ring_bytes(self.ring)) == self.ring


WildClocks.TestCase.settings = settings(stateful_step_count=20)
TestWildClocks = WildClocks.TestCase
