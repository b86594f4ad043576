"""Changes of state in this process that operators must hear of. The code that finds one logs it and announces it."""

from __future__ import annotations

from enum import StrEnum
from threading import Lock
from typing import Any, Final, NamedTuple
from weakref import WeakSet


class StateKind(StrEnum):
    """A kind of change. The words are stable, for machines; docs/telemetry.md says what to do."""

    STORE_LOST = "store-lost"
    STORE_FOUND = "store-found"
    KEYS_STALE = "keys-stale"
    KEYS_FRESH = "keys-fresh"
    CARD_ENDS_SOON = "ends-soon"
    CARD_NOT_SERVED = "not-served"
    CARD_NOT_RELOADED = "not-reloaded"
    CARD_RELOADED = "reloaded"
    THROTTLE_BEGINS = "throttle-begins"


class StateChange(NamedTuple):
    """``detail`` names the store, the key set, the card or the peer, for people. It is no label."""

    kind: StateKind
    detail: str


#: Trails of ``middleware/audit``, as long as something else holds them.
_TRAILS: Final[WeakSet[Any]] = WeakSet()
_LOCK: Final = Lock()


def listen(trail: Any) -> None:
    """Pass all changes on to a trail."""
    with _LOCK:
        _TRAILS.add(trail)


def announce(change: StateChange) -> None:
    """Pass a change on, to each observer once."""
    with _LOCK:
        trails = {id(each.observer): each for each in _TRAILS}
    for trail in trails.values():
        trail.on_change(change)
