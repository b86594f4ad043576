"""The decision without ASGI: a value for the request in, a decision out; what only the body decides is no guess."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from a2a_trust.auth.credentials import NEXT_NONCE
from a2a_trust.auth.dpop import DPoP, ServerNonces
from a2a_trust.auth.principal import Principal
from a2a_trust.card.operations import Operation
from a2a_trust.card.view import read_card
from a2a_trust.errors import ConfigurationError
from a2a_trust.middleware.caller import principal_of
from a2a_trust.middleware.calls import call_of
from a2a_trust.middleware.decision import (
    Access,
    Admitted,
    CallRules,
    ForExtendedCard,
    NeedsBody,
    decide,
    decide_with_body,
)
from a2a_trust.middleware.extended_card import ExtendedCard, ExtendedCardEndpoint
from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.rejection import Rejection
from tests.auth.proofs import BASE, bound_token, by_dpop, proof
from tests.auth.test_jwt import NOW
from tests.middleware.agent import CALL, CARD, KEY, POOR_KEY, verifiers
from tests.middleware.test_audit import events
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "a2a_trust.audit")


RULES = RequestRules(
    may_use_tenant=lambda caller, tenant: tenant == "acme",
    other_paths=["/docs"],
    public_paths=["/healthz"],
    max_body=99,
)


def front(rules: RequestRules = RULES, **options: Any) -> tuple[Access, CallRules]:
    card = options.pop("card", CARD)
    extended = ExtendedCard(card) if card is not CARD else None
    access = Access(read_card(card), {**verifiers(), **options.pop("verifiers", {})}, rules=rules, **options)
    return access, CallRules(access, rules, ExtendedCardEndpoint(access.card, extended))


async def decision(
    method: str, path: str, body: bytes | None = None, *, key: str = KEY, kind: str = "http", **scope: Any
) -> Admitted | ForExtendedCard | NeedsBody | Rejection:
    access, calls = front()
    headers = [(b"content-type", b"application/json"), *([(b"x-api-key", key.encode())] if key else [])]
    request = {"type": kind, "method": method, "path": path, **scope, "headers": [*headers, *scope.get("headers", ())]}
    decided = await decide(access, calls, request, NOW)
    if body is None or not isinstance(decided, NeedsBody):
        return decided
    return await decide_with_body(calls, decided, body)


def call(tenant: str = "") -> bytes:
    return json.dumps({**CALL, "params": {"tenant": tenant}}).encode()


async def test_a_call_is_decided_with_its_body_only() -> None:
    needed = await decision("POST", "/rpc")
    assert isinstance(needed, NeedsBody)
    assert (needed.rule.most, needed.rule.target is None) == (99, False)
    admitted = await decision("POST", "/rpc", call("acme"))
    assert isinstance(admitted, Admitted)
    assert isinstance(admitted.caller, Principal)
    assert admitted.call is not None
    assert (admitted.call.operation, admitted.call.tenant) == (Operation.SEND_MESSAGE, "acme")


async def test_a_request_without_a_body_has_to_say_so() -> None:
    needed = await decision("GET", "/rest/tasks/5")
    assert isinstance(needed, NeedsBody)
    assert needed.rule.most == 0
    admitted = await decision("GET", "/rest/tasks/5", b"")
    assert isinstance(admitted, Admitted)
    assert admitted.call is not None
    assert admitted.call.task_id == "5"


@walk(
    ("method", "path", "body", "status"),
    [
        ("POST", "/rpc", call("other"), 403),
        ("POST", "/rpc", b"{", 200),  # as JSON-RPC has it
        ("POST", "/rpc", b" " * 100, 413),
        ("GET", "/rest/tasks/5", b"{}", 400),
        ("GET", "/nowhere", None, 404),
        ("PUT", "/rpc", None, 404),
        ("GET", "/a\nb", None, 400),
    ],
)
async def test_the_rules_reject_with_the_error_of_the_protocol(
    method: str, path: str, body: bytes | None, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    rejected = await decision(method, path, body)
    assert isinstance(rejected, Rejection)
    assert rejected.status == status
    assert b'"error"' in rejected.body
    assert (events(caplog)[-1]["event"], events(caplog)[-1]["caller"]) == ("refused", "ann@api-keys")


@walk("key", ["", "x"])
@pytest.mark.parametrize("body", [None, call("acme")])
async def test_the_guard_comes_first_with_and_without_a_body(
    key: str, body: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    for path in ("/rpc", "/docs", "/nowhere"):
        refused = await decision("POST", path, body, key=key)
        assert isinstance(refused, Rejection)
        assert refused.status == 401
        assert b"www-authenticate" in dict(refused.headers)
    kind = "invalid-credentials" if key else "missing-credentials"
    assert [event["reason"] for event in events(caplog)] == [kind] * 3


async def test_a_caller_that_lacks_scopes_is_refused_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    refused = await decision("POST", "/rpc", key=POOR_KEY)
    assert isinstance(refused, Rejection)
    assert refused.status == 403
    assert [event["caller"] for event in events(caplog)] == ["bob@api-keys"]


async def test_other_paths_need_no_body_and_public_ones_no_caller() -> None:
    other = await decision("POST", "/docs")
    assert isinstance(other, Admitted)
    assert other.caller is not None
    assert other.call is None
    public = await decision("GET", "/healthz", key="")
    assert isinstance(public, Admitted)
    assert (public.caller, public.call) == (None, None)
    with pytest.raises(ConfigurationError):
        principal_of(public.request)
    assert isinstance(await decision("GET", "/healthz", key="", raw_path=b"/%68ealthz"), Rejection)
    assert isinstance(await decision("POST", "/healthz", key=""), Rejection)


async def test_a_websocket_is_of_no_interface() -> None:
    assert isinstance(await decision("GET", "/docs", kind="websocket"), Admitted)
    assert isinstance(await decision("GET", "/rpc", kind="websocket"), Rejection)


async def test_the_application_gets_the_caller_in_place_of_the_credential() -> None:
    for admitted in (await decision("POST", "/docs"), await decision("POST", "/rpc", call("acme"))):
        assert isinstance(admitted, Admitted)
        assert b"x-api-key" not in dict(admitted.request["headers"])
        assert KEY not in repr(admitted)
        assert principal_of(admitted.request) is admitted.caller
        assert call_of(admitted.request) is admitted.call


async def test_a_preflight_must_not_carry_a_call() -> None:
    asks = [(b"origin", b"https://app.example"), (b"access-control-request-method", b"POST"), (b"content-length", b"9")]
    access, calls = front(replace(RULES, allow_cors_preflight=True))
    request = {"type": "http", "method": "OPTIONS", "path": "/docs", "headers": asks}
    needs = await decide(access, calls, request, NOW)
    assert isinstance(needs, NeedsBody)
    assert needs.admitted.caller is None
    assert b"content-length" not in dict(needs.admitted.request["headers"])
    assert await decide_with_body(calls, needs, b"") is needs.admitted
    assert isinstance(await decide_with_body(calls, needs, call("acme")), Rejection)


async def test_an_announced_body_that_is_too_long_is_rejected_unread() -> None:
    for announced, path in ((b"100", "/rpc"), (b"1", "/rest/tasks/5"), (b"-1", "/rpc"), (b"1" * 99, "/rpc")):
        method = "POST" if path == "/rpc" else "GET"
        rejected = await decision(method, path, headers=[(b"content-length", announced)])
        assert isinstance(rejected, Rejection)
        assert rejected.status in (400, 413)
    assert isinstance(await decision("POST", "/rpc", headers=[(b"Content-Length", b"99")]), NeedsBody)


async def test_a_proof_is_used_once_though_the_body_comes_later() -> None:
    """The nonce for the next proof arrives with the decision, too."""
    nonces = ServerNonces(bytes(32))
    access, calls = front(dpop=DPoP(url=BASE, nonces=nonces))
    bearer, old = bound_token(), nonces.given(NOW - 300)
    sent = [*by_dpop(bearer, proof(bearer, nonce=old)), (b"content-type", b"application/json")]
    request = {"type": "http", "method": "POST", "path": "/rpc", "headers": sent}
    needs = await decide(access, calls, request, NOW)
    assert isinstance(needs, NeedsBody)
    admitted = await decide_with_body(calls, needs, call("acme"))
    assert isinstance(admitted, Admitted)
    assert admitted.dpop_nonce == nonces.given(NOW) != old
    rejected = await decide_with_body(calls, needs, call("other"))
    assert isinstance(rejected, Rejection)
    assert dict(rejected.headers)[b"dpop-nonce"] == admitted.dpop_nonce.encode()
    again = await decide(access, calls, request, NOW)
    assert isinstance(again, Rejection)
    assert again.status == 401


async def test_what_is_neither_http_nor_a_websocket_is_not_decided() -> None:
    with pytest.raises(ConfigurationError, match="'webtransport' is not understood"):
        await decision("GET", "/docs", kind="webtransport")


async def test_a_call_for_the_extended_card_is_not_for_the_application() -> None:
    access, calls = front(card={**CARD, "capabilities": {"extendedAgentCard": True}})
    request = {
        "type": "http",
        "method": "GET",
        "path": "/rest/extendedAgentCard",
        "headers": [(b"x-api-key", KEY.encode())],
    }
    needs = await decide(access, calls, request, NOW)
    assert isinstance(needs, NeedsBody)
    decided = await decide_with_body(calls, needs, b"")
    assert isinstance(decided, ForExtendedCard)
    assert decided.admitted.call is not None


async def test_the_paths_of_the_decision_are_those_of_its_rules() -> None:
    access, calls = front(replace(RULES, served_at={"http://agent.example/rpc": "/internal"}))
    request = {"type": "http", "method": "POST", "path": "/internal", "headers": [(b"x-api-key", KEY.encode())]}
    needs = await decide(access, calls, request, NOW)
    assert isinstance(needs, NeedsBody)
    assert needs.rule.target is not None


def test_what_was_seen_of_a_request_is_not_shown() -> None:
    access, _ = front()
    headers = [(b"x-api-key", KEY.encode())]
    seen = access.see({"type": "http", "method": "GET", "path": "/", "headers": headers, NEXT_NONCE: "of another"})
    assert KEY not in repr(seen)
    assert NEXT_NONCE not in seen.scope
