"""What the programs of this folder pass to ``protect``: a key in a header or a token, and a signer, by the environment.

``API_KEYS`` names the store of keys, ``CARD_KEY`` the file of the key that signs the cards, ``ISSUER`` who issues
tokens. Imported in the environments of the frameworks, where nothing of the tests' own packages is installed.
"""

from __future__ import annotations

import os
from typing import Any, Final

from a2a_trust import (
    ApiKeyVerifier,
    CardSecurity,
    CardServing,
    Fetcher,
    JwtVerifier,
    OpenIdKeys,
    SqliteApiKeys,
    load_private_key,
)

__all__ = ["ISSUER", "guard", "security", "serving"]

ISSUER: Final = os.environ["ISSUER"]


def security(scope: str) -> CardSecurity:
    """A key or a token, with that scope."""
    return CardSecurity(
        schemes={
            "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
            "login": {
                "openIdConnectSecurityScheme": {"openIdConnectUrl": f"{ISSUER}/.well-known/openid-configuration"}
            },
        },
        requirements=[{"schemes": {name: {"list": [scope]}}} for name in ("key", "login")],
    )


def serving(**options: Any) -> CardServing:
    return CardServing(signer=load_private_key(os.environ["CARD_KEY"]), lifetime=3600, **options)


def guard(scope: str, url: str) -> dict[str, Any]:
    """Arguments of an agent that is called at that URL, which is the audience of its tokens, too."""
    fetcher = Fetcher(private_origins=[ISSUER], timeout=60)
    return {
        "security": security(scope),
        "verifiers": {
            "key": ApiKeyVerifier(SqliteApiKeys(os.environ["API_KEYS"])),
            "login": JwtVerifier(OpenIdKeys(ISSUER, fetcher), issuer=ISSUER, audience=url),
        },
        "url": url,
    }
