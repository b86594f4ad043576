"""P1: the memory of cards is led astray: another key, an older card, one from the future, two who are first at once.

Every card here goes the way of a client: verified by ``verify_card``, then put before the memory.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from a2a_trust import Origins, TrustedKey, TrustStore, generate_signer, verify_card
from a2a_trust.client.memory import AdmittedCard, Remembered, VolatileCardMemory
from a2a_trust.client.memory_store import PostgresCardMemory, SqliteCardMemory
from a2a_trust.client.verification import TrustOnFirstUse
from a2a_trust.errors import (
    CardMemoryError,
    CardVerificationError,
    ConfigurationError,
    FailureReason,
    PinnedKeyError,
    RolledBackCardError,
    TrustError,
    UntrustedCardError,
)
from a2a_trust.keys import LocalSigner, SigningTool, UnsafeAnyOrigin, all_of
from a2a_trust.keys.trust.file import read_trust
from a2a_trust.keys.trust.policy import OriginPolicy
from tests.attacks.forgery import JSONObject, b64, canonical, entry, pruned, served, signs
from tests.attacks.verifying import HOST, NOW, ORIGIN
from tests.client.memories import KINDS, Memory, memory_of
from tests.databases import PostgresServer
from tests.tables import walk

AGENT = f"https://{HOST}"
TOFU = TrustOnFirstUse()
NOBODY = TrustStore(())


@pytest.fixture(params=KINDS)
def memory(request: pytest.FixtureRequest) -> Memory:
    return memory_of(request)


def by(signer: LocalSigner, card: JSONObject, **header: Any) -> bytes:
    """The card as the signer serves it; ``header`` are further members of the protected header."""
    protected = {"alg": signer.alg, "kid": signer.kid, **header}
    return served(card, entry(protected, canonical(card), signs(signer.private_key, signer.alg)))


def named(*signers: LocalSigner, **options: Any) -> TrustStore:
    """A trust store that names these keys for the agent's host."""
    return TrustStore(TrustedKey(key=signer.public_key, origins=Origins(HOST), **options) for signer in signers)


def published(*signers: LocalSigner, trust: TrustStore = NOBODY, origin: str = AGENT) -> TrustStore:
    """What trust on first use makes of the keys that the agent's origin publishes."""
    return TOFU.trust_store([signer.public_key for signer in signers], origin, trust)


def seen(memory: Memory, document: bytes, trust: TrustStore, *, origin: str = ORIGIN, now: float = NOW) -> AdmittedCard:
    """What a client does with a card."""
    verified = verify_card(document, trust, origin=origin, now=now)
    return memory.admit(verified, origin, now=now)


def only(memory: Memory) -> Remembered:
    (record,) = memory.records()
    return record


def prints(*signers: LocalSigner) -> frozenset[str]:
    return frozenset(signer.public_key.thumbprint for signer in signers)


# --- keys ----------------------------------------------------------------------------------------------------------


def test_another_key_than_the_one_trusted_on_first_use(
    memory: Memory, card: JSONObject, owner: LocalSigner, mallory: LocalSigner
) -> None:
    seen(memory, by(owner, card, iat=NOW - 9), published(owner))
    before = memory.records()
    for document, keys in (
        (by(mallory, card), published(mallory)),
        (by(mallory, card, iat=NOW), published(owner, mallory)),
        (by(mallory, card, iat=NOW), published(mallory, owner)),
    ):
        with pytest.raises(PinnedKeyError) as caught:
            seen(memory, document, keys)
        assert (caught.value.pinned, caught.value.presented) == (prints(owner), prints(mallory))
        assert caught.value.location == AGENT
        assert memory.records() == before
    assert seen(memory, by(owner, card, iat=NOW), published(owner, mallory)).warnings == ()


def test_the_refusal_of_another_key_says_all_that_a_person_needs(
    memory: Memory, card: JSONObject, owner: LocalSigner, mallory: LocalSigner
) -> None:
    seen(memory, by(owner, card), published(owner))
    with pytest.raises(PinnedKeyError) as caught:
        seen(memory, by(mallory, card), published(mallory))
    text = str(caught.value)
    assert text.startswith(f"THE KEY OF {AGENT} HAS CHANGED")
    assert f"remembered since 2027-01-15T08:00:00Z: {owner.public_key.thumbprint}" in text
    assert f"signed the card now: {mallory.public_key.thumbprint}" in text
    assert "Ask the agent's operator, not the agent" in text
    command = text.splitlines()[-1].strip()
    if not isinstance(memory, VolatileCardMemory):
        assert command.startswith("a2a-sign memory accept --file ")
        assert command.endswith(f"{AGENT} {mallory.public_key.thumbprint}")
    else:
        assert command == f"the program's memory.accept('{AGENT}', ['{mallory.public_key.thumbprint}'], now=…)"


def test_the_same_key_under_another_name_and_another_key_under_the_same(
    memory: Memory, card: JSONObject, owner: LocalSigner
) -> None:
    """A pin is the key, not what it is called."""
    seen(memory, by(owner, card), published(owner))
    renamed = LocalSigner(owner.private_key, kid="renamed")
    assert seen(memory, by(renamed, card), published(renamed)).remembered.thumbprints == prints(owner)
    impostor = generate_signer("ES256", kid="owner")
    with pytest.raises(PinnedKeyError):
        seen(memory, by(impostor, card), published(impostor))


def test_a_second_key_does_not_come_in_on_the_arm_of_the_first(
    memory: Memory, card: JSONObject, owner: LocalSigner, mallory: LocalSigner
) -> None:
    """Both signed, and both are counted: the stranger's key is not remembered for the next time."""
    seen(memory, by(owner, card), published(owner))
    entries = [json.loads(by(signer, card))["signatures"][0] for signer in (owner, mallory)]
    trust = published(owner, mallory)
    policy = all_of(*prints(owner, mallory))
    verified = verify_card(served(card, *entries), trust, origin=ORIGIN, now=NOW, policy=policy)
    with pytest.raises(PinnedKeyError):
        memory.admit(verified, ORIGIN, now=NOW)
    assert only(memory).thumbprints == prints(owner)


def test_a_key_that_the_trust_store_names_replaces_a_pin_silently(
    memory: Memory, card: JSONObject, owner: LocalSigner, mallory: LocalSigner, caplog: pytest.LogCaptureFixture
) -> None:
    seen(memory, by(mallory, card, iat=NOW), published(mallory))
    caplog.clear()
    # Its card was signed before the stranger's: what a stranger has said of time binds nobody.
    admitted = seen(memory, by(owner, {**card, "version": "1.0"}, iat=NOW - 9e6), named(owner))
    assert (admitted.warnings, caplog.records) == ((), [])
    assert admitted.before is not None
    assert admitted.before.on_first_use
    assert only(memory) == admitted.remembered
    assert (admitted.remembered.thumbprints, admitted.remembered.on_first_use) == (prints(owner), False)
    assert admitted.remembered.issued == NOW - 9e6


def test_only_what_was_trusted_on_first_use_refuses_other_keys(
    memory: Memory, card: JSONObject, owner: LocalSigner, rsa_owner: LocalSigner
) -> None:
    """A trust store that names another key is obeyed, as often as it changes its mind."""
    for signer in (owner, rsa_owner, owner):
        assert seen(memory, by(signer, card), named(signer)).remembered.thumbprints == prints(signer)


def test_trust_on_first_use_takes_no_other_key_where_the_trust_store_had_named_one(
    memory: Memory, card: JSONObject, owner: LocalSigner, mallory: LocalSigner
) -> None:
    """The operator has taken the host out of the trust store: that is no first use."""
    seen(memory, by(owner, card), named(owner))
    with pytest.raises(PinnedKeyError):
        seen(memory, by(mallory, card), published(mallory))
    kept = seen(memory, by(owner, card), published(owner)).remembered
    assert (kept.thumbprints, kept.on_first_use) == (prints(owner), False)


def test_trust_on_first_use_gives_nobody_power_over_what_the_trust_store_names(
    memory: Memory, card: JSONObject, owner: LocalSigner, mallory: LocalSigner
) -> None:
    """The host is an attacker's, who publishes a key of their own, or one that was revoked."""
    here = TrustedKey(key=owner.public_key, origins=Origins(HOST))
    revoked = TrustedKey(key=mallory.public_key, origins=Origins("other.example"), revoked=True)
    demands = OriginPolicy(origins=Origins(f"*.{HOST.partition('.')[2]}"), policy=all_of(*prints(mallory)))
    for trust in (
        TrustStore([here]),
        TrustStore([TrustedKey(key=owner.public_key, origins=Origins("*.example.com"))]),
        TrustStore([TrustedKey(key=owner.public_key, origins=UnsafeAnyOrigin())]),
        TrustStore([TrustedKey(key=owner.public_key, origins=Origins(HOST), not_after=1.0)]),
        TrustStore((), [demands]),
    ):
        assert not TOFU.applies_to(ORIGIN, trust)
        with pytest.raises(UntrustedCardError):
            seen(memory, by(mallory, card), published(mallory, trust=trust))
    assert TOFU.applies_to(ORIGIN, TrustStore([revoked]))
    renamed = LocalSigner(mallory.private_key, kid="renamed")
    for signer in (mallory, renamed):
        with pytest.raises(UntrustedCardError):
            seen(memory, by(signer, card), published(signer, trust=TrustStore([revoked])))
    assert memory.records() == ()


def test_a_key_set_that_is_kept_out_of_reach_opens_no_first_use(
    memory: Memory, card: JSONObject, mallory: LocalSigner, tmp_path: Path
) -> None:
    """The operator has named a URL for this host; whoever blocks it, or has it serve no key, is not asked instead."""
    file = tmp_path / "trust.toml"
    file.write_text(f'version = 1\n[[trust]]\norigins = ["{HOST}"]\njwks_url = "https://keys.example/jwks.json"\n')
    document = read_trust(file.read_bytes(), "trust.toml")
    for fetched in ({}, {"https://keys.example/jwks.json": ()}):
        trust = document.store({}, fetched)
        assert trust.keys == ()
        assert not TOFU.applies_to(ORIGIN, trust)
        with pytest.raises(UntrustedCardError):
            seen(memory, by(mallory, card), published(mallory, trust=trust))
    assert memory.records() == ()


@walk("revoked", ["kid", "thumbprint"])
def test_a_revoked_key_that_is_listed_no_more_does_not_come_back_on_first_use(
    memory: Memory, card: JSONObject, mallory: LocalSigner, revoked: str
) -> None:
    word = mallory.kid if revoked == "kid" else mallory.public_key.thumbprint
    trust = read_trust(f'version = 1\n[[revoked]]\n{revoked} = "{word}"\n'.encode(), "trust.toml").store({}, {})
    assert TOFU.applies_to(ORIGIN, trust)
    with pytest.raises(UntrustedCardError):
        seen(memory, by(mallory, card), published(mallory, trust=trust))
    assert memory.records() == ()


def test_a_key_trusted_on_first_use_speaks_for_its_own_host_alone(
    memory: Memory, card: JSONObject, mallory: LocalSigner
) -> None:
    evil = "https://evil.example"
    with pytest.raises(UntrustedCardError):  # its interfaces are the agent's
        seen(memory, by(mallory, card), published(mallory, origin=evil), origin=evil)
    with pytest.raises(UntrustedCardError):
        seen(memory, by(mallory, card), published(mallory, origin=evil))
    assert memory.records() == ()


def test_a_key_trusted_on_first_use_hides_behind_one_that_the_trust_store_names(
    memory: Memory, card: JSONObject, owner: LocalSigner, mallory: LocalSigner
) -> None:
    """Two keys are demanded, and counted: the weaker trust is that of both."""
    seen(memory, by(owner, card), named(owner))
    entries = [json.loads(by(signer, card))["signatures"][0] for signer in (owner, mallory)]
    trust = TrustStore([*named(owner).keys, *published(mallory).keys])
    verified = verify_card(
        served(card, *entries), trust, origin=ORIGIN, now=NOW, policy=all_of(*prints(owner, mallory))
    )
    assert verified.on_first_use
    with pytest.raises(PinnedKeyError):
        memory.admit(verified, ORIGIN, now=NOW)


def test_control_a_key_that_the_trust_store_lets_speak_for_any_host_is_remembered(
    memory: Memory, card: JSONObject, owner: LocalSigner
) -> None:
    anywhere = TrustStore([TrustedKey(key=owner.public_key, origins=UnsafeAnyOrigin())])
    assert seen(memory, by(owner, card), anywhere).remembered.thumbprints == prints(owner)


def test_the_first_use_is_shown_to_the_user(
    memory: Memory, card: JSONObject, owner: LocalSigner, caplog: pytest.LogCaptureFixture
) -> None:
    (warning,) = seen(memory, by(owner, card), published(owner)).warnings
    assert warning.startswith(f"{AGENT}: its key was trusted on first use")
    assert owner.public_key.thumbprint in warning
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(logging.WARNING, warning)]
    assert seen(memory, by(owner, card), published(owner)).warnings == ()
    assert VolatileCardMemory().records() == ()
    assert seen(VolatileCardMemory(), by(owner, card), named(owner)).warnings == ()


# --- rollback ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trusts", [named, published], ids=["named", "on-first-use"])
def test_an_older_card_after_a_newer_one(memory: Memory, card: JSONObject, owner: LocalSigner, trusts: Any) -> None:
    older = {**card, "description": "with the fault that was put right"}
    seen(memory, by(owner, card, iat=NOW - 100), trusts(owner))
    before = memory.records()
    for iat in (NOW - 100.001, NOW - 1e6, 0, -5, -1e300):
        with pytest.raises(RolledBackCardError) as caught:
            seen(memory, by(owner, older, iat=iat), trusts(owner))
        assert (caught.value.issued, caught.value.remembered) == (max(iat, 0), NOW - 100)
        assert caught.value.location == AGENT
        assert memory.records() == before
    assert seen(memory, by(owner, older, iat=NOW - 100), trusts(owner)).remembered.issued == NOW - 100  # equal is fine
    assert seen(memory, by(owner, card, iat=NOW - 99.5), trusts(owner)).remembered.issued == NOW - 99.5


def test_an_older_card_by_another_key_that_the_trust_store_names(
    memory: Memory, card: JSONObject, owner: LocalSigner, rsa_owner: LocalSigner
) -> None:
    """A retired key that is still trusted: its cards are older all the same."""
    seen(memory, by(owner, card, iat=NOW - 100), named(owner, rsa_owner))
    with pytest.raises(RolledBackCardError):
        seen(memory, by(rsa_owner, card, iat=NOW - 101), named(owner, rsa_owner))


def test_the_trust_store_naming_the_pinned_key_opens_no_way_back(
    memory: Memory, card: JSONObject, owner: LocalSigner
) -> None:
    seen(memory, by(owner, card, iat=NOW - 100), published(owner))
    with pytest.raises(RolledBackCardError):
        seen(memory, by(owner, card, iat=NOW - 101), named(owner))


def test_a_card_that_does_not_say_when_after_one_that_does(
    memory: Memory, card: JSONObject, owner: LocalSigner
) -> None:
    """From before its signer wrote iat: else there would be a way back to it for ever."""
    undated = by(owner, card)
    assert seen(memory, undated, named(owner)).remembered.issued is None
    assert seen(memory, undated, named(owner)).remembered.issued is None
    seen(memory, by(owner, card, iat=NOW - 100), named(owner))
    with pytest.raises(RolledBackCardError, match="does not say when it was signed") as caught:
        seen(memory, undated, named(owner))
    assert caught.value.issued is None
    assert only(memory).issued == NOW - 100


def test_an_iat_that_nobody_signed(memory: Memory, card: JSONObject, owner: LocalSigner) -> None:
    """Beside the protected header, where whoever serves the card can write what they like."""
    seen(memory, by(owner, card, iat=NOW - 100), named(owner))
    (undated,) = json.loads(by(owner, card))["signatures"]
    (dated,) = json.loads(by(owner, card, iat=NOW - 200))["signatures"]
    for signature in (
        {**undated, "header": {"iat": NOW}},
        {**undated, "iat": NOW},
        {**dated, "iat": NOW},
        {**dated, "header": {"IAT": NOW, "nbf": NOW}},
    ):
        with pytest.raises(RolledBackCardError):
            seen(memory, served(card, signature), named(owner))
    with pytest.raises(CardVerificationError) as caught:
        seen(memory, served(card, {**dated, "header": {"iat": NOW}}), named(owner))
    assert [failure.reason for failure in caught.value.failures] == [FailureReason.MALFORMED]
    assert only(memory).issued == NOW - 100


def test_a_newer_signature_that_does_not_count_lends_its_time_to_none(
    memory: Memory, card: JSONObject, owner: LocalSigner, mallory: LocalSigner
) -> None:
    seen(memory, by(owner, card, iat=NOW - 100), named(owner))
    old, strange = (
        json.loads(by(signer, card, iat=iat))["signatures"][0]
        for signer, iat in ((owner, NOW - 200), (mallory, NOW - 1))
    )
    broken = {**strange, "protected": b64(json.dumps({"alg": "ES256", "kid": "owner", "iat": NOW}).encode())}
    for other in (strange, broken):
        for entries in ((old, other), (other, old)):
            with pytest.raises(RolledBackCardError):
                seen(memory, served(card, *entries), named(owner))


def test_of_several_signatures_that_count_the_oldest_says_how_old_the_card_is(
    memory: Memory, card: JSONObject, owner: LocalSigner, rsa_owner: LocalSigner
) -> None:
    """One key has leaked, and signs the old card anew: the other one has not."""
    entries = {
        (signer.kid, iat): json.loads(by(signer, card, **({} if iat is None else {"iat": iat})))["signatures"][0]
        for signer in (owner, rsa_owner)
        for iat in (NOW - 200, NOW - 100, NOW, None)
    }

    def shown(first: float | None, second: float | None) -> float | None:
        document = served(card, entries["owner", first], entries["rsa-owner", second])
        policy = all_of(*prints(owner, rsa_owner))
        verified = verify_card(document, named(owner, rsa_owner), origin=ORIGIN, now=NOW, policy=policy)
        return memory.admit(verified, ORIGIN, now=NOW).remembered.issued

    assert shown(NOW - 100, NOW - 100) == NOW - 100
    for times in ((NOW, NOW - 200), (NOW - 200, NOW), (None, NOW), (NOW, None)):
        with pytest.raises(RolledBackCardError):
            shown(*times)
    assert shown(NOW, NOW - 100) == NOW - 100
    assert shown(NOW, NOW) == NOW


def test_a_card_from_the_future_is_refused_and_not_stored(memory: Memory, card: JSONObject, owner: LocalSigner) -> None:
    """Else whoever has a key for a minute could make every later card an old one."""
    future = by(owner, card, iat=NOW + 3600)
    with pytest.raises(CardVerificationError, match="future"):
        seen(memory, future, named(owner))
    ahead = verify_card(future, named(owner), origin=ORIGIN, now=NOW + 3600)  # by a clock that is ahead

    def refused() -> bool:
        before = memory.records()
        for issued in (ahead.issued, float("inf"), float("nan")):
            with pytest.raises(CardMemoryError, match="future") as caught:
                memory.admit(replace(ahead, issued=issued), ORIGIN, now=NOW)
            assert type(caught.value) is CardMemoryError
        return memory.records() == before

    assert refused()
    seen(memory, by(owner, card, iat=NOW - 5), named(owner))
    assert refused()
    assert seen(memory, by(owner, card, iat=NOW - 4), named(owner)).remembered.issued == NOW - 4


def test_a_lower_version_is_let_through_with_a_warning(
    memory: Memory, card: JSONObject, owner: LocalSigner, caplog: pytest.LogCaptureFixture
) -> None:
    def shown(version: object) -> tuple[str, ...]:
        caplog.clear()
        warnings = seen(memory, by(owner, {**card, "version": version}, iat=NOW), named(owner)).warnings
        assert [record.getMessage() for record in caplog.records] == list(warnings)
        return warnings

    assert shown("2.10.0") == ()
    assert shown("2.9.9") == (f"{AGENT}: the card's version is '2.9.9', and was '2.10.0' before",)
    assert shown("2.9.9") == ()  # it was said
    for version in ("10", "v10.0.0", "10-rc.1", "10.0.1+build", "10.0.1", "spring edition"):
        assert shown(version) == ()
    assert shown("1") == ()  # no order between a name and a number


# --- two at once, and nothing without proof ------------------------------------------------------------------------

RACER = """
import json, sys, time
from pathlib import Path
from a2a_trust import TrustStore, generate_signer, sign_card, verify_card
from a2a_trust.client.verification import TrustOnFirstUse
from a2a_trust.client.memory_store import PostgresCardMemory
from a2a_trust.client.memory_store import SqliteCardMemory
from a2a_trust.errors import PinnedKeyError

folder, name, count, place, path = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *sys.argv[4:]
signer, nobody, proofs = generate_signer("ES256"), TrustStore(()), {}
for number in range(count):
    origin = f"https://agent-{number}.example.com"
    card = {**json.loads((folder / "card.json").read_text()), "supportedInterfaces": [
        {"url": origin, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]}
    trust = TrustOnFirstUse().trust_store([signer.public_key], origin, nobody)
    signed = json.dumps(sign_card(card, signer, iat=time.time()).card).encode()
    proofs[origin + path] = verify_card(signed, trust, origin=origin, now=time.time())
if "://" in place:
    memory = PostgresCardMemory(place, timeout=20)
else:
    memory = SqliteCardMemory(place, create=True, timeout=50)
(folder / f"{name}.ready").touch()
while not (folder / "go").exists():
    pass
for origin, verified in proofs.items():
    try:
        memory.admit(verified, origin, now=time.time())
    except PinnedKeyError as error:
        print(origin, "refused", signer.public_key.thumbprint, *error.pinned)
    else:
        print(origin, "first", signer.public_key.thumbprint, signer.public_key.thumbprint)
"""


def raced(place: str, folder: Path, card: JSONObject, paths: list[str], count: int) -> dict[str, list[list[str]]]:
    """By host, each process's outcome, its key, and the key that is pinned for it; each asks at one of the paths."""
    (folder / "card.json").write_text(json.dumps(card))
    names = [f"racer-{number}" for number in range(len(paths))]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(folder), name, str(count), place, path], stdout=subprocess.PIPE, text=True
        )
        for name, path in zip(names, paths, strict=True)
    ]
    try:
        deadline = time.monotonic() + 60
        while not all((folder / f"{name}.ready").exists() for name in names):
            assert time.monotonic() < deadline
            assert all(process.poll() is None for process in processes)
            time.sleep(0.01)
        (folder / "go").touch()
        outputs = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(paths)
    told: dict[str, list[list[str]]] = {}
    for line in "".join(outputs).splitlines():
        location, *rest = line.split()
        told.setdefault(location.removesuffix("/b").removesuffix("/a"), []).append(rest)
    return told


LEVELS = ("read committed", "repeatable read", "serializable")


@pytest.fixture(params=["sqlite", *(pytest.param(level, marks=pytest.mark.real) for level in LEVELS)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A file, or a database with this isolation level as its default."""
    if request.param == "sqlite":
        return str(tmp_path / "cards.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.database()
    server.sql(f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_isolation = '{request.param}'")
    return url


def test_of_processes_that_are_first_at_once_one_wins(card: JSONObject, tmp_path: Path, place: str) -> None:
    """One has asked the agent, the others somebody in its place, or at another path of its host, where a first use is
    limited to the keys of the host. All have verified what they got.
    """
    count, paths = 40, ["", "", "/a", "/b"]
    told = raced(place, tmp_path, card, paths, count)
    memory = PostgresCardMemory(place, timeout=60) if "://" in place else SqliteCardMemory(place)
    remembered = {record.location.host: record.thumbprints for record in memory.records()}
    assert len(memory.records()) == len(remembered) == len(told) == count  # one location of each host
    for origin, outcomes in told.items():
        (_, winner, _), *refused = sorted(outcomes)
        assert sorted(outcome for outcome, _, _ in outcomes) == ["first"] + ["refused"] * (len(paths) - 1)
        assert {pinned for _, _, pinned in refused} == {winner}  # they agree
        assert remembered[origin.removeprefix("https://")] == {winner}
        assert winner not in {loser for _, loser, _ in refused}


def test_nothing_is_written_before_the_card_is_verified(
    memory: Memory, card: JSONObject, owner: LocalSigner, mallory: LocalSigner
) -> None:
    good = by(owner, card, iat=NOW)
    signature = json.loads(good)["signatures"][0]
    pruning = entry({"alg": "ES256", "kid": "owner"}, canonical(pruned(card)), signs(owner.private_key, "ES256"))
    lossy = named(owner, signer=SigningTool.A2A_PYTHON)
    unverified: list[tuple[bytes, TrustStore]] = [
        (b"", named(owner)),
        (good + b"x", named(owner)),
        (served(card), named(owner)),
        (served({**card, "name": "changed"}, signature), named(owner)),
        (good, named(mallory)),
        (good, NOBODY),
        (good, named(owner, not_after=NOW)),
        (good, named(owner, revoked=True)),
        (by(owner, card, iat=NOW - 9, exp=NOW), named(owner)),
        (served(card, pruning), lossy),
        (served(card, pruning), named(owner)),
        (served(pruned(card), pruning), named(owner)),
        (served(pruned(card), pruning), published(owner)),
        (good, published(mallory)),
    ]
    for known in (False, True):
        if known:
            seen(memory, by(owner, card, iat=NOW - 9), named(owner))
        before = memory.records()
        assert len(before) == known
        for document, trust in unverified:
            with pytest.raises(TrustError):
                seen(memory, document, trust)
            assert memory.records() == before


def test_what_is_no_proof_or_one_for_another_host_is_not_remembered(
    memory: Memory, card: JSONObject, owner: LocalSigner
) -> None:
    verified = verify_card(by(owner, card, iat=NOW), named(owner), origin=ORIGIN, now=NOW)
    alike = SimpleNamespace(**{name: getattr(verified, name) for name in (*verified.__dataclass_fields__, "card")})
    for given in (alike, verified.card, None):
        with pytest.raises(ConfigurationError, match="verify_card"):
            memory.admit(given, ORIGIN, now=NOW)  # type: ignore[arg-type]
    for origin in ("https://evil.example", "https://example.com", f"https://x.{HOST}", f"https://{HOST}.evil.example"):
        with pytest.raises(ConfigurationError, match="not verified for the host"):
            memory.admit(verified, origin, now=NOW)
    unbound = verify_card(by(owner, card), published(owner), origin=UnsafeAnyOrigin(), now=NOW)
    with pytest.raises(ConfigurationError, match="not verified for the host"):
        memory.admit(unbound, ORIGIN, now=NOW)
    assert memory.records() == ()
