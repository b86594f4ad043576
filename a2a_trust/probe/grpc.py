"""Calls of gRPC for a probe, at a checked address and with empty messages, so no task begins.

Answers are written as HTTP has them, so the same rules read them. Source: A2A 1.0.1 5.4, 10.6.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import grpc

from a2a_trust.base.net.fetcher import AnyAnswer, Fetcher
from a2a_trust.base.net.urls import DEFAULT_PORTS, read_url

_CODE: Final = grpc.StatusCode
#: The status over HTTP, and for errors of the protocol their code.
_ANSWERS: Final[Mapping[Any, tuple[int, int]]] = {
    _CODE.OK: (200, 0), _CODE.UNAUTHENTICATED: (401, 0), _CODE.PERMISSION_DENIED: (403, 0),
    _CODE.RESOURCE_EXHAUSTED: (429, 0), _CODE.UNIMPLEMENTED: (501, 0), _CODE.NOT_FOUND: (404, -32001),
    _CODE.INVALID_ARGUMENT: (400, -32602), _CODE.FAILED_PRECONDITION: (400, -32004),
}  # fmt: skip


async def ask(url: str, metadata: Mapping[str, str], fetcher: Fetcher, *, configured: bool) -> AnyAnswer:
    """The answer to a call. FetchError: the fetcher does not allow the address."""
    parts = read_url(url)
    address = (await fetcher.resolve(parts.origin, configured=configured))[0]
    is_tls, port = parts.scheme == "https", parts.port or DEFAULT_PORTS[parts.scheme]
    place = f"[{address}]" if address.version == 6 else str(address)
    target, host = f"ipv{address.version}:{place}:{port}", parts.host.strip("[]")
    options: list[tuple[str, Any]] = [("grpc.default_authority", f"{parts.host}:{port}"), ("grpc.enable_http_proxy", 0)]
    options.append(("grpc.max_receive_message_length", 65_536))
    if is_tls:
        tls = grpc.ssl_channel_credentials(fetcher.authorities())
        channel = grpc.aio.secure_channel(target, tls, [*options, ("grpc.ssl_target_name_override", host)])
    else:
        channel = grpc.aio.insecure_channel(target, options)
    async with channel:
        call = channel.unary_stream(parts.path)(b"", metadata=[*metadata.items()], timeout=5)
        try:
            code = _CODE.OK if await call.read() is not grpc.aio.EOF else await call.code()
        except grpc.aio.AioRpcError as error:
            code = error.code()
    status, number = _ANSWERS.get(code, (503, 0))
    body = {"error": {"code": number, "message": "task not found"}} if number else {"task": {}}
    return AnyAnswer(status=status, headers={"content-type": "application/json"}, body=json.dumps(body).encode())
