"""Policies: how many parties must have signed a card. By default any one trusted key, else a number of named parties.

A party is a trust entry, by its name, or one key, by its RFC 7638 thumbprint. A kid does not name a party, because the
publisher of a key set chooses its kids.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.trust.origins import Origins

_THUMBPRINT: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_LONGEST_NAME: Final = 128


@dataclass(frozen=True, slots=True)
class AnyKey:
    """The default policy: one valid signature by any trusted key is enough."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """The policy of valid signatures by at least ``count`` of these ``parties``.

    ``parties`` are names of trust entries, or thumbprints of keys. Each key belongs to one party, and each party is
    counted once. Two keys of one entry are one party, unless the policy names both by thumbprint.
    """

    count: int
    parties: frozenset[str]

    def __post_init__(self) -> None:
        if not all(_check_texts(tuple(self.parties))):
            raise ConfigurationError("policy: the name of a party is empty; write a name or a thumbprint")
        if not 1 <= self.count <= len(self.parties):
            raise ConfigurationError(
                f"policy: it requires {self.count} of {len(self.parties)} parties; "
                "require at least one, and name enough parties"
            )

    def party_of(self, thumbprint: str, name: str | None) -> str | None:
        """The party of this key in the entry of that name; None if the policy names neither of them."""
        return thumbprint if thumbprint in self.parties else name if name in self.parties else None


Policy: TypeAlias = AnyKey | Threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginPolicy:
    """The policy for the cards of some hosts, which applies to every verification with a trust store."""

    origins: Origins
    policy: Threshold


def all_of(*parties: str) -> Threshold:
    """The policy that all of these parties must have signed."""
    return n_of(len(set(_check_texts(parties))), *parties)


def n_of(count: int, *parties: str) -> Threshold:
    """The policy that at least ``count`` of these parties must have signed."""
    return Threshold(count, frozenset(_check_texts(parties)))


def named(party: str) -> Threshold:
    """The policy that this party must have signed."""
    return n_of(1, party)


def _check_texts(parties: tuple[str, ...]) -> tuple[str, ...]:
    for party in parties:
        if not isinstance(party, str):
            raise ConfigurationError("policy: name parties one by one, as in n_of(2, 'bank', 'auditor')")
    return parties


def is_thumbprint(text: str) -> bool:
    """Whether the text has the shape of an RFC 7638 SHA-256 thumbprint in base64url."""
    return _THUMBPRINT.fullmatch(text) is not None


def party_name(name: object) -> str:
    """The name of a party; ConfigurationError unless it is short printable text, and not a thumbprint."""
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise ConfigurationError(f"name: write 1 to {_LONGEST_NAME} printable characters")
    if is_thumbprint(name):
        raise ConfigurationError("name: it looks like the thumbprint of a key; choose another name")
    return name
