"""The login of a user at an authorization server: authorization code with PKCE, in a browser that fills in forms."""

from __future__ import annotations

import hashlib
import secrets
import ssl
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx

from a2a_trust.keys import base64url

__all__ = ["AUDIENCE", "log_in"]

AUDIENCE: Final = "https://agent.example"
_CALLBACK: Final = "https://client.example/callback"
_MAX_PAGES: Final = 20


def filled_in(browser: httpx.Client, page: httpx.Response) -> httpx.Response:
    """The next page, after alice has filled in the form of this one and agreed to it."""
    assert page.status_code == 200, page.text
    given = {"username": "alice", "login": "alice", "password": "alices-password", "answer": "accept"}
    form = {name: given.get(name, value) for name, value in _FormFields(page.text).items()}
    return browser.post(page.url, data=form, headers={"referer": str(page.url)})


class _FormFields(dict[str, str], HTMLParser):
    """The fields and named buttons of the form in a page, with their values."""

    def __init__(self, page: str) -> None:
        super().__init__()
        HTMLParser.__init__(self)
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        field = dict(attrs)
        name = field.get("name")
        if tag in ("input", "button") and name:
            self[name] = field.get("value") or ""


def log_in(
    tls: ssl.SSLContext,
    authorization_url: str,
    token_url: str,
    scope: str,
    next_page: Callable[[httpx.Client, httpx.Response], httpx.Response] = filled_in,
) -> dict[str, Any]:
    """The tokens of alice for the client "web", whose secret is "secret"."""
    verifier = secrets.token_urlsafe(32)
    question = {
        "client_id": "web",
        "response_type": "code",
        "redirect_uri": _CALLBACK,
        "scope": scope,
        "nonce": secrets.token_hex(8),
        "resource": AUDIENCE,
        "code_challenge": base64url.encode(hashlib.sha256(verifier.encode()).digest()),
        "code_challenge_method": "S256",
    }
    with httpx.Client(verify=tls, base_url=authorization_url, timeout=60) as browser:
        code = _code(browser, browser.get("", params=question), next_page)
        answer = browser.post(
            token_url,
            auth=("web", "secret"),
            data={
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": _CALLBACK,
                "code_verifier": verifier,
                "resource": AUDIENCE,
            },
        )
    assert answer.status_code == 200, answer.text
    tokens: dict[str, Any] = answer.json()
    return tokens


def _code(
    browser: httpx.Client,
    page: httpx.Response,
    next_page: Callable[[httpx.Client, httpx.Response], httpx.Response],
) -> str:
    for _ in range(_MAX_PAGES):
        target: str = page.headers.get("location", "")
        if target.startswith(_CALLBACK):
            back = parse_qs(urlsplit(target).query)
            assert "code" in back, back
            code: str = back["code"][0]
            return code
        page = browser.get(page.url.join(target)) if page.is_redirect else next_page(browser, page)
    raise AssertionError("the server does not end")
