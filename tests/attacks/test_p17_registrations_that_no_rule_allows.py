"""P17: a caller registers a webhook that leads inside, or in a spelling that the rule does not see.

Seen in the SDKs: the URL of a webhook is not checked at all, so any caller makes the agent send requests with chosen
credentials to loopback and to metadata services. Delivery checks again: P14.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from typing import Any

import pytest

from a2a_trust.base.net.fetcher import SystemResolver, addresses_of
from a2a_trust.card.operations import Binding
from a2a_trust.middleware import Call, Webhooks
from tests.middleware.test_webhooks import GOOD, NAMES, agent, ask, code, forms, webhooks
from tests.tables import walk

INSIDE = "http://127.0.0.1/"
BAD = [
    "http://hooks.example.com/", "https://127.0.0.1/", "https://10.1.2.3/", "https://169.254.169.254/latest",
    "https://100.100.100.200/", "https://168.63.129.16/", "https://[::1]/", "https://[::ffff:10.0.0.1]/",
    "https://[::ffff:8.8.8.8]/", "https://[2002:a00:1::1]/", "https://[64:ff9b::a00:1]/", "https://[fe80::1]/",
    "https://2130706433/", "https://127.1/", "https://0x7f.0.0.1/", "https://0177.0.0.1/", "https://0/",
    "https://user@hooks.example.com/", "https://user:x@hooks.example.com/", "https://hooks.example.com@10.0.0.1/",
    "https://hooks.example.com\\@10.0.0.1/", "https://hooks.example.com:22/", "https://hooks.example.com:0443/../",
    "https://inside.example.com/", "https://gone.example.com/", "https://localhost/", "https://hooks.example.com#a",
    "https:///hooks.example.com/", "https:hooks.example.com", "//hooks.example.com/", "hooks.example.com", "", " ",
    "file:///etc/passwd", "gopher://hooks.example.com/", "https://hooks.example.com\r\nX: 1/", "https://h\u00f6st.example.com/",
    "https://hooks.example.com/\x00", "unix:/run/agent.sock",
]  # fmt: skip


@walk("url", BAD, ids=repr)
def test_no_form_registers_a_webhook_that_leads_inside(url: str) -> None:
    app, inner = agent(webhooks(NAMES))
    for name, request in forms(url).items():
        (answer,) = ask(app, request)
        assert code(answer) in ((200, -32602), (400, 400), (200, -32600)), name
    assert inner.paths == []


@walk("url", [None, 1, True, [], [GOOD], {}, {"url": GOOD}, [[GOOD]]], ids=repr)
def test_a_url_is_a_text(url: Any) -> None:
    app, inner = agent(webhooks())
    for name in ("1.0 create", "1.0 message", "0.3 set", "0.3 message", "REST create", "REST message"):
        (answer,) = ask(app, forms(url)[name])
        if url is None and "message" in name:
            assert code(answer) == (200, None)
        else:
            assert code(answer)[1] in (-32602, -32600, 400), name
    assert all("create" not in path for path in inner.paths)


#: Names that some reader takes for the one that the rule reads.
OTHER = ["URL", "Url", "u\u0000rl", "url\u0000x", "url ", " url", "\uff55rl", "ur\u2113"]


@walk("name", OTHER, ids=repr)
def test_no_other_spelling_of_the_member_passes(name: str) -> None:
    app, inner = agent(webhooks())
    for at in (("params",), ("params", "configuration", "taskPushNotificationConfig")):
        path, body = forms(GOOD)["1.0 create" if len(at) == 1 else "1.0 message"]
        around: Any = body
        for step in at:
            around = around[step]
        around[name] = INSIDE
        assert code(ask(app, (path, body))[0])[1] in (-32600, -32602)
    assert inner.paths == []


def test_two_webhooks_in_one_call_are_none() -> None:
    app, inner = agent(webhooks())
    path, body = forms(GOOD)["1.0 message"]
    for member in ("task_push_notification_config", "pushNotificationConfig", "push_notification_config"):
        two = json.loads(json.dumps(body))
        two["params"]["configuration"][member] = {"url": "https://other.example.net/"}
        assert code(ask(app, (path, two))[0]) == (200, -32602)
    path, body = forms(GOOD)["0.3 set"]
    two = {**body, "params": {**body["params"], "url": "https://other.example.net/"}}
    assert code(ask(app, (path, two))[0]) == (200, -32602)
    for twice in (
        json.dumps(body).replace('"url": ', f'"url": "{INSIDE}", "url": '),
        json.dumps(body).replace('"url": ', f'"\\u0075rl": "{INSIDE}", "url": '),
        json.dumps(body).replace(
            '"pushNotificationConfig": ', '"pushNotificationConfig": {}, "pushNotificationConfig": '
        ),
    ):
        assert code(ask(app, (path, twice))[0])[1] in (-32600, -32602)
    assert inner.paths == []


@pytest.mark.parametrize("query", ["url=", "taskPushNotificationConfig.url=", "configuration.pushNotification.%75rl="])
def test_the_query_registers_none(query: str) -> None:
    app, inner = agent(webhooks())
    for name in ("1.0 create", "REST create", "REST message"):
        path, body = forms(GOOD)[name]
        assert code(ask(app, (f"{path}?{query}{INSIDE}", body))[0])[1] in (-32600, 400)
    assert inner.paths == []


def test_names_that_never_resolve_leave_the_look_ups_of_verifiers(monkeypatch: pytest.MonkeyPatch) -> None:
    end, real = threading.Event(), socket.getaddrinfo

    def slow(host: str, *args: Any, **options: Any) -> Any:
        if host.endswith("slow.example"):
            end.wait(30)
            raise OSError
        return real("127.0.0.1", *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    monkeypatch.setattr("a2a_trust.base.net.fetcher._RESOLVE_SECONDS", 0.01)
    app, inner = agent(Webhooks())
    try:
        for number in range(100):
            (answer,) = ask(app, forms(f"https://{number}.slow.example/")["1.0 create"])
            assert code(answer) == (200, -32602)
        assert asyncio.run(addresses_of("idp.example", 443, SystemResolver()))
    finally:
        end.set()
    assert inner.paths == []


def test_no_log_and_no_repr_has_more_of_the_url_than_its_host(caplog: pytest.LogCaptureFixture) -> None:
    for url in (
        "https://other.example.net/a?secret=s3cret",
        "https://ann:s3cret@hooks.example.com/",
        "https://inside.example.com/s3cret",
    ):
        app, _ = agent(webhooks(hosts=["*.example.com"]))
        assert "s3cret" not in ask(app, forms(url)["1.0 create"])[0].text
    assert "inside.example.com" in caplog.text
    assert "s3cret" not in caplog.text
    named = Call(Binding.JSONRPC, None, None, webhooks=frozenset(["https://hooks.example.com/s3cret"]))
    assert "s3cret" not in repr(named)
