"""An issuer of access tokens on this machine: its two documents over HTTP, and any token that a test wants."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from a2a_trust import generate_signer, publish_jwks
from a2a_trust.keys import LocalSigner

__all__ = ["Issuer", "issuing"]


class Issuer:
    """``url`` is its name; ``token`` makes an access token that is good for an hour."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._signer = generate_signer("ES256", kid="issuer")

    def token(self, *, audience: str, by: LocalSigner | None = None, **claims: Any) -> str:
        now = int(time.time())
        good = {"iss": self.url, "aud": audience, "sub": "ann", "iat": now, "exp": now + 3600, "scope": "read"}
        header = _encoded({"alg": "ES256", "kid": "issuer", "typ": "at+jwt"})
        signed = f"{header}.{_encoded({**good, **claims})}"
        return f"{signed}.{_base64url((by or self._signer).sign(signed.encode()))}"

    def documents(self) -> dict[str, bytes]:
        metadata = {"issuer": self.url, "jwks_uri": f"{self.url}/jwks"}
        return {
            "/.well-known/openid-configuration": json.dumps(metadata).encode(),
            "/jwks": json.dumps(publish_jwks([self._signer.public_key])).encode(),
        }


@contextmanager
def issuing() -> Iterator[Issuer]:
    """The issuer answers while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # else each answer in two parts takes 40 ms

        def do_GET(self) -> None:
            body = issuer.documents().get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer = Issuer(f"http://127.0.0.1:{server.server_address[1]}")
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()


def _encoded(value: Any) -> str:
    return _base64url(json.dumps(value).encode())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
