"""The pages of docs/providers are true: their code makes a verifier that fits the card that they show."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from a2a_trust import providers
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError
from a2a_trust.middleware.protection import protect
from tests.auth.test_jwt import NOW, token
from tests.auth.vendors import KEY, network, openid
from tests.base.net.test_fetcher import Authority

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


FOLDER = Path(__file__).resolve().parents[2] / "docs" / "providers"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "README.md")
PRESETS = sorted(name for name in dir(providers) if name[0].islower() and name not in ("annotations", "lazy"))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def verifiers_of(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, fetcher: Fetcher | None = None
) -> dict[str, Any]:
    """The verifiers that the page makes, with its code as it stands, or with another fetcher."""
    for secret in ("zitadel-secret", "introspection-secret"):
        (folder / secret).write_text("secret")
        (folder / secret).chmod(0o600)
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"given": fetcher}
    for block in blocks(page, "python"):
        code = block if fetcher is None else block.replace("Fetcher()", "given")
        exec(compile(code, str(page), "exec"), names)
    found: dict[str, Any] = names["verifiers"]
    return found


def card(schemes: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "Agent",
        "description": "An agent",
        "version": "1",
        "supportedInterfaces": [
            {"url": "https://agent.example.com/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ],
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
        "securitySchemes": schemes,
        "securityRequirements": [{"schemes": {name: {"list": []} for name in schemes}}],
    }


async def application(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("nobody was admitted")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_fits_its_card(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((name, scheme),) = (item for block in blocks(page, "json") for item in json.loads(block).items())
    verifiers = verifiers_of(page, tmp_path, monkeypatch)
    protect(application, card=card({name: scheme}), verifiers=verifiers)
    if "openIdConnectSecurityScheme" in scheme and verifiers[name].metadata_urls:
        scheme["openIdConnectSecurityScheme"]["openIdConnectUrl"] += "x"
        with pytest.raises(ConfigurationError, match="openIdConnectUrl"):
            protect(application, card=card({name: scheme}), verifiers=verifiers)


def test_every_preset_has_a_page_and_every_page_a_line_in_the_table() -> None:
    table = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[.+?\]\((.+?)\) \| (?:`(\w+)\(.*?\)`|no preset.*?) \|", table, re.MULTILINE)
    assert sorted(link for link, _ in rows) == [page.name for page in PAGES]
    named = {preset: (FOLDER / link).read_text(encoding="utf-8") for link, preset in rows if preset}
    assert sorted(named) == sorted(set(PRESETS) - {"keycloak_introspection"})
    assert all(f"import {preset}\n" in text for preset, text in named.items())
    assert all(len(page.read_text(encoding="utf-8").splitlines()) <= 60 for page in PAGES)


def test_the_example_prints_the_url_for_the_card(capsys: pytest.CaptureFixture[str]) -> None:
    readme = FOLDER / "README.md"
    ((code,), (shown,)) = blocks(readme, "python"), blocks(readme, "text")
    exec(compile(code, str(readme), "exec"), {})
    assert capsys.readouterr().out == shown


async def test_a_service_account_of_google_is_one_of_the_list(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account, google = "104029292853099978293", "https://accounts.google.com"
    claims: dict[str, Any] = {
        "iss": google, "aud": "https://agent.example.com", "azp": account, "sub": account, "iat": NOW - 10,
        "exp": NOW + 600, "email": "caller@acme.iam.gserviceaccount.com", "email_verified": True,
    }  # fmt: skip
    documents = openid(google, "https://www.googleapis.com/oauth2/v3/certs")
    async with network(documents, authority, monkeypatch) as (fetcher, _):
        verifier = verifiers_of(FOLDER / "google.md", tmp_path, monkeypatch, fetcher)["google"]
        identity = await verifier.verify(token(claims, signer=KEY, typ="JWT"), NOW)
        assert (identity.subject, identity.scopes) == (account, frozenset())
        for change in ({"sub": "113774264463038321964"}, {"aud": "web.apps.googleusercontent.com"}, {"at_hash": "h"}):
            with pytest.raises(InvalidCredentialsError):
                await verifier.verify(token({**claims, **change}, signer=KEY, typ="JWT"), NOW)
