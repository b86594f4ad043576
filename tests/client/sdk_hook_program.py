"""A program that gives our ``signature_verifier`` to the a2a-sdk: 0.3.26, 1.0.0 or 1.3.0, or does without.

It reads cases as JSON from its input and writes what came of each: what the SDK goes on with, or the errors.

Run by the interpreter of that SDK's own environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, attr-defined, unused-ignore"

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import AgentCard

from a2a_trust import Origins, TrustedKey, TrustStore
from a2a_trust.client import signature_verifier
from a2a_trust.keys import named, read_jwks

OLD = version("a2a-sdk").startswith("0.")


async def connected(http: httpx.AsyncClient, url: str, verifier: Callable[[Any], None] | None) -> Any:
    config = ClientConfig(httpx_client=http, streaming=False)
    if OLD:
        return await ClientFactory.connect(url, client_config=config, signature_verifier=verifier)
    return await ClientFactory(config).create_from_url(url, signature_verifier=verifier)


async def extended(client: Any, verifier: Callable[[Any], None] | None) -> Any:
    if OLD:
        return await client.get_card(signature_verifier=verifier)
    from a2a.types import GetExtendedAgentCardRequest

    return await client.get_extended_agent_card(GetExtendedAgentCardRequest(), signature_verifier=verifier)


def read(document: str) -> Any:
    """The card as the resolver reads it."""
    if OLD:
        return AgentCard.model_validate(json.loads(document))
    from a2a.client.card_resolver import parse_agent_card

    return parse_agent_card(json.loads(document))


async def used(case: dict[str, Any], verifier: Callable[[Any], None] | None) -> Any:
    """The card that the program goes on with."""
    if case["do"] == "read":
        card = read(case["document"])
        if verifier is not None:
            verifier(card)
        return card
    async with httpx.AsyncClient(verify=ssl.create_default_context(cadata=case["ca"])) as http:
        if case["do"] == "resolve":
            return await A2ACardResolver(http, case["url"]).get_agent_card(signature_verifier=verifier)
        client = await connected(http, case["url"], verifier)
        return await extended(client, verifier) if case["do"] == "extended" else client._card


def hook(case: dict[str, Any]) -> Callable[[Any], None] | None:
    if not case["hook"]:
        return None
    trust = TrustStore(
        TrustedKey(key=key, origins=Origins(host), signer=case.get("signer"), name=host)
        for host, keys in case["trust"].items()
        for key in read_jwks(json.dumps(keys).encode()).keys
    )
    if "party" in case:
        return signature_verifier(trust, origin=case["origin"], policy=named(case["party"]))
    return signature_verifier(trust, origin=case["origin"])


async def run(case: dict[str, Any]) -> dict[str, Any]:
    try:
        card = await used(case, hook(case))
    except Exception as error:  # noqa: BLE001  what it is, is what the test asks
        return {"used": None, "error": type(error).__name__, "text": str(error)}
    return {"used": card.description, "error": None, "text": ""}


async def main() -> None:
    print(json.dumps([await run(case) for case in json.load(sys.stdin)]))


if __name__ == "__main__":
    asyncio.run(main())
