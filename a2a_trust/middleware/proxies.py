"""Client certificates that a proxy has taken: what it tells of them in headers, and the proof that it was the proxy.

::

    protect(agent, …, client_certificates=FromProxy(Nginx(), peers=Networks("10.0.0.5")))

Anybody can write a header. So one that tells of a certificate counts only when something proves that the proxy sent the
request: the address of the socket's peer, recorded by the server (``a2a_trust.servers``; ``scope["client"]`` is no
proof, servers write forwarded headers into it), a unix socket that only the proxy can reach, or a secret that the proxy
adds. The proxy must write these headers for every request that it passes on to the agent, on its plain-text sites too:
what it does not overwrite, its clients wrote.

Whatever is not exactly one line, in exactly the proxy's own form, with the proxy's own word that the certificate is
good where it has one, is refused. Nothing else that the proxy says of the certificate is read: names and thumbprints
come from the certificate.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import unquote_to_bytes

from a2a_trust.auth.certificate.reading import is_certificate
from a2a_trust.auth.credentials import HeaderLines, Lines
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, KeySourceUnavailableError
from a2a_trust.middleware.peer import Networks, came_by_unix_socket, proven_peer, records_peers

__all__ = [
    "Apache",
    "AwsAlb",
    "Caddy",
    "Envoy",
    "FromProxy",
    "HAProxy",
    "Nginx",
    "ProxyForm",
    "ProxySecret",
    "Rfc9440",
    "Traefik",
    "UnixSocket",
]

_TELLING: Final = (
    "client- cf-client- ssl-client- x-client- x-ssl- x-ssl-client- x-tls-client- x-forwarded-client- "
    "x-forwarded-ssl-client- x-forwarded-tls-client-"
)
_TOLD: Final = (
    "cert cert-chain cert-der-base64 cert-fingerprint cert-hash cert-info cert-issuer cert-sha1 cert-sha256 "
    "cert-subject cert-verified certificate cn dn i-dn issuer-dn s-dn subject-dn verify"
)
_TOLD_OF_SSL: Final = "fingerprint issuer not-after not-before san serial sha1 sha256 subject used"
CLAIMING_HEADERS: Final = frozenset(
    f"{prefix}{name}".encode()
    for prefixes, names in (
        (_TELLING, _TOLD),
        ("ssl-client- x-ssl- x-ssl-client- x-tls-client-", _TOLD_OF_SSL),
        ("x-amzn-mtls-clientcert", " -issuer -leaf -serial-number -subject -validity"),
        ("x-", "arr-clientcert tls-cert"),
    )
    for prefix in prefixes.split(" ")
    for name in names.split(" ")
)
"""Headers, in lower case, in which some proxy tells of client certificates: no application behind should see them."""


Values: TypeAlias = Mapping[str, bytes]
"""The value of each header that came, by the name that the form has for it; none of them came twice."""


class ProxyForm(Protocol):
    """How one kind of proxy tells of the client's certificate."""

    @property
    def names(self) -> tuple[str, ...]:
        """The headers that it writes."""
        ...

    @property
    def every_time(self) -> bool:
        """Whether the proxy writes a header also for a client without a certificate, and must be seen to do so."""
        ...

    def read(self, values: Values) -> tuple[bytes, ...]:
        """The certificates, DER, the client's own first; ``()`` for the proxy's word that there is none.

        InvalidCredentialsError for everything else.
        """
        ...


@dataclass(frozen=True, slots=True)
class UnixSocket:
    """Whoever reaches the agent's unix socket is the proxy: its file's permissions must say so.

    The server has to record that it is one (``a2a_trust.servers``).
    """


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProxySecret:
    """A secret that the proxy adds to every request, at least 32 bytes of printable ASCII, and nobody else knows.

    It goes over the wire to the agent: use it where nobody listens between the two.
    """

    secret: str = field(repr=False)
    header: str = "X-Proxy-Secret"

    def __post_init__(self) -> None:
        _check_names((self.header,))
        given: object = self.secret  # None, where an environment has no such variable
        if not isinstance(given, str) or not re.fullmatch(r"[!-~]{32,}", given):
            raise ConfigurationError(
                "ProxySecret: the secret is too short, or has other than printable ASCII; "
                'make one with python -c "import secrets; print(secrets.token_urlsafe(32))"'
            )


_NO_PEER: Final = (
    "a header tells of a client certificate, and the server does not record who sent it; run the agent with "
    "uvicorn --http a2a_trust.servers.uvicorn:HttpToolsProtocol, or :H11Protocol, or let the proxy add a secret: "
    "peers=ProxySecret(secret=…)"
)


_CHUNKED: Final = b"transfer-encoding"
_TRAILERS: Final = (
    "a header tells of a client certificate, and it could be a trailer of the body, which clients write and some "
    "servers take for headers; run the agent with uvicorn --http a2a_trust.servers.uvicorn:HttpToolsProtocol, or "
    ":H11Protocol, or let the proxy send bodies whole, with Content-Length"
)


class FromProxy:
    """The client's certificate as a proxy tells of it; a ``CertificateSource``.

    ``form`` is how that proxy tells. ``peers`` proves that it was the proxy: ``Networks`` that hold nobody but the
    proxy, ``UnixSocket()`` or a ``ProxySecret``.
    """

    __slots__ = ("_form", "_lines", "_names", "_peers", "_secret_header", "headers")

    headers: frozenset[bytes]
    """Headers, in lower case, that the application behind never sees."""

    def __init__(self, form: ProxyForm, *, peers: Networks | UnixSocket | ProxySecret) -> None:
        if isinstance(form, type) or not callable(getattr(form, "read", None)):
            raise ConfigurationError(
                "FromProxy: name the proxy's form, with parentheses, as in FromProxy(Nginx(), peers=…)"
            )
        if not isinstance(peers, Networks | UnixSocket | ProxySecret):
            raise ConfigurationError(
                'FromProxy: say who proves to be the proxy; write peers=Networks("10.0.0.5"), peers=UnixSocket() or '
                "peers=ProxySecret(secret=…)"
            )
        if form.every_time and not isinstance(peers, ProxySecret):
            # What tells that its clients' own headers are overwritten has to come from where they are.
            raise ConfigurationError(
                f"FromProxy: {type(form).__name__} passes a client's own header on; write peers=ProxySecret(secret=…) "
                "and let the same middleware add the secret that overwrites the header"
            )
        self._form, self._peers = form, peers
        self._names = {name.lower().encode(): name for name in form.names}
        self._secret_header = peers.header.lower().encode() if isinstance(peers, ProxySecret) else None
        secrets = () if self._secret_header is None else (self._secret_header,)
        if self._secret_header in self._names:
            raise ConfigurationError("ProxySecret: its header is one of the certificate's; name another")
        self._lines = HeaderLines((*self._names, *secrets, _CHUNKED))
        self.headers = frozenset((*self._names, *secrets)) | CLAIMING_HEADERS

    def __repr__(self) -> str:
        return f"FromProxy({self._form!r}, peers={self._peers!r})"

    def chain(self, scope: Mapping[str, Any]) -> tuple[bytes, ...]:
        """The certificates that the proxy tells of, DER, the client's own first; ``()`` when the client showed none.

        InvalidCredentialsError for headers that nobody can believe, KeySourceUnavailableError when the server or the
        proxy is not set up to be believed.
        """
        lines = self._lines.find(scope["headers"])
        chunked = lines.pop(_CHUNKED, [])
        secret = lines.pop(self._secret_header, []) if self._secret_header is not None else []
        if not lines:
            if self._form.every_time and self._is_secret(secret):
                raise KeySourceUnavailableError(
                    f"the proxy sent no {' or '.join(self._form.names)}, so it does not overwrite that of its clients; "
                    "see docs/mtls.md"
                )
            return ()
        self._prove(scope, secret)
        if chunked and not records_peers(scope):
            raise KeySourceUnavailableError(_TRAILERS)
        return self._form.read({self._names[name]: _only(found, self._names[name]) for name, found in lines.items()})

    def _prove(self, scope: Mapping[str, Any], secret: Lines) -> None:
        peers = self._peers
        if isinstance(peers, ProxySecret):
            if not self._is_secret(secret):
                raise InvalidCredentialsError(
                    f"a header tells of a client certificate, and {peers.header} is not what the proxy adds"
                )
            return
        if not records_peers(scope):
            raise KeySourceUnavailableError(_NO_PEER)
        if isinstance(peers, UnixSocket):
            if not came_by_unix_socket(scope):
                raise InvalidCredentialsError("a header tells of a client certificate, and came by no unix socket")
            return
        peer = proven_peer(scope)
        if peer is None or not peers.hold(peer):
            raise InvalidCredentialsError(
                f"a header tells of a client certificate, and the peer {'is unknown' if peer is None else peer}, "
                "which is not the proxy"
            )

    def _is_secret(self, lines: Lines) -> bool:
        peers = self._peers
        if not isinstance(peers, ProxySecret) or len(lines) != 1 or lines[0] is None:
            return False
        return hmac.compare_digest(lines[0].strip(b" \t"), peers.secret.encode())


def _only(lines: Lines, name: str) -> bytes:
    if None in lines:
        raise InvalidCredentialsError(f"{name}: an alias with underscores came")
    if len(lines) > 1:
        raise InvalidCredentialsError(f"{name}: it came more than once")
    value = lines[0]
    assert value is not None  # noqa: S101  for the type checker: None was looked for
    return value.strip(b" \t")


@dataclass(frozen=True, slots=True)
class Rfc9440:
    """RFC 9440: ``Client-Cert`` has the client's own certificate, ``Client-Cert-Chain`` those above it.

    Both are absent when the client showed none.
    """

    names = ("Client-Cert", "Client-Cert-Chain")
    every_time = False

    def read(self, values: Values) -> tuple[bytes, ...]:
        leaf, above = (values.get(name) for name in self.names)
        if leaf is None:
            raise InvalidCredentialsError("Client-Cert-Chain came without Client-Cert")
        chain = [] if above is None else [each.strip(b" \t") for each in above.split(b",")]
        return tuple(_from_byte_sequence(each) for each in (leaf, *chain))


@dataclass(frozen=True, slots=True, kw_only=True)
class Nginx:
    """nginx::

        proxy_set_header X-SSL-Client-Cert   $ssl_client_escaped_cert;
        proxy_set_header X-SSL-Client-Verify $ssl_client_verify;

    Its words for a client without a certificate are NONE, and an absent header.
    """

    every_time = False

    certificate: str = "X-SSL-Client-Cert"
    verdict: str = "X-SSL-Client-Verify"

    def __post_init__(self) -> None:
        _check_names(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.certificate, self.verdict)

    def read(self, values: Values) -> tuple[bytes, ...]:
        if not _is_shown(values, self.certificate, _ABSENT, self.verdict, _NO_VERDICT):
            return ()
        return (_one(_from_escaped_pem(values[self.certificate]), self.certificate),)


@dataclass(frozen=True, slots=True, kw_only=True)
class HAProxy:
    """HAProxy::

        http-request set-header X-SSL-Client-Cert   %[ssl_c_der,base64]
        http-request set-header X-SSL-Client-Used   %[ssl_c_used]
        http-request set-header X-SSL-Client-Verify %[ssl_c_verify]

    or ``:%[ssl_c_der,base64]:``, as RFC 9440 has it. Its words for a client without a certificate are an empty value
    or ``::``, with ``ssl_c_used`` 0: ``ssl_c_verify`` is 0 then too.
    """

    every_time = False

    certificate: str = "X-SSL-Client-Cert"
    used: str = "X-SSL-Client-Used"
    verdict: str = "X-SSL-Client-Verify"

    def __post_init__(self) -> None:
        _check_names(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.certificate, self.used, self.verdict)

    def read(self, values: Values) -> tuple[bytes, ...]:
        value = values.get(self.certificate, b"")
        if value in (b"", b"::") and values.get(self.used, b"") in (b"", b"0"):
            return ()
        _demand(values, self.used, b"1")
        _demand(values, self.verdict, b"0")
        return (_from_byte_sequence(value) if value.startswith(b":") else _from_base64(value),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Apache:
    """Apache's httpd::

        RequestHeader set X-SSL-Client-Cert   "%{SSL_CLIENT_CERT}s"
        RequestHeader set X-SSL-Client-Verify "%{SSL_CLIENT_VERIFY}s"

    with ``SSLVerifyClient optional`` or ``require``. Never with ``optional_no_ca``: in a resumed session of TLS 1.2 it
    says SUCCESS of a certificate by anybody (seen with 2.4.71). Its words for a client without a certificate are NONE,
    and ``(null)`` or an empty value.
    """

    every_time = False

    certificate: str = "X-SSL-Client-Cert"
    verdict: str = "X-SSL-Client-Verify"

    def __post_init__(self) -> None:
        _check_names(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.certificate, self.verdict)

    def read(self, values: Values) -> tuple[bytes, ...]:
        null = (b"(null)",)
        if not _is_shown(values, self.certificate, _ABSENT + null, self.verdict, _NO_VERDICT + null):
            return ()
        return (_one(_from_pem_with_blanks(values[self.certificate]), self.certificate),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caddy:
    """Caddy::

        header_up X-SSL-Client-Cert {http.request.tls.client.certificate_der_base64}

    Its words for a client without a certificate are an empty value, or the name of the placeholder itself.
    """

    every_time = False

    certificate: str = "X-SSL-Client-Cert"

    def __post_init__(self) -> None:
        _check_names(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.certificate,)

    def read(self, values: Values) -> tuple[bytes, ...]:
        value = values[self.certificate]
        if value in (b"", b"{http.request.tls.client.certificate_der_base64}"):
            return ()
        return (_from_base64(value),)


#: A member of an element: in quotes, or without any. Envoy quotes neither URIs nor DNS names.
_MEMBER: Final = re.compile(rb'([A-Za-z]+)=(?:"((?:[^"\\]|\\.)*)"|([^",;]*))(;|,|$)')


@dataclass(frozen=True, slots=True)
class Envoy:
    """Envoy's ``x-forwarded-client-cert``, with ``forward_client_cert_details: SANITIZE_SET`` and
    ``set_current_client_cert_details: {cert: true}``, perhaps with ``chain: true``.

    The last element is that of the Envoy in front of the agent; it must have the whole certificate. The header is
    absent when the client showed none. Envoy puts URIs and DNS names of certificates there as they are, so whoever gets
    a certificate for ``spiffe://a,Hash=…;Cert="…"`` writes one more element: where an element before the last has
    ``URI`` or ``DNS``, the header is refused.
    """

    names = ("X-Forwarded-Client-Cert",)
    every_time = False

    def read(self, values: Values) -> tuple[bytes, ...]:
        where = self.names[0]
        *before, last = _elements(values[where], where)
        for element in before:
            if not element.keys().isdisjoint((b"uri", b"dns")):
                raise InvalidCredentialsError(
                    f"{where}: what looks like its last element could be a certificate's URI or DNS name; let Envoy "
                    "set neither uri nor dns, or SANITIZE_SET"
                )
        if b"cert" not in last or b"hash" not in last:
            raise InvalidCredentialsError(f"{where}: no Cert or no Hash; let Envoy set cert: true")
        leaf = _one(_from_escaped_pem(last[b"cert"]), where)
        if last[b"hash"].lower() != hashlib.sha256(leaf).hexdigest().encode():
            raise InvalidCredentialsError(f"{where}: Hash is not that of Cert")
        if b"chain" not in last:
            return (leaf,)
        chain = _from_escaped_pem(last[b"chain"])
        if chain[0] != leaf:
            raise InvalidCredentialsError(f"{where}: Chain does not begin with Cert")
        return chain


def _elements(value: bytes, where: str) -> list[dict[bytes, bytes]]:
    """The elements, by the names of their members in lower case; only names may come twice in one."""
    elements: list[dict[bytes, bytes]] = [{}]
    at, end = 0, b","
    while end:
        member = _MEMBER.match(value, at)
        if member is None:
            raise InvalidCredentialsError(f"{where}: it is not name=value;… , …")
        name, quoted, plain, end = member.groups()
        at, name = member.end(), name.lower()
        if name in elements[-1] and name not in (b"by", b"uri", b"dns"):
            raise InvalidCredentialsError(f"{where}: {name.decode()} came twice in an element")
        elements[-1][name] = plain if quoted is None else quoted
        if end == b",":
            elements.append({})
    return elements


#: What the documented middleware of Traefik writes before another one tells of a certificate.
_TRAEFIK_NONE: Final = b"none"


@dataclass(frozen=True, slots=True)
class Traefik:
    """Traefik's ``passTLSClientCert`` with ``pem: true``, after a ``headers`` middleware::

        customRequestHeaders:
          X-Forwarded-Tls-Client-Cert: "none"
          X-Proxy-Secret: "…"

    Alone, ``passTLSClientCert`` hands a client's own header on when the client shows no certificate. So the other one
    overwrites it first, for every request: a request without this header is 503. That it does so is told by the secret
    beside it, so ``peers`` must be that ``ProxySecret``.
    """

    names = ("X-Forwarded-Tls-Client-Cert",)
    every_time = True

    def read(self, values: Values) -> tuple[bytes, ...]:
        value = values[self.names[0]]
        return () if value == _TRAEFIK_NONE else tuple(map(_from_base64, value.split(b",")))


@dataclass(frozen=True, slots=True)
class AwsAlb:
    """The Application Load Balancer of AWS, in the mode that verifies: ``X-Amzn-Mtls-Clientcert-Leaf``.

    No other listener may forward to the agent: one without mutual TLS writes no such header, and clients could. The
    mode that passes certificates through unverified is not read, for the same reason.
    """

    names = ("X-Amzn-Mtls-Clientcert-Leaf",)
    every_time = False

    def read(self, values: Values) -> tuple[bytes, ...]:
        where = self.names[0]
        return (_one(_from_escaped_pem(values[where]), where),)


_ABSENT: Final = (None, b"")
_NO_VERDICT: Final = (None, b"", b"NONE")


def _is_shown(values: Values, certificate: str, no_certificate: Any, verdict: str, no_verdict: Any) -> bool:
    """Whether the client showed a certificate, which the proxy has found good."""
    if values.get(certificate) in no_certificate and values.get(verdict) in no_verdict:
        return False
    _demand(values, verdict, b"SUCCESS")
    if values.get(certificate) in no_certificate:
        raise InvalidCredentialsError(f"{certificate}: the proxy says that the certificate is good, and sends none")
    return True


def _demand(values: Values, name: str, wanted: bytes) -> None:
    said = values.get(name)
    if said is None:
        raise InvalidCredentialsError(
            f"{name}: the proxy does not say whether the certificate is good; let it send this header"
        )
    if said != wanted:
        raise InvalidCredentialsError(f"{name}: the proxy says {said[:64]!a}, not {wanted.decode()}")


def _check_names(names: tuple[str, ...]) -> None:
    if len({name.lower() for name in names}) < len(names):
        raise ConfigurationError(f"{', '.join(names)}: name a header for each")
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9-]+", name):
            raise ConfigurationError(
                f"{name[:64]!a} is no name for the proxy's header; use letters, digits and hyphens"
            )


def _from_base64(text: bytes) -> bytes:
    """One certificate, from base64 in its one spelling."""
    try:
        der = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        der = b""
    if base64.b64encode(der) != text or not is_certificate(der):
        raise InvalidCredentialsError("a header of the proxy has no certificate where one should be")
    return der


def _from_byte_sequence(text: bytes) -> bytes:
    """RFC 8941 3.3.5: base64 between colons."""
    if len(text) < 2 or not (text.startswith(b":") and text.endswith(b":")):
        raise InvalidCredentialsError("a header of the proxy has no certificate between colons, as RFC 9440 has it")
    return _from_base64(text[1:-1])


_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----\n((?:[A-Za-z0-9+/=]+\n)+)-----END CERTIFICATE-----(?:\n|$)")
_ARMOUR: Final = re.compile(rb"-----(BEGIN|END)\nCERTIFICATE-----")


def _from_pem(text: bytes) -> tuple[bytes, ...]:
    """The certificates of a PEM text with nothing between them; at least one."""
    certificates: list[bytes] = []
    at = 0
    while at < len(text) or not certificates:
        block = _PEM.match(text, at)
        if block is None:
            raise InvalidCredentialsError("a header of the proxy has no PEM certificate where one should be")
        certificates.append(_from_base64(block[1].replace(b"\n", b"")))
        at = block.end()
    return tuple(certificates)


def _from_pem_with_blanks(text: bytes) -> tuple[bytes, ...]:
    """The certificates of a PEM text with blanks for newlines."""
    return _from_pem(_ARMOUR.sub(rb"-----\1 CERTIFICATE-----", text.replace(b" ", b"\n")))


def _from_escaped_pem(text: bytes) -> tuple[bytes, ...]:
    """The certificates of a percent-encoded PEM text; a plus sign is itself, and no blank."""
    if re.search(rb"%(?![0-9A-Fa-f]{2})|[^!-~]", text):
        raise InvalidCredentialsError("a header of the proxy has no percent-encoded PEM")
    return _from_pem(unquote_to_bytes(text))


def _one(certificates: tuple[bytes, ...], where: str) -> bytes:
    if len(certificates) != 1:
        raise InvalidCredentialsError(f"{where}: {len(certificates)} certificates, and not one")
    return certificates[0]
