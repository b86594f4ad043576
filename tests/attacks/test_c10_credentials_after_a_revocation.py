"""The key of a card is revoked while a program has the card, and the program goes on sending its credentials."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2a_trust import (
    CardVerificationError,
    CardVerifier,
    Fetcher,
    FetchOptions,
    Origins,
    TrustedKey,
    TrustFile,
    TrustStore,
    VerifiedCard,
    fetch_card,
    generate_signer,
    sign_card,
    verify_card,
)
from a2a_trust.base.strict_json.jcs import canonicalize
from a2a_trust.client import (
    ApiKey,
    CardAuth,
    CredentialsError,
    SqliteCardMemory,
    TrustOnFirstUse,
    UnsafePassAnything,
    UnverifiedCardError,
    fetch_extended_card,
    verifying_client,
)
from a2a_trust.keys import UnsafeAnyOrigin, all_of, publish_jwks
from a2a_trust.keys.trust.origins import JWKS_PATH
from a2a_trust.keys.trust.policy import OriginPolicy
from tests.attacks.calling import KEY, VICTIM, Ask, Servers
from tests.client.agents import NEW, OWNER, card_of, signed

AUDITOR = generate_signer("ES256", kid="auditor")


def trusted(**limits: Any) -> TrustedKey:
    return TrustedKey(key=OWNER.public_key, origins=Origins(VICTIM), **limits)


class ChangingTrust:
    """Trusted keys that change. ``fetched`` are those that a fetch finds."""

    def __init__(self, *keys: TrustedKey, **more: Any) -> None:
        self.store = TrustStore(keys, **more)
        self.fetched = self.store

    def trust_store(self) -> TrustStore:
        return self.store

    async def fetch(self, origin: str | None = None) -> TrustStore:
        assert origin is None or origin == VICTIM or origin.startswith(f"https://{VICTIM}:")
        if self.fetched is not self.store:
            self.store = self.fetched
        return self.store

    def become(self, store: TrustStore) -> None:
        self.store = self.fetched = store


def auth_for(servers: Servers, trust: Any, card: VerifiedCard | None = None, **options: Any) -> CardAuth:
    card = card or verify_card(signed(card_of(servers.origin)), trust, origin=servers.origin)
    return CardAuth(card, {"key": ApiKey(KEY, origins=[servers.origin])}, trust=trust, **options)


def assert_stops(servers: Servers, asks: Ask, auth: CardAuth, match: str) -> None:
    sent = len(servers.agent.asked)
    for _ in range(2):
        with pytest.raises(CredentialsError, match="not verified any more") as refused:
            asks(auth, f"{servers.origin}/rpc")
        assert match in str(refused.value)
    assert len(servers.agent.asked) == sent


CHANGES = {
    "revoked": (TrustStore([trusted(revoked=True)]), "revoked"),
    "revoked by thumbprint": (TrustStore([trusted()], revoked=[OWNER.public_key.thumbprint]), "revoked"),
    "removed": (TrustStore([]), "this kid"),
    "for another host": (TrustStore([TrustedKey(key=OWNER.public_key, origins=Origins("other.example"))]), "host"),
    "ended": (TrustStore([trusted(not_after=time.time() - 60)]), "expired"),
    "an auditor must sign": (
        TrustStore(
            [trusted(name="bank"), TrustedKey(key=AUDITOR.public_key, origins=Origins(VICTIM), name="auditor")],
            [OriginPolicy(origins=Origins(VICTIM), policy=all_of("bank", "auditor"))],
        ),
        "only 1 of the 2 parties",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_credential_after_the_trust_has_changed(servers: Servers, asks: Ask, change: str) -> None:
    trust = ChangingTrust(trusted())
    auth = auth_for(servers, trust)
    asks(auth, f"{servers.origin}/rpc")
    store, reason = CHANGES[change]
    trust.become(store)
    assert_stops(servers, asks, auth, reason)
    trust.become(TrustStore([trusted()]))
    asks(auth, f"{servers.origin}/rpc")
    assert [asked.headers["x-api-key"] for asked in servers.agent.asked] == [KEY, KEY]


def test_no_credential_a_second_after_a_line_in_the_trust_file(
    servers: Servers, asks: Ask, tmp_path: Path, next_second: Callable[[], None]
) -> None:
    path = tmp_path / "trust.toml"
    (tmp_path / "owner.json").write_bytes(canonicalize(publish_jwks(OWNER.public_key)))
    path.write_text(f'version = 1\n[[trust]]\norigins = ["{VICTIM}"]\nkeys = "owner.json"\n')
    auth = auth_for(servers, TrustFile(path))
    asks(auth, f"{servers.origin}/rpc")
    path.write_text(f'{path.read_text()}[[revoked]]\nthumbprint = "{OWNER.public_key.thumbprint}"\n')
    next_second()
    assert_stops(servers, asks, auth, "revoked")


REVOKED_JWK = {**OWNER.public_key.to_jwk(), "revoked": True}


@pytest.mark.parametrize("file", ["trust.toml", "owner.json"])
def test_nothing_is_verified_a_second_after_a_revocation_however_often_it_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """The files are not looked at for every card. What is verified in between must not put the next look off."""
    now = [1_000.0]
    monkeypatch.setattr("a2a_trust.base.files.watched.monotonic", lambda: now[0])
    path = tmp_path / "trust.toml"
    (tmp_path / "owner.json").write_bytes(canonicalize(publish_jwks(OWNER.public_key)))
    path.write_text(f'version = 1\n[[trust]]\norigins = ["{VICTIM}"]\nkeys = "owner.json"\n')
    trust = TrustFile(path)
    verifier, origin = CardVerifier(trust), f"https://{VICTIM}"
    document = signed(card_of(origin))
    ways: dict[str, Callable[[], object]] = {
        "cached": lambda: verifier.verify(document, origin=origin),
        "new": lambda: verify_card(document, trust, origin=origin),
        "fetched": lambda: verify_card(document, asyncio.run(trust.fetch(origin)), origin=origin),
    }
    for _ in range(7):  # control
        now[0] += 0.25
        assert [way() is not None for way in ways.values()] == [True, True, True]
    if file == "trust.toml":
        path.write_text(f'{path.read_text()}[[revoked]]\nthumbprint = "{OWNER.public_key.thumbprint}"\n')
    else:
        (tmp_path / file).write_bytes(canonicalize({"keys": [REVOKED_JWK]}))
    for _ in range(4):
        for way in ways.values():
            with suppress(CardVerificationError):
                way()
        now[0] += 0.25
    for way in ways.values():
        with pytest.raises(CardVerificationError, match="revoked"):
            way()


def test_a_card_from_before_the_revocation_answers_nothing(servers: Servers, asks: Ask) -> None:
    card = verify_card(signed(card_of(servers.origin)), TrustStore([trusted()]), origin=servers.origin)
    assert_stops(servers, asks, auth_for(servers, TrustStore([trusted(revoked=True)]), card), "revoked")


def test_a_key_set_on_the_network_is_asked_every_five_minutes(servers: Servers, asks: Ask) -> None:
    trust, now = ChangingTrust(trusted()), [time.time() + 60]
    auth = auth_for(servers, trust, clock=lambda: now[0])
    asks(auth, f"{servers.origin}/rpc")
    trust.fetched = TrustStore([trusted(revoked=True)])
    now[0] += 299
    asks(auth, f"{servers.origin}/rpc")  # control: it is not asked for each request
    now[0] += 1
    assert_stops(servers, asks, auth, "revoked")


def test_the_policy_of_the_program_counts_each_time(servers: Servers, asks: Ask) -> None:
    """Two parties had to sign; one of their keys is revoked, and the other one still verifies the card."""
    auditor = TrustedKey(key=AUDITOR.public_key, origins=Origins(VICTIM), name="auditor")
    trust = ChangingTrust(trusted(name="bank"), auditor)
    document = canonicalize(sign_card(card_of(servers.origin), OWNER, AUDITOR).card)
    card = verify_card(document, trust, origin=servers.origin, policy=all_of("bank", "auditor"))
    auth = auth_for(servers, trust, card)
    asks(auth, f"{servers.origin}/rpc")
    trust.become(TrustStore([trusted(name="bank"), auditor], revoked=[AUDITOR.public_key.thumbprint]))
    assert_stops(servers, asks, auth, "only 1 of the 2 parties")


def first_used(servers: Servers, trust: Any, folder: Path) -> VerifiedCard:
    servers.agent.pages.update(
        {NEW: signed(card_of(servers.origin)), JWKS_PATH: canonicalize(publish_jwks(OWNER.public_key))}
    )
    fetcher = Fetcher(private_origins=[servers.origin], ssl_context=servers.authority.client())
    memory = SqliteCardMemory(folder / "memory.sqlite", create=True)
    options = FetchOptions(fetcher=fetcher, memory=memory, on_first_use=TrustOnFirstUse())
    card = fetch_card(servers.origin, trust, options)
    assert card.on_first_use
    return card


@pytest.mark.parametrize(
    "store",
    [
        TrustStore([], revoked=[OWNER.public_key.thumbprint]),
        TrustStore([TrustedKey(key=AUDITOR.public_key, origins=Origins(VICTIM))]),
    ],
    ids=["revoked", "another key for the host"],
)
def test_a_key_of_first_use_counts_until_the_trust_decides(
    servers: Servers, asks: Ask, tmp_path: Path, store: TrustStore
) -> None:
    trust = ChangingTrust()
    auth = auth_for(servers, trust, first_used(servers, trust, tmp_path))
    asks(auth, f"{servers.origin}/rpc")
    trust.become(TrustStore([TrustedKey(key=AUDITOR.public_key, origins=Origins("other.example"))]))
    asks(auth, f"{servers.origin}/rpc")
    trust.become(store)
    assert_stops(servers, asks, auth, "")


@pytest.mark.parametrize("also", ["origin", "anything"])
def test_a_verifying_client_whose_transport_does_not_ask(servers: Servers, bundle: Path, also: str) -> None:
    servers.agent.pages[NEW] = signed(card_of(servers.origin))
    trust = ChangingTrust(trusted())

    async def call() -> None:
        async with verifying_client(
            servers.origin,
            trust=trust,
            credentials={"key": ApiKey(KEY, origins=[servers.origin])},
            also=UnsafePassAnything() if also == "anything" else [servers.origin],
            authorities=bundle,
        ) as http:
            assert (await http.post(f"{servers.origin}/rpc", json={})).is_success
            trust.become(TrustStore([trusted()]))
            assert (await http.post(f"{servers.origin}/rpc", json={})).is_success
            assert servers.agent.paths() == [NEW, "/rpc", "/rpc"]  # control: what is still verified is not fetched
            trust.become(TrustStore([trusted(revoked=True)]))
            with pytest.raises((CredentialsError, UnverifiedCardError), match="revoked"):
                await http.post(f"{servers.origin}/rpc", json={})

    asyncio.run(call())
    assert servers.agent.paths() == [NEW, "/rpc", "/rpc", NEW]


def test_a_verifying_client_takes_the_newer_card(servers: Servers, bundle: Path) -> None:
    """The owner signs with another key, and the old one is revoked: the program goes on with the new card."""
    servers.agent.pages[NEW] = signed(card_of(servers.origin))
    successor = TrustedKey(key=AUDITOR.public_key, origins=Origins(VICTIM))
    trust = ChangingTrust(trusted(), successor)

    async def call() -> list[httpx.Response]:
        async with verifying_client(
            servers.origin,
            trust=trust,
            credentials={"key": ApiKey(KEY, origins=[servers.origin])},
            authorities=bundle,
        ) as http:
            first = await http.post(f"{servers.origin}/rpc", json={})
            servers.agent.pages[NEW] = signed(card_of(servers.origin), by=AUDITOR)
            trust.become(TrustStore([trusted(revoked=True), successor]))
            return [first, *await asyncio.gather(*[http.post(f"{servers.origin}/rpc", json={}) for _ in range(3)])]

    assert [answer.status_code for answer in asyncio.run(call())] == [200] * 4
    assert [asked.headers["x-api-key"] for asked in servers.agent.asked if asked.path == "/rpc"] == [KEY] * 4


def test_no_credential_for_the_extended_card_of_a_card_that_is_not_verified_any_more(servers: Servers) -> None:
    card = verify_card(signed(card_of(servers.origin)), TrustStore([trusted()]), origin=servers.origin)
    fetcher = Fetcher(private_origins=[servers.origin], ssl_context=servers.authority.client())
    with pytest.raises(CardVerificationError, match="revoked"):
        fetch_extended_card(
            card,
            TrustStore([trusted(revoked=True)]),
            headers={"X-API-Key": KEY},
            options=FetchOptions(fetcher=fetcher),
        )
    assert servers.agent.asked == []


def test_control_a_card_for_no_host_is_verified_again_for_none(servers: Servers, asks: Ask) -> None:
    anywhere = TrustedKey(key=OWNER.public_key, origins=UnsafeAnyOrigin())
    trust = ChangingTrust(anywhere)
    card = verify_card(signed(card_of(servers.origin)), trust, origin=UnsafeAnyOrigin())
    auth = auth_for(servers, trust, card)
    asks(auth, f"{servers.origin}/rpc")
    trust.become(TrustStore([anywhere], revoked=[OWNER.public_key.thumbprint]))
    assert_stops(servers, asks, auth, "revoked")
