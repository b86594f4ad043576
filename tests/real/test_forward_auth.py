"""docs/forward-auth.md: nginx, Caddy and Envoy, as on the page, ask the guard for an agent that checks nothing."""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote

import httpcore
import httpx
import pytest
from cryptography import x509

from a2a_trust import generate_signer
from a2a_trust.auth import SqliteApiKeys
from a2a_trust.keys import publish_jwks, save_key_ring
from a2a_trust.keys.rotation import KeyRing, new_ring_key
from tests.auth.proofs import CLIENT, proof
from tests.certificates import SERVER, Authority, Leaf
from tests.conftest import ROOT
from tests.docs.sessions import check_session
from tests.interop.sdk_process import SDKS, node_environment
from tests.real.proxy_processes import program_of
from tests.servers.issuer import Issuer
from tests.servers.serving import free_port, serving

PAGE = (ROOT / "docs" / "forward-auth.md").read_text(encoding="utf-8")
GUARD, CERTIFICATES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
(NGINX,) = re.findall(r"```nginx\n(.*?)```", PAGE, re.DOTALL)
(ENVOY,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
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
TRICKS = (
    *("//rpc", "/./rpc", "/a/../rpc", "/%2e%2e/rpc", "/a%2frpc", "/rpc;a", "/a//rpc", "/rpc%00", "/a%5crpc"),
    *("/.well-known/agent-card.json/../../rpc", "/.well-known/agent-card.json%2f..%2frpc", "/rpc?" + "a" * 80_000),
)


class Setup(NamedTuple):
    """The ports of the proxy, the guard and the agent, the authority of all certificates, and a good key."""

    front: int
    guard: int
    agent: int
    authority: Authority
    key: str


def set_up(name: str, folder: Path, more: Mapping[str, str] = MappingProxyType({})) -> tuple[Setup, list[str]]:
    """The files of the page for these ports, and the command of the proxy. ``more``: what to write in place of parts of
    the proxy's file."""
    program = program_of(name)
    front, guard, agent = free_port(), free_port(), free_port()
    key = SqliteApiKeys(folder / "keys.db", create=True).create(owner="ann").text
    shutil.copy(ROOT / "examples" / "serve" / "agent-card.json", folder)
    (folder / "proxy.secret").write_text(SECRET)
    (folder / "agent.toml").write_text(GUARD.replace("8081", str(guard)).replace('"nginx"', f'"{name}"'))
    authority = Authority()
    authority.issue(x509.DNSName("localhost"), usage=SERVER).write(folder, "server")
    (folder / "ca.pem").write_bytes(authority.pem)
    text = {"nginx": NGINX, "caddy": CADDY, "envoy": ENVOY}[name]
    for old, new in (*more.items(), ("8081", str(guard)), ("9000", str(agent)), ("SECRET", SECRET)):
        assert old in text
        text = text.replace(old, new)
    if name == "nginx":
        paths = "".join(f"{each}_temp_path {each}; " for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        text = text.replace("listen 443", f"listen 127.0.0.1:{front}")
        for file in ("server.pem", "server.key", "ca.pem"):
            text = text.replace(f" {file};", f" {folder}/{file};")
        head = "user root;\ndaemon off;\npid nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n"
        (folder / "settings").write_text(f"{head}{paths}\n{text}\n}}\n")
        command = [program, "-p", str(folder), "-e", "stderr", "-c", "settings"]
    elif name == "envoy":
        text = text.replace("0.0.0.0, port_value: 443", f"127.0.0.1, port_value: {front}")
        (folder / "settings.yaml").write_text(text)
        command = [
            program,
            "-c",
            "settings.yaml",
            "--concurrency",
            "1",
            "--use-dynamic-base-id",
            "--log-level",
            "error",
        ]
    else:
        text = text.replace("https://agent.example.com", f"https://localhost:{front}")
        (folder / "settings").write_text(f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{text}")
        command = [program, "run", "--config", "settings", "--adapter", "caddyfile"]
    return Setup(front, guard, agent, authority, key), command


@contextmanager
def running(setup: Setup, command: list[str], agent: list[str], folder: Path) -> Iterator[str]:
    """The agent, the guard and the proxy serve while the block runs: the URL of the proxy."""
    sign = str(Path(sys.executable).with_name("a2a-sign"))
    url = f"https://localhost:{setup.front}"
    with ExitStack() as stack:
        stack.enter_context(serving(agent, f"http://127.0.0.1:{setup.agent}", {"PORT": str(setup.agent)}, folder))
        stack.enter_context(serving([sign, "serve", "agent.toml"], f"http://127.0.0.1:{setup.guard}", {}, folder))
        stack.enter_context(serving(command, url, {"HOME": str(folder)}, folder))
        yield url


@contextmanager
def proxy(name: str, folder: Path) -> Iterator[tuple[httpx.Client, dict[str, str], int]]:
    """The proxy of the page, the guard and the agent serve: a client, a key, and the port of the guard."""
    setup, command = set_up(name, folder)
    (folder / "echo_agent.py").write_text(AGENT)
    echo = [sys.executable, "-m", "uvicorn", "--port", str(setup.agent), "--log-level", "error", "echo_agent:app"]
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    with (
        running(setup, command, echo, folder) as url,
        httpx.Client(base_url=url, verify=context, timeout=60, trust_env=False) as client,
    ):
        yield client, {"X-API-Key": setup.key}, setup.guard


def test_the_commands_of_the_page_are_answered_by_nginx(tmp_path: Path) -> None:
    (session,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    with proxy("nginx", tmp_path) as (http, key, _):
        (tmp_path / "ann.key").write_text(key["X-API-Key"])
        here = session.replace(" \\\n    ", " ").replace("https://agent.example.com", str(http.base_url).rstrip("/"))
        check_session(here.replace("curl", "curl --cacert ca.pem"), tmp_path)


@pytest.mark.parametrize("name", ["nginx", "caddy", "envoy"])
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
                assert pool.request("POST", url, headers=[*key.items()]).status in (400, 403, 414, 431), trick[:80]
        port = http.base_url.port
        for start in (f"POST https://localhost:{port}//rpc", "POST http://other.example/rpc\tx", "POST /rpc /other"):
            assert raw(port, tmp_path, start, "Host: localhost", key)[0] != 200, start
        assert raw(port, tmp_path, "POST /rpc", "Host: localhost", key)[0] == 200
        status, answer = raw(port, tmp_path, "POST /rpc", "Host: localhost\r\nHost: other", key)
        assert status != 200 or answer.count(b'["host"') == 1  # Envoy takes one of them
        unproven = {**key, "X-Original-URI": "/rpc", "X-Original-Method": "POST", "X-Forwarded-Uri": "/rpc"}
        direct = httpx.get(f"http://127.0.0.1:{guard}/", headers={**unproven, "X-Forwarded-Method": "POST"})
        assert direct.status_code == 403
        for _ in range(120):
            last = http.post("/rpc", json={}, headers={"X-API-Key": "wrong"})
        assert last.status_code == 429
        assert http.post("/rpc", json={}, headers=key).status_code == 200


def raw(port: int | None, folder: Path, start: str, host: str, key: Mapping[str, str]) -> tuple[int, bytes]:
    """The answer to these very bytes, and its status; 0 if the proxy ends the connection."""
    ((name, value),) = key.items()
    request = f"{start} HTTP/1.1\r\n{host}\r\n{name}: {value}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    with (
        socket.create_connection(("127.0.0.1", port or 0), timeout=60) as connection,
        context.wrap_socket(connection, server_hostname="localhost") as over_tls,
    ):
        over_tls.sendall(request.encode())
        answer = b""
        with suppress(ssl.SSLError, ConnectionError):
            while read := over_tls.recv(65_536):
                answer += read
    return int(answer[9:12] or 0), answer


#: The lines of the page for client certificates, in their places.
WITH_CERTIFICATES: dict[str, tuple[str, dict[str, str]]] = {
    "nginx": (
        "Nginx",
        {
            "merge_slashes off;": "merge_slashes off;\nssl_client_certificate ca.pem;\nssl_verify_client optional;",
            "internal;": "internal;\nproxy_set_header X-SSL-Client-Cert $ssl_client_escaped_cert;\n"
            "proxy_set_header X-SSL-Client-Verify $ssl_client_verify;",
        },
    ),
    "caddy": (
        "Caddy",
        {
            "tls server.pem server.key": "tls server.pem server.key {\nclient_auth {\nmode verify_if_given\n"
            "trusted_ca_cert_file ca.pem\n}\n}",
            "A2A-Caller-Client\n": "A2A-Caller-Client A2A-Caller-Token\n",
            "uri /\n": "uri /\nheader_up X-SSL-Client-Cert {http.request.tls.client.certificate_der_base64}\n",
        },
    ),
    "envoy": (
        "Envoy",
        {
            "tls_certificates:": "validation_context: {trusted_ca: {filename: ca.pem}}\n"
            + " " * 16
            + "tls_certificates:",
            "use_remote_address: true": "use_remote_address: true\n" + " " * 16 + "forward_client_cert_details: "
            "SANITIZE_SET\n" + " " * 16 + "set_current_client_cert_details: {cert: true}",
        },
    ),
}
FILE = """
[caller]
keys = "caller.json"
audience = "http://127.0.0.1:{agent}"
plain = true
[rules]
failures = {{ by_credential = "1000/minute", by_peer = "1000/minute" }}
[verifiers.login]
type = "JwtVerifier"
keys = {{ type = "JwksFile", path = "keys.json" }}
issuer = "https://issuer.example"
audience = "https://localhost:{front}"
[verifiers.mtls]
type = "CertificateVerifier"
[[verifiers.mtls.authorities]]
name = "partners"
certificates = "ca.pem"
identity = {{ type = "FromUri", trust_domain = "agents.example" }}
allowed = {{ type = "AllIssued" }}
[dpop]
url = "https://localhost:{front}"
"""


@pytest.mark.parametrize("name", WITH_CERTIFICATES)
def test_every_kind_of_credential_for_an_agent_on_the_sdk_for_node(name: str, tmp_path: Path) -> None:
    form, lines = WITH_CERTIFICATES[name]
    setup, command = set_up(name, tmp_path, lines)
    url = f"https://localhost:{setup.front}"
    card = json.loads((tmp_path / "agent-card.json").read_text())
    card["supportedInterfaces"][0]["url"] = f"{url}/rpc"
    card["securitySchemes"] |= {
        "login": {"oauth2SecurityScheme": {"flows": {}}}, "mtls": {"mtlsSecurityScheme": {}},
    }  # fmt: skip
    card["securityRequirements"] = [{"schemes": {each: {}}} for each in ("key", "login", "mtls")]
    (tmp_path / "agent-card.json").write_text(json.dumps(card))
    issuer = Issuer("https://issuer.example")
    (tmp_path / "keys.json").write_bytes(issuer.documents()["/jwks"])
    ring = KeyRing.begin(new_ring_key("ES256"), time.time())
    save_key_ring(tmp_path / "caller.json", ring)
    (tmp_path / "caller.jwks.json").write_text(json.dumps(publish_jwks(ring.published(time.time()))))
    text = (tmp_path / "agent.toml").read_text()
    more = CERTIFICATES.replace('"Nginx"', f'"{form}"') + FILE.format(front=setup.front, agent=setup.agent)
    (tmp_path / "agent.toml").write_text(f'url = "{url}"\n{text}\n{more}')
    program = (ROOT / "examples" / "serve" / "agent.mjs").read_text()
    program = program.replace("http://localhost:8080", url).replace(":9000", f":{setup.agent}")
    (tmp_path / "agent.mjs").write_text(program)
    node, packages = node_environment(SDKS / "js-1.3.0")
    (tmp_path / "node_modules").symlink_to(packages / "node_modules")
    ann, stranger = x509.UniformResourceIdentifier("spiffe://agents.example/ann"), Authority()
    message = {"role": "ROLE_USER", "messageId": "1", "parts": [{"text": "hello"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}

    def asked(headers: dict[str, str], leaf: Leaf | None = None) -> tuple[int | None, str]:
        """The status, and the name by which the agent greets; None if the proxy ends the connection."""
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        if leaf is not None:
            leaf.load_into(context, tmp_path)
        try:
            answer = httpx.post(
                f"{url}/rpc", json=call, headers={"A2A-Version": "1.0", **headers}, verify=context, trust_env=False
            )
        except httpx.TransportError:
            return None, ""
        if answer.status_code != 200:
            return answer.status_code, ""
        return 200, answer.json()["result"]["message"]["parts"][0]["text"].removeprefix("Hello ")

    def proven(token: str, **claims: Any) -> dict[str, str]:
        said = {"htu": f"{url}/rpc", "iat": int(time.time()), **claims}
        return {"Authorization": f"DPoP {token}", "DPoP": proof(token, **said)}

    with running(setup, command, [node, "agent.mjs"], tmp_path):
        good = issuer.token(audience=url)
        bound = issuer.token(audience=url, cnf={"jkt": CLIENT.public_key.thumbprint})
        assert asked({"X-API-Key": setup.key}) == (200, "ann@api-keys")
        assert asked({"Authorization": f"Bearer {good}"}) == (200, "ann@https://issuer.example")
        shown = proven(bound)
        assert asked(shown) == (200, "ann@https://issuer.example")
        assert asked({}, setup.authority.issue(ann)) == (200, "spiffe://agents.example/ann@x509:uri:partners")
        wrong = {
            "no credential": {},
            "another key": {"X-API-Key": setup.key[:-1] + ("x" if setup.key[-1] != "x" else "y")},
            "another audience": {"Authorization": f"Bearer {issuer.token(audience='https://other.example')}"},
            "expired": {"Authorization": f"Bearer {issuer.token(audience=url, exp=int(time.time()) - 61)}"},
            "a stranger's token": {
                "Authorization": f"Bearer {issuer.token(audience=url, by=generate_signer('ES256', kid='issuer'))}"
            },
            "two tokens": {"Authorization": f"Bearer {good}, Bearer {good}"},
            "bound, without proof": {"Authorization": f"Bearer {bound}"},
            "a proof again": shown,
            "a proof for another path": proven(bound, htu=f"{url}/other"),
            "a proof for another method": proven(bound, htm="GET"),
            "a proof for the guard's own URL": proven(bound, htu=f"http://127.0.0.1:{setup.guard}/"),
            "a certificate in a header": {
                "X-SSL-Client-Verify": "SUCCESS",
                "X-SSL-Client-Cert": quote(setup.authority.issue(ann).pem.decode()),
                "X-Forwarded-Client-Cert": f'Cert="{quote(setup.authority.issue(ann).pem.decode())}"',
            },
        }
        for what, headers in wrong.items():
            assert asked(headers) in ((401, ""), (403, "")), what
        assert asked({}, stranger.issue(ann))[0] in (None, 400, 401)
        for forged in ("", "e30.e30.e30"):
            status, name_of = asked({"X-API-Key": setup.key, "A2A-Caller-Token": forged, "A2A-Caller-Id": "root"})
            assert (status, name_of) == (200, "ann@api-keys")
