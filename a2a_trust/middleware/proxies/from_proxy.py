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

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from a2a_trust.auth.credentials import HeaderLines, Lines
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, KeySourceUnavailableError
from a2a_trust.middleware.peer import Networks, came_by_unix_socket, records_peers, verified_peer
from a2a_trust.middleware.proxies.form import ProxyForm, check_names
from a2a_trust.middleware.proxies.headers import CLAIMING_HEADERS

__all__ = ["FromProxy", "ProxySecret", "UnixSocket"]


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
        check_names((self.header,))
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
        self._check_sender(scope, secret)
        if chunked and not records_peers(scope):
            raise KeySourceUnavailableError(_TRAILERS)
        return self._form.read({self._names[name]: _only(found, self._names[name]) for name, found in lines.items()})

    def _check_sender(self, scope: Mapping[str, Any], secret: Lines) -> None:
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
        peer = verified_peer(scope)
        if peer is None or not peers.covers(peer):
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
