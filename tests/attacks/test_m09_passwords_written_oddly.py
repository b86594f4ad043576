"""M9: a password of HTTP Basic that is written twice, joined or oddly is read in one way here, and otherwise elsewhere.

Measured under real servers, with a password that is right in every writing.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from a2a_trust.auth.basic.verifier import BasicVerifier
from a2a_trust.auth.principal import Identity
from tests.middleware.agent import CARD, Agent, guarded, raw_exchange, uvicorn_serving

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


PASSWORD = "pass:word?>~?"
GOOD = b64encode(f"ann:{PASSWORD}".encode()).decode()
CARD_OF_BASIC: dict[str, Any] = {
    **CARD,
    "securitySchemes": {"login": {"httpAuthSecurityScheme": {"scheme": "Basic"}}},
    "securityRequirements": [{"schemes": {"login": {"list": []}}}],
}


async def known(user: str, password: str) -> Identity | None:
    """Takes the name and the password however they come: what is oddly written must not get here."""
    is_ann = user.strip("\0 ") == "ann" and password.strip("\0\r\n ") == PASSWORD
    return Identity(issuer="directory", subject="ann") if is_ann else None


def written(text: str | bytes) -> str:
    return b64encode(text.encode() if isinstance(text, str) else text).decode()


ODD = [
    f"Authorization: Basic {GOOD}\r\nAuthorization: Basic {GOOD}",
    f"Authorization: Basic {GOOD}\r\nAuthorization: Bearer x",
    f"Authorization: Bearer x\r\nAuthorization: Basic {GOOD}",
    f"Authorization: Basic {GOOD}, Basic {GOOD}",
    f"Authorization: Basic  {GOOD}",
    f"Authorization: Basic\t{GOOD}",
    f"Authorization: Basic{GOOD}",
    f'Authorization: Basic "{GOOD}"',
    f"Authorization: Bearer {GOOD}",
    f"Authorization: {GOOD}",
    f"Proxy-Authorization: Basic {GOOD}",
    f"Authorization: Basic {GOOD.rstrip('=')}",
    f"Authorization: Basic {GOOD}=",
    f"Authorization: Basic {GOOD}====",
    f"Authorization: Basic {GOOD.replace('/', '_').replace('+', '-').rstrip('=')}",
    f"Authorization: Basic {GOOD[:-2]}{chr(ord(GOOD[-2]) + 1)}=",  # bits behind the last octet
    f"Authorization: Basic {GOOD[:8]} {GOOD[8:]}",
    f"Authorization: Basic ann:{PASSWORD}",
    f"Authorization: Basic {written(f'ann:{PASSWORD}' + chr(0))}",
    f"Authorization: Basic {written(chr(0) + f'ann:{PASSWORD}')}",
    f"Authorization: Basic {written(f'ann:{PASSWORD}' + chr(13) + chr(10))}",
    f"Authorization: Basic {written(b'ann:pass' + bytes((0xC0, 0xBA)) + b'word')}",  # an overlong colon
]
PLAIN = [f"Authorization: Basic {GOOD}", f"authorization: basic {GOOD}", f"AUTHORIZATION:   BASIC {GOOD}  "]


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_odd_writings_are_refused_and_plain_ones_are_not(http: str) -> None:
    assert GOOD.endswith("=")
    assert not GOOD.endswith("==")
    agent = Agent()
    async with uvicorn_serving(
        guarded(agent, CARD_OF_BASIC, verifiers={"login": BasicVerifier(known)}), http
    ) as origin:
        for lines in ODD:
            request = f"POST /rpc HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n\r\n"
            status, _ = await raw_exchange(origin, request.encode())
            assert status in (400, 401), lines
        assert agent.scopes == []
        for lines in PLAIN:
            request = f"POST /rpc HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n\r\n"
            status, _ = await raw_exchange(origin, request.encode())
            assert status == 200, lines
