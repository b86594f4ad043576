"""M6: headers that tell of a client certificate, written by somebody else than the proxy, or saying that there is none.

Seen in OpenShift (CVE-2026-46579) and Envoy (#6038). Through the whole middleware; the verifier believes whatever
certificate it is given, so that nothing but its source can refuse it. ``tests/real/test_proxies.py`` has real proxies.
"""

from __future__ import annotations

import hashlib
from typing import Any

import httpx
import pytest

from a2a_trust.auth.certificate.from_proxy import FromProxy, ProxySecret, UnixSocket
from a2a_trust.auth.certificate.proxy_forms import Nginx, Rfc9440, Traefik
from a2a_trust.auth.credentials import CLAIMING_HEADERS
from a2a_trust.auth.peers import Networks
from a2a_trust.auth.principal import Identity
from a2a_trust.servers.uvicorn import H11Protocol, HttpToolsProtocol
from tests.middleware.agent import CARD, KEY, Agent, guarded, raw_exchange, uvicorn_serving, verifiers
from tests.middleware.proxies.told import ANN, BOB, SECRET, TOLD, Headers, Told
from tests.peers import with_peer
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Believes:
    """Every certificate is somebody's."""

    async def verify(self, credential: tuple[bytes, ...], now: float) -> Identity:
        return Identity(issuer="anybody", subject=hashlib.sha256(credential[0]).hexdigest())


SCHEMES = {**CARD["securitySchemes"], "mtls": {"mtlsSecurityScheme": {}}}
MTLS = {**CARD, "securitySchemes": SCHEMES, "securityRequirements": [{"schemes": {"mtls": {}}}]}
KEY_OR_MTLS = {**MTLS, "securityRequirements": [*MTLS["securityRequirements"], {"schemes": {"key": {}}}]}
OPEN = {**MTLS, "securityRequirements": [*MTLS["securityRequirements"], {}]}

PROXY = "10.0.0.5"
FORMS = pytest.mark.parametrize("told", TOLD.values(), ids=TOLD)


def behind(source: FromProxy, agent: Agent, card: dict[str, Any] = MTLS, **options: Any) -> Any:
    given = {**verifiers(), "mtls": Believes()}
    return guarded(agent, card, verifiers=given, client_certificates=source, **options)


def source_of(told: Told) -> FromProxy:
    return FromProxy(told.form, peers=ProxySecret(secret=SECRET))


async def status(app: Any, headers: Headers, client: tuple[str, int] = ("192.0.2.1", 1)) -> int:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app, client=client), base_url="http://a") as http:
        lines = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        return (await http.post("/rpc", headers=lines)).status_code


FROM_PROXY = ("X-Proxy-Secret", SECRET)


@FORMS
async def test_whoever_goes_round_the_proxy_is_nobody(told: Told) -> None:
    agent, lines = Agent(), told.tell((ANN,))
    app = behind(source_of(told), agent)
    for wrong in ([], [("X-Proxy-Secret", "")], [("X-Proxy-Secret", SECRET[1:])], [FROM_PROXY, FROM_PROXY]):
        assert await status(app, [*lines, *wrong]) == 401
    assert agent.scopes == []
    assert await status(app, [*lines, FROM_PROXY]) == 200


@FORMS
async def test_two_lines_where_the_proxy_writes_one(told: Told) -> None:
    agent, lines = Agent(), [*told.tell((ANN,)), FROM_PROXY]
    app = behind(source_of(told), agent)
    for name, value in told.tell((BOB,)):
        assert await status(app, [*lines, (name, value)]) == 401
        assert await status(app, [(name, value), *lines]) == 401
        assert await status(app, [*lines, (name.upper(), "")]) == 401
        assert await status(app, [*lines, (name.replace("-", "_"), value)]) == 401
    joined = [(name, f"{value}, {value}") for name, value in told.tell((ANN,))]
    assert await status(app, [*joined, FROM_PROXY]) == 401
    assert agent.scopes == []


@FORMS
@walk(
    "word",
    [
        "", "::", ":", "(null)", "none", "None", "NONE", "null", "nil", "undefined", "-", "0", "SUCCESS", "<nil>", "{}",
        "{http.request.tls.client.certificate_der_base64}", "{http.request.tls.client.certificate_pem}",
        "$ssl_client_escaped_cert", "%[ssl_c_der,base64]", "%{SSL_CLIENT_CERT}s", "Hash=;Cert=\"\";Subject=\"\";URI=",
    ],
)  # fmt: skip
async def test_the_word_of_some_proxy_for_none_is_no_certificate(told: Told, word: str) -> None:
    agent = Agent()
    app = behind(source_of(told), agent)
    (name, _), *verdicts = told.tell((ANN,))
    assert await status(app, [(name, word), *verdicts, FROM_PROXY]) == 401
    assert await status(app, [(name, word), FROM_PROXY]) == 401
    assert agent.scopes == []


async def test_the_proxys_word_for_a_bad_certificate_is_heard() -> None:
    agent = Agent()
    for name in ("nginx", "apache", "haproxy", "haproxy-colons"):
        app = behind(source_of(TOLD[name]), agent)
        lines = dict([*TOLD[name].tell((ANN,)), FROM_PROXY])
        for verdict in ("FAILED:certificate has expired", "NONE", "GENEROUS", "", "10", "success", "SUCCESS,SUCCESS"):
            assert await status(app, [*{**lines, "X-SSL-Client-Verify": verdict}.items()]) == 401
        assert await status(app, [(key, value) for key, value in lines.items() if key != "X-SSL-Client-Verify"]) == 401
    assert agent.scopes == []


async def test_a_forged_header_beside_an_open_door_is_not_taken_for_nobody() -> None:
    agent, lines = Agent(), TOLD["nginx"].tell((ANN,))
    app = behind(source_of(TOLD["nginx"]), agent, OPEN, allow_anonymous=True)
    assert await status(app, lines) == 401
    assert await status(app, lines[:1]) == 401
    assert await status(app, [("X-SSL-Client-Verify", "NONE")]) == 401
    assert await status(app, [lines[0], ("X-SSL-Client-Verify", "FAILED:expired"), FROM_PROXY]) == 401
    assert agent.scopes == []
    assert await status(app, []) == 200
    assert await status(app, [("X-SSL-Client-Verify", "NONE"), FROM_PROXY]) == 200


async def test_a_forged_header_beside_a_good_key_is_refused_too() -> None:
    agent = Agent()
    app = behind(source_of(TOLD["nginx"]), agent, KEY_OR_MTLS)
    assert await status(app, [*TOLD["nginx"].tell((ANN,)), ("X-API-Key", KEY)]) == 401
    assert agent.scopes == []
    assert await status(app, [("X-API-Key", KEY)]) == 200


@pytest.mark.parametrize("peers", [Networks(PROXY), UnixSocket()], ids=repr)
async def test_what_servers_believe_of_forwarded_headers_proves_nobody(peers: Any) -> None:
    agent, lines = Agent(), TOLD["nginx"].tell((ANN,))
    app = behind(FromProxy(Nginx(), peers=peers), agent)
    for client in ((PROXY, 1), ("127.0.0.1", 1), ("", 0)):
        assert await status(app, lines, client) == 503
        assert await status(with_peer(app, "192.0.2.1"), lines, client) == 401
        assert await status(with_peer(app, None), lines, client) == 401
    assert agent.scopes == []


@pytest.mark.parametrize("protocol", [H11Protocol, HttpToolsProtocol, "h11", "httptools"])
async def test_a_trailer_that_is_taken_for_a_header_of_the_proxy(protocol: Any) -> None:
    """Seen in uvicorn 0.54 on httptools: trailers that come with the head are headers when the request is judged."""
    agent = Agent()
    app = behind(FromProxy(Rfc9440(), peers=ProxySecret(secret=SECRET)), agent)
    (forged,) = TOLD["rfc9440"].tell((ANN,))
    head = f"POST /rpc HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Proxy-Secret: {SECRET}\r\n"
    body = "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    async with uvicorn_serving(app, protocol) as origin:
        found, _ = await raw_exchange(origin, f"{head}{body}{forged[0]}: {forged[1]}\r\n\r\n".encode())
        assert found == (503 if protocol == "httptools" else 401)
        assert agent.paths == []
        good = f"{head}{forged[0]}: {forged[1]}\r\n".encode()
        assert (await raw_exchange(origin, good + b"Content-Length: 0\r\n\r\n"))[0] == 200
        # A server of which nothing is known could have taken it from the trailers.
        found, _ = await raw_exchange(origin, good + f"{body}\r\n".encode())
        assert found == (503 if isinstance(protocol, str) else 200)


async def test_traefik_that_hands_on_what_its_clients_write() -> None:
    agent = Agent()
    app = behind(FromProxy(Traefik(), peers=ProxySecret(secret=SECRET)), agent)
    name = "X-Forwarded-Tls-Client-Cert"
    assert await status(app, [FROM_PROXY]) == 503  # nobody overwrites the header there: the operator has to know
    assert await status(app, [FROM_PROXY, (name, "none")]) == 401
    assert await status(app, TOLD["traefik"].tell((ANN,))) == 401
    assert await status(app, [FROM_PROXY, *TOLD["traefik"].tell((ANN,)), (name, "none")]) == 401
    assert agent.scopes == []


@FORMS
async def test_the_agent_never_sees_what_tells_of_certificates(told: Told) -> None:
    agent = Agent()
    app = behind(source_of(told), agent, KEY_OR_MTLS)
    others = [(name.decode(), "x") for name in CLAIMING_HEADERS if name.decode() not in map(str.lower, told.form.names)]
    assert await status(app, [*told.tell((ANN,)), *others, FROM_PROXY]) == 200
    (scope,) = agent.scopes
    assert {name for name, _ in scope["headers"]} & (CLAIMING_HEADERS | {b"x-proxy-secret"}) == set()


async def test_a_certificate_that_somebody_put_into_the_scope_is_dropped() -> None:
    agent = Agent()
    inner = behind(source_of(TOLD["nginx"]), agent)

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        await inner({**scope, "a2a_trust.client_certificate": (ANN,)}, receive, send)

    assert await status(outer, []) == 401
    assert agent.scopes == []
    assert await status(outer, [*TOLD["nginx"].tell((BOB,)), FROM_PROXY]) == 200
    assert agent.scopes[0]["a2a_trust.client_certificate"] == (BOB,)


async def test_the_secret_of_the_proxy_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    app = behind(source_of(TOLD["nginx"]), Agent())
    with caplog.at_level(0):
        assert await status(app, [*TOLD["nginx"].tell((ANN,))[:1], FROM_PROXY]) == 401
        assert await status(app, [*TOLD["nginx"].tell((ANN,)), FROM_PROXY, FROM_PROXY]) == 401
    assert caplog.records
    assert SECRET not in caplog.text
