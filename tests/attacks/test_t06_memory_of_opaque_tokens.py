"""T6: the memory of an introspecting verifier answers for tokens that nobody asked about, for revoked ones without
end, or loses good ones to junk.

Seen in LiteLLM (CVE-2026-35030): the first characters of the token were the key.
"""

from __future__ import annotations

import asyncio

import pytest

from a2a_trust.auth import introspection
from a2a_trust.errors import InvalidCredentialsError
from tests.auth.introspecting import active, introspecting, verifier_for
from tests.auth.test_jwt import NOW

pytestmark = pytest.mark.anyio

GOOD = "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-._~+/=="


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_one_character_anywhere_makes_another_token() -> None:
    async with introspecting(**{GOOD: active()}) as server:
        verifier = verifier_for(server)
        await verifier.verify(GOOD, NOW)
        changed = [GOOD[:index] + "!" + GOOD[index + 1 :] for index in range(len(GOOD))]
        for other in (*changed, GOOD[:-1], f"{GOOD}=", GOOD.swapcase(), f"{GOOD}.", f" {GOOD}"):
            with pytest.raises(InvalidCredentialsError, match="not active"):
                await verifier.verify(other, NOW)
        assert (await verifier.verify(GOOD, NOW)).subject == "ann"


async def test_a_revoked_token_ends_at_a_bounded_moment_whoever_goes_on_to_use_it() -> None:
    async with introspecting(**{GOOD: active()}) as server:
        verifier = verifier_for(server)
        await verifier.verify(GOOD, NOW)
        server.tokens.clear()
        for second in range(30):
            await verifier.verify(GOOD, NOW + second)
        with pytest.raises(InvalidCredentialsError):
            await verifier.verify(GOOD, NOW + 30)


async def test_a_token_that_was_forgotten_does_not_come_back_by_a_question_of_before() -> None:
    async with introspecting(**{GOOD: active()}) as server:
        verifier = verifier_for(server)
        server.open.clear()
        before = asyncio.create_task(verifier.verify(GOOD, NOW))
        while not server.asked:
            await asyncio.sleep(0.005)
        verifier.forget(GOOD)  # revoked now
        server.open.set()
        await before
        server.tokens.clear()
        with pytest.raises(InvalidCredentialsError):
            await verifier.verify(GOOD, NOW)


async def test_junk_evicts_no_good_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introspection, "_INVALID_TOKENS", 8)
    good = [f"good-{number}" for number in range(8)]
    async with introspecting(**dict.fromkeys(good, active())) as server:
        verifier = verifier_for(server, remember=8)
        for each in good:
            await verifier.verify(each, NOW)
        junk = (verifier.verify(f"junk-{number}", NOW) for number in range(200))
        await asyncio.gather(*junk, return_exceptions=True)
        assert len(verifier._invalid) == 8
        server.asked.clear()
        for each in good:
            await verifier.verify(each, NOW)
        assert server.asked == []


async def test_answers_as_long_as_they_may_be_fill_the_memory_by_bytes_and_not_by_tokens() -> None:
    names = [f"t{number}" for number in range(20)]
    async with introspecting(**dict.fromkeys(names, active(more="x" * 20_000))) as server:
        verifier = verifier_for(server, remember=20)
        for each in names:
            await verifier.verify(each, NOW)
        assert len(verifier._valid) <= 4
        assert verifier._valid._bytes <= 20 * 4_096


async def test_an_outage_is_not_remembered_of_a_token() -> None:
    async with introspecting(**{GOOD: active()}) as server:
        verifier = verifier_for(server)
        server.failing, server.poison = ("500 Oops", b"{}"), frozenset({GOOD})
        for _ in range(2):
            with pytest.raises(Exception, match="status 500"):
                await verifier.verify(GOOD, NOW)
        server.failing = None
        assert (await verifier.verify(GOOD, NOW)).subject == "ann"
