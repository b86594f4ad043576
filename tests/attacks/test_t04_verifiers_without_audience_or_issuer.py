"""T4: a verifier that was made without audience or issuer takes the tokens that were made for somebody else.

Seen in MCP (CVE-2026-116684) and FastMCP (CVE-2025-69196).
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from a2a_trust.auth.jwt import IdTokenVerifier, JwtVerifier
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys, claims, token, verifier
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@walk("kind", [JwtVerifier, IdTokenVerifier])
@walk("name", ["issuer", "audience"])
@walk("nothing", ["", None, [], [""], [AUDIENCE, None], b"https://a.example", 5])
def test_there_is_no_verifier_without_issuer_and_audience(kind: Any, name: str, nothing: Any) -> None:
    assert inspect.signature(kind).parameters[name].default is inspect.Parameter.empty
    given: dict[str, Any] = {"issuer": ISSUER, "audience": AUDIENCE}
    assert kind(Keys(EC), **given)
    with pytest.raises(ConfigurationError, match=f"{name} must be a string that is not empty"):
        kind(Keys(EC), **{**given, name: nothing})


@walk("aud", ["https://other.example", ["https://other.example"], [], ..., "*", None])
async def test_a_token_for_another_server_of_the_same_issuer_is_refused(aud: Any) -> None:
    assert (await verifier().verify(token(claims(aud=AUDIENCE)), NOW)).subject == "alice"
    with pytest.raises(InvalidCredentialsError, match=r'audience .* does not include "https?:'):
        await verifier().verify(token(claims(aud=aud)), NOW)


async def test_a_token_of_another_issuer_that_shares_the_keys_is_refused() -> None:
    with pytest.raises(InvalidCredentialsError, match="iss is not the issuer"):
        await verifier().verify(token(claims(iss="https://issuer.example/other-tenant")), NOW)
