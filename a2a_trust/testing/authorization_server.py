"""An authorization server for tests and trials, which delegates: token exchange, and identity assertions (ID-JAG).

Source: RFC 8693, RFC 7523, draft-ietf-oauth-identity-assertion-authz-grant-03.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from hmac import compare_digest
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_plus, urlsplit
from uuid import uuid4

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from a2a_trust.auth.basic.user_pass import read_user_pass
from a2a_trust.auth.jwt import IdTokenVerifier, JwtVerifier, TokenProfile
from a2a_trust.auth.principal import Actor
from a2a_trust.auth.records import scope_set
from a2a_trust.base.net.metadata import metadata_urls
from a2a_trust.client.oauth import ACCESS_TYPE, EXCHANGE, ID_JAG, ID_TOKEN_TYPE, JWT_BEARER
from a2a_trust.errors import InvalidCredentialsError
from a2a_trust.testing.tokens import TokenIssuer

_SECONDS: Final = 60  # of an assertion
_TYP: Final = "oauth-id-jag+jwt"


class _RequestError(Exception):
    """The request is rejected with this error of RFC 6749 5.2, and the description."""


class _AssertionVerifier(JwtVerifier):
    """Assertions have the rules of access tokens, and a ``typ`` of their own."""

    def __init__(self, issuer: TokenIssuer, audience: str) -> None:
        super().__init__(issuer.keys(), issuer=issuer.url, audience=audience)
        self._profiles = {_TYP: TokenProfile.RFC9068}


class AuthorizationServer(TokenIssuer, Starlette):
    """An authorization server as an application, so that a chain of agents needs no identity provider.

    Nobody logs in: ``token`` and ``id_token`` make the tokens of users. ``clients`` are the agents with their secrets.
    The ``client_id`` of an agent is the audience of its tokens, too. An agent exchanges only tokens that are for
    itself. The new token is for another agent, its scopes are not wider, and its ``act`` has the agent as the current
    actor. ``trusted`` is the issuer whose assertions are accepted, each assertion once.
    """

    def __init__(self, url: str, *, clients: Mapping[str, str], trusted: TokenIssuer | None = None) -> None:
        TokenIssuer.__init__(self, url)
        self.token_endpoint: Final = f"{url}/token"
        self._clients, self._used = dict(clients), set[str]()
        self._assertions = None if trusted is None else _AssertionVerifier(trusted, url)
        metadata = {"issuer": url, "token_endpoint": self.token_endpoint, "jwks_uri": f"{url}/jwks"}
        documents = {f"{url}/jwks": self.jwks, **dict.fromkeys(metadata_urls(url), metadata)}
        pages = [Route(urlsplit(at).path, lambda _, it=it: JSONResponse(it)) for at, it in documents.items()]
        Starlette.__init__(self, routes=[Route(urlsplit(f"{url}/token").path, self._post, methods=["POST"]), *pages])

    def id_token(self, subject: str = "ann", *, client: str, scopes: Iterable[str] = ()) -> str:
        """An ID token of a user who has logged in to that client, which may use these scopes on behalf of the user."""
        now, may_use = int(time.time()), sorted(scope_set(scopes, "ID token"))
        claims = {"iss": self.url, "sub": subject, "aud": client, "iat": now, "exp": now + 300, "may_use": may_use}
        return self._signed("JWT", claims)

    async def _post(self, request: Request) -> JSONResponse:
        pairs = parse_qsl((await request.body()).decode("ascii", "replace"))
        form, grants = dict(pairs), {EXCHANGE: self._exchange, JWT_BEARER: self._redeem}
        try:
            if len(form) < len(pairs) or form.get("grant_type") not in grants:
                raise _RequestError("unsupported_grant_type", f"write each parameter once, and one of {[*grants]}")
            client = self._authenticate(request.headers.get("authorization", ""))
            answer, status = await grants[form["grant_type"]](client, form), 200
        except _RequestError as error:
            (code, why), status = error.args, 400 if error.args[0] != "invalid_client" else 401
            answer = {"error": code, "error_description": why}
        except InvalidCredentialsError as error:
            answer, status = {"error": "invalid_grant", "error_description": str(error)}, 400
        return JSONResponse(answer, status, {"Cache-Control": "no-store"})

    def _authenticate(self, header: str) -> str:
        client, secret = map(unquote_plus, read_user_pass(header.removeprefix("Basic ")))
        if client not in self._clients or not compare_digest(secret.encode(), self._clients[client].encode()):
            raise _RequestError("invalid_client", "unknown client, or another secret")
        return client

    async def _exchange(self, client: str, form: Mapping[str, str]) -> dict[str, Any]:
        verifiers = {ACCESS_TYPE: JwtVerifier, ID_TOKEN_TYPE: IdTokenVerifier}
        kind = verifiers.get(form.get("subject_token_type", ""))
        if kind is None:
            raise _RequestError("invalid_request", f"subject_token_type: write one of {', '.join(verifiers)}")
        subject_token = form.get("subject_token", "")
        user = await kind(self.keys(), issuer=self.url, audience=client).verify(subject_token, time.time())
        scope = _narrowed(form, user.scopes or frozenset(user.claims.get("may_use", ())))
        actors = (Actor(issuer=self.url, subject=client), *user.actors)
        if form.get("requested_token_type") != ID_JAG:
            return self._issue(client, user.subject, form.get("resource", form.get("audience")), scope, actors)
        parties = {"iss": self.url, "sub": user.subject, "aud": form.get("audience", ""), "client_id": client}
        times = {"jti": str(uuid4()), "iat": int(time.time()), "exp": int(time.time()) + _SECONDS}
        resource = {"resource": form["resource"]} if "resource" in form else {}
        assertion = self._signed(_TYP, {**parties, **times, **resource, "scope": scope, "act": _nested(actors)})
        answer = {"issued_token_type": ID_JAG, "access_token": assertion, "token_type": "N_A", "scope": scope}
        return {**answer, "expires_in": _SECONDS}

    async def _redeem(self, client: str, form: Mapping[str, str]) -> dict[str, Any]:
        if self._assertions is None:
            raise _RequestError("unsupported_grant_type", "no issuer of assertions is trusted")
        user = await self._assertions.verify(form.get("assertion", ""), time.time())
        claims, jti = user.claims, user.claims.get("jti")
        if claims["aud"] not in (self.url, (self.url,)) or claims.get("client_id") != client:
            raise _RequestError("invalid_grant", "the assertion is for several servers, or for another client")
        if type(jti) is not str or jti in self._used:
            raise _RequestError("invalid_grant", "the assertion was used before, or has no jti")
        self._used.add(jti)
        return self._issue(client, user.subject, claims.get("resource"), _narrowed(form, user.scopes), user.actors)

    def _issue(self, client: str, user: str, target: Any, scope: str, actors: tuple[Actor, ...]) -> dict[str, Any]:
        if target not in self._clients:
            raise _RequestError("invalid_target", "write one agent of this server as resource or audience")
        token = self.token(user, audience=target, scopes=scope.split(), client_id=client, act=_nested(actors))
        answer = {"access_token": token, "issued_token_type": ACCESS_TYPE, "token_type": "Bearer", "scope": scope}
        return {**answer, "expires_in": 300}


def _narrowed(form: Mapping[str, str], held: frozenset[str]) -> str:
    """The requested scopes, or all that are held; an error if they are wider than those."""
    scopes = frozenset(form["scope"].split()) if "scope" in form else held
    if not scopes <= held:
        raise _RequestError("invalid_scope", "the scope is wider than the token or the assertion allows")
    return " ".join(sorted(scopes))


def _nested(actors: tuple[Actor, ...]) -> dict[str, Any]:
    """The claim ``act``, with the current actor outside (RFC 8693 4.1)."""
    inner = {"act": _nested(actors[1:])} if actors[1:] else {}
    return {"iss": actors[0].issuer, "sub": actors[0].subject, **inner}
