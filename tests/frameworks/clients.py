"""Clients on httpx for the programs of this folder: one that verifies cards, or a plain one. Imported there only."""

from __future__ import annotations

import json
from typing import Any

import httpx

from a2a_trust import Origins, TrustedKey, TrustStore, verifying_client
from a2a_trust.client import ApiKey
from a2a_trust.keys import read_jwks

__all__ = ["client_of", "noted"]


def client_of(case: dict[str, Any]) -> httpx.AsyncClient:
    """With ``keys`` in the case, the client verifies the card and answers it by ``key``; else it sends ``headers``."""
    if "keys" not in case:
        return httpx.AsyncClient(headers=case.get("headers"), trust_env=False, timeout=60)
    trust = TrustStore(
        TrustedKey(key=key, origins=Origins("127.0.0.1")) for key in read_jwks(json.dumps(case["keys"]).encode()).keys
    )
    origin = "/".join(case["url"].split("/")[:3])
    return verifying_client(case["url"], trust=trust, credentials={"key": ApiKey(case["key"], origins=[origin])})


def noted(http: httpx.AsyncClient) -> list[list[Any]]:
    """Method, path and status of every answer that the client gets from now on."""
    requests: list[list[Any]] = []

    async def note(response: httpx.Response) -> None:
        requests.append([response.request.method, response.request.url.path, response.status_code])

    http.event_hooks = {"response": [note]}
    return requests
