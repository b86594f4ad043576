"""Credentials that are bound to keys: what the guard demands besides, whoever has verified them."""

from __future__ import annotations

import hashlib
import re
import ssl
from typing import Any

import pytest

from a2a_trust.auth.credentials import HttpAuthorization
from a2a_trust.auth.dpop import DPoP
from a2a_trust.auth.guard import Guard
from a2a_trust.auth.guard_config import CredentialAt
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.auth.principal import Anonymous, Identity, KeyBinding, Principal, TokenBinding
from a2a_trust.auth.proofs.memory import VolatileProofMemory
from a2a_trust.card.view import read_card
from a2a_trust.errors import (
    AuthorizationError,
    ConfigurationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MissingCredentialsError,
    TooManyRequestsError,
)
from tests.auth.deciding import admitted
from tests.auth.deciding import refused as refusal_of
from tests.auth.proofs import BASE, CLIENT, OTHER, bound_token, by_dpop, proof, scope_of
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys, b64, claims, token, verifier
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


OAUTH: dict[str, Any] = {"oauth2SecurityScheme": {"flows": {}}}
OPENID = {"openIdConnectSecurityScheme": {"openIdConnectUrl": f"{ISSUER}/.well-known/openid-configuration"}}
HTTP_BEARER = {"httpAuthSecurityScheme": {"scheme": "Bearer"}}
KEY = {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}

#: RFC 8705, appendix A: a certificate, and what a token that is bound to it says.
CERTIFICATE = """-----BEGIN CERTIFICATE-----
MIIBBjCBrAIBAjAKBggqhkjOPQQDAjAPMQ0wCwYDVQQDDARtdGxzMB4XDTE4MTAx
ODEyMzcwOVoXDTIyMDUwMjEyMzcwOVowDzENMAsGA1UEAwwEbXRsczBZMBMGByqG
SM49AgEGCCqGSM49AwEHA0IABNcnyxwqV6hY8QnhxxzFQ03C7HKW9OylMbnQZjjJ
/Au08/coZwxS7LfA4vOLS9WuneIXhbGGWvsDSb0tH6IxLm8wCgYIKoZIzj0EAwID
SQAwRgIhAP0RC1E+vwJD/D1AGHGzuri+hlV/PpQEKTWUVeORWz83AiEA5x2eXZOV
bUlJSGQgjwD5vaUaKlLR50Q2DmFfQj1L+SY=
-----END CERTIFICATE-----
"""
DER = ssl.PEM_cert_to_DER_cert(CERTIFICATE)
X5T = "A4DtL2JmUMhAsvJj5tKyn64SqzmuXbMrJa0n761y5v0"
JKT = CLIENT.public_key.thumbprint


def guard_of(scheme: Any = OAUTH, *, judge: Any = None, dpop: DPoP | None = None, scopes: Any = ()) -> Guard:
    card = {
        "name": "agent",
        "supportedInterfaces": [{"url": f"{BASE}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "securitySchemes": {"s": scheme},
        "securityRequirements": [{"schemes": {"s": {"list": list(scopes)}}}],
    }
    return Guard(read_card(card), {"s": verifier() if judge is None else judge}, dpop=dpop)


def taking() -> DPoP:
    return DPoP(url=BASE)


def request(headers: list[tuple[bytes, bytes]], *certificates: bytes) -> dict[str, Any]:
    shown = {"a2a_trust.client_certificate": certificates} if certificates else {}
    return {**scope_of(headers), **shown}


async def let_in(guard: Guard, headers: list[tuple[bytes, bytes]], *certificates: bytes) -> Principal | Anonymous:
    return await admitted(guard, request(headers, *certificates), NOW)


async def refused(
    guard: Guard, headers: list[tuple[bytes, bytes]], match: str, *certificates: bytes
) -> tuple[bool, str]:
    """Whether the credential came by DPoP, and what the caller is told."""
    refusal = await refusal_of(guard, request(headers, *certificates), NOW)
    assert isinstance(refusal.error, InvalidCredentialsError)
    assert re.search(match, str(refusal.error))
    assert refusal.scheme == "s"
    return refusal.by_dpop, refusal.error.oauth_error


def bearer(credential: str, *proofs: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Bearer " + credential.encode()), *by_dpop("", *proofs)[1:]]


# What a token says


async def test_a_tokens_binding_is_in_its_identity() -> None:
    for cnf, binding in [
        ({"jkt": JKT}, KeyBinding(jkt=JKT)),
        ({"x5t#S256": X5T}, KeyBinding(x5t_s256=X5T)),
        ({"jkt": JKT, "x5t#S256": X5T}, KeyBinding(jkt=JKT, x5t_s256=X5T)),
    ]:
        assert (await verifier().verify_bound(token(claims(cnf=cnf)), NOW)).bound_to == binding
    assert (await verifier().verify_bound(token(), NOW)).bound_to is None


@walk(
    "cnf",
    [[], ["jkt"], "jkt", {}, {"jkt": JKT, "kid": "x"}, {"jkt": 5}, {"jkt": "AAAA"}, {"jkt": JKT, "x5t#S256": "AA"}],
)
async def test_a_binding_that_is_not_understood_is_refused(cnf: Any) -> None:
    with pytest.raises(InvalidCredentialsError, match=r"bound to a key \(cnf\)"):
        await verifier().verify_bound(token(claims(cnf=cnf)), NOW)


def test_a_binding_to_nothing_is_wrong_use() -> None:
    with pytest.raises(ConfigurationError, match="leave bound_to out"):
        KeyBinding()


class Rule:
    """Refuses bob, whatever else is there."""

    inner: Any

    async def verify(self, credential: str, now: float) -> Identity:
        identity: Identity = await self.inner(credential, now)
        if identity.subject == "bob":
            raise InvalidCredentialsError("not bob")
        return identity


class Subclass(Rule, JwtVerifier):
    async def verify(self, credential: str, now: float) -> Identity:
        self.inner = super(Rule, self).verify
        return await Rule.verify(self, credential, now)


class Mixed(Rule, JwtVerifier):
    async def inner(self, credential: str, now: float) -> Identity:
        return await JwtVerifier.verify(self, credential, now)


class Both(JwtVerifier):
    async def verify_bound(self, credential: str, now: float) -> Identity:
        return await super().verify_bound(credential, now)


class OverBoth(Both):
    async def verify(self, credential: str, now: float) -> Identity:
        rule = Rule()
        rule.inner = super().verify
        return await rule.verify(credential, now)


class Wrapper(Rule):
    def __init__(self, wrapped: JwtVerifier) -> None:
        self.wrapped, self.inner = wrapped, wrapped.verify

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)


def on_the_object() -> JwtVerifier:
    judge, rule = verifier(), Rule()
    rule.inner = judge.verify
    judge.verify = rule.verify  # type: ignore[method-assign]
    return judge


@walk(
    "make",
    [
        lambda: Subclass(Keys(EC), issuer=ISSUER, audience=AUDIENCE),
        lambda: Mixed(Keys(EC), issuer=ISSUER, audience=AUDIENCE),
        lambda: OverBoth(Keys(EC), issuer=ISSUER, audience=AUDIENCE),
        lambda: Wrapper(verifier()),
        on_the_object,
    ],
    ids=["subclass", "mixin", "over-both", "wrapper", "object"],
)
async def test_a_rule_that_was_put_over_verify_is_asked_for_every_token(make: Any) -> None:
    """It does not know bound tokens, so there it gets none; and no way leads round it."""
    guard, thine, bobs = guard_of(judge=make(), dpop=taking()), bound_token(), bound_token(sub="bob")
    assert (await let_in(guard, bearer(token()))).is_authenticated
    await refused(guard, bearer(token(claims(sub="bob"))), "not bob")
    await refused(guard, by_dpop(thine, proof(thine)), "bound to a key")
    await refused(guard, by_dpop(bobs, proof(bobs)), "bound to a key")


async def test_what_a_subclass_adds_counts_for_both_kinds_of_tokens() -> None:
    class NotBob(JwtVerifier):
        async def verify_bound(self, credential: str, now: float) -> Identity:
            identity = await super().verify_bound(credential, now)
            if identity.subject == "bob":
                raise InvalidCredentialsError("not bob")
            return identity

    guard = guard_of(judge=NotBob(Keys(EC), issuer=ISSUER, audience=AUDIENCE), dpop=taking())
    bob = bound_token(sub="bob")
    await refused(guard, by_dpop(bob, proof(bob)), "not bob")
    await refused(guard, bearer(token(claims(sub="bob"))), "not bob")
    assert (await let_in(guard, bearer(token()))).is_authenticated


# Certificates (RFC 8705 3)


def test_the_thumbprint_is_that_of_the_rfc() -> None:
    assert b64(hashlib.sha256(DER).digest()) == X5T


@pytest.mark.parametrize("scheme", [OAUTH, HTTP_BEARER])
async def test_a_token_that_is_bound_to_a_certificate_needs_it_as_the_leaf_each_time(scheme: Any) -> None:
    guard, thine = guard_of(scheme), token(claims(cnf={"x5t#S256": X5T}))
    for _ in range(2):
        assert (await let_in(guard, bearer(thine), DER)).is_authenticated
        assert (await let_in(guard, bearer(thine), DER, b"its issuer")).is_authenticated
        await refused(guard, bearer(thine), "has no certificate")
        await refused(guard, bearer(thine), "another certificate", b"mallory's")
        await refused(guard, bearer(thine), "another certificate", b"mallory's", DER)
        await refused(guard, bearer(thine), "another certificate", CERTIFICATE.encode())


async def test_what_is_missing_at_the_agent_is_said_to_whoever_reads_its_log() -> None:
    thine = token(claims(cnf={"x5t#S256": X5T}))
    hint = r"has no certificate; to accept certificates, pass client_certificates=FromTls\(\)"
    await refused(guard_of(), bearer(thine), hint)
    told_of_none = request(bearer(thine)) | {"a2a_trust.client_certificate": ()}
    assert str((await refusal_of(guard_of(), told_of_none, NOW)).error).endswith("has no certificate")
    hint = r"to accept DPoP, pass dpop=DPoP\(url='https://agent.example'\)"
    for headers in (by_dpop(thine), [(b"authorization", b"Basic x"), *by_dpop(thine)]):
        with pytest.raises(MissingCredentialsError, match=hint):
            await let_in(guard_of(KEY, judge=Says(None)), headers)
    for guard, headers in (
        (guard_of(), []),
        (guard_of(), [(b"authorization", b"Basic x")]),
        (guard_of(dpop=taking()), []),
    ):
        with pytest.raises(MissingCredentialsError, match=r"of the card; expected: s \(Authorization: bearer\)$"):
            await let_in(guard, headers)


async def test_a_proof_without_its_token_is_no_anonymous_request() -> None:
    card = {
        "name": "agent",
        "supportedInterfaces": [],
        "securitySchemes": {"s": OAUTH},
        "securityRequirements": [{"schemes": {"s": {"list": []}}}, {"schemes": {}}],
    }
    headers = [(b"dpop", b"x")]
    guard = Guard(read_card(card), {"s": verifier()}, allow_anonymous=True, dpop=taking())
    assert guard.proof_headers == {b"dpop"}
    with pytest.raises(MissingCredentialsError):
        await let_in(guard, headers)
    # An agent that takes no proofs does not know the header.
    guard = Guard(read_card(card), {"s": verifier()}, allow_anonymous=True)
    assert guard.proof_headers == frozenset()
    assert isinstance(await let_in(guard, headers), Anonymous)


async def test_a_key_beside_a_bound_token_needs_no_proof_of_its_own() -> None:
    card = {
        "name": "agent",
        "supportedInterfaces": [],
        "securitySchemes": {"k": KEY, "s": OAUTH},
        "securityRequirements": [{"schemes": {"k": {"list": []}, "s": {"list": []}}}],
    }
    guard, thine = Guard(read_card(card), {"k": Says(None), "s": verifier()}, dpop=taking()), bound_token()
    both = [(b"x-api-key", b"k"), *by_dpop(thine, proof(thine))]
    assert isinstance(await let_in(guard, both), Principal)
    refusal = await refusal_of(guard, request([(b"x-api-key", b"k"), *by_dpop(thine)]), NOW)
    assert (refusal.scheme, refusal.by_dpop) == ("s", True)


@pytest.mark.parametrize("error", [KeySourceUnavailableError("full"), TooManyRequestsError("greedy")])
async def test_a_memory_of_proofs_that_cannot_tell_is_a_refusal_and_not_an_exception(error: Exception) -> None:
    class CannotTell(VolatileProofMemory):
        async def first_use(self, *_: Any, **__: Any) -> bool:
            raise error

    guard, thine = guard_of(dpop=DPoP(url=BASE, memory=CannotTell())), bound_token()
    assert (await refusal_of(guard, request(by_dpop(thine, proof(thine))), NOW)).error is error


async def test_an_unbound_token_is_as_good_with_a_certificate() -> None:
    assert (await let_in(guard_of(), bearer(token()), DER)).is_authenticated


async def test_a_token_that_is_bound_to_both_needs_both() -> None:
    guard, thine = guard_of(dpop=taking()), token(claims(cnf={"jkt": JKT, "x5t#S256": X5T}))
    await refused(guard, by_dpop(thine, proof(thine)), "has no certificate")
    await refused(guard, by_dpop(thine, proof(thine)), "another certificate", b"mallory's")
    await refused(guard, by_dpop(thine), "it is missing", DER)
    await refused(guard, by_dpop(thine, proof(thine, OTHER)), "another key", DER)
    await refused(guard, bearer(thine, proof(thine)), "did not come as Authorization: DPoP", DER)
    assert (await let_in(guard, by_dpop(thine, proof(thine)), DER)).is_authenticated


async def test_the_scope_that_is_judged_is_the_one_that_tells_of_certificates() -> None:
    """No header can say what the scope says."""
    thine = token(claims(cnf={"x5t#S256": X5T}))
    claimed = [(name, b":" + CERTIFICATE.encode() + b":") for name in (b"client-cert", b"a2a_trust.client_certificate")]
    await refused(guard_of(), [*bearer(thine), *claimed], "has no certificate")


# Which schemes take DPoP


@pytest.mark.parametrize("scheme", [OAUTH, OPENID])
async def test_oauth_and_openid_take_bound_tokens_as_dpop_and_others_as_bearer(scheme: Any) -> None:
    guard, thine = guard_of(scheme, dpop=taking()), bound_token()
    caller = await let_in(guard, by_dpop(thine, proof(thine)))
    assert isinstance(caller, Principal)
    assert caller.identities[0][1].bound_to == KeyBinding(jkt=JKT)
    assert (await let_in(guard, bearer(token()))).is_authenticated
    other_case = [(b"authorization", b"dPoP " + thine.encode()), (b"dpop", proof(thine).encode())]
    assert (await let_in(guard, other_case)).is_authenticated
    assert await refused(guard, by_dpop(token(), proof(token())), "not bound to a key") == (True, "invalid_token")
    assert await refused(guard, bearer(thine), "bound to a key") == (False, "invalid_token")
    assert await refused(guard, by_dpop("x.y.z"), "token: ") == (True, "invalid_token")


async def test_a_proof_beside_an_unbound_bearer_token_says_nothing() -> None:
    """The token would be as good without it: the issuer bound it to nothing, whatever its client had wished."""
    for proofs in ([proof(token())], ["x"], ["x", "y"]):
        assert (await let_in(guard_of(dpop=taking()), bearer(token(), *proofs))).is_authenticated


async def test_http_bearer_is_bearer_whatever_else_is_taken() -> None:
    with pytest.raises(ConfigurationError, match="leave dpop out"):
        guard_of(HTTP_BEARER, dpop=taking())
    card = {
        "name": "agent",
        "supportedInterfaces": [],
        "securitySchemes": {"http": HTTP_BEARER, "oauth": OAUTH},
        "securityRequirements": [{"schemes": {"http": {"list": []}}}],
    }
    with pytest.raises(ConfigurationError, match="leave dpop out"):
        Guard(read_card(card), {"http": verifier()}, dpop=taking())
    card["securityRequirements"] = [{"schemes": {"http": {"list": []}}}, {"schemes": {"oauth": {"list": []}}}]
    guard, thine = Guard(read_card(card), {"http": verifier(), "oauth": verifier()}, dpop=taking()), bound_token()
    caller = await let_in(guard, by_dpop(thine, proof(thine)))
    assert isinstance(caller, Principal)
    assert [name for name, _ in caller.identities] == ["oauth"]


@walk(("word", "takes"), [("OAuth2", True), ("openIdConnect", True), ("Bearer", False)])
async def test_words_of_0_1_cards_mean_what_they_mean_elsewhere(word: str, takes: bool) -> None:
    card = read_card({"name": "a", "url": BASE, "version": "1", "authentication": {"schemes": [word]}})
    if not takes:
        with pytest.raises(ConfigurationError, match="leave dpop out"):
            Guard(card, {word: verifier()}, dpop=taking())
        return
    guard, thine = Guard(card, {word: verifier()}, dpop=taking()), bound_token()
    assert (await let_in(guard, by_dpop(thine, proof(thine)))).is_authenticated
    with pytest.raises(ConfigurationError, match="bearer"):
        Guard(card, {word: CredentialAt(HttpAuthorization("dpop"), verifier())}, dpop=taking())


async def test_without_dpop_the_word_means_nothing() -> None:
    thine = bound_token()
    with pytest.raises(MissingCredentialsError):
        await let_in(guard_of(), by_dpop(thine, proof(thine)))
    await refused(guard_of(), bearer(thine, proof(thine)), r"pass dpop=DPoP\(url='https://agent.example'\)")


@walk("dpop", [DPoP, True, BASE, object()])
def test_what_is_no_dpop_is_wrong_use(dpop: Any) -> None:
    with pytest.raises(ConfigurationError, match="dpop: write DPoP"):
        guard_of(dpop=dpop)


async def test_scopes_are_lacking_in_the_words_of_the_scheme_that_the_token_came_by() -> None:
    guard, thine = guard_of(dpop=taking(), scopes=["admin"]), bound_token()
    for headers, by in [(by_dpop(thine, proof(thine)), True), (bearer(token()), False)]:
        refusal = await refusal_of(guard, request(headers), NOW)
        assert isinstance(refusal.error, AuthorizationError)
        assert refusal.by_dpop is by


# Verifiers of others


class Says:
    """A verifier that finds any credential to be that of this identity."""

    def __init__(self, binding: Any) -> None:
        self.binding = binding

    async def verify(self, credential: str, now: float) -> Identity:
        return Identity(issuer="i", subject=credential[:8], bound_to=self.binding)


async def test_any_verifier_may_bind_and_the_guard_sees_to_it() -> None:
    guard = guard_of(judge=Says(KeyBinding(jkt=JKT)), dpop=taking())
    assert (await let_in(guard, by_dpop("opaque", proof("opaque")))).is_authenticated
    await refused(guard, bearer("opaque"), "bound to a key")
    await refused(guard, by_dpop("opaque", proof("other")), "ath")
    keys = guard_of(KEY, judge=Says(KeyBinding(x5t_s256=X5T)))
    assert (await let_in(keys, [(b"x-api-key", b"k")], DER)).is_authenticated
    await refused(keys, [(b"x-api-key", b"k")], "has no certificate")
    keys = guard_of(KEY, judge=Says(KeyBinding(jkt=JKT)))
    await refused(keys, [(b"x-api-key", b"k")], "bound to a key")


async def test_one_token_cannot_be_bound_to_two_keys() -> None:
    card = {
        "name": "agent",
        "supportedInterfaces": [],
        "securitySchemes": {"s": OAUTH, "t": OAUTH},
        "securityRequirements": [{"schemes": {"s": {"list": []}, "t": {"list": []}}}],
    }
    judges = {"s": Says(KeyBinding(jkt=JKT)), "t": Says(KeyBinding(jkt=OTHER.public_key.thumbprint))}
    guard = Guard(read_card(card), judges, dpop=taking())
    assert (await refused(guard, by_dpop("opaque", proof("opaque")), "several keys"))[0]


async def test_where_bound_tokens_are_demanded_a_bearer_token_lets_nobody_in() -> None:
    guard = guard_of(judge=verifier(binding=TokenBinding.REQUIRED), dpop=taking())
    assert await refused(guard, bearer(token()), "not bound to a key") == (False, "invalid_token")
    made = bound_token()
    assert isinstance(await let_in(guard, by_dpop(made, proof(made))), Principal)
    await refused(guard, bearer(made), "did not come as Authorization: DPoP")
    certified = token(claims(cnf={"x5t#S256": X5T}))
    assert isinstance(await let_in(guard, bearer(certified), DER), Principal)
