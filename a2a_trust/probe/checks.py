"""The form of an agent's answers: challenges, bodies of rejections, caching, other sites, the connection, metadata.

These are faults of agents that enforce their card, too. This module only computes values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from a2a_trust import strict_json
from a2a_trust.card.operations import Binding, Operation
from a2a_trust.card.view import CardView, Interface, SecurityScheme
from a2a_trust.client.credentials import http_scheme
from a2a_trust.errors import MalformedError
from a2a_trust.keys import base64url
from a2a_trust.net.challenges import challenges_of
from a2a_trust.net.fetcher import AnyAnswer
from a2a_trust.probe.answers import Kind, content_of
from a2a_trust.probe.forgeries import Form, issuer_of, takes_token
from a2a_trust.probe.requests import OTHER_SITE
from a2a_trust.probe.rules import ProbeFinding, finding
from a2a_trust.probe.verdicts import Exchange
from a2a_trust.strict_json import JSONObject

_SOON: Final = 14 * 86_400
_WRONG_TOKENS: Final = (Form.WRONG, Form.FORGED, Form.UNSIGNED, Form.EXPIRED)


def checks_of(
    interface: Interface, view: CardView, exchanges: Sequence[Exchange], now: float
) -> Iterator[ProbeFinding]:
    """The faults of the answers from one interface; ``now`` is in seconds since the epoch."""
    where = interface.pointer
    rejections = [each for each in exchanges if each.reading.kind is Kind.REJECTED and each.form is not Form.GOOD]
    denied = [each for each in exchanges if each.reading.kind is Kind.DENIED and each.form is not Form.GOOD]
    if denied:
        yield finding("other-rejection", where, "an error, but not the status 401 or 403", str(denied[0]))
    unauthenticated = [each for each in rejections if each.answer is not None and each.answer.status == 401]
    yield from _challenges(where, view, unauthenticated)
    here = [each for each in rejections if each.request.url == interface.url or interface.binding == Binding.HTTP_JSON]
    odd = [each for each in here if not each.request.is_other_name and not _has_error(each)]
    if odd:
        yield finding("rejection-body", where, "the body is not an error of the binding", str(odd[0]))
    for each in exchanges:
        is_card = each.request.operation == Operation.GET_EXTENDED_CARD and each.form is Form.GOOD
        if is_card and each.answer is not None and each.reading.kind is Kind.ANSWERED and _may_be_shared(each.answer):
            yield finding("cached-extended-card", where, "no Cache-Control with private or no-store", str(each))
    ends = [each.answer.valid_until for each in exchanges if each.answer and each.answer.valid_until is not None]
    if ends and min(ends) < now + _SOON:
        yield finding("certificate-ends", where, f"it ends in {max(0, int(min(ends) - now)) // 86_400} days")


def _challenges(where: str, view: CardView, rejections: Sequence[Exchange]) -> Iterator[ProbeFinding]:
    demanded = {name for each in view.requirements or () for name, _ in each.schemes}
    schemes = [scheme for name, scheme in view.schemes.items() if name in demanded]
    words = {"bearer" for scheme in schemes if takes_token(scheme)}
    words |= {word for scheme in schemes if (word := http_scheme(scheme)) in ("basic", "digest")}
    reported: set[str] = set()
    for each in rejections:
        for rule, message in _challenge(each, words):
            if rule not in reported:
                reported.add(rule)
                yield finding(rule, where, message, str(each))


def _challenge(exchange: Exchange, words: set[str]) -> Iterator[tuple[str, str]]:
    line = "" if exchange.answer is None else exchange.answer.headers.get("www-authenticate", "")
    challenges = challenges_of([line])
    if not line:
        yield "no-challenge", "401 without WWW-Authenticate"
        return
    if not challenges:
        yield "malformed-challenge", "WWW-Authenticate cannot be read"
        return
    offered = {each.scheme for each in challenges}
    missing = {word for word in words if word not in offered and not (word == "bearer" and "dpop" in offered)}
    if missing:
        yield "other-challenge", f"no challenge of {', '.join(sorted(missing))}"
    bearers = [each for each in challenges if each.scheme in ("bearer", "dpop")]
    if exchange.form is Form.NOTHING and any("error" in each.parameters for each in bearers):
        yield "error-without-token", "a challenge names an error, and no token came"
    is_token = exchange.form in _WRONG_TOKENS and words == {"bearer"}
    if is_token and bearers and not any(each.parameters.get("error") == "invalid_token" for each in bearers):
        yield "no-error-code", "a wrong token, and no challenge with the error invalid_token"


def _has_error(exchange: Exchange) -> bool:
    body = None if exchange.answer is None else content_of(exchange.answer)
    if not isinstance(body, dict) or not isinstance(body.get("error"), dict):
        return False
    return exchange.request.binding is Binding.HTTP_JSON or body.get("jsonrpc") == "2.0"


def _may_be_shared(answer: AnyAnswer) -> bool:
    directives = {each.partition("=")[0].strip() for each in answer.headers.get("cache-control", "").lower().split(",")}
    return directives.isdisjoint({"private", "no-store"})


def check_preflight(where: str, answer: AnyAnswer | None) -> Iterator[ProbeFinding]:
    """Whether pages of every site may call with the credentials that the user's browser adds by itself."""
    if answer is None:
        return
    allowed = answer.headers.get("access-control-allow-origin", "").strip()
    if allowed == OTHER_SITE and answer.headers.get("access-control-allow-credentials", "").strip().lower() == "true":
        yield finding(
            "cors-with-credentials",
            where,
            "a preflight of an unknown site is answered with that site and Access-Control-Allow-Credentials",
            f"OPTIONS from {OTHER_SITE}: {answer.status}",
        )


Fits = Callable[[dict[str, Any]], str]
"""Returns the fault of a document that the card or a challenge names; "" if it fits."""


def documents_of(card: JSONObject, view: CardView) -> Iterator[tuple[str, str, Fits]]:
    """The pointer, the URL and the check of the metadata and key sets that the card names (RFC 8414, A2A 8.4)."""
    for name, scheme in view.schemes.items():
        url = getattr(scheme, "discovery_url", None) or getattr(scheme, "metadata_url", None)
        if url:
            yield f"/securitySchemes/{name[:64]}", url, partial(_of_issuer, scheme)
    for at, signature in enumerate(card.get("signatures") or ()):
        try:
            header = strict_json.parse(base64url.decode(signature["protected"], "protected"), what="header")
            yield f"/signatures/{at}", str(header["jku"]), partial(_of_key, header["kid"])
        except (MalformedError, TypeError, KeyError):
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
