"""Reads client certificates from the headers of a proxy, and checks that the proxy sent them.

::

    protect(agent, …, client_certificates=FromProxy(Nginx(), peers=Networks("10.0.0.5")))

Anybody can write a header. So a certificate in a header is accepted only when one of these proves that the proxy sent
the request:

- the address of the socket's peer, recorded by the server (``a2a_trust.servers``). ``scope["client"]`` is no proof,
  because servers write forwarded headers into it;
- a unix socket that only the proxy can reach;
- a secret that the proxy adds.

The proxy must write these headers for every request that it passes on to the agent, also from its plain-text sites: a
header that it does not overwrite comes from its client.

Each header must be exactly one line in the proxy's format, and the proxy's verdict, if it has one, must be positive.
Every other value is rejected. Names and thumbprints come from the certificate, not from other headers.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from a2a_trust.auth.certificate.proxy_forms import ProxyForm, check_names
from a2a_trust.auth.credentials import CLAIMING_HEADERS, HeaderLines, Lines, only_line
from a2a_trust.auth.peers import Networks, came_by_unix_socket, records_peers, verified_peer
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, KeySourceUnavailableError


@dataclass(frozen=True, slots=True)
class UnixSocket:
    """Trusts every peer on the agent's unix socket: the permissions of its file must allow only the proxy.

    The server must record that the connection came by a unix socket (``a2a_trust.servers``).
    """


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProxySecret:
    """A secret that the proxy adds to every request: at least 32 characters of printable ASCII, known to no one else.

    It is sent to the agent with every request, so the network between the two must be private.
    """

    secret: str = field(repr=False)
    header: str = "X-Proxy-Secret"

    def __post_init__(self) -> None:
        check_names((self.header,))
        given: object = self.secret  # None, where an environment has no such variable
        if not isinstance(given, str) or not re.fullmatch(r"[!-~]{32,}", given):
            raise ConfigurationError(
                "ProxySecret: secret is not 32 or more characters of printable ASCII; "
                'make one with python -c "import secrets; print(secrets.token_urlsafe(32))"'
            )


_CHUNKED: Final = b"transfer-encoding"
_RUN: Final = "run the agent with uvicorn --http a2a_trust.servers.uvicorn:HttpToolsProtocol, or :H11Protocol"


class FromProxy:
    """The client's certificate from a proxy's headers; a ``CertificateSource``.

    ``form`` is the format of that proxy, such as ``Nginx()``. ``peers`` proves that the proxy sent the request:
    ``Networks`` that contain only the proxy, ``UnixSocket()`` or a ``ProxySecret``.
    """

    __slots__ = ("_form", "_lines", "_names", "_peers", "_secret_header", "headers")

    headers: frozenset[bytes]
    """Headers, in lower case, that the application never sees."""

    def __init__(self, form: ProxyForm, *, peers: Networks | UnixSocket | ProxySecret) -> None:
        if isinstance(form, type) or not callable(getattr(form, "read", None)):
            raise ConfigurationError(
                "FromProxy: form is not the format of a proxy; write it with parentheses, as in "
                "FromProxy(Nginx(), peers=…)"
            )
        if not isinstance(peers, Networks | UnixSocket | ProxySecret):
            raise ConfigurationError(
                'FromProxy: peers must prove that the proxy sent a request; write peers=Networks("10.0.0.5"), '
                "peers=UnixSocket() or peers=ProxySecret(secret=…)"
            )
        if form.every_time and not isinstance(peers, ProxySecret):
            # The secret comes from the middleware that overwrites the header, so it proves that this middleware runs.
            raise ConfigurationError(
                f"FromProxy: {type(form).__name__} by itself passes a client's own header on; write "
                "peers=ProxySecret(secret=…), and add the secret in the middleware that overwrites the header"
            )
        self._form, self._peers = form, peers
        self._names = {name.lower().encode(): name for name in form.names}
        self._secret_header = peers.header.lower().encode() if isinstance(peers, ProxySecret) else None
        secrets = () if self._secret_header is None else (self._secret_header,)
        if self._secret_header in self._names:
            raise ConfigurationError("ProxySecret: its header is also a header of the form; choose another name")
        self._lines = HeaderLines((*self._names, *secrets, _CHUNKED))
        self.headers = frozenset((*self._names, *secrets)) | CLAIMING_HEADERS

    def __repr__(self) -> str:
        return f"FromProxy({self._form!r}, peers={self._peers!r})"

    def chain(self, scope: Mapping[str, Any]) -> tuple[bytes, ...]:
        """As ``CertificateSource.chain``. KeySourceUnavailableError: the setup of the server or the proxy does not show
        where headers come from.
        """
        lines = self._lines.find(scope["headers"])
        chunked = lines.pop(_CHUNKED, [])
        secret = lines.pop(self._secret_header, []) if self._secret_header is not None else []
        if not lines:
            if self._form.every_time and _is_secret(self._peers, secret):
                raise KeySourceUnavailableError(
                    f"the proxy sent no {' or '.join(self._form.names)}, so it does not overwrite its clients' header; "
                    "configure it as in docs/mtls-proxies.md"
                )
            return ()
        check_sender(self._peers, scope, secret, "a header has a client certificate")
        if chunked and not records_peers(scope):
            raise KeySourceUnavailableError(
                "a header has a client certificate, and it could be a trailer of the body, which clients write and "
                f"some servers treat as a header; {_RUN}, or make the proxy send whole bodies, with Content-Length"
            )
        found = {self._names[name]: only_line(each, f"header {self._names[name]}") for name, each in lines.items()}
        return self._form.read({name: value.strip(b" \t") for name, value in found.items() if value is not None})


def check_sender(
    peers: Networks | UnixSocket | ProxySecret, scope: Mapping[str, Any], secret: Lines, what: str
) -> None:
    """Return when the proxy sent the request. ``secret`` are the lines of the secret's header, ``what`` is in errors.

    InvalidCredentialsError: another peer did. KeySourceUnavailableError: the server's setup does not show who did.
    """
    if isinstance(peers, ProxySecret):
        if not _is_secret(peers, secret):
            raise InvalidCredentialsError(f"{what}, and {peers.header} does not have the proxy's secret")
        return
    if not records_peers(scope):
        raise KeySourceUnavailableError(
            f"{what}, and the server does not record the peer that sent it; {_RUN}, or make the proxy add a secret: "
            "peers=ProxySecret(secret=…)"
        )
    if isinstance(peers, UnixSocket):
        if not came_by_unix_socket(scope):
            raise InvalidCredentialsError(f"{what}, and did not come by a unix socket")
        return
    peer = verified_peer(scope)
    if peer is None or not peers.covers(peer):
        raise InvalidCredentialsError(
            f"{what}, and the peer {'has no address, so it' if peer is None else peer} is not the proxy of "
            "peers=Networks(…)"
        )


def _is_secret(peers: object, lines: Lines) -> bool:
    if not isinstance(peers, ProxySecret) or len(lines) != 1 or lines[0] is None:
        return False
    return hmac.compare_digest(lines[0].strip(b" \t"), peers.secret.encode())
