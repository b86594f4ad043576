"""Canonical bytes (RFC 8785): from a dict, and from bytes that a stranger sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import orjson
import rfc8785

from a2a_trust.base.strict_json import read
from a2a_trust.base.strict_json.jcs import canonicalize, canonicalize_parsed
from benchmarks import cards
from benchmarks.rounds import Contender, Row, repeated
from benchmarks.setting import Setting

__all__ = ["rows_from_bytes", "rows_from_dict"]

_CARDS = (
    ("card", cards.without_surprises, 0.12, 0.10),
    ("card with fractions", cards.with_fractions, 0.25, 0.25),
    ("card with letters beyond ASCII and an emoji", cards.with_emoji, 0.15, 0.13),
)
"""The name of a card, the card, and the targets from a dict and from bytes."""


def rows_from_dict(setting: Setting) -> Iterator[Row]:
    """A dict to its canonical bytes."""
    for name, make, dict_target, _ in _CARDS:
        card = make()
        if canonicalize(card) != rfc8785.dumps(card):
            raise AssertionError(f"{name}: canonicalize and rfc8785 differ")
        contenders = [
            Contender(
                name="orjson, sorted keys (floor)",
                timer=repeated(partial(orjson.dumps, card, option=orjson.OPT_SORT_KEYS)),
            ),
            Contender(name="a2a_trust canonicalize", timer=repeated(partial(canonicalize, card)), target=dict_target),
            Contender(name="rfc8785", timer=repeated(partial(rfc8785.dumps, card))),
        ]
        if setting.sdk:
            timer = setting.sdk.timer("canonical bytes of a dict", cards.served(card))
            contenders.append(Contender(name="a2a-sdk (into its model first)", timer=timer))
        yield Row(
            title=f"{name}: canonical bytes from a dict",
            baseline="rfc8785",
            contenders=tuple(contenders),
            rounds=setting.rounds(80),
        )


def rows_from_bytes(setting: Setting) -> Iterator[Row]:
    """Served bytes to canonical bytes; ours refuses duplicate members, the peers do not."""
    for name, make, _, target in _CARDS:
        document = cards.served(make())
        contenders = [
            Contender(name="orjson loads + dumps (floor)", timer=repeated(partial(_with_orjson, document))),
            Contender(
                name="a2a_trust read + canonicalize", timer=repeated(partial(_with_a2a_trust, document)), target=target
            ),
            Contender(name="json + rfc8785", timer=repeated(partial(_with_rfc8785, document))),
        ]
        if setting.sdk:
            timer = setting.sdk.timer("canonical bytes of bytes", document)
            contenders.append(Contender(name="json + a2a-sdk", timer=timer))
        yield Row(
            title=f"{name}: canonical bytes from bytes",
            baseline="json + rfc8785",
            contenders=tuple(contenders),
            rounds=setting.rounds(80),
            notes=("only a2a_trust rejects duplicate members here",),
        )


def _with_orjson(document: bytes) -> bytes:
    return orjson.dumps(orjson.loads(document), option=orjson.OPT_SORT_KEYS)


def _with_a2a_trust(document: bytes) -> bytes:
    value, plain = read(document)  # as verify_card does it
    return canonicalize_parsed(value, plain=plain)


def _with_rfc8785(document: bytes) -> bytes:
    return rfc8785.dumps(json.loads(document))
