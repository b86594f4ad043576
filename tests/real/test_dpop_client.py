"""A certified OpenID provider gives DPoP-bound tokens to clients with a key, with and without its nonces."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from a2a_trust import generate_signer
from a2a_trust.client import ClientCredentials, ClientSecret, OAuthClient
from a2a_trust.client.credentials import CredentialValue
from a2a_trust.client.flow import run, run_async
from a2a_trust.errors import TokenRequestError
from a2a_trust.keys import LocalSigner, base64url
from tests.real.openid_provider import AUDIENCE, OpenIdProvider

Ask = Callable[[ClientCredentials], CredentialValue]

READ: Final = frozenset({"read"})


def ask_sync(credential: ClientCredentials) -> CredentialValue:
    return run(credential.obtain(READ))


def ask_async(credential: ClientCredentials) -> CredentialValue:
    return asyncio.run(run_async(credential.obtain(READ)))


@pytest.fixture(params=[ask_sync, ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    asking: Ask = request.param
    return asking


@pytest.fixture
def with_nonces(provider: OpenIdProvider) -> Iterator[None]:
    provider.tell("requireNonce", required=True)
    yield
    provider.tell("requireNonce", required=False)


def credential_by(provider: OpenIdProvider, signer: LocalSigner) -> ClientCredentials:
    provider.token_requests()  # of other tests
    client = OAuthClient(
        issuer=provider.issuer,
        token_endpoint=provider.token_url,
        client_id="service",
        authentication=ClientSecret("secret"),
        dpop=signer,
        fetcher=provider.fetcher(),
    )
    return ClientCredentials(client, origins=[AUDIENCE], allowed_scopes=READ, resource=f"{AUDIENCE}/ES256")


def check_bound(value: CredentialValue, signer: LocalSigner) -> None:
    claims: dict[str, Any] = json.loads(base64url.decode(value.text.split(".")[1], "claims"))
    assert claims["cnf"] == {"jkt": signer.public_key.thumbprint}


def came(provider: OpenIdProvider) -> list[tuple[bool, int]]:
    """Whether a proof was in each request at the token endpoint, and the status of its answer."""
    return [(each.dpop, each.status) for each in provider.token_requests()]


def test_a_token_is_bound_to_the_clients_key(provider: OpenIdProvider, ask: Ask) -> None:
    signer = generate_signer("ES256")
    check_bound(ask(credential_by(provider, signer)), signer)
    assert came(provider) == [(True, 200)]


@pytest.mark.usefixtures("with_nonces")
def test_a_provider_that_wants_nonces_refuses_only_the_first_proof(provider: OpenIdProvider, ask: Ask) -> None:
    signer = generate_signer("ES256")
    credential = credential_by(provider, signer)
    first = ask(credential)
    check_bound(first, signer)
    assert came(provider) == [(True, 400), (True, 200)]
    credential.renew(first)
    second = ask(credential)
    check_bound(second, signer)
    assert second.text != first.text
    assert came(provider) == [(True, 200)]


def test_a_key_of_an_algorithm_that_the_provider_does_not_know_is_refused_once(
    provider: OpenIdProvider, ask: Ask
) -> None:
    with pytest.raises(TokenRequestError) as raised:
        ask(credential_by(provider, generate_signer("EdDSA")))
    assert raised.value.error == "invalid_dpop_proof"
    assert came(provider) == [(True, 400)]
