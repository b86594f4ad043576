"""The presets that ask the issuer about each token, with answers in the shapes that the vendors document."""

from __future__ import annotations

from typing import Any

import pytest

from a2a_trust import providers
from a2a_trust.auth.introspection import IntrospectionVerifier
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.client import ClientSecret
from a2a_trust.errors import InvalidCredentialsError, UnrecognizedCredentialsError
from tests.auth.test_jwt import NOW, RSA, token
from tests.auth.vendors import AGENT, network
from tests.base.net.test_fetcher import Authority
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


INSTANCE, PROJECT = "https://acme.zitadel.cloud", "69234237810729019"
ASK_ZITADEL = f"{INSTANCE}/oauth/v2/introspect"
ROLES = "urn:zitadel:iam:org:project:roles"
OF_ZITADEL: dict[str, Any] = {
    "active": True, "iss": INSTANCE, "aud": ["web", PROJECT], "sub": "2843", "client_id": "web", "username": "ann@acme",
    "token_type": "Bearer", "jti": "V2_1", "iat": NOW - 10, "nbf": NOW - 10, "exp": NOW + 600,
    "scope": f"openid invoices:write urn:zitadel:iam:org:project:id:{PROJECT}:aud",
    ROLES: {"invoices:read": {"2841": "acme.zitadel.cloud"}},
}  # fmt: skip

REALM = "https://sso.example.com/realms/staff"
ASK_KEYCLOAK = f"{REALM}/protocol/openid-connect/token/introspect"
OF_KEYCLOAK: dict[str, Any] = {
    "active": True, "iss": REALM, "aud": [AGENT, "agent"], "sub": "6fd8", "client_id": "web", "username": "ann",
    "token_type": "Bearer", "typ": "Bearer", "azp": "web", "jti": "1", "sid": "s", "scope": "openid invoices:read",
    "realm_access": {"roles": ["staff"]}, "iat": NOW - 10, "exp": NOW + 600,
}  # fmt: skip


def zitadel(fetcher: Fetcher) -> IntrospectionVerifier:
    return providers.zitadel(
        f"{INSTANCE}/", audience=PROJECT, client_id="agent", authentication=ClientSecret("secret"), fetcher=fetcher
    )


def keycloak(fetcher: Fetcher, **options: Any) -> IntrospectionVerifier:
    return providers.keycloak_introspection(
        "https://sso.example.com",
        "staff",
        audience=AGENT,
        client_id="agent",
        authentication=ClientSecret("secret"),
        fetcher=fetcher,
        **options,
    )


VENDORS = {"zitadel": (zitadel, ASK_ZITADEL, OF_ZITADEL), "keycloak": (keycloak, ASK_KEYCLOAK, OF_KEYCLOAK)}


def of(vendor: str, **changes: Any) -> dict[str, Any]:
    answer = {**VENDORS[vendor][2], **changes}
    return {name: value for name, value in answer.items() if value is not ...}


def jwt(vendor: str, **claims: Any) -> str:
    """A JWT of the vendor: those of Zitadel and lightweight ones of Keycloak have neither scopes nor roles."""
    issuer = VENDORS[vendor][2]["iss"]
    found = {"iss": issuer, "sub": "2843", "aud": ["web", PROJECT], "iat": NOW - 10, "exp": NOW + 600, **claims}
    return token(found, signer=RSA, typ="JWT")


@walk(
    ("vendor", "answer", "subject", "scopes"),
    [
        ("zitadel", of("zitadel"), "2843", {"invoices:read"}),
        ("zitadel", of("zitadel", **{ROLES: ...}), "2843", set()),
        ("zitadel", of("zitadel", username="batch", client_id=..., nbf=...), "2843", {"invoices:read"}),
        ("keycloak", of("keycloak"), "6fd8", {"openid", "invoices:read"}),
        ("keycloak", of("keycloak", typ="DPoP", token_type="DPoP", cnf={"jkt": RSA.public_key.thumbprint}), "6fd8",
         {"openid", "invoices:read"}),
    ],
)  # fmt: skip
@walk("is_opaque", [True, False], ids=["opaque", "JWT"])
async def test_an_active_token_gives_its_subject_and_scopes(
    vendor: str,
    answer: dict[str, Any],
    subject: str,
    scopes: set[str],
    is_opaque: bool,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make, endpoint, _ = VENDORS[vendor]
    async with network({endpoint: None}, authority, monkeypatch) as (fetcher, servers):
        verifier = make(fetcher)
        assert servers.asked == []
        shown = "VjVxyCZmRmWYqd3" if is_opaque else jwt(vendor)
        servers.tokens[shown] = answer
        identity = await verifier.verify_bound(shown, NOW)
        assert servers.asked == [endpoint]
    assert (identity.issuer, identity.subject) == (answer["iss"], subject)
    assert identity.scopes == scopes


@walk(
    ("vendor", "answer", "words"),
    [
        ("zitadel", {"active": False}, "not active"),
        ("zitadel", of("zitadel", aud=["web"]), "does not include .*; Zitadel: clients have to ask for the scope"),
        ("zitadel", of("zitadel", iss="https://other.zitadel.cloud"), "is not"),
        ("keycloak", {"active": False}, "not active"),
        ("keycloak", of("keycloak", aud="account"), "; Keycloak: add a mapper of the type Audience"),
        ("keycloak", of("keycloak", aud=...), "; Keycloak: add a mapper of the type Audience"),
        ("keycloak", of("keycloak", typ="Refresh", token_type=...), "access token"),
        ("keycloak", of("keycloak", typ="Offline"), "access token"),
        ("keycloak", of("keycloak", typ="ID", token_type=...), "access token"),
        ("keycloak", of("keycloak", typ=...), "access token"),
    ],
)
async def test_other_answers_are_refusals(
    vendor: str, answer: dict[str, Any], words: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, endpoint, _ = VENDORS[vendor]
    async with network({endpoint: None}, authority, monkeypatch) as (fetcher, servers):
        servers.tokens["opaque"] = answer
        with pytest.raises(InvalidCredentialsError, match=words):
            await make(fetcher).verify("opaque", NOW)


@walk("vendor", list(VENDORS))
async def test_tokens_that_are_no_access_tokens_of_the_issuer_are_sent_nowhere(
    vendor: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, endpoint, _ = VENDORS[vendor]
    async with network({endpoint: None}, authority, monkeypatch) as (fetcher, servers):
        verifier = make(fetcher)
        with pytest.raises(UnrecognizedCredentialsError):
            await verifier.verify(jwt(vendor, iss="https://other.example.com"), NOW)
        others: list[dict[str, Any]] = [{"at_hash": "h"}, {"exp": NOW - 1}, {"events": {}}, {"typ": "Refresh"}]
        for claims in others:
            with pytest.raises(InvalidCredentialsError):
                await verifier.verify(jwt(vendor, **claims), NOW)
        assert servers.asked == []


async def test_keycloak_may_count_roles(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    async with network({ASK_KEYCLOAK: None}, authority, monkeypatch) as (fetcher, servers):
        servers.tokens["opaque"] = OF_KEYCLOAK
        identity = await keycloak(fetcher, scopes_from="realm_access.roles").verify("opaque", NOW)
    assert identity.scopes == {"staff"}
