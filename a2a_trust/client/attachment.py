"""Attaches credentials to an httpx request so that only the transport sees them.

httpx copies the headers of a request when it follows a redirect, and writes URLs into its log. A credential that is
attached here is only in ``headers.raw`` and ``url.raw_path``, which transports send, and only while the request is
sent. It is in no copy, text, repr or pickle, so redirects, the log of httpx and tracebacks do not have it. The httpx
extension ``trace`` does see it.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote_plus
from weakref import ref

import httpx

from a2a_trust.client.messages import NOTHING, Attachment
from a2a_trust.errors import MalformedError


def attach(request: httpx.Request, attachment: Attachment) -> None:
    """Attach credentials. They replace attached ones, and headers, cookies and parameters with the same names.

    They are for this origin and path: a hook that changes the URL takes them away. Attach NOTHING after sending:
    programs may send a request again, to another URL, or keep it.
    """
    headers = request.headers
    if not isinstance(headers, _Headers):
        if attachment is NOTHING:
            return
        request.headers = headers = _Headers(headers)
    headers.attached = attachment, ref(request), place_of(request)
    if attachment.parameters:
        request.url = _Url(request.url, attachment)
    elif isinstance(request.url, _Url):
        request.url = request.url.shown


def copy_attachment(request: httpx.Request, written_again: httpx.Request) -> None:
    if isinstance(request.headers, _Headers):
        attach(written_again, request.headers.attachment)


def place_of(request: httpx.Request) -> tuple[str, bytes, str]:
    """The scheme, the host with its port, and the path that the request is sent to."""
    return request.url.scheme, request.url.netloc, request.url.path


class _Headers(httpx.Headers):
    #: The credentials, and the request and the place that they are for.
    attached: tuple[Attachment, ref[httpx.Request], tuple[str, bytes, str]]

    @property
    def attachment(self) -> Attachment:
        attachment, request_of, place = self.attached
        request = request_of()
        return attachment if request is not None and place_of(request) == place else NOTHING

    @property
    def raw(self) -> list[tuple[bytes, bytes]]:
        attachment = self.attachment
        names = {name for name, _ in attachment.headers}
        lines = [line for line in super().raw if line[0].lower() not in names]
        if attachment.cookies:
            lines = _with_cookies(lines, attachment.cookies)
        return [*lines, *attachment.headers]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles, also of responses and errors with the request, do not contain attached credentials."""
        return httpx.Headers, (super().raw,)


class _Url(httpx.URL):
    def __init__(self, shown: httpx.URL, attachment: Attachment) -> None:
        super().__init__(shown)
        self.shown: httpx.URL = shown.shown if isinstance(shown, _Url) else shown
        self._attachment = attachment

    @property
    def query(self) -> bytes:
        names = {name for name, _ in self._attachment.parameters}
        given = [(unquote_plus(pair.partition(b"=")[0].decode("latin-1")), pair) for pair in super().query.split(b"&")]
        pairs = [pair for name, pair in given if pair and name not in names]
        added = [f"{quote(name, safe='')}={quote(text, safe='')}" for name, text in self._attachment.parameters]
        return b"&".join([*pairs, *map(str.encode, added)])

    @property
    def raw_path(self) -> bytes:
        return super().raw_path.partition(b"?")[0] + b"?" + self.query

    def __reduce__(self) -> tuple[Any, ...]:
        return httpx.URL, (str(self),)


def _with_cookies(lines: list[tuple[bytes, bytes]], cookies: tuple[tuple[str, str], ...]) -> list[tuple[bytes, bytes]]:
    names = {name.encode() for name, _ in cookies}
    pairs = [pair.strip() for name, value in lines if name.lower() == b"cookie" for pair in value.split(b";")]
    kept = [pair for pair in pairs if pair and pair.partition(b"=")[0].strip() not in names]
    kept += [f"{name}={text}".encode() for name, text in cookies]
    return [*[line for line in lines if line[0].lower() != b"cookie"], (b"Cookie", b"; ".join(kept))]


def sent_to(request: httpx.Request) -> str:
    """The URL that the request is really sent to: ``str(url)`` may have another host, because httpx normalizes it.

    MalformedError: it has no host, or the program has replaced its path.
    """
    url = request.url
    host = url.netloc.decode("ascii")
    if host[:1] in ("", ":"):
        raise MalformedError("URL: it has no host; write https://host/path")
    if "target" in request.extensions:
        raise MalformedError("URL: the httpx extension target sends the request to another URL; leave it out")
    fragment = f"#{str(url).partition('#')[2]}" if url.fragment else ""
    return f"{url.scheme}://{host}{url.raw_path.decode('ascii')}{fragment}"
