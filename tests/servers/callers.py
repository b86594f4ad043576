"""The agent of ``examples/sdk_hello_world`` and everybody who calls it."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Final

from a2a_trust import generate_signer
from a2a_trust.auth.record_table import SqliteApiKeys
from tests.servers.issuer import Issuer
from tests.servers.serving import ROOT

__all__ = ["FOLDER", "Callers"]

FOLDER: Final = ROOT / "examples" / "sdk_hello_world"


class Callers:
    """API keys and tokens, good and bad ones, as headers."""

    def __init__(self, issuer: Issuer, path: Path, store: SqliteApiKeys) -> None:
        self._issuer, self.path = issuer, path
        self.key = store.create(owner="ann", scopes=["read"]).text
        self._poor = store.create(owner="bob", scopes=["other"]).text
        expired = store.create(owner="eve", scopes=["read"])
        store.rotate(expired.record.key_id, overlap=timedelta(0))
        self._expired = expired.text
        self._stranger = generate_signer("ES256", kid="issuer")

    def settings(self, origin: str) -> dict[str, str]:
        """The environment of an agent that is called at that origin."""
        return {
            "AGENT_URL": origin,
            "API_KEYS": str(self.path),
            "ISSUER": self._issuer.url,
            "PRIVATE_ORIGINS": self._issuer.url,
        }

    def token(self, origin: str) -> str:
        return self._issuer.token(audience=origin)

    def good(self, origin: str) -> list[dict[str, str]]:
        return [{"X-API-Key": self.key}, _bearer(self.token(origin))]

    def wrong(self, origin: str) -> list[dict[str, str]]:
        return [
            {"X-API-Key": self.key[:-1] + ("x" if self.key[-1] != "x" else "y")},
            _bearer(self._issuer.token(audience=origin, by=self._stranger)),
            _bearer(self._issuer.token(audience="https://other.example")),
        ]

    def expired(self, origin: str) -> list[dict[str, str]]:
        return [{"X-API-Key": self._expired}, _bearer(self._issuer.token(audience=origin, exp=int(time.time()) - 1))]

    def poor(self, origin: str) -> list[dict[str, str]]:
        """Good credentials without the scope that the card demands."""
        return [{"X-API-Key": self._poor}, _bearer(self._issuer.token(audience=origin, scope="other"))]


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
