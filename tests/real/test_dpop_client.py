"""A certified OpenID provider gives DPoP-bound tokens to clients that use DPoPAuth, with and without its nonces."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from a2a_trust import DPoPAuth, generate_signer
from tests.real.openid_provider import AUDIENCE, OpenIdProvider

Ask = Callable[[OpenIdProvider, DPoPAuth], httpx.Response]

#: Client credentials (RFC 6749 4.4) with the client's secret in Authorization, as most providers want it.
FORM = {"grant_type": "client_credentials", "resource": f"{AUDIENCE}/ES256", "scope": "read"}
BASIC = {"Authorization": f"Basic {base64.b64encode(b'service:secret').decode()}"}


def ask_sync(provider: OpenIdProvider, auth: DPoPAuth) -> httpx.Response:
    with httpx.Client(verify=provider.tls, auth=auth) as http:
        return http.post(f"{provider.issuer}/token", headers=BASIC, data=FORM)


def ask_async(provider: OpenIdProvider, auth: DPoPAuth) -> httpx.Response:
    async def asked() -> httpx.Response:
        async with httpx.AsyncClient(verify=provider.tls, auth=auth) as http:
            return await http.post(f"{provider.issuer}/token", headers=BASIC, data=FORM)

    return asyncio.run(asked())


@pytest.fixture(params=[ask_sync, ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    asking: Ask = request.param
    return asking


@pytest.fixture
def with_nonces(provider: OpenIdProvider) -> Iterator[None]:
    provider.tell("requireNonce", required=True)
    yield
    provider.tell("requireNonce", required=False)


def check_bound(answer: httpx.Response, auth: DPoPAuth) -> None:
    assert (answer.status_code, answer.json()["token_type"]) == (200, "DPoP")
    payload = answer.json()["access_token"].split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=="))
    assert claims["cnf"] == {"jkt": auth.jkt}


def test_a_token_is_bound_to_the_clients_key(provider: OpenIdProvider, ask: Ask) -> None:
    auth = DPoPAuth(generate_signer("ES256"), origins=[provider.issuer])
    answer = ask(provider, auth)
    check_bound(answer, auth)
    assert answer.history == []


@pytest.mark.usefixtures("with_nonces")
def test_a_provider_that_wants_nonces_refuses_the_first_proof_alone(provider: OpenIdProvider, ask: Ask) -> None:
    auth = DPoPAuth(generate_signer("ES256"), origins=[provider.issuer])
    first = ask(provider, auth)
    check_bound(first, auth)
    (refusal,) = first.history
    assert (refusal.status_code, refusal.json()["error"]) == (400, "use_dpop_nonce")
    second = ask(provider, auth)
    check_bound(second, auth)
    assert second.history == []


def test_a_key_of_an_algorithm_that_the_provider_does_not_know_is_refused_once(
    provider: OpenIdProvider, ask: Ask
) -> None:
    answer = ask(provider, DPoPAuth(generate_signer("EdDSA"), origins=[provider.issuer]))
    assert (answer.status_code, answer.json()["error"], answer.history) == (400, "invalid_dpop_proof", [])
