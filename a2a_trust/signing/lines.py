"""Cards in JSON Lines: one card, or one card with its origin, in each line.

    {"origin": "https://agent.example.com", "card": {"name": "…", "signatures": […]}}

``name`` may stand beside ``origin``: a name of the card for reports. A line may also be a card without anything around
it; its origin must then be known otherwise. ``verify_lines`` is pure, so programs may spread lines over machines.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final

from msgspec import MsgspecError, Raw
from msgspec.json import Decoder

from a2a_trust.base import strict_json
from a2a_trust.base.dates import seconds
from a2a_trust.base.strict_json import JSONObject
from a2a_trust.errors import ConfigurationError, MalformedError, TrustError, with_option
from a2a_trust.keys.trust.file import read_trust
from a2a_trust.keys.trust.origins import OriginFromCard, UnsafeAnyOrigin, host_of
from a2a_trust.keys.trust.store import TrustStore
from a2a_trust.signing.verify import report_of_error, report_of_verified, verify_card

MAX_LINE_BYTES: Final = strict_json.MAX_BYTES + 8192
"""The longest line that is read: the largest card, with a name and an origin."""
_COLUMNS: Final = frozenset({"name", "origin", "card"})
_members: Final = Decoder(dict[str, Raw]).decode


@dataclass(frozen=True, slots=True)
class CardLine:
    """A line: the card, unread, and its name and origin if the line has them."""

    card: bytes
    name: str | None = None
    origin: str | None = None
    is_card: bool = True
    """Whether the line is the card, without anything around it."""

    def with_card(self, card: bytes) -> bytes:
        """The line with that card in place of its own, without line end."""
        if self.is_card:
            return card
        known = {"name": self.name, "origin": self.origin}
        members = (f'"{name}":{json.dumps(value)},' for name, value in known.items() if value is not None)
        return b'{%b"card":%b}' % ("".join(members).encode(), card)


def read_line(line: bytes) -> CardLine:
    """Read a line.

    MalformedError: it is not a JSON object, it has other members beside ``card``, or its origin is no URL and no host.
    """
    if len(line) > MAX_LINE_BYTES:
        raise MalformedError(f"line: longer than {MAX_LINE_BYTES} bytes")
    try:
        members = _members(line)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        strict_json.parse(line, what="line")  # says what is wrong
        raise MalformedError("line: not a JSON object; write one card in each line") from None
    if "card" not in members:
        return CardLine(line)
    parts = {name: bytes(value) for name, value in members.items()}
    unknown = sorted(parts.keys() - _COLUMNS)
    # msgspec keeps the last of two members with one name. Their quotation marks show that there was another.
    if unknown or line.count(b'"') != sum(2 + part.count(b'"') for part in parts.values()):
        raise MalformedError(
            f"line: {ascii(unknown[0])[:80] if unknown else 'a member that occurs twice'} beside card; write "
            '{"name": "…", "origin": "https://…", "card": {…}}, each once, name and origin only if wanted'
        )
    origin = _text(parts, "origin")
    if origin is not None:
        try:
            host_of(origin)
        except MalformedError as error:
            raise MalformedError(f"line: origin: {error}") from None
    return CardLine(parts["card"], _text(parts, "name"), origin, is_card=False)


def _text(parts: dict[str, bytes], name: str) -> str | None:
    if name not in parts:
        return None
    value = strict_json.parse(parts[name], what=f"line: {name}")
    if type(value) is not str or not value:
        raise MalformedError(f"line: {name} must be a string that is not empty; leave it out if it is not known")
    return value


def verify_lines(
    lines: Iterable[str | bytes],
    trust: str,
    *,
    origin: OriginFromCard | UnsafeAnyOrigin | None = None,
    now: float | datetime | None = None,
) -> list[str]:
    """Verify the cards in some lines. Returns a report for each of them: one JSON object in one line.

    - ``lines``: JSON Lines of cards, with or without line ends. A line without anything but blanks is left out.
    - ``trust``: the text of a trust file that names no other files and no URLs. A process reads it once.
    - ``origin``: the origin of cards whose line names none; without it, such a card is not verified.
    - ``now``: as for ``verify_card``.

    A report has the line's ``name``, ``ok``, and the members of the report of ``a2a-sign verify --json-lines``: for a
    verified card ``card`` and who signed it, otherwise ``code`` and ``message``.

    ConfigurationError: the trust file, or an argument, is wrong.
    """
    store = _store_of(trust)
    moment = time.time() if now is None else seconds(now)
    reports = []
    for line in lines:
        data = (line.encode() if isinstance(line, str) else line).strip()
        if data:
            reports.append(json.dumps(_report(data, store, origin, moment)))
    return reports


@lru_cache(maxsize=8)
def _store_of(trust: str) -> TrustStore:
    document = read_trust(trust.encode(), "trust")
    if document.urls or any(entry.file is not None for entry in document.entries):
        raise ConfigurationError(
            "trust: it names key files or URLs, which a worker may not have; add their keys to it: a2a-sign trust add "
            "trust.toml --origin HOST --jwks FILE"
        )
    return document.store({}, {})


def _report(data: bytes, store: TrustStore, origin: OriginFromCard | UnsafeAnyOrigin | None, now: float) -> JSONObject:
    name = None
    try:
        line = read_line(data)
        name = line.name
        verified = verify_card(line.card, store, origin=origin_in(line, origin), now=now)
    except TrustError as error:
        return {"name": name, "ok": False, **report_of_error(error, str(error))}
    return {"name": name, "ok": True, **report_of_verified(verified), "card": verified.card}


def origin_in(
    line: CardLine, origin: str | OriginFromCard | UnsafeAnyOrigin | None
) -> str | OriginFromCard | UnsafeAnyOrigin:
    """The origin in the line, else the given one; MalformedError if there is neither."""
    found = origin if line.origin is None else line.origin
    if found is None:
        text = 'line: no origin; write {"origin": "https://…", "card": {…}}, or '
        raise with_option(MalformedError(f"{text}origin=OriginFromCard()"), f"{text}--origin-from-card")
    return found
