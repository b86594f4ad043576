"""C11: a card, a challenge or an answer makes the client write a text of megabytes, for each request anew."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import httpx
import pytest

from a2a_trust import MalformedError, VerifiedCard, generate_signer, verify_card
from a2a_trust.client import (
    ApiKey,
    BearerToken,
    CardAuth,
    ClientCredentials,
    ClientSecret,
    CredentialsError,
    CredentialsRejectedError,
    OAuthClient,
    UnverifiedCardError,
    VerifyingTransport,
)
from tests.attacks.calling import KEY
from tests.attacks.forgery import b64, canonical
from tests.client.agents import OWNER_TRUSTED, card_of, signed, trusting
from tests.tables import walk

HOST = "agent.example"
ORIGIN = f"https://{HOST}"
MOST = 5_000  # characters of an error
MOST_BYTES = 1_500_000  # that a request may need beside the card: its 3,000 to 9,000 names, and no texts of them


def verified(**members: Any) -> VerifiedCard:
    return verify_card(signed(card_of(ORIGIN, **members)), trusting(HOST), origin=ORIGIN)


def key_scheme(name: str) -> dict[str, Any]:
    return {"apiKeySecurityScheme": {"location": "header", "name": name}}


def http_scheme(word: str) -> dict[str, Any]:
    return {"httpAuthSecurityScheme": {"scheme": word}}


def oauth_scheme(url: str) -> dict[str, Any]:
    flow = {"authorizationUrl": url, "tokenUrl": url, "scopes": {url: url}}
    return {"oauth2SecurityScheme": {"flows": {"authorizationCode": flow}}}


def demands(*alternatives: list[str], scopes: list[str] | None = None) -> list[dict[str, Any]]:
    return [{"schemes": {name: {"list": scopes or []} for name in names}} for names in alternatives]


MANY = [f"s{index}" for index in range(3_000)]
LONG = "é" * 20_000
HOSTILE: dict[str, dict[str, Any]] = {
    "many alternatives of many schemes": {
        "securitySchemes": {name: key_scheme(f"X-{name}") for name in MANY[:300]},
        "securityRequirements": demands(*[MANY[at : at + 40] for at in range(250)]),
    },
    "many schemes that are not declared": {"securityRequirements": demands(MANY)},
    "long names": {"securitySchemes": {LONG: key_scheme(LONG)}, "securityRequirements": demands([LONG])},
    "a long name of a key": {"securitySchemes": {"mine": key_scheme(LONG)}, "securityRequirements": demands(["mine"])},
    "a long word": {"securitySchemes": {"mine": http_scheme(LONG)}, "securityRequirements": demands(["mine"])},
    "long URLs": {"securitySchemes": {"s": oauth_scheme(LONG)}, "securityRequirements": demands(["s"])},
    "many scopes": {
        "securitySchemes": {"login": oauth_scheme("https://login.example.com/token")},
        "securityRequirements": demands(["login"], scopes=[*MANY, LONG]),
    },
}


def credentials() -> dict[str, Any]:
    client = OAuthClient(
        issuer="https://login.example.com",
        token_endpoint="https://login.example.com/token",
        client_id="orchestrator",
        authentication=ClientSecret("secret"),
    )
    return {
        "mine": ApiKey(KEY, origins=[ORIGIN]),
        LONG: ApiKey(KEY, origins=[ORIGIN]),
        "login": ClientCredentials(client, origins=[ORIGIN], allowed_scopes=["read"]),
    }


@walk("kind", HOSTILE)
def test_a_card_that_no_credential_satisfies_makes_a_short_error(kind: str) -> None:
    auth = CardAuth(verified(**HOSTILE[kind]), credentials(), trust=OWNER_TRUSTED)
    with httpx.Client(auth=auth, transport=httpx.MockTransport(lambda _: httpx.Response(200))) as http:
        for attempt in range(2):  # the first request verifies the card
            tracemalloc.start()
            try:
                with pytest.raises(CredentialsError, match="no alternative of the card") as refused:
                    http.post(f"{ORIGIN}/rpc")
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert len(str(refused.value)) < MOST
            assert "é" not in str(refused.value)
            assert attempt == 0 or peak < MOST_BYTES


@pytest.mark.parametrize(
    "schemes", [{LONG: {}}, {LONG: {"type": LONG}}, {LONG: {"apiKeySecurityScheme": {"location": LONG, "name": LONG}}}]
)
def test_a_card_that_cannot_be_read_makes_a_short_error(schemes: dict[str, Any]) -> None:
    with pytest.raises(MalformedError) as refused:
        CardAuth(verified(securitySchemes=schemes), {}, trust=OWNER_TRUSTED)
    assert len(str(refused.value)) < MOST


@pytest.mark.parametrize(
    "challenge",
    [
        f'Bearer error="insufficient_scope", scope="{" ".join(MANY[:900])}"',
        f'Bearer realm="{"x" * 100_000}"',
        ", ".join(f"Scheme{name}" for name in MANY),
    ],
)
def test_a_challenge_makes_a_short_error(challenge: str) -> None:
    many = {name: http_scheme("bearer") for name in ("s", LONG)}
    card = verified(securitySchemes=many, securityRequirements=demands(["s"], [LONG], MANY))
    auth = CardAuth(card, {"s": BearerToken("t", origins=[ORIGIN])}, trust=OWNER_TRUSTED)
    headers = {"WWW-Authenticate": challenge}
    answers = httpx.MockTransport(lambda request: httpx.Response(401, headers=headers, request=request))
    with httpx.Client(auth=auth, transport=answers) as http, pytest.raises(CredentialsRejectedError) as refused:
        http.post(f"{ORIGIN}/rpc")
    assert len(str(refused.value)) < MOST


def test_cards_that_are_not_verified_make_a_short_error() -> None:
    """Each of the eight URLs where the card may be answers with one that has 16 signatures of unknown keys."""
    document = json.loads(signed(card_of(ORIGIN)))
    document["signatures"] = [
        {"protected": b64(canonical({"alg": "ES256", "typ": "JOSE", "kid": f"{at:02}{'é' * 62}"})), "signature": "AAAA"}
        for at in range(16)
    ]
    transport = VerifyingTransport(
        httpx.MockTransport(lambda _: httpx.Response(200, json=document)), trusting(HOST, key=generate_signer("ES256"))
    )
    with httpx.Client(transport=transport) as http, pytest.raises(UnverifiedCardError) as refused:
        http.post(f"{ORIGIN}/a/b/c/d/rpc", json={})
    assert str(refused.value).count("/.well-known/") == 8
    assert len(str(refused.value)) < MOST
