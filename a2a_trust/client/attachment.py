"""Attaches credentials to a request of httpx or httpx2 so that only the transport sees them.

Both libraries copy the headers of a request when they follow a redirect, and write URLs into their log. A credential
that is attached here is only in ``headers.raw`` and ``url.raw_path``, which transports send, and only while the request
is sent. It is in no copy, text, repr or pickle, so redirects, logs and tracebacks do not have it. The extension
``trace`` does see it.
"""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote, unquote_plus
from weakref import ref

from a2a_trust.client.library import HttpRequest, derived
from a2a_trust.client.messages import NOTHING, Attachment
from a2a_trust.errors import MalformedError


def attach(request: HttpRequest, attachment: Attachment) -> None:
    """Attach credentials. They replace attached ones, and headers, cookies and parameters with the same names.

    They are for this origin and path: a hook that changes the URL takes them away. Attach NOTHING after sending:
    programs may send a request again, to another URL, or keep it.
    """
    headers = request.headers
    if not isinstance(headers, _Headers):
        if attachment is NOTHING:
            return
        kind: Any = type(headers)
        request.headers = headers = derived(_Headers, kind)(headers)
    headers.attached = attachment, ref(request), place_of(request)
    if attachment.parameters:
        shown: Any = request.url.shown if isinstance(request.url, _Url) else request.url
        kind = type(shown)
        request.url = derived(_Url, kind)(shown)
        request.url.shown, request.url.attachment = shown, attachment
    elif isinstance(request.url, _Url):
        request.url = request.url.shown


def copy_attachment(request: HttpRequest, written_again: HttpRequest) -> None:
    if isinstance(request.headers, _Headers):
        attach(written_again, request.headers.attachment)


def place_of(request: HttpRequest) -> tuple[str, bytes, str]:
    """The scheme, the host with its port, and the path that the request is sent to."""
    return request.url.scheme, request.url.netloc, request.url.path


class _Headers:
    plain: type[Any]
    #: The credentials, and the request and the place that they are for.
    attached: tuple[Attachment, ref[HttpRequest], tuple[str, bytes, str]]

    @property
    def attachment(self) -> Attachment:
        attachment, request_of, place = self.attached
        request = request_of()
        return attachment if request is not None and place_of(request) == place else NOTHING

    @property
    def raw(self) -> list[tuple[bytes, bytes]]:
        attachment = self.attachment
        names = {name for name, _ in attachment.headers}
        lines = [line for line in cast("Any", super()).raw if line[0].lower() not in names]
        if attachment.cookies:
            lines = _with_cookies(lines, attachment.cookies)
        return [*lines, *attachment.headers]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles, also of responses and errors with the request, do not contain attached credentials."""
        return self.plain, (cast("Any", super()).raw,)


class _Url:
    plain: type[Any]
    shown: Any
    attachment: Attachment

    @property
    def query(self) -> bytes:
        names = {name for name, _ in self.attachment.parameters}
        given = [
            (unquote_plus(pair.partition(b"=")[0].decode("latin-1")), pair)
            for pair in cast("Any", super()).query.split(b"&")
        ]
        pairs = [pair for name, pair in given if pair and name not in names]
        added = [f"{quote(name, safe='')}={quote(text, safe='')}" for name, text in self.attachment.parameters]
        return b"&".join([*pairs, *map(str.encode, added)])

    @property
    def raw_path(self) -> bytes:
        path: bytes = cast("Any", super()).raw_path.partition(b"?")[0]
        return path + b"?" + self.query

    def __reduce__(self) -> tuple[Any, ...]:
        return self.plain, (str(self),)


def _with_cookies(lines: list[tuple[bytes, bytes]], cookies: tuple[tuple[str, str], ...]) -> list[tuple[bytes, bytes]]:
    names = {name.encode() for name, _ in cookies}
    pairs = [pair.strip() for name, value in lines if name.lower() == b"cookie" for pair in value.split(b";")]
    kept = [pair for pair in pairs if pair and pair.partition(b"=")[0].strip() not in names]
    kept += [f"{name}={text}".encode() for name, text in cookies]
    return [*[line for line in lines if line[0].lower() != b"cookie"], (b"Cookie", b"; ".join(kept))]


def sent_to(request: HttpRequest) -> str:
    """The URL that the request is really sent to: ``str(url)`` may have another host, as libraries normalize it.

    MalformedError: it has no host, or the program has replaced its path.
    """
    url = request.url
    host = url.netloc.decode("ascii")
    if host[:1] in ("", ":"):
        raise MalformedError("URL: it has no host; write https://host/path")
    if "target" in request.extensions:
        raise MalformedError("URL: the extension target sends the request to another URL; leave it out")
    fragment = f"#{str(url).partition('#')[2]}" if url.fragment else ""
    return f"{url.scheme}://{host}{url.raw_path.decode('ascii')}{fragment}"
