"""Trust on first use: the agents that it applies to, and the warnings and errors about such keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from a2a_trust.client.location import Location, named_location
from a2a_trust.dates import date_of
from a2a_trust.errors import PinnedKeyError
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.origins import Origins, host_of
from a2a_trust.keys.trust import TrustedKey, TrustStore


@dataclass(frozen=True, slots=True)
class TrustOnFirstUse:
    """Trusts the keys that an unknown agent's own origin publishes at first use, and only these keys from then on.

    An attacker who answers the first request is trusted until a person compares the thumbprint. It applies only to
    unknown agents: if the trust store has a key or a rule for a host, only the trust store decides.
    """

    def applies_to(self, url: str, trust: TrustStore) -> bool:
        """Whether the trust store has no entry for the host of ``url``, the URL of an agent or of its card."""
        host = host_of(named_location(url))
        return not any(each.covers(host) for each in trust.spoken_for)

    def trust_store(self, published: Iterable[PublicKey], url: str, trust: TrustStore) -> TrustStore:
        """The keys that the origin of ``url`` has published, trusted for its host; empty if this does not apply.

        Keys that the trust store of the operator names or revokes are left out, because that entry decides. A card that
        is verified with this store must go through ``CardMemory.admit``, which checks it as a first use.
        """
        # Only entries of the operator: a fetched key set must not block another party's first use.
        said = trust.revoked.union([entry.key.thumbprint for entry in trust.keys if entry.source is None])
        believed = [key for key in published if not said & {key.kid, key.thumbprint}]
        if not self.applies_to(url, trust):
            believed = []
        origins = Origins(host_of(named_location(url)))
        return TrustStore([TrustedKey(key=key, origins=origins, on_first_use=True) for key in believed])


def changed_key(
    location: Location, *, since: float, pinned: frozenset[str], presented: frozenset[str], accept: str
) -> PinnedKeyError:
    """The error for other keys than those remembered ``since``. ``accept`` is the command that accepts the new keys."""
    return PinnedKeyError(
        f"THE KEY OF {location} HAS CHANGED\n"
        "  Either the agent has a new key, or an attacker answers in its place. The card was rejected.\n"
        f"  remembered since {date_of(since)}: {_shown(pinned)}\n"
        f"  signed the card now: {_shown(presented)}\n"
        "  Ask the agent's operator, not the agent, for the thumbprint of its key. If it is the new one:\n"
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
        "  Either this agent has another key, or an attacker answers in its place. The card was rejected.\n"
        f"  remembered from first use for this host: {_shown(pinned) or 'no key; a trust store named the keys'}\n"
        f"  signed the card now: {_shown(presented)}\n"
        "  Ask the agent's operator, not the agent, for the thumbprint of its key. If it is this one:\n"
        f"    {accept}",
        location,
        presented=presented,
        pinned=pinned,
    )


def trusted_on_first_use(location: Location, presented: frozenset[str]) -> str:
    """The warning of every first use."""
    return (
        f"{location}: its key was trusted on first use and is remembered from now on: {_shown(presented)}. "
        f"Only {location.origin} itself confirms it: compare the thumbprint with the one from the agent's operator"
    )


def _shown(thumbprints: Iterable[str]) -> str:
    return ", ".join(sorted(thumbprints))
