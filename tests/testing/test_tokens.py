"""Tokens for tests are as an issuer makes them, and the bad ones are refused for what is wrong with them."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from a2a_trust import ConfigurationError, JwtVerifier, principal_of, protect
from a2a_trust.auth import TokenBinding
from a2a_trust.errors import AuthenticationError, UnrecognizedCredentialsError
from a2a_trust.keys import JwksCache, read_jwks
from a2a_trust.testing import TokenIssuer, memory_client

pytestmark = pytest.mark.anyio

HERE = "https://agent.test"
IDP = TokenIssuer()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_good_token_names_its_subject_with_scopes_and_claims() -> None:
    begun = time.time()
    token = IDP.token("bob", audience=HERE, scopes=["read", "write"], groups=["staff"])
    identity = await IDP.verifier(HERE).verify(token, time.time())
    assert (identity.issuer, identity.subject) == ("https://idp.test", "bob")
    assert identity.scopes == {"read", "write"}
    assert identity.claims["groups"] == ("staff",)
    assert {"iss", "exp", "aud", "sub", "client_id", "iat", "jti"} <= identity.claims.keys()  # RFC 9068 2.2
    assert begun + 299 <= identity.expires_at <= time.time() + 300


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (lambda: IDP.token(audience=HERE, expires_in=-1), "it has expired"),
        (lambda: IDP.token(audience="https://other.test"), 'audience "https://other.test" does not include'),
        (lambda: TokenIssuer("https://other.test").token(audience=HERE), "iss is not the issuer"),
        (lambda: TokenIssuer().token(audience=HERE), "the signature is not the issuer's"),
        (lambda: IDP.token(audience=HERE, nbf=time.time() + 3600), "it is not valid yet"),
        (lambda: IDP.token(audience=HERE, sub=""), "sub is missing, empty or not a string"),
        (lambda: IDP.token(audience=HERE, nonce="1"), "claims of an ID token"),
        (lambda: IDP.token(audience=HERE, cnf={"jkt": "A" * 43}), "bound to a key"),
    ],
)
async def test_a_bad_token_is_refused_for_what_is_wrong_with_it(bad: Any, why: str) -> None:
    verifier = IDP.verifier(HERE)
    for _ in range(10):  # no bad token uses up what the next one needs
        with pytest.raises(AuthenticationError, match=why):
            await verifier.verify(bad(), time.time())
    await verifier.verify(IDP.token(audience=HERE), time.time())


async def test_a_bound_token_has_its_binding() -> None:
    token = IDP.token(audience=HERE, cnf={"jkt": "A" * 43})
    identity = await IDP.verifier(HERE).verify_bound(token, time.time())
    assert identity.bound_to is not None
    assert identity.bound_to.jkt == "A" * 43


async def test_the_key_set_is_for_verifiers_with_options_of_their_own() -> None:
    assert [key.kid for key in read_jwks(json.dumps(IDP.jwks).encode()).keys] == ["test"]
    assert "d" not in IDP.jwks["keys"][0]

    async def load() -> tuple[bytes, None]:
        return json.dumps(IDP.jwks).encode(), None

    bound = JwtVerifier(JwksCache(load), issuer=IDP.url, audience=HERE, binding=TokenBinding.REQUIRED)
    with pytest.raises(AuthenticationError, match="only bound tokens"):
        await bound.verify(IDP.token(audience=HERE), time.time())


async def test_two_issuers_stand_side_by_side() -> None:
    other = TokenIssuer("https://other.test")
    with pytest.raises(UnrecognizedCredentialsError):
        await other.verifier(HERE).verify(IDP.token(audience=HERE), time.time())


def test_one_verifier_serves_tests_that_have_event_loops_of_their_own() -> None:
    verifier = IDP.verifier(HERE)
    subjects = [
        asyncio.run(verifier.verify(IDP.token(name, audience=HERE), time.time())).subject for name in ("ann", "bob")
    ]
    assert subjects == ["ann", "bob"]


def test_scopes_that_are_one_text_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r'write scopes=\["read"\], a list even of one'):
        IDP.token(audience=HERE, scopes="read")


def test_no_repr_has_the_key() -> None:
    assert "PRIVATE" not in repr(vars(IDP))


async def test_a_protected_agent_takes_the_tokens_and_refuses_bad_ones() -> None:
    async def tell(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": principal_of(scope).display_name.encode()})

    card = {
        "name": "agent",
        "supportedInterfaces": [{"url": f"{HERE}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "securitySchemes": {
            "login": {
                "openIdConnectSecurityScheme": {"openIdConnectUrl": f"{IDP.url}/.well-known/openid-configuration"}
            }
        },
        "securityRequirements": [{"schemes": {"login": {"list": ["read"]}}}],
        "skills": [],
    }
    app = protect(tell, card=card, verifiers={"login": IDP.verifier(HERE)})
    tokens = [
        IDP.token(audience=HERE, scopes=["read"]),
        IDP.token(audience=HERE),
        IDP.token(audience=HERE, scopes=["read"], expires_in=-1),
    ]
    async with memory_client(app) as http:
        answers = [await http.get("/", headers={"Authorization": f"Bearer {token}"}) for token in tokens]
    assert [answer.status_code for answer in answers] == [200, 403, 401]
    assert answers[0].text == "ann@https://idp.test"
