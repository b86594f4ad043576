"""The decision without ASGI: a value for the request in, a decision out; what only the body decides is no guess."""

from __future__ import annotations

import json
from typing import Any

import pytest

from a2a_trust.auth.guard import Refused
from a2a_trust.auth.principal import Principal
from a2a_trust.card.operations import Operation
from a2a_trust.card.view import read_card
from a2a_trust.errors import InvalidCredentialsError, MissingCredentialsError
from a2a_trust.middleware.decision import Access, Admitted, CallRules, Decision, NeedsBody, Rejected, decide
from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.routing import Interfaces
from tests.auth.test_jwt import NOW
from tests.middleware.agent import CALL, CARD, KEY, POOR_KEY, verifiers
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


RULES = RequestRules(
    may_use_tenant=lambda caller, tenant: tenant == "acme",
    other_paths=["/docs"],
    public_paths=["/healthz"],
    max_body=99,
)


async def decision(
    method: str, path: str, body: bytes | None = None, *, key: str = KEY, kind: str = "http", **scope: Any
) -> Decision:
    view = read_card(CARD)
    interfaces = Interfaces(view)
    access = Access(view, verifiers(), interfaces, rules=RULES)
    headers = [(b"content-type", b"application/json"), *([(b"x-api-key", key.encode())] if key else [])]
    request = {"type": kind, "method": method, "path": path, "headers": headers, **scope}
    return await decide(access, CallRules(view, interfaces, RULES), request, NOW, body)


def call(tenant: str = "") -> bytes:
    return json.dumps({**CALL, "params": {"tenant": tenant}}).encode()


async def test_a_call_is_decided_with_its_body_only() -> None:
    needed = await decision("POST", "/rpc")
    assert isinstance(needed, NeedsBody)
    assert (needed.most, needed.target is None) == (99, False)
    admitted = await decision("POST", "/rpc", call("acme"))
    assert isinstance(admitted, Admitted)
    assert isinstance(admitted.caller, Principal)
    assert admitted.call is not None
    assert (admitted.call.operation, admitted.call.tenant) == (Operation.SEND_MESSAGE, "acme")


async def test_a_request_without_a_body_has_to_say_so() -> None:
    needed = await decision("GET", "/rest/tasks/5")
    assert isinstance(needed, NeedsBody)
    assert needed.most == 0
    admitted = await decision("GET", "/rest/tasks/5", b"")
    assert isinstance(admitted, Admitted)
    assert admitted.call is not None
    assert admitted.call.task_id == "5"


@walk(
    ("method", "path", "body", "status"),
    [
        ("POST", "/rpc", call("other"), 403),
        ("POST", "/rpc", b"{", 400),
        ("POST", "/rpc", b" " * 100, 413),
        ("GET", "/rest/tasks/5", b"{}", 400),
        ("GET", "/nowhere", None, 404),
        ("PUT", "/rpc", None, 404),
        ("GET", "/a\nb", None, 400),
    ],
)
async def test_the_rules_reject_with_the_error_of_the_protocol(
    method: str, path: str, body: bytes | None, status: int
) -> None:
    rejected = await decision(method, path, body)
    assert isinstance(rejected, Rejected)
    assert rejected.error.status == status
    assert rejected.why


@walk(("key", "error"), [("", MissingCredentialsError), ("x", InvalidCredentialsError)])
@pytest.mark.parametrize("body", [None, call("acme")])
async def test_the_guard_comes_first_with_and_without_a_body(
    key: str, error: type[Exception], body: bytes | None
) -> None:
    for path in ("/rpc", "/docs", "/nowhere"):
        refused = await decision("POST", path, body, key=key)
        assert isinstance(refused, Refused)
        assert isinstance(refused.error, error)


async def test_a_caller_that_lacks_scopes_is_refused_with_its_name() -> None:
    refused = await decision("POST", "/rpc", key=POOR_KEY)
    assert isinstance(refused, Refused)
    assert refused.caller is not None


async def test_other_paths_need_no_body_and_public_ones_no_caller() -> None:
    other = await decision("POST", "/docs")
    assert isinstance(other, Admitted)
    assert other.caller is not None
    assert other.call is None
    assert await decision("GET", "/healthz", key="") == Admitted(None, None)
    assert isinstance(await decision("GET", "/healthz", key="", raw_path=b"/%68ealthz"), Refused)
    assert isinstance(await decision("POST", "/healthz", key=""), Refused)


async def test_a_websocket_is_of_no_interface() -> None:
    assert isinstance(await decision("GET", "/docs", kind="websocket"), Admitted)
    assert isinstance(await decision("GET", "/rpc", kind="websocket"), Rejected)
