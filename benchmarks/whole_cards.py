"""Whole cards: bytes to a verified card, and a card to a signed one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import orjson

from a2a_trust import CardVerifier, Origins, TrustedKey, TrustStore, sign_card, verify_card
from a2a_trust.keys import base64url
from a2a_trust.keys.jws import signing_input
from benchmarks import cards
from benchmarks.peers import obvious_verifier
from benchmarks.rounds import Contender, Row, repeated
from benchmarks.setting import Setting

__all__ = ["rows_sign_card", "rows_verify_card"]

_ORIGIN = f"https://{cards.HOST}"


def rows_verify_card(setting: Setting) -> Iterator[Row]:
    """Served bytes to the card that was signed, its origins bound."""
    yield _verify_card(setting, "card of one form", cards.without_surprises(), target=1.76)
    yield _verify_card(setting, "card as json.dumps writes it, with blanks", cards.without_surprises(), has_blanks=True)
    yield _verify_card(setting, "card with fractions", cards.with_fractions())
    yield _verify_card(setting, "card with letters beyond ASCII and an emoji", cards.with_emoji())
    yield _verify_card(setting, "card with a companion", cards.with_companion())


def _verify_card(
    setting: Setting, name: str, card: dict[str, Any], *, target: float | None = None, has_blanks: bool = False
) -> Row:
    peers = setting.es256
    signed = sign_card(card, peers.signer, companion=True)
    document = json.dumps(signed.card).encode() if has_blanks else cards.served(signed.card)
    trust = TrustStore([TrustedKey(key=peers.signer.public_key, origins=Origins(cards.HOST))])
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

    if not verify_card(document, trust, origin=_ORIGIN, now=0).card == obvious(document) == card:
        raise AssertionError(f"{name}: the contenders disagree")
    contenders = [
        Contender(name="cryptography verify (floor)", timer=repeated(lambda: raw_verify(data))),
        Contender(
            name="a2a_trust verify_card, .card taken",
            timer=repeated(lambda: verify_card(document, trust, origin=_ORIGIN, now=0).card),
            target=target,
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
    if orjson.dumps(card, option=orjson.OPT_SORT_KEYS) == signed.payload:  # else it has the wrong bytes
        contenders.insert(1, Contender(name="orjson + cryptography, nothing checked", timer=repeated(unchecked)))
    if setting.sdk:
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


def rows_sign_card(setting: Setting) -> Iterator[Row]:
    """The bytes of a card to a signed card; ours checks the card and verifies its own work."""
    peers = setting.es256
    for name, card in (
        ("card of one form", cards.without_surprises()),
        ("card with a companion", cards.with_companion()),
    ):
        document = cards.served(card)
        data = signing_input("", document)
        contenders = [
            Contender(name="cryptography sign (floor)", timer=repeated(partial(peers.raw_sign, data))),
            Contender(
                name="a2a_trust sign_card",
                timer=repeated(partial(sign_card, document, peers.signer, companion=True)),
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
