"""One line for the tokens of each well-known identity provider.

A preset knows what an issuer writes into its access tokens: its name, where its keys are, the claim with the scopes,
and the claim that distinguishes an access token from ID and refresh tokens of the same keys. An error says what to
change in the provider's console. docs/providers has a page for each provider.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from a2a_trust.auth.discovery import KeySource, OpenIdKeys
from a2a_trust.auth.introspection import IntrospectionVerifier, RedisTokenCache
from a2a_trust.auth.introspection_endpoint import EndpointAuthentication
from a2a_trust.auth.jwt import JwtVerifier, TokenProfile
from a2a_trust.auth.token_claims import AccessTokenMark, ScopesFrom, SeveralIssuers, marks_of
from a2a_trust.base import strict_json
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.trust.jwks_cache import JwksCache

Audience: TypeAlias = str | Iterable[str]


def keycloak(
    url: str, realm: str, *, audience: Audience, scopes_from: ScopesFrom = "scope", fetcher: Fetcher | None = None
) -> JwtVerifier:
    """Access tokens of a realm of Keycloak: ``keycloak("https://sso.example.com", "staff", audience="invoices")``.

    ``scopes_from="realm_access.roles"`` counts realm roles instead of scopes.
    """
    issuer = _keycloak_issuer(url, realm)
    return _verifier(issuer, audience, fetcher, _KEYCLOAK_MARK, _KEYCLOAK_HINTS, scopes_from, profile=_BOTH_PROFILES)


def keycloak_introspection(
    url: str,
    realm: str,
    *,
    audience: Audience,
    client_id: str,
    authentication: EndpointAuthentication,
    scopes_from: ScopesFrom = "scope",
    shared: RedisTokenCache | None = None,
    fetcher: Fetcher | None = None,
) -> IntrospectionVerifier:
    """The same, by asking Keycloak about each token: for lightweight access tokens.

    ``client_id`` is the agent's own client, with ``authentication`` such as ``ClientSecret(…)``.
    """
    issuer = _keycloak_issuer(url, realm)
    return IntrospectionVerifier(
        f"{issuer}/protocol/openid-connect/token/introspect",
        issuer=issuer,
        audience=audience,
        client_id=client_id,
        authentication=authentication,
        shared=shared,
        fetcher=fetcher,
        scopes_from=scopes_from,
        marked_by=_KEYCLOAK_MARK,
        hints=_KEYCLOAK_HINTS,
    )


#: Other tokens have ``Refresh``, ``Offline``, ``ID``, ``Logout``; access tokens that are bound to a key have ``DPoP``.
_KEYCLOAK_MARK: Final = AccessTokenMark("typ", "Bearer", "DPoP", in_all=True)
_KEYCLOAK_HINTS: Final = {
    "aud": "Keycloak: add a mapper of the type Audience to a client scope of the calling client",
    "sub": (
        'Keycloak: give the calling client the client scope "basic"; for lightweight access tokens also switch '
        'on "Add to lightweight access token" in its mapper "sub", or use keycloak_introspection'
    ),
}


def _keycloak_issuer(url: str, realm: str) -> str:
    return f"{_base(url, 'keycloak', '/realms')}/realms/{_part(realm, 'keycloak: realm', 'staff')}"


def entra_id(tenant: str, *, audience: Audience, fetcher: Fetcher | None = None) -> SeveralIssuers:
    """Access tokens of one tenant of Microsoft Entra ID, of both versions: ``entra_id("8eaef023-…", audience=[…])``.

    ``tenant`` is the Directory (tenant) ID, ``audience`` the Application (client) ID and the Application ID URI of the
    agent's registration. The scopes are ``scp`` of a token with a user, and ``roles`` of a token that an application
    got for itself; the roles of users do not count.
    """
    if not _GUID.fullmatch(tenant):
        raise ConfigurationError(
            f"entra_id: tenant {tenant[:64]!a} is not a tenant's ID; write the GUID that the Entra admin center shows "
            'as Directory (tenant) ID. "common", "organizations" and domain names are not in the tokens'
        )
    tenant, network = tenant.lower(), Fetcher() if fetcher is None else fetcher
    version_2 = f"https://login.microsoftonline.com/{tenant}/v2.0"
    keys_of_1 = network.loader(f"https://login.microsoftonline.com/{tenant}/discovery/keys", configured=True)
    sources: dict[str, KeySource] = {
        version_2: _EntraKeys(version_2, network),
        f"https://sts.windows.net/{tenant}/": JwksCache(
            lambda: _keys_of_tenant(keys_of_1, tenant), name=f"keys of version 1 of the tenant {tenant}"
        ),
    }
    return SeveralIssuers(
        JwtVerifier(
            keys,
            issuer=issuer,
            audience=audience,
            profile=TokenProfile.PLAIN_JWT,
            scopes_from=_entra_scopes,
            marked_by=(AccessTokenMark("azpacr"), AccessTokenMark("appidacr")),
            hints={
                "aud": (
                    "Entra ID: tokens of version 2 have the Application (client) ID, tokens of version 1 mostly the "
                    "Application ID URI (api://<client ID>); pass both as audience"
                )
            },
        )
        for issuer, keys in sources.items()
    )


_GUID: Final = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def _entra_scopes(claims: Mapping[str, Any]) -> Iterable[str]:
    """The permissions of the client. ``scp`` is only in tokens with a user. Its ``roles`` belong to the user; in a
    token without a user, whose subject is the application itself, they are the client's own permissions."""
    if "scp" in claims:
        scp = claims["scp"]
        return scp.split(" ") if isinstance(scp, str) else ()
    is_without_user = claims.get("idtyp", "app") == "app" and claims.get("oid") == claims["sub"]
    roles = claims.get("roles", ()) if is_without_user else ()
    return roles if isinstance(roles, tuple) else ()


class _EntraKeys(OpenIdKeys):
    """The keys of version 2, without those that are for other tenants."""

    async def _fetch_keys(self) -> tuple[bytes, float | None]:
        return await _keys_of_tenant(super()._fetch_keys, self.issuer.split("/")[3])


async def _keys_of_tenant(
    load: Callable[[], Awaitable[tuple[bytes, float | None]]], tenant: str
) -> tuple[bytes, float | None]:
    """The key set, without keys whose ``issuer`` is another tenant.

    The set of a tenant also lists keys of Microsoft's consumer accounts. A token of the tenant that is signed with one
    of those is forged; in 2023 attackers read the mail of agencies with such tokens.
    """
    document, max_age = await load()
    key_set = strict_json.parse(document, what="key set")
    keys = key_set.get("keys") if type(key_set) is dict else None
    if type(keys) is not list:
        return document, max_age
    names = ("https://login.microsoftonline.com/{tenantid}/v2.0", "https://sts.windows.net/{tenantid}/")
    ours = [*names, *(name.replace("{tenantid}", tenant) for name in names)]
    kept = [key for key in keys if type(key) is dict and ("issuer" not in key or key["issuer"] in ours)]
    return json.dumps({"keys": kept}).encode(), max_age


def auth0(
    domain: str, *, audience: Audience, scopes_from: ScopesFrom = "scope", fetcher: Fetcher | None = None
) -> JwtVerifier:
    """Access tokens of an Auth0 tenant, of both token profiles: ``auth0("acme.eu.auth0.com", audience="https://…")``.

    ``domain`` is the tenant's domain, or its custom domain; ``audience`` the Identifier of the API.
    ``scopes_from="permissions"`` counts the permissions that RBAC adds to tokens.
    """
    issuer = f"https://{_domain(domain, 'auth0: domain', 'acme.eu.auth0.com')}/"
    hints = {
        "aud": "Auth0: clients have to ask for a token with audience=<the Identifier of the API>",
        "scope": "Auth0: let clients ask for a scope, or give the API the RFC 9068 token profile",
    }
    mark = AccessTokenMark("gty")
    return _verifier(issuer, audience, fetcher, mark, hints, scopes_from, profile=_BOTH_PROFILES)


def okta(
    issuer: str, *, audience: Audience, scopes_from: ScopesFrom = "scp", fetcher: Fetcher | None = None
) -> JwtVerifier:
    """Access tokens of a custom authorization server of Okta: ``okta("https://acme.okta.com/oauth2/default", …)``."""
    if not re.fullmatch(r"https://[^/]+/oauth2/[A-Za-z0-9]+", issuer):
        raise ConfigurationError(
            f"okta: issuer {issuer[:128]!a} is not a custom authorization server; write its Issuer URI, such as "
            "https://acme.okta.com/oauth2/default. Tokens of the org authorization server are for Okta only"
        )
    hints = {"aud": "Okta: the audience is a setting of the authorization server (Security, API, Settings)"}
    return _verifier(issuer, audience, fetcher, AccessTokenMark("cid", in_all=True), hints, scopes_from)


def cognito(
    user_pool: str, *, audience: Audience, scopes_from: ScopesFrom = "scope", fetcher: Fetcher | None = None
) -> JwtVerifier:
    """Access tokens of an Amazon Cognito user pool: ``cognito("eu-west-1_AbCdEfGhI", audience=["<app client id>"])``.

    They have no ``aud``. ``audience`` are the ids of the app clients that may call, and the resource's URL for tokens
    with resource binding.
    """
    found = _USER_POOL.fullmatch(user_pool)
    if found is None:
        raise ConfigurationError(
            f"cognito: user_pool {user_pool[:64]!a} is not the id of a user pool; write it as in eu-west-1_AbCdEfGhI"
        )
    region = found["region"]
    host = f"cognito-idp.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"
    issuer = f"https://{host}/{user_pool}"
    mark = AccessTokenMark("token_use", "access", in_all=True)
    hints = {"aud": "Cognito: pass the ids of the app clients that may call as audience"}
    return _verifier(issuer, audience, fetcher, mark, hints, scopes_from, audience_from="client_id")


_USER_POOL: Final = re.compile(r"(?P<region>[a-z]{2}(?:-[a-z]+)+-[0-9]{1,2})_[A-Za-z0-9]+")


def zitadel(
    url: str,
    *,
    audience: Audience,
    client_id: str,
    authentication: EndpointAuthentication,
    shared: RedisTokenCache | None = None,
    fetcher: Fetcher | None = None,
) -> IntrospectionVerifier:
    """Access tokens of a Zitadel instance, by asking it: no claim of its JWTs says that they are access tokens.

    ``audience`` is the agent's project (Resource Id), ``client_id`` its application of the type API. The scopes are the
    roles that the caller has in that project.
    """
    issuer = _base(url, "zitadel")
    return IntrospectionVerifier(
        f"{issuer}/oauth/v2/introspect",
        issuer=issuer,
        audience=audience,
        client_id=client_id,
        authentication=authentication,
        shared=shared,
        fetcher=fetcher,
        scopes_from="urn:zitadel:iam:org:project:roles",  # not scope, which has what the client asked for
        hints={"aud": "Zitadel: clients have to ask for the scope urn:zitadel:iam:org:project:id:<Resource Id>:aud"},
    )


def ory_hydra(
    issuer: str, *, audience: Audience, scopes_from: ScopesFrom = ("scp", "scope"), fetcher: Fetcher | None = None
) -> JwtVerifier:
    """JWT access tokens of Ory Hydra and Ory Network: ``ory_hydra("https://auth.example.com", audience="https://…")``.

    ``issuer`` is ``urls.self.issuer`` as the metadata has it, with its slash if it has one.
    """
    hints = {"aud": "Hydra: list the audience in the OAuth 2.0 client, and let clients ask for it (parameter audience)"}
    return _verifier(issuer, audience, fetcher, AccessTokenMark("client_id", in_all=True), hints, scopes_from)


def authentik(
    url: str, application: str, *, audience: Audience, scopes_from: ScopesFrom = "scope", fetcher: Fetcher | None = None
) -> JwtVerifier:
    """Access tokens of one application of authentik: ``authentik("https://id.example.com", "invoices", audience=…)``.

    ``application`` is the slug of the agent's application, ``audience`` the Client ID of its provider.
    """
    slug = _part(application, "authentik: application", "invoices")
    issuer = f"{_base(url, 'authentik', '/application')}/application/o/{slug}/"
    hints = {"aud": "authentik: tokens are for the provider that issued them; clients have to use the agent's own"}
    return _verifier(issuer, audience, fetcher, AccessTokenMark("uid", in_all=True), hints, scopes_from)


def kubernetes(
    issuer: str, *, audience: Audience, keys: KeySource | None = None, fetcher: Fetcher | None = None
) -> JwtVerifier:
    """Tokens of service accounts: ``kubernetes("https://kubernetes.default.svc.cluster.local", audience="invoices")``.

    ``keys``, such as ``JwksFile(…)``, is for clusters whose key set this program cannot fetch. The tokens have no
    scopes; the subject is ``system:serviceaccount:<namespace>:<name>``.
    """
    hints = {"aud": "Kubernetes: give the pod a projected token with this audience (serviceAccountToken.audience)"}
    return _verifier(issuer, audience, fetcher, AccessTokenMark("kubernetes.io", in_all=True), hints, keys=keys)


def spiffe(
    issuer: str, *, audience: Audience, trust_domain: str, keys: KeySource | None = None, fetcher: Fetcher | None = None
) -> JwtVerifier:
    """JWT-SVIDs of one trust domain: ``spiffe("https://oidc.example.org", audience=…, trust_domain="example.org")``.

    ``issuer`` is ``jwt_issuer`` of the SPIRE server. The tokens have no scopes; the subject is the SPIFFE ID.
    """
    domain = _domain(trust_domain, "spiffe: trust_domain", "example.org")
    hints = {
        "iss": "SPIRE: set jwt_issuer of the server, so that JWT-SVIDs name their issuer",
        "sub": f"only workloads of the trust domain {domain} may call",
    }
    return _verifier(issuer, audience, fetcher, AccessTokenMark("sub", prefix=f"spiffe://{domain}/"), hints, keys=keys)


def github_actions(*, audience: Audience, owners: Mapping[str, int], fetcher: Fetcher | None = None) -> JwtVerifier:
    """Tokens of workflows on github.com: ``github_actions(audience="https://…", owners={"octo-org": 123456})``.

    Every workflow of the world can get a token with this audience. So ``owners`` are the accounts whose repositories
    may call, each with its numeric id: a name that is given up can be registered by somebody else. The tokens have no
    scopes; the subject is the repository with its branch or environment.
    """
    given: Any = owners
    ids = [*given.values()] if isinstance(given, Mapping) else []
    if not ids or not all(type(each) is int and each > 0 for each in ids):
        raise ConfigurationError(
            'github_actions: owners names the accounts and their ids, as in {"octo-org": 123456}; '
            "gh api users/octo-org --jq .id prints the id"
        )
    marks = (
        AccessTokenMark("repository_owner", *owners, in_all=True),
        AccessTokenMark("repository_owner_id", *map(str, ids), in_all=True),
    )
    hints = {
        "aud": "GitHub: ask for it in the workflow, as in core.getIDToken(audience)",
        **dict.fromkeys(("repository_owner", "repository_owner_id"), "only repositories of the owners may call"),
    }
    return _verifier("https://token.actions.githubusercontent.com", audience, fetcher, marks, hints)


_BOTH_PROFILES: Final = (TokenProfile.PLAIN_JWT, TokenProfile.RFC9068)


def _verifier(
    issuer: str,
    audience: Audience,
    fetcher: Fetcher | None,
    marked_by: AccessTokenMark | Iterable[AccessTokenMark],
    hints: Mapping[str, str],
    scopes_from: ScopesFrom = "scope",
    *,
    profile: TokenProfile | Iterable[TokenProfile] = TokenProfile.PLAIN_JWT,
    audience_from: str | None = None,
    keys: KeySource | None = None,
) -> JwtVerifier:
    marks = marks_of(marked_by)
    if keys is not None and fetcher is not None:
        raise ConfigurationError("fetcher: it has no effect, because keys= has its own; pass either keys or fetcher")
    return JwtVerifier(
        OpenIdKeys(issuer, Fetcher() if fetcher is None else fetcher) if keys is None else keys,
        issuer=issuer,
        audience=audience,
        profile=profile,
        scopes_from=scopes_from,
        audience_from=audience_from,
        marked_by=marks,
        hints={**{mark.claim: "send the access token, not the ID token" for mark in marks}, **hints},
    )


def _base(url: str, preset: str, added: str = "/.well-known") -> str:
    """The URL of a server, without a slash at its end, and without the path that is ``added`` to it."""
    if added in url or not re.fullmatch(r"https?://[^/?#\s]+(?:/[^/?#\s]+)*/?", url):
        raise ConfigurationError(f"{preset}: url {url[:128]!a}: write it as in https://login.example.com")
    return url.removesuffix("/")


def _part(name: str, what: str, example: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._~%-]+", name):
        raise ConfigurationError(
            f"{what} {name[:64]!a}: write its name as the issuer's URL has it, such as {example!r}"
        )
    return name


def _domain(name: str, what: str, example: str) -> str:
    if not re.fullmatch(r"[a-z0-9._-]+", name):
        raise ConfigurationError(f"{what} {name[:128]!a}: write only the name, in lower case, such as {example!r}")
    return name
