"""``ForwardAuth``: a proxy asks whether it may pass a request on, and the card of the agent behind it decides.

nginx (``auth_request``), Caddy (``forward_auth``), Traefik (ForwardAuth) and Envoy (``ext_authz`` over HTTP) send the
head of each request, without its body. The answer is 200 with the headers about the caller, or the rejection.

1. Only the proxy may ask: the peer, a unix socket or a secret proves it, as for certificates (``FromProxy``).
2. Method and URI are those that the client sent. A URI that readers could understand differently is rejected, so what
   the proxy makes of it does not matter. A proxy that decodes or merges it before cannot be seen here.
3. The decision is as in ``protect``, by ``middleware.decision``. Rules about bodies cannot hold: a card that needs
   them does not start, unless ``agent_checks`` says that the agent itself does so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from time import time
from typing import Any, Final
from urllib.parse import unquote

from a2a_trust.auth.certificate.from_proxy import ProxySecret, UnixSocket, check_sender
from a2a_trust.auth.credentials import CertificateSource, HeaderLines, only_line
from a2a_trust.auth.dpop import DPoP
from a2a_trust.auth.guard_config import CredentialAt
from a2a_trust.auth.peers import Networks
from a2a_trust.auth.principal import Verifier
from a2a_trust.card.given import GivenCard, read_given
from a2a_trust.card.operations import Binding
from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.card.view import CardView, read_card
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, KeySourceUnavailableError
from a2a_trust.middleware import audit
from a2a_trust.middleware.application import FromApplication
from a2a_trust.middleware.calls import Call, CallRejectedError
from a2a_trust.middleware.decision import (
    Access,
    Admitted,
    CallRules,
    ForExtendedCard,
    NeedsBody,
    decide,
    decide_with_body,
)
from a2a_trust.middleware.documents import Receive, Scope, Send, close_websocket
from a2a_trust.middleware.extended_card import ExtendedCard, ExtendedCardEndpoint
from a2a_trust.middleware.options import RequestRules, UnsafeAnyWebhook, read_list
from a2a_trust.middleware.rejection import FORBIDDEN, UNAVAILABLE, Error, Rejection, rejection_of
from a2a_trust.serve.caller_token import CallerTokens, caller_headers
from a2a_trust.serve.proxy import reason_to_reject


class ForwardForm(StrEnum):
    """How a proxy asks."""

    NGINX = "nginx"
    """``auth_request``, with ``X-Original-URI $request_uri`` and ``X-Original-Method $request_method``."""
    CADDY = "caddy"
    """``forward_auth``, which writes ``X-Forwarded-Uri`` and ``X-Forwarded-Method``."""
    TRAEFIK = "traefik"
    """The middleware ForwardAuth, with the same headers as Caddy."""
    ENVOY = "envoy"
    """``ext_authz`` over HTTP, which asks with the method and the path of the request."""


_FORWARDED: Final = (b"x-forwarded-uri", b"x-forwarded-method")
_HEADERS: Final[Mapping[ForwardForm, tuple[bytes, ...]]] = {
    ForwardForm.NGINX: (b"x-original-uri", b"x-original-method"),
    ForwardForm.CADDY: _FORWARDED,
    ForwardForm.TRAEFIK: _FORWARDED,
    ForwardForm.ENVOY: (),
}
_CLIENT: Final = b"x-forwarded-for"
_PASSED_BY_NGINX: Final = (401, 403)
_STATUS: Final = b"a2a-status"
_CHECKS: Final[Mapping[str, str]] = {
    "tenants": "reject requests whose body names a tenant that the caller may not use",
    "extended-card": "give the extended card only to callers who may read it",
    "webhooks": "accept only webhooks that callers may register",
}


class ForwardAuth:
    """Answers a proxy that asks whether it may pass a request on to the agent; an ASGI application.

    - ``form``: how the proxy asks. ``peers``: what proves that the proxy asks, as for ``FromProxy``.
    - ``agent_checks``: rules about bodies that the agent itself must enforce: ``"tenants"`` for cards of 1.0,
      ``"extended-card"`` for cards that promise one, ``"webhooks"`` for cards that promise push notifications.
    - The other options are as for ``protect``. The agent, or the proxy, serves the card.

    The proxy must remove every header that begins with ``A2A-Caller`` from requests, and set the headers of the answer.
    ConfigurationError: a rule of the card would not be enforced, or an option is wrong.
    """

    def __init__(
        self,
        form: ForwardForm,
        *,
        peers: Networks | UnixSocket | ProxySecret,
        card: GivenCard | CardView,
        verifiers: Mapping[str, Verifier[Any] | CredentialAt],
        url: str | None = None,
        rules: RequestRules = RequestRules(),  # noqa: B008  frozen
        client_certificates: CertificateSource | None = None,
        dpop: DPoP | None = None,
        observer: audit.Observer | None = None,
        agent_checks: Iterable[str] = (),
        tokens: CallerTokens | None = None,
        plain: bool = True,
        clock: Callable[[], float] = time,
    ) -> None:
        """``tokens`` and ``plain``: which headers about the caller are in the answer."""
        view = card if isinstance(card, CardView) else read_card(read_given(card))
        if rules.skill_of is not None or rules.webhooks is not None:
            raise ConfigurationError("rules: skill_of and webhooks read bodies, which a proxy that asks does not send")
        rules = replace(rules, webhooks=UnsafeAnyWebhook())  # the agent's own, by agent_checks
        _check_checks(view, read_list("agent_checks", agent_checks))
        self._form, self._peers = ForwardForm(form), peers
        self._tokens, self._plain, self._clock = tokens, plain, clock
        self._secret = peers.header.lower().encode() if isinstance(peers, ProxySecret) else b""
        self._lines = HeaderLines(filter(None, (*_HEADERS[self._form], _CLIENT, self._secret)))
        self._access = Access(
            view,
            verifiers,
            rules=rules,
            url=url,
            certificates=client_certificates,
            dpop=dpop,
            card_paths=CARD_PATHS,
            trail=audit.Trail(observer),
        )
        # The agent answers for its extended card.
        source = ExtendedCard(FromApplication()) if view.has_extended_card else None
        self._calls = CallRules(self._access, rules, ExtendedCardEndpoint(view, source, application=self))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            self._access.trail.flush()
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "websocket":
            await close_websocket(receive, send)
        else:
            await self._answer(await self._decide(scope), scope, send)

    async def _decide(self, scope: Scope) -> Admitted | Rejection:
        try:
            request = self._request(scope)
        except (InvalidCredentialsError, KeySourceUnavailableError) as error:  # not the proxy, or a wrong setup
            is_setup = isinstance(error, KeySourceUnavailableError)
            return self._reject(UNAVAILABLE if is_setup else FORBIDDEN, str(error), scope)
        why = reason_to_reject(request)
        if why is not None:
            return self._reject(FORBIDDEN, why, request)
        now = self._clock()
        decision = await decide(self._access, self._calls, request, now)
        if not isinstance(decision, NeedsBody):
            return decision
        if not decision.rule.most:
            decided = await decide_with_body(self._calls, decision, b"")
            return decided.admitted if isinstance(decided, ForExtendedCard) else decided
        return await self._check_path(decision)

    async def _check_path(self, decision: NeedsBody) -> Admitted | Rejection:
        """The decision about a call whose body is not here, by the tenants in its path."""
        admitted, rule, seen = decision
        target = rule.target
        if target is not None and target.tenants:
            call = Call(target.binding, target.generation, target.operation, tenants=target.tenants)
            try:
                asked = self._calls.check_tenants(call, admitted.caller)
                if asked is not None:
                    await asked
            except CallRejectedError as rejected:
                return self._calls.reject(rejected, None, admitted.caller, seen)
        return admitted

    def _request(self, scope: Scope) -> Scope:
        """The request of the client. InvalidCredentialsError, KeySourceUnavailableError: the proxy did not ask, or not
        in its form."""
        lines = self._lines.find(scope["headers"])
        check_sender(self._peers, scope, lines.get(self._secret, []), "a request asks about another one")
        named = _HEADERS[self._form]
        client = only_line(lines.get(_CLIENT, []), "X-Forwarded-For")
        request = {**scope, "root_path": ""}
        if named:
            values = [only_line(lines.get(name, []), name.decode()) for name in named]
            if None in values:
                raise KeySourceUnavailableError(f"the proxy does not send {' and '.join(n.decode() for n in named)}")
            raw, _, query = (values[0] or b"").partition(b"?")
            request["raw_path"], request["query_string"] = raw, query
            request["path"] = unquote(raw.decode("latin-1"))
            request["method"] = (values[1] or b"").decode("latin-1")
        # The proxy has written the last address.
        peer = None if client is None else client.rpartition(b",")[2].strip().decode("latin-1")
        request["client"] = None if peer is None else (peer, 0)
        return request

    def _reject(self, error: Error, why: str, scope: Scope) -> Rejection:
        self._access.trail.rejected(scope, why, audit.Decision(audit.Reason.AMBIGUOUS_REQUEST, status=error.status))
        return rejection_of(error, None)

    async def _answer(self, decision: Admitted | Rejection, scope: Scope, send: Send) -> None:
        headers: list[tuple[bytes, bytes]] = [(b"cache-control", b"no-store")]
        if isinstance(decision, Admitted):
            status, body = 200, b""
            headers += caller_headers(decision.caller, self._tokens, self._clock(), plain=self._plain)
            if decision.dpop_nonce is not None:
                headers.append((b"dpop-nonce", decision.dpop_nonce.encode("ascii")))
            headers.append((b"content-length", b"0"))
        else:
            # Never below 400: proxies pass requests on then.
            status, body = max(decision.status, 400), decision.body
            headers += [line for line in decision.headers if line[0] != b"cache-control"]
            if self._form is ForwardForm.NGINX and status not in _PASSED_BY_NGINX:
                headers.append((_STATUS, b"%d" % status))
                status = FORBIDDEN.status
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def _check_checks(card: CardView, checks: tuple[str, ...]) -> None:
    """Return when ``agent_checks`` names exactly the rules of the card that a proxy cannot enforce."""
    needed = {"extended-card"} if card.has_extended_card else set[str]()
    needed |= {"webhooks"} if card.has_push_notifications else set()
    for interface in card.interfaces:
        if interface.binding.upper() in (Binding.JSONRPC, Binding.HTTP_JSON) and not interface.is_legacy:
            needed.add("tenants")
    missing, unknown = needed - {*checks}, {*checks} - needed
    if missing:
        todo = "; ".join(_CHECKS[each] for each in sorted(missing))
        raise ConfigurationError(
            f"agent_checks: a proxy that asks sends no bodies, so the agent must {todo}. If it does, write "
            f"agent_checks={sorted(needed)}"
        )
    if unknown:
        raise ConfigurationError(f"agent_checks: {', '.join(sorted(unknown))[:64]!a} is nothing that the card needs")
