"""A program that calls agents with credentials, and what the servers of these tests must never have got of them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import httpx

from a2a_trust import Fetcher, VerifiedCard, verify_card
from a2a_trust.client import ClientSecret, OAuthClient
from tests.base.net.test_fetcher import Authority
from tests.client.agents import Agent, Asked, Page, card_of, signed, trusting

__all__ = [
    "EVIL",
    "KEY",
    "PASSWORD",
    "SECRETS",
    "TOKEN",
    "VICTIM",
    "Ask",
    "Servers",
    "asking",
    "assert_got_nothing",
    "card_with",
    "key_scheme",
    "leaks_in",
    "oauth_scheme",
    "one_of",
    "tokens",
]

VICTIM: Final = "127.0.0.1"
EVIL: Final = "localhost"

KEY: Final = "secret-key"
PASSWORD: Final = "secret-password"
TOKEN: Final = "secret-token"
CLIENT_SECRET: Final = "secret-of-the-client"
SECRETS: Final = (KEY, PASSWORD, TOKEN, CLIENT_SECRET, "secret-refresh", "secret-subject")

_HEADERS: Final = ("authorization", "proxy-authorization", "dpop", "cookie", "x-api-key")
_MEMBERS: Final = (b"client_secret", b"client_assertion", b"subject_token", b"refresh_token")


class Ask(Protocol):
    """Sends a POST as a program does that follows redirects, on ``httpx.Client`` or ``httpx.AsyncClient``."""

    def __call__(self, auth: httpx.Auth, url: str, **request: Any) -> httpx.Response: ...


@dataclass(frozen=True)
class Servers:
    """The sockets of one test: the victim's agent and authorization server, and the attacker's server, which is both.

    The victim's are at VICTIM, the attacker's is at EVIL and at VICTIM on another port.
    """

    agent: Agent
    thief: Agent
    login: Agent
    authority: Authority

    def begin_entry(self) -> None:
        """Nobody was asked for anything yet: tests.tables.walk."""
        for each in (self.agent, self.thief, self.login):
            each.asked.clear()

    @property
    def origin(self) -> str:
        return self.agent.origin(VICTIM)

    @property
    def token_endpoint(self) -> str:
        return f"{self.login.origin(VICTIM)}/token"

    @property
    def evil(self) -> str:
        return self.thief.origin(EVIL)

    def client(self, **options: Any) -> OAuthClient:
        """The program as a client of the victim's authorization server."""
        origin = self.login.origin(VICTIM)
        return OAuthClient(
            **{
                "issuer": origin,
                "token_endpoint": self.token_endpoint,
                "client_id": "orchestrator",
                "authentication": ClientSecret(CLIENT_SECRET),
                "fetcher": Fetcher(private_origins=[origin], ssl_context=self.authority.client(), timeout=2.0),
                **options,
            }
        )


def asking(kind: str, authority: Authority) -> Ask:
    """``kind`` is "sync" or "async"."""
    settings: Any = {"verify": authority.client(), "trust_env": False, "follow_redirects": True}

    def ask_sync(auth: httpx.Auth, url: str, **request: Any) -> httpx.Response:
        with httpx.Client(auth=auth, **settings) as http:
            return http.post(url, **{"json": {}, **request})

    def ask_async(auth: httpx.Auth, url: str, **request: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            async with httpx.AsyncClient(auth=auth, **settings) as http:
                return await http.post(url, **{"json": {}, **request})

        return asyncio.run(asked())

    return ask_sync if kind == "sync" else ask_async


def card_with(
    origin: str, schemes: Mapping[str, Any], *requirements: Mapping[str, list[str]], **members: Any
) -> VerifiedCard:
    """A card of the agent at that origin, verified; ``requirements`` are scopes by the names of schemes."""
    host = httpx.URL(origin).host
    demanded = [{"schemes": {name: {"list": scopes} for name, scopes in each.items()}} for each in requirements]
    card = card_of(origin, securitySchemes=dict(schemes), securityRequirements=demanded, **members)
    return verify_card(signed(card), trusting(host), origin=origin)


def key_scheme(name: str = "X-API-Key", location: str = "header") -> dict[str, Any]:
    return {"apiKeySecurityScheme": {"location": location, "name": name}}


def oauth_scheme(token_url: str, *scopes: str, **flow: str) -> dict[str, Any]:
    flows = {"clientCredentials": {"tokenUrl": token_url, "scopes": {name: name for name in scopes}, **flow}}
    return {"oauth2SecurityScheme": {"flows": flows}}


def tokens(**members: Any) -> bytes:
    """The answer of a token endpoint."""
    return json.dumps({"access_token": TOKEN, "token_type": "Bearer", "expires_in": 600, **members}).encode()


def one_of(*pages: Page | bytes) -> Callable[[Asked], Page]:
    """One page after the other, the last one again and again."""
    left = [*pages]

    def page(asked: Asked) -> Page:
        given = left.pop(0) if len(left) > 1 else left[0]
        return given if isinstance(given, Page) else Page(body=given)

    return page


def assert_got_nothing(*servers: Agent) -> None:
    """No credential, secret, assertion, token or proof: not in a header, a path or a body, and not encoded."""
    for server in servers:
        for asked in server.asked:
            assert not [name for name in _HEADERS if name in asked.headers], asked
            assert not [member for member in _MEMBERS if member in asked.body], asked
            assert leaks_in(repr(asked)) == [], asked


def leaks_in(text: str) -> list[str]:
    """The secrets in a text, as they are and as HTTP Basic writes them."""
    return [secret for secret in SECRETS if any(each in text for each in _spellings(secret))]


def _spellings(secret: str) -> list[str]:
    """Base64 of a secret looks different for each of three lengths of what stands in front of it."""
    encoded = [base64.b64encode(b"x" * ahead + secret.encode()).decode() for ahead in range(3)]
    return [secret, *[text[4 if ahead else 0 : -4] for ahead, text in enumerate(encoded)]]
