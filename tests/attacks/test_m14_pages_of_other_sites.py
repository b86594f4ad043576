"""M14: a page of another site has the browser call the agent, with what the browser attaches for who looks at the page.

Requests as browsers send them, over http and websockets, to a real server; the credential is good in all of them.
"""

from __future__ import annotations

from typing import Any

import pytest

from a2a_trust.auth.basic.verifier import BasicVerifier
from a2a_trust.auth.principal import Identity
from a2a_trust.errors import InvalidCredentialsError
from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.protection import protect
from tests.middleware.agent import CARD, KEY, Agent, raw_exchange, uvicorn_serving, verifiers
from tests.tables import walk

pytestmark = pytest.mark.anyio

OWN, APP, OTHER = "http://agent.example", "https://app.example", "https://evil.example"
COOKIE = "Cookie: sid=ann"
LOGIN = "Authorization: Basic YW5uOnBhc3M="  # as a browser sends it again, once its user has typed it
CARRIED = {"sid": COOKIE, "mtls": COOKIE, "login": LOGIN}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Sessions:
    """Sessions that are all in memory, so their requests are answered at once."""

    _ANN = Identity(issuer="sessions", subject="ann")

    async def verify(self, credential: str, now: float) -> Identity:
        if credential != "ann":
            raise InvalidCredentialsError("no such session")
        return self._ANN

    def remembered(self, credential: str, now: float) -> Identity | None:
        return self._ANN if credential == "ann" else None


async def typed(user: str, password: str) -> Identity | None:
    return Identity(issuer="directory", subject=user) if (user, password) == ("ann", "pass") else None


class Ann:
    """A source of certificates that has one for every request, and a verifier that takes it."""

    headers: frozenset[bytes] = frozenset()

    def chain(self, scope: Any) -> tuple[bytes, ...]:
        return (b"certificate",)

    async def verify(self, credential: str, now: float) -> Identity:
        return Identity(issuer="certificates", subject="ann")


SCHEMES: dict[str, Any] = {
    "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
    "sid": {"apiKeySecurityScheme": {"location": "cookie", "name": "sid"}},
    "mtls": {"mtlsSecurityScheme": {}},
    "login": {"httpAuthSecurityScheme": {"scheme": "Basic"}},
}


def protected(agent: Agent, *alternatives: tuple[str, ...], **options: Any) -> Any:
    names = {name for alternative in alternatives for name in alternative}
    known = {"key": verifiers()["key"], "sid": Sessions(), "mtls": Ann(), "login": BasicVerifier(typed)}
    card = {
        **CARD,
        "securitySchemes": SCHEMES,
        "securityRequirements": [{"schemes": {name: {} for name in alternative}} for alternative in alternatives],
    }
    if "mtls" in names:
        options["client_certificates"] = Ann()
    options = {"url": OWN, "rules": RequestRules(allowed_origins=[APP]), **options}
    return protect(agent, card=card, verifiers={name: known[name] for name in names}, **options)


WEBSOCKET = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)


async def outcome(app: Any, agent: Agent, kind: str, headers: tuple[str, ...]) -> tuple[bool, bool]:
    """Whether the request was admitted, and whether it reached the agent."""
    (came,) = await outcomes(app, agent, kind, [headers])
    return came


async def outcomes(app: Any, agent: Agent, kind: str, requests: list[tuple[str, ...]]) -> list[tuple[bool, bool]]:
    found = []
    async with uvicorn_serving(app, "h11", ws="wsproto") as origin:
        for headers in requests:
            agent.scopes.clear()
            if kind == "websocket":
                more: tuple[str, ...]
                method, more, until = "GET", WEBSOCKET, b"\r\n\r\n"
            else:
                method, more, until = kind, ("Connection: close", *(["Content-Length: 0"] * (kind == "POST"))), None
            lines = "".join(f"{header}\r\n" for header in (*more, *headers))
            request = f"{method} /live HTTP/1.1\r\nHost: agent.example\r\n{lines}\r\n"
            status, _ = await raw_exchange(origin, request.encode("latin-1"), until)
            assert status in (101, 200, 403)
            admitted = status != 403
            found.append((admitted, bool(agent.paths)))
    return found


PASSING: list[tuple[str, ...]] = [
    (),
    ("Sec-Fetch-Site: same-origin", f"Origin: {OWN}"),
    ("Sec-Fetch-Site: same-origin",),
    ("Sec-Fetch-Site: none",),
    ("Sec-Fetch-Site: cross-site", f"Origin: {APP}"),
    ("Sec-Fetch-Site: same-site", f"Origin: {APP}"),
    (f"Origin: {OWN}",),
    (f"Origin: {APP}",),
]
REFUSED: list[tuple[str, ...]] = [
    ("Sec-Fetch-Site: cross-site",),
    ("Sec-Fetch-Site: same-site",),
    ("Sec-Fetch-Site: cross-site", f"Origin: {OTHER}"),
    ("Sec-Fetch-Site: same-site", "Origin: http://sibling.agent.example"),
    ("Sec-Fetch-Site: cross-site", "Origin: null"),
    ("Sec-Fetch-Site: cross-site", f"Origin: {OWN}"),
    ("Sec-Fetch-Site: cross-site", f"Origin: {APP}.evil.example"),
    ("Sec-Fetch-Site: cross-site", f"Origin: {APP}/"),
    (f"Origin: {OTHER}",),
    ("Origin: null",),
    ("Origin: https://agent.example",),
    ("Origin: http://agent.example:8080",),
    ("Origin:",),
    ("Sec-Fetch-Site: Same-Origin",),
    ("Sec-Fetch-Site: same-origin, cross-site",),
    ("Sec-Fetch-Site:",),
    ("Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: cross-site"),
    ("Sec-Fetch-Site: same-origin", f"Origin: {OWN}", f"Origin: {OTHER}"),
    ("Sec_Fetch_Site: same-origin", "Sec-Fetch-Site: cross-site"),
    (f"Origin: {OTHER}", f"Origin: {APP}"),
]
BOTH = [(each, True) for each in PASSING] + [(each, False) for each in REFUSED]


@walk("kind", ["GET", "POST", "websocket"])
@walk("name", ["sid", "mtls", "login"])
async def test_only_pages_that_may_call_with_a_credential_of_the_browser(kind: str, name: str) -> None:
    agent = Agent()
    app = protected(agent, (name,))
    came = await outcomes(app, agent, kind, [(CARRIED[name], *headers) for headers, _ in BOTH])
    assert dict(zip([headers for headers, _ in BOTH], came, strict=True)) == {
        headers: (passes, passes) for headers, passes in BOTH
    }


@walk("headers", REFUSED)
async def test_a_credential_that_only_programs_attach_is_judged_by_itself(headers: tuple[str, ...]) -> None:
    agent = Agent()
    app = protected(agent, ("key",), ("sid",))
    assert await outcome(app, agent, "POST", (f"X-API-Key: {KEY}", *headers)) == (True, True)


@pytest.mark.parametrize("headers", REFUSED[:3])
async def test_beside_such_a_credential_the_cookie_is_judged_all_the_same(headers: tuple[str, ...]) -> None:
    agent = Agent()
    app = protected(agent, ("key", "sid"))
    carried = (f"X-API-Key: {KEY}", COOKIE, *headers)
    assert await outcome(app, agent, "POST", carried) == (False, False)


async def test_without_a_url_only_listed_origins_are_allowed() -> None:
    agent = Agent()
    app = protected(agent, ("sid",), url=None)
    assert await outcome(app, agent, "POST", (COOKIE, f"Origin: {OWN}")) == (False, False)
    assert await outcome(app, agent, "POST", (COOKIE, f"Origin: {APP}")) == (True, True)
