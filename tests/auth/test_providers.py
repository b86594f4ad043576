"""The presets for identity providers, with tokens in the shapes that the vendors document."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from a2a_trust import generate_signer, providers
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.errors import (
    ConfigurationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    UnrecognizedCredentialsError,
)
from tests.auth.test_jwt import NOW, RSA, Keys
from tests.auth.vendors import AGENT, CLIENT_ID, CONSUMER_KEY, TENANT, VENDORS, Shape, Vendor, jwk, network
from tests.base.net.test_fetcher import Authority
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def each(shapes: Callable[[Vendor], tuple[Shape, ...]]) -> list[Any]:
    return [
        pytest.param(vendor, shape, id=f"{vendor.name}: {shape.name}") for vendor in VENDORS for shape in shapes(vendor)
    ]


every_vendor = walk("vendor", VENDORS, ids=lambda vendor: vendor.name)


# What is good

#: The claims in which a vendor names the client.
CLIENT_CLAIMS = {
    "keycloak": ["azp"],
    "entra_id": ["azp", "appid"],
    "auth0": ["azp", "client_id"],
    "okta": ["cid"],
    "cognito": ["client_id"],
    "ory_hydra": ["client_id"],
    "authentik": ["azp"],
}


@walk(("vendor", "shape"), each(lambda vendor: vendor.good))
async def test_an_access_token_gives_its_subject_and_scopes(
    vendor: Vendor, shape: Shape, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with network(vendor.documents, authority, monkeypatch) as (fetcher, _):
        identity = await vendor.verifier(fetcher).verify_bound(shape.token(), NOW)
    assert (identity.issuer, identity.subject) == (shape.claims["iss"], shape.subject)
    assert identity.scopes == shape.scopes
    assert (identity.bound_to is not None) == ("cnf" in shape.claims)
    named = [shape.claims[claim] for claim in CLIENT_CLAIMS.get(vendor.name, ()) if claim in shape.claims]
    assert [identity.client_id] == (named or [None])


@every_vendor
async def test_nothing_is_fetched_before_the_first_token_and_then_only_from_the_vendor(
    vendor: Vendor, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with network(vendor.documents, authority, monkeypatch) as (fetcher, servers):
        verifier = vendor.verifier(fetcher)
        assert servers.asked == []
        for shape in vendor.good * 2:
            await verifier.verify_bound(shape.token(), NOW)
        assert sorted(servers.asked) == sorted(vendor.documents)
    assert verifier.issuers[0] == vendor.issuer


# What is refused


@walk(("vendor", "shape"), each(lambda vendor: vendor.refused))
async def test_a_refusal_says_what_the_vendors_console_has_to_change(vendor: Vendor, shape: Shape) -> None:
    with pytest.raises(InvalidCredentialsError, match=shape.refused):
        await vendor.verifier(Fetcher()).verify_bound(shape.token(), NOW)


def spellings(vendor: Vendor, shape: Shape) -> list[str]:
    """The token as it is, for this agent, and without what most readers look at."""
    here: dict[str, Any] = {"aud": vendor.audience, vendor.audience_in: vendor.audience}
    bare: dict[str, Any] = {**here, **dict.fromkeys(["nonce", "at_hash", "c_hash", "s_hash"], ...)}
    return [shape.token(), shape.token(**here), shape.token(**bare)]


@walk(("vendor", "shape"), each(lambda vendor: vendor.others))
async def test_no_other_token_of_the_vendor_is_an_access_token(
    vendor: Vendor, shape: Shape, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with network(vendor.documents, authority, monkeypatch) as (fetcher, servers):
        verifier = vendor.verifier(fetcher)
        for token in spellings(vendor, shape):
            with pytest.raises(InvalidCredentialsError):
                await verifier.verify_bound(token, NOW)
        assert servers.asked == []


@every_vendor
@walk("audience", ["https://other.example.com", "/", [], ...], ids=["other", "slash", "empty", "none"])
async def test_a_token_for_somebody_else_is_refused(vendor: Vendor, audience: Any) -> None:
    verifier = vendor.verifier(Fetcher())
    said = f"{vendor.audience}/" if audience == "/" else audience
    for shape in vendor.good:
        name = "aud" if "aud" in shape.claims else vendor.audience_in
        if said is ... and name != vendor.audience_in:
            continue  # without aud it is another good shape
        changes: dict[str, Any] = {name: said}
        with pytest.raises(InvalidCredentialsError, match="does not include"):
            await verifier.verify_bound(shape.token(**changes), NOW)


@every_vendor
async def test_a_token_of_another_tenant_is_not_recognized(vendor: Vendor) -> None:
    verifier = vendor.verifier(Fetcher())
    for name in (vendor.elsewhere, f"{vendor.issuer}x", vendor.issuer.upper(), ...):
        with pytest.raises(UnrecognizedCredentialsError, match="iss is not the issuer"):
            await verifier.verify_bound(vendor.good[0].token(iss=name), NOW)


@every_vendor
async def test_a_token_that_the_vendor_has_not_signed_is_refused(
    vendor: Vendor, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = generate_signer("RS256", kid=RSA.kid, rsa_bits=2048)
    async with network(vendor.documents, authority, monkeypatch) as (fetcher, _):
        with pytest.raises(InvalidCredentialsError, match="signature"):
            await vendor.verifier(fetcher).verify_bound(vendor.good[0].token(stranger), NOW)


@walk("name", ["keycloak", "okta", "cognito", "ory_hydra", "authentik"])
async def test_who_sends_the_id_token_is_told_so_in_the_log(name: str) -> None:
    vendor = next(vendor for vendor in VENDORS if vendor.name == name)
    bare: dict[str, Any] = {"aud": vendor.audience, "nonce": ..., "at_hash": ...}
    with pytest.raises(InvalidCredentialsError, match="not an access token; send the access token, not the ID token"):
        await vendor.verifier(Fetcher()).verify(vendor.others[0].token(**bare), NOW)


# Entra ID


ENTRA = next(vendor for vendor in VENDORS if vendor.name == "entra_id")


@walk("shape", ENTRA.good, ids=lambda shape: shape.name)
async def test_a_tenants_token_signed_with_the_key_of_consumer_accounts_is_forged(
    shape: Shape, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with network(ENTRA.documents, authority, monkeypatch) as (fetcher, _):
        with pytest.raises(InvalidCredentialsError, match="no RSA key named 'consumers'"):
            await ENTRA.verifier(fetcher).verify_bound(shape.token(CONSUMER_KEY), NOW)


@walk("issuer", [None, ["x"], "https://login.microsoftonline.com/common/v2.0", {"a": 1}])
async def test_keys_of_entra_id_for_anybody_else_do_not_count(
    issuer: Any, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with network(ENTRA.documents, authority, monkeypatch) as (fetcher, servers):
        for url, document in servers.documents.items():
            if "keys" in document:
                servers.documents[url] = {"keys": ["x", jwk(issuer=issuer)]}
        for shape in ENTRA.good:
            with pytest.raises(InvalidCredentialsError, match="no RSA key named"):
                await ENTRA.verifier(fetcher).verify_bound(shape.token(), NOW)


@walk("document", [[], {}, {"keys": {}}, "x", None])
async def test_a_damaged_key_set_of_entra_id_is_an_outage(
    document: Any, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with network(ENTRA.documents, authority, monkeypatch) as (fetcher, servers):
        for url in [url for url in servers.documents if url.endswith("/keys")]:
            servers.documents[url] = document
        for shape in ENTRA.good:
            with pytest.raises(KeySourceUnavailableError):
                await ENTRA.verifier(fetcher).verify_bound(shape.token(), NOW)


@walk("scp", [["Invoices.Read"], 1, None, {"Invoices.Read.All": 1}])
@walk("roles", [["Invoices.Read.All"], "Invoices.Read.All", {"Invoices.Read.All": 1}, 1, None])
async def test_odd_claims_of_entra_id_give_no_permission(
    scp: Any, roles: Any, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with network(ENTRA.documents, authority, monkeypatch) as (fetcher, _):
        identity = await ENTRA.verifier(fetcher).verify_bound(ENTRA.good[0].token(scp=scp, roles=roles), NOW)
    assert "Invoices.Read.All" not in identity.scopes


# What the operator writes


@walk(
    ("make", "words"),
    [
        (lambda: providers.keycloak("sso.example.com", "staff", audience=AGENT), "write it as in https://"),
        (lambda: providers.keycloak("https://sso.example/realms/staff", "staff", audience=AGENT), "write it as in"),
        (lambda: providers.authentik("https://id.example/application/o/a/", "a", audience=AGENT), "write it as in"),
        (lambda: providers.keycloak("https://sso.example.com", "a/b", audience=AGENT), "keycloak: realm 'a/b'"),
        (lambda: providers.keycloak("https://sso.example.com", "", audience=AGENT), "keycloak: realm"),
        (lambda: providers.keycloak("https://sso.example.com?x", "a", audience=AGENT), "keycloak: url"),
        (lambda: providers.entra_id("common", audience=CLIENT_ID), "write the GUID .* Directory"),
        (lambda: providers.entra_id("acme.onmicrosoft.com", audience=CLIENT_ID), "write the GUID"),
        (lambda: providers.entra_id(f"{TENANT}\n", audience=CLIENT_ID), "write the GUID"),
        (lambda: providers.entra_id(TENANT, audience=""), "audience must be a string that is not empty"),
        (lambda: providers.auth0("https://acme.eu.auth0.com/", audience=AGENT), "write only the name"),
        (lambda: providers.okta("https://acme.okta.com", audience=AGENT), "org authorization server are for Okta only"),
        (lambda: providers.okta("https://acme.okta.com/oauth2/v1/x", audience=AGENT), "write its Issuer URI"),
        (lambda: providers.cognito("AbCdEfGhI", audience="web1"), "write it as in eu-west-1_"),
        (lambda: providers.cognito("evil.example/eu-west-1_AbCdEfGhI", audience="web1"), "write it as in eu-west-1_"),
        (lambda: providers.cognito("eu-west-1_AbCdEfGhI", audience=[]), "audience must be"),
        (lambda: providers.authentik("https://id.example.com", "a/b", audience="c"), "authentik: application"),
        (
            lambda: providers.spiffe("https://o.example", audience=AGENT, trust_domain="spiffe://example.org"),
            "only the name",
        ),
        (lambda: providers.spiffe("https://o.example", audience=AGENT, trust_domain=""), "only the name"),
        (lambda: providers.github_actions(audience=AGENT, owners={}), "gh api users/octo-org"),
        (lambda: providers.github_actions(audience=AGENT, owners={"octo-org": "65"}), "gh api"),  # type: ignore[dict-item]
        (lambda: providers.github_actions(audience=AGENT, owners={"octo-org": True}), "gh api"),
        (lambda: providers.github_actions(audience=AGENT, owners=["octo-org"]), "gh api"),  # type: ignore[arg-type]
        (lambda: providers.github_actions(audience=AGENT, owners={"": 65}), "AccessTokenMark"),
        (
            lambda: providers.kubernetes("https://k.example", audience=AGENT, keys=Keys(RSA), fetcher=Fetcher()),
            "either keys or fetcher",
        ),
    ],
)
def test_what_is_not_the_vendors_is_a_mistake(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()


def test_a_user_pool_in_china_has_its_own_domain() -> None:
    verifier = providers.cognito("cn-north-1_AbCdEfGhI", audience="web1")
    assert verifier.issuers == ("https://cognito-idp.cn-north-1.amazonaws.com.cn/cn-north-1_AbCdEfGhI",)


async def test_keys_may_come_from_elsewhere() -> None:
    verifier = providers.kubernetes("https://kubernetes.default.svc", audience=AGENT, keys=Keys(RSA))
    shape = next(vendor.good[0] for vendor in VENDORS if vendor.name == "kubernetes")
    identity = await verifier.verify(shape.token(iss="https://kubernetes.default.svc"), NOW)
    assert identity.subject == shape.subject


@walk(
    ("name", "scopes_from", "scopes"),
    [
        ("keycloak", "realm_access.roles", {"staff"}),
        ("keycloak", "resource_access.invoices.roles", {"reader"}),
        ("auth0", "permissions", {"x"}),
        ("authentik", "groups", {"staff"}),
        ("cognito", "cognito:groups", {"admin"}),
    ],
)
async def test_scopes_may_be_in_another_claim(
    name: str, scopes_from: str, scopes: set[str], authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    vendor = next(vendor for vendor in VENDORS if vendor.name == name)
    places: dict[str, tuple[str, ...]] = {
        "keycloak": ("https://sso.example.com", "staff"),
        "auth0": ("acme.eu.auth0.com",),
        "authentik": ("https://id.example.com", "invoices"),
        "cognito": ("eu-west-1_AbCdEfGhI",),
    }
    async with network(vendor.documents, authority, monkeypatch) as (fetcher, _):
        preset: Callable[..., Any] = getattr(providers, name)
        verifier = preset(*places[name], audience=vendor.audience, scopes_from=scopes_from, fetcher=fetcher)
        assert (await verifier.verify(vendor.good[0].token(), NOW)).scopes == scopes
