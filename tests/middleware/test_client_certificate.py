"""Certificates at the guard, without sockets: who tells of them, what counts, and what applications get to see."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Any

import pytest

from a2a_trust.auth.credentials import CERTIFICATES, FromTls, certificates_of
from a2a_trust.auth.principal import Identity
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError
from tests.certificates import Authority
from tests.middleware.agent import CARD, KEY, SCHEMES, guarded, verifiers
from tests.tables import walk

ANN, BOB = (Authority().issue(subject=name) for name in ("Ann", "Bob"))
MTLS: dict[str, Any] = {"mtls": {"mtlsSecurityScheme": {}}}
BEARER_KEY = [(b"x-api-key", KEY.encode())]


class OnlyAnn:
    async def verify(self, credential: tuple[bytes, ...], now: float) -> Identity:
        if credential != (ANN.der,):
            raise InvalidCredentialsError("certificate: not Ann's")
        return Identity(issuer="x509:test", subject="ann")


def card(*requirements: dict[str, Any]) -> dict[str, Any]:
    listed = [{"schemes": each} for each in requirements]
    return {**CARD, "securitySchemes": {**SCHEMES, **MTLS}, "securityRequirements": listed}


def agent(*requirements: dict[str, Any], **options: Any) -> tuple[Any, list[Any]]:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    verified = {**verifiers(), "mtls": OnlyAnn()}
    return guarded(
        app, card(*requirements), **{"verifiers": verified, "client_certificates": FromTls(), **options}
    ), seen


def scope_of(*certificates: bytes, headers: Any = (), path: str = "/rpc", **more: Any) -> dict[str, Any]:
    chain = list(map(ssl.DER_cert_to_PEM_cert, certificates))
    tls = {"client_cert_chain": chain, "client_cert_error": None}
    return {
        "type": "http",
        "method": "GET",
        "scheme": "https",
        "path": path,
        "headers": list(headers),
        "extensions": {"tls": tls},
        **more,
    }


def asked(app: Any, scope: dict[str, Any]) -> tuple[int, list[bytes]]:
    """Status and challenges."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    challenges = [value for name, value in sent[0]["headers"] if name == b"www-authenticate"]
    return sent[0]["status"], challenges


ONE_OF: tuple[dict[str, Any], ...] = ({"mtls": {}}, {"key": {}})
BOTH: tuple[dict[str, Any], ...] = ({"mtls": {}, "key": {}},)


def test_a_card_that_demands_certificates_does_not_start_without_saying_where_they_come_from() -> None:
    with pytest.raises(ConfigurationError, match=r"mtls.*client_certificates=FromTls\(\).*FromProxy\("):
        agent({"mtls": {}}, client_certificates=None)
    with pytest.raises(ConfigurationError, match="with parentheses"):
        agent({"mtls": {}}, client_certificates=FromTls)
    with pytest.raises(ConfigurationError, match=r"CertificateVerifier\("):
        agent({"mtls": {}}, verifiers=verifiers())


def test_either_of_two_alternatives_lets_in_and_both_of_an_and_are_needed() -> None:
    key = BEARER_KEY
    either, both = agent(*ONE_OF)[0], agent(*BOTH)[0]
    for headers, certificates, of_either, of_both in (
        ((), (), 401, 401),
        ((), (ANN.der,), 200, 401),
        (key, (), 200, 401),
        (key, (ANN.der,), 200, 200),
    ):
        assert asked(either, scope_of(*certificates, headers=headers))[0] == of_either
        assert asked(both, scope_of(*certificates, headers=headers))[0] == of_both


def test_a_certificate_that_is_not_good_is_401_whatever_else_would_do() -> None:
    either, _ = agent(*ONE_OF)
    assert asked(either, scope_of(BOB.der, headers=BEARER_KEY))[0] == 401
    open_to_all, seen = agent({"mtls": {}}, {}, allow_anonymous=True)
    assert asked(open_to_all, scope_of())[0] == 200
    assert asked(open_to_all, scope_of(BOB.der))[0] == 401
    assert asked(open_to_all, scope_of(ANN.der))[0] == 200
    assert [each["user"].is_authenticated for each in seen] == [False, True]


def test_without_tls_nobody_has_a_certificate() -> None:
    app, _ = agent({"mtls": {}})
    for scheme in ("http", "ws"):
        assert asked(app, scope_of(scheme=scheme, extensions={}))[0] == 401


@walk("extensions", [{}, None, {"a2a_trust.peer": {"address": "127.0.0.1", "unix": False}}])
@walk("scheme", ["https", "wss"])
def test_a_server_that_does_not_tell_is_503_with_the_way_out_in_the_log(
    extensions: Any, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, seen = agent(*ONE_OF)
    with caplog.at_level(logging.INFO, logger="a2a_trust"):
        assert asked(app, scope_of(headers=BEARER_KEY, scheme=scheme, extensions=extensions)) == (503, [])
    assert "a2a_trust.servers.uvicorn:HttpToolsProtocol" in caplog.text
    assert "python -m a2a_trust.servers.hypercorn" in caplog.text
    assert not seen


@walk("line", [b"X-Forwarded-For", b"Forwarded", b"X_Forwarded_Proto", b"X-SSL-Client-Cert", b"client_cert"])
def test_a_proxy_that_shows_a_certificate_of_its_own_is_not_its_callers(
    line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    app, seen = agent({"mtls": {}})
    with caplog.at_level(logging.INFO, logger="a2a_trust"):
        assert asked(app, scope_of(ANN.der, headers=[(line, b"x")]))[0] == 503
    assert "the TLS certificate is the proxy's" in caplog.text
    assert not seen
    assert asked(app, scope_of(headers=[(line, b"x")]))[0] == 401  # nobody has shown any


@pytest.mark.parametrize(
    "tls",
    [
        {"client_cert_chain": [ssl.DER_cert_to_PEM_cert(ANN.der)], "client_cert_error": "self-signed"},
        {"client_cert_chain": ["not PEM"]},
        {"client_cert_chain": ["-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n"]},
    ],
)
def test_what_the_server_itself_finds_bad_or_says_badly_is_refused(tls: Any) -> None:
    assert asked(agent({"mtls": {}})[0], scope_of(extensions={"tls": tls}))[0] == 401


@pytest.mark.parametrize("path", ["/rpc", "/.well-known/agent-card.json"])
@pytest.mark.parametrize("has_source", [True, False])
def test_what_others_say_of_certificates_counts_for_nothing_and_reaches_nobody(path: str, has_source: bool) -> None:
    options: dict[str, Any] = {} if has_source else {"client_certificates": None}
    app, seen = agent({"key": {}}, **options)
    claims = [*BEARER_KEY, (b"client-cert", b":AA==:"), (b"X_SSL_Client_Cert", b"x"), (b"accept", b"*/*")]
    forged = scope_of(headers=claims, path=path) | {CERTIFICATES: (ANN.der,)}
    assert asked(app, forged)[0] == 200
    assert certificates_of(seen[0]) == ()
    names = {name.lower() for name, _ in seen[0]["headers"]}
    assert (b"client-cert" in names, b"x_ssl_client_cert" in names) == (not has_source, not has_source)
    assert b"accept" in names
    assert asked(agent({"mtls": {}})[0], scope_of() | {CERTIFICATES: (ANN.der,)})[0] == 401


def test_applications_see_the_certificates_that_were_judged() -> None:
    app, seen = agent({"mtls": {}})
    assert asked(app, scope_of(ANN.der))[0] == 200
    assert certificates_of(seen[0]) == (ANN.der,)


def test_a_certificate_has_no_challenge_of_its_own() -> None:
    assert asked(agent({"mtls": {}})[0], scope_of()) == (401, [])
    assert asked(agent(*BOTH)[0], scope_of()) == (401, [b'ApiKey in="header", name="X-API-Key"'])
