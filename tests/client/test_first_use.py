"""Whose keys are trusted on first use, and for which host."""

from __future__ import annotations

import pytest

from a2a_trust.client.verification import TrustOnFirstUse
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust.origins import Origins, UnsafeAnyOrigin
from a2a_trust.keys.trust.store import TrustedKey, TrustStore

AGENT = "https://agent.example.com/a"
PUBLISHED = generate_signer("EdDSA", kid="published").public_key
OTHER = generate_signer("EdDSA", kid="other").public_key


@pytest.mark.parametrize(
    ("origins", "applies"),
    [(Origins("agent.example.com"), False), (UnsafeAnyOrigin(), False), (Origins("other.example.com"), True)],
)
def test_it_applies_to_hosts_of_which_the_trust_store_says_nothing(
    origins: Origins | UnsafeAnyOrigin, applies: bool
) -> None:
    trust = TrustStore([TrustedKey(key=OTHER, origins=origins)])
    assert TrustOnFirstUse().applies_to(AGENT, trust) is applies
    assert len(TrustOnFirstUse().trust_store([PUBLISHED], AGENT, trust).keys) == applies


def test_its_keys_are_marked_and_speak_for_their_host_only() -> None:
    (entry,) = TrustOnFirstUse().trust_store([PUBLISHED], AGENT, TrustStore(())).keys
    assert entry == TrustedKey(key=PUBLISHED, origins=Origins("agent.example.com"), on_first_use=True)


@pytest.mark.parametrize("revoked", [PUBLISHED.kid, PUBLISHED.thumbprint], ids=["kid", "thumbprint"])
def test_a_key_that_is_revoked_by_either_name_is_left_out(revoked: str) -> None:
    first = TrustOnFirstUse().trust_store([PUBLISHED, OTHER], AGENT, TrustStore((), revoked=[revoked]))
    assert [entry.key for entry in first.keys] == [OTHER]


@pytest.mark.parametrize("source", [None, "https://elsewhere.example.org/jwks.json"])
def test_a_key_that_the_operator_wrote_down_is_left_out_and_one_that_was_fetched_is_not(source: str | None) -> None:
    written = TrustedKey(key=PUBLISHED, origins=Origins("other.example.com"), source=source)
    first = TrustOnFirstUse().trust_store([PUBLISHED], AGENT, TrustStore([written]))
    assert [entry.key for entry in first.keys] == ([] if source is None else [PUBLISHED])


def test_what_is_no_location_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="location"):
        TrustOnFirstUse().applies_to("https://agent.example.com/a/../b", TrustStore(()))
