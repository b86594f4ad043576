"""How many parties must have signed a card: any one key by default, else a number of named parties.

A party is a trust entry, by its name, or one key, by its RFC 7638 thumbprint. Kids name nobody here: whoever publishes
a key set chooses the kids in it. A later version may also demand algorithms within one party.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.origins import Origins

__all__ = [
    "AnyKey",
    "OriginPolicy",
    "Policy",
    "Threshold",
    "all_of",
    "check_party_name",
    "is_thumbprint",
    "n_of",
    "named",
]

_THUMBPRINT: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_LONGEST_NAME: Final = 128


@dataclass(frozen=True, slots=True)
class AnyKey:
    """One good signature by any trusted key is enough."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Good signatures by at least ``count`` of these ``parties``: names of trust entries, or thumbprints of keys.

    Each key counts for one party, and each party once. Two keys of one entry are one party, unless the policy names
    both by thumbprint.
    """

    count: int
    parties: frozenset[str]

    def __post_init__(self) -> None:
        if not all(_texts(tuple(self.parties))):
            raise ConfigurationError("policy: the name of a party is empty")
        if not 1 <= self.count <= len(self.parties):
            raise ConfigurationError(
                f"policy: it demands {self.count} of {len(self.parties)} parties; "
                "demand at least one, and name enough parties"
            )

    def party_of(self, thumbprint: str, name: str | None) -> str | None:
        """The party for which this key of the entry of that name counts; None when the policy names neither."""
        return thumbprint if thumbprint in self.parties else name if name in self.parties else None


Policy: TypeAlias = AnyKey | Threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginPolicy:
    """What the cards of some hosts need, whoever verifies them."""

    origins: Origins
    policy: Threshold


def all_of(*parties: str) -> Threshold:
    """Every one of these parties must have signed."""
    return n_of(len(set(_texts(parties))), *parties)


def n_of(count: int, *parties: str) -> Threshold:
    """At least ``count`` of these parties must have signed."""
    return Threshold(count, frozenset(_texts(parties)))


def named(party: str) -> Threshold:
    """This party must have signed."""
    return n_of(1, party)


def _texts(parties: tuple[str, ...]) -> tuple[str, ...]:
    for party in parties:
        if not isinstance(party, str):
            raise ConfigurationError("policy: name parties one by one, as in n_of(2, 'bank', 'auditor')")
    return parties


def is_thumbprint(text: str) -> bool:
    """Whether the text has the shape of an RFC 7638 SHA-256 thumbprint in base64url."""
    return _THUMBPRINT.fullmatch(text) is not None


def check_party_name(name: object) -> None:
    """ConfigurationError unless this can be the name of a party: short printable text that is no thumbprint."""
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise ConfigurationError(f"name: write 1 to {_LONGEST_NAME} printable characters")
    if is_thumbprint(name):
        raise ConfigurationError("name: it looks like the thumbprint of a key; choose another name")
