"""The formats of the proxies: the headers in which each writes the client's certificate, and strict readers of them.

Some write a certificate or a chain, and nginx, HAProxy and Apache also their own verdict about it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import ClassVar, Final, Protocol, TypeAlias
from urllib.parse import unquote_to_bytes

from a2a_trust.auth.certificate.identities import is_certificate
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError

Values: TypeAlias = Mapping[str, bytes]
"""The value of each header that came, by the form's name for it. Each came once."""


class ProxyForm(Protocol):
    """How one kind of proxy writes the client's certificate into headers."""

    @property
    def names(self) -> tuple[str, ...]:
        """The headers that the proxy writes."""

    @property
    def every_time(self) -> bool:
        """Whether the proxy must write a header for every request, also for a client without a certificate."""

    def read(self, values: Values) -> tuple[bytes, ...]:
        """The certificates in DER, the client's own first; ``()`` when the proxy says that the client sent none.

        InvalidCredentialsError for every other value.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedHeaders:
    """A form whose headers have no fixed names: each field is the name of one header."""

    every_time = False

    def __post_init__(self) -> None:
        check_names(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        return astuple(self)


def check_names(names: tuple[str, ...]) -> None:
    """Return when they can be the names of headers that a proxy adds; else ConfigurationError."""
    if len({name.lower() for name in names}) < len(names):
        raise ConfigurationError(f"the proxy's headers {', '.join(names)} are not different; give each its own name")
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9-]+", name):
            raise ConfigurationError(
                f"{name[:64]!a} cannot be the name of the proxy's header; use letters, digits and hyphens"
            )


def _from_base64(text: bytes) -> bytes:
    """One certificate, from canonical base64. This and the other readers raise InvalidCredentialsError."""
    try:
        der = base64.b64decode(text, validate=True)
    except ValueError:
        der = b""
    if base64.b64encode(der) != text or not is_certificate(der):
        raise InvalidCredentialsError("a header of the proxy does not have a base64 certificate where one is expected")
    return der


def _from_byte_sequence(text: bytes) -> bytes:
    """RFC 8941 3.3.5: base64 between colons."""
    if len(text) < 2 or not (text.startswith(b":") and text.endswith(b":")):
        raise InvalidCredentialsError("a header of the proxy does not have a certificate between colons (RFC 9440)")
    return _from_base64(text[1:-1])


_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----\n((?:[A-Za-z0-9+/=]+\n)+)-----END CERTIFICATE-----(?:\n|$)")
_ARMOUR: Final = re.compile(rb"-----(BEGIN|END)\nCERTIFICATE-----")


def _from_pem(text: bytes) -> tuple[bytes, ...]:
    """The certificates of a PEM text, at least one, with nothing between them."""
    certificates: list[bytes] = []
    at = 0
    while at < len(text) or not certificates:
        block = _PEM.match(text, at)
        if block is None:
            raise InvalidCredentialsError("a header of the proxy does not have a PEM certificate where one is expected")
        certificates.append(_from_base64(block[1].replace(b"\n", b"")))
        at = block.end()
    return tuple(certificates)


def _from_escaped_pem(text: bytes) -> tuple[bytes, ...]:
    """The certificates of a percent-encoded PEM text; a plus sign is a plus sign, not a blank."""
    if re.search(rb"%(?![0-9A-Fa-f]{2})|[^!-~]", text):
        raise InvalidCredentialsError("a header of the proxy is not percent-encoded PEM")
    return _from_pem(unquote_to_bytes(text))


def _one(certificates: tuple[bytes, ...], where: str) -> bytes:
    """The only certificate of a header that must not have a chain."""
    if len(certificates) != 1:
        raise InvalidCredentialsError(f"{where}: it has {len(certificates)} certificates instead of one")
    return certificates[0]


@dataclass(frozen=True, slots=True)
class Rfc9440:
    """RFC 9440: ``Client-Cert`` has the client's own certificate, ``Client-Cert-Chain`` the certificates above it.

    Both are absent when the client sent none.
    """

    names: ClassVar[tuple[str, ...]] = ("Client-Cert", "Client-Cert-Chain")
    every_time = False

    def read(self, values: Values) -> tuple[bytes, ...]:
        leaf, above = (values.get(name) for name in self.names)
        if leaf is None:
            raise InvalidCredentialsError("Client-Cert-Chain came without Client-Cert")
        chain = [] if above is None else [each.strip(b" \t") for each in above.split(b",")]
        return tuple(_from_byte_sequence(each) for each in (leaf, *chain))


@dataclass(frozen=True, slots=True, kw_only=True)
class Caddy(_NamedHeaders):
    """Caddy::

        header_up X-SSL-Client-Cert {http.request.tls.client.certificate_der_base64}

    For a client without a certificate it writes an empty value, or the placeholder itself.
    """

    certificate: str = "X-SSL-Client-Cert"

    def read(self, values: Values) -> tuple[bytes, ...]:
        value = values[self.certificate]
        if value in (b"", b"{http.request.tls.client.certificate_der_base64}"):
            return ()
        return (_from_base64(value),)


@dataclass(frozen=True, slots=True)
class Traefik:
    """Traefik's ``passTLSClientCert`` with ``pem: true``, after a ``headers`` middleware::

        customRequestHeaders:
          X-Forwarded-Tls-Client-Cert: "none"
          X-Proxy-Secret: "…"

    By itself, ``passTLSClientCert`` passes a client's own header on when the client has no certificate. So the
    ``headers`` middleware overwrites it first, for every request, and a request without this header gets 503. The
    secret proves that this middleware ran, so ``peers`` must be that ``ProxySecret``.
    """

    names: ClassVar[tuple[str, ...]] = ("X-Forwarded-Tls-Client-Cert",)
    every_time = True

    def read(self, values: Values) -> tuple[bytes, ...]:
        value = values[self.names[0]]
        return () if value == b"none" else tuple(map(_from_base64, value.split(b",")))


@dataclass(frozen=True, slots=True)
class AwsAlb:
    """The Application Load Balancer of AWS, in verify mode: ``X-Amzn-Mtls-Clientcert-Leaf``.

    No other listener may forward to the agent: a listener without mutual TLS would pass a client's own header on. The
    passthrough mode is not supported, because it does not verify certificates.
    """

    names: ClassVar[tuple[str, ...]] = ("X-Amzn-Mtls-Clientcert-Leaf",)
    every_time = False

    def read(self, values: Values) -> tuple[bytes, ...]:
        where = self.names[0]
        return (_one(_from_escaped_pem(values[where]), where),)


#: A member of an element, with or without quotes. Envoy quotes neither URIs nor DNS names.
_MEMBER: Final = re.compile(rb'([A-Za-z]+)=(?:"((?:[^"\\]|\\.)*)"|([^",;]*))(;|,|$)')


@dataclass(frozen=True, slots=True)
class Envoy:
    """Envoy's ``x-forwarded-client-cert``, with ``forward_client_cert_details: SANITIZE_SET`` and
    ``set_current_client_cert_details: {cert: true}``, optionally with ``chain: true``.

    The last element is by the Envoy in front of the agent; it must have the whole certificate. The header is absent
    when the client sent none. Envoy does not escape URIs and DNS names of certificates, so the owner of a certificate
    for ``spiffe://a,Hash=…;Cert="…"`` could add an element. So a header with ``URI`` or ``DNS`` in an element before
    the last is rejected.
    """

    names: ClassVar[tuple[str, ...]] = ("X-Forwarded-Client-Cert",)
    every_time = False

    def read(self, values: Values) -> tuple[bytes, ...]:
        where = self.names[0]
        *before, last = _elements(values[where], where)
        for element in before:
            if not element.keys().isdisjoint((b"uri", b"dns")):
                raise InvalidCredentialsError(
                    f"{where}: its last element could be part of a certificate's URI or DNS name; configure Envoy with "
                    "SANITIZE_SET, or without uri and dns"
                )
        if b"cert" not in last or b"hash" not in last:
            raise InvalidCredentialsError(f"{where}: Cert or Hash is missing; configure Envoy with cert: true")
        leaf = _one(_from_escaped_pem(last[b"cert"]), where)
        if last[b"hash"].lower() != hashlib.sha256(leaf).hexdigest().encode():
            raise InvalidCredentialsError(f"{where}: Hash is not the hash of Cert")
        if b"chain" not in last:
            return (leaf,)
        chain = _from_escaped_pem(last[b"chain"])
        if chain[0] != leaf:
            raise InvalidCredentialsError(f"{where}: Chain does not begin with Cert")
        return chain


def _elements(value: bytes, where: str) -> list[dict[bytes, bytes]]:
    """The elements, by the names of their members in lower case; only ``by``, ``uri`` and ``dns`` may come twice."""
    elements: list[dict[bytes, bytes]] = [{}]
    at, end = 0, b","
    while end:
        member = _MEMBER.match(value, at)
        if member is None:
            raise InvalidCredentialsError(f"{where}: it is not a list of elements such as name=value;name=value")
        name, quoted, plain, end = member.groups()
        at, name = member.end(), name.lower()
        if name in elements[-1] and name not in (b"by", b"uri", b"dns"):
            raise InvalidCredentialsError(f"{where}: {name.decode()} is twice in one element")
        elements[-1][name] = plain if quoted is None else quoted
        if end == b",":
            elements.append({})
    return elements


@dataclass(frozen=True, slots=True, kw_only=True)
class _WithVerdict(_NamedHeaders):
    """A certificate, and SUCCESS or NONE in a second header."""

    certificate: str = "X-SSL-Client-Cert"
    verdict: str = "X-SSL-Client-Verify"

    def _is_shown(self, values: Values, *null: bytes) -> bool:
        """Whether the client sent a certificate that the proxy has verified; ``null``: its values for a missing one."""
        absent = (None, b"", *null)
        is_absent = values.get(self.certificate) in absent
        if is_absent and values.get(self.verdict) in (*absent, b"NONE"):
            return False
        _demand(values, self.verdict, b"SUCCESS")
        if is_absent:
            raise InvalidCredentialsError(
                f"{self.certificate}: the proxy says that it verified a certificate, and sends none"
            )
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Nginx(_WithVerdict):
    """nginx::

        proxy_set_header X-SSL-Client-Cert   $ssl_client_escaped_cert;
        proxy_set_header X-SSL-Client-Verify $ssl_client_verify;

    For a client without a certificate it writes NONE, and no certificate header.
    """

    def read(self, values: Values) -> tuple[bytes, ...]:
        if not self._is_shown(values):
            return ()
        return (_one(_from_escaped_pem(values[self.certificate]), self.certificate),)


@dataclass(frozen=True, slots=True, kw_only=True)
class HAProxy(_NamedHeaders):
    """HAProxy::

        http-request set-header X-SSL-Client-Cert   %[ssl_c_der,base64]
        http-request set-header X-SSL-Client-Used   %[ssl_c_used]
        http-request set-header X-SSL-Client-Verify %[ssl_c_verify]

    or ``:%[ssl_c_der,base64]:`` as in RFC 9440. For a client without a certificate it writes an empty value or ``::``,
    and ``ssl_c_used`` 0. ``ssl_c_verify`` is 0 in both cases.
    """

    certificate: str = "X-SSL-Client-Cert"
    used: str = "X-SSL-Client-Used"
    verdict: str = "X-SSL-Client-Verify"

    def read(self, values: Values) -> tuple[bytes, ...]:
        value = values.get(self.certificate, b"")
        if value in (b"", b"::") and values.get(self.used, b"") in (b"", b"0"):
            return ()
        _demand(values, self.used, b"1")
        _demand(values, self.verdict, b"0")
        return (_from_byte_sequence(value) if value.startswith(b":") else _from_base64(value),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Apache(_WithVerdict):
    """Apache's httpd::

        RequestHeader set X-SSL-Client-Cert   "%{SSL_CLIENT_CERT}s"
        RequestHeader set X-SSL-Client-Verify "%{SSL_CLIENT_VERIFY}s"

    with ``SSLVerifyClient optional`` or ``require``. Never use ``optional_no_ca``: in a resumed session of TLS 1.2 it
    writes SUCCESS for a certificate of an unknown authority (seen with 2.4.71). For a client without a certificate it
    writes NONE, and ``(null)`` or an empty value.
    """

    def read(self, values: Values) -> tuple[bytes, ...]:
        if not self._is_shown(values, b"(null)"):
            return ()
        text = values[self.certificate].replace(b" ", b"\n")  # it has blanks for newlines
        return (_one(_from_pem(_ARMOUR.sub(rb"-----\1 CERTIFICATE-----", text)), self.certificate),)


def _demand(values: Values, name: str, wanted: bytes) -> None:
    said = values.get(name)
    if said is None:
        raise InvalidCredentialsError(
            f"{name}: the proxy did not send its verdict about the certificate; make it send this header"
        )
    if said != wanted:
        raise InvalidCredentialsError(f"{name}: the proxy's verdict is {said[:64]!a}, not {wanted.decode()}")
