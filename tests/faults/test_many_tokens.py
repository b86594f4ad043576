"""More callers than a memory of tokens was made for: nothing is verified twice that there is room for."""

from __future__ import annotations

import random
from typing import Any

import pytest

from a2a_trust.keys.jws import verify_signed
from tests.auth.test_jwt import ED, NOW, Keys, claims, token, verifier
from tests.tiers import IS_LONG_FORM

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def verifications(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one with every signature that is verified, by the real function."""
    verified: list[str] = []

    def counted(header: Any, signature: str, *rest: Any) -> None:
        verified.append(signature)
        verify_signed(header, signature, *rest)

    monkeypatch.setattr("a2a_trust.auth.jwt.verify_signed", counted)
    return verified


@pytest.fixture(scope="module")
def tokens() -> list[str]:
    return [token(claims(sub=f"caller {n}"), signer=ED) for n in range(20_000 if IS_LONG_FORM else 6_000)]


async def test_each_live_token_is_verified_once(tokens: list[str], verifications: list[str]) -> None:
    """4,096 tokens emptied the memory: of 6,000 callers in turn each request was verified."""
    judge = verifier(Keys(ED))
    for moment in range(3):
        for each in tokens:
            await judge.verify(each, NOW + moment)
    assert len(verifications) == len(tokens)


async def test_a_memory_that_is_too_small_still_serves_what_it_holds(
    tokens: list[str], verifications: list[str]
) -> None:
    """Callers come in any order; of a memory for three quarters of them three quarters of the requests are hits."""
    order, room = random.Random(7), len(tokens) * 3 // 4
    judge = verifier(Keys(ED), remember=room)
    for each in tokens:
        await judge.verify(each, NOW)
    assert len(judge._valid) == room  # and not emptied
    verifications.clear()
    requests = order.choices(tokens, k=len(tokens))
    for each in requests:
        await judge.verify(each, NOW)
    assert len(verifications) < len(requests) * 0.35
