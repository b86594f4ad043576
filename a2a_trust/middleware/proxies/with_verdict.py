"""Proxies that write a certificate and their own verdict about it: nginx, HAProxy and Apache."""

from __future__ import annotations

from dataclasses import dataclass

from a2a_trust.errors import InvalidCredentialsError
from a2a_trust.middleware.proxies.form import (
    NamedHeaders,
    Values,
    from_base64,
    from_byte_sequence,
    from_escaped_pem,
    from_pem_with_blanks,
    one,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WithVerdict(NamedHeaders):
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
        return (one(from_escaped_pem(values[self.certificate]), self.certificate),)


@dataclass(frozen=True, slots=True, kw_only=True)
class HAProxy(NamedHeaders):
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
        return (from_byte_sequence(value) if value.startswith(b":") else from_base64(value),)


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
        return (one(from_pem_with_blanks(values[self.certificate]), self.certificate),)


def _demand(values: Values, name: str, wanted: bytes) -> None:
    said = values.get(name)
    if said is None:
        raise InvalidCredentialsError(
            f"{name}: the proxy did not send its verdict about the certificate; make it send this header"
        )
    if said != wanted:
        raise InvalidCredentialsError(f"{name}: the proxy's verdict is {said[:64]!a}, not {wanted.decode()}")
