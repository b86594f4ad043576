"""Special rules for the tokens of Microsoft Entra ID: permissions of users, and keys of other tenants."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

from a2a_trust import strict_json
from a2a_trust.auth.discovery import OpenIdKeys

Load: TypeAlias = Callable[[], Awaitable[tuple[bytes, float | None]]]


def entra_scopes(claims: Mapping[str, Any]) -> Iterable[str]:
    """The permissions of the client. ``scp`` is only in tokens with a user. Its ``roles`` belong to the user; in a
    token without a user, whose subject is the application itself, they are the client's own permissions."""
    if "scp" in claims:
        scp = claims["scp"]
        return scp.split(" ") if isinstance(scp, str) else ()
    is_without_user = claims.get("idtyp", "app") == "app" and claims.get("oid") == claims["sub"]
    roles = claims.get("roles", ()) if is_without_user else ()
    return roles if isinstance(roles, tuple) else ()


class EntraKeys(OpenIdKeys):
    """The keys of version 2, without those that are for other tenants."""

    async def _fetch_keys(self) -> tuple[bytes, float | None]:
        return await keys_of_tenant(super()._fetch_keys, self.issuer.split("/")[3])


async def keys_of_tenant(load: Load, tenant: str) -> tuple[bytes, float | None]:
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
