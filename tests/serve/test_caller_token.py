"""The token with the caller's name counts for one proxy, one agent and one minute, and for nothing else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from a2a_trust import JwtVerifier, Principal, generate_signer
from a2a_trust.auth import Actor, Anonymous, Identity, TokenProfile
from a2a_trust.errors import InvalidCredentialsError
from a2a_trust.keys import base64url
from a2a_trust.keys.rotation import KeyRing
from a2a_trust.keys.signer import sign_jwt
from a2a_trust.serve import VerifiedCaller, verify_caller_token
from a2a_trust.serve.caller_token import LIFETIME, TYPE, CallerTokens, caller_headers
from tests.tables import walk

NOW = 1_800_000_000.0
PROXY, AGENT = "https://agent.example.com", "http://127.0.0.1:9000"
ANN = Principal(
    identities=(
        ("key", Identity(issuer="api-keys", subject="Ann, Ø", scopes=frozenset({"read", "write"}))),
        (
            "oidc",
            Identity(
                issuer="https://idp.example.com",
                subject="ann",
                scopes=frozenset({"read", "other"}),
                client_id="orchestrator",
                actors=(Actor(issuer="https://idp.example.com", subject="b"), Actor(issuer="i", subject="a")),
            ),
        ),
    )
)


@pytest.fixture
def ring() -> KeyRing:
    return KeyRing.begin(generate_signer(), NOW)


@pytest.fixture
def tokens(ring: KeyRing) -> CallerTokens:
    return CallerTokens(ring, issuer=PROXY, audience=AGENT)


def verified(token: str, ring: KeyRing, now: float = NOW, **other: Any) -> VerifiedCaller | None:
    arguments: dict[str, Any] = {"issuer": PROXY, "audience": AGENT, **other}
    return verify_caller_token(token, ring.published(now), now=now, **arguments)


def test_the_agent_gets_what_the_guard_knows(tokens: CallerTokens, ring: KeyRing) -> None:
    caller = verified(tokens.token(ANN, NOW), ring)
    assert caller is not None
    assert caller.id == ANN.id
    assert caller.scopes == ANN.scopes == {"read"}
    assert (caller.client_id, caller.actors) == ("orchestrator", ANN.actors)
    assert caller.identities == {"key": ("api-keys", "Ann, Ø"), "oidc": ("https://idp.example.com", "ann")}


def test_a_token_is_sent_again_while_it_is_valid_for_long_enough(tokens: CallerTokens, ring: KeyRing) -> None:
    first = tokens.token(ANN, NOW)
    assert tokens.token(ANN, NOW + 29) == first
    assert tokens.token(ANN, NOW + 31) != first
    other = Principal(identities=(("key", Identity(issuer="api-keys", subject="bob")),))
    assert tokens.token(other, NOW) != first
    assert verified(first, ring, NOW + 59) is not None
    with pytest.raises(InvalidCredentialsError, match="expired"):
        verified(first, ring, NOW + 60)


def claims(**changed: Any) -> dict[str, Any]:
    standard = {"iss": PROXY, "aud": AGENT, "iat": NOW, "exp": NOW + LIFETIME, "sub": "ann@x", "scope": ""}
    return {name: value for name, value in {**standard, "identities": {}, **changed}.items() if value is not None}


WRONG: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("another proxy", {}, {"iss": "https://other.example.com"}),
    ("another agent", {}, {"aud": "http://127.0.0.1:9001"}),
    ("several agents", {}, {"aud": [AGENT, "http://127.0.0.1:9001"]}),
    ("an access token", {"typ": "at+jwt"}, {}),
    ("a plain JWT", {"typ": "JWT"}, {}),
    ("without a type", {"typ": None}, {}),
    ("too long", {}, {"exp": NOW + LIFETIME + 1}),
    ("without an end", {}, {"exp": None}),
    ("without a beginning", {}, {"iat": None}),
    ("from the future", {}, {"iat": NOW + 10}),
    ("a time as text", {}, {"iat": str(NOW)}),
    ("nobody", {}, {"sub": None}),
    ("a number", {}, {"sub": 3}),
    ("without scopes", {}, {"scope": None}),
    ("scopes as a list", {}, {"scope": ["read"]}),
    ("without identities", {}, {"identities": None}),
    ("identities as a list", {}, {"identities": ["ann"]}),
    ("actors that are malformed", {}, {"act": "a"}),
    ("an unknown key", {"kid": "other"}, {}),
    ("a critical extension", {"crit": ["b64"], "b64": False}, {}),
]


@walk("wrong", WRONG, ids=lambda wrong: wrong[0])
def test_other_tokens_are_rejected(wrong: tuple[str, dict[str, Any], dict[str, Any]], ring: KeyRing) -> None:
    _, head, body = wrong
    signer = ring.signer(NOW)
    header = {"typ": TYPE, "alg": signer.alg, "kid": signer.kid}
    assert verified(sign_jwt(header, claims(), signer), ring) is not None
    changed = {name: value for name, value in {**header, **head}.items() if value is not None}
    with pytest.raises(InvalidCredentialsError):
        verified(sign_jwt(changed, claims(**body), signer), ring)


def test_a_token_by_another_key_is_rejected(ring: KeyRing) -> None:
    other, signer = generate_signer(), ring.signer(NOW)
    forged = sign_jwt({"typ": TYPE, "alg": "ES256", "kid": signer.kid}, claims(), other)
    unsigned = ".".join([base64url.encode(json.dumps({"typ": TYPE, "alg": "none"}).encode()), forged.split(".")[1], ""])
    for token in (forged, unsigned, forged[:-1], "x", "..", "a.b.c.d", " "):
        with pytest.raises(InvalidCredentialsError):
            verified(token, ring)


def test_an_empty_header_is_no_caller(ring: KeyRing) -> None:
    assert verified("", ring) is None


@pytest.mark.parametrize("profile", TokenProfile)
def test_it_is_no_access_token(profile: TokenProfile, tokens: CallerTokens, ring: KeyRing) -> None:
    """The agent may be protected itself, with the proxy's URL as an issuer."""
    signer = ring.signer(NOW)

    class Keys:
        generation = 0

        async def key(self, kid: str, kty: str) -> Any:
            return signer.public_key

        async def only_key(self, kty: str) -> Any:
            return signer.public_key

    verifier = JwtVerifier(Keys(), issuer=PROXY, audience=AGENT, profile=profile)
    with pytest.raises(InvalidCredentialsError, match="typ is not"):
        asyncio.run(verifier.verify_bound(tokens.token(ANN, NOW), NOW))


def test_all_headers_are_there_for_every_request(tokens: CallerTokens) -> None:
    names = {b"a2a-caller-token", b"a2a-caller-id", b"a2a-caller-scopes", b"a2a-caller-client"}
    for caller in (None, Anonymous()):
        assert caller_headers(caller, tokens, NOW, plain=True) == [
            (name, b"") for name in (b"a2a-caller-token", b"a2a-caller-id", b"a2a-caller-scopes", b"a2a-caller-client")
        ]
    found = dict(caller_headers(ANN, tokens, NOW, plain=True))
    assert set(found) == names
    assert found[b"a2a-caller-id"] == ANN.id.encode("ascii")
    assert (found[b"a2a-caller-scopes"], found[b"a2a-caller-client"]) == (b"read", b"orchestrator")
    assert caller_headers(ANN, None, NOW, plain=False) == []


def test_plain_texts_cannot_break_a_header() -> None:
    odd = Identity(issuer="i", subject="a\r\nb", scopes=frozenset({"x y", "z\r\nSet-Cookie: a", "ü"}), client_id="ü\n")
    headers = dict(caller_headers(Principal(identities=(("key", odd),)), None, NOW, plain=True))
    assert headers[b"a2a-caller-scopes"] == b"%C3%BC x%20y z%0D%0ASet-Cookie:%20a"
    assert headers[b"a2a-caller-client"] == b"%C3%BC%0A"
    assert all(value.isascii() and b"\n" not in value for value in headers.values())
