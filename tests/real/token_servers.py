"""Authorization servers of other projects as processes, each in its own locked environment."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, urlsplit

import httpx
from cryptography.hazmat.primitives.serialization import Encoding

from a2a_trust.net.fetcher import Fetcher
from tests.net.test_fetcher import Authority
from tests.real.server_process import ServerProcess
from tests.servers.environments import python_of
from tests.servers.serving import ROOT

__all__ = ["AuthlibServer", "ExchangeServer", "running"]

_HERE: Final = Path(__file__).resolve().parent


class _Server(ServerProcess):
    """A server at https://127.0.0.1 with a certificate of a private authority, which ``tls`` trusts."""

    environment: str
    module: str

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        authority.server("127.0.0.1")
        self.tls = authority.client()
        self.authority = folder / "authority.pem"
        self.authority.write_bytes(authority.certificate.public_bytes(Encoding.PEM))
        python = python_of(self.environment, _HERE)
        super().__init__([str(python), "-m", self.module, str(folder / "server.pem"), str(self.authority)], ROOT)
        self.issuer: str = self.tell("describe")["issuer"]
        authority.server("client.example")  # in the place of the server's, which it has read by now
        self.certificate = (folder / "server.pem").rename(folder / "client.pem")
        self.token_url = f"{self.issuer}/token"

    def fetcher(self) -> Fetcher:
        """A fetcher as an operator makes it for a server of the own network."""
        return Fetcher(ssl_context=self.tls, private_origins=[self.issuer])


class ExchangeServer(_Server):
    """Token exchange by idpyoidc: the client "service" exchanges what the client "front" got for alice or bob."""

    environment = "idpyoidc-5.0.0"
    module = "tests.real.exchange_server"

    def subject_token(self, scope: str = "read write", user: str = "alice") -> str:
        """A token of alice or bob for the client "front" (RFC 6749 4.1)."""
        asked = {
            "client_id": "front",
            "response_type": "code",
            "redirect_uri": "https://client.example/callback",
            "scope": scope,
            "state": secrets.token_hex(8),
            "login_hint": user,
        }
        with httpx.Client(verify=self.tls, base_url=self.issuer) as browser:
            back = browser.get("/authorization", params=asked)
            answer = browser.post(
                "/token",
                auth=("front", "secret"),
                data={
                    "grant_type": "authorization_code",
                    "code": parse_qs(urlsplit(back.headers["location"]).query)["code"][0],
                    "redirect_uri": asked["redirect_uri"],
                },
            )
        assert answer.status_code == 200, answer.text
        token: str = answer.json()["access_token"]
        return token


class AuthlibServer(_Server):
    """Authlib's authorization server: client credentials and refresh tokens that rotate, in tokens of RFC 9068."""

    environment = "authlib-1.9.9"
    module = "tests.real.authlib_server"

    def register(self, client: str, **metadata: Any) -> None:
        """Add or replace a client for client credentials; the metadata are those of RFC 7591."""
        self.tell("register", client=client, metadata=metadata)

    def login(self, scope: str = "read") -> dict[str, Any]:
        """The access and refresh token of alice for the client "web"."""
        data = {"grant_type": "password", "username": "alice", "password": "x", "scope": scope}
        with httpx.Client(verify=self.tls) as http:
            answer = http.post(self.token_url, auth=("web", "secret"), data=data)
        assert answer.status_code == 200, answer.text
        tokens: dict[str, Any] = answer.json()
        return tokens


S = TypeVar("S", bound=_Server)


@contextmanager
def running(kind: type[S], folder: Path) -> Iterator[S]:
    """A server of this kind while the block runs; its certificates are in ``folder``."""
    server = kind(folder)
    try:
        yield server
    finally:
        server.close()
