"""How many and whose signatures a card must have: any one by default, else a number of named keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.origins import Origins

__all__ = ["AnyKey", "OriginPolicy", "Policy", "Threshold", "all_of", "n_of", "named"]


@dataclass(frozen=True, slots=True)
class AnyKey:
    """One good signature by any trusted key is enough."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Good signatures by at least ``count`` different keys among those with the ``kids``.

    Two signatures by one key are one, also when the key is trusted under two kids; two keys under one kid are one too.
    """

    count: int
    kids: frozenset[str]

    def __post_init__(self) -> None:
        if not 1 <= self.count <= len(self.kids):
            raise ConfigurationError(
                f"the policy asks for {self.count} of {len(self.kids)} keys; ask for at least one, and name enough kids"
            )


Policy: TypeAlias = AnyKey | Threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginPolicy:
    """What the cards of some hosts need, whoever verifies them."""

    origins: Origins
    policy: Threshold


def all_of(*kids: str) -> Threshold:
    """Every one of these keys must have signed."""
    return Threshold(len(set(kids)), frozenset(kids))


def n_of(count: int, *kids: str) -> Threshold:
    """At least ``count`` of these keys must have signed."""
    return Threshold(count, frozenset(kids))


def named(kid: str) -> Threshold:
    """This key must have signed."""
    return Threshold(1, frozenset({kid}))
