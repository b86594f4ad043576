"""T3: an issuer or a subject that is no string, or only a part of one, passes for the real one.

Seen in CVE-2024-53861 (``"acc" in "accounts.example"``: a substring for an issuer) and CVE-2026-75509.
"""

from __future__ import annotations

from typing import Any

import pytest

from a2a_trust.auth.jwt import TokenProfile
from a2a_trust.errors import InvalidCredentialsError
from tests.auth.test_jwt import ISSUER, NOW, claims, token, verifier
from tests.auth.vendors import CONSUMER_KEY, CONSUMERS, TENANT, VENDORS, network
from tests.base.net.test_fetcher import Authority
from tests.tables import walk

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


@walk(
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
@walk("profile", list(TokenProfile))
async def test_nothing_that_looks_like_the_issuer_is_the_issuer(iss: Any, profile: TokenProfile) -> None:
    with pytest.raises(InvalidCredentialsError, match="iss is not the issuer"):
        await verifier(profile=profile).verify(token(claims(iss=iss), typ=profile.value), NOW)


@walk("sub", [["alice"], {"alice": 1}, 7, True, None, ""])
async def test_a_subject_that_is_no_text_is_nobody(sub: Any) -> None:
    with pytest.raises(InvalidCredentialsError, match="sub is missing, empty or not a string"):
        await verifier().verify(token(claims(sub=sub)), NOW)


async def test_subjects_that_look_alike_stay_different_callers() -> None:
    subjects = ["alice", "Alice", "alice ", "alice\0", "аlice", "ａlice"]
    found = [(await verifier().verify(token(claims(sub=sub)), NOW)).subject for sub in subjects]
    assert found == subjects


# Presets for identity providers


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


BY_NAME = {vendor.name: vendor for vendor in VENDORS}


@walk(
    ("vendor", "changes"),
    [
        ("keycloak", {"iss": "https://sso.example.com/realms/Staff"}),
        ("keycloak", {"iss": "https://sso.example.com/realms/staff/"}),
        ("entra_id", {"iss": f"https://login.microsoftonline.com/{CONSUMERS}/v2.0", "tid": TENANT}),
        ("entra_id", {"iss": f"https://login.microsoftonline.com/{TENANT.upper()}/v2.0"}),
        ("entra_id", {"iss": f"https://sts.windows.net/{TENANT}"}),
        ("entra_id", {"iss": "https://login.microsoftonline.com/{tenantid}/v2.0"}),
        ("spiffe", {"sub": "spiffe://example.org.evil.example/ns/billing/sa/agent"}),
        ("spiffe", {"sub": "spiffe://example.orgevil/agent"}),
        ("spiffe", {"sub": "spiffe://Example.org/agent"}),
        ("spiffe", {"sub": "spiffe://evil.example/example.org/"}),
        ("spiffe", {"sub": ["spiffe://example.org/agent"]}),
        ("github_actions", {"repository_owner": "Octo-Org"}),
        ("github_actions", {"repository_owner": "octo-org-evil"}),
        ("github_actions", {"repository_owner": ["octo-org"]}),
        ("github_actions", {"repository_owner_id": "650"}),
        ("github_actions", {"repository_owner_id": 65}),
        ("kubernetes", {"kubernetes.io": {}}),
        ("cognito", {"client_id": "web1 "}),
        ("cognito", {"client_id": ["web1"], "aud": "web2"}),
        ("cognito", {"token_use": "Access"}),
    ],
)
async def test_no_preset_takes_a_tenant_an_owner_or_a_subject_that_is_almost_right(
    vendor: str, changes: dict[str, Any], authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = BY_NAME[vendor]
    async with network(preset.documents, authority, monkeypatch) as (fetcher, _):
        judge = preset.verifier(fetcher)
        assert (await judge.verify(preset.good[0].token(), NOW)).subject
        with pytest.raises(InvalidCredentialsError):
            await judge.verify(preset.good[0].token(**changes), NOW)


async def test_a_key_of_another_tenant_signs_no_token_of_this_one(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in 2023, when a stolen key of Microsoft's consumer accounts signed tokens of agencies."""
    preset = BY_NAME["entra_id"]
    async with network(preset.documents, authority, monkeypatch) as (fetcher, _):
        for shape in preset.good:
            assert (await preset.verifier(fetcher).verify(shape.token(), NOW)).subject
            with pytest.raises(InvalidCredentialsError, match="no RSA key named 'consumers'"):
                await preset.verifier(fetcher).verify(shape.token(CONSUMER_KEY), NOW)
