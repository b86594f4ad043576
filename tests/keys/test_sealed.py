"""Sealed values: what opens, and what does not."""

from __future__ import annotations

import pytest

from a2a_trust.keys.sealed import Seal
from tests.tables import walk

SECRET = b"s" * 32


def test_a_value_opens_with_its_secret_for_its_purpose_and_context() -> None:
    sealed = Seal(SECRET, b"purpose").seal(b"value", b"context")
    assert Seal(SECRET, b"purpose").open(sealed, b"context") == b"value"
    assert Seal(b"t" * 32, b"purpose").open(sealed, b"context") is None
    assert Seal(SECRET, b"another").open(sealed, b"context") is None
    assert Seal(SECRET, b"purpose").open(sealed, b"another") is None


@walk("value", [b"", b"v", bytes(100_000)])
def test_no_octet_can_be_changed_or_removed(value: bytes) -> None:
    seal = Seal(SECRET, b"purpose")
    sealed = seal.seal(value, b"")
    assert len(sealed) == len(value) + 12 + 16
    for place in {*range(min(len(sealed), 40)), len(sealed) - 1}:
        changed = bytearray(sealed)
        changed[place] ^= 0x80
        assert seal.open(bytes(changed), b"") is None
        assert seal.open(sealed[:place], b"") is None
    assert seal.open(b"", b"") is None


def test_each_context_has_its_own_key_and_each_value_its_own_nonce() -> None:
    seal = Seal(SECRET, b"purpose")
    assert len({seal.seal(b"value", b"context")[:12] for _ in range(1_000)}) == 1_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.urandom", bytes)
        assert seal.seal(b"value", b"one")[:17] != seal.seal(b"value", b"two")[:17]
