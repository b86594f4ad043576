"""M27: a stranger sends few bytes in a place where each one costs much, before anybody knows who it is.

Seen here: 2,048 combining characters in a path took 30 ms, 60 kB of parameters for ``card_of`` 70 ms, 60 kB of
semicolons in a cookie 14 ms, and 15 kB of an unsigned JWT 14 ms, because its claims were made read-only before its
signature was checked. As many letters in the same place take 0.1 to 0.3 ms.

What is compared is how many functions are called, in Python and in C, for an odd text and for letters: never a time.
The texts that are normalized are bounded, since that is one call, whose time grows with the square of a text.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.basic.verifier import BasicVerifier
from a2a_trust.auth.introspection import IntrospectionVerifier
from a2a_trust.auth.jwt import JwtVerifier, TokenProfile
from a2a_trust.card import operations
from a2a_trust.client import ClientSecret
from a2a_trust.keys import base64url
from a2a_trust.middleware.protection import protect, protect_agents
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys
from tests.middleware.agent import Agent
from tests.middleware.several import agent_at, asked
from tests.tables import walk

MOST = 8
PATH, LINE, CLAIM, HEADER = 1_000, 60_000, 11_000, 5_800


async def nobody(_user: str, _password: str) -> None:
    """A function for passwords that knows none."""


def protected(scheme: dict[str, Any], verifier: Any) -> Any:
    card = {
        "name": "agent",
        "supportedInterfaces": [
            {"url": "http://agent.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ],
        "securitySchemes": {"scheme": scheme},
        "securityRequirements": [{"schemes": {"scheme": {}}}],
        "skills": [],
    }
    return protect(Agent(), card=card, verifiers={"scheme": verifier}, clock=lambda: NOW)


def with_key(location: str) -> Any:
    scheme = {"apiKeySecurityScheme": {"location": location, "name": "key"}}
    return protected(scheme, ApiKeyVerifier(MemoryApiKeys()))


OAUTH: dict[str, Any] = {"oauth2SecurityScheme": {"flows": {}}}
JWT = JwtVerifier(Keys(EC), issuer=ISSUER, audience=AUDIENCE, profile=TokenProfile.PLAIN_JWT)
OPAQUE = IntrospectionVerifier(
    f"{ISSUER}/introspect",
    issuer=ISSUER,
    audience=AUDIENCE,
    client_id="agent",
    authentication=ClientSecret("secret-of-the-agent"),
)
KEY_IN_HEADER, KEY_IN_QUERY, KEY_IN_COOKIE = map(with_key, ("header", "query", "cookie"))
WITH_JWT, WITH_OPAQUE = protected(OAUTH, JWT), protected(OAUTH, OPAQUE)
WITH_PASSWORD = protected({"httpAuthSecurityScheme": {"scheme": "basic"}}, BasicVerifier(nobody))
SEVERAL = protect_agents(
    Agent(), {"/a": agent_at("/a"), "/b": agent_at("/b")}, unguarded_paths=["/files/"], card_of=lambda query: None
)


# Requests with a text in one place


def at(prefix: str) -> Callable[[str], dict[str, Any]]:
    return lambda text: {"path": f"{prefix}{text}"}


def asking(path: str, prefix: str = "") -> Callable[[str], dict[str, Any]]:
    return lambda text: {"path": path, "query_string": f"{prefix}{text}".encode()}


def line(name: bytes, path: str = "/rpc") -> Callable[[str], dict[str, Any]]:
    return lambda text: {"path": path, "headers": [(name, text.encode())]}


def password(text: str) -> dict[str, Any]:
    return line(b"authorization")(f"Basic {base64.b64encode(text.encode()).decode()}")


def bearer(claims: str, header: str = "") -> dict[str, Any]:
    head = f'{{"alg":"ES256","typ":"JWT","kid":"ec"{header}}}'
    parts = (base64url.encode(part.encode()) for part in (head, claims))
    return line(b"authorization")(f"Bearer {'.'.join(parts)}.{'A' * 86}")


GOOD: dict[str, Any] = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": NOW + 60, "scope": "read"}


def claiming(name: str, **changes: Any) -> Callable[[str], dict[str, Any]]:
    """A token with the text as the JSON of this claim."""
    claims = {key: value for key, value in {**GOOD, **changes}.items() if key != name}
    return lambda text: bearer(f'{json.dumps(claims)[:-1]},"{name}":{text}}}')


class Place(NamedTuple):
    """Where a text stands in requests to an application, and of how many letters the usual text is."""

    app: Any
    scope: Callable[[str], dict[str, Any]]
    usual: str
    odd: dict[str, str]


def filled(piece: str, size: int) -> str:
    return (piece * (size // len(piece) + 1))[:size]


def of_text(app: Any, scope: Callable[[str], dict[str, Any]], size: int, pieces: Iterable[str]) -> Place:
    return Place(app, scope, "a" * size, {ascii(piece[:12]): filled(piece, size) for piece in pieces})


def of_json(app: Any, scope: Callable[[str], dict[str, Any]], size: int = CLAIM) -> Place:
    lists = ("[]", "{}", "1", "1.5", "1e1", "1e100", "1234567890123456", '""', '{"a":1e1}', "[[]]")
    odd = {f"[{one},…]": f"[{','.join([one] * (size // (len(one) + 1)))}]" for one in lists}
    odd["cut off"] = f"[{filled('1e1,', size)}"
    odd["escapes"] = f'"{filled(chr(92) + "u0041", size // 6 * 6)}"'
    odd["members"] = "{" + ",".join(f'"{number:04x}":0' for number in range(size // 10)) + "}"
    odd["a member twice"] = "{" + ",".join(['"a":0'] * (size // 6)) + "}"
    return Place(app, scope, f'"{"a" * size}"', odd)


MARKS = "\u0327\u0301"
SQUARES = "".join(map(chr, range(0x3300, 0x3340)))
PATHS = (
    MARKS,
    "\ufdfa",
    "\U0001d160",
    SQUARES,
    "ｂ",
    "é",
    "%41",
    "%CC%A7%CC%81",
    "/",
    "../",
    ";/",
    "A/",
    "\\a",
    "%",
    "%ffé",
)
QUERIES = ("a=b&", "&", "%41", "%41=%42&", "%", "+", "=", "key=a&", "k%65y&")
PLACES: dict[str, Place] = {
    "path": of_text(SEVERAL, at("/"), PATH, PATHS),
    "path of an agent": of_text(SEVERAL, at("/a/"), PATH, PATHS),
    "path for everybody": of_text(SEVERAL, at("/files/"), PATH, PATHS),
    "path of one agent": of_text(KEY_IN_HEADER, at("/"), PATH, PATHS),
    "long path": of_text(SEVERAL, at("/"), 8_000, PATHS),
    "query for card_of": of_text(SEVERAL, asking("/.well-known/agent-card.json"), LINE, QUERIES),
    "query": of_text(KEY_IN_QUERY, asking("/rpc"), LINE, QUERIES),
    "key in a query": of_text(KEY_IN_QUERY, asking("/rpc", "key="), LINE, QUERIES),
    "cookie": of_text(KEY_IN_COOKIE, line(b"cookie"), LINE, (";", "a=b;", "key=a;", "=", "a ;", " ")),
    "cookies in many lines": of_text(
        KEY_IN_COOKIE, lambda text: {"path": "/rpc", "headers": [(b"cookie", text.encode())] * 100}, 500, (";", "a=b;")
    ),
    "key in a header": of_text(KEY_IN_HEADER, line(b"key"), LINE // 2, (" ", "é", "_")),
    "entity tag": of_text(
        KEY_IN_HEADER, line(b"if-none-match", "/.well-known/agent-card.json"), LINE, (",", '"",', "W/", " ")
    ),
    "user": of_text(
        WITH_PASSWORD, lambda text: password(f"{text}:x"), 250, (MARKS, f"x{MARKS * 15}", "\U0001d160", ":")
    ),
    "password": of_text(
        WITH_PASSWORD, lambda text: password(f"x:{text}"), 250, (MARKS, f"x{MARKS * 15}", "\U0001d160")
    ),
    "token": of_text(WITH_JWT, lambda text: line(b"authorization")(f"Bearer {text}"), 16_000, (".", "-", "a.")),
    "claim": of_json(WITH_JWT, claiming("x")),
    "claim of another issuer": of_json(WITH_JWT, claiming("x", iss="other")),
    "claim of a token for introspection": of_json(WITH_OPAQUE, claiming("x", iss="other")),
    "issuer": of_json(WITH_JWT, claiming("iss")),
    "audience": of_json(WITH_JWT, claiming("aud")),
    "scope": of_json(WITH_JWT, claiming("scope")),
    "confirmation": of_json(WITH_JWT, claiming("cnf")),
    "header of a token": of_json(WITH_JWT, lambda text: bearer("{}", f',"x":{text}'), HEADER),
}


def ask(place: Place, text: str) -> int:
    """The status of the answer."""
    scope = {"method": "GET", "headers": [], **place.scope(text)}
    (start, *_) = asyncio.run(asked(place.app, scope.pop("path"), **scope))
    status: int = start["status"]
    return status


def calls(of: Callable[[], Any]) -> int:
    """How many functions are called, in Python and in C."""
    count = 0

    def entered(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(entered)
    try:
        of()
    finally:
        sys.setprofile(None)
    return count


@walk("name", PLACES)
def test_an_odd_text_takes_no_more_work_than_letters(name: str) -> None:
    place = PLACES[name]
    assert ask(place, place.usual) in (200, 401, 404)  # and what is imported or made at first is there
    usual = calls(lambda: ask(place, place.usual))
    found = {odd: calls(lambda text=text: ask(place, text)) for odd, text in place.odd.items()}  # type: ignore[misc]
    assert {odd: count for odd, count in found.items() if count > MOST * usual} == {}


def test_no_long_text_is_normalized(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    real = unicodedata.normalize

    def normalized(form: Any, text: str) -> str:
        given.append(text)
        return real(form, text)

    monkeypatch.setattr(operations, "normalize", normalized)
    for name in ("path", "path of an agent", "path for everybody", "path of one agent"):
        for text in PLACES[name].odd.values():
            ask(PLACES[name], text)
    assert given
    assert max(map(len, given)) < 20  # a character of a path, or what one becomes
    given.clear()
    monkeypatch.setattr(unicodedata, "normalize", normalized)
    for name in ("user", "password"):
        for text in PLACES[name].odd.values():
            ask(PLACES[name], text)
    assert given
    classes = (bytes(map(unicodedata.combining, text)) for text in given)
    assert max(max(map(len, re.findall(rb"[^\0]+", each)), default=0) for each in classes) <= 30
