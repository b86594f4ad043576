"""T6: a memory of tokens that is keyed by a part of the token, or that outlives it, answers for tokens it never saw.

Seen in LiteLLM (CVE-2026-35030): the first characters of the token were the key.
"""

from __future__ import annotations

import pytest

from a2a_trust.errors import InvalidCredentialsError
from tests.auth.test_jwt import EC, NOW, STRANGER, Keys, b64, claims, token, verifier

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_no_part_of_a_remembered_token_is_remembered() -> None:
    judge, good = verifier(), token()
    await judge.verify(good, NOW)
    header, body, signature = good.split(".")
    other_body = token(claims(sub="root")).split(".")[1]
    for forged in (
        f"{header}.{other_body}.{signature}",
        f"{header}.{body}.{b64(bytes(64))}",
        f"{header}.{body}.",
        f"{header}.{body}",
        f"{good}.",
        good[:-1],
        good + "A",
        good.swapcase(),
        token(signer=STRANGER),
    ):
        with pytest.raises(InvalidCredentialsError):
            await judge.verify(forged, NOW)
    assert (await judge.verify(good, NOW)).subject == "alice"


async def test_one_character_anywhere_makes_another_token() -> None:
    judge, good = verifier(), token()
    await judge.verify(good, NOW)
    for index, char in enumerate(good):
        changed = good[:index] + ("A" if char != "A" else "B") + good[index + 1 :]
        with pytest.raises(InvalidCredentialsError):
            await judge.verify(changed, NOW)


async def test_a_remembered_token_ends_when_it_ends() -> None:
    judge = verifier()
    for seconds in (1, 60, 299, 301, 4000):
        made = token(claims(exp=NOW + seconds))
        await judge.verify(made, NOW)
        await judge.verify(made, NOW + seconds - 0.001)
        for later in (0.0, 1.0, 1e6):
            with pytest.raises(InvalidCredentialsError, match="it has expired"):
                await judge.verify(made, NOW + seconds + later)


async def test_a_refusal_is_not_remembered_either_way() -> None:
    keys = Keys()
    judge, made = verifier(keys), token()
    with pytest.raises(InvalidCredentialsError):
        await judge.verify(made, NOW)
    assert len(judge._valid) == 0
    keys.keys = [EC.public_key]  # the issuer has published the new key meanwhile
    assert (await judge.verify(made, NOW)).subject == "alice"


async def test_a_key_that_was_withdrawn_proves_nothing_any_more() -> None:
    keys = Keys(EC)
    judge, made = verifier(keys), token()
    await judge.verify(made, NOW)
    keys.keys, keys.generation = [], keys.generation + 1
    with pytest.raises(InvalidCredentialsError):
        await judge.verify(made, NOW)


async def test_a_storm_of_good_tokens_does_not_fill_the_memory() -> None:
    judge = verifier(remember=16)
    for number in range(100):
        await judge.verify(token(claims(jti=str(number))), NOW)
        assert len(judge._valid) <= 16


async def test_the_memory_holds_no_token() -> None:
    judge, made = verifier(), token()
    await judge.verify(made, NOW)
    assert len(judge._valid) == 1
    held = repr([(key, entry, dict(entry[0].claims)) for key, entry in judge._valid._entries.items()])
    assert all(part not in held for part in made.split("."))
