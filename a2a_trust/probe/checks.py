"""The form of an agent's answers: challenges, bodies of rejections, caching, other sites, the connection, metadata.

These are faults of agents that enforce their card, too. This module only computes values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from a2a_trust.base import strict_json
from a2a_trust.base.net.metadata import challenges_of
from a2a_trust.base.strict_json import JSONObject
from a2a_trust.base.strict_json.pointer import escape_step
from a2a_trust.card.operations import Binding, Operation
from a2a_trust.card.view import CardView, Interface, SecurityScheme
from a2a_trust.client.credentials import http_scheme
from a2a_trust.errors import MalformedError
from a2a_trust.keys import base64url
from a2a_trust.probe.answers import Kind, content_of
from a2a_trust.probe.forgeries import Form, issuer_of, takes_token
from a2a_trust.probe.requests import OTHER_SITE, PREFLIGHT
from a2a_trust.probe.rules import ProbeFinding, finding
from a2a_trust.probe.verdicts import Exchange

_SOON: Final = 14 * 86_400
_WRONG_TOKENS: Final = (Form.WRONG, Form.FORGED, Form.UNSIGNED, Form.EXPIRED)


def checks_of(
    interface: Interface, view: CardView, exchanges: Sequence[Exchange], now: float
) -> Iterator[ProbeFinding]:
    """The faults of the answers from one interface, each once; ``now`` is in seconds since the epoch."""
    demanded = {name for each in view.requirements or () for name, _ in each.schemes}
    schemes = [scheme for name, scheme in view.schemes.items() if name in demanded]
    words = {"bearer" if takes_token(scheme) else http_scheme(scheme) for scheme in schemes}
    first: dict[str, Exchange] = {}
    for each in exchanges:
        for rule in _faults(each, words & {"bearer", "basic", "digest"}, interface, now):
            first.setdefault(rule, each)
    yield from (finding(rule, interface.pointer, str(each)) for rule, each in first.items())


def _faults(exchange: Exchange, words: set[str], interface: Interface, now: float) -> Iterator[str]:
    answer, request, kind = exchange.answer, exchange.request, exchange.reading.kind
    if answer is None:
        return
    headers = {name: value.strip().lower() for name, value in answer.headers.items()}
    if answer.valid_until is not None and answer.valid_until < now + _SOON:
        yield "certificate-ends"
    if request.operation == PREFLIGHT:
        origin, credentials = (headers.get(f"access-control-allow-{name}") for name in ("origin", "credentials"))
        if (origin, credentials) == (OTHER_SITE, "true"):
            yield "cors-with-credentials"
    elif exchange.form is Form.GOOD:
        directives = {each.partition("=")[0].strip() for each in headers.get("cache-control", "").split(",")}
        is_card = request.operation == Operation.GET_EXTENDED_CARD and kind is Kind.ANSWERED
        if is_card and directives.isdisjoint({"private", "no-store"}):
            yield "cached-extended-card"
    elif kind is Kind.DENIED:
        yield "other-rejection"
    elif kind is Kind.REJECTED:
        is_here = request.url == interface.url or interface.binding == Binding.HTTP_JSON
        if is_here and not request.is_other and not _is_error(request.binding, content_of(answer)):
            yield "rejection-body"
        if answer.status == 401:
            yield from _challenge(exchange.form, answer.headers.get("www-authenticate", ""), words)


def _is_error(binding: Binding, body: Any) -> bool:
    is_object = isinstance(body, dict) and isinstance(body.get("error"), dict)
    return is_object and (binding is Binding.HTTP_JSON or body.get("jsonrpc") == "2.0")


def _challenge(form: Form, line: str, words: set[str]) -> Iterator[str]:
    challenges = challenges_of([line])
    if not challenges:
        yield "malformed-challenge" if line else "no-challenge"
        return
    offered = {"bearer" if each.scheme == "dpop" else each.scheme for each in challenges}
    if words - offered:
        yield "other-challenge"
    errors = [each.parameters.get("error") for each in challenges if each.scheme in ("bearer", "dpop")]
    if form is Form.NOTHING and any(errors):
        yield "error-without-token"
    if form in _WRONG_TOKENS and words == {"bearer"} and errors and "invalid_token" not in errors:
        yield "no-error-code"


Fits = Callable[[dict[str, Any]], str]
"""Returns the fault of a document that the card or a challenge names; "" if it fits."""


def documents_of(card: JSONObject, view: CardView) -> Iterator[tuple[str, str, Fits]]:
    """The pointer, the URL and the check of the metadata and key sets that the card names (RFC 8414, A2A 8.4)."""
    for name, scheme in view.schemes.items():
        url = getattr(scheme, "discovery_url", None) or getattr(scheme, "metadata_url", None)
        if url:
            yield f"/securitySchemes/{escape_step(name[:64])}", url, partial(_of_issuer, scheme)
    signatures = card.get("signatures")
    for at, signature in enumerate(signatures if isinstance(signatures, list) else ()):
        try:
            header = strict_json.parse(base64url.decode(signature["protected"], "protected"), what="header")
            yield f"/signatures/{at}", str(header["jku"]), partial(_of_key, header["kid"])
        except (MalformedError, AttributeError, KeyError, TypeError):
            continue


def _of_issuer(scheme: SecurityScheme, found: dict[str, Any]) -> str:
    tokens = {url for flow in getattr(scheme, "flows", ()) for name, url in flow.urls if name == "tokenUrl"}
    if str(found.get("issuer")).rstrip("/") != issuer_of(scheme).rstrip("/"):
        return "the metadata names another issuer than its URL"
    if tokens and found.get("token_endpoint") not in tokens:
        return "the metadata names another token endpoint than the card"
    return ""


def _of_key(kid: object, found: dict[str, Any]) -> str:
    keys = found.get("keys")
    has_key = isinstance(keys, list) and any(isinstance(key, dict) and key.get("kid") == kid for key in keys)
    return "" if has_key else "the key set does not have the key of the signature"


def resource_of(interface: Interface, exchanges: Sequence[Exchange]) -> Iterator[tuple[str, str, Fits]]:
    """The same for the metadata that a challenge names (RFC 9728 5.1); nothing without one."""
    lines = [each.answer.headers.get("www-authenticate", "") for each in exchanges if each.answer is not None]
    urls = (challenge.resource_metadata for line in dict.fromkeys(lines) for challenge in challenges_of([line]))
    for url in [url for url in urls if url][:1]:
        yield interface.pointer, url, partial(_of_resource, interface)


def _of_resource(interface: Interface, found: dict[str, Any]) -> str:
    is_about = f"{interface.url.rstrip('/')}/".startswith(f"{str(found.get('resource')).rstrip('/')}/")
    return "" if is_about else "the metadata in a challenge is not about this interface"
