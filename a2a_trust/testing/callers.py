"""Callers for tests of handlers and executors, as behind the guard. They are not authenticated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from starlette.requests import Request

from a2a_trust.auth.principal import Anonymous, Identity, Principal
from a2a_trust.errors import ConfigurationError
from a2a_trust.middleware.caller import Caller, Running, is_public, principal_of, set_caller, this_task
from a2a_trust.middleware.documents import ASGIApp, Receive, Scope, Send
from a2a_trust.middleware.door import is_protected
from a2a_trust.middleware.options import check_app, read_list

_NO_CLAIMS: Final[Mapping[str, Any]] = MappingProxyType({})


def fake_principal(
    subject: str = "ann",
    *,
    scheme: str = "key",
    issuer: str = "api-keys",
    scopes: Iterable[str] = (),
    claims: Mapping[str, Any] = _NO_CLAIMS,
) -> Principal:
    """A caller with one credential, as the guard would make it. ``scheme`` is the scheme's name in the card.

    ``issuer`` is ``"api-keys"`` for API keys, and the issuer's URL for tokens. ConfigurationError: a claim has a type
    that can be changed.
    """
    identity = Identity(issuer=issuer, subject=subject, scopes=frozenset(read_list("scopes", scopes)), claims=claims)
    return Principal(identities=((scheme, identity),))


def as_caller(app: ASGIApp, caller: Caller) -> ASGIApp:
    """``app``, where every request is from that caller, for tests of handlers without a card.

    It does not authenticate, so never serve it. ConfigurationError: ``app`` is protected, or a request has come through
    a guard. Test a protected application with a credential, or build the application in a function, and wrap it before
    ``protect``.
    """
    check_app(app)
    _check_caller(caller)
    if is_protected(app):
        raise ConfigurationError(
            "as_caller: the application is protected; send it a credential (MemoryApiKeys, TokenIssuer), or build the "
            "application in a function, and wrap one that is not protected"
        )

    async def as_the_caller(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
            return
        if is_public(scope) or _has_caller(scope):
            raise ConfigurationError(
                "as_caller: this request has come through a guard already; use as_caller without protect"
            )
        inner = {**scope}
        set_caller(inner, caller)
        with Running(caller, this_task()):
            await app(inner, receive, send)

    return as_the_caller


def fake_request(caller: Caller, *, path: str = "/") -> Request:
    """A GET request of that caller, without headers, for tests that call handlers as functions.

    For the a2a-sdk, ``DefaultServerCallContextBuilder().build(fake_request(caller))`` is a ``ServerCallContext`` of
    that caller.
    """
    _check_caller(caller)
    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "https",
        "server": ("agent.test", 443),
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [],
        "state": {},
    }
    set_caller(scope, caller)
    return Request(scope)


def _has_caller(scope: Scope) -> bool:
    try:
        principal_of(scope)
    except ConfigurationError:
        return False
    return True


def _check_caller(caller: object) -> None:
    if not isinstance(caller, Principal | Anonymous):
        raise ConfigurationError(f"caller: {type(caller).__name__} is not a caller; write fake_principal('ann')")
