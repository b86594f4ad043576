"""A real OpenID provider as a process, and its tokens, each got by the route by which clients get it."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx
from cryptography.hazmat.primitives.serialization import Encoding

from a2a_trust import generate_signer
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.keys import LocalSigner, base64url
from tests.base.net.test_fetcher import Authority
from tests.interop.sdk_process import SdkUnavailableError, node_environment
from tests.real.server_process import ServerProcess
from tests.tiers import missing

__all__ = ["ALGS", "AUDIENCE", "LOCKED", "OpenIdProvider", "running_provider", "sign_jwt"]

ALGS: Final = ("RS256", "ES256", "EdDSA")
AUDIENCE: Final = "https://agent.example"

_HERE: Final = Path(__file__).resolve().parent
LOCKED: Final = _HERE.parents[1] / "examples" / "production" / "oidc-provider-9.13.3"


@contextmanager
def running_provider(folder: Path) -> Iterator[OpenIdProvider]:
    """A provider while the block runs, with its certificates in ``folder``."""
    try:
        _, environment = node_environment(LOCKED)
    except SdkUnavailableError as error:
        missing(f"the OpenID provider ({error})", "real-providers")
    running = OpenIdProvider(environment, folder)
    try:
        yield running
    finally:
        running.close()


class OpenIdProvider(ServerProcess):
    """One provider on https://127.0.0.1 with a certificate of a private authority.

    ``certificate`` is that of the client "service-tls", with its key in the same file.
    """

    def __init__(self, environment: Path, folder: Path) -> None:
        authority = Authority(folder)
        authority.server("127.0.0.1")
        pem = (folder / "server.pem").read_text()
        self.tls, self.tls_with_certificate = authority.client(), authority.client()
        authority.server("client.example")
        self.certificate = (folder / "server.pem").rename(folder / "client.pem")
        self.tls_with_certificate.load_cert_chain(self.certificate)
        self.authority_pem = authority.certificate.public_bytes(Encoding.PEM).decode()
        settings = {"key": pem, "cert": pem, "ca": self.authority_pem, "audience": AUDIENCE}
        # A module from the command line finds its imports from the folder it runs in, where the packages are.
        program = (_HERE / "openid_provider.mjs").read_text(encoding="utf-8")
        super().__init__(["node", "--input-type=module", "--eval", program, "--", json.dumps(settings)], environment)
        self.issuer: str = self.tell("describe")["issuer"]
        self.discovery_url = f"{self.issuer}/.well-known/openid-configuration"
        self.token_url = f"{self.issuer}/token"
        self.introspection_url = f"{self.issuer}/token/introspection"

    def fetcher(self, *, named: bool = True) -> Fetcher:
        """A fetcher as an operator makes it for a provider of the own network; not ``named``: as for any other."""
        return Fetcher(ssl_context=self.tls, private_origins=[self.issuer] if named else [], timeout=60)

    def fetched(self) -> dict[str, int]:
        """How often each document was fetched until now."""
        return self.tell("fetched")

    def register(self, client: str, **metadata: Any) -> None:
        """Add or replace a client for client credentials; the metadata are those of RFC 7591."""
        self.tell("register", client=client, metadata=metadata)

    def signed(self, alg: str, header: dict[str, Any], claims: dict[str, Any]) -> str:
        """Anything in the shape of a token, signed by the issuer's own key."""
        token: str = self.tell("sign", alg=alg, header=header, claims=claims)["token"]
        return token

    async def access_token(self, alg: str, *, scope: str = "read write") -> str:
        """A plain access token: client credentials (RFC 6749 4.4) for our resource (RFC 8707)."""
        return await self._client_credentials("service", alg, scope, {}, self.tls)

    async def dpop_token(self, alg: str) -> str:
        """An access token that is bound to a key of the client (RFC 9449)."""
        proof = _dpop_proof(generate_signer("ES256"), f"{self.issuer}/token")
        return await self._client_credentials("service", alg, "read", {"DPoP": proof}, self.tls)

    async def opaque_token(self, *, scope: str = "read write", signer: LocalSigner | None = None) -> str:
        """An opaque access token, of which only the provider knows what it is; bound to the key of ``signer``."""
        headers = {} if signer is None else {"DPoP": _dpop_proof(signer, f"{self.issuer}/token")}
        return await self._client_credentials("service", "opaque", scope, headers, self.tls)

    async def revoke(self, token: str, client: str = "service") -> None:
        """End a token (RFC 7009)."""
        async with httpx.AsyncClient(verify=self.tls, base_url=self.issuer, timeout=60) as http:
            answer = await http.post("/token/revocation", auth=(client, "secret"), data={"token": token})
        assert answer.status_code == 200, answer.text

    def introspected(self) -> int:
        """How many questions about tokens were answered until now."""
        questions: int = self.tell("introspected")["questions"]
        return questions

    async def certificate_token(self, alg: str) -> str:
        """An access token that is bound to a certificate of the client (RFC 8705)."""
        return await self._client_credentials("bound-service", alg, "read", {}, self.tls_with_certificate)

    async def login(self, alg: str, *, nonce: str | None = None, client: str | None = None) -> dict[str, str]:
        """The ID token, access token and refresh token of somebody who has logged in: code flow with PKCE.

        Refresh tokens of the client "rotating" can be used once, those of "web-<alg>" again.
        """
        verifier = secrets.token_urlsafe(32)
        question = {
            "client_id": client or f"web-{alg}",
            "response_type": "code",
            "redirect_uri": "https://client.example/callback",
            "scope": "openid offline_access read",
            "prompt": "consent",
            "resource": f"{AUDIENCE}/{alg}",
            "code_challenge": base64url.encode(hashlib.sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
            **({} if nonce is None else {"nonce": nonce}),
        }
        async with httpx.AsyncClient(verify=self.tls, base_url=self.issuer, timeout=60) as browser:
            code = await self._consent(browser, await browser.get("/auth", params=question))
            answer = await browser.post(
                "/token",
                auth=(question["client_id"], "secret"),
                data={
                    "grant_type": "authorization_code",
                    "code": code,
                    "redirect_uri": question["redirect_uri"],
                    "code_verifier": verifier,
                    "resource": question["resource"],
                },
            )
        assert answer.status_code == 200, answer.text
        tokens: dict[str, str] = answer.json()
        return tokens

    async def _consent(self, browser: httpx.AsyncClient, page: httpx.Response) -> str:
        """Fill in the provider's own forms, for the name and for the consent, until it sends the browser back."""
        for _ in range(12):
            if page.is_redirect:
                target = urljoin(str(page.url), page.headers["location"])
                if not target.startswith(self.issuer):
                    query = parse_qs(urlsplit(target).query)
                    assert "code" in query, query
                    return query["code"][0]
                page = await browser.get(target)
            else:
                assert page.status_code == 200, page.text
                (prompt,) = re.findall(r'name="prompt" value="(\w+)"', page.text)
                page = await browser.post(page.url, data={"prompt": prompt, "login": "alice", "password": "x"})
        raise AssertionError("the provider does not end")

    async def _client_credentials(
        self, client: str, alg: str, scope: str, headers: dict[str, str], tls: ssl.SSLContext
    ) -> str:
        data = {"grant_type": "client_credentials", "resource": f"{AUDIENCE}/{alg}", "scope": scope}
        async with httpx.AsyncClient(verify=tls, base_url=self.issuer, timeout=60) as http:
            answer = await http.post("/token", auth=(client, "secret"), data=data, headers=headers)
        assert answer.status_code == 200, answer.text
        token: str = answer.json()["access_token"]
        return token


def _dpop_proof(signer: LocalSigner, url: str) -> str:
    """A proof that the client has the key (RFC 9449 4.2)."""
    header = {"typ": "dpop+jwt", "jwk": dict(signer.public_key.jwk)}
    return sign_jwt(signer, header, {"htm": "POST", "htu": url, "iat": int(time.time()), "jti": secrets.token_hex(8)})


def sign_jwt(signer: LocalSigner, header: dict[str, Any], claims: dict[str, Any]) -> str:
    """A JWT of a client, signed with its own key."""
    signed = ".".join(base64url.encode(json.dumps(part).encode()) for part in ({"alg": signer.alg, **header}, claims))
    return f"{signed}.{base64url.encode(signer.sign(signed.encode()))}"
