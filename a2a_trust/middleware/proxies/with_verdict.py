"""Proxies that write their own verdict beside the certificate: nginx, HAProxy and Apache."""

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

__all__ = ["Apache", "HAProxy", "Nginx"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _WithVerdict(NamedHeaders):
    """A certificate, and SUCCESS or NONE beside it."""

    certificate: str = "X-SSL-Client-Cert"
    verdict: str = "X-SSL-Client-Verify"

    def _is_shown(self, values: Values, *null: bytes) -> bool:
        """Whether the client showed a certificate, which the proxy has found good; ``null``: its words for no value."""
        absent = (None, b"", *null)
        is_absent = values.get(self.certificate) in absent
        if is_absent and values.get(self.verdict) in (*absent, b"NONE"):
            return False
        _demand(values, self.verdict, b"SUCCESS")
        if is_absent:
            raise InvalidCredentialsError(
                f"{self.certificate}: the proxy says that the certificate is good, and sends none"
            )
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Nginx(_WithVerdict):
    """nginx::

        proxy_set_header X-SSL-Client-Cert   $ssl_client_escaped_cert;
        proxy_set_header X-SSL-Client-Verify $ssl_client_verify;

    Its words for a client without a certificate are NONE, and an absent header.
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

    or ``:%[ssl_c_der,base64]:``, as RFC 9440 has it. Its words for a client without a certificate are an empty value
    or ``::``, with ``ssl_c_used`` 0: ``ssl_c_verify`` is 0 then too.
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

    with ``SSLVerifyClient optional`` or ``require``. Never with ``optional_no_ca``: in a resumed session of TLS 1.2 it
    says SUCCESS of a certificate by anybody (seen with 2.4.71). Its words for a client without a certificate are NONE,
    and ``(null)`` or an empty value.
    """

    def read(self, values: Values) -> tuple[bytes, ...]:
        if not self._is_shown(values, b"(null)"):
            return ()
        return (one(from_pem_with_blanks(values[self.certificate]), self.certificate),)


def _demand(values: Values, name: str, wanted: bytes) -> None:
    said = values.get(name)
    if said is None:
        raise InvalidCredentialsError(
            f"{name}: the proxy does not say whether the certificate is good; let it send this header"
        )
    if said != wanted:
        raise InvalidCredentialsError(f"{name}: the proxy says {said[:64]!a}, not {wanted.decode()}")
