"""Trust on first use: whom it applies to, and what people are told of keys that were trusted so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from a2a_trust.client.location import Location, named_location
from a2a_trust.dates import date_of
from a2a_trust.errors import PinnedKeyError
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.origins import Origins, host_of
from a2a_trust.keys.trust import TrustedKey, TrustStore

__all__ = ["TrustOnFirstUse", "changed_key", "other_key_of_host", "trusted_on_first_use"]


@dataclass(frozen=True, slots=True)
class TrustOnFirstUse:
    """The choice to believe the keys that an agent's own origin publishes, once, and to hold it to them from then on.

    Whoever answers in the agent's place the first time is believed until somebody compares the thumbprint. It is for
    agents of which nothing is known: if the trust store names a key for a host, or demands something of its cards, only
    the trust store counts.
    """

    def applies_to(self, url: str, trust: TrustStore) -> bool:
        """Whether the trust store says nothing about the host of ``url``, the URL of an agent or of its card."""
        host = host_of(named_location(url))
        return not any(each.covers(host) for each in trust.spoken_for)

    def trust_store(self, published: Iterable[PublicKey], url: str, trust: TrustStore) -> TrustStore:
        """The keys that the origin of ``url`` has published, trusted for its host; none if this does not apply.

        A key that the operator wrote down anywhere is left out: how far it is trusted was said there. So is one that is
        revoked there, by name or by thumbprint. A card that is verified with this store must go through
        ``CardMemory.admit``, which knows it by its mark.
        """
        # Only what the operator wrote down: a stranger's key set must not block another party's first use.
        said = trust.revoked.union([entry.key.thumbprint for entry in trust.keys if entry.source is None])
        believed = [key for key in published if not said & {key.kid, key.thumbprint}]
        if not self.applies_to(url, trust):
            believed = []
        origins = Origins(host_of(named_location(url)))
        return TrustStore([TrustedKey(key=key, origins=origins, on_first_use=True) for key in believed])


def changed_key(
    location: Location, *, since: float, pinned: frozenset[str], presented: frozenset[str], accept: str
) -> PinnedKeyError:
    """The error for other keys than those remembered ``since``. ``accept`` is what a person writes who knows better."""
    return PinnedKeyError(
        f"THE KEY OF {location} HAS CHANGED\n"
        "  Either the agent has a new key, or somebody answers in its place. The card was rejected.\n"
        f"  remembered since {date_of(since)}: {_shown(pinned)}\n"
        f"  signed the card now: {_shown(presented)}\n"
        "  Ask whoever runs the agent, not the agent, for the thumbprint of its key. If it is the new one:\n"
        f"    {accept}",
        location,
        presented=presented,
        pinned=pinned,
    )


def other_key_of_host(
    location: Location, *, pinned: frozenset[str], presented: frozenset[str], accept: str
) -> PinnedKeyError:
    """The error for a first use with other keys than those remembered for other locations of the host."""
    return PinnedKeyError(
        f"ANOTHER KEY AT {location.origin}\n"
        f"  {location} is new here, and its card is signed by a key that is not remembered from first use for this "
        "host.\n"
        "  Either this agent has a key of its own, or somebody answers in its place. The card was rejected.\n"
        f"  remembered from first use for this host: {_shown(pinned) or 'none; a trust store named the keys'}\n"
        f"  signed the card now: {_shown(presented)}\n"
        "  Ask whoever runs the agent, not the agent, for the thumbprint of its key. If it is this one:\n"
        f"    {accept}",
        location,
        presented=presented,
        pinned=pinned,
    )


def trusted_on_first_use(location: Location, presented: frozenset[str]) -> str:
    """The warning that comes with every first use."""
    return (
        f"{location}: its key was trusted on first use and is remembered from now on: {_shown(presented)}. "
        f"Only {location.origin} vouches for it: compare the thumbprint with what whoever runs the agent tells you"
    )


def _shown(thumbprints: Iterable[str]) -> str:
    return ", ".join(sorted(thumbprints))
