"""How each form of a proxy tells of certificates, written here without its decoder."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from a2a_trust.auth.certificate.from_proxy import FromProxy, ProxySecret
from a2a_trust.auth.certificate.proxy_forms import (
    Apache,
    AwsAlb,
    Caddy,
    Envoy,
    HAProxy,
    Nginx,
    ProxyForm,
    Rfc9440,
    Traefik,
)

SECRET = "0123456789abcdef0123456789abcdef"
_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))  # the same certificates, and so names of tests, in every run
_FROM = datetime(2026, 1, 1, tzinfo=UTC)


def certificate(payload: bytes = b"") -> bytes:
    """A certificate, DER, with these bytes in it."""
    name = x509.Name([])
    built = x509.CertificateBuilder(name, name, _KEY.public_key(), 1, _FROM, _FROM + timedelta(1))
    built = built.add_extension(x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), payload), critical=False)
    return built.sign(_KEY, None).public_bytes(Encoding.DER)


ANN, BOB = certificate(b"ann"), certificate(b"bob")


def b64(der: bytes) -> str:
    return base64.b64encode(der).decode()


def pem(*ders: bytes, newline: str = "\n") -> str:
    lines = []
    for der in ders:
        text = b64(der)
        body = [text[at : at + 64] for at in range(0, len(text), 64)]
        lines += ["-----BEGIN CERTIFICATE-----", *body, "-----END CERTIFICATE-----"]
    return newline.join([*lines, ""])


def escaped(*ders: bytes) -> str:
    return quote(pem(*ders), safe="")


def xfcc(der: bytes, *more: str) -> str:
    return ";".join([f"Hash={hashlib.sha256(der).hexdigest()}", f'Cert="{escaped(der)}"', *more])


Headers = list[tuple[str, str]]


@dataclass(frozen=True)
class Told:
    """How a form tells of a chain, written here without its decoder, and its words for none."""

    form: ProxyForm
    tell: Callable[[tuple[bytes, ...]], Headers]
    none: tuple[Headers, ...]
    chains: bool = False


NGINX_NONE: Headers = [("X-SSL-Client-Verify", "NONE")]
TOLD: dict[str, Told] = {
    "rfc9440": Told(
        Rfc9440(),
        lambda chain: (
            [("Client-Cert", f":{b64(chain[0])}:")]
            + ([("Client-Cert-Chain", ", ".join(f":{b64(der)}:" for der in chain[1:]))] if chain[1:] else [])
        ),
        ([],),
        chains=True,
    ),
    "nginx": Told(
        Nginx(),
        lambda chain: [("X-SSL-Client-Cert", escaped(chain[0])), ("X-SSL-Client-Verify", "SUCCESS")],
        ([], NGINX_NONE, [*NGINX_NONE, ("X-SSL-Client-Cert", "")]),
    ),
    "haproxy": Told(
        HAProxy(),
        lambda chain: [
            ("X-SSL-Client-Cert", b64(chain[0])),
            ("X-SSL-Client-Used", "1"),
            ("X-SSL-Client-Verify", "0"),
        ],
        (
            [],
            [("X-SSL-Client-Cert", ""), ("X-SSL-Client-Used", "0"), ("X-SSL-Client-Verify", "0")],
            [("X-SSL-Client-Cert", "::"), ("X-SSL-Client-Used", "0"), ("X-SSL-Client-Verify", "0")],
            [("X-SSL-Client-Cert", ""), ("X-SSL-Client-Used", ""), ("X-SSL-Client-Verify", "")],
        ),
    ),
    "haproxy-colons": Told(
        HAProxy(),
        lambda chain: [
            ("X-SSL-Client-Cert", f":{b64(chain[0])}:"),
            ("X-SSL-Client-Used", "1"),
            ("X-SSL-Client-Verify", "0"),
        ],
        (),
    ),
    "apache": Told(
        Apache(),
        lambda chain: [("X-SSL-Client-Cert", pem(chain[0], newline=" ")), ("X-SSL-Client-Verify", "SUCCESS")],
        (
            [],
            [("X-SSL-Client-Cert", "(null)"), ("X-SSL-Client-Verify", "NONE")],
            [("X-SSL-Client-Cert", "(null)"), ("X-SSL-Client-Verify", "(null)")],
            [("X-SSL-Client-Cert", ""), ("X-SSL-Client-Verify", "NONE")],
        ),
    ),
    "caddy": Told(
        Caddy(),
        lambda chain: [("X-SSL-Client-Cert", b64(chain[0]))],
        (
            [],
            [("X-SSL-Client-Cert", "")],
            [("X-SSL-Client-Cert", "{http.request.tls.client.certificate_der_base64}")],
        ),
    ),
    "envoy": Told(Envoy(), lambda chain: [("X-Forwarded-Client-Cert", xfcc(chain[0]))], ([],)),
    "envoy-chain": Told(
        Envoy(),
        lambda chain: [
            (
                "X-Forwarded-Client-Cert",
                xfcc(chain[0], f'Chain="{escaped(*chain)}"', 'Subject="CN=a\\"b\\,c\\;d\\\\"', "URI=spiffe://a/b"),
            )
        ],
        (),
        chains=True,
    ),
    "traefik": Told(
        Traefik(),
        lambda chain: [("X-Forwarded-Tls-Client-Cert", ",".join(map(b64, chain)))],
        ([("X-Forwarded-Tls-Client-Cert", "none")],),
        chains=True,
    ),
    "aws": Told(
        AwsAlb(),
        lambda chain: [("X-Amzn-Mtls-Clientcert-Leaf", quote(pem(chain[0]), safe="+=/"))],
        ([],),
    ),
}
FORMS = pytest.mark.parametrize("told", TOLD.values(), ids=TOLD)


def scope(headers: Headers, **more: Any) -> dict[str, Any]:
    lines = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    return {"type": "http", "headers": lines, **more}


def source(form: ProxyForm) -> FromProxy:
    return FromProxy(form, peers=ProxySecret(secret=SECRET))


def chain(form: ProxyForm, headers: Headers) -> tuple[bytes, ...]:
    return source(form).chain(scope([("X-Proxy-Secret", SECRET), *headers]))
