"""docs/forward-auth.md: nginx and Caddy, as on the page, ask the guard for an agent that checks nothing."""

from __future__ import annotations

import re
import shutil
import ssl
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpcore
import httpx
import pytest
from cryptography import x509

from a2a_trust.auth import SqliteApiKeys
from tests.certificates import SERVER, Authority
from tests.conftest import ROOT
from tests.servers.serving import free_port, serving
from tests.tiers import missing

PAGE = (ROOT / "docs" / "forward-auth.md").read_text(encoding="utf-8")
(GUARD,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
(NGINX,) = re.findall(r"```nginx\n(.*?)```", PAGE, re.DOTALL)
(CADDY,) = re.findall(r"```caddyfile\n(.*?)```", PAGE, re.DOTALL)
SECRET = "of-the-proxy-" + "0" * 32
#: An agent that answers with the request that it got, under uvicorn. It states the length of its answer: Caddy 2.6.2
#: passes on 1 of 1,000 chunked answers to a POST as an empty one, also without ``forward_auth``.
AGENT = """
import json

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    headers = [[name.decode(), value.decode()] for name, value in scope["headers"]]
    got = {"body": body.decode(), "path": scope["raw_path"].decode(), "headers": headers}
    answer = json.dumps(got).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
"""
TRICKS = ("//rpc", "/./rpc", "/a/../rpc", "/%2e%2e/rpc", "/a%2frpc", "/rpc;a", "/a//rpc", "/rpc%00", "/a%5crpc")


@contextmanager
def proxy(name: str, folder: Path) -> Iterator[tuple[httpx.Client, dict[str, str], int]]:
    """The proxy of the page, the guard and the agent serve: a client, a key, and the port of the guard."""
    if shutil.which(name) is None:
        missing(name, "real-proxies")
    front, guard, agent = free_port(), free_port(), free_port()
    key = SqliteApiKeys(folder / "keys.db", create=True).create(owner="ann").text
    shutil.copy(ROOT / "examples" / "serve" / "agent-card.json", folder)
    (folder / "proxy.secret").write_text(SECRET)
    (folder / "agent.toml").write_text(GUARD.replace("8081", str(guard)).replace('"nginx"', f'"{name}"'))
    (folder / "echo_agent.py").write_text(AGENT)
    authority = Authority()
    authority.issue(x509.DNSName("localhost"), usage=SERVER).write(folder, "server")
    (folder / "ca.pem").write_bytes(authority.pem)
    text = {"nginx": NGINX, "caddy": CADDY}[name]
    for old, new in (("8081", str(guard)), ("127.0.0.1:9000", f"127.0.0.1:{agent}"), ("SECRET", SECRET)):
        text = text.replace(old, new)
    if name == "nginx":
        paths = "".join(f"{each}_temp_path {each}; " for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        text = text.replace("listen 443", f"listen 127.0.0.1:{front}")
        for file in ("server.pem", "server.key"):
            text = text.replace(f" {file};", f" {folder}/{file};")
        head = "user root;\ndaemon off;\npid nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n"
        (folder / "settings").write_text(f"{head}{paths}\n{text}\n}}\n")
        command = ["nginx", "-p", str(folder), "-e", "stderr", "-c", "settings"]
    else:
        text = text.replace("https://agent.example.com", f"https://localhost:{front}")
        (folder / "settings").write_text(f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{text}")
        command = ["caddy", "run", "--config", "settings", "--adapter", "caddyfile"]
    sign = str(Path(sys.executable).with_name("a2a-sign"))
    echo = [sys.executable, "-m", "uvicorn", "--port", str(agent), "--log-level", "error", "echo_agent:app"]
    url = f"https://localhost:{front}"
    with ExitStack() as stack:
        stack.enter_context(serving(echo, f"http://127.0.0.1:{agent}", {}, folder))
        stack.enter_context(serving([sign, "serve", "agent.toml"], f"http://127.0.0.1:{guard}", {}, folder))
        stack.enter_context(serving(command, url, {"HOME": str(folder)}, folder))
        client = httpx.Client(
            base_url=url, verify=ssl.create_default_context(cafile=str(folder / "ca.pem")), timeout=60, trust_env=False
        )
        yield stack.enter_context(client), {"X-API-Key": key}, guard


@pytest.mark.parametrize("name", ["nginx", "caddy"])
def test_the_proxy_of_the_page_admits_whom_the_card_admits(name: str, tmp_path: Path) -> None:
    with proxy(name, tmp_path) as (http, key, guard):
        forged = {"A2A-Caller-Id": "root", "A2A_Caller_Id": "root", "A2A-Caller-Token": "x", "a2a-caller-new": "root"}
        claimed = {"X-Original-URI": "/.well-known/agent-card.json", "X-Original-Method": "GET"}
        claimed |= {"X-Forwarded-Uri": "/.well-known/agent-card.json", "X-Forwarded-Method": "GET"}
        admitted = http.post("/rpc?a=%2F&b", json={}, headers={**key, **forged})
        assert admitted.status_code == 200
        got = admitted.json()
        names = [header.lower() for header, _ in got["headers"]]
        assert (got["path"], got["body"]) == ("/rpc", "{}")
        assert dict(got["headers"])["a2a-caller-id"] == "ann@api-keys"
        assert names.count("a2a-caller-id") == 1
        assert not {"x-api-key", "a2a_caller_id", "a2a-caller-token"} & {*names}
        for headers in ({}, {"X-API-Key": "wrong"}, claimed, {**claimed, "X-Proxy-Secret": SECRET[:-1] + "1"}):
            rejected = http.post("/rpc", json={}, headers=headers)
            assert rejected.status_code == 401, headers
            assert rejected.headers["WWW-Authenticate"] == 'ApiKey in="header", name="X-API-Key"'
        public = http.get("/.well-known/agent-card.json", headers=forged)
        assert public.status_code == 200
        assert "root" not in {value for header, value in public.json()["headers"] if header == "a2a-caller-id"}
        assert http.post("/other/message:send", json={}, headers=key).status_code == 404
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        with httpcore.ConnectionPool(ssl_context=context) as pool:  # httpx would clear the path
            for trick in TRICKS:
                url = httpcore.URL(scheme=b"https", host=b"localhost", port=http.base_url.port, target=trick.encode())
                assert pool.request("POST", url, headers=[*key.items()]).status in (400, 403), trick
        unproven = {**key, "X-Original-URI": "/rpc", "X-Original-Method": "POST", "X-Forwarded-Uri": "/rpc"}
        direct = httpx.get(f"http://127.0.0.1:{guard}/", headers={**unproven, "X-Forwarded-Method": "POST"})
        assert direct.status_code == 403
        for _ in range(120):
            last = http.post("/rpc", json={}, headers={"X-API-Key": "wrong"})
        assert last.status_code == 429
        assert http.post("/rpc", json={}, headers=key).status_code == 200
