"""The decision about a request, without ASGI: a value for the request in, a decision out.

1. See: ``Access.see`` makes one value of the request before its body. All steps use it.
2. Find the caller: ``Access.find_caller`` verifies the credentials (``auth.guard``), and rejects actors that may not
   act for the caller, and pages of other sites.
   ``Access.admit`` writes the caller into the request in place of the credentials.
3. Find what the request is for: ``CallRules.body_rule`` rejects undeclared paths, and says whether the body is needed.
4. Read the call: ``CallRules.read`` makes one value of path, query and body, and nothing is read twice.
5. Check the tenant: ``CallRules.check_tenants``. A request may name a tenant in its path, its query and its body. All
   must be the same, and the caller must be allowed to use it.

``door`` does these steps for ASGI. ``decide`` and ``decide_with_body`` do them for front ends that are not ASGI. They
decide what the application may have: a front end that serves documents, such as the card, serves them before it asks.
Source: A2A 1.0.1 3.2, 9.1, 11.1.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Coroutine, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import isawaitable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from a2a_trust.auth.credentials import (
    CERTIFICATES,
    NEXT_NONCE,
    CertificateSource,
    ClientCertificate,
    HeaderLines,
    Hidden,
    Lines,
    lines_without,
)
from a2a_trust.auth.guard import Guard, Rejected
from a2a_trust.auth.guard_config import CredentialAt
from a2a_trust.auth.principal import Verifier
from a2a_trust.card.operations import Binding, Operation
from a2a_trust.card.view import CardView
from a2a_trust.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigurationError,
    CrossSiteError,
    InvalidActorsError,
    KeySourceUnavailableError,
    TooManyRequestsError,
)
from a2a_trust.middleware import audit
from a2a_trust.middleware.browsers import BrowserRules, is_attached_by_browsers
from a2a_trust.middleware.caller import Caller, CallerRejectedError, require_skill, set_caller, set_public
from a2a_trust.middleware.calls import CALL, INVALID, Call, CallRejectedError, check_media_type, read_call
from a2a_trust.middleware.documents import is_preflight
from a2a_trust.middleware.extended_card import ExtendedCardEndpoint
from a2a_trust.middleware.options import GuardRules, OtherPaths, RequestRules, allows, public_path
from a2a_trust.middleware.rejection import FORBIDDEN, LATE, NOT_FOUND, TOO_LARGE, Rejection, rejection_for, rejection_of
from a2a_trust.middleware.routing import Interfaces, Other, Target, Undeclared, is_exact, quote_path, route_path
from a2a_trust.middleware.webhooks import NO_PUSH, WEBHOOK, WebhookRules, registers

if TYPE_CHECKING:
    from a2a_trust.auth.dpop import DPoP

Request: TypeAlias = MutableMapping[str, Any]
"""A request before its body, in the names of an ASGI scope: ``type`` (http or websocket), ``method``, ``path``,
``headers`` (lower-case names), and, if known, ``query_string``, ``root_path``, ``raw_path`` and ``client``."""

CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_LENGTH: Final = b"content-length"
_CODING: Final = b"transfer-encoding"
_TYPE: Final = b"content-type"
_OF_BODIES: Final = frozenset({_LENGTH, _CODING, _TYPE, b"content-encoding"})
_HTTP_1: Final = ("1.1", "1.0")
_NO_LINES: Final[Lines] = []
_MANY_DIGITS: Final = 20
_REASONS: Final = {
    403: audit.Reason.TENANT,
    404: audit.Reason.UNDECLARED_PATH,
    413: audit.Reason.TOO_LARGE,
    503: audit.Reason.KEY_SOURCE_UNAVAILABLE,  # a rule that is late
}
_LONGEST_CACHED: Final = 256
"""Characters of path and method of a cached rule; with a thousand rules, these are some megabytes at most."""


@dataclass(slots=True, repr=False)  # it has the credentials, and tracebacks show locals
class Seen:
    """The request before its body, seen once.

    - ``scope``: a copy with its own list of headers, without values that only the guard may write. Servers may change
      theirs later: uvicorn's httptools adds trailers.
    - ``path``: as the application's router sees it, without ``root_path``.
    - ``method``: the handshake of a websocket has none.
    - ``is_public``: it needs no credential.
    - ``lines``: the lines of headers that may have credentials. ``shown``: the headers that the application may see.
    - ``length``, ``media_type``: the lines of Content-Length and Content-Type.
    - ``is_empty``: it is of HTTP/1 and announces no body, so it has none (RFC 9112 6.3).
    - ``begun``, ``seconds``: for an observer, when finding the caller began, and how long that took, and verifiers.
    - ``target``: what a front end that is not HTTP knows about the call: the path says nothing more.
    """

    scope: Request
    path: str
    root_path: str
    method: str | None
    is_public: bool
    lines: Mapping[bytes, Lines] = field(default_factory=dict)
    shown: list[tuple[bytes, bytes]] = field(default_factory=list)
    length: Lines = field(default_factory=list)
    media_type: Lines = field(default_factory=list)
    is_empty: bool = False
    begun: float = 0.0
    seconds: tuple[float | None, float | None] = (None, None)
    target: Target | None = None


class Admitted(NamedTuple):
    """The application may have the request.

    - ``request``: for the application, with the caller and the call in place of the credentials.
    - ``caller``: public paths and preflights have none.
    - ``call``: the A2A call; requests for paths of no interface have none.
    - ``dpop_nonce``: for the header ``DPoP-Nonce`` (RFC 9449 8.2). Caches need headers of ``CachingRules``, too.
    """

    request: Request
    caller: Caller | None
    dpop_nonce: str | None = None
    call: Call | None = None


class BodyRule(NamedTuple):
    """The body may have ``most`` bytes. ``target`` is None for a request of no interface."""

    target: Target | None
    most: int


class NeedsBody(NamedTuple):
    """Only the body decides. Pass this to ``decide_with_body``, unchanged: ``admitted`` is not valid yet."""

    admitted: Admitted
    rule: BodyRule
    seen: Seen


class ForExtendedCard(NamedTuple):
    """The request is admitted, but not to the application: ``CallRules.extended`` answers its call."""

    admitted: Admitted


_NO_BODY: Final = BodyRule(None, 0)


async def decide(
    access: Access, calls: CallRules, request: Request, now: float, target: Target | None = None
) -> Admitted | NeedsBody | Rejection:
    """The decision at the moment ``now`` (seconds since the epoch); a Rejection is the answer to a rejected request.

    A preflight must have an empty body. ``target`` is for calls of gRPC, which have other paths.
    """
    seen = access.see(request)
    seen.target = target
    if seen.is_public:
        access.admit_public(seen)
        admitted = Admitted(seen.scope, None)
    else:
        caller = access.known_caller(seen, now) or await access.find_caller(seen, now)
        if isinstance(caller, Rejected):
            return access.reject(caller, seen, now)
        admitted = Admitted(seen.scope, caller, access.admit(caller, seen))
    rule = None
    try:
        rule = calls.body_rule(seen)
        if rule is None:
            # A preflight's caller is not authenticated, so it must not carry a call.
            if seen.is_public and seen.method == "OPTIONS":
                return NeedsBody(admitted, _NO_BODY, seen)
            access.note_admitted(admitted.caller, seen)
            return admitted
        check_announced(rule.most, seen.length)
    except CallRejectedError as rejected:
        return _with_nonce(calls.reject(rejected, rule, admitted.caller, seen), admitted)
    return NeedsBody(admitted, rule, seen)


async def decide_with_body(
    calls: CallRules, undecided: NeedsBody, body: bytes
) -> Admitted | ForExtendedCard | Rejection:
    """The decision about a request with its whole body, once for each request. It waits for an async rule only."""
    admitted, rule, seen = undecided
    try:
        if len(body) > rule.most:
            raise too_large(rule.most)
        if rule.target is None:
            calls.access.note_admitted(admitted.caller, seen)
            return admitted
        call = calls.read(rule.target, body, seen)
        asked = calls.check_tenants(call, admitted.caller)
        if asked is not None:
            await asked
        calls.check_skill(call, body, admitted.request)
        if registers(call):
            await calls.webhooks.check(call, admitted.caller)
    except CallRejectedError as rejected:
        return _with_nonce(calls.reject(rejected, rule, admitted.caller, seen), admitted)
    except CallerRejectedError as error:
        return _with_nonce(calls.access.reject(error.rejected, seen, None, call.call_id), admitted)
    calls.access.note_admitted(admitted.caller, seen, call)
    decided = admitted._replace(request={**admitted.request, CALL: call}, call=call)
    return ForExtendedCard(decided) if call.operation is Operation.GET_EXTENDED_CARD else decided


def _with_nonce(rejection: Rejection, admitted: Admitted) -> Rejection:
    nonce = () if admitted.dpop_nonce is None else ((b"dpop-nonce", admitted.dpop_nonce.encode("ascii")),)
    return rejection._replace(headers=(*rejection.headers, *nonce))


class Access:
    """Who may call: the card, its verifiers, and the options of the guard; and the interfaces of the card."""

    def __init__(
        self,
        card: CardView,
        verifiers: Mapping[str, Verifier[Any] | CredentialAt],
        *,
        rules: GuardRules,
        url: str | None = None,
        certificates: CertificateSource | None = None,
        dpop: DPoP | None = None,
        card_paths: Iterable[str] = (),
        resource_metadata: str | None = None,
        trail: audit.Trail | None = None,
    ) -> None:
        """``card_paths`` are public, in addition to the paths of ``rules``. ``resource_metadata`` is the URL of the
        metadata of RFC 9728, which challenges name."""
        self.interfaces: Final = Interfaces(card, unguarded=frozenset(rules.unguarded), served_at=rules.served_at)
        self.guard: Final = Guard(
            card,
            verifiers,
            allow_anonymous=rules.allow_anonymous,
            skills_are_checked=rules.handlers_check_skills or getattr(rules, "skill_of", None) is not None,
            dpop=dpop,
            throttle=rules.failures.throttle(),
        )
        _check_source(certificates, self.guard)
        if rules.keep_subject_token and not self.guard.takes_access_tokens:
            raise ConfigurationError(
                "keep_subject_token: no verifier is for access tokens; leave the option out, or give your own verifier "
                "the attribute kind = CredentialKind.ACCESS_TOKEN"
            )
        self.card: Final = card
        self.certificates: Final = certificates
        self._public = frozenset((*card_paths, *map(public_path, rules.public_paths)))
        self._allow_cors_preflight = rules.allow_cors_preflight
        self._browsers = BrowserRules(url=url, allowed_origins=rules.allowed_origins)
        places = {scheme.name: self.guard.place(scheme.name) for scheme in self.guard.schemes}
        self._attached = frozenset(name for name, place in places.items() if is_attached_by_browsers(place))
        self._resource_metadata = resource_metadata
        self._actors = rules.actors
        self._keep_subject_token = rules.keep_subject_token
        self._certificate_headers = frozenset[bytes]() if certificates is None else certificates.headers
        proofs = self.guard.proof_headers if rules.hide_credentials else frozenset[bytes]()
        self._hidden = Hidden(self.guard.places if rules.hide_credentials else ())
        self._headers = HeaderLines(
            self.guard.headers | {_LENGTH, _CODING, _TYPE}, self._hidden.headers | proofs | self._certificate_headers
        )
        self.trail: Final = trail or audit.Trail()
        self._is_observed = self.trail.observer is not None

    def see(self, scope: Request) -> Seen:
        """The request as one value. Public is GET or HEAD of exactly a public path, or an admitted preflight."""
        if scope["type"] not in ("http", "websocket"):
            raise ConfigurationError(f"ASGI scope type {scope['type']!r} is not understood, so it is rejected")
        root = scope.get("root_path", "")
        path = route_path(scope) if root else scope["path"]
        headers = [*scope["headers"]]
        own = {**scope, "headers": headers}
        own.pop(CERTIFICATES, None)
        own.pop(NEXT_NONCE, None)
        own.pop(audit.DECISION, None)
        begun = perf_counter() if self._is_observed else 0.0
        lines, shown = self._headers.split(headers)
        length, media_type = lines.pop(_LENGTH, _NO_LINES), lines.pop(_TYPE, _NO_LINES)
        is_empty = lines.pop(_CODING, None) is None and not length and scope.get("http_version") in _HTTP_1
        method = None if scope["type"] == "websocket" else scope["method"]
        if method in ("GET", "HEAD"):
            is_public = path in self._public and is_exact(scope)
        elif method is None:
            is_public = False
        else:
            # Every preflight of a browser has an Origin.
            is_public = (
                self._allow_cors_preflight
                and is_preflight(scope)
                and any(name.lower() == b"origin" for name, _ in headers)
            )
        return Seen(own, path, root, method, is_public, lines, shown, length, media_type, is_empty, begun)

    def known_caller(self, seen: Seen, now: float) -> Caller | Rejected | None:
        """The result of ``find_caller``, at once, for most callers that were here before; else None."""
        known = self.guard.find_cached(seen.lines, seen.scope, now) if self.certificates is None else None
        if seen.begun and known is not None:
            seen.seconds = perf_counter() - seen.begun, 0.0
        return None if known is None else self._check_caller(seen.scope, known)

    async def find_caller(self, seen: Seen, now: float) -> Caller | Rejected:
        scope, verifying = seen.scope, list[float]() if seen.begun else None
        try:
            if self.certificates is not None:
                scope[CERTIFICATES] = self.certificates.chain(scope)
            caller = await self.guard.authenticate(scope, now, verifying)
        except (AuthenticationError, AuthorizationError, TooManyRequestsError, KeySourceUnavailableError) as error:
            return Rejected(error)  # of the source of certificates, or of a user's verifier
        finally:
            if verifying is not None:
                seen.seconds = perf_counter() - seen.begun, sum(verifying)
        return caller if isinstance(caller, Rejected) else self._check_caller(scope, caller)

    def _check_caller(self, scope: Request, caller: Caller) -> Caller | Rejected:
        """The caller, unless others act for it that may not, or a browser attached the credential by itself, for a page
        of another site."""
        found = caller.identities + caller.for_skills if caller.for_skills else caller.identities
        for name, identity in found:
            if identity.actors and (why := self._actors.objection(identity.actors)):
                by_dpop = identity.bound_to is not None and identity.bound_to.jkt is not None
                return Rejected(InvalidActorsError(why), name, by_dpop, caller)
        if self._attached and any(name in self._attached for name, _ in found):
            try:
                self._browsers.check(scope)
            except CrossSiteError as error:
                return Rejected(error, caller=caller)
        return caller

    def admit(self, caller: Caller, seen: Seen) -> str | None:
        """Write the caller into the request in place of the credentials; the nonce for the caller's next proof."""
        scope = seen.scope
        credentials = set_caller(scope, caller)
        credentials.guard = self.guard
        if self._keep_subject_token:
            credentials.keep(self.guard.subject_token(scope, caller))
        scope["headers"] = seen.shown
        self._hidden.hide(scope)
        nonce: str | None = scope.pop(NEXT_NONCE, None)
        return nonce

    def note_admitted(self, caller: Caller | None, seen: Seen, call: Call | None = None) -> None:
        """Note that the application gets the request, unless that is public, which nobody decided."""
        if caller is not None and (self._is_observed or audit.is_heard()):
            binding, operation = (None, None) if call is None else (call.binding, call.operation)
            self.trail.admitted(seen.scope, caller, (binding, operation, *seen.seconds))
            seen.seconds = None, None

    def admit_public(self, seen: Seen) -> None:
        """Write into the request that it needs no credential: it is for a public path, or a preflight."""
        scope = seen.scope
        set_public(scope)
        if self._certificate_headers:  # only the guard may see certificate headers and the proxy's secret
            scope["headers"] = lines_without(self._certificate_headers, scope["headers"])
        if seen.method == "OPTIONS":  # its caller is not authenticated, so it must not carry a call
            scope["headers"] = lines_without(_OF_BODIES, scope["headers"])

    def reject(self, rejected: Rejected, seen: Seen, now: float | None, call_id: bytes | None = None) -> Rejection:
        """The answer, which is also logged. With ``now``, it has the nonce for the next proof of DPoP."""
        error = rejected.error
        binding, legacy = self.interfaces.language(seen.path or "/", seen.root_path)
        binding = binding if seen.target is None else seen.target.binding
        dpop = self.guard.dpop
        rejection = rejection_for(
            rejected,
            self.guard,
            binding,
            legacy=legacy,
            resource_metadata=self._resource_metadata,
            dpop_nonce=None if dpop is None or now is None else dpop.nonce(now),
            call_id=call_id,
        )
        schemes = () if rejected.scheme is None else (rejected.scheme,)
        decision = audit.Decision(audit.reason_of(error), schemes, binding, None, *seen.seconds, "", rejection.status)
        cause = error.cause if isinstance(error, TooManyRequestsError) else ""
        self.trail.rejected(seen.scope, str(error), decision, rejected.caller, cause)
        return rejection


class CallRules:
    """Which requests of a caller are valid: they are of an interface, or their paths are named. All others are
    rejected. ``extended`` answers calls for the extended card, instead of the application."""

    def __init__(
        self, access: Access, rules: RequestRules, extended: ExtendedCardEndpoint, *, others_must_be_named: bool = False
    ) -> None:
        self.access: Final = access
        self.extended: Final = extended
        card, interfaces = access.card, access.interfaces
        named = next((interface for interface in card.interfaces if interface.tenant), None)
        if named is not None and rules.may_use_tenant is None:
            raise ConfigurationError(
                f"{named.pointer}: this interface is for the tenant {named.tenant[:64]!a}, and no rule says which "
                "callers may use it; pass rules=RequestRules(may_use_tenant=lambda caller, tenant: …)"
            )
        self._interfaces, self._may_use_tenant, self._max_body = interfaces, rules.may_use_tenant, rules.max_body
        self._skill_of = rules.skill_of
        self.webhooks: Final = WebhookRules(card, rules.webhooks)
        self._other = OtherPaths("other_paths", tuple(rules.other_paths), interfaces.paths)
        self._must_be_named = others_must_be_named or rules.may_use_tenant is not None or card.has_extended_card
        self._cached_rule = lru_cache(maxsize=1024)(self._find_rule)

    def body_rule(self, seen: Seen) -> BodyRule | None:
        """How much of the body is needed; None for a request of no interface, whose body streams. The request loses the
        call of a guard further outside.

        CallRejectedError: it is of no interface, and the application may not have it. The rules for short paths are
        cached, but not for public requests, whose senders are unknown.
        """
        seen.scope.pop(CALL, None)
        if seen.target is not None:
            return BodyRule(seen.target, self._max_body)
        path, method = seen.path or "/", seen.method
        if seen.is_public or len(path) + len(method or "") > _LONGEST_CACHED:
            return self._find_rule(path, seen.root_path, method, seen.is_public)
        return self._cached_rule(path, seen.root_path, method, False)

    def _find_rule(self, path: str, root: str, method: str | None, is_public: bool) -> BodyRule | None:
        if CONTROL.search(root + path):
            # Starlette's patterns end in "$", which also matches before a last newline.
            raise CallRejectedError(INVALID, "the path has a control character")
        meaning = self._interfaces.meaning(path, root, method)
        if isinstance(meaning, Target):
            if is_public:  # options name no path of an operation
                raise CallRejectedError(NOT_FOUND, f"{quote_path(path)} is an operation, and public")
            return BodyRule(meaning, self._max_body if meaning.has_body else 0)
        if not is_public:
            self._check_other(meaning, path)
        return _NO_BODY if isinstance(meaning, Other) and meaning.is_json_rpc else None

    def read(self, target: Target, body: bytes, seen: Seen) -> Call:
        """The call that the request makes; CallRejectedError: it is not valid. Threads may call this."""
        if body and target.binding is not Binding.GRPC:
            check_media_type(seen.media_type)
        return read_call(target, body, seen.scope.get("query_string", b""))

    def check_tenants(self, call: Call, caller: Caller | None) -> Coroutine[Any, Any, None] | None:
        """Return None when the caller may use the tenant that the call names, or it names none.

        For an async rule, the result is the rest of the check, which must be awaited.
        """
        if not call.tenants:
            return None
        if len(call.tenants) > 1:
            raise CallRejectedError(INVALID, "path, query and body name different tenants", call.call_id or b"null")
        may_use = self._may_use_tenant
        answer = None if may_use is None or caller is None else may_use(caller, call.tenant)
        if answer is True:
            return None
        if isawaitable(answer):
            return self._wait_for_rule(call, answer)
        raise self._forbidden(call)

    async def _wait_for_rule(self, call: Call, answer: Awaitable[object]) -> None:
        is_allowed = await allows(answer)
        if is_allowed is None:
            raise CallRejectedError(LATE, "may_use_tenant does not answer in time", call.call_id or b"null")
        if not is_allowed:
            raise self._forbidden(call)

    def _forbidden(self, call: Call) -> CallRejectedError:
        why = (
            "may_use_tenant does not allow it for this caller"
            if self._may_use_tenant
            else "no tenant may be named without rules=RequestRules(may_use_tenant=…)"
        )
        return CallRejectedError(FORBIDDEN, f"the tenant {call.tenant[:64]!a}: {why}", call.call_id or b"null")

    def reject(
        self, rejected: CallRejectedError, rule: BodyRule | None, caller: Caller | None, seen: Seen
    ) -> Rejection:
        """The answer to a request that these rules reject."""
        target = None if rule is None else rule.target
        is_json_rpc = target is not None and target.binding is Binding.JSONRPC
        rejection = rejection_of(rejected.error, rejected.call_id if is_json_rpc else None)
        reason = _REASONS.get(rejected.error.status, audit.Reason.AMBIGUOUS_REQUEST)
        reason = audit.Reason.WEBHOOK if rejected.error in (WEBHOOK, NO_PUSH) else reason
        binding, operation = (None, None) if target is None else (target.binding, target.operation)
        decision = audit.Decision(reason, (), binding, operation, *seen.seconds, "", rejection.status)
        self.access.trail.rejected(seen.scope, rejected.why, decision, caller=caller)
        return rejection

    def check_skill(self, call: Call, body: bytes, scope: Request) -> None:
        """Return when the caller satisfies the requirements of the call's skill, or no rule names one.

        CallerRejectedError: the caller does not.
        """
        if self._skill_of is not None and (skill := self._skill_of(call, body)) is not None:
            require_skill(scope, skill)

    def _check_other(self, meaning: Other | Undeclared, path: str) -> None:
        """Return when the application may have a request of no interface."""
        if isinstance(meaning, Undeclared):
            if meaning.may_be_named and self._other.names_operation(path):
                return
            advice = f"; {_advice(path)}" if meaning.may_be_named else ""
            raise CallRejectedError(NOT_FOUND, f"{meaning.why}{advice}")
        if self._must_be_named and not self._other.has(path):
            raise CallRejectedError(
                NOT_FOUND, f"{quote_path(path)} belongs to no interface of the card; {_advice(path)}"
            )


def check_announced(most: int, length: Lines) -> None:
    """Return when the lines of Content-Length announce a body of at most that many bytes, or there are none."""
    for announced in length:
        if announced is None:  # an alias, which announces nothing
            continue
        if not (announced.isdigit() and len(announced) < _MANY_DIGITS and int(announced) <= most):
            raise too_large(most)


def too_large(most: int) -> CallRejectedError:
    if most:
        return CallRejectedError(
            TOO_LARGE, f"the body is longer than {most} bytes; to accept it, write rules=RequestRules(max_body=...)"
        )
    return CallRejectedError(INVALID, "the request has a body, and its method and path must not have one")


def _advice(path: str) -> str:
    return f"if it is the application's own, write rules=RequestRules(other_paths=[{quote_path(path)}])"


def _check_source(source: Any, guard: Guard) -> None:
    if isinstance(source, type) or (source is not None and not callable(getattr(source, "chain", None))):
        raise ConfigurationError(
            "client_certificates: write FromTls(), with parentheses, or FromProxy(Nginx(), peers=…)"
        )
    demanding = [scheme.name for scheme in guard.schemes if isinstance(guard.place(scheme.name), ClientCertificate)]
    if demanding and source is None:
        raise ConfigurationError(
            f"client_certificates: the card demands mutual TLS ({', '.join(demanding)}), and no source of certificates "
            "is given; write client_certificates=FromTls() where the server itself ends TLS, or "
            'client_certificates=FromProxy(Nginx(), peers=Networks("10.0.0.5")) behind a proxy that ends it'
        )
