"""The requests of a probe to one interface, and the credentials that they carry.

The rules:

1. The task does not exist, so nothing is canceled, and no stream begins. ``SendMessage`` and ``SendStreamingMessage``
   come without a message, so no task begins. Operations that write are left out.
2. Wrong credentials are random and new for each request, with invented user names, so no one is locked out.
3. The operator's credentials come from ``client.answer``, which binds each to its origins. Parts and replicas of them
   are never made: the wrong place gets a random value.

Source: A2A 1.0.1 5.3, 9.4, 11.3; 0.3 3.2.3, 7; 0.1; RFC 6750 2, RFC 7519 6, RFC 7617 2.
"""

from __future__ import annotations

import json
import re
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from secrets import token_urlsafe
from typing import Any, Final
from urllib.parse import quote

from a2a_trust.base.net.addresses import is_this_machine
from a2a_trust.card import operations
from a2a_trust.card.operations import Binding, Operation
from a2a_trust.card.places import HeaderPlace, key_place
from a2a_trust.card.schema import Generation
from a2a_trust.card.view import Alternative, ApiKeyScheme, CardView, Interface, MutualTlsScheme, SecurityScheme
from a2a_trust.client.answer import Answer, Credentials, Part, answer_for
from a2a_trust.client.credentials import ApiKey, BearerToken, http_scheme
from a2a_trust.client.decisions import attachment_of
from a2a_trust.client.destinations import Destination
from a2a_trust.client.flow import run_async
from a2a_trust.client.messages import Attachment, Request
from a2a_trust.errors import TrustError
from a2a_trust.keys import base64url
from a2a_trust.keys.signer import generate_signer, sign_jwt

UNKNOWN: Final = "UnknownOperation"
"""The name of the operation that does not exist."""
PREFLIGHT: Final = "preflight"
SENDING: Final = (Operation.SEND_MESSAGE, Operation.SEND_STREAMING_MESSAGE)
_WRITING: Final = (Operation.CREATE_PUSH_CONFIG, Operation.DELETE_PUSH_CONFIG)
HARMLESS: Final = (*SENDING, *(each for each in Operation if each not in (*SENDING, *_WRITING)))
#: A site that no browser shows (RFC 6761 6.4).
OTHER_SITE: Final = "https://probe.invalid"
_IN_0_1: Final = ("tasks/get", "tasks/cancel", "tasks/resubscribe")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeRequest:
    """A request without credentials. ``is_other``: it names the extended card as other generations do, or is the
    request of a browser before a page of another site may call the interface. It is sent without a credential only."""

    operation: str
    binding: Binding
    method: str
    url: str
    content: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    is_other: bool = False


def requests_of(interface: Interface, task: str) -> Iterator[ProbeRequest]:
    """The requests to an interface; ``task`` is the id of a task that does not exist."""
    if interface.binding == Binding.GRPC:
        yield from _grpc_calls(interface)
        return
    generation, is_rpc = interface.generation, interface.binding == Binding.JSONRPC
    for operation in HARMLESS:
        yield from request_of(interface, operation, task, _params(generation, operation, task))
    if is_rpc and interface.is_legacy:  # some servers have each method at a path of its own
        at_path = interface._replace(url=f"{interface.url.rstrip('/')}/tasks/get")
        yield _call(at_path, Operation.GET_TASK, "tasks/get", {"id": task})
    if is_rpc:
        yield _call(interface, UNKNOWN, "ProbeUnknown" if generation is Generation.V1_0 else "probe/unknown", {})
    else:
        yield _request(interface, UNKNOWN, "GET", "/probeUnknown")
    yield from (replace(each, is_other=True) for each in _other_names(interface))
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, content-type"}
    plain = _request(interface, PREFLIGHT, "OPTIONS", "")
    yield replace(plain, url=interface.url, headers={"Origin": OTHER_SITE, **asked}, is_other=True)


def with_web_url(interface: Interface) -> Interface:
    """The interface; if it is of gRPC, with a URL of http or https, as operators write origins."""
    scheme, _, place = Destination.origin_of(interface.url).rpartition("://")
    is_plain = scheme in ("http", "grpc") or (not scheme and is_this_machine(place.rpartition(":")[0]))
    url = f"{'http' if is_plain else 'https'}://{place}"
    return interface._replace(url=url) if interface.binding == Binding.GRPC else interface


def _grpc_calls(interface: Interface) -> Iterator[ProbeRequest]:
    """Every operation but the extended card: gRPC of 0.3 has one method for both cards."""
    methods = operations.GRPC_METHODS.items()
    paths = {name: path for path, (generation, name) in methods if generation is interface.generation}
    asked = [(each, paths[each]) for each in HARMLESS if each in paths and each != Operation.GET_EXTENDED_CARD]
    asked += [(UNKNOWN, f"{path.rpartition('/')[0]}/ProbeUnknown") for _, path in asked[:1]]  # type: ignore[misc]
    for name, path in asked:
        yield ProbeRequest(operation=name, binding=Binding.GRPC, method="POST", url=interface.url + path)


def request_of(
    interface: Interface, operation: Operation, task: str, params: Mapping[str, Any]
) -> Iterator[ProbeRequest]:
    """The request for an operation; nothing, if the generation has none."""
    generation = interface.generation
    if interface.binding == Binding.JSONRPC:
        names = [name for name, known in operations.METHODS.items() if known == (generation, operation)]
        if generation is Generation.V0_1:
            names += [name for name in _IN_0_1 if operations.METHODS[name][1] is operation]
        yield from (_call(interface, operation, name, params) for name in names[:1])
        return
    for route in [each for each in operations.ROUTES[generation] if each.operation is operation][:1]:
        method, path = route.methods[0], re.sub(r"{\w+}", quote(task, safe=""), route.template)
        yield _request(interface, operation, method, path, json.dumps(params).encode() if method == "POST" else None)


def _request(
    interface: Interface, operation: str, method: str, path: str, content: bytes | None = None
) -> ProbeRequest:
    tenant = f"/{quote(interface.tenant, safe='')}" if interface.tenant and path else ""
    return ProbeRequest(
        operation=operation,
        binding=Binding.HTTP_JSON,
        method=method,
        url=f"{interface.url.rstrip('/')}{tenant}{path}",
        content=content,
        headers={} if interface.is_legacy else {"A2A-Version": "1.0"},
    )


def _call(interface: Interface, operation: str, method: str, params: Mapping[str, Any]) -> ProbeRequest:
    named = {**params, "tenant": interface.tenant} if interface.tenant else params
    body = {"jsonrpc": "2.0", "id": "probe", "method": method, "params": named}
    request = _request(interface, operation, "POST", "", json.dumps(body).encode())
    return replace(request, binding=Binding.JSONRPC, url=interface.url)


def _params(generation: Generation, operation: Operation, task: str) -> dict[str, str]:
    is_empty = operation in (Operation.LIST_TASKS, Operation.GET_EXTENDED_CARD)
    if is_empty or (operation in SENDING and generation is not Generation.V0_1):
        return {}
    if generation is Generation.V1_0 and operation in (Operation.GET_PUSH_CONFIG, Operation.LIST_PUSH_CONFIGS):
        return {"taskId": task} | ({"id": task} if operation is Operation.GET_PUSH_CONFIG else {})
    return {"id": task}


def _other_names(interface: Interface) -> Iterator[ProbeRequest]:
    """The extended card by its names in all generations, at the interface and beside it."""
    own = [each.template for each in operations.ROUTES[interface.generation]]
    if interface.binding == Binding.JSONRPC:
        own = []
        for generation, method in operations.EXTENDED_CARD_METHODS.items():
            if generation is not interface.generation:
                yield _call(interface, Operation.GET_EXTENDED_CARD, method, {})
    base = interface.url.partition("?")[0].rstrip("/")
    for place in [base, base.rpartition("/")[0]] if base.count("/") > 2 else [base]:
        for path in (*operations.EXTENDED_CARD_PATHS.values(), operations.EXTENDED_CARD_0_2):
            if place != base or path not in own:
                yield _request(interface._replace(url=place, tenant=""), Operation.GET_EXTENDED_CARD, "GET", path)


class Attempt(Enum):
    """The credential of a request; reports show its text."""

    NOTHING = "no credential"
    WRONG = "a random credential"
    MALFORMED = "a malformed credential"
    ELSEWHERE = "a random credential in another place"
    FORGED = "a token signed by a throw-away key"
    UNSIGNED = "an unsigned token (alg none)"
    EXPIRED = "an expired token of a throw-away key"
    LESS = "a credential that lacks a scope"
    HALF = "one of two credentials"
    GOOD = "the given credential"


#: The wrong ones; the last three are tokens.
_WRONG: Final = (Attempt.WRONG, Attempt.MALFORMED, Attempt.ELSEWHERE, Attempt.FORGED, Attempt.UNSIGNED, Attempt.EXPIRED)
_WELL_KNOWN: Final = re.compile(r"/\.well-known/[a-z-]+")
_ANY_TOKEN: Final = BearerToken("none", origins=[OTHER_SITE])


@dataclass(frozen=True, slots=True)
class Trial:
    """An attempt with its credentials, for one alternative of the card, or for all of them (None)."""

    attempt: Attempt
    alternative: Alternative | None = None
    parts: tuple[Part, ...] = ()
    origin: str = ""

    async def attachment(self, request: ProbeRequest) -> Attachment:
        """TrustError: a credential cannot be obtained."""
        values = [await run_async(part.credential.obtain(part.scopes)) for part in self.parts]
        plain = Request(method=request.method, url=request.url, headers={}, timeout={})
        return attachment_of(plain, Answer((), self.parts), values, self.origin)


def wrong_of(view: CardView, alternative: Alternative, url: str) -> list[Trial]:
    """Trials with wrong credentials; none if no request can carry a credential for the alternative. Rule 2."""
    schemes: list[tuple[str, SecurityScheme, Any]] = []
    for name, _ in alternative.schemes:
        scheme = view.schemes.get(name)
        with suppress(TrustError):  # the place is unsafe
            place = key_place(scheme) if isinstance(scheme, ApiKeyScheme) else None
            if scheme is not None and not isinstance(scheme, MutualTlsScheme):
                schemes.append((name, scheme, place))
    trials: list[Trial] = []
    for attempt in _WRONG if any(is_bearer(scheme) for _, scheme, _ in schemes) else _WRONG[: 3 * bool(schemes)]:
        parts: list[Part] = []
        for name, scheme, place in schemes:
            other = None if isinstance(scheme, ApiKeyScheme) else HeaderPlace("X-API-Key")
            credential = ApiKey(_wrong_value(scheme, attempt, url, view), origins=[OTHER_SITE])
            at = other if attempt is Attempt.ELSEWHERE else place
            parts.append(Part(name=name, scheme=scheme, credential=credential, scopes=frozenset(), place=at))
        trials.append(Trial(attempt, alternative, tuple(parts)))
    return trials


def _wrong_value(scheme: SecurityScheme, attempt: Attempt, url: str, view: CardView) -> str:
    if attempt is Attempt.MALFORMED:
        return "?"
    if http_scheme(scheme) == "basic":
        return b64encode(f"probe-{token_urlsafe(9)}:{token_urlsafe(16)}".encode()).decode()
    is_token = is_bearer(scheme) and attempt in _WRONG[3:]
    return _token(attempt, issuer_of(scheme), url, view) if is_token else token_urlsafe(32)


def is_bearer(scheme: SecurityScheme) -> bool:
    """Whether the scheme's credential is a token in ``Authorization: Bearer``."""
    return not _ANY_TOKEN.mismatch(scheme, frozenset())


def issuer_of(scheme: SecurityScheme) -> str:
    """The issuer that tokens for the scheme name, as well as the card shows it."""
    metadata = getattr(scheme, "discovery_url", None) or getattr(scheme, "metadata_url", None)
    urls = [url for flow in getattr(scheme, "flows", ()) for _, url in flow.urls]
    return _WELL_KNOWN.sub("", metadata or "/".join("".join(urls[:1]).split("/")[:3]))


def _token(attempt: Attempt, issuer: str, audience: str, view: CardView) -> str:
    now = int(time.time()) - (3600 if attempt is Attempt.EXPIRED else 0)
    scopes = sorted({scope for each in view.alternatives for _, wanted in each.schemes for scope in wanted})
    names = {"iss": issuer, "sub": f"probe-{token_urlsafe(9)}", "aud": audience, "client_id": "probe"}
    times = {"iat": now - 60, "exp": now + 300, "jti": token_urlsafe(9)}
    claims = {**names, **times, "scope": " ".join(scopes)[:1024]}
    if attempt is Attempt.UNSIGNED:
        parts = ({"alg": "none", "typ": "at+jwt"}, claims)
        return ".".join([*(base64url.encode(json.dumps(part).encode()) for part in parts), ""])
    signer = generate_signer("ES256")
    return sign_jwt({"alg": signer.alg, "kid": signer.kid, "typ": "at+jwt"}, claims, signer)


def own_of(
    view: CardView, alternative: Alternative, given: Credentials, lacking: Credentials, origin: str
) -> Iterator[Trial]:
    """The credentials that satisfy the alternative at that origin, if any; then those that must not satisfy it."""
    try:
        parts = answer_for(view, (alternative,), given, origin, is_whole=True).parts
    except TrustError:
        return
    if not parts:  # a client certificate, which no request shows
        return
    yield Trial(Attempt.GOOD, alternative, parts, origin)
    if len(parts) > 1:
        yield from (Trial(Attempt.HALF, alternative, (part,), origin) for part in parts)
    for name in {part.name for part in parts} & lacking.keys():
        with suppress(TrustError):
            weaker = answer_for(view, (alternative,), {**given, name: lacking[name]}, origin, is_whole=True)
            yield Trial(Attempt.LESS, alternative, weaker.parts, origin)
