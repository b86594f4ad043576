"""Guards the gRPC server of an agent: the interceptor gives each call to the guard of ``protect``.

::

    guard = GrpcGuard()
    app = protect(app, card=…, verifiers=…, grpc=guard)
    server = grpc.aio.server(interceptors=[guard])

Card, verifiers, rules and limits are those of ``protect``; the calls of gRPC are decided by the same code as those of
HTTP (``middleware.decision``). Metadata are headers, and the message is read as the body of HTTP+JSON would be.

1. The message of a caller that is not known is never decoded. gRPC receives it before it calls the interceptor, up to
   ``grpc.max_receive_message_length`` bytes.
2. A rejected call ends with the status of A2A 10.6, and with challenges as the trailers ``www-authenticate``.
3. The application does not see the credentials. ``principal_of(context)`` is the caller.

Source: A2A 1.0.1 10; A2A 0.3.0 3.2.2, 4.4.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from inspect import isasyncgen, isasyncgenfunction, iscoroutinefunction
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import unquote

from a2a_trust.auth.certificate.source import FromTls
from a2a_trust.auth.credentials import ClientCertificate, InCookie, InQuery
from a2a_trust.auth.peers import peer_extension
from a2a_trust.card.operations import GRPC_METHODS, Binding, Operation
from a2a_trust.card.schema import Generation
from a2a_trust.card.view import Alternative, read_card
from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.middleware import audit
from a2a_trust.middleware.application import FromApplication
from a2a_trust.middleware.caller import CallerCredentials, Running, principal_of, this_task
from a2a_trust.middleware.calls import INVALID, CallRejectedError
from a2a_trust.middleware.decision import (
    Access,
    Admitted,
    BodyRule,
    CallRules,
    ForExtendedCard,
    NeedsBody,
    Request,
    Seen,
    decide,
    decide_with_body,
    too_large,
)
from a2a_trust.middleware.documents import Scope
from a2a_trust.middleware.extended_card import UNREADABLE, ExtendedCard
from a2a_trust.middleware.handlers import CallerRejectedError, HeldAnswer
from a2a_trust.middleware.options import RequestRules, read_list
from a2a_trust.middleware.rejection import NOT_FOUND, UNAVAILABLE, Rejection, rejection_of
from a2a_trust.middleware.routing import Target
from a2a_trust.middleware.streams import WatchedAnswer

try:
    import grpc
    from google.protobuf import json_format, message_factory
    from google.protobuf.message import DecodeError
    from google.rpc import error_details_pb2, status_pb2
except ModuleNotFoundError as _error:
    _error.msg = 'a2a_trust.grpc needs gRPC: pip install "./a2a-trust[server,grpc]"'
    raise

#: Statuses of HTTP for which gRPC has another one than ``google.rpc.Code`` says.
_STATUSES: Final = {404: grpc.StatusCode.UNIMPLEMENTED, 413: grpc.StatusCode.RESOURCE_EXHAUSTED}
_TRAILERS: Final = (b"www-authenticate", b"retry-after")
_log: Final = logging.getLogger(__name__)
_OF_FAILURES: Final = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
_PEER: Final = re.compile(r"ipv4:([0-9.]+):([0-9]+)|ipv6:\[([0-9A-Fa-f:.]+)(?:%[^\]]*)?\]:([0-9]+)")
_UNREAD: Final = frozenset({"message", "request", "metadata"})
"""The parts of a message that no rule about calls reads: they may be large."""
_OF_PUSH: Final = (
    Operation.CREATE_PUSH_CONFIG,
    Operation.GET_PUSH_CONFIG,
    Operation.LIST_PUSH_CONFIGS,
    Operation.DELETE_PUSH_CONFIG,
)


class _Guarding(NamedTuple):
    access: Access
    calls: CallRules
    rules: RequestRules
    clock: Callable[[], float]
    generations: frozenset[Generation | None]
    names: frozenset[str]
    """The metadata that may have a credential."""


class GrpcGuard(grpc.aio.ServerInterceptor):
    """The interceptor of a ``grpc.aio`` server: only callers that the card allows reach its methods.

    ``public_methods``: methods that need no credential, such as ``"/grpc.health.v1.Health/Check"``. All others are
    guarded, also those of other services, such as reflection. Give it to ``protect(…, grpc=…)``, once: gRPC does not
    show for which agent a call is. ConfigurationError: a method of A2A is public.
    """

    def __init__(self, *, public_methods: Iterable[str] = ()) -> None:
        self._public = frozenset(read_list("public_methods", public_methods))
        for method in self._public:
            if not re.fullmatch(r"/[\w.]+/\w+", method) or _is_of_a2a(method):
                raise ConfigurationError(
                    f"public_methods: {method!a:.128} is not a method of another service than A2A's; write "
                    '"/grpc.health.v1.Health/Check"'
                )
        self._guarding: _Guarding | None = None

    def guard_by(
        self,
        access: Access,
        calls: CallRules,
        extended: ExtendedCard | None,
        rules: RequestRules,
        clock: Callable[[], float],
    ) -> None:
        """``protect`` calls this when the card is known; until then, calls get UNAVAILABLE."""
        if self._guarding is not None:
            raise ConfigurationError(
                "grpc: this interceptor guards another agent already, and gRPC does not show for which agent a call "
                "is; run one server, with its own GrpcGuard(), for each agent"
            )
        _check_card(access, extended)
        of_grpc = [each for each in access.card.interfaces if each.binding == Binding.GRPC]
        if not of_grpc:
            raise ConfigurationError("grpc: the card has no interface of gRPC; add one to the card, or leave out grpc")
        headers = (place.header for place in access.guard.places if place.header is not None)
        of_proxies = frozenset[bytes]() if access.certificates is None else access.certificates.headers
        names = frozenset(name.decode() for name in (*headers, *of_proxies, b"authorization"))
        versions = frozenset(each.generation for each in of_grpc)
        self._guarding = _Guarding(access, calls, rules, clock, versions, names)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler, method = await continuation(handler_call_details), handler_call_details.method
        if handler is None or method in self._public:  # an unknown method: gRPC answers UNIMPLEMENTED
            return handler
        streams = (
            "stream" if handler.request_streaming else "unary",
            "stream" if handler.response_streaming else "unary",
        )
        name = "_".join(streams)
        work = partial(_stream if handler.response_streaming else _unary, getattr(handler, name))

        async def guarded(request: Any, context: Any) -> Any:
            if self._guarding is None:
                await _abort(context, rejection_of(UNAVAILABLE, None))
            return await _Answer(self._guarding, method, handler, context).serve(request, work)

        # Without a deserializer: only messages of known callers are decoded.
        read = handler.request_deserializer if handler.request_streaming else None
        make: Any = getattr(grpc, f"{name}_rpc_method_handler")
        wrapped: grpc.RpcMethodHandler[Any, Any] = make(guarded, read, handler.response_serializer)
        return wrapped


class GuardedContext:
    """The ``ServicerContext`` of a guarded call: its metadata are without credentials, ``scope`` has the caller."""

    def __init__(self, context: Any, scope: Scope) -> None:
        self.scope: Final = scope
        self._context = context
        kept = {name.decode() for name, _ in scope["headers"]}
        metadata = context.invocation_metadata() or ()
        self._metadata = tuple(each for each in metadata if each[0] in kept or each[0].endswith("-bin"))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"the context is guarded, and has no attribute {name!r}")
        return getattr(self._context, name)

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        return self._metadata

    async def abort(self, code: grpc.StatusCode, *others: Any, **named: Any) -> NoReturn:
        self._raise_rejection(code)
        await self._context.abort(code, *others, **named)
        raise AssertionError

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        self._raise_rejection(status.code)
        await self._context.abort_with_status(status)
        raise AssertionError

    def _raise_rejection(self, code: Any) -> None:
        """A handler has rejected the caller, and the a2a-sdk makes a failure of that."""
        rejected = self.scope["auth"].rejected
        if rejected is not None and code in _OF_FAILURES:
            raise CallerRejectedError(rejected)


class CallerContextBuilder:
    """The context builder for ``GrpcHandler`` of the a2a-sdk, so that ``ServerCallContext.user`` is the caller.

    ``builder`` is the SDK's, ``DefaultGrpcServerCallContextBuilder()``, or your own.
    """

    def __init__(self, builder: Any) -> None:
        self._builder = builder

    def build(self, context: Any) -> Any:
        made = self._builder.build(context)
        caller = principal_of(context)
        made.user = SdkUser(caller.is_authenticated, caller.id)
        made.state["auth"] = context.scope["auth"]
        return made


class SdkUser(NamedTuple):
    """A ``User`` of the a2a-sdk."""

    is_authenticated: bool
    user_name: str


class _Answer:
    """The answer to one call."""

    def __init__(
        self, guarding: _Guarding, method: str, handler: grpc.RpcMethodHandler[Any, Any], context: Any
    ) -> None:
        self._guarding, self._method, self._handler, self._context = guarding, method, handler, context
        self._target = _target(method)
        self._message: Any = None

    async def serve(self, request: Any, work: Callable[[Any, GuardedContext], Awaitable[Any]]) -> Any:
        task, guarding, context = this_task(), self._guarding, self._context
        came = self._request()
        decision = came if isinstance(came, Rejection) else await self._decide(came, request)
        if isinstance(decision, Rejection):
            await _abort(context, decision)
        if isinstance(decision, ForExtendedCard):
            return await self._extended_card(decision.admitted)
        scope, caller = decision.request, decision.caller
        credentials: CallerCredentials = scope["auth"]
        seen = Seen(scope, self._method, "", "POST", False, target=self._target)
        answer: list[Any] = []

        async def run() -> None:
            with Running(caller, task):
                answer.append(await work(self._message, GuardedContext(context, scope)))

        try:
            if guarding.rules.end_streams_with_credential and caller is not None and caller.is_authenticated:
                original = Seen(
                    {**scope, "headers": came["headers"]}, self._method, "", "POST", False, target=self._target
                )
                watched = WatchedAnswer(guarding.access, original, caller, _ignore, guarding.clock)
                await watched.send({"type": "http.response.start", "headers": ()})
                await watched.during(run())
                if watched.rejection is not None:
                    await _abort(context, watched.rejection)
            else:
                await run()
        except Exception as error:
            rejected = HeldAnswer(_wait, _ignore, credentials).rejection(error)
            if rejected is None:
                raise
            await _abort(context, guarding.access.reject(rejected, seen, None))
        return answer[0]

    def _request(self) -> Request | Rejection:
        """The call as a request, without its message."""
        guarding, context = self._guarding, self._context
        address, port, is_unix = _peer(context.peer())
        request: Request = {
            "type": "http",
            "method": "POST",
            "path": self._method,
            "headers": [],
            "client": None if address is None else (address, port),
            "extensions": peer_extension(address, unix=is_unix),
        }
        binary = ""
        for name, value in context.invocation_metadata() or ():
            if not name.endswith("-bin"):
                request["headers"].append((name.encode(), value if isinstance(value, bytes) else value.encode()))
            elif name.removesuffix("-bin").replace("_", "-") in guarding.names:
                binary = name
        if binary:  # some gateways decode it into the header
            why = f"the metadata {binary!a:.128} is the binary form of a credential; send it as text"
            decision = audit.Decision(audit.Reason.AMBIGUOUS_REQUEST, (), Binding.GRPC, status=INVALID.status)
            guarding.access.trail.rejected(request, why, decision)
            return rejection_of(INVALID, None)
        if guarding.access.certificates is not None:
            connection = context.auth_context()
            if connection.get("transport_security_type") == [b"ssl"]:
                chain = tuple(pem.decode("latin-1") for pem in connection.get("x509_pem_cert", ()))
                request["scheme"], request["extensions"]["tls"] = "https", {"client_cert_chain": chain}
        return request

    async def _decide(self, came: Request, request: Any) -> Admitted | ForExtendedCard | Rejection:
        access, calls, rules, clock, generations, _ = self._guarding
        handler, target, self._message = self._handler, self._target, request
        needs = await decide(access, calls, came, clock(), target)
        if isinstance(needs, Rejection):
            return needs
        try:
            if not handler.request_streaming and len(request) > rules.max_body:
                raise too_large(rules.max_body)
            if isinstance(needs, Admitted):
                self._decode(request)
                return needs
            if target is None or target.generation not in generations or handler.request_streaming:
                raise CallRejectedError(
                    NOT_FOUND, f"the card has no interface of gRPC with the method {self._method!a}"
                )
            self._decode(request)
            body = _params(self._message, is_whole=rules.skill_of is not None)
            known = BodyRule(_with_task(target, self._message), len(body))
        except CallRejectedError as rejected:
            if isinstance(needs, Admitted):
                needs = NeedsBody(needs, BodyRule(None, 0), Seen(needs.request, self._method, "", "POST", False))
            return calls.reject(rejected, needs.rule, needs.admitted.caller, needs.seen)
        return await decide_with_body(calls, needs._replace(rule=known), body)

    def _decode(self, request: Any) -> None:
        read = self._handler.request_deserializer
        if self._handler.request_streaming or read is None:
            return
        try:
            self._message = read(request)
        except DecodeError:
            raise CallRejectedError(INVALID, "the message is not one of the method") from None

    async def _extended_card(self, admitted: Admitted) -> Any:
        parts: list[Any] = []

        async def keep(part: Any) -> None:
            parts.append(part)

        call = admitted.call
        assert call is not None  # noqa: S101  for type checkers
        await self._guarding.calls.extended.answer(call, admitted.caller, admitted.request, _wait, keep)
        start, body = parts[0], b"".join(part.get("body", b"") for part in parts)
        answer = Rejection(start["status"], tuple(start["headers"]), body)
        if answer.status == 200:
            try:
                return _card_message(self._message, body, is_legacy=call.generation is not Generation.V1_0)
            except TrustError as error:
                _log.error("the extended card cannot be served over gRPC: %s", error)
                answer = rejection_of(UNREADABLE, None)
        await _abort(self._context, answer)
        return None


async def _unary(function: Callable[..., Any], message: Any, context: GuardedContext) -> Any:
    _check_async(function)
    return await function(message, context)


async def _stream(function: Callable[..., Any], message: Any, context: GuardedContext) -> None:
    _check_async(function)
    answer = function(message, context)
    if not isasyncgen(answer):  # it writes by itself
        await answer
        return
    async with aclosing(answer):
        async for each in answer:
            await context.write(each)


def _check_async(function: Any) -> None:
    if not (iscoroutinefunction(function) or isasyncgenfunction(function)):
        raise ConfigurationError(
            f"grpc: {getattr(function, '__qualname__', function)!a:.128} is not async; the guard serves async methods "
            "only, so use the servicer for grpc.aio"
        )


async def _abort(context: Any, rejection: Rejection) -> NoReturn:
    """End the call as the answer over HTTP would: code and reason are in its body (A2A 10.6)."""
    error = json.loads(rejection.body)["error"]
    code = _STATUSES.get(rejection.status) or grpc.StatusCode[error["status"]]
    status = status_pb2.Status(code=code.value[0], message=error["message"])
    info = error["details"][0]
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=info["reason"], domain=info["domain"]))
    trailers = [(name.decode(), value.decode("ascii")) for name, value in rejection.headers if name in _TRAILERS]
    details = ("grpc-status-details-bin", status.SerializeToString())
    await context.abort(code, error["message"], (details, *trailers))
    raise AssertionError


def _is_of_a2a(method: str) -> bool:
    """Whether the method is of A2A, in any version."""
    return method.rpartition("/")[0].lower().endswith("a2aservice")


def _target(method: str) -> Target | None:
    """The call of a method, None for other services. Methods that A2A does not have are of no version."""
    if not _is_of_a2a(method):
        return None
    generation, operation = GRPC_METHODS.get(method, (None, None))
    return Target(binding=Binding.GRPC, generation=generation, operation=operation)


def _with_task(target: Target, message: Any) -> Target:
    if target.generation is Generation.V1_0:
        task = getattr(message, "task_id" if target.operation in _OF_PUSH else "id", "")
    else:  # names of resources: tasks/{task}/pushNotificationConfigs/{id}
        task = "".join((getattr(message, "name", "") or getattr(message, "parent", "")).split("/")[1:2])
    return Target(binding=target.binding, generation=target.generation, operation=target.operation, task_id=task)


def _params(message: Any, *, is_whole: bool) -> bytes:
    """The message as HTTP+JSON has it; unless it is for ``skill_of``, without what no rule reads."""
    if is_whole:
        return json_format.MessageToJson(message, indent=None).encode()
    params: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is None:
            params[field.json_name] = value
        elif field.name not in _UNREAD:
            params[field.json_name] = json_format.MessageToDict(value)
    return json.dumps(params).encode() if params else b""


def _card_message(request: Any, body: bytes, *, is_legacy: bool) -> Any:
    """The card as a message. TrustError: the message would lack a requirement or a scheme of the card."""
    card, view = json.loads(body), read_card(body)
    demands = "security" if is_legacy else "security_requirements"
    if is_legacy:  # the protobuf of 0.3 has requirements in the form of 1.0
        for holder in (card, *card.get("skills", ())):
            holder["security"] = holder.pop("securityRequirements", ())
    kind = message_factory.GetMessageClass(request.DESCRIPTOR.file.message_types_by_name["AgentCard"])
    try:
        message: Any = json_format.ParseDict(card, kind(), ignore_unknown_fields=True)
    except json_format.ParseError:
        raise ConfigurationError("extended_card: the card does not fit into the message of gRPC") from None
    schemes = message.security_schemes.values()
    is_whole = len(schemes) == len(view.schemes) and all(each.WhichOneof("scheme") for each in schemes)
    if not is_whole or len(getattr(message, demands)) != len(view.requirements or ()):
        raise ConfigurationError("extended_card: its security cannot be written in gRPC; write the card in 1.0")
    return message


def _peer(peer: str) -> tuple[str | None, int, bool]:
    """The address and the port of the peer, and whether it came by a unix socket."""
    found = _PEER.fullmatch(unquote(peer))
    if found is not None:
        return found[1] or found[3], int(found[2] or found[4]), False
    return None, 0, peer.startswith(("unix:", "unix-abstract:"))


def _check_card(access: Access, extended: ExtendedCard | None) -> None:
    """ConfigurationError: the card has what gRPC cannot have."""
    guard = access.guard
    proxy = "; or end TLS in a proxy, with client_certificates=FromProxy(…)"
    if guard.dpop is not None:
        raise ConfigurationError(
            "dpop: proofs name the URL of a request, which gRPC does not have; protect another application, without "
            "dpop, for gRPC"
        )
    for scheme in guard.schemes:
        place = guard.place(scheme.name)
        if isinstance(place, InQuery | InCookie) or (place.header or b"").endswith(b"-bin"):
            raise ConfigurationError(
                f"grpc: the scheme {scheme.name[:64]!a} is in {place}, which calls of gRPC do not have; declare a "
                "header in the card, such as X-API-Key, or leave this agent's interface of gRPC unguarded="
            )
    if isinstance(access.certificates, FromTls):

        def has_certificate(alternative: Alternative) -> bool:
            return any(isinstance(guard.place(name), ClientCertificate) for name, _ in alternative.schemes)

        if len({has_certificate(each) for each in guard.alternatives}) > 1:
            raise ConfigurationError(
                "client_certificates: the card accepts a certificate or something else, and a port of gRPC asks for "
                f"certificates of all callers or of none; run two servers, each with a card of its own{proxy}"
            )
    if extended is not None and isinstance(extended.source, FromApplication):
        raise ConfigurationError(
            "extended_card: FromApplication() has the card of the application over HTTP; for gRPC write "
            "ExtendedCard(card)"
        )


async def _ignore(_: Any) -> None:
    """A part of an answer over HTTP, which there is none of."""


async def _wait() -> Any:
    """No further part of a request comes."""
    await asyncio.Future()
