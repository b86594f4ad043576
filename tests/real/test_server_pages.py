"""The pages of docs/providers about servers that run here are true: their code accepts tokens of these servers."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.errors import InvalidCredentialsError
from a2a_trust.middleware.protection import protect
from tests.real.code_flow import AUDIENCE
from tests.real.glewlwyd import Glewlwyd
from tests.real.token_servers import CanailleServer, IntrospectingServer
from tests.servers.serving import ROOT

pytestmark = pytest.mark.anyio

PAGES: Final = {
    "authlib": "authlib_server",
    "canaille": "canaille_server",
    "django-oauth-toolkit": "django_server",
    "glewlwyd": "glewlwyd",
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def block(page: str, language: str, origin: str) -> str:
    """The block of the page, for the server and the agent of the tests."""
    text = (ROOT / "docs" / "providers" / f"{page}.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return str(found).replace("https://login.example.com", origin).replace("https://agent.example.com", AUDIENCE)


def verifiers_of(page: str, origin: str, fetcher: Fetcher) -> dict[str, Any]:
    code = block(page, "python", origin)
    for place, filled in (("Fetcher()", "given"), ('client_id="agent",', 'client_id="agent", fetcher=given,')):
        code = code.replace(place, filled)
    names: dict[str, Any] = {"given": fetcher}
    exec(compile(code, page, "exec"), names)
    found: dict[str, Any] = names["verifiers"]
    return found


async def application(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("nobody was admitted")


@pytest.mark.parametrize("page", PAGES)
async def test_the_code_of_a_page_fits_its_card_and_its_server(
    page: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: IntrospectingServer | Glewlwyd = request.getfixturevalue(PAGES[page])
    (tmp_path / "introspection-secret").write_text("secret")
    (tmp_path / "introspection-secret").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    verifiers = verifiers_of(page, server.origin, server.fetcher())
    ((name, scheme),) = json.loads(block(page, "json", server.origin)).items()
    card = {
        "name": "agent",
        "supportedInterfaces": [{"url": AUDIENCE, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "securitySchemes": {name: scheme},
        "securityRequirements": [{"schemes": {name: {"list": []}}}],
        "skills": [],
    }
    protect(application, card=card, verifiers=verifiers)
    ((kind, members),) = scheme.items()
    metadata_url = members["openIdConnectUrl" if kind == "openIdConnectSecurityScheme" else "oauth2MetadataUrl"]
    with httpx.Client(verify=server.tls, timeout=60) as http:
        assert http.get(metadata_url).json()["issuer"] == server.issuer
    tokens = server.login("openid read") if isinstance(server, CanailleServer | Glewlwyd) else server.login()
    for token in (server.machine_token(), tokens["access_token"]):
        assert "read" in (await verifiers[name].verify_bound(token, time.time())).scopes
    with pytest.raises(InvalidCredentialsError):
        await verifiers[name].verify_bound(tokens["refresh_token"], time.time())
