"""Trust on first use, and the agents that it applies to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from a2a_trust.client.location import named_location
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.trust.origins import Origins, host_of
from a2a_trust.keys.trust.store import TrustedKey, TrustStore


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
        applies = self.applies_to(url, trust)
        believed = [key for key in published if applies and not said & {key.kid, key.thumbprint}]
        origins = Origins(host_of(named_location(url)))
        return TrustStore([TrustedKey(key=key, origins=origins, on_first_use=True) for key in believed])
