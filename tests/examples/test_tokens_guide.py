"""docs/tokens.md and docs/opaque-tokens.md are true: their verifiers accept and reject the tokens that they say."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse

from a2a_trust import Fetcher, protect
from a2a_trust.auth.token_claims import ScopeClaims
from a2a_trust.errors import InvalidCredentialsError
from a2a_trust.testing import memory_client
from tests.auth.introspecting import CLIENT_SECRET, introspecting
from tests.docs.pages import PAGES
from tests.servers.issuer import Issuer, issuing

pytestmark = pytest.mark.anyio

GUIDE, OPAQUE_GUIDE = PAGES["docs/tokens.md"], PAGES["docs/opaque-tokens.md"]
FIRST, LOCAL, MARKED, SEVERAL, ACTORS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
OPAQUE, ASKED, REPLICAS = re.findall(r"```python\n(.*?)```", OPAQUE_GUIDE, re.DOTALL)
(LOCAL_PRINTS,), (ANSWER, ASKED_PRINTS) = (re.findall(r"(?s)```text\n(.*?)```", page) for page in (GUIDE, OPAQUE_GUIDE))
AGENT = "https://agent.example"
IDP = "https://idp.example"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with issuing() as running:
        yield running


def run(issuer: Issuer, *blocks: str) -> Any:
    """The verifier that the blocks make, with the issuer of the tests in the place of that of the page."""
    names: dict[str, Any] = {}
    for block in blocks:
        here = block.replace('"https://idp.example"', repr(issuer.url))
        here = here.replace("Fetcher()", f"Fetcher(private_origins=[{issuer.url!r}])")
        exec(compile(here, "docs/tokens.md", "exec"), names)
    return names["verifier"]


async def test_the_first_verifier(issuer: Issuer) -> None:
    verifier = run(issuer, FIRST)
    assert (await verifier.verify(issuer.token(audience=AGENT), time.time())).scopes == {"read"}
    with pytest.raises(InvalidCredentialsError, match="does not include"):
        await verifier.verify(issuer.token(audience="https://other.example"), time.time())


def test_the_lines_for_a_try_print_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(FIRST + LOCAL, "docs/tokens.md", "exec"), {})
    assert capsys.readouterr().out == LOCAL_PRINTS


async def test_tokens_without_scopes(issuer: Issuer) -> None:
    verifier = run(issuer, FIRST, MARKED.replace("TokenProfile.PLAIN_JWT", "TokenProfile.RFC9068"))
    claims: dict[str, Any] = {"client_id": "client-that-may-call", "token_use": "access"}
    good = issuer.token(**{**claims, "audience": "client-that-may-call"})
    assert (await verifier.verify(good, time.time())).subject == "ann"
    with pytest.raises(InvalidCredentialsError, match="token_use"):
        await verifier.verify(issuer.token(**{**claims, "audience": AGENT, "token_use": "id"}), time.time())
    assert run(issuer, FIRST, MARKED).issuers == (issuer.url,)


async def test_several_issuers(issuer: Issuer) -> None:
    verifier = run(issuer, FIRST, SEVERAL)
    assert (await verifier.verify(issuer.token(audience=AGENT), time.time())).issuer == issuer.url
    assert len(verifier.issuers) == 2


async def test_agents_that_act_for_a_user(issuer: Issuer) -> None:
    names: dict[str, Any] = {"ISSUER": issuer.url}
    exec(compile(ACTORS, "docs/tokens.md", "exec"), names)
    verifier, seen = run(issuer, FIRST), []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append([each.subject for each in scope["user"].actors])
        await JSONResponse({})(scope, receive, send)

    card = {
        "name": "agent",
        "supportedInterfaces": [{"url": f"{AGENT}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "securitySchemes": {"login": {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
        "securityRequirements": [{"schemes": {"login": {"list": []}}}],
        "skills": [],
    }
    guarded = protect(app, card=card, verifiers={"login": verifier}, rules=names["rules"])
    by_planner = {"sub": "planner"}
    by_both = {"sub": "researcher", "act": by_planner}
    async with memory_client(guarded, base_url=AGENT) as http:
        for act, status in (
            (by_planner, 200),
            (by_both, 200),
            ({"sub": "other"}, 401),
            ({"sub": "planner", "act": by_both}, 401),
            ("planner", 401),
        ):
            headers = {"Authorization": f"Bearer {issuer.token(audience=AGENT, act=act)}"}
            call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {}}
            answer = await http.post("/rpc", json=call, headers=headers)
            assert answer.status_code == status
    assert seen == [["planner"], ["researcher", "planner"]]


async def test_opaque_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = tmp_path / "introspection"
    secret.write_text(f"{CLIENT_SECRET}\n")
    now = time.time()
    async with introspecting(good=json.loads(ANSWER)) as server:
        block = OPAQUE.replace('"https://idp.example/introspect"', repr(server.url))
        block = block.replace("/run/secrets/introspection", str(secret))
        fetcher = f"fetcher=Fetcher(private_origins=['http://127.0.0.1:{server.port}'])"
        names: dict[str, Any] = {"Fetcher": Fetcher, "token": "good"}
        exec(block.replace('client_id="agent",', f'client_id="agent", {fetcher},'), names)
        verifier = names["verifier"]
        await asyncio.to_thread(exec, ASKED, names)
        assert capsys.readouterr().out == ASKED_PRINTS
        with pytest.raises(InvalidCredentialsError):
            await verifier.verify("other", now)
        assert all(
            option in OPAQUE_GUIDE for option in ("allow_missing_audience", "knows_access_tokens_only", "marked_by")
        )


def test_opaque_tokens_that_replicas_share(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_bytes(secrets.token_bytes(32))
    names: dict[str, Any] = {}
    (tmp_path / "introspection").write_text(CLIENT_SECRET)
    exec((OPAQUE + REPLICAS).replace("/run/secrets", str(tmp_path)), names)
    assert names["verifier"].issuers == (IDP,)


@pytest.mark.parametrize(
    ("claims", "scopes_from"),
    [
        ({"permissions": ["tasks:read"]}, "permissions"),
        ({"realm_access": {"roles": ["tasks:read"]}}, "realm_access.roles"),
        ({"https://example.com/roles": ["tasks:read"]}, "https://example.com/roles"),
        ({"urn:…:roles": {"tasks:read": {"1": "x"}}}, "urn:…:roles"),
        ({"permissions": ["tasks:read"], "scope": ""}, ["scope", "permissions"]),
    ],
)
def test_the_table_of_scopes(claims: dict[str, Any], scopes_from: Any) -> None:
    written = scopes_from if isinstance(scopes_from, list) else [scopes_from]
    assert all(f'"{name}"' in GUIDE for name in written)
    assert ScopeClaims(scopes_from).of_claims(claims) == {"tasks:read"}
