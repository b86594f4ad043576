"""Agents in memory: a client for an application without a server, its probe, and an agent for tests of clients."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.principal import Principal
from a2a_trust.base import strict_json
from a2a_trust.base.net.fetcher import AnyAnswer
from a2a_trust.card.given import GivenCard, read_given
from a2a_trust.card.merge import merged_card
from a2a_trust.card.operations import Operation
from a2a_trust.card.schema import Generation
from a2a_trust.card.view import read_card
from a2a_trust.client.answer import Credentials, check_credentials
from a2a_trust.client.credentials import ApiKey
from a2a_trust.client.destinations import Destination
from a2a_trust.client.httpx import AsyncVerifyingTransport, CardAuth
from a2a_trust.errors import ConfigurationError, FetchError
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust.origins import Origins, origin_of
from a2a_trust.keys.trust.store import TrustedKey, TrustStore
from a2a_trust.middleware.caller import principal_of
from a2a_trust.middleware.calls import call_of
from a2a_trust.middleware.card import CardSignedHere, CardSigner
from a2a_trust.middleware.documents import ASGIApp, Receive, Scope, Send
from a2a_trust.middleware.lifespan import Lifespan
from a2a_trust.middleware.options import read_list
from a2a_trust.middleware.protection import protect
from a2a_trust.probe.probing import Prober
from a2a_trust.probe.requests import ProbeRequest
from a2a_trust.signing.verify import verify_card

_URL: Final = "https://agent.test"


@asynccontextmanager
async def memory_client(
    app: ASGIApp, *, base_url: str = _URL, headers: Mapping[str, str] | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of ``app`` in memory. The lifespan of ``app`` starts and ends with the block.

    Requests to other origins than ``base_url`` raise ``httpx.ConnectError``. Exceptions of the application are
    raised by the request. A stream arrives as a whole, at its end. RuntimeError: the lifespan failed.
    """
    state: dict[str, Any] = {}
    lifespan = Lifespan(app, {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": state})

    async def with_state(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "state": state.copy()}, receive, send)

    # Not a task group: a fixture may begin in another task than it ends in.
    running = asyncio.create_task(lifespan.run())
    try:
        _check("start", await lifespan.started())
        try:
            transport = _Memory(with_state, base_url)
            async with httpx.AsyncClient(transport=transport, base_url=base_url, headers=headers) as http:
                yield http
        finally:
            failure = await lifespan.stop()
        _check("stop", failure)
    finally:
        running.cancel()
        await asyncio.wait([running])


def _check(what: str, failure: str) -> None:
    if failure:
        raise RuntimeError(f"memory_client: the application failed to {what}: {failure}")


class _Memory(httpx.ASGITransport):
    """The application at one origin; all other origins are unreachable."""

    def __init__(self, app: ASGIApp, url: str) -> None:
        super().__init__(app=app)
        self._origin = origin_of(url)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if origin_of(str(request.url)) != self._origin:
            raise httpx.ConnectError(f"only {self._origin} can be reached in memory", request=request)
        return await super().handle_async_request(request)


class InMemoryAgent:
    """An agent in memory that enforces its signed card, for tests of clients.

    It answers each message with the result of ``answer(text, caller)``, over JSON-RPC of A2A 1.0 and 0.3, streamed or
    not. Its card demands an API key with ``scopes``.
    """

    def __init__(self, answer: Callable[[str, Principal], str], *, url: str = _URL, scopes: Iterable[str] = ()) -> None:
        """``url`` is an origin, as in ``"https://agent.test"``. ConfigurationError: it is not an origin."""
        if origin_of(url) != url:
            raise ConfigurationError(f"url: write an origin, such as {origin_of(url)!r}, not {url!r:.128}")
        self._answer = answer
        self._keys = MemoryApiKeys()
        signer = generate_signer("ES256")
        card = CardSignedHere(_card(url, read_list("scopes", scopes)), CardSigner(signer))
        self.url: Final = url
        self.app: Final = protect(
            Starlette(routes=[Route("/rpc", self._rpc, methods=["POST"])]),
            card=card,
            verifiers={"key": ApiKeyVerifier(self._keys)},
        )
        self.trust: Final = TrustStore(
            [TrustedKey(key=signer.public_key, origins=Origins(urlsplit(url).hostname or ""))]
        )
        self.card: Final = verify_card(card.document(time.time()).body, self.trust, origin=url)
        self.transport: Final[httpx.AsyncBaseTransport] = _Memory(self.app, url)

    def key(self, *scopes: str, owner: str = "ann") -> str:
        """A new API key of that owner, with those scopes."""
        return self._keys.create(owner=owner, scopes=scopes).text

    def client(self, key: str) -> httpx.AsyncClient:
        """A client with that API key that verifies the card, like ``verifying_client`` for the network."""
        return httpx.AsyncClient(
            transport=AsyncVerifyingTransport(self.transport, self.trust),
            auth=CardAuth(self.card, {"key": ApiKey(key, origins=[self.url])}, trust=self.trust),
            trust_env=False,
        )

    async def _rpc(self, request: Request) -> Response:
        call, caller, said = call_of(request.scope), principal_of(request), await request.json()
        if call is None or not isinstance(caller, Principal):
            raise ConfigurationError("InMemoryAgent: the request did not come through its guard; use .app unchanged")
        result: dict[str, Any] = {"jsonrpc": "2.0", "id": said.get("id")}
        is_stream = call.operation is Operation.SEND_STREAMING_MESSAGE
        if is_stream or call.operation is Operation.SEND_MESSAGE:
            text = "".join(part.get("text", "") for part in said["params"]["message"]["parts"])
            result["result"] = _message(self._answer(text, caller), is_1_0=call.generation is Generation.V1_0)
        else:
            is_stream = False
            result["error"] = {"code": -32004, "message": "This agent only answers messages."}
        body = json.dumps(result)
        if is_stream:
            return Response(f"data: {body}\n\n", media_type="text/event-stream")
        return Response(body, media_type="application/json")


def _message(text: str, *, is_1_0: bool) -> dict[str, Any]:
    message_id = str(uuid4())
    if is_1_0:
        return {"message": {"messageId": message_id, "role": "ROLE_AGENT", "parts": [{"text": text}]}}
    return {"kind": "message", "messageId": message_id, "role": "agent", "parts": [{"kind": "text", "text": text}]}


def _card(url: str, scopes: tuple[str, ...]) -> dict[str, Any]:
    return merged_card(
        {
            "name": "In memory",
            "description": "Answers messages in tests.",
            "version": "1.0.0",
            "supportedInterfaces": [
                {"url": f"{url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": version}
                for version in ("1.0", "0.3")
            ],
            "capabilities": {"streaming": True},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "answer", "name": "Answer", "description": "Answers.", "tags": ["test"]}],
            "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
            "securityRequirements": [{"schemes": {"key": {"list": [*scopes]}}}],
        }
    )


_SECONDS: Final = 10.0


async def assert_enforced(app: ASGIApp, *, card: GivenCard, credentials: Credentials | None = None) -> None:
    """Probe ``app`` at the interfaces of ``card``, as ``a2a-sign probe`` does, without a server.

    ``credentials`` are valid ones by the names of schemes. AssertionError: a requirement is not enforced, or the probe
    cannot tell; the text has the exchanges that show it.
    """
    check_credentials(credentials or {})
    document = read_given(card)
    parsed = strict_json.parse(document, what="card") if isinstance(document, bytes) else dict(document)
    view = read_card(parsed)
    origin = Destination.origin_of(view.interfaces[0].url) if view.interfaces else "https://agent.test"
    async with memory_client(app, base_url=origin) as http:

        async def send(request: ProbeRequest, url: str, headers: dict[str, str]) -> AnyAnswer:
            headers = {"Content-Type": "application/json", **headers}
            call = http.request(request.method, url, headers=headers, content=request.content)
            try:
                answer = await asyncio.wait_for(call, _SECONDS)
            except Exception as error:  # noqa: BLE001  of the application, or a stream without end
                raise FetchError(f"{request.operation}: no answer ({type(error).__name__})") from None
            return AnyAnswer(status=answer.status_code, headers=dict(answer.headers), body=answer.content)

        prober = Prober(view=view, card=parsed, send=send, origins={origin}, given=credentials or {})
        rows, _ = await prober.run()
    doubtful = [row for row in rows if row.verdict != "enforced"]
    if doubtful or not rows:
        lines = [f"{row.requirement} at {row.interface.url}: {row.verdict}: {row.reason}" for row in doubtful]
        proofs = ["".join(f"\n    {proof}" for proof in row.proof) for row in doubtful]
        raise AssertionError("\n".join(["the card is not enforced", *map(str.__add__, lines, proofs)]))
