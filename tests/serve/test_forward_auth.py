"""The decision for a proxy that asks, by each form; no proxy runs here."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from a2a_trust import ApiKeyVerifier, RequestRules
from a2a_trust.auth import FailureLimits, MemoryApiKeys, Principal
from a2a_trust.errors import ConfigurationError
from a2a_trust.proxies import Networks, ProxySecret
from a2a_trust.serve import ForwardAuth, ForwardForm
from tests.conftest import ROOT
from tests.tables import walk

CARD: dict[str, Any] = json.loads((ROOT / "examples" / "serve" / "agent-card.json").read_text())
REST = {**CARD["supportedInterfaces"][0], "protocolBinding": "HTTP+JSON", "url": "http://localhost:8080/rest"}
CARD["supportedInterfaces"].append(REST)
KEYS = MemoryApiKeys()
KEY = {"X-API-Key": KEYS.create(owner="ann").text}
SECRET = "x" * 32
PROVEN = {"X-Proxy-Secret": SECRET, "X-Forwarded-For": "192.0.2.7"}


def guard(form: ForwardForm = ForwardForm.NGINX, **options: Any) -> ForwardAuth:
    given: dict[str, Any] = {"card": CARD, "verifiers": {"key": ApiKeyVerifier(KEYS)}, "agent_checks": ["tenants"]}
    return ForwardAuth(form, peers=ProxySecret(secret=SECRET), **{**given, **options})


def ask(
    app: ForwardAuth, uri: str, headers: dict[str, str] | list[tuple[str, str]], method: str = "POST"
) -> httpx.Response:
    """The answer to a question about a request, in the form of nginx."""
    about = [("X-Original-URI", uri), ("X-Original-Method", method), *(dict(headers).items() if headers else ())]
    if isinstance(headers, list):
        about = headers

    async def run() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://guard") as http:
            return await http.get("/", headers=about)

    return asyncio.run(run())


def test_a_caller_is_named_and_others_get_the_challenge() -> None:
    app = guard()
    admitted = ask(app, "/rpc", {**PROVEN, **KEY})
    assert admitted.status_code == 200
    assert {name: value for name, value in admitted.headers.items() if name.startswith("a2a")} == {
        "a2a-caller-id": "ann@api-keys", "a2a-caller-scopes": "", "a2a-caller-client": "",
    }  # fmt: skip
    for headers in (PROVEN, {**PROVEN, "X-API-Key": "wrong"}):
        rejected = ask(app, "/rpc", headers)
        assert (rejected.status_code, rejected.headers["WWW-Authenticate"]) == (
            401,
            'ApiKey in="header", name="X-API-Key"',
        )
        assert not [name for name in rejected.headers if name.startswith("a2a-caller")]
    public = ask(app, "/.well-known/agent-card.json", PROVEN, "GET")
    assert (public.status_code, public.headers["A2A-Caller-Id"]) == (200, "")


FORMS: list[tuple[ForwardForm, str, str, dict[str, str]]] = [
    (ForwardForm.CADDY, "GET", "/", {"X-Forwarded-Uri": "/rpc", "X-Forwarded-Method": "POST"}),
    (ForwardForm.TRAEFIK, "GET", "/", {"X-Forwarded-Uri": "/rpc", "X-Forwarded-Method": "POST"}),
    (ForwardForm.ENVOY, "POST", "/rpc", {}),
]


@walk("form", FORMS, ids=lambda form: form[0].value)
def test_every_form(form: tuple[ForwardForm, str, str, dict[str, str]]) -> None:
    kind, method, path, about = form
    app = guard(kind)

    async def run() -> list[int]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://guard") as http:
            known = await http.request(method, path, headers={**PROVEN, **about, **KEY})
            unknown = await http.request(method, path, headers={**PROVEN, **about})
            unproven = await http.request(method, path, headers={**about, **KEY})
            return [each.status_code for each in (known, unknown, unproven)]

    assert asyncio.run(run()) == [200, 401, 403]


ODD = [
    "//rpc", "/./rpc", "/a/../rpc", "/%2e%2e/rpc", "/a%2frpc", "/rpc;a", "/rpc%00", "/rp\\c", "http://a/rpc", "", "?a",
    "/rpc%", "*",
]  # fmt: skip


@walk("uri", ODD, ids=repr)
def test_a_uri_that_is_not_clear_is_rejected(uri: str) -> None:
    assert ask(guard(), uri, {**PROVEN, **KEY}).status_code == 403


def test_only_the_proxy_asks_and_only_once() -> None:
    app, about = guard(), [("X-Original-URI", "/rpc"), ("X-Original-Method", "POST"), *KEY.items()]
    proven = [*about, *PROVEN.items()]
    assert ask(app, "", proven).status_code == 200
    for wrong in (
        about,
        [*about, ("X-Proxy-Secret", "y" * 32)],
        [*proven, ("X-Proxy-Secret", SECRET)],
        [*proven, ("X-Original-URI", "/rpc")],
        [*proven, ("X_Original_URI", "/rpc")],
        [*proven, ("X-Original-Method", "GET")],
        [*proven, ("X-Forwarded-For", "192.0.2.8")],
        proven[1:],
        [proven[0], *proven[2:]],
    ):
        answer = ask(app, "", wrong)
        assert answer.status_code == 403, wrong
    by_network = ForwardAuth(
        ForwardForm.NGINX,
        peers=Networks("127.0.0.1"),
        card=CARD,
        verifiers={"key": ApiKeyVerifier(KEYS)},
        agent_checks=["tenants"],
    )
    unknown = ask(by_network, "", proven)  # this server records no peer
    assert (unknown.status_code, unknown.headers["A2A-Status"]) == (403, "503")


def test_methods_that_are_no_requests() -> None:
    for method in ("CONNECT", "TRACE", "post", "PO ST", ""):
        assert ask(guard(), "/rpc", {**PROVEN, **KEY}, method).status_code == 403


def test_what_nginx_does_not_pass_on_is_in_a_header() -> None:
    app = guard(rules=RequestRules(failures=FailureLimits(by_credential="1/minute", by_peer="1/minute")))
    answers = [ask(app, "/rpc", {**PROVEN, "X-API-Key": "wrong"}) for _ in range(2)]
    assert [each.status_code for each in answers] == [401, 403]
    assert answers[1].headers["A2A-Status"] == "429"
    # another client of the same proxy
    assert ask(app, "/rpc", {**PROVEN, "X-Forwarded-For": "evil, 192.0.2.8", "X-API-Key": "wrong"}).status_code == 401
    missing = ask(app, "/other/message:send", {**PROVEN, **KEY})
    assert (missing.status_code, missing.headers["A2A-Status"]) == (403, "404")


def test_tenants_of_a_path_are_checked() -> None:
    def may(caller: Any, tenant: str) -> bool:
        return isinstance(caller, Principal) and tenant == "acme"

    app = guard(rules=RequestRules(may_use_tenant=may))
    for path, status in (
        ("/rest/acme/message:send", 200),
        ("/rest/other/message:send", 403),
        ("/rest/message:send", 200),
    ):
        assert ask(app, path, {**PROVEN, **KEY}).status_code == status
    for path, status in (
        ("/rest/acme/tasks/1", 200),
        ("/rest/other/tasks/1", 403),
        ("/rest/tasks/1?tenant=other", 403),
    ):
        assert ask(app, path, {**PROVEN, **KEY}, "GET").status_code == status
    assert ask(guard(), "/rest/acme/message:send", {**PROVEN, **KEY}).status_code == 403


def test_what_bodies_decide_must_be_named() -> None:
    with pytest.raises(ConfigurationError, match="a proxy that asks sends no bodies"):
        guard(agent_checks=[])
    with pytest.raises(ConfigurationError, match="'extended-card' is nothing that the card needs"):
        guard(agent_checks=["tenants", "extended-card"])
    promising = {**CARD, "capabilities": {"extendedAgentCard": True}}
    with pytest.raises(ConfigurationError, match=r"\['tenants', 'webhooks'\]"):
        guard(card={**CARD, "capabilities": {"pushNotifications": True}})
    with pytest.raises(ConfigurationError, match=r"\['extended-card', 'tenants'\]"):
        guard(card=promising)
    app = guard(card=promising, agent_checks=["tenants", "extended-card"])
    assert ask(app, "/rest/extendedAgentCard", {**PROVEN, **KEY}, "GET").status_code == 200
    assert ask(app, "/rest/extendedAgentCard", PROVEN, "GET").status_code == 401
    with pytest.raises(ConfigurationError, match="skill_of and webhooks read bodies"):
        guard(rules=RequestRules(skill_of=lambda call, body: None))
