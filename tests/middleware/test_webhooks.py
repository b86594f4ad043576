"""Which webhooks callers may register: every form of a registration, and the rule for its URL."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from a2a_trust import RequestRules
from a2a_trust.auth import Anonymous, Principal
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.errors import ConfigurationError
from a2a_trust.middleware import UnsafeAnyWebhook, Webhooks, protect
from tests.auth.test_jwt import NOW
from tests.middleware.agent import CARD, KEY, Agent, verifiers
from tests.tables import walk

PROMISING: dict[str, Any] = {
    **CARD,
    "capabilities": {"pushNotifications": True},
    "supportedInterfaces": [
        *CARD["supportedInterfaces"],
        *({**each, "protocolVersion": "0.3"} for each in CARD["supportedInterfaces"]),
    ],
}
GOOD = "https://hooks.example.com/a"
#: What names are in the DNS of these tests; all others have no address.
NAMES = {
    "hooks.example.com": ["8.8.8.8"],
    "inside.example.com": ["8.8.8.8", "10.0.0.1"],
    "other.example.net": ["8.8.4.4"],
}


class Dns:
    def __init__(self, names: dict[str, list[str]] = NAMES) -> None:
        self.names, self.asked = names, list[str]()

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self.names:
            raise OSError("no such name")
        return self.names[host]


def forms(url: Any, task: str = "t1", **more: Any) -> dict[str, tuple[str, dict[str, Any]]]:
    """Every form in which a request registers a webhook: its path and body."""
    config = {"url": url, "token": "x", **more}
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}

    def rpc(method: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return "/rpc", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}

    inline = {"message": message, "configuration": {"taskPushNotificationConfig": config}}
    proto = {"message": message, "configuration": {"task_push_notification_config": config}}
    old = {"message": message, "configuration": {"pushNotificationConfig": config}}
    return {
        "1.0 create": rpc("CreateTaskPushNotificationConfig", {"taskId": task, **config}),
        "1.0-rc create": rpc("CreateTaskPushNotificationConfig", {"taskId": task, "config": config}),
        "1.0-rc nested": rpc("CreateTaskPushNotificationConfig", {"config": {"pushNotificationConfig": config}}),
        "1.0 message": rpc("SendMessage", inline),
        "1.0 stream": rpc("SendStreamingMessage", inline),
        "1.0 proto names": rpc("SendMessage", proto),
        "0.3 set": rpc("tasks/pushNotificationConfig/set", {"taskId": task, "pushNotificationConfig": config}),
        "0.3 message": rpc("message/send", old),
        "0.3 stream": rpc("message/stream", old),
        "0.3 proto names": rpc("message/send", {"configuration": {"push_notification": config}, "request": message}),
        "0.1 set": rpc("tasks/pushNotification/set", {"id": task, "pushNotificationConfig": config}),
        "0.1 send": rpc("tasks/send", {"id": task, "message": message, "pushNotification": config}),
        "REST create": (f"/rest/tasks/{task}/pushNotificationConfigs", config),
        "REST message": ("/rest/message:send", inline),
        "REST stream": ("/rest/message:stream", inline),
        "REST 0.3 create": (
            f"/rest/v1/tasks/{task}/pushNotificationConfigs",
            {"config": {"pushNotificationConfig": config}},
        ),
        "REST 0.3 message": (
            "/rest/v1/message:send",
            {"request": message, "configuration": {"pushNotification": config}},
        ),
    }


def agent(rule: Any = None, card: dict[str, Any] = PROMISING) -> tuple[Any, Agent]:
    app = Agent()
    return protect(app, card=card, verifiers=verifiers(), rules=RequestRules(webhooks=rule), clock=lambda: NOW), app


def webhooks(names: dict[str, list[str]] = NAMES, **options: Any) -> Webhooks:
    return Webhooks(fetcher=Fetcher(resolver=Dns(names)), **options)


async def posted(app: Any, *requests: tuple[str, Any]) -> list[httpx.Response]:
    headers = {"X-API-Key": KEY, "Content-Type": "application/json"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent", headers=headers) as http:
        return [
            await http.post(path, content=body if isinstance(body, str) else json.dumps(body))
            for path, body in requests
        ]


def ask(app: Any, *requests: tuple[str, Any]) -> list[httpx.Response]:
    return asyncio.run(posted(app, *requests))


def code(answer: httpx.Response) -> tuple[int, Any]:
    body = answer.json()
    return answer.status_code, body["error"]["code"] if "error" in body else None


def test_every_form_of_a_good_registration_is_accepted() -> None:
    app, inner = agent(webhooks(hosts=["*.example.com"]))
    answers = ask(app, *forms(GOOD).values())
    assert [code(answer) for answer in answers] == [(200, None)] * len(answers)
    assert len(inner.paths) == len(answers)


@walk("url", ["https://other.example.net/", "https://inside.example.com/", "https://gone.example.com/"])
def test_no_form_registers_another_webhook(url: str) -> None:
    app, inner = agent(webhooks(hosts=["*.example.com"]))
    for name, request in forms(url).items():
        (answer,) = ask(app, request)
        assert code(answer) == ((200, -32602) if request[0] == "/rpc" else (400, 400)), name
        assert "may not be registered" in answer.json()["error"]["message"]
    assert inner.paths == []


def test_a_card_without_a_promise_registers_none() -> None:
    for rule in (None, webhooks(), UnsafeAnyWebhook()):
        app, inner = agent(rule, {**PROMISING, "capabilities": {"pushNotifications": False}})
        for name, request in forms(GOOD).items():
            (answer,) = ask(app, request)
            assert code(answer) == ((200, -32003) if request[0] == "/rpc" else (400, 400)), name
            if request[0] != "/rpc":
                assert answer.json()["error"]["details"][0]["reason"] == "PUSH_NOTIFICATION_NOT_SUPPORTED"
        assert inner.paths == []


@walk("promise", [True, "True", "yes", 1])
def test_a_promise_without_a_rule_does_not_start(promise: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"webhooks=Webhooks\(…\)"):
        agent(None, {**PROMISING, "capabilities": {"pushNotifications": promise}})


def test_the_application_may_check_itself() -> None:
    app, inner = agent(UnsafeAnyWebhook())
    assert [code(each)[0] for each in ask(app, *forms("http://127.0.0.1/").values())] == [200] * len(forms(""))
    assert len(inner.paths) == len(forms(""))


def test_a_call_without_a_webhook_asks_no_dns() -> None:
    dns = Dns()
    app, inner = agent(Webhooks(fetcher=Fetcher(resolver=dns)))
    message = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": {"messageId": "1"}}}
    empty = {**message, "params": {"configuration": {"taskPushNotificationConfig": None}}}
    assert [code(each) for each in ask(app, ("/rpc", message), ("/rpc", empty))] == [(200, None)] * 2
    assert dns.asked == []
    assert len(inner.paths) == 2


async def allowing(caller: Principal | Anonymous, host: str) -> bool:
    return isinstance(caller, Principal) and caller.id == "ann@api-keys" and host == "hooks.example.com"


@pytest.mark.parametrize(
    "rule", [allowing, lambda caller, host: caller.id == "ann@api-keys" and host == "hooks.example.com"]
)
def test_a_function_of_the_caller_decides(rule: Any) -> None:
    app, _ = agent(webhooks(hosts=rule))
    create = [forms(url)["1.0 create"] for url in (GOOD, "https://other.example.net/")]
    assert [code(each) for each in ask(app, *create)] == [(200, None), (200, -32602)]


def test_a_rule_must_say_true() -> None:
    for answer in (1, "yes", None, object()):
        app, _ = agent(webhooks(hosts=lambda _caller, _host, answer=answer: answer))
        assert code(ask(app, forms(GOOD)["1.0 create"])[0]) == (200, -32602)


def test_so_many_webhooks_for_a_task() -> None:
    app, _ = agent(webhooks())
    create = forms(GOOD, "t1")["1.0 create"]
    path, body = forms(GOOD)["1.0 message"]
    with_task = {**body, "params": {**body["params"], "message": {**body["params"]["message"], "taskId": "t1"}}}
    answers = ask(app, *[create, (path, with_task)] * 6, forms(GOOD, "t2")["1.0 create"])
    assert [code(each)[1] for each in answers] == [*[None] * 10, -32602, -32602, None]


def test_ports_must_be_named() -> None:
    other = "https://hooks.example.com:8443/"
    assert code(ask(agent(webhooks())[0], forms(other)["1.0 create"])[0]) == (200, -32602)
    assert code(ask(agent(webhooks(ports=[443, 8443]))[0], forms(other)["1.0 create"])[0]) == (200, None)


class Slow(Dns):
    async def resolve(self, host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(60)
        return await super().resolve(host, port)


def test_a_slow_name_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_trust.base.net.fetcher._RESOLVE_SECONDS", 0.05)
    app, inner = agent(Webhooks(fetcher=Fetcher(resolver=Slow())))
    assert code(ask(app, forms(GOOD)["1.0 create"])[0]) == (200, -32602)
    assert inner.paths == []


@walk(
    "wrong",
    [
        {"hosts": "hooks.example.com"},
        {"hosts": ["https://hooks.example.com"]},
        {"hosts": ["*"]},
        {"ports": []},
        {"ports": [0]},
    ],
)
def test_a_rule_that_cannot_be_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Webhooks(**wrong)


def test_the_option_takes_a_rule_only() -> None:
    with pytest.raises(ConfigurationError, match="write Webhooks"):
        RequestRules(webhooks=["hooks.example.com"])  # type: ignore[arg-type]
