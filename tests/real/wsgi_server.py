"""A WSGI application over https on loopback that is told what to do by JSON lines on standard input, one answer each.

Run in the environments of the servers, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import base64
import json
import ssl
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from typing import Any
from urllib.parse import unquote_plus

from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request

__all__ = ["CERTIFICATE", "Command", "serve"]

CERTIFICATE = "client.certificate"

Command = Callable[..., dict[str, Any] | None]
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def serve(make: Callable[[str], tuple[Application, Mapping[str, Command]]], token_path: str = "/token") -> None:
    """Serve until standard input ends. The certificate and its key are in the file that the first argument names, the
    authority of client certificates in the second.

    ``make`` is given the issuer's URL. These commands come on top of its own ones: "describe", "tokenRequests",
    "asked" (how many requests came to each path since it was last asked), "stop", and "start" at the same port.
    """
    answers, sys.stdout = sys.stdout, sys.stderr  # standard output is for answers
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1])
    context.load_verify_locations(sys.argv[2])
    context.verify_mode = ssl.CERT_OPTIONAL
    requests: list[dict[str, Any]] = []
    paths = Counter[str]()

    def listening(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        paths[environ["PATH_INFO"]] += 1
        return app(environ, start)

    listener = _Listener(listening, context)
    issuer = f"https://127.0.0.1:{listener.port}"
    inner, own = make(issuer)
    app = _recording(inner, requests, token_path)

    def take_requests() -> dict[str, Any]:
        taken = requests[:]
        del requests[: len(taken)]
        return {"requests": taken}

    def take_paths() -> dict[str, Any]:
        taken = dict(paths)
        paths.clear()
        return taken

    commands = {
        **own,
        "describe": lambda: {"issuer": issuer},
        "tokenRequests": take_requests,
        "asked": take_paths,
        "stop": listener.stop,
        "start": listener.start,
    }
    listener.start()
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = commands[question.pop("do")](**question) or {}
        except Exception:  # noqa: BLE001  the test that asked shall see it
            answer = {"crashed": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)
    listener.stop()


class _Listener:
    """The application at one port of loopback, which can stop and start again."""

    def __init__(self, app: Application, context: ssl.SSLContext) -> None:
        self._app, self._context = app, context
        self._server: Any = self._listen(0)
        self.port: int = self._server.port

    def _listen(self, port: int) -> Any:
        return make_server(
            "127.0.0.1", port, self._app, threaded=True, ssl_context=self._context, request_handler=_Handler
        )

    def start(self) -> None:
        self._server = self._server or self._listen(self.port)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Handler(WSGIRequestHandler):  # type: ignore[misc]
    """Tells the application of the client's certificate, in DER; None without one."""

    def make_environ(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().make_environ()
        return {**environ, CERTIFICATE: self.connection.getpeercert(binary_form=True)}


def _recording(app: Application, requests: list[dict[str, Any]], token_path: str) -> Application:
    """The application; what comes to its token endpoint is written down."""

    def recorded(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != token_path:
            return app(environ, start)
        body = Request(environ).get_data()
        came = _came(Request({**environ, "wsgi.input": BytesIO(body)}))

        def started(status: str, *more: Any) -> Any:
            requests.append({**came, "status": int(status[:3])})
            return start(status, *more)

        return app({**environ, "wsgi.input": BytesIO(body)}, started)

    return recorded


def _came(request: Any) -> dict[str, Any]:
    form = request.form
    client, method = _authentication(request)
    return {
        "grant": form.get("grant_type"),
        "client": client,
        "method": method,
        "scope": form.get("scope"),
        "resource": form.getlist("resource"),
        "audience": form.getlist("audience"),
        "dpop": "DPoP" in request.headers,
    }


def _authentication(request: Any) -> tuple[str | None, str]:
    """Which client the request names, and how it authenticates."""
    form, (scheme, _, value) = request.form, request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "basic":
        return unquote_plus(base64.b64decode(value).decode().partition(":")[0]), "client_secret_basic"
    if "client_assertion" in form:
        claims = form["client_assertion"].split(".")[1]
        return json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"], "private_key_jwt"
    return form.get("client_id"), "client_secret_post" if "client_secret" in form else "none"
