"""Guards the gRPC server of an agent: ``GrpcGuard`` gives each call to the guard of ``protect``.

Metadata are headers, and the message is read as the body of HTTP+JSON would be. A rejected call ends with the status of
A2A 10.6, and with challenges as the trailers ``www-authenticate``. Messages of unknown callers are never decoded; gRPC
receives up to ``grpc.max_receive_message_length`` bytes of them. Source: A2A 1.0.1 10; A2A 0.3.0 3.2.2, 4.4.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from inspect import isasyncgen, isasyncgenfunction, iscoroutinefunction
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import unquote

from a2a_trust.auth.credentials import ClientCertificate, FromTls, InCookie, InQuery
from a2a_trust.auth.peers import peer_extension
from a2a_trust.card.operations import GRPC_METHODS, Binding
from a2a_trust.card.schema import Generation
from a2a_trust.card.view import read_card
from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.middleware import audit, decision
from a2a_trust.middleware.application import FromApplication
from a2a_trust.middleware.caller import CallerRejectedError, HeldAnswer, Running, principal_of, this_task
from a2a_trust.middleware.calls import INVALID, CallRejectedError
from a2a_trust.middleware.decision import Access, Admitted, CallRules, ForExtendedCard, Request, Seen
from a2a_trust.middleware.documents import Scope
from a2a_trust.middleware.extended_card import UNREADABLE
from a2a_trust.middleware.options import RequestRules, read_list
from a2a_trust.middleware.protection import ProtectedAgent
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

_log: Final = logging.getLogger(__name__)

#: Statuses of HTTP for which gRPC has another one than ``google.rpc.Code`` says.
_STATUSES: Final = {404: grpc.StatusCode.UNIMPLEMENTED, 413: grpc.StatusCode.RESOURCE_EXHAUSTED}
_TRAILERS: Final = (b"www-authenticate", b"retry-after")
_FAILURES: Final = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
_PEER: Final = re.compile(r"ipv4:([0-9.]+):([0-9]+)|ipv6:\[([0-9A-Fa-f:.]+)(?:%[^\]]*)?\]:([0-9]+)")
_UNREAD: Final = frozenset({"message", "request", "metadata"})
"""The parts of a message that no rule about calls reads: they may be large."""


class GrpcGuard(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpcio has no types
    """The interceptor of a ``grpc.aio`` server: only callers that the card allows reach its methods.

    ``public_methods``: methods that need no credential, such as ``"/grpc.health.v1.Health/Check"``. All others are
    guarded, also in other services, such as reflection. It is for one agent, since gRPC does not show for which
    agent a call is. ConfigurationError: a method of A2A is public.
    """

    def __init__(self, *, public_methods: Iterable[str] = ()) -> None:
        self._public = frozenset(read_list("public_methods", public_methods))
        for method in self._public:
            if not re.fullmatch(r"/[\w.]+/\w+", method) or _target(method) is not None:
                raise ConfigurationError(f"public_methods: {method!a:.128} must be /package.Service/Method, not of A2A")
        self._guarding: _Guarding | None = None

    def guard_by(self, access: Access, calls: CallRules, agent: ProtectedAgent, clock: Callable[[], float]) -> None:
        """``protect`` calls this when the card is known; until then, calls get UNAVAILABLE."""
        if self._guarding is not None:
            raise ConfigurationError(
                "grpc: this GrpcGuard() is another agent's, and gRPC does not show which agent is called; run a server "
                "with its own GrpcGuard() for each agent"
            )
        _check_card(access, agent)
        headers = {place.header for place in access.guard.places if place.header is not None} | {b"authorization"}
        headers |= set() if access.certificates is None else access.certificates.headers
        names = frozenset(name.decode() for name in headers)
        generations = {each.generation for each in access.card.interfaces if each.binding == Binding.GRPC}
        self._guarding = _Guarding(access, calls, agent.rules, clock, frozenset(generations), names)

    async def intercept_service(self, continuation: Any, handler_call_details: grpc.HandlerCallDetails) -> Any:
        handler, method = await continuation(handler_call_details), handler_call_details.method
        if handler is None or method in self._public:  # None: gRPC answers UNIMPLEMENTED
            return handler
        kind = "_".join("stream" if it else "unary" for it in (handler.request_streaming, handler.response_streaming))
        function = getattr(handler, kind)
        work = partial(_stream, function) if handler.response_streaming else function
        if not (iscoroutinefunction(function) or isasyncgenfunction(function)):
            work = _refuse  # as the methods that the a2a-sdk lacks

        async def guarded(request: Any, context: Any) -> Any:
            if self._guarding is None:
                return await _abort(context, rejection_of(UNAVAILABLE, None))
            return await _Answer(self._guarding, method, handler, context, request).serve(work)

        # Without a deserializer: ``_Answer`` decodes the messages of known callers.
        read = handler.request_deserializer if handler.request_streaming else None
        return getattr(grpc, f"{kind}_rpc_method_handler")(guarded, read, handler.response_serializer)


class GuardedContext:
    """The ``ServicerContext`` of a guarded call: its metadata are without credentials, ``scope`` has the caller."""

    def __init__(self, context: Any, scope: Scope) -> None:
        self.scope: Final = scope
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        kept, came = {name.decode() for name, _ in self.scope["headers"]}, self._context.invocation_metadata() or ()
        return tuple(each for each in came if each[0] in kept or each[0].endswith("-bin"))

    async def abort(self, code: grpc.StatusCode, *others: Any, **named: Any) -> None:
        rejected = self.scope["auth"].rejected
        if rejected is not None and code in _FAILURES:  # the a2a-sdk makes a failure of the handler's rejection
            raise CallerRejectedError(rejected)
        await self._context.abort(code, *others, **named)


class CallerContextBuilder:
    """The context builder for ``GrpcHandler`` of the a2a-sdk, so that ``ServerCallContext.user`` is the caller.

    ``builder`` is the SDK's, ``DefaultGrpcServerCallContextBuilder()``, or your own.
    """

    def __init__(self, builder: Any) -> None:
        self._builder = builder

    def build(self, context: Any) -> Any:
        made, caller = self._builder.build(context), principal_of(context)
        made.user = SimpleNamespace(is_authenticated=caller.is_authenticated, user_name=caller.id)
        made.state["auth"] = context.scope["auth"]
        return made


class _Guarding(NamedTuple):
    access: Access
    calls: CallRules
    rules: RequestRules
    clock: Callable[[], float]
    generations: frozenset[Generation | None]
    names: frozenset[str]
    """The metadata that may have a credential."""


@dataclass(slots=True, repr=False)
class _Answer:
    """The answer to one call. ``message`` is encoded until its caller is known."""

    guarding: _Guarding
    method: str
    handler: Any
    context: Any
    message: Any

    async def serve(self, work: Callable[[Any, GuardedContext], Awaitable[Any]]) -> Any:
        task, (access, _, rules, clock, *_), context = this_task(), self.guarding, self.context
        request = self._request()
        decided = request if isinstance(request, Rejection) else await self._decide(request)
        if isinstance(decided, Rejection):
            return await _abort(context, decided)
        if isinstance(decided, ForExtendedCard):
            return await self._extended_card(decided.admitted)
        scope, caller = decided.request, decided.caller
        answer: list[Any] = []
        seen = Seen(scope, self.method, "", "POST", is_public=False, target=_target(self.method))

        async def run() -> None:
            with Running(caller, task):
                answer.append(await work(self.message, GuardedContext(context, scope)))

        try:
            if rules.end_streams_with_credential and caller is not None and caller.is_authenticated:
                came = replace(seen, scope={**scope, "headers": request["headers"]})
                watched = WatchedAnswer(access, came, caller, _ignore, clock)
                await watched.send({"type": "http.response.start", "headers": ()})
                await watched.during(run())
                if watched.rejection is not None:
                    await _abort(context, watched.rejection)
            else:
                await run()
        except Exception as error:
            rejected = HeldAnswer(_wait, _ignore, scope["auth"]).rejection(error)
            if rejected is None:
                raise
            await _abort(context, access.reject(rejected, seen, None))
        return answer[0]

    def _request(self) -> Any:
        """The call as a request, without its message; or its rejection."""
        access, context = self.guarding.access, self.context
        peer = _PEER.fullmatch(unquote(context.peer()))
        address, port = (None, "") if peer is None else (peer[1] or peer[3], peer[2] or peer[4])
        request: Request = {"type": "http", "method": "POST", "path": self.method, "headers": []}
        request["client"] = None if address is None else (address, int(port))
        is_unix = context.peer().startswith(("unix:", "unix-abstract:"))
        request["extensions"] = peer_extension(address, unix=is_unix)
        for name, value in context.invocation_metadata() or ():
            if not name.endswith("-bin"):
                request["headers"].append((name.encode(), value if isinstance(value, bytes) else value.encode()))
            elif name.removesuffix("-bin").replace("_", "-") in self.guarding.names:  # gateways may decode it
                why = f"the metadata {name!a:.128} is the binary form of a credential; send it as text"
                ambiguous = audit.Decision(audit.Reason.AMBIGUOUS_REQUEST, (), Binding.GRPC, status=INVALID.status)
                access.trail.rejected(request, why, ambiguous)
                return rejection_of(INVALID, None)
        connection = {} if access.certificates is None else context.auth_context()
        if connection.get("transport_security_type") == [b"ssl"]:
            chain = tuple(pem.decode("latin-1") for pem in connection.get("x509_pem_cert", ()))
            request["scheme"], request["extensions"]["tls"] = "https", {"client_cert_chain": chain}
        return request

    async def _decide(self, request: Request) -> Admitted | ForExtendedCard | Rejection:
        access, calls, rules, clock, generations, _ = self.guarding
        handler, target = self.handler, _target(self.method)
        decided = await decision.decide(access, calls, request, clock(), target)
        if isinstance(decided, Rejection):
            return decided
        admitted = decided if isinstance(decided, Admitted) else decided.admitted
        try:
            if not handler.request_streaming:
                if len(self.message) > rules.max_body:
                    raise decision.too_large(rules.max_body)
                self.message = handler.request_deserializer(self.message)
            if isinstance(decided, Admitted):
                return decided
            if target is None or target.generation not in generations or handler.request_streaming:
                raise CallRejectedError(NOT_FOUND, f"the card has no interface of gRPC with {self.method!a:.128}")
        except (CallRejectedError, DecodeError) as error:
            undecoded = CallRejectedError(INVALID, "the message is not one of the method")
            rejected = error if isinstance(error, CallRejectedError) else undecoded
            seen = Seen(admitted.request, self.method, "", "POST", is_public=False, target=target)
            return calls.reject(rejected, None, admitted.caller, seen)
        body = _params(self.message, is_whole=rules.skill_of is not None)
        rule = decision.BodyRule(_with_task(target, self.message), len(body))
        return await decision.decide_with_body(calls, decided._replace(rule=rule), body)

    async def _extended_card(self, admitted: Admitted) -> Any:
        parts: list[Any] = []

        async def keep(part: Any) -> None:
            parts.append(part)

        call: Any = admitted.call
        await self.guarding.calls.extended.answer(call, admitted.caller, admitted.request, _wait, keep)
        answer = Rejection(parts[0]["status"], tuple(parts[0]["headers"]), parts[-1].get("body", b""))
        if answer.status == 200:
            try:
                return _card_message(self.message, answer.body, is_legacy=call.generation is not Generation.V1_0)
            except TrustError as error:
                _log.error("the extended card cannot be served over gRPC: %s", error)
                answer = rejection_of(UNREADABLE, None)
        return await _abort(self.context, answer)


async def _refuse(_: Any, context: GuardedContext) -> NoReturn:
    await _abort(context, rejection_of(NOT_FOUND, None))


async def _stream(function: Callable[..., Any], message: Any, context: GuardedContext) -> Any:
    answer = function(message, context)
    if not isasyncgen(answer):  # it writes by itself
        return await answer
    async with aclosing(answer):
        async for each in answer:
            await context.write(each)
    return None


async def _abort(context: Any, rejection: Rejection) -> NoReturn:
    """End the call as the answer over HTTP would, which has code and reason in its body (A2A 10.6)."""
    error = json.loads(rejection.body)["error"]
    code = _STATUSES.get(rejection.status) or grpc.StatusCode[error["status"]]
    status, info = status_pb2.Status(code=code.value[0], message=error["message"]), error["details"][0]
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=info["reason"], domain=info["domain"]))
    trailers = [(name.decode(), value.decode("ascii")) for name, value in rejection.headers if name in _TRAILERS]
    await context.abort(code, error["message"], (("grpc-status-details-bin", status.SerializeToString()), *trailers))
    raise AssertionError  # abort has raised


@lru_cache(maxsize=64)  # methods that the server has
def _target(method: str) -> Target | None:
    """The call of a method of A2A; one that no version has is of no generation."""
    if not method.rpartition("/")[0].lower().endswith("a2aservice"):
        return None
    generation, operation = GRPC_METHODS.get(method, (None, None))
    return Target(binding=Binding.GRPC, generation=generation, operation=operation)


def _with_task(target: Target, message: Any) -> Target:
    fields = message.DESCRIPTOR.fields_by_name
    name = next((getattr(message, each) for each in ("task_id", "id", "name", "parent") if each in fields), "")
    task = name if target.generation is Generation.V1_0 else "".join(name.split("/")[1:2])  # tasks/{task}/…
    return target._replace(task_id=task) if task else target


def _params(message: Any, *, is_whole: bool) -> bytes:
    """The message as HTTP+JSON has it; unless it is for ``skill_of``, without what no other rule reads."""
    if is_whole:
        return str(json_format.MessageToJson(message, indent=None)).encode()
    params: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is None:
            params[field.json_name] = value
        elif field.name not in _UNREAD:
            params[field.json_name] = json_format.MessageToDict(value)
        elif getattr(value, "task_id", ""):  # for which the message may register a webhook
            params[field.json_name] = {"taskId": value.task_id}
    return json.dumps(params).encode() if params else b""


def _card_message(request: Any, body: bytes, *, is_legacy: bool) -> Any:
    """The card as a message. TrustError: the message would lack a requirement or a scheme of the card."""
    card, view = json.loads(body), read_card(body)
    for holder in (card, *card.get("skills", ())) if is_legacy else ():
        holder["security"] = holder.pop("securityRequirements", ())  # the protobuf of 0.3 has the form of 1.0
    kind: Any = message_factory.GetMessageClass(request.DESCRIPTOR.file.message_types_by_name["AgentCard"])
    try:
        message = json_format.ParseDict(card, kind(), ignore_unknown_fields=True)
    except json_format.ParseError:
        raise ConfigurationError("extended_card: the card does not fit into the message of gRPC") from None
    schemes = [each for each in message.security_schemes.values() if each.WhichOneof("scheme")]
    demands = message.security if is_legacy else message.security_requirements
    if len(schemes) != len(view.schemes) or len(demands) != len(view.requirements or ()):
        raise ConfigurationError("extended_card: its security cannot be written in gRPC; write the card in 1.0")
    return message


def _check_card(access: Access, agent: ProtectedAgent) -> None:
    """ConfigurationError: the card or an option has what gRPC does not have."""
    guard = access.guard
    if not any(each.binding == Binding.GRPC for each in access.card.interfaces):
        raise ConfigurationError("grpc: the card has no interface of gRPC; add one, or leave out grpc=")
    if guard.dpop is not None:
        raise ConfigurationError("dpop: proofs are for URLs, which gRPC does not have; protect another app for gRPC")
    places = {scheme.name: guard.place(scheme.name) for scheme in guard.schemes}
    for name, place in places.items():
        if isinstance(place, InQuery | InCookie) or (place.header or b"").endswith(b"-bin"):
            raise ConfigurationError(
                f"grpc: the scheme {name[:64]!a} is in {place}, which calls of gRPC do not have; declare another header"
            )
    certified = {any(places[name] == ClientCertificate() for name, _ in each.schemes) for each in guard.alternatives}
    if isinstance(access.certificates, FromTls) and len(certified) > 1:
        raise ConfigurationError(
            "client_certificates: the card accepts a certificate or something else, but a port of gRPC asks all its "
            "callers for a certificate or none; run two agents at two ports, or end TLS in a proxy: FromProxy(…)"
        )
    if agent.extended_card is not None and isinstance(agent.extended_card.source, FromApplication):
        raise ConfigurationError("extended_card: FromApplication() is for HTTP; with grpc write ExtendedCard(card)")


async def _ignore(_: Any) -> None:
    """For parts of an answer over HTTP, which there are none of."""


async def _wait() -> Any:
    """For further parts of a request, which there are none of."""
    await asyncio.Future()
