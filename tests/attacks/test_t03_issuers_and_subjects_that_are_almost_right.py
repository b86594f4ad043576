"""T3: an issuer or a subject that is no string, or only a part of one, passes for the real one.

Seen in CVE-2024-53861 (``"acc" in "accounts.example"``: a substring for an issuer) and CVE-2026-75509.
"""

from __future__ import annotations

from typing import Any

import pytest

from a2a_trust.auth.jwt import TokenProfile
from a2a_trust.errors import InvalidCredentialsError
from tests.auth.test_jwt import ISSUER, NOW, claims, token, verifier

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def parts(text: str) -> list[str]:
    return [text[:end] for end in range(len(text))] + [text[start:] for start in range(1, len(text))]


async def test_no_part_of_the_issuer_is_the_issuer() -> None:
    assert (await verifier().verify(token(claims(iss=ISSUER)), NOW)).issuer == ISSUER
    for part in parts(ISSUER):
        with pytest.raises(InvalidCredentialsError, match="iss is not the issuer"):
            await verifier().verify(token(claims(iss=part)), NOW)


@pytest.mark.parametrize(
    "iss",
    [
        [ISSUER],
        [ISSUER, "https://attacker.example"],
        {ISSUER: 1},
        f"{ISSUER}/",
        f"{ISSUER}.attacker.example",
        ISSUER.replace("https", "http"),
        ISSUER.replace("i", "İ"),
        f"{ISSUER}\u200b",
        f"{ISSUER}#",
        ISSUER.replace("e", "ｅ"),
    ],
)
@pytest.mark.parametrize("profile", list(TokenProfile))
async def test_nothing_that_looks_like_the_issuer_is_the_issuer(iss: Any, profile: TokenProfile) -> None:
    with pytest.raises(InvalidCredentialsError, match="iss is not the issuer"):
        await verifier(profile=profile).verify(token(claims(iss=iss), typ=profile.value), NOW)


@pytest.mark.parametrize("sub", [["alice"], {"alice": 1}, 7, True, None, ""])
async def test_a_subject_that_is_no_text_is_nobody(sub: Any) -> None:
    with pytest.raises(InvalidCredentialsError, match="sub names nobody"):
        await verifier().verify(token(claims(sub=sub)), NOW)


async def test_subjects_that_look_alike_stay_different_callers() -> None:
    subjects = ["alice", "Alice", "alice ", "alice\0", "аlice", "ａlice"]
    found = [(await verifier().verify(token(claims(sub=sub)), NOW)).subject for sub in subjects]
    assert found == subjects
