"""Whole cards: bytes to a verified card, and a card to a signed one."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from a2a_trust import CardVerifier, Origins, TrustedKey, TrustFile, TrustStore, publish_jwks, sign_card, verify_card
from a2a_trust.base.strict_json.jcs import canonicalize
from a2a_trust.keys import LocalSigner, PublicKey, SigningTool, base64url
from a2a_trust.keys.jws import signing_input
from a2a_trust.keys.trust.store import TrustSource
from a2a_trust.signing import SignedCard
from benchmarks import cards
from benchmarks.peers import obvious_verifier
from benchmarks.rounds import Contender, Row, Timer, repeated
from benchmarks.setting import Setting

__all__ = ["rows_sign_card", "rows_trust_files", "rows_verify_card"]

_ORIGIN: Final = f"https://{cards.HOST}"
_UNCHECKED: Final = "orjson + cryptography, nothing checked"
_FILES: Final = (1, 100, 1_000, 10_000)


def rows_verify_card(setting: Setting) -> Iterator[Row]:
    """Served bytes to the card that was signed, its origins bound."""
    yield _verify_card(setting, "card of one form", cards.without_surprises())
    yield _verify_card(setting, "card as json.dumps writes it, with blanks", cards.without_surprises(), has_blanks=True)
    yield _verify_card(setting, "card with an API key and a scope", cards.with_api_key("agent:use"))
    yield _verify_card(setting, "card with an API key without scopes", cards.with_api_key(), target=1.7)
    yield _verify_card(setting, "card without security", cards.without_security())
    for name, card in (
        ("card of one form", cards.without_surprises()),
        ("card with an API key without scopes", cards.with_api_key()),
        ("card without security", cards.without_security()),
    ):
        target = 1.7 if card == cards.with_api_key() else 1.6
        yield _verify_card(setting, f"{name}, signed by another tool", card, target=target, is_marked=False)
    yield _verify_card(setting, "card with fractions", cards.with_fractions())
    yield _verify_card(setting, "card with letters beyond ASCII and an emoji", cards.with_emoji())
    yield _verify_card(setting, "card with a companion", cards.with_companion(), target=None, companion=True)


def _verify_card(
    setting: Setting,
    name: str,
    card: dict[str, Any],
    *,
    target: float | None = 1.6,
    has_blanks: bool = False,
    is_marked: bool = True,
    companion: bool | None = None,
) -> Row:
    peers = setting.es256
    signed: _Signed | SignedCard = _signed_by_another_tool(card, peers.signer)
    if is_marked:
        signed = sign_card(card, peers.signer, companion=companion)
    document = json.dumps(signed.card).encode() if has_blanks else cards.served(signed.card)
    tool = None if is_marked else SigningTool.WHOLE
    trust = TrustStore([TrustedKey(key=peers.signer.public_key, origins=Origins(cards.HOST), signer=tool)])
    first = signed.card["signatures"][0]
    data = signing_input(first["protected"], signed.payload)
    raw_verify = peers.raw_verifier(base64url.decode(first["signature"], "signature"))
    verifier = CardVerifier(trust, clock=time.time)
    verifier.verify(document, origin=_ORIGIN)
    obvious = obvious_verifier([peers.signer.public_key.to_jwk()])

    def unchecked() -> Any:
        received = orjson.loads(document)
        protected = received.pop("signatures")[0]["protected"]
        payload = orjson.dumps(received, option=orjson.OPT_SORT_KEYS)
        raw_verify(signing_input(protected, payload))
        return orjson.loads(payload)

    now = time.time()
    is_comparable = orjson.dumps(card, option=orjson.OPT_SORT_KEYS) == signed.payload  # else it has the wrong bytes
    if not verify_card(document, trust, origin=_ORIGIN, now=now).card == obvious(document) == card:
        raise AssertionError(f"{name}: the contenders disagree")
    contenders = [
        Contender(name="cryptography verify (floor)", timer=repeated(lambda: raw_verify(data))),
        Contender(
            name="a2a_trust verify_card, .card taken",
            timer=repeated(lambda: verify_card(document, trust, origin=_ORIGIN, now=now).card),
            target=target if is_comparable else None,
            target_to=_UNCHECKED if is_comparable else None,
        ),
        Contender(
            name="a2a_trust CardVerifier, known card",
            timer=repeated(lambda: verifier.verify(document, origin=_ORIGIN)),
            target=0.05,
        ),
        Contender(
            name="a2a_trust CardVerifier, known, .card taken",
            timer=repeated(lambda: verifier.verify(document, origin=_ORIGIN).card),
        ),
        Contender(name="json + rfc8785 + joserfc", timer=repeated(lambda: obvious(document))),
    ]
    if is_comparable:
        contenders.insert(1, Contender(name=_UNCHECKED, timer=repeated(unchecked)))
    if card == cards.with_api_key() and is_marked:
        written = cards.served(cards.with_empty_list(signed.card))
        contenders.insert(
            3,
            Contender(
                name='a2a_trust verify_card, served with "list": []',
                timer=repeated(lambda: verify_card(written, trust, origin=_ORIGIN, now=now).card),
                target=target,
                target_to=_UNCHECKED,
            ),
        )
    if setting.sdk and card != cards.with_api_key():  # it drops the requirement, and rejects the card
        contenders.append(
            Contender(
                name="json + a2a-sdk", timer=setting.sdk.timer("verify", document, peers.signer.public_key.to_jwk())
            )
        )
    return Row(
        title=f"{name}, {len(document)} bytes, {len(signed.card['signatures'])} signature(s): bytes to verified card",
        baseline="cryptography verify (floor)",
        contenders=tuple(contenders),
        rounds=setting.rounds(80),
    )


class _Signed(NamedTuple):
    """What is needed here of a ``SignedCard``."""

    card: dict[str, Any]
    payload: bytes


def _signed_by_another_tool(card: dict[str, Any], signer: LocalSigner) -> _Signed:
    """The whole card, signed without our mark."""
    payload = canonicalize(card)
    protected = base64url.encode(canonicalize({"alg": signer.alg, "kid": signer.kid, "typ": "JOSE"}))
    signature = base64url.encode(signer.sign(signing_input(protected, payload)))
    return _Signed({**card, "signatures": [{"protected": protected, "signature": signature}]}, payload)


def rows_trust_files(setting: Setting) -> Iterator[Row]:
    """Verifications for longer than a second, so each round looks at every key file once."""
    signer = setting.es256.signer
    document = cards.served(sign_card(cards.without_surprises(), signer).card)
    with tempfile.TemporaryDirectory() as folder:
        key = TrustedKey(key=signer.public_key, origins=Origins(cards.HOST))
        contenders = [Contender(name="TrustStore", timer=_for_a_second(document, TrustStore([key])))]
        for number in _FILES:
            timer = _for_a_second(document, _trust_file(Path(folder) / str(number), signer.public_key, number))
            target = 1.1 if number <= 1_000 else None
            contenders.append(
                Contender(name=f"TrustFile, {number:,} key file{'s' if number > 1 else ''}", timer=timer, target=target)
            )
        yield Row(
            title="a card verified by the keys of a trust file",
            baseline="TrustStore",
            contenders=tuple(contenders),
            rounds=setting.rounds(10),
            notes=("a round lasts a second, so every file is looked at once in each round",),
        )


def _trust_file(folder: Path, key: PublicKey, number: int) -> TrustFile:
    """A trust file with so many entries, each with a key file and a host of its own."""
    folder.mkdir()
    entries = ["version = 1"]
    for at in range(number):
        published = publish_jwks([replace(key, kid=f"{key.kid}-{at}" if at else key.kid)])
        (folder / f"{at}.json").write_text(json.dumps(published))
        host = f"agent-{at}.{cards.HOST}" if at else cards.HOST
        entries.append(f'[[trust]]\norigins = ["{host}"]\nkeys = "{at}.json"')
    (folder / "trust.toml").write_text("\n".join(entries))
    return TrustFile(folder / "trust.toml")


def _for_a_second(document: bytes, trust: TrustSource) -> Timer:
    now = time.time()

    def timer() -> float:
        calls, start = 0, time.perf_counter()
        while (taken := time.perf_counter() - start) < 1.05:
            verify_card(document, trust, origin=_ORIGIN, now=now)
            calls += 1
        return taken / calls

    return timer


def rows_sign_card(setting: Setting) -> Iterator[Row]:
    """The bytes of a card to a signed card; ours checks the card and verifies its own work."""
    peers = setting.es256
    for name, card, target in (
        ("card of one form", cards.without_surprises(), 9),
        ("card with a companion", cards.with_companion(), 15),
    ):
        document = cards.served(card)
        data = signing_input("", document)
        contenders = [
            Contender(name="cryptography sign (floor)", timer=repeated(partial(peers.raw_sign, data))),
            Contender(
                name="a2a_trust sign_card",
                timer=repeated(partial(sign_card, document, peers.signer, companion=True)),
                target=target,
            ),
        ]
        if setting.sdk:
            timer = setting.sdk.timer("sign", document, peers.jwk)
            contenders.append(Contender(name="json + a2a-sdk", timer=timer))
        yield Row(
            title=f"{name}: bytes to signed card",
            baseline="cryptography sign (floor)",
            contenders=tuple(contenders),
            rounds=setting.rounds(80),
        )
