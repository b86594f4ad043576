"""The public card: the bytes that were signed, while they prove something."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2a_trust.errors import CardNotServedError, ConfigurationError, TrustError
from a2a_trust.keys.ring_file import KeyRingFile, save_key_ring, update_key_ring
from a2a_trust.keys.rotation import KeyRing
from a2a_trust.keys.signer import LocalSigner, generate_signer
from a2a_trust.keys.trust.origins import Origins, UnsafeAnyOrigin
from a2a_trust.keys.trust.store import TrustedKey, TrustStore
from a2a_trust.middleware.card import CardFile, CardSignedHere, CardSigner, CardSource, FixedCard, PublicCard
from a2a_trust.signing.sign import sign_card
from a2a_trust.signing.verify import verify_card
from tests.tables import walk

CARD: dict[str, Any] = {
    "name": "Invoice Agent",
    "description": "Reads invoices.",
    "version": "1",
    "supportedInterfaces": [
        {"url": "https://invoice.example.com/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
}
START = 1_700_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def signer() -> LocalSigner:
    return generate_signer()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of day; time goes on with it, also where it is measured by another clock."""
    clock = Clock()
    monkeypatch.setattr("a2a_trust.base.files.watched.monotonic", clock)
    monkeypatch.setattr("a2a_trust.middleware.card.monotonic", clock)
    return clock


def trust_of(*signers: LocalSigner, revoked: bool = False, not_after: float = float("inf")) -> TrustStore:
    return TrustStore(
        TrustedKey(key=signer.public_key, origins=Origins("invoice.example.com"), revoked=revoked, not_after=not_after)
        for signer in signers
    )


def get(source: CardSource, clock: Clock, **headers: str) -> httpx.Response:
    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(app=PublicCard(source, clock=clock))
        async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as client:
            return await client.get("/.well-known/agent-card.json", headers=headers)

    return asyncio.run(request())


def verified(body: bytes, signer: LocalSigner, now: float = START) -> dict[str, Any]:
    return verify_card(body, trust_of(signer), origin="https://invoice.example.com", now=now).card


def test_a_card_that_is_signed_here_is_verified_by_its_callers(signer: LocalSigner, clock: Clock) -> None:
    source = CardSignedHere(CARD, CardSigner(signer), clock=clock)
    first, second = get(source, clock), get(source, clock)
    assert verified(first.content, signer) == CARD
    assert first.content == second.content
    assert get(source, clock, **{"If-None-Match": first.headers["etag"]}).status_code == 304


def test_a_companion_is_the_servers_choice_and_what_it_leaves_open_is_logged_once(
    signer: LocalSigner, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    demanded = {**CARD, "securityRequirements": [{"schemes": {"key": {}}}]}
    with caplog.at_level(logging.INFO, logger="a2a_trust.middleware.card"):
        source = CardSignedHere(demanded, CardSigner(signer, lifetime=3600, companion=True), clock=clock)
        clock.now += 3000
        assert len(get(source, clock).json()["signatures"]) == 2
    told = [record.getMessage() for record in caplog.records]
    assert len([each for each in told if "Security requirements" in each]) == 1
    assert len(told) == len(set(told))
    for companion in (None, False):
        alone = CardSignedHere(demanded, CardSigner(signer, companion=companion), clock=clock)
        (entry,) = get(alone, clock).json()["signatures"]
        assert verified(get(alone, clock).content, signer, clock.now) == demanded
        assert entry["protected"]


@pytest.mark.parametrize("lifetime", [3600, timedelta(hours=1)])
def test_it_is_signed_anew_before_its_signature_ends(
    signer: LocalSigner, clock: Clock, lifetime: float | timedelta
) -> None:
    source = CardSignedHere(CARD, CardSigner(signer, lifetime=lifetime), clock=clock)
    before = get(source, clock)
    clock.now += 1799
    assert get(source, clock).content == before.content
    clock.now += 2
    after = get(source, clock)
    assert after.headers["etag"] != before.headers["etag"]
    assert verified(after.content, signer, clock.now + 3500) == CARD
    with pytest.raises(TrustError):
        verified(after.content, signer, clock.now + 3601)


def test_no_cache_keeps_a_card_beyond_its_signature(signer: LocalSigner, clock: Clock, tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_text(json.dumps(sign_card(CARD, signer, iat=START, exp=START + 100).card))
    source = CardFile(path, trust=trust_of(signer), clock=clock)
    assert get(source, clock).headers["cache-control"] == "public, max-age=100"
    clock.now += 99.5
    assert get(source, clock).headers["cache-control"] == "public, max-age=0"


def test_a_clock_that_ran_ahead_leaves_no_signature_from_the_future(signer: LocalSigner, clock: Clock) -> None:
    source = CardSignedHere(CARD, CardSigner(signer, lifetime=7 * 86_400), clock=clock)
    clock.now += 5 * 86_400
    ahead = get(source, clock)
    assert verified(ahead.content, signer, clock.now) == CARD
    for seconds, is_signed_again in ((20, False), (30, False), (31, True), (86_400, True)):
        clock.now = START + 5 * 86_400 - seconds
        assert (get(source, clock).content != ahead.content) is is_signed_again
    clock.now = START
    back = get(source, clock)
    assert verified(back.content, signer, START) == CARD
    assert back.headers["last-modified"] == "Tue, 14 Nov 2023 22:13:20 GMT"
    since = {"If-Modified-Since": ahead.headers["last-modified"]}
    assert get(source, clock, **since).content == back.content


def test_a_card_from_the_future_that_cannot_be_signed_again_is_503(clock: Clock) -> None:
    key = Service(generate_signer())
    source = CardSignedHere(CARD, CardSigner(key), clock=clock)
    key.is_down = True
    clock.now -= 59
    assert get(source, clock).status_code == 200  # verifiers accept it still
    clock.now -= 2
    assert get(source, clock).status_code == 503


def test_a_key_that_failed_while_the_clock_ran_ahead_is_asked_again(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = Clock()
    monkeypatch.setattr("a2a_trust.middleware.card.monotonic", ticks)
    old, new = Service(generate_signer()), Service(generate_signer())
    keys = Rotating(old, new)  # type: ignore[arg-type]
    source = CardSignedHere(CARD, CardSigner(keys), clock=clock)
    keys.signers.pop(0)
    new.is_down = True
    clock.now += 86_400
    assert get(source, clock).status_code == 503
    clock.now -= 86_400
    ticks.now += 5
    new.is_down = False
    assert verified(get(source, clock).content, new.inner, clock.now) == CARD


def test_another_signature_of_a_card_counts_when_the_first_has_expired(
    signer: LocalSigner, clock: Clock, tmp_path: Path
) -> None:
    second = generate_signer()
    twice = sign_card(sign_card(CARD, signer, exp=START + 100).card, second).card
    for source in sources(Changing(trust_of(signer, second)), json.dumps(twice).encode(), clock, tmp_path):
        assert source.document(START)
        assert source.document(START + 101)


class Rotating:
    def __init__(self, *signers: LocalSigner) -> None:
        self.signers = list(signers)

    def signer(self, now: float) -> LocalSigner:
        return self.signers[0]


def test_the_next_request_after_a_rotation_sees_the_new_signature(clock: Clock) -> None:
    old, new = generate_signer(), generate_signer()
    keys = Rotating(old, new)
    source = CardSignedHere(CARD, CardSigner(keys), clock=clock)
    before = get(source, clock)
    keys.signers.pop(0)
    after = get(source, clock, **{"If-None-Match": before.headers["etag"]})
    assert after.status_code == 200
    assert verified(after.content, new) == CARD
    with pytest.raises(TrustError):
        verified(after.content, old)


def test_a_file_is_served_byte_for_byte(signer: LocalSigner, clock: Clock, tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    body = json.dumps(sign_card(CARD, signer).card, indent=3).encode() + b"\n\n"
    path.write_bytes(body)
    os.utime(path, (START, START))
    response = get(CardFile(path, trust=trust_of(signer), clock=clock), clock)
    assert response.content == body
    assert response.headers["last-modified"] == "Tue, 14 Nov 2023 22:13:20 GMT"


BROKEN: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "changed after signing": lambda card: card | {"version": "2"},
    "a member added": lambda card: card | {"url": "https://invoice.example.com"},
    "signatures gone": lambda card: {name: value for name, value in card.items() if name != "signatures"},
    "no signature left": lambda card: card | {"signatures": []},
    "not an object": lambda card: [card],  # type: ignore[dict-item, return-value]
}


@walk("change", BROKEN.values(), ids=BROKEN)
def test_a_file_that_proves_nothing_is_no_start(
    change: Callable[[Any], Any], signer: LocalSigner, clock: Clock, tmp_path: Path
) -> None:
    path = tmp_path / "card.json"
    path.write_text(json.dumps(change(dict(sign_card(CARD, signer).card))))
    with pytest.raises(TrustError):
        CardFile(path, trust=trust_of(signer), clock=clock)


def put_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def put_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def put_a_link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("nothing")


def break_json(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    return lambda path: replace(path, json.dumps(change(json.loads(path.read_text()))).encode())


def replace(path: Path, body: bytes) -> None:
    """Put another file in the place, as pipelines do."""
    other = path.with_name("next.json")
    other.write_bytes(body)
    other.replace(path)


HARM: dict[str, Callable[[Path], Any]] = {
    "gone": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[:200]),
    "too large": lambda path: path.write_bytes(path.read_bytes() + b" " * 1_048_576),
    "a pipe": put_a_pipe,
    "a folder": put_a_folder,
    "a link to nothing": put_a_link_to_nothing,
    **{name: break_json(change) for name, change in BROKEN.items()},
}


def events(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.__dict__["audit"] for record in caplog.records if record.name == "a2a_trust.audit"]


@walk("harm", HARM.values(), ids=HARM)
def test_a_file_that_is_no_good_any_more_leaves_the_last_good_card(
    harm: Callable[[Path], Any], signer: LocalSigner, clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "a2a_trust.audit")
    path = tmp_path / "card.json"
    good, better = (json.dumps(sign_card(CARD | {"version": each}, signer).card) for each in ("1", "2"))
    path.write_text(good)
    source = CardFile(path, trust=trust_of(signer), reload=True, clock=clock)
    harm(path)
    for _ in range(5):
        clock.now += 1
        response = get(source, clock)
        assert (response.status_code, response.text) == (200, good)
    (event,) = events(caplog)
    assert (event["event"], event["reason"]) == ("not-reloaded", "card")
    assert event["detail"].startswith(f"{path}: ")
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.write_text(better)
    clock.now += 1
    assert get(source, clock).text == better
    assert [each["event"] for each in events(caplog)] == ["not-reloaded", "reloaded"]
    assert events(caplog)[-1]["detail"] == str(path)


def test_a_file_is_looked_at_once_per_second(signer: LocalSigner, clock: Clock, tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    first, second = (json.dumps(sign_card(CARD | {"version": each}, signer).card) for each in ("1", "2"))
    path.write_text(first)
    source = CardFile(path, trust=trust_of(signer), reload=True, clock=clock)
    path.write_text(second)
    clock.now += 0.9
    assert get(source, clock).text == first
    clock.now += 0.1
    assert get(source, clock).text == second


def test_the_last_good_card_is_not_served_when_it_has_expired_or_its_key_is_revoked(
    signer: LocalSigner, clock: Clock, tmp_path: Path
) -> None:
    path, trust = tmp_path / "card.json", Changing(trust_of(signer))
    path.write_text(json.dumps(sign_card(CARD, signer, exp=START + 100).card))
    by_time = CardFile(path, trust=trust, reload=True, clock=clock)
    by_key = CardFile(path, trust=trust, reload=True, clock=clock)
    path.unlink()
    clock.now += 99
    assert get(by_time, clock).status_code == get(by_key, clock).status_code == 200
    trust.store = trust_of(signer, revoked=True)
    with pytest.raises(CardNotServedError, match=r"revoked.*No such file"):
        by_key.document(clock.now)
    trust.store = trust_of(signer)
    clock.now += 1
    with pytest.raises(CardNotServedError, match=r"expired.*No such file"):
        by_time.document(clock.now)


def test_a_new_card_that_has_expired_or_whose_key_is_revoked_takes_nothing_back(
    signer: LocalSigner, clock: Clock, tmp_path: Path
) -> None:
    path, revoked = tmp_path / "card.json", generate_signer()
    good = json.dumps(sign_card(CARD, signer).card)
    path.write_text(good)
    trust = TrustStore([*trust_of(signer).keys, *trust_of(revoked, revoked=True).keys])
    source = CardFile(path, trust=trust, reload=True, clock=clock)
    for other in (sign_card(CARD, revoked), sign_card(CARD, signer, exp=START - 1)):
        path.write_text(json.dumps(other.card))
        clock.now += 1
        assert get(source, clock).text == good


def test_a_card_that_comes_before_its_key_is_served_as_soon_as_the_key_is_trusted(
    signer: LocalSigner, clock: Clock, tmp_path: Path
) -> None:
    path, new = tmp_path / "card.json", generate_signer()
    trust = Changing(trust_of(signer))
    path.write_text(json.dumps(sign_card(CARD, signer).card))
    source = CardFile(path, trust=trust, reload=True, clock=clock)
    path.write_text(json.dumps(sign_card(CARD, new).card))
    clock.now += 1
    assert verified(get(source, clock).content, signer) == CARD
    trust.store = trust_of(signer, new)
    clock.now += 1
    assert verified(get(source, clock).content, new) == CARD


def test_a_volume_of_kubernetes_that_changes_by_a_link_is_followed(
    signer: LocalSigner, clock: Clock, tmp_path: Path
) -> None:
    first, second = (json.dumps(sign_card(CARD | {"version": each}, signer).card) for each in ("1", "2"))
    for name, body in (("..2024_1", first), ("..2024_2", second)):
        tmp_path.joinpath(name).mkdir()
        tmp_path.joinpath(name, "card.json").write_text(body)
    tmp_path.joinpath("..data").symlink_to("..2024_1")
    path = tmp_path / "card.json"
    path.symlink_to("..data/card.json")
    source = CardFile(path, trust=trust_of(signer), reload=True, clock=clock)
    tmp_path.joinpath("..data_tmp").symlink_to("..2024_2")
    tmp_path.joinpath("..data_tmp").rename(tmp_path / "..data")
    clock.now += 1
    assert get(source, clock).text == second


@pytest.mark.parametrize("reload", [True, False])
def test_no_agent_starts_with_a_pipe(reload: bool, signer: LocalSigner, tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    os.mkfifo(path)
    with pytest.raises(OSError, match="not a regular file"):
        CardFile(path, trust=trust_of(signer), reload=reload)


def test_a_card_whose_signature_or_key_has_ended_is_not_served(
    signer: LocalSigner, clock: Clock, tmp_path: Path
) -> None:
    path = tmp_path / "card.json"
    path.write_text(json.dumps(sign_card(CARD, signer, exp=START + 100).card))
    by_signature = CardFile(path, trust=trust_of(signer), clock=clock)
    path.write_text(json.dumps(sign_card(CARD, signer).card))
    by_key = CardFile(path, trust=trust_of(signer, not_after=START + 100), clock=clock)
    for source in (by_signature, by_key):
        assert source.document(START + 99)
        with pytest.raises(CardNotServedError, match="sign it again"):
            source.document(START + 100)
    clock.now += 100
    assert get(by_signature, clock).status_code == 503
    with pytest.raises(TrustError):
        CardFile(path, trust=trust_of(signer, revoked=True), clock=clock)


@pytest.mark.parametrize("end", ["expired", "revoked"])
def test_a_card_that_proves_nothing_is_verified_once_per_second(
    end: str, signer: LocalSigner, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers may ask as often as they like: verifying a large card takes as long as many requests."""
    trust = Changing(trust_of(signer))
    source = FixedCard(sign_card(CARD, signer, exp=START + 100).card, trust=trust, clock=clock)
    verified: list[float] = []

    def counted(*arguments: Any, now: float, **options: Any) -> Any:
        verified.append(now)
        return verify_card(*arguments, now=now, **options)

    monkeypatch.setattr("a2a_trust.signing.verify.verify_card", counted)
    if end == "revoked":
        trust.store = trust_of(signer, revoked=True)
    for moment in (200, 200.5, 200.9, 201, 201.5):
        with pytest.raises(CardNotServedError):
            source.document(START + moment)
    assert verified == [START + 200, START + 201]


def test_a_card_without_proof_claims_none(signer: LocalSigner, clock: Clock) -> None:
    assert get(FixedCard(CARD, clock=clock), clock).json() == CARD
    assert get(FixedCard(b'{"name" : "x"}', clock=clock), clock).content == b'{"name" : "x"}'
    with pytest.raises(ConfigurationError, match=r"FixedCard\(card, trust="):
        FixedCard(sign_card(CARD, signer).card)
    with pytest.raises(ConfigurationError, match="object"):
        FixedCard(b"[]")


def test_the_arguments_are_checked(signer: LocalSigner, clock: Clock) -> None:
    with pytest.raises(ConfigurationError, match="lifetime"):
        CardSigner(signer, lifetime=59)
    for max_age in (-1, 31_536_001):
        with pytest.raises(ConfigurationError, match="max_age"):
            PublicCard(FixedCard(CARD), max_age=max_age)
    assert not isinstance(trust_of(signer).keys[0].origins, UnsafeAnyOrigin)


class Changing:
    """Trusted keys that change while the server runs."""

    def __init__(self, store: TrustStore) -> None:
        self.store = store

    def trust_store(self) -> TrustStore:
        return self.store


def sources(trust: Changing, body: bytes, clock: Clock, tmp_path: Path) -> list[CardSource]:
    path = tmp_path / "card.json"
    path.write_bytes(body)
    return [FixedCard(body, trust=trust, clock=clock), CardFile(path, trust=trust, clock=clock)]


def test_a_card_whose_key_is_revoked_later_is_503(signer: LocalSigner, clock: Clock, tmp_path: Path) -> None:
    trust = Changing(trust_of(signer))
    body = json.dumps(sign_card(CARD, signer).card).encode()
    for source in sources(trust, body, clock, tmp_path):
        trust.store = trust_of(signer)
        assert get(source, clock).content == body
        trust.store = trust_of(signer, revoked=True)
        response = get(source, clock)
        assert (response.status_code, response.content) == (503, b"")
        with pytest.raises(CardNotServedError if isinstance(source, CardFile) else TrustError, match="revoked"):
            source.document(clock.now)
        trust.store = trust_of(generate_signer())
        assert get(source, clock).status_code == 503
        trust.store = trust_of(signer)
        assert get(source, clock).content == body


def test_a_shorter_trust_shortens_what_caches_may_keep(signer: LocalSigner, clock: Clock, tmp_path: Path) -> None:
    trust = Changing(trust_of(signer))
    body = json.dumps(sign_card(CARD, signer).card).encode()
    for source in sources(trust, body, clock, tmp_path):
        trust.store = trust_of(signer)
        assert get(source, clock).headers["cache-control"] == "public, max-age=300"
        trust.store = trust_of(signer, not_after=clock.now + 40)
        assert get(source, clock).headers["cache-control"] == "public, max-age=40"


def test_a_ring_says_which_of_its_cards_are_good(clock: Clock, tmp_path: Path) -> None:
    ring, card = tmp_path / "ring.json", tmp_path / "card.json"
    old, new = generate_signer(), generate_signer()
    save_key_ring(ring, KeyRing.begin(old, START))
    card.write_text(json.dumps(sign_card(CARD, old).card))
    source = CardFile(card, trust=KeyRingFile(ring), reload=True, clock=clock)
    assert get(source, clock).status_code == 200
    update_key_ring(ring, lambda before: before.rotate(START, new=new))
    assert get(source, clock).status_code == 200  # the old key is still good for what it signed
    update_key_ring(ring, lambda before: before.revoke(old.kid, START))
    assert get(source, clock).status_code == 503
    card.write_text(json.dumps(sign_card(CARD, new).card))
    clock.now += 1
    assert get(source, clock).status_code == 200


def test_a_card_of_a_removed_key_is_served_no_more(clock: Clock, tmp_path: Path) -> None:
    ring = tmp_path / "ring.json"
    old = generate_signer()
    save_key_ring(ring, KeyRing.begin(old, START).rotate(START, overlap=100, keep=200))
    source = FixedCard(sign_card(CARD, old).card, trust=KeyRingFile(ring), clock=clock)
    clock.now = START + 299
    assert get(source, clock).status_code == 200
    clock.now = START + 300
    assert get(source, clock).status_code == 503


class Service:
    """A key that lives elsewhere, and may be out of reach."""

    def __init__(self, signer: LocalSigner) -> None:
        self.inner, self.is_down, self.asked = signer, False, 0
        self.alg, self.kid, self.public_key = signer.alg, signer.kid, signer.public_key

    def sign(self, data: bytes) -> bytes:
        self.asked += 1
        if self.is_down:
            raise OSError("the key service is out of reach")
        return self.inner.sign(data)


def test_what_a_revoked_key_signed_does_not_come_back_when_the_new_one_fails(clock: Clock) -> None:
    """Seen here: after one failure of the new key the card of the old one was served again, for ever."""
    old, new = Service(generate_signer()), Service(generate_signer())
    keys = Rotating(old, new)  # type: ignore[arg-type]
    source = CardSignedHere(CARD, CardSigner(keys), clock=clock)
    keys.signers.pop(0)
    new.is_down = True
    for _ in range(3):
        assert get(source, clock).status_code == 503
    new.is_down = False
    clock.now += 5
    assert verified(get(source, clock).content, new.inner, clock.now) == CARD


def test_a_signature_that_is_good_is_served_while_the_next_cannot_be_made(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    key = Service(generate_signer())
    source = CardSignedHere(CARD, CardSigner(key, lifetime=1000), clock=clock)
    first = get(source, clock).content
    key.is_down = True
    clock.now += 500
    for _ in range(3):
        assert get(source, clock).content == first
    assert len([record for record in caplog.records if "cannot be signed" in record.message]) == 1
    clock.now += 500
    assert get(source, clock).status_code == 503
    key.is_down = False
    clock.now += 5
    assert verified(get(source, clock).content, key.inner, clock.now) == CARD


def test_nobody_knows_who_signs(clock: Clock) -> None:
    keys = Rotating(generate_signer())
    source = CardSignedHere(CARD, CardSigner(keys), clock=clock)
    keys.signers.clear()
    assert get(source, clock).status_code == 503


def test_strangers_do_not_make_a_failing_key_work(clock: Clock) -> None:
    old, new = Service(generate_signer()), Service(generate_signer())
    keys = Rotating(old, new)  # type: ignore[arg-type]
    source = CardSignedHere(CARD, CardSigner(keys), clock=clock)
    keys.signers.pop(0)
    new.is_down = True
    for _ in range(50):
        assert get(source, clock).status_code == 503
    assert new.asked == 1
    clock.now += 5
    assert get(source, clock).status_code == 503
    assert new.asked == 2


class Slipping:
    """A source whose operator has just made a mistake."""

    def document(self, now: float) -> Any:
        raise ConfigurationError("the trust file is broken")


def test_a_mistake_of_the_operator_is_503_too(clock: Clock) -> None:
    assert get(Slipping(), clock).status_code == 503
