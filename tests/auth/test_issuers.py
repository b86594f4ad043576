"""Tokens of several issuers for one scheme: each is decided by the verifier of its own issuer."""

from __future__ import annotations

from typing import Any

import pytest

from a2a_trust.auth.discovery import OpenIdKeys
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.auth.principal import CredentialKind, Identity, TokenBinding
from a2a_trust.auth.token_claims import SeveralIssuers
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.errors import (
    ConfigurationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    UnrecognizedCredentialsError,
)
from tests.auth.test_guard import guard
from tests.auth.test_jwt import AUDIENCE, EC, ED, NOW, Keys, claims, token
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


ONE, TWO = "https://one.example", "https://two.example"


def of(issuer: str, keys: Keys, **options: Any) -> JwtVerifier:
    return JwtVerifier(keys, **{"issuer": issuer, "audience": AUDIENCE, **options})


async def test_each_token_is_judged_by_its_own_issuer() -> None:
    judge = SeveralIssuers([of(ONE, Keys(EC)), of(TWO, Keys(ED))])
    first = await judge.verify(token(claims(iss=ONE)), NOW)
    second = await judge.verify(token(claims(iss=TWO), signer=ED), NOW)
    assert ((first.issuer, second.issuer), first.subject) == ((ONE, TWO), second.subject)
    with pytest.raises(InvalidCredentialsError, match="no such key"):
        await judge.verify(token(claims(iss=TWO), signer=EC), NOW)
    with pytest.raises(UnrecognizedCredentialsError, match=r'one\.example", but .*; token: iss .*two\.example"'):
        await judge.verify(token(claims(iss="https://three.example")), NOW)
    assert judge.issuers == (ONE, TWO)


async def test_an_outage_of_one_issuer_is_nothing_to_the_other() -> None:
    down = Keys(EC)
    down.down = True
    judge = SeveralIssuers([of(ONE, down), of(TWO, Keys(ED))])
    assert (await judge.verify(token(claims(iss=TWO), signer=ED), NOW)).issuer == TWO
    with pytest.raises(KeySourceUnavailableError):
        await judge.verify(token(claims(iss=ONE)), NOW)


class Stricter(JwtVerifier):
    """Rejects what its base accepts."""

    async def verify(self, credential: str, now: float) -> Identity:
        await super().verify(credential, now)
        raise InvalidCredentialsError("not on Sundays")


async def test_a_verify_of_somebody_elses_is_asked() -> None:
    judge = SeveralIssuers([Stricter(Keys(EC), issuer=ONE, audience=AUDIENCE), of(TWO, Keys(ED))])
    with pytest.raises(InvalidCredentialsError, match="not on Sundays"):
        await judge.verify(token(claims(iss=ONE)), NOW)


async def test_bound_tokens_need_their_proof() -> None:
    judge = SeveralIssuers([of(ONE, Keys(EC)), of(TWO, Keys(ED))])
    bound = token(claims(iss=ONE, cnf={"jkt": "A" * 43}))
    with pytest.raises(InvalidCredentialsError, match="bound to a key"):
        await judge.verify(bound, NOW)
    assert (await judge.verify_bound(bound, NOW)).bound_to is not None


def test_binding_is_required_when_all_require_it() -> None:
    strict, lax = of(ONE, Keys(EC), binding=TokenBinding.REQUIRED), of(TWO, Keys(ED))
    other = of(TWO, Keys(ED), binding=TokenBinding.REQUIRED)
    assert SeveralIssuers([strict, lax]).binding is TokenBinding.OPTIONAL
    assert SeveralIssuers([strict, other]).binding is TokenBinding.REQUIRED


class Asking:
    """Stands for a verifier that sends opaque tokens to its issuer."""

    kind = CredentialKind.ACCESS_TOKEN
    issuers, binding, metadata_urls, asks_issuer = (ONE,), TokenBinding.OPTIONAL, (), True

    async def verify(self, credential: str, now: float) -> Identity:
        raise AssertionError


@walk(
    ("verifiers", "why"),
    [
        ([], "two verifiers or more"),
        ([of(ONE, Keys(EC))], "two verifiers or more"),
        (of(ONE, Keys(EC)), "two verifiers or more"),
        ([of(ONE, Keys(EC)), object()], "object is not a verifier of access tokens"),
        ([of(ONE, Keys(EC)), of(ONE, Keys(ED))], "two verifiers are for the issuer 'https://one.example'"),
        ([Asking(), Asking()], "two verifiers introspect"),
    ],
)
def test_what_would_be_ambiguous_does_not_start(verifiers: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        SeveralIssuers(verifiers)


def test_one_verifier_may_ask_the_issuer_of_the_others_jwts() -> None:
    mixed: Any = [of(ONE, Keys(EC)), Asking()]
    assert SeveralIssuers(mixed).asks_issuer
    assert not SeveralIssuers([of(ONE, Keys(EC)), of(TWO, Keys(ED))]).asks_issuer


def test_the_card_names_the_metadata_of_one_of_them() -> None:
    def several() -> SeveralIssuers:
        return SeveralIssuers(
            [JwtVerifier(OpenIdKeys(each, Fetcher()), issuer=each, audience=AUDIENCE) for each in (ONE, TWO)]
        )

    for issuer in (ONE, TWO):
        url = f"{issuer}/.well-known/openid-configuration"
        schemes = {"login": {"type": "openIdConnect", "openIdConnectUrl": url}}
        guard({"login": []}, given={"login": several()}, card={"securitySchemes": schemes})
    schemes = {"login": {"type": "openIdConnect", "openIdConnectUrl": "https://three.example/.well-known/x"}}
    with pytest.raises(ConfigurationError, match=r"uses the keys of '.*one\.example.*' and '.*two\.example"):
        guard({"login": []}, given={"login": several()}, card={"securitySchemes": schemes})
