"""Authorization servers of other projects as processes, each in its own locked environment."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import parse_qs, urlsplit

import httpx
from cryptography.hazmat.primitives.serialization import Encoding

from a2a_trust.base.net.fetcher import Fetcher
from tests.base.net.test_fetcher import Authority
from tests.real.code_flow import AUDIENCE, log_in
from tests.real.server_process import ServerProcess
from tests.servers.environments import python_of
from tests.servers.serving import ROOT

__all__ = [
    "AUDIENCE",
    "AuthlibServer",
    "CanailleServer",
    "DjangoServer",
    "ExchangeServer",
    "IntrospectingServer",
    "running",
]

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
        self.origin: str = self.tell("describe")["issuer"]
        self.issuer = self.origin
        authority.server("client.example")  # in the place of the server's, which it has read by now
        self.certificate = (folder / "server.pem").rename(folder / "client.pem")
        self.token_url = f"{self.issuer}/token"

    def fetcher(self) -> Fetcher:
        """A fetcher as an operator makes it for a server of the own network."""
        return Fetcher(ssl_context=self.tls, private_origins=[self.origin], timeout=60)


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
        with httpx.Client(verify=self.tls, base_url=self.issuer, timeout=60) as browser:
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


class IntrospectingServer(_Server):
    """A server whose client "agent" may ask about tokens (RFC 7662), and whose clients may revoke theirs (RFC 7009).

    A machine is the client "service"; alice logs in at the client "web".
    """

    paths: ClassVar[Mapping[str, str]]
    audience = AUDIENCE

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.token_url, self.introspection_url, self.revocation_url = (
            self.origin + self.paths[name] for name in ("token", "introspection", "revocation")
        )

    def token_form(self, form: str) -> None:
        """New tokens are "opaque" or "jwt", and those of the Django server also "jwt-with-random-refresh-tokens"."""
        self.tell("tokenForm", form=form)

    def machine_token(self, scope: str | None = "read") -> str:
        """An access token of the client "service" for the agent (RFC 8707); None asks for no scope."""
        data = {"grant_type": "client_credentials", "resource": AUDIENCE, **({} if scope is None else {"scope": scope})}
        return str(self._tokens("service", data)["access_token"])

    def login(self, scope: str = "read") -> dict[str, Any]:
        """The tokens of alice, who fills in the forms for her password and her consent (code flow with PKCE)."""
        return log_in(self.tls, self.origin + self.paths["authorization"], self.token_url, scope)

    def revoke(self, token: str, client: str) -> None:
        answer = self._post(self.revocation_url, client, {"token": token})
        assert answer.status_code == 200, answer.text

    def questions(self) -> int:
        """How often the server was asked about tokens since the last call."""
        asked: int = self.tell("asked").get(self.paths["introspection"], 0)
        return asked

    def stop(self) -> None:
        """Close the port. The process keeps what it knows."""
        self.tell("stop")

    def start(self) -> None:
        self.tell("start")

    def _post(self, url: str, client: str, data: dict[str, str]) -> httpx.Response:
        with httpx.Client(verify=self.tls, timeout=60) as http:
            return http.post(url, auth=(client, "secret"), data=data)

    def _tokens(self, client: str, data: dict[str, str]) -> dict[str, Any]:
        answer = self._post(self.token_url, client, data)
        assert answer.status_code == 200, answer.text
        tokens: dict[str, Any] = answer.json()
        return tokens


class AuthlibServer(IntrospectingServer):
    """Authlib's authorization server: refresh tokens that rotate, access tokens of RFC 9068 or opaque ones."""

    environment = "authlib-1.9.9"
    module = "tests.real.authlib_server"
    paths: ClassVar[Mapping[str, str]] = {"token": "/token", "introspection": "/introspect", "revocation": "/revoke"}

    def register(self, client: str, **metadata: Any) -> None:
        """Add or replace a client for client credentials; the metadata are those of RFC 7591."""
        self.tell("register", client=client, metadata=metadata)

    def set_lifetime(self, seconds: int) -> None:
        """How long new access tokens are valid."""
        self.tell("setLifetime", seconds=seconds)

    def trust(self, issuer: str, jwks: dict[str, Any]) -> None:
        """Accept identity assertions of that issuer, and of no other."""
        self.tell("trust", issuer=issuer, jwks=jwks)

    def trust_hints(self, trusted: bool) -> None:
        """Whether introspection looks for a token only where the hint of the question says."""
        self.tell("trustHints", trusted=trusted)

    def login(self, scope: str = "read") -> dict[str, Any]:
        """By the password grant."""
        return self._tokens("web", {"grant_type": "password", "username": "alice", "password": "x", "scope": scope})


class CanailleServer(IntrospectingServer):
    """Canaille, whose audiences are clients: the agent is its client "agent"."""

    environment = "canaille-0.3.6"
    module = "tests.real.canaille_server"
    paths: ClassVar[Mapping[str, str]] = {
        "authorization": "/oauth/authorize",
        "token": "/oauth/token",
        "introspection": "/oauth/introspect",
        "revocation": "/oauth/revoke",
    }
    audience = "agent"


class DjangoServer(IntrospectingServer):
    """django-oauth-toolkit, mounted at /o as its documentation has it."""

    environment = "django-oauth-toolkit-3.4.1"
    module = "tests.real.django_server"
    paths: ClassVar[Mapping[str, str]] = {
        "authorization": "/o/authorize/",
        "token": "/o/token/",
        "introspection": "/o/introspect/",
        "revocation": "/o/revoke_token/",
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.issuer = f"{self.origin}/o"

    def set_active(self, active: bool) -> None:
        """Whether alice may log in."""
        self.tell("setActive", user="alice", active=active)


S = TypeVar("S", bound=_Server)


@contextmanager
def running(kind: type[S], folder: Path) -> Iterator[S]:
    """A server of this kind while the block runs; its certificates are in ``folder``."""
    server = kind(folder)
    try:
        yield server
    finally:
        server.close()
