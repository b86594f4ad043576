"""Who takes part in the tests of this folder: the signer of the cards, an issuer of tokens, and callers with keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from a2a_trust import (
    Fetcher,
    FetchOptions,
    Origins,
    TrustedKey,
    TrustStore,
    VerifiedCard,
    fetch_card,
    generate_signer,
    publish_jwks,
)
from a2a_trust.auth.record_table import SqliteApiKeys
from a2a_trust.client import fetch_extended_card
from a2a_trust.keys.files import save_private_key
from tests.servers.issuer import Issuer, issuing
from tests.servers.serving import ROOT

__all__ = ["BAD", "FOLDER", "Parties", "callers", "challenged_resource", "parties"]

BAD: Final = {"nothing": 401, "bad key": 401, "key without the scope": 403, "token for another agent": 401}
"""Of ``callers``, those whom an agent rejects, and how."""

TRUST: Final = """\
version = 1

[[trust]]
origins = ["127.0.0.1"]
keys = "card.jwks.json"
"""
FOLDER: Final = Path(__file__).resolve().parent


class Parties:
    """``keys`` is the key set that signs the cards.

    The folder has the files that the pages in docs/frameworks name: ``card.key`` and ``keys.db`` for agents,
    ``trust.toml`` for clients.
    """

    def __init__(self, folder: Path, issuer: Issuer) -> None:
        self.issuer, self.folder = issuer, folder
        signer = generate_signer("ES256")
        save_private_key(folder / "card.key", signer)
        self.keys = publish_jwks([signer.public_key])
        (folder / "card.jwks.json").write_text(json.dumps(self.keys), encoding="utf-8")
        (folder / "trust.toml").write_text(TRUST, encoding="utf-8")
        self._trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("127.0.0.1"))])
        self._store = SqliteApiKeys(folder / "keys.db", create=True)

    def key(self, *scopes: str, owner: str = "ann") -> str:
        """A new API key of that owner with those scopes."""
        return self._store.create(owner=owner, scopes=scopes).text

    def settings(self, **more: str) -> dict[str, str]:
        """The environment of a program that imports ``guards``."""
        ours = {"API_KEYS": "keys.db", "CARD_KEY": "card.key"}
        paths = {name: str(self.folder / file) for name, file in ours.items()}
        return {**paths, "ISSUER": self.issuer.url, "PYTHONPATH": str(ROOT), **more}

    def fetch(self, url: str) -> VerifiedCard:
        """The verified card of an agent, or the card at that URL."""
        return fetch_card(url, self._trust, self._options(url))

    def fetch_extended(self, url: str) -> VerifiedCard:
        """The verified extended card of an agent, as a caller with the scope ``read`` gets it."""
        known = {"X-API-Key": self.key("read")}
        return fetch_extended_card(self.fetch(url), self._trust, headers=known, options=self._options(url))

    def _options(self, url: str) -> FetchOptions:
        return FetchOptions(fetcher=Fetcher(private_origins=["/".join(url.split("/")[:3])], timeout=60))


@contextmanager
def parties(folder: Path) -> Iterator[Parties]:
    with issuing() as issuer:
        yield Parties(folder, issuer)


def callers(of: Parties, url: str) -> dict[str, dict[str, Any]]:
    """Cases for the clients of this folder: who calls the agent at that URL, which demands the scope ``read``.

    "verifying" is a client that verifies the card, the others send their credential in a header.
    """
    good = of.key("read")
    headers = {
        "key": {"X-API-Key": good},
        "token": {"Authorization": f"Bearer {of.issuer.token(audience=url)}"},
        "nothing": {},
        "bad key": {"X-API-Key": good[:-1] + ("x" if good[-1] != "x" else "y")},
        "key without the scope": {"X-API-Key": of.key("other")},
        "token for another agent": {"Authorization": f"Bearer {of.issuer.token(audience='http://127.0.0.1:1')}"},
    }
    cases: dict[str, dict[str, Any]] = {caller: {"url": url, "headers": sent} for caller, sent in headers.items()}
    return {**cases, "verifying": {"url": url, "keys": of.keys, "key": good}}


def challenged_resource(url: str) -> Any:
    """The resource in the metadata that the challenges name when somebody without a credential calls that URL."""
    response = httpx.post(url, json={}, trust_env=False, timeout=60)
    assert response.status_code == 401
    challenges = response.headers.get_list("WWW-Authenticate")
    (place,) = {found for each in challenges for found in re.findall(r'resource_metadata="([^"]+)"', each)}
    metadata = httpx.get(place, trust_env=False, timeout=60)
    assert metadata.status_code == 200
    return metadata.json()["resource"]
