"""docs/decisions.md is true: its steps are those of the code, and its table of requests is what an agent answers."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from a2a_trust import ApiKeyVerifier, Principal, protect, verify_card
from a2a_trust.auth import MemoryApiKeys
from a2a_trust.auth.guard import Guard
from a2a_trust.errors import KeySourceUnavailableError
from a2a_trust.keys.rotation import DEFAULT_KEEP, DEFAULT_OVERLAP, KeyState
from a2a_trust.proxies import FromProxy, Nginx, ProxySecret
from a2a_trust.testing import TokenIssuer, memory_client
from tests.attacks.test_m06_client_certificates_in_headers import Believes
from tests.certificates import Authority
from tests.docs.pages import PAGES

pytestmark = pytest.mark.anyio

PAGE = PAGES["docs/decisions.md"]
HERE = "https://agent.example.com"
SECRET = "0" * 32
(CARD,) = (json.loads(text) for text in re.findall(r"(?ms)^```json\n(.*?)^```$", PAGE))
ROWS = re.findall(r"(?m)^\| (a .*?) \| (passes|\d{3})", PAGE)

idp = TokenIssuer("https://login.example.com")
keys = MemoryApiKeys()


def token(*scopes: str) -> str:
    """A token that outlives a run of all tests, since it is made when they are collected."""
    return idp.token("ann", audience=HERE, scopes=scopes, expires_in=86_400)


UNREACHABLE = token("read")


class Issuer:
    """The verifier of the issuer, which cannot be reached for one token."""

    _reachable = idp.verifier(HERE)

    async def verify(self, credential: str, now: float) -> Any:
        if credential == UNREACHABLE:
            raise KeySourceUnavailableError("the issuer is unreachable")
        return await self._reachable.verify(credential, now)


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


KEY = {"X-API-Key": keys.create(owner="ann").text}
READ = bearer(token("read"))
CERTIFICATE = {
    "X-SSL-Client-Cert": quote(Authority().issue(subject="ann").pem),
    "X-SSL-Client-Verify": "SUCCESS",
    "X-Proxy-Secret": SECRET,
}
REQUESTS = {
    "a valid token with the scope `read`": READ,
    "a valid token without the scope": bearer(token()),
    "a valid API key": KEY,
    "a valid API key and a valid certificate": {**KEY, **CERTIFICATE},
    "a valid token with `read`, and an invalid API key": {**READ, "X-API-Key": "wrong"},
    "a valid API key and certificate, and a token whose issuer is unreachable": {
        **KEY,
        **CERTIFICATE,
        **bearer(UNREACHABLE),
    },
    "a token whose issuer is unreachable": bearer(UNREACHABLE),
}


def numbered(heading: str) -> list[str]:
    """The words in bold type that begin the numbered steps below a heading."""
    below = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"(?m)^\d\. \*\*(.+?)\.\*\*", below)


def first_words(text: str | None) -> list[str]:
    return re.findall(r"(?m)^ *\d\. (\w+)", text or "")


@pytest.mark.parametrize(("state", "answer"), ROWS)
async def test_an_agent_answers_as_the_table_says(state: str, answer: str) -> None:
    async def hello(request: Any) -> PlainTextResponse:
        assert isinstance(request.user, Principal)
        return PlainTextResponse("hello")

    app = protect(
        Starlette(routes=[Route("/", hello)]),
        card=CARD,
        verifiers={"login": Issuer(), "key": ApiKeyVerifier(keys), "certificate": Believes()},
        client_certificates=FromProxy(Nginx(), peers=ProxySecret(secret=SECRET)),
    )
    async with memory_client(app) as http:
        assert (await http.get("/", headers=REQUESTS[state])).status_code == (
            200 if answer == "passes" else int(answer)
        )


def test_the_table_has_every_request() -> None:
    assert {state for state, _ in ROWS} == REQUESTS.keys()


def test_the_steps_of_a_request_are_those_of_the_guard() -> None:
    steps = first_words(Guard.authenticate.__doc__)
    assert [step.split()[0] for step in numbered("A request")] == ["Collect", "Verify", "Reject", "Bind", "Decide"]
    assert [steps[number] for number in (0, 1, 3, 4)] == ["Collect", "Verify", "Bind", "Decide"]
    assert len(steps) == 5


def test_the_steps_of_a_card_are_those_of_verify_card() -> None:
    assert [step.split()[0] for step in numbered("A card")] == first_words(verify_card.__doc__)


def test_the_states_and_times_of_a_key_are_those_of_a_ring() -> None:
    table = PAGE.partition("| state | published |")[2].partition("\n\n")[0]
    assert re.findall(r"(?m)^\| (\w+) \|", table) == [state.value for state in KeyState]
    assert f"{DEFAULT_OVERLAP / 3600:.0f} hours later" in table
    assert f"{DEFAULT_KEEP / 86_400:.0f} days after" in table
