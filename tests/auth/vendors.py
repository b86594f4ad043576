"""What identity providers write into their tokens, after their documentation, and their servers on loopback.

``VENDORS`` has each preset with tokens in the documented shapes: access tokens, and the others that the same keys sign.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpcore
import pytest

from a2a_trust import generate_signer, providers
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.auth.token_claims import SeveralIssuers
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.keys import LocalSigner
from tests.auth.proofs import CLIENT
from tests.auth.test_jwt import NOW, RSA, token
from tests.base.net.test_fetcher import Authority
from tests.waiting import settled

__all__ = ["AGENT", "KEY", "VENDORS", "Network", "Shape", "Vendor", "network", "openid"]

AGENT: Final = "https://agent.example.com"
KEY: Final = RSA
CONSUMER_KEY: Final = generate_signer("RS256", kid="consumers", rsa_bits=2048)
Claims = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A kind of token of a vendor. ``subject`` and ``scopes`` are what an access token must give, ``refused`` the words
    of a refusal. ``typ`` is that of the header; ``...`` leaves it out. ``is_altered``: with claims that the vendor does
    not write by itself."""

    name: str
    claims: Claims
    typ: Any = "JWT"
    subject: str = ""
    scopes: frozenset[str] = frozenset()
    refused: str = ""
    is_altered: bool = False

    def token(self, signer: LocalSigner = KEY, **changes: Any) -> str:
        """A token of this shape; ``...`` takes a claim away."""
        claims = {"iat": NOW - 10, "exp": NOW + 600, **self.claims, **changes}
        return token({name: value for name, value in claims.items() if value is not ...}, signer=signer, typ=self.typ)


@dataclass(frozen=True, kw_only=True)
class Vendor:
    """A vendor, with the preset for its tokens.

    ``documents`` are what its servers answer, by URL. ``access`` are its access tokens, good ones and such as the
    operator has to change something for; ``others`` are never good. ``audience_in`` is the claim with the audience.
    """

    name: str
    verifier: Callable[[Fetcher], JwtVerifier | SeveralIssuers]
    issuer: str
    elsewhere: str
    documents: Mapping[str, Any]
    access: tuple[Shape, ...]
    others: tuple[Shape, ...] = ()
    audience: str = AGENT
    audience_in: str = "aud"

    @property
    def good(self) -> tuple[Shape, ...]:
        return tuple(shape for shape in self.access if shape.subject)

    @property
    def refused(self) -> tuple[Shape, ...]:
        return tuple(shape for shape in self.access if shape.refused)


def words(*scopes: str) -> frozenset[str]:
    return frozenset(scopes)


def openid(issuer: str, jwks_uri: str, *keys: Claims) -> dict[str, Any]:
    """The documents of an OpenID provider."""
    return {
        f"{issuer.removesuffix('/')}/.well-known/openid-configuration": {"issuer": issuer, "jwks_uri": jwks_uri},
        jwks_uri: {"keys": [*keys] or [jwk()]},
    }


def jwk(signer: LocalSigner = KEY, **members: Any) -> Claims:
    found = {**signer.public_key.to_jwk(), **members}
    return {name: value for name, value in found.items() if value is not ...}


EVENTS: Final[Claims] = {"http://schemas.openid.net/event/backchannel-logout": {}}
JKT: Final = {"jkt": CLIENT.public_key.thumbprint}


def keycloak() -> Vendor:
    issuer, ann = "https://sso.example.com/realms/staff", "6fd8e6c1-1f3e-4a5c-8f5e-0f6b3a9d1c11"
    base: Claims = {"iss": issuer, "jti": "onrtac:1", "typ": "Bearer", "azp": "web", "aud": [AGENT, "account"]}
    roles = {"realm_access": {"roles": ["staff"]}, "resource_access": {"invoices": {"roles": ["reader"]}}}
    user: Claims = {
        **base, **roles, "sub": ann, "sid": "s", "acr": "1", "auth_time": NOW - 20, "allowed-origins": ["/*"],
        "scope": "openid email invoices:read", "email_verified": True, "preferred_username": "ann",
    }  # fmt: skip
    scopes = words("openid", "email", "invoices:read")
    machine: Claims = {
        **base, "sub": "f2", "azp": "batch", "client_id": "batch", "scope": "invoices:read",
        "clientHost": "10.0.0.1", "clientAddress": "10.0.0.1", "preferred_username": "service-account-batch",
    }  # fmt: skip
    light: Claims = {**base, "sid": "s", "scope": "openid email"}
    identity: Claims = {**base, "typ": "ID", "aud": "web", "sub": ann, "nonce": "n", "at_hash": "h", "sid": "s"}
    refresh: Claims = {**base, "typ": "Refresh", "aud": issuer, "sub": ann, "scope": "openid invoices:read", "sid": "s"}
    return Vendor(
        name="keycloak",
        verifier=lambda fetcher: providers.keycloak(
            "https://sso.example.com/", "staff", audience=AGENT, fetcher=fetcher
        ),
        issuer=issuer,
        elsewhere="https://sso.example.com/realms/customers",
        documents=openid(issuer, f"{issuer}/protocol/openid-connect/certs"),
        access=(
            Shape(name="a user's", claims=user, subject=ann, scopes=scopes),
            Shape(name="one with nonce, before 25", claims={**user, "nonce": "n"}, subject=ann, scopes=scopes),
            Shape(name="one by RFC 9068", claims=user, typ="at+jwt", subject=ann, scopes=scopes),
            Shape(name="a bound one", claims={**user, "typ": "DPoP", "cnf": JKT}, subject=ann, scopes=scopes),
            Shape(name="a service account's", claims=machine, subject="f2", scopes=words("invoices:read")),
            Shape(
                name="a lightweight one with sub",
                claims={**light, "sub": ann},
                subject=ann,
                scopes=scopes - {"invoices:read"},
            ),
            Shape(
                name="a lightweight one",
                claims=light,
                refused=r'sub is missing, empty or not a string; Keycloak: .*"basic".*lightweight',
            ),
            Shape(
                name="one without audience mapper",
                claims={**user, "aud": "account"},
                refused="does not include .*; Keycloak: add a mapper of the type Audience",
            ),
            Shape(name="one without any audience", claims={**user, "aud": ...}, refused="type Audience"),
        ),
        others=(
            Shape(name="ID token", claims=identity),
            Shape(name="refresh token", claims=refresh),
            Shape(name="offline token", claims={**refresh, "typ": "Offline"}),
            Shape(name="logout token", claims={**base, "typ": "Logout", "events": EVENTS}, typ="logout+jwt"),
            Shape(name="old logout token", claims={**base, "typ": "Logout", "sub": ann, "sid": "s"}),
            Shape(name="token without its own typ", claims={**user, "typ": ...}, is_altered=True),
            Shape(name="ID token with another header", claims=identity, typ="at+jwt", is_altered=True),
            Shape(name="signed user info", claims={"iss": issuer, "sub": ann, "aud": "web", "exp": ...}),
        ),
    )


TENANT: Final = "8eaef023-2b34-4da1-9baa-8bc8c9d6a490"
CONSUMERS: Final = "9188040d-6c67-4c5b-b112-36a304b66dad"
CLIENT_ID: Final = "6e74172b-be56-4843-9ff4-e66a39bb12e3"


def entra_id() -> Vendor:
    login = f"https://login.microsoftonline.com/{TENANT}"
    issuer, issuer_1 = f"{login}/v2.0", f"https://sts.windows.net/{TENANT}/"
    any_tenant = "https://login.microsoftonline.com/{tenantid}/v2.0"
    keys = jwk(alg=..., x5t=KEY.kid, issuer=any_tenant), jwk(CONSUMER_KEY, alg=..., issuer=any_tenant.replace(
        "{tenantid}", CONSUMERS))  # fmt: skip
    ann, app = "HKZpfaHyWadeOouYlitjrI-KffTm222X5rrV3xDqfKQ", "690222be-ff1a-4d56-abd1-7e4f7d38e474"
    base: Claims = {"nbf": NOW - 10, "tid": TENANT, "uti": "u", "aio": "x", "rh": "I"}
    two: Claims = {**base, "iss": issuer, "aud": CLIENT_ID, "ver": "2.0", "azp": "c2", "azpacr": "0"}
    user: Claims = {**two, "sub": ann, "oid": "02223b6b", "scp": "Invoices.Read Invoices.Write", "name": "Ann"}
    machine: Claims = {**two, "azpacr": "1", "sub": app, "oid": app, "roles": ["Invoices.Read.All"]}
    one: Claims = {**base, "iss": issuer_1, "aud": f"api://{CLIENT_ID}", "ver": "1.0", "appid": "c1", "appidacr": "0"}
    user_1: Claims = {**one, "sub": ann, "acr": "1", "amr": ["pwd"], "scp": "Invoices.Read", "unique_name": "ann"}
    machine_1: Claims = {**one, "appidacr": "1", "sub": app, "oid": app, "roles": ["Invoices.Read.All"], "idtyp": "app"}
    identity: Claims = {
        **base, "iss": issuer, "aud": CLIENT_ID, "ver": "2.0", "sub": ann, "oid": "02223b6b", "name": "Ann",
        "preferred_username": "ann", "nonce": "n", "roles": ["Invoices.Read.All"],
    }  # fmt: skip
    read_all, read = words("Invoices.Read.All"), words("Invoices.Read")
    hint = "does not include .*; Entra ID: .*pass both as audience"
    return Vendor(
        name="entra_id",
        verifier=lambda fetcher: providers.entra_id(
            TENANT.upper(), audience=[CLIENT_ID, f"api://{CLIENT_ID}"], fetcher=fetcher
        ),
        issuer=issuer,
        elsewhere=f"https://login.microsoftonline.com/{CONSUMERS}/v2.0",
        documents={
            **openid(issuer, f"{login}/discovery/v2.0/keys", *keys),
            f"{login}/discovery/keys": {"keys": [jwk(alg=..., x5t=KEY.kid), keys[1]]},
        },
        access=(
            Shape(name="a user's", claims=user, subject=ann, scopes=words("Invoices.Read", "Invoices.Write")),
            Shape(
                name="one of a user with roles",
                claims={**user, "roles": ["Admin"]},
                subject=ann,
                scopes=words("Invoices.Read", "Invoices.Write"),
            ),
            Shape(
                name="one of a user with roles and without scp",
                claims={**user, "scp": ..., "roles": ["Admin"]},
                subject=ann,
            ),
            Shape(name="an application's", claims=machine, subject=app, scopes=read_all),
            Shape(name="an application's with idtyp", claims={**machine, "idtyp": "app"}, subject=app, scopes=read_all),
            Shape(name="an application's without roles", claims={**machine, "roles": ...}, subject=app),
            Shape(name="a user's with idtyp", claims={**machine, "idtyp": "user"}, subject=app),
            Shape(name="a user's of version 1", claims=user_1, subject=ann, scopes=read),
            Shape(name="an application's of version 1", claims=machine_1, subject=app, scopes=read_all),
            Shape(name="one for Microsoft Graph", claims={**user, "aud": "https://graph.microsoft.com"}, refused=hint),
            Shape(name="one of version 1 for another", claims={**user_1, "aud": "api://other"}, refused=hint),
        ),
        others=(
            Shape(name="ID token", claims=identity),
            Shape(name="ID token of version 1", claims={**identity, "iss": issuer_1, "ver": "1.0", "amr": ["pwd"]}),
        ),
        audience=CLIENT_ID,
    )


def auth0() -> Vendor:
    issuer = "https://acme.eu.auth0.com/"
    several = [AGENT, f"{issuer}userinfo"]
    user: Claims = {"iss": issuer, "sub": "auth0|1", "aud": several, "azp": "c", "scope": "openid invoices:read"}
    machine: Claims = {"iss": issuer, "sub": "c@clients", "aud": AGENT, "azp": "c", "gty": "client-credentials"}
    standard: Claims = {"iss": issuer, "sub": "auth0|1", "aud": several, "client_id": "c", "jti": "1"}
    identity: Claims = {"iss": issuer, "sub": "auth0|1", "aud": "c", "sid": "s", "nonce": "n", "nickname": "ann"}
    read = words("invoices:read")
    return Vendor(
        name="auth0",
        verifier=lambda fetcher: providers.auth0("acme.eu.auth0.com", audience=AGENT, fetcher=fetcher),
        issuer=issuer,
        elsewhere="https://other.eu.auth0.com/",
        documents=openid(issuer, f"{issuer}.well-known/jwks.json"),
        access=(
            Shape(name="a user's", claims={**user, "permissions": ["x"]}, subject="auth0|1", scopes=read | {"openid"}),
            Shape(name="a machine's", claims={**machine, "scope": "invoices:read"}, subject="c@clients", scopes=read),
            Shape(name="a machine's without scope", claims=machine, subject="c@clients"),
            Shape(
                name="a user's by RFC 9068",
                claims={**standard, "scope": "invoices:read"},
                typ="at+jwt",
                subject="auth0|1",
                scopes=read,
            ),
            Shape(
                name="a machine's by RFC 9068",
                claims={**standard, "sub": "c@clients"},
                typ="at+jwt",
                subject="c@clients",
            ),
            Shape(name="a user's without scope", claims={**user, "scope": ...}, refused="no claim shows .*; Auth0: "),
            Shape(
                name="one for the Management API",
                claims={**machine, "aud": f"{issuer}api/v2/"},
                refused="does not include .*; Auth0: clients have to ask",
            ),
        ),
        others=(
            Shape(name="ID token", claims=identity),
            Shape(name="ID token of an organization", claims={**identity, "org_id": "o", "acr": "1", "amr": ["mfa"]}),
            Shape(name="logout token", claims={**identity, "events": EVENTS}, typ="logout+jwt"),
        ),
    )


def okta() -> Vendor:
    issuer = "https://acme.okta.com/oauth2/default"
    base: Claims = {"ver": 1, "iss": issuer, "aud": AGENT}
    user: Claims = {
        **base, "jti": "AT.1", "cid": "0oa1", "uid": "00u1", "scp": ["openid", "invoices:read"],
        "sub": "ann@example.com",
    }  # fmt: skip
    machine: Claims = {**base, "jti": "AT.2", "cid": "0oa2", "scp": ["invoices:read"], "sub": "0oa2"}
    identity: Claims = {
        **base, "jti": "ID.1", "aud": "0oa1", "sub": "00u1", "name": "Ann", "amr": ["pwd"], "idp": "00o1", "nonce": "n",
        "auth_time": NOW - 20, "at_hash": "h",
    }  # fmt: skip
    scopes = words("openid", "invoices:read")
    return Vendor(
        name="okta",
        verifier=lambda fetcher: providers.okta(issuer, audience=AGENT, fetcher=fetcher),
        issuer=issuer,
        elsewhere="https://acme.okta.com/oauth2/aus1",
        documents=openid(issuer, f"{issuer}/v1/keys"),
        access=(
            Shape(name="a user's", claims=user, typ=..., subject="ann@example.com", scopes=scopes),
            Shape(name="a bound one", claims={**user, "cnf": JKT}, typ=..., subject="ann@example.com", scopes=scopes),
            Shape(name="a service's", claims=machine, typ=..., subject="0oa2", scopes=words("invoices:read")),
            Shape(
                name="one of another audience",
                claims={**user, "aud": "api://default"},
                typ=...,
                refused="does not include .*; Okta: the audience is a setting",
            ),
        ),
        others=(
            Shape(name="ID token", claims=identity, typ=...),
            Shape(
                name="ID token with a claim scp of its own",
                is_altered=True,
                claims={**identity, "scp": ["invoices:read"]},
                typ=...,
            ),
        ),
    )


def cognito() -> Vendor:
    pool = "eu-west-1_AbCdEfGhI"
    issuer, ann = f"https://cognito-idp.eu-west-1.amazonaws.com/{pool}", "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
    base: Claims = {"iss": issuer, "version": 2, "auth_time": NOW - 20, "jti": "1", "token_use": "access"}
    user: Claims = {
        **base, "sub": ann, "client_id": "web1", "username": "ann", "cognito:groups": ["admin"], "origin_jti": "2",
        "event_id": "3", "scope": "openid invoices/read",
    }  # fmt: skip
    machine: Claims = {**base, "sub": "batch1", "client_id": "batch1", "scope": "invoices/read"}
    identity: Claims = {
        **base, "version": ..., "token_use": "id", "sub": ann, "aud": "web1", "cognito:username": "ann", "nonce": "n",
        "cognito:groups": ["admin"], "at_hash": "h", "email": "ann@example.com", "email_verified": True,
    }  # fmt: skip
    scopes, read = words("openid", "invoices/read"), words("invoices/read")
    return Vendor(
        name="cognito",
        verifier=lambda fetcher: providers.cognito(pool, audience=["web1", "batch1", AGENT], fetcher=fetcher),
        issuer=issuer,
        elsewhere="https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_Other0000",
        documents=openid(issuer, f"{issuer}/.well-known/jwks.json"),
        access=(
            Shape(name="a user's", claims=user, typ=..., subject=ann, scopes=scopes),
            Shape(name="a machine's", claims=machine, typ=..., subject="batch1", scopes=read),
            Shape(name="one with resource binding", claims={**user, "aud": AGENT}, typ=..., subject=ann, scopes=scopes),
            Shape(name="one without scope", claims={**user, "scope": ...}, typ=..., subject=ann),
            Shape(
                name="one of another app client",
                claims={**user, "client_id": "web2"},
                typ=...,
                refused='client_id "web2".*; Cognito: pass the ids',
            ),
            Shape(
                name="one for another resource",
                claims={**user, "aud": "https://other.example.com"},
                typ=...,
                refused="does not include",
            ),
        ),
        others=(
            Shape(name="ID token", claims=identity, typ=...),
            Shape(name="ID token with client_id", is_altered=True, claims={**identity, "client_id": "web1"}, typ=...),
        ),
        audience="web1",
        audience_in="client_id",
    )


def ory_hydra() -> Vendor:
    issuer = "https://auth.example.com/"
    base: Claims = {"iss": issuer, "jti": "1", "nbf": NOW - 10, "aud": [AGENT], "client_id": "c", "ext": {}}
    user: Claims = {**base, "sub": "ann", "scp": ["openid", "invoices:read"]}
    identity: Claims = {
        "iss": issuer, "jti": "2", "aud": ["c"], "sub": "ann", "rat": NOW - 20, "auth_time": NOW - 20, "sid": "s",
        "at_hash": "h", "nonce": "n", "acr": "0", "amr": ["pwd"],
    }  # fmt: skip
    scopes = words("openid", "invoices:read")
    return Vendor(
        name="ory_hydra",
        verifier=lambda fetcher: providers.ory_hydra(issuer, audience=AGENT, fetcher=fetcher),
        issuer=issuer,
        elsewhere="https://auth.example.com",
        documents=openid(issuer, f"{issuer}.well-known/jwks.json"),
        access=(
            Shape(name="a user's", claims=user, subject="ann", scopes=scopes),
            Shape(
                name="one with scope",
                claims={**user, "scp": ..., "scope": "openid invoices:read"},
                subject="ann",
                scopes=scopes,
            ),
            Shape(name="one with both", claims={**user, "scope": "openid invoices:read"}, subject="ann", scopes=scopes),
            Shape(name="a machine's", claims={**base, "sub": "c", "scp": []}, subject="c"),
            Shape(name="one without audience", claims={**user, "aud": []}, refused="does not include .*; Hydra: list"),
        ),
        others=(
            Shape(name="ID token", claims=identity),
            Shape(
                name="ID token with scopes of the consent app",
                is_altered=True,
                claims={**identity, "scp": ["invoices:read"]},
            ),
            Shape(name="logout token", claims={"iss": issuer, "jti": "3", "aud": ["c"], "events": EVENTS, "sid": "s"}),
        ),
    )


def authentik() -> Vendor:
    issuer = "https://id.example.com/application/o/invoices/"
    identity: Claims = {
        "iss": issuer, "sub": "5f2c", "aud": "invoices-client", "auth_time": NOW - 20, "amr": ["pwd"], "sid": "s",
        "acr": "goauthentik.io/providers/oauth2/default", "name": "Ann", "groups": ["staff"], "nonce": "n",
    }  # fmt: skip
    old: Claims = {**identity, "azp": "invoices-client", "uid": "u"}
    user: Claims = {**old, "scope": "openid invoices:read"}
    scopes = words("openid", "invoices:read")
    return Vendor(
        name="authentik",
        verifier=lambda fetcher: providers.authentik(
            "https://id.example.com", "invoices", audience="invoices-client", fetcher=fetcher
        ),
        issuer=issuer,
        elsewhere="https://id.example.com/application/o/wiki/",
        documents=openid(issuer, f"{issuer}jwks/"),
        access=(
            Shape(name="a user's", claims=user, subject="5f2c", scopes=scopes),
            Shape(name="a machine's", claims={**user, "nonce": ...}, subject="5f2c", scopes=scopes),
            Shape(name="one of older releases", claims=old, subject="5f2c"),
            Shape(name="one of the hybrid flow", claims={**user, "c_hash": "h"}, refused="claims of an ID token"),
            Shape(
                name="one of another provider", claims={**user, "aud": "wiki"}, refused="; authentik: tokens are for"
            ),
        ),
        others=(
            Shape(name="ID token", claims=identity),
            Shape(name="ID token after a refresh", claims={**identity, "nonce": ...}),
            Shape(
                name="ID token with a scope of its own", is_altered=True, claims={**identity, "scope": "invoices:read"}
            ),
            Shape(name="logout token", claims={**identity, "events": EVENTS}, typ="logout+jwt"),
        ),
        audience="invoices-client",
    )


def kubernetes() -> Vendor:
    issuer = "https://kubernetes.default.svc.cluster.local"
    subject = "system:serviceaccount:billing:agent"
    of_pod = {"namespace": "billing", "serviceaccount": {"name": "agent", "uid": "1"}, "pod": {"name": "p", "uid": "2"}}
    pod: Claims = {
        "iss": issuer, "aud": [AGENT], "jti": "1", "nbf": NOW - 10, "sub": subject, "kubernetes.io": of_pod,
    }  # fmt: skip
    secret: Claims = {"kubernetes.io/serviceaccount/namespace": "billing", "sub": subject}
    return Vendor(
        name="kubernetes",
        verifier=lambda fetcher: providers.kubernetes(issuer, audience=AGENT, fetcher=fetcher),
        issuer=issuer,
        elsewhere="kubernetes/serviceaccount",
        documents=openid(issuer, f"{issuer}/openid/v1/jwks"),
        access=(
            Shape(name="a pod's", claims=pod, typ=..., subject=subject),
            Shape(
                name="one for the API server",
                claims={**pod, "aud": [issuer]},
                typ=...,
                refused="does not include .*; Kubernetes: give the pod a projected token",
            ),
        ),
        others=(
            Shape(name="token of a secret", is_altered=True, claims={**secret, "iss": issuer, "scope": "x"}, typ=...),
        ),
    )


def spiffe() -> Vendor:
    issuer, workload = "https://spire-oidc.example.org", "spiffe://example.org/ns/billing/sa/agent"
    svid: Claims = {"iss": issuer, "aud": [AGENT], "sub": workload}
    return Vendor(
        name="spiffe",
        verifier=lambda fetcher: providers.spiffe(issuer, audience=AGENT, trust_domain="example.org", fetcher=fetcher),
        issuer=issuer,
        elsewhere="https://spire-oidc.example.com",
        documents=openid(issuer, f"{issuer}/keys"),
        access=(
            Shape(name="a workload's", claims=svid, subject=workload),
            Shape(name="one without typ", claims=svid, typ=..., subject=workload),
            Shape(name="one without issuer", claims={**svid, "iss": ...}, refused="; SPIRE: set jwt_issuer"),
            Shape(
                name="one of another domain",
                claims={**svid, "sub": "spiffe://example.org.evil/a", "scope": "x"},
                refused="sub is .* not an access token",
            ),
            Shape(
                name="one of no workload",
                claims={**svid, "sub": "spiffe://example.org/"},
                refused="not an access token",
            ),
        ),
        others=(
            Shape(name="workload identity token", claims={**svid, "cnf": {"jwk": {}}}, typ="wit+jwt"),
            Shape(name="ID token", claims={**svid, "sub": "ann", "nonce": "n"}),
        ),
    )


def github_actions() -> Vendor:
    issuer = "https://token.actions.githubusercontent.com"
    job: Claims = {
        "iss": issuer, "aud": AGENT, "jti": "1", "nbf": NOW - 10, "sub": "repo:octo-org/octo-repo:environment:prod",
        "environment": "prod", "ref": "refs/heads/main", "repository": "octo-org/octo-repo", "repository_id": "74",
        "repository_owner": "octo-org", "repository_owner_id": "65", "actor": "octocat", "actor_id": "12",
        "repository_visibility": "private", "run_id": "1", "workflow": "deploy", "event_name": "push",
    }  # fmt: skip
    new = "repo:octo-org@65/octo-repo@74:ref:refs/heads/main"
    own = "https://github.com/octo-org"
    return Vendor(
        name="github_actions",
        verifier=lambda fetcher: providers.github_actions(audience=AGENT, owners={"octo-org": 65}, fetcher=fetcher),
        issuer=issuer,
        elsewhere=f"{issuer}/octocat-inc",
        documents=openid(issuer, f"{issuer}/.well-known/jwks"),
        access=(
            Shape(name="a job's", claims=job, subject=job["sub"]),
            Shape(name="one with ids in its subject", claims={**job, "sub": new}, subject=new),
            Shape(
                name="one with the audience that is usual", claims={**job, "aud": own}, refused="; GitHub: ask for it"
            ),
            Shape(
                name="one of a stranger",
                claims={**job, "repository_owner": "evil", "repository_owner_id": "66"},
                refused='repository_owner is "evil".*; only repositories of the owners may call',
            ),
            Shape(
                name="one of a stranger with the name",
                claims={**job, "repository_owner_id": "66"},
                refused='repository_owner_id is "66"',
            ),
        ),
        others=(
            Shape(name="token without owner", is_altered=True, claims={**job, "repository_owner": ..., "scope": "x"}),
            Shape(
                name="token without the owner's id",
                is_altered=True,
                claims={**job, "repository_owner_id": ..., "scope": "x"},
            ),
        ),
    )


VENDORS: Final = (
    keycloak(), entra_id(), auth0(), okta(), cognito(), ory_hydra(), authentik(), kubernetes(), spiffe(),
    github_actions(),
)  # fmt: skip


@dataclass
class Network:
    """The servers of vendors: one server on loopback, with a certificate for all their names.

    ``documents`` are what it answers, by URL; ``tokens`` what it says of the token in a form. ``asked`` are URLs.
    """

    documents: dict[str, Any]
    tokens: dict[str, Claims] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:-2])
        self.asked.append(f"https://{headers['host']}{head.split(' ')[1]}")
        form = parse_qs((await reader.readexactly(int(headers.get("content-length", 0)))).decode())
        found = self.documents.get(self.asked[-1])
        if form:
            found = self.tokens.get(form["token"][0], {"active": False})
        body = json.dumps(found).encode()
        status = "404 Not Found" if found is None else "200 OK"
        lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", "", ""]
        writer.write("\r\n".join(lines).encode() + body)
        await writer.drain()
        writer.close()

    async def resolve(self, host: str, port: int) -> list[str]:
        return ["127.0.0.1"]


@asynccontextmanager
async def network(
    documents: Mapping[str, Any], authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Fetcher, Network]]:
    """Servers under their own names, and a fetcher that reaches them. Port 443 is another one here."""
    found = Network(dict(documents))
    hosts = sorted({urlsplit(url).hostname or "" for url in documents})
    listening = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=authority.server(*hosts))
    here = listening.sockets[0].getsockname()[1]
    connect = httpcore.AnyIOBackend.connect_tcp

    async def connect_here(self: httpcore.AnyIOBackend, host: str, port: int, *others: Any) -> Any:
        assert (host, port) == ("127.0.0.1", 443)
        return await connect(self, host, here, *others)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect_here)
            yield (
                Fetcher(
                    timeout=60,
                    private_origins=[f"https://{host}" for host in hosts],
                    ssl_context=authority.client(),
                    resolver=found,
                ),
                found,
            )
    finally:
        listening.close()
        await settled()
        await asyncio.sleep(0.01)
