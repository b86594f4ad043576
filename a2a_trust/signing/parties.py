"""Choose the signatures that count, with enough parties for every policy: of the caller and of the trust store."""

from __future__ import annotations

from a2a_trust.errors import PolicyNotMetError, SignatureFailure, verification_error
from a2a_trust.keys.trust.policy import AnyKey, Policy, Threshold
from a2a_trust.signing.verify_signature import VerifiedSignature


def count_signatures(
    verified: list[VerifiedSignature], policies: list[Policy], failures: tuple[SignatureFailure, ...]
) -> list[VerifiedSignature]:
    """The signatures that the policies count, at least one for each policy.

    ``failures`` go into the error. PolicyNotMetError: trusted keys have signed, but not enough parties.
    CardVerificationError: no signature counts.
    """
    best_first = sorted(verified, key=_preference)
    counted: list[VerifiedSignature] = []
    for policy in policies:
        if isinstance(policy, AnyKey):
            chosen, needed, text = best_first[:1], 1, "no signature verifies this card:"
        else:
            chosen, needed = _one_of_each_party(best_first, policy)[: policy.count], policy.count
            text = f"only {len(chosen)} of the {needed} parties that the policy requires have signed this card:"
        if len(chosen) < needed:
            raise PolicyNotMetError(text, failures) if best_first else verification_error(text, failures)
        counted += [each for each in chosen if each not in counted]
    return counted


def _preference(signature: VerifiedSignature) -> tuple[bool, int, float]:
    """The fullest coverage first, then the latest. The order in the card is not signed, so it must not decide which
    signature counts, and with it the entry in the card memory."""
    return (*signature.openness, -signature.issued)


def _one_of_each_party(signatures: list[VerifiedSignature], policy: Threshold) -> list[VerifiedSignature]:
    """The largest possible number of signatures by different parties, keys and signatures, best first.

    A key may be in the entries of several parties, and several keys may verify one signature. All of these belong to
    one party, chosen so that the most parties are satisfied (a maximum matching, by augmenting paths).
    """
    offers = [
        (party, signature)
        for signature in signatures
        if (party := policy.party_of(signature.trusted.key.thumbprint, signature.trusted.name)) is not None
    ]
    group_of = _groups([signature for _, signature in offers])
    taken: dict[int, tuple[str, VerifiedSignature]] = {}  # group -> its party

    def satisfy(party: str, seen: set[int]) -> bool:
        for other, signature in offers:
            group = group_of[signature.position]
            if other == party and group not in seen:
                seen.add(group)
                if group not in taken or satisfy(taken[group][0], seen):
                    taken[group] = (party, signature)
                    return True
        return False

    for party in dict(offers):
        satisfy(party, set())
    # Keys of one entry are one party, unless the policy names each by thumbprint.
    named = {party for party, signature in taken.values() if party == signature.trusted.key.thumbprint}
    spent = {signature.trusted.name for signature in signatures if signature.trusted.key.thumbprint in named}
    chosen = [signature for party, signature in taken.values() if party not in spent - named]
    return sorted(chosen, key=_preference)


def _groups(signatures: list[VerifiedSignature]) -> dict[int, int]:
    """Position of each signature -> position of the first signature that keys connect with it."""
    first: dict[int, int] = {}
    by_key: dict[str, int] = {}
    for signature in sorted(signatures, key=lambda signature: signature.position):
        group = first.setdefault(signature.position, signature.position)
        other = by_key.setdefault(signature.trusted.key.thumbprint, group)
        if other != group:  # the key has made an earlier signature, so the two groups become one
            first = {each: other if held == group else held for each, held in first.items()}
            by_key = {each: other if held == group else held for each, held in by_key.items()}
    return first
