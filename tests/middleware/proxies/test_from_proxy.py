"""Who sent the headers: the proxy by its address, its socket or its secret, or somebody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from a2a_trust.auth.certificate.from_proxy import FromProxy, ProxySecret, UnixSocket
from a2a_trust.auth.certificate.proxy_forms import Apache, Caddy, HAProxy, Nginx, Traefik
from a2a_trust.auth.peers import Networks
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, KeySourceUnavailableError
from tests.middleware.proxies.told import ANN, FORMS, NGINX_NONE, SECRET, TOLD, Headers, Told, b64, chain, scope, source
from tests.peers import with_peer
from tests.tables import walk

HEADERS = sorted({name for told in TOLD.values() for name in told.form.names})


def recorded(address: str | None, *, unix: bool = False) -> dict[str, Any]:
    """The extensions that a server of ours writes."""
    seen: dict[str, Any] = {}

    async def app(scope: Any, *_: Any) -> None:
        seen.update(scope["extensions"])

    none: Any = None
    asyncio.run(cast("Any", with_peer(app, address, unix=unix)({"type": "http"}, none, none)))
    return seen


TELLING = TOLD["nginx"].tell((ANN,))
INNER = FromProxy(Nginx(), peers=Networks("10.0.0.5", "fd00::/8"))


@pytest.mark.parametrize("address", ["10.0.0.5", "fd00::1", "::ffff:10.0.0.5"])
def test_the_proxy_by_its_address(address: str) -> None:
    assert INNER.chain(scope(TELLING, extensions=recorded(address))) == (ANN,)


@walk("address", ["10.0.0.6", "127.0.0.1", "::1", "fe80::1%eth0", None])
def test_another_peer_that_tells_of_a_certificate(address: str | None) -> None:
    for headers in (TELLING, NGINX_NONE, [("X_SSL_Client_Cert", "x")]):
        with pytest.raises(InvalidCredentialsError, match="is not the proxy"):
            INNER.chain(scope(headers, extensions=recorded(address), client=("10.0.0.5", 1)))
    assert INNER.chain(scope([], extensions=recorded(address))) == ()


@walk("extensions", [None, {}, {"tls": {"client_cert_chain": []}}])
@walk("peers", [Networks("10.0.0.5"), UnixSocket()], ids=repr)
def test_a_server_that_records_no_peer_is_no_refusal(peers: Any, extensions: Any) -> None:
    told = scope(TELLING, extensions=extensions, client=("10.0.0.5", 1))
    with pytest.raises(KeySourceUnavailableError, match=r"a2a_trust\.servers\.uvicorn:HttpToolsProtocol"):
        FromProxy(Nginx(), peers=peers).chain(told)
    assert FromProxy(Nginx(), peers=peers).chain(scope([], extensions=extensions)) == ()


def test_the_proxy_by_its_unix_socket() -> None:
    by_socket = FromProxy(Nginx(), peers=UnixSocket())
    assert by_socket.chain(scope(TELLING, extensions=recorded(None, unix=True))) == (ANN,)
    for address in ("127.0.0.1", None):  # a connection that is gone has no address either
        with pytest.raises(InvalidCredentialsError, match="did not come by a unix socket"):
            by_socket.chain(scope(TELLING, extensions=recorded(address)))


@walk(
    "lines",
    [
        [],
        [("X-Proxy-Secret", "")],
        [("X-Proxy-Secret", SECRET[:-1])],
        [("X-Proxy-Secret", SECRET + "0")],
        [("X-Proxy-Secret", SECRET.upper())],
        [("X-Proxy-Secret", SECRET), ("X-Proxy-Secret", SECRET)],
        [("X-Proxy-Secret", "other"), ("X-Proxy-Secret", SECRET)],
        [("X-Proxy-Secret", SECRET), ("X_Proxy_Secret", SECRET)],
        [("X_Proxy_Secret", SECRET)],
        [("X-Proxy-Secret", f"{SECRET}, {SECRET}")],
        [("X-Other-Secret", SECRET)],
    ],
)
def test_a_wrong_secret(lines: Headers) -> None:
    with pytest.raises(InvalidCredentialsError, match="X-Proxy-Secret") as refused:
        source(Nginx()).chain(scope([*TELLING, *lines], extensions=recorded("127.0.0.1")))
    assert SECRET not in str(refused.value)


def test_trailers_of_a_server_that_may_take_them_for_headers() -> None:
    told = [*TELLING, ("X-Proxy-Secret", SECRET), ("Transfer-Encoding", "chunked")]
    with pytest.raises(KeySourceUnavailableError, match="trailer of the body"):
        source(Nginx()).chain(scope(told))
    assert source(Nginx()).chain(scope(told, extensions=recorded(None))) == (ANN,)
    assert source(Nginx()).chain(scope(told[2:])) == ()


def test_the_secret_is_in_no_text() -> None:
    given = source(Nginx())
    assert SECRET not in repr(given) + repr(ProxySecret(secret=SECRET)) + str(given)
    with pytest.raises(ConfigurationError) as refused:
        ProxySecret(secret=SECRET[:-1])
    assert SECRET[:-1] not in str(refused.value)


@walk("secret", [None, b"a" * 32, "", "a" * 31, "a" * 31 + " ", "a" * 32 + "\n", "ä" * 32, "a" * 32 + "\0"])
def test_secrets_that_are_none(secret: Any) -> None:
    with pytest.raises(ConfigurationError, match="32 or more characters"):
        ProxySecret(secret=secret)


@FORMS
def test_the_application_sees_neither_the_headers_nor_the_secret(told: Told) -> None:
    assert {name.lower().encode() for name in (*told.form.names, "X-Proxy-Secret")} <= source(told.form).headers
    assert {name.lower().encode() for name in HEADERS} <= source(told.form).headers  # those of other proxies claim too


def test_traefik_must_show_that_it_overwrites_what_clients_write() -> None:
    for peers in (Networks("10.0.0.5"), UnixSocket()):
        with pytest.raises(ConfigurationError, match="passes a client's own header on; write peers=ProxySecret"):
            FromProxy(Traefik(), peers=peers)
    with pytest.raises(KeySourceUnavailableError, match="it does not overwrite its clients' header"):
        chain(Traefik(), [])
    assert source(Traefik()).chain(scope([])) == ()  # nobody that the proxy sent
    with pytest.raises(InvalidCredentialsError):
        source(Traefik()).chain(scope([("X-Forwarded-Tls-Client-Cert", b64(ANN))]))


ANY: Any = FromProxy  # called as the type checker would not let us


@walk(
    ("wrong", "says"),
    [
        (lambda: ANY(Nginx, peers=UnixSocket()), "form is not the format of a proxy"),
        (lambda: ANY("nginx", peers=UnixSocket()), "form is not the format of a proxy"),
        (lambda: ANY(Nginx(), peers=UnixSocket), "peers must prove that the proxy sent a request"),
        (lambda: ANY(Nginx(), peers="10.0.0.5"), "peers must prove that the proxy sent a request"),
        (lambda: ANY(Nginx(), peers=None), "peers must prove that the proxy sent a request"),
        (lambda: Nginx(certificate="X_SSL_Client_Cert"), "letters, digits and hyphens"),
        (lambda: Nginx(certificate=""), "letters, digits and hyphens"),
        (lambda: Nginx(certificate="X-SSL-Client-Verify"), "give each its own name"),
        (lambda: HAProxy(used="x-ssl-client-verify"), "give each its own name"),
        (lambda: Apache(verdict="a:b"), "letters, digits and hyphens"),
        (lambda: Caddy(certificate="ä"), "letters, digits and hyphens"),
        (lambda: ProxySecret(secret=SECRET, header="X Secret"), "letters, digits and hyphens"),
        (
            lambda: FromProxy(Caddy(), peers=ProxySecret(secret=SECRET, header="X-SSL-Client-Cert")),
            "its header is also a header of the form",
        ),
    ],
)
def test_wrong_use_is_told_at_start_up(wrong: Callable[[], Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        wrong()
