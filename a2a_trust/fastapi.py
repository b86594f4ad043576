"""For FastAPI: the caller and skills as dependencies, and the schemes of the card in ``/docs``.

::

    @app.get("/invoices")
    async def invoices(caller: Caller) -> list[str]: ...

    @app.post("/books", dependencies=[requires_skill("book")])
    async def book() -> None: ...

    openapi_security(app)
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI
from starlette.requests import HTTPConnection

from a2a_trust.auth.principal import Anonymous, Principal
from a2a_trust.card.view import (
    ApiKeyScheme,
    CardView,
    HttpScheme,
    MutualTlsScheme,
    OAuth2Scheme,
    OpenIdConnectScheme,
    SecurityScheme,
)
from a2a_trust.middleware.caller import principal_of, require_skill
from a2a_trust.middleware.door import guard_of

__all__ = ["Caller", "openapi_security", "requires_skill"]

_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_OPENAPI_FLOWS: Final = ("implicit", "password", "clientCredentials", "authorizationCode")
_LOCATIONS: Final = {"tokenUrl", "authorizationUrl", "refreshUrl"}


async def _caller(connection: HTTPConnection) -> Principal | Anonymous:
    return principal_of(connection)


Caller = Annotated[Principal | Anonymous, Depends(_caller)]
"""The type of an argument that is the caller of the request, of an endpoint or of a dependency; as ``principal_of``."""


def requires_skill(skill: str) -> Any:
    """A dependency that rejects callers who do not satisfy the requirements of a skill of the card, by its id.

    Write it into ``dependencies=[…]`` of a route or a router, or into ``Annotated[Principal, …]`` to get the caller.
    Errors are as for ``require_skill``.
    """

    async def skill_caller(connection: HTTPConnection) -> Principal | Anonymous:
        return require_skill(connection, skill)

    return Depends(skill_caller)


def openapi_security(app: FastAPI) -> None:
    """Show in ``/docs`` and ``/openapi.json`` what the guard demands: the schemes of the card, and on each operation
    its requirements, except on public paths.

    ``app`` is what ``protect`` or ``protect_agents`` returned. With several agents, each operation has the schemes of
    its own agent, with the agent's prefix before their names. ConfigurationError: ``app`` is not protected.
    """
    guard = guard_of(app, "openapi_security")
    plain = app.openapi
    done: list[int] = []

    def openapi() -> dict[str, Any]:
        document = plain()
        if id(document) not in done:
            done[:] = [id(document)]
            for path, item in document.get("paths", {}).items():
                for method in _METHODS:
                    found = guard.card_for(method.upper(), path) if method in item else None
                    if found is not None:
                        prefix, card = found
                        item[method]["security"] = _add_schemes(document, card, prefix.strip("/"))
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _add_schemes(document: dict[str, Any], card: CardView, prefix: str) -> list[dict[str, list[str]]]:
    """Add the card's schemes to the document; the requirements of an operation of this agent."""
    names = {name: re.sub(r"[^A-Za-z0-9._-]", "_", f"{prefix}.{name}" if prefix else name) for name in card.schemes}
    schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
    for name, scheme in card.schemes.items():
        if (shown := _openapi_scheme(scheme)) is not None:
            schemes[names[name]] = shown
    return [
        {names[name]: sorted(scopes) for name, scopes in alternative.schemes if names[name] in schemes}
        for alternative in card.requirements or ()
    ]


def _openapi_scheme(scheme: SecurityScheme) -> dict[str, Any] | None:
    """The scheme as OpenAPI 3.1 has it; None for what it does not have, such as the words of cards of 0.1."""
    if isinstance(scheme, ApiKeyScheme):
        return {"type": "apiKey", "in": scheme.location, "name": scheme.parameter}
    if isinstance(scheme, HttpScheme):
        return {"type": "http", "scheme": scheme.scheme}
    if isinstance(scheme, OpenIdConnectScheme):
        return {"type": "openIdConnect", "openIdConnectUrl": scheme.discovery_url}
    if isinstance(scheme, MutualTlsScheme):
        return {"type": "mutualTLS"}
    if not isinstance(scheme, OAuth2Scheme):
        return None
    flows = {
        flow.kind: {
            **{name: url for name, url in flow.urls if name in _LOCATIONS},
            "scopes": dict.fromkeys(sorted(flow.scopes), ""),
        }
        for flow in scheme.flows
        if flow.kind in _OPENAPI_FLOWS  # the flow for devices is not of OpenAPI 3.1
    }
    return {"type": "oauth2", "flows": flows}
