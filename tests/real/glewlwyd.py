"""Glewlwyd, the package of Debian, as a process, with its tables, settings and clients made before it is used."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from a2a_trust.base.net.fetcher import Fetcher
from tests.base.net.test_fetcher import Authority
from tests.real.code_flow import AUDIENCE, log_in
from tests.servers.serving import free_port
from tests.tiers import missing

__all__ = ["Glewlwyd", "running_glewlwyd"]

_TABLES: Final = Path("/usr/share/dbconfig-common/data/glewlwyd/install/sqlite3")
_MODULES: Final = Path("/usr/lib/glewlwyd")
_START_SECONDS: Final = 300
_END_SECONDS: Final = 60

_SETTINGS: Final = """\
port={port}
bind_address="127.0.0.1"
external_url="https://127.0.0.1:{port}"
login_url="login.html"
api_prefix="api"
log_mode="console"
log_level="WARNING"
cookie_secure=1
session_key="session"
admin_session_authentication="cookie"
admin_scope="g_admin"
profile_scope="g_profile"
user_module_path="{modules}/user"
client_module_path="{modules}/client"
user_auth_scheme_module_path="{modules}/scheme"
plugin_module_path="{modules}/plugin"
use_secure_connection=true
secure_connection_key_file="{folder}/server.pem"
secure_connection_pem_file="{folder}/server.pem"
secure_connection_ca_file="{folder}/authority.pem"
hash_algorithm="SHA512"
database = {{ type="sqlite3"; path="{folder}/glewlwyd.sqlite3"; }};
"""


@contextmanager
def running_glewlwyd(folder: Path) -> Iterator[Glewlwyd]:
    """The server runs while the block does, of the Debian package."""
    if shutil.which("glewlwyd") is None or not _TABLES.exists():
        missing("Glewlwyd", "real-providers")
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        port = free_port()
        server = Glewlwyd(folder, port)
        process = subprocess.Popen(
            ["glewlwyd", f"--config-file={folder / 'glewlwyd.conf'}"],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        try:
            try:
                server.set_up()
            except Exception as error:
                said.seek(0)
                raise AssertionError(f"Glewlwyd is not set up: {error}\n{said.read()[-4000:]}") from error
            yield server
        finally:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Glewlwyd:
    """Its clients are "service" (client credentials), "agent" (the same) and "web" (the login of alice)."""

    def __init__(self, folder: Path, port: int) -> None:
        self.origin = f"https://127.0.0.1:{port}"
        self.issuer = f"{self.origin}/api/oidc"  # where its metadata are
        self.token_url = f"{self.issuer}/token"
        self.introspection_url = f"{self.issuer}/introspect"
        authority = Authority(folder)
        authority.server("127.0.0.1")
        self.tls = authority.client()
        (folder / "authority.pem").write_bytes(authority.certificate.public_bytes(Encoding.PEM))
        settings = _SETTINGS.format(port=port, folder=folder, modules=_MODULES)
        (folder / "glewlwyd.conf").write_text(settings, encoding="utf-8")
        with closing(sqlite3.connect(folder / "glewlwyd.sqlite3")) as database:
            database.executescript(_TABLES.read_text(encoding="utf-8"))

    def fetcher(self) -> Fetcher:
        """A fetcher as an operator makes it for a server of the own network."""
        return Fetcher(ssl_context=self.tls, private_origins=[self.origin], timeout=60)

    def set_up(self) -> None:
        """What an administrator does in the console, by its API."""
        with httpx.Client(verify=self.tls, base_url=f"{self.origin}/api", timeout=60) as console:
            self._wait_for(console)

            def add(path: str, **what: Any) -> None:
                console.post(path, json=what).raise_for_status()

            add("/auth/", username="admin", password="password")
            for scope in ("read", "write"):
                add("/scope/", name=scope, display_name=scope, password_required=True, password_max_age=0, scheme={})
            add("/mod/plugin/", module="oidc", name="oidc", display_name="oidc", parameters=_plugin(self.issuer))
            scopes = ["openid", "read", "write"]
            add("/user/", username="alice", password="alices-password", scope=scopes, enabled=True)
            confidential = {
                "client_secret": "secret",
                "confidential": True,
                "enabled": True,
                "token_endpoint_auth_method": ["client_secret_basic"],
            }
            for name in ("service", "agent"):
                machine = {"authorization_type": ["client_credentials"], "scope": ["read", "write"]}
                add("/client/", client_id=name, **machine, **confidential)
            login = {
                "authorization_type": ["code", "refresh_token"],
                "redirect_uri": ["https://client.example/callback"],
            }
            add("/client/", client_id="web", scope=[], **login, **confidential)

    def machine_token(self, scope: str = "read") -> str:
        """An access token of the client "service" for the agent (RFC 8707)."""
        form = {"grant_type": "client_credentials", "scope": scope, "resource": AUDIENCE}
        with httpx.Client(verify=self.tls, timeout=60) as http:
            answer = http.post(self.token_url, auth=("service", "secret"), data=form)
        assert answer.status_code == 200, answer.text
        token: str = answer.json()["access_token"]
        return token

    def login(self, scope: str = "openid read") -> dict[str, Any]:
        """The tokens of alice. Her browser does what the script in the pages of this server does, by its API."""

        def agreed(browser: httpx.Client, page: httpx.Response) -> httpx.Response:
            api = f"{self.origin}/api/auth"
            password = {"username": "alice", "password": "alices-password"}
            browser.post(f"{api}/", json=password).raise_for_status()
            browser.put(f"{api}/grant/web", json={"scope": scope}).raise_for_status()
            (callback,) = parse_qs(page.url.query.decode())["callback_url"]
            return browser.get(f"{callback}&g_continue")

        return log_in(self.tls, f"{self.issuer}/auth", self.token_url, scope, agreed)

    def _wait_for(self, console: httpx.Client) -> None:
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                console.get("/")
            except httpx.ConnectError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
            else:
                return


def _key() -> ec.EllipticCurvePrivateKey:
    """A key whose coordinates do not begin with a zero octet: Glewlwyd 2.7.5 drops it, against RFC 7518 6.2.1.2."""
    while True:
        key = ec.generate_private_key(ec.SECP256R1())
        point = key.public_key().public_numbers()
        if point.x >> 248 and point.y >> 248:
            return key


def _plugin(issuer: str) -> dict[str, Any]:
    """The OpenID Connect plugin: tokens of RFC 9068 for the agent (RFC 8707), introspection, no implicit flows."""
    key = _key()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return {
        "iss": issuer,
        "jwt-type": "ecdsa",
        "jwt-key-size": "256",
        "key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        "cert": public.decode(),
        "access-token-duration": 600,
        "refresh-token-duration": 3600,
        "code-duration": 60,
        "refresh-token-rolling": True,
        "allow-non-oidc": True,
        "auth-type-code-enabled": True,
        "auth-type-token-enabled": False,
        "auth-type-id-token-enabled": False,
        "auth-type-password-enabled": False,
        "auth-type-client-enabled": True,
        "auth-type-refresh-enabled": True,
        "pkce-allowed": True,
        "resource-allowed": True,
        "resource-scope": {scope: [AUDIENCE] for scope in ("read", "write")},
        "resource-scope-and-client-property": False,
        "jwks-show": True,
        "introspection-revocation-allowed": True,
        "introspection-revocation-allow-target-client": True,
    }
